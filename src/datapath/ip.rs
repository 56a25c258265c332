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
use ipoib::Time;

use super::handle::Inbox;
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

impl Ip {
    /// Applies the updates at the head of the inbox. Packets may be reactions to what other threads have learned, so this
    /// comes after the arrival of a packet and before its handling.
    #[inline]
    pub(super) fn apply_updates(&mut self, inbox: &mut Inbox, now: Time) {
        for _ in 0..inbox.len() {
            let Some((id, update)) = inbox.next_update() else {
                return;
            };
            if let Some(at) = self.lanes.of_link(id)
                && let Some(lane) = self.lanes.get_mut(at)
            {
                lane.core.apply(now, &update);
                if self.owed.last() != Some(&at) {
                    self.owed.push(at);
                }
            }
        }
    }
}
