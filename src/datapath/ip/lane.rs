//! An IP link's part in one data thread: a TAP queue, a replica of the protocol core, counters.

use fabric::{Qpn, UdDestination, Worker};
use ipoib::{Ipoib, Target, Time};

use super::super::command::Command;
use super::super::handle::Mailbox;
use super::super::lane::{LaneBase, Served};
use super::super::stats::IpStats;
use super::super::train::OpenTrain;

/// What a data thread serves of one IP link.
pub struct IpLane {
    /// What all lanes have.
    pub base: LaneBase,
    /// This thread's replica of the protocol core.
    pub core: Ipoib,
    /// The largest IP packet that the link carries, in bytes.
    pub link_mtu: usize,
    /// Whether frames for guests and groups go back to the TAP, too.
    pub reflect: bool,
    /// The VLAN id that frames have on the TAP, which is another lane's then, and not read here.
    pub vlan: Option<u16>,
    /// Counters.
    pub stats: IpStats,
}

impl Served for IpLane {
    fn base(&self) -> &LaneBase {
        &self.base
    }

    fn qpn(&self) -> Option<Qpn> {
        Some(self.core.local().qpn())
    }

    fn next_deadline(&self) -> Option<Time> {
        self.core.next_deadline()
    }

    fn release_ahs(&mut self, fabric: &mut dyn Worker, train: &mut OpenTrain) {
        let IpLane { base, core, .. } = self;
        base.release_ahs(fabric, train, || core.pop_released_ah());
    }

    fn release_all(&mut self, fabric: &mut dyn Worker, train: &mut OpenTrain) {
        self.base.priorities.release_all();
        self.core.release_all();
        self.release_ahs(fabric, train);
    }
}

impl IpLane {
    /// Where a target is on the fabric, with an address handle made if there is none yet.
    #[inline]
    pub fn destination(&mut self, fabric: &mut dyn Worker, to: Target) -> Option<UdDestination> {
        let IpLane { base, core, .. } = self;
        let known = core.ah(to);
        base.destination(fabric, core.address(to), known, |ah| core.set_ah(to, ah))
    }

    /// Whether somebody is to hear from the core.
    pub fn has_news(&self) -> bool {
        self.core.has_updates() || self.core.has_events()
    }

    /// Sends what the core learned to the other threads.
    pub fn publish(&mut self, replicas: &[Mailbox]) {
        let id = self.base.id;
        for update in self.core.drain_updates() {
            for replica in replicas {
                replica.send(Command::Update(id, update.clone()));
            }
        }
    }
}
