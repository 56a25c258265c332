//! A VNIC's part in one data thread: a TAP queue, a replica of the core, counters.

use std::sync::Arc;

use fabric::{Qpn, Room, UdDestination, Worker};
use ipoib::Time;
use netdev::tap::TapQueue;
use vnic::attribute::VeswPortInfo;
use vnic::directory::NodeAddress;
use vnic::packet::{FRAME_MAX, frame_max};
use vnic::port::{Settings, Target, VeswPort};
use vnic::{Lid, Mac};

use super::super::command::{Command, EthernetSibling};
use super::super::handle::Mailbox;
use super::super::lane::{LaneBase, LaneInit, LinkId, Served};
use super::super::stats::EthernetSnapshot;
use super::super::train::OpenTrain;

/// Variable settings of a VNIC. The control thread sends the complete value after a change, and the lanes
/// apply the differences.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct EthernetSettings {
    /// The VNIC's address on the fabric.
    pub local: NodeAddress,
    /// The virtual port's attributes, from the manager or the configuration. The Q_Key follows from the
    /// switch's number.
    pub info: VeswPortInfo,
    /// The MAC of the TAP.
    pub mac: Mac,
    /// The MTU of the interface, in bytes.
    pub mtu: u16,
    /// Whether the interface is up and has a carrier.
    pub up: bool,
    /// The largest UD payload of the fabric, in bytes.
    pub payload_max: usize,
    /// Whether received segments are coalesced (`ethtool -K gro`).
    pub coalesce: bool,
    /// Whether addresses are learned from received packets.
    pub learning: bool,
    /// Ageing time of learned addresses, in milliseconds; 0: none.
    pub ageing_ms: u64,
}

/// Constant properties of a VNIC's lane.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct EthernetInit {
    /// The common part.
    pub base: LaneInit,
    /// Maximum number of learned addresses.
    pub mac_limit: usize,
    /// The key of the flow hash, the same in all threads.
    pub hash_key: u64,
    /// Whether this lane reports addresses behind the interface.
    pub reports: bool,
}

/// The lane of a VNIC.
pub struct EthernetLane {
    /// The common part. The priorities are service classes.
    pub base: LaneBase,
    /// The settings last applied.
    pub settings: EthernetSettings,
    /// This thread's replica of the virtual port.
    pub core: VeswPort,
    /// The VNICs of this daemon on the same switch.
    pub siblings: Arc<[EthernetSibling]>,
}

impl Served for EthernetLane {
    fn base(&self) -> &LaneBase {
        &self.base
    }

    fn qpn(&self) -> Option<Qpn> {
        None
    }

    fn needs(&self) -> Room {
        Room::Datagrams
    }

    fn next_deadline(&self) -> Option<Time> {
        self.core.next_deadline()
    }

    fn release_ahs(&mut self, fabric: &mut dyn Worker, train: &mut OpenTrain) {
        let EthernetLane { base, core, .. } = self;
        base.release_ahs(fabric, train, || core.pop_released_ah());
    }

    fn release_all(&mut self, fabric: &mut dyn Worker, train: &mut OpenTrain) {
        self.base.priorities.release_all();
        self.core.release_all();
        self.release_ahs(fabric, train);
    }
}

impl EthernetLane {
    /// Creates a lane that writes to this queue. `reads`: the lane also reads the queue.
    pub fn new(
        init: &EthernetInit,
        settings: EthernetSettings,
        tap: TapQueue,
        reads: bool,
    ) -> EthernetLane {
        let mut base = LaneBase::new(&init.base, tap, reads);
        base.set_coalesce(settings.coalesce);
        let mut core = VeswPort::new(Settings {
            mac: settings.mac,
            local: settings.local,
            learning: settings.learning,
            ageing_ms: settings.ageing_ms,
            mac_limit: init.mac_limit,
            hash_key: init.hash_key,
            reports: init.reports,
        });
        core.set_mtu(settings.mtu);
        core.configure(&settings.info);
        core.set_up(settings.up);
        EthernetLane {
            base,
            settings,
            core,
            siblings: Arc::default(),
        }
    }

    /// Applies the differences of new settings.
    pub fn apply(&mut self, now: Time, settings: EthernetSettings) {
        let EthernetLane { base, core, .. } = self;
        let was = std::mem::replace(&mut self.settings, settings);
        let is = &self.settings;
        if is.info != was.info {
            core.configure(&is.info);
            base.pkey = is.info.pkey;
        }
        if is.mac != was.mac {
            core.set_mac(is.mac);
        }
        if is.local != was.local {
            core.set_local(now, is.local);
        }
        if is.learning != was.learning {
            core.set_learning(is.learning);
        }
        core.set_ageing(is.ageing_ms);
        core.set_mtu(is.mtu);
        core.set_up(is.up);
        base.set_coalesce(is.coalesce);
    }

    /// Sets the siblings.
    pub fn set_siblings(&mut self, siblings: Arc<[EthernetSibling]>) {
        self.core
            .set_siblings(siblings.iter().map(|sibling| sibling.lid));
        self.siblings = siblings;
    }

    /// The destination of packets to a target in a service class; creates an address handle if needed. The
    /// lower three bits of the class are the priority on the fabric.
    pub fn destination(
        &mut self,
        fabric: &mut dyn Worker,
        to: Target,
        sc: u8,
    ) -> Option<UdDestination> {
        let EthernetLane { base, core, .. } = self;
        base.priorities.set(sc);
        let known = core.ah(to);
        base.destination(fabric, core.address(to), known, |ah| core.set_ah(to, ah))
    }

    /// The longest frame to send, in bytes without a frame check sequence. The MTU, the fabric's largest UD
    /// payload and the length field of the 16B header limit it.
    pub fn frame_max(&self) -> usize {
        let carried = frame_max(self.settings.payload_max).min(FRAME_MAX);
        self.core.frame_max().min(carried)
    }

    /// Whether the core has updates for other threads or events for the control thread.
    pub fn has_news(&self) -> bool {
        self.core.has_updates() || self.core.has_events()
    }

    /// Sends the core's updates to the other threads.
    pub fn publish(&mut self, replicas: &[Mailbox]) {
        publish(self.base.id, &mut self.core, replicas);
    }

    /// The sibling with a LID.
    pub fn sibling(&self, lid: Lid) -> Option<LinkId> {
        let sibling = self.siblings.iter().find(|sibling| sibling.lid == lid)?;
        Some(sibling.link)
    }

    /// A copy of the state in data thread `worker`; `tables` adds learned addresses and members.
    pub fn snapshot(&self, worker: usize, now: Time, tables: bool) -> EthernetSnapshot {
        EthernetSnapshot {
            id: self.base.id,
            worker,
            tap: self.base.stats,
            counters: *self.core.counters(),
            macs: match tables {
                true => self.core.learned(now).collect(),
                false => Vec::new(),
            },
            nodes: match tables {
                true => self.core.nodes().collect(),
                false => Vec::new(),
            },
        }
    }
}

/// Like [`EthernetLane::publish`], for a lane's core.
pub fn publish(id: LinkId, core: &mut VeswPort, replicas: &[Mailbox]) {
    for update in core.drain_updates() {
        for replica in replicas {
            replica.send(Command::EthernetUpdate(id, update));
        }
    }
}
