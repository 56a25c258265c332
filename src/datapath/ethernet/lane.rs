//! One VNIC's part in one data thread: a TAP queue, a replica of its core, counters.

use std::sync::Arc;

use fabric::{Qpn, UdDestination, Worker};
use ipoib::Time;
use netdev::tap::TapQueue;
use vnic::attribute::VeswPortInfo;
use vnic::carriage::data_qkey;
use vnic::directory::NodeAddress;
use vnic::packet::{FRAME_MAX, frame_max};
use vnic::port::{Settings, Target, VeswPort};
use vnic::{Lid, Mac};

use super::super::command::{Command, EthernetSibling};
use super::super::handle::Mailbox;
use super::super::lane::{LaneBase, LaneInit, LinkId, Served};
use super::super::stats::EthernetSnapshot;
use super::super::train::OpenTrain;

/// What may change of a VNIC. It is sent whole when something of it is another way, and the lanes apply
/// the difference.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct EthernetSettings {
    /// Where the VNIC is on the fabric.
    pub local: NodeAddress,
    /// What the manager, or the configuration, says of it. The Q_Key is that of the switch's data.
    pub info: VeswPortInfo,
    /// The MAC of the TAP.
    pub mac: Mac,
    /// The MTU of the interface, in bytes.
    pub mtu: u16,
    /// Whether the interface is up and has a carrier.
    pub up: bool,
    /// The largest UD payload of the fabric, in bytes.
    pub payload_max: usize,
    /// Whether received segments are merged, as `ethtool -K gro` says.
    pub coalesce: bool,
    /// Whether addresses are learned from what is received.
    pub learning: bool,
    /// After how many milliseconds what was learned and not heard of again is forgotten; 0: never.
    pub ageing_ms: u64,
}

/// What stays as it is while the lane of a VNIC is there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct EthernetInit {
    /// What all lanes have.
    pub base: LaneInit,
    /// How many addresses are learned.
    pub mac_limit: usize,
    /// The key of the flow hash, the same in all threads.
    pub hash_key: u64,
    /// Whether this lane reports addresses behind the interface.
    pub tells: bool,
}

/// What a data thread serves of one VNIC.
pub struct EthernetLane {
    /// What all lanes have. Priorities are service classes here.
    pub base: LaneBase,
    /// As last applied.
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

    fn next_deadline(&self) -> Option<Time> {
        self.core.next_deadline().map(|at| Time(at.0))
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
    /// A lane that writes to this queue, and reads it or does not.
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
            tells: init.tells,
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

    /// Applies what is another way in new settings.
    pub fn apply(&mut self, settings: EthernetSettings) {
        let EthernetLane { base, core, .. } = self;
        let was = std::mem::replace(&mut self.settings, settings);
        let is = &self.settings;
        if is.info != was.info {
            core.configure(&is.info);
            base.qkey = data_qkey(is.info.vesw_id);
        }
        if is.mac != was.mac {
            core.set_mac(is.mac);
        }
        if is.local != was.local {
            core.set_local(is.local);
        }
        if is.learning != was.learning {
            core.set_learning(is.learning);
        }
        core.set_ageing(is.ageing_ms);
        core.set_mtu(is.mtu);
        core.set_up(is.up);
        base.set_coalesce(is.coalesce);
    }

    /// Replaces the VNICs of this daemon that are reached without the fabric.
    pub fn set_siblings(&mut self, siblings: Arc<[EthernetSibling]>) {
        self.core
            .set_siblings(siblings.iter().map(|sibling| sibling.lid));
        self.siblings = siblings;
    }

    /// Where a target is on the fabric for packets in a service class, with an address handle made if there
    /// is none yet. The fabric below has eight priorities: the lower three bits of the class.
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

    /// The longest frame that leaves, in bytes without a frame check sequence: what the MTU, the
    /// fabric's packets, and the length in a 16B header leave room for.
    pub fn frame_max(&self) -> usize {
        let carried = frame_max(self.settings.payload_max).min(FRAME_MAX);
        self.core.frame_max().min(carried)
    }

    /// Whether somebody is to hear from the core.
    pub fn has_news(&self) -> bool {
        self.core.has_updates() || self.core.has_events()
    }

    /// Sends what the core learned to the other threads.
    pub fn publish(&mut self, replicas: &[Mailbox]) {
        publish(self.base.id, &mut self.core, replicas);
    }

    /// Which VNIC of this daemon and this switch has a LID.
    pub fn sibling(&self, lid: Lid) -> Option<LinkId> {
        let sibling = self.siblings.iter().find(|sibling| sibling.lid == lid)?;
        Some(sibling.device)
    }

    /// A copy of its state in a data thread of this number; with `tables` also of what was learned.
    pub fn snapshot(&self, worker: usize, now: vnic::Time, tables: bool) -> EthernetSnapshot {
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

/// As [`EthernetLane::publish`], of a lane's core alone.
pub fn publish(id: LinkId, core: &mut VeswPort, replicas: &[Mailbox]) {
    for update in core.drain_updates() {
        for replica in replicas {
            replica.send(Command::EthernetUpdate(id, update));
        }
    }
}
