//! The engine against agents, over a fabric that does its worst. A world comes from a seed, which a
//! failure prints.

mod faults;
mod life;
mod moves;
mod scale;
mod world;

use vnic::attribute::ConfigState;
use vnic::{Lid, Mac, Time};

use super::*;
use crate::api::PortCondition;
use world::{World, node_key};
