//! IPoIB in a data thread: the lanes of IP links, their packets in both directions, connections, VLANs,
//! and frames between links of this daemon.

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

/// The IP links of a data thread.
#[derive(Default)]
pub struct Ip {
    pub(super) lanes: Lanes<IpLane>,
    /// Lanes whose cores have news from a sibling and are not served yet.
    pub(super) owed: Vec<usize>,
    /// The lane of each connection.
    pub(super) connections: HashMap<ConnectionId, usize>,
    /// VLANs by the lane of their TAP, for TAPs whose tags select partitions.
    trunks: BTreeMap<usize, Trunk>,
}
