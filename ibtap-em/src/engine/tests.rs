//! The engine against agents, over a fabric that does its worst. A world comes from a seed, which a
//! failure prints.

mod faults;
mod groups;
mod identity;
mod life;
mod moves;
mod scale;
mod stubborn;
mod world;

use vnic::attribute::ConfigState;
use vnic::{Lid, Mac};

use super::*;
use crate::api::PortCondition;
use crate::api::{DrainRequest, ExplainRequest};
use crate::seam::Manager as _;
use world::{World, node_key};
