//! IPoIB in a data thread: the lanes of IP links, what leaves and arrives for them, their connections,
//! VLANs, and frames between links of this daemon.

mod connections;
mod lane;
mod message;
pub mod receive;
mod serve;
pub mod sibling;
pub mod transmit;
mod vlans;

use std::collections::{BTreeMap, HashMap};

use fabric::ConnectionId;

use super::lanes::Lanes;
pub use lane::{IpInit, IpLane, IpParts, IpSettings};
use vlans::Trunk;

/// What a data thread has of IP links.
#[derive(Default)]
pub struct Ip {
    pub(super) lanes: Lanes<IpLane>,
    /// Lanes whose cores have news of links of this daemon.
    pub(super) owed: Vec<usize>,
    /// Which lane a connection is of.
    pub(super) connections: HashMap<ConnectionId, usize>,
    /// What tags on lanes' TAPs select, where they do.
    trunks: BTreeMap<usize, Trunk>,
}
