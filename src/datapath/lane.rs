//! One device's part in one data thread: a TAP queue, a replica of the protocol core, counters.

use fabric::{AhAttributes, EndpointId, QKey, Qpn, UdDestination, Worker};
use ipoib::{Ipoib, Target, Time};
use netdev::tap::TapQueue;

use super::command::{Command, DeviceId};
use super::handle::Mailbox;
use super::lanes::Served;
use super::priority::Priorities;
use super::stats::LaneStats;
use super::train::OpenTrain;

/// What a data thread serves of one device.
pub struct Lane {
    /// The device.
    pub id: DeviceId,
    /// Its UD endpoint.
    pub endpoint: EndpointId,
    /// The Q_Key of its link.
    pub qkey: QKey,
    /// Its TAP queue.
    pub tap: TapQueue,
    /// Whether this thread reads that queue. A device with fewer queues than the port has threads
    /// shares them for writing, since its packets may arrive at any thread.
    pub reads: bool,
    /// This thread's replica of the protocol core.
    pub core: Ipoib,
    /// The largest IP packet that the link carries, in bytes.
    pub link_mtu: usize,
    /// Whether received segments are coalesced, as `ethtool -K gro` says.
    pub coalesce: bool,
    /// Whether frames for guests and groups go back to the TAP, too.
    pub reflect: bool,
    /// Whether the kernel takes coalesced UDP from us.
    pub uso: bool,
    /// The VLAN id that frames have on the TAP, which is another device's then, and not read here.
    pub vlan: Option<u16>,
    /// Address handles for frames with a priority.
    pub priorities: Priorities,
    /// Counters.
    pub stats: LaneStats,
}

impl Served for Lane {
    fn id(&self) -> DeviceId {
        self.id
    }

    fn endpoint(&self) -> EndpointId {
        self.endpoint
    }

    fn qpn(&self) -> Option<Qpn> {
        Some(self.core.local().qpn())
    }

    fn next_deadline(&self) -> Option<Time> {
        self.core.next_deadline()
    }
}

impl Lane {
    /// Where a target is on the fabric, with an address handle made if there is none yet.
    pub fn destination(&mut self, fabric: &mut dyn Worker, to: Target) -> Option<UdDestination> {
        let (dgid, qpn) = self.core.address(to);
        if self.priorities.is_raised() {
            let ah = self.priorities.handle(fabric, dgid)?;
            let qkey = self.qkey;
            return Some(UdDestination { ah, qpn, qkey });
        }
        let ah = match self.core.ah(to) {
            Some(ah) => ah,
            None => {
                let ah = fabric.create_ah(&AhAttributes::to(dgid)).ok()?;
                self.core.set_ah(to, ah);
                ah
            }
        };
        Some(UdDestination {
            ah,
            qpn,
            qkey: self.qkey,
        })
    }

    /// Sends what the core learned to the other threads.
    pub fn publish(&mut self, siblings: &[Mailbox]) {
        let id = self.id;
        for update in self.core.drain_updates() {
            for sibling in siblings {
                sibling.send(Command::Update(id, update.clone()));
            }
        }
    }

    /// Gives back the address handles that the core no longer names, after the last send that
    /// names them.
    pub fn release_ahs(&mut self, fabric: &mut dyn Worker, train: &mut OpenTrain) {
        for ah in self.priorities.released() {
            train.flush(fabric);
            fabric.destroy_ah(ah);
        }
        while let Some(ah) = self.core.pop_released_ah() {
            train.flush(fabric);
            fabric.destroy_ah(ah);
        }
    }
}
