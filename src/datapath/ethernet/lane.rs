//! One VNIC's part in one data thread: a TAP queue, a replica of its core, counters.

use std::sync::Arc;

use fabric::{AhAttributes, EndpointId, QKey, Qpn, UdDestination, Worker};
use ipoib::Time;
use netdev::tap::TapQueue;
use vnic::Lid;
use vnic::carriage::data_qkey;
use vnic::packet::{FRAME_MAX, frame_max};
use vnic::port::{Target, VeswPort};

use super::super::command::{Command, DeviceId};
use super::super::handle::Mailbox;
use super::super::lanes::Served;
use super::super::priority::Priorities;
use super::super::train::OpenTrain;
use super::command::{EthernetCommand, EthernetSibling};
use super::stats::{EthernetSnapshot, TapStats};

/// What a data thread serves of one VNIC.
pub struct EthernetLane {
    /// The VNIC, named as devices are.
    pub id: DeviceId,
    /// Its UD endpoint.
    pub endpoint: EndpointId,
    /// The Q_Key of its switch's data.
    pub qkey: QKey,
    /// Its TAP queue.
    pub tap: TapQueue,
    /// Whether this thread reads that queue.
    pub reads: bool,
    /// This thread's replica of the virtual port.
    pub core: VeswPort,
    /// The largest UD payload of the fabric, in bytes.
    pub payload_max: usize,
    /// Whether received segments are coalesced, as `ethtool -K gro` says.
    pub coalesce: bool,
    /// Whether the kernel takes coalesced UDP from us.
    pub uso: bool,
    /// The VNICs of this daemon on the same switch.
    pub siblings: Arc<[EthernetSibling]>,
    /// Address handles of packets in a service class other than 0.
    pub priorities: Priorities,
    /// Counters of the TAP.
    pub stats: TapStats,
}

impl Served for EthernetLane {
    fn id(&self) -> DeviceId {
        self.id
    }

    fn endpoint(&self) -> EndpointId {
        self.endpoint
    }

    fn qpn(&self) -> Option<Qpn> {
        None
    }

    fn next_deadline(&self) -> Option<Time> {
        self.core.next_deadline().map(|at| Time(at.0))
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
        let (gid, qpn) = self.core.address(to);
        self.priorities.set(sc);
        let ah = if self.priorities.is_raised() {
            self.priorities.handle(fabric, gid)?
        } else {
            match self.core.ah(to) {
                Some(ah) => ah,
                None => {
                    let ah = fabric.create_ah(&AhAttributes::to(gid)).ok()?;
                    self.core.set_ah(to, ah);
                    ah
                }
            }
        };
        let qkey = self.qkey;
        Some(UdDestination { ah, qpn, qkey })
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
    pub fn publish(&mut self, siblings: &[Mailbox]) {
        publish(self.id, &mut self.core, siblings);
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

/// As [`EthernetLane::publish`], of a lane's core alone.
pub fn publish(id: DeviceId, core: &mut VeswPort, siblings: &[Mailbox]) {
    for update in core.drain_updates() {
        for sibling in siblings {
            let command = EthernetCommand::Update(update);
            sibling.send(Command::Ethernet(id, command));
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
                self.qkey = data_qkey(info.vesw_id);
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
            EthernetCommand::SetCoalesce(on) => self.coalesce = on,
        }
    }

    /// Which VNIC of this daemon and this switch has a LID.
    pub fn sibling(&self, lid: Lid) -> Option<DeviceId> {
        let sibling = self.siblings.iter().find(|sibling| sibling.lid == lid)?;
        Some(sibling.device)
    }

    /// A copy of its state in a data thread of this number; with `tables` also of what was learned.
    pub fn snapshot(&self, worker: usize, now: vnic::Time, tables: bool) -> EthernetSnapshot {
        EthernetSnapshot {
            id: self.id,
            worker,
            tap: self.stats,
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
