//! One VNIC's part in one data thread: a TAP queue, a replica of its core, counters.

use std::sync::Arc;

use fabric::{Qpn, UdDestination, Worker};
use ipoib::Time;
use vnic::Lid;
use vnic::carriage::data_qkey;
use vnic::packet::{FRAME_MAX, frame_max};
use vnic::port::{Target, VeswPort};

use super::super::command::Command;
use super::super::handle::Mailbox;
use super::super::lane::{LaneBase, LinkId, Served};
use super::super::stats::EthernetSnapshot;
use super::super::train::OpenTrain;
use super::command::{EthernetCommand, EthernetSibling};

/// What a data thread serves of one VNIC.
pub struct EthernetLane {
    /// What all lanes have. Priorities are service classes here, and the Q_Key is that of the switch's
    /// data.
    pub base: LaneBase,
    /// This thread's replica of the virtual port.
    pub core: VeswPort,
    /// The largest UD payload of the fabric, in bytes.
    pub payload_max: usize,
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
        let carried = frame_max(self.payload_max).min(FRAME_MAX);
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
}

/// As [`EthernetLane::publish`], of a lane's core alone.
pub fn publish(id: LinkId, core: &mut VeswPort, replicas: &[Mailbox]) {
    for update in core.drain_updates() {
        for replica in replicas {
            let command = EthernetCommand::Update(update);
            replica.send(Command::Ethernet(id, command));
        }
    }
}

/// What the control thread, and other threads, want.
impl EthernetLane {
    /// Does what a command says.
    pub fn command(&mut self, command: EthernetCommand, now: vnic::Time) {
        let core = &mut self.core;
        match command {
            EthernetCommand::Update(update) => core.apply(now, &update),
            EthernetCommand::Configure(info) => {
                core.configure(&info);
                self.base.qkey = data_qkey(info.vesw_id);
            }
            EthernetCommand::SetTable(table) => core.set_table(table),
            EthernetCommand::SetDirectory(directory) => core.set_directory(&directory),
            EthernetCommand::SetUp(up) => core.set_up(up),
            EthernetCommand::SetMac(mac) => core.set_mac(mac),
            EthernetCommand::SetMtu(mtu) => core.set_mtu(mtu),
            EthernetCommand::SetLocal(local) => core.set_local(local),
            EthernetCommand::SetLearning(on) => core.set_learning(on),
            EthernetCommand::SetAgeing(milliseconds) => core.set_ageing(milliseconds),
            EthernetCommand::SetSiblings(siblings) => {
                core.set_siblings(siblings.iter().map(|sibling| sibling.lid));
                self.siblings = siblings;
            }
            EthernetCommand::SetPayloadMax(bytes) => self.payload_max = bytes,
            EthernetCommand::SetCoalesce(on) => self.base.set_coalesce(on),
        }
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
