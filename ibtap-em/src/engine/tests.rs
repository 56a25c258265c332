//! The engine with simulated agents and a bad fabric. A seed determines a world; failures print it.
//! `EM_SIM_SEED` repeats the storms of a seed; `EM_SIM_WORLDS` is the number of worlds.

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
use crate::api::{DrainRequest, ExplainRequest, StillDrained};
use crate::seam::Manager as _;
use world::{World, node_key};

/// Seeds of the worlds of a storm.
fn seeds(usually: u64) -> std::ops::RangeInclusive<u64> {
    let number = |name| std::env::var(name).ok()?.parse::<u64>().ok();
    match number("EM_SIM_SEED") {
        Some(seed) => seed..=seed,
        None => 1..=number("EM_SIM_WORLDS").unwrap_or(usually),
    }
}
