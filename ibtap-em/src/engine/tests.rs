//! The engine against agents, over a fabric that does its worst. A world comes from a seed, which a
//! failure prints. `EM_SIM_SEED` replays the storms of a seed, `EM_SIM_WORLDS` has so many of them.

mod faults;
mod groups;
mod identity;
mod life;
mod moves;
mod scale;
mod stubborn;
mod world;

use proto::Mac;
use vnic::Lid;
use vnic::attribute::ConfigState;

use super::*;
use crate::api::PortCondition;
use crate::api::{DrainRequest, ExplainRequest};
use crate::seam::Manager as _;
use world::{World, node_key};

/// The seeds of a storm's worlds.
fn seeds(usually: u64) -> std::ops::RangeInclusive<u64> {
    let number = |name| std::env::var(name).ok()?.parse::<u64>().ok();
    match number("EM_SIM_SEED") {
        Some(seed) => seed..=seed,
        None => 1..=number("EM_SIM_WORLDS").unwrap_or(usually),
    }
}
