//! The real device of the engine: queue pairs on the worker's queues, and communication management by the
//! kernel or by ourselves.

use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use proto::{Instant, Qpn, RejectReason};

use super::device::{Address, Device as Calls, Event, Path, Shape, Source};
use super::rdma_cm::{self, RdmaCm};
use super::umad::{self, UmadCm};
use crate::pkeys::PKeyTable;
use crate::verbs::device::Device;
use crate::verbs::ibv::cm::ConnectionParameters;
use crate::verbs::ibv::{Emptied, Place, QueuePair, QueuePairInit, QueuePairKind, StateChange};
use crate::verbs::transmit::Transmit;
use crate::worker::Counters;

/// Acknowledgement timeout of a queue pair: 268 ms, twice the delay that `rdma_rxe` announces (kernel
/// drivers/infiniband/sw/rxe/rxe_param.h, RXE_LOCAL_CA_ACK_DELAY). rdma_cm's value is 2.1 s.
pub const ACK_TIMEOUT: u8 = 16;

/// Retransmissions: a dead peer is detected after two seconds. With 0, as in IPoIB, one lost packet
/// ends a connection; with 7, `rdma_rxe` never gives up (rxe_comp.c, `rxe_completer`).
pub const RETRY_COUNT: u8 = 6;

/// Retransmissions while the peer has no receive buffer: unlimited, until [`super::PROGRESS`] ends the
/// connection. The peer sets the waiting time; six times may be 4 ms or 4 s.
pub const RNR_RETRY: u8 = 7;

/// Minimum waiting time of a peer after our RNR NAK: code 12 is 0.64 ms (IBA vol. 1, table 45).
/// rdma_cm's code is 0, which is 655 ms. A buffer is free again as soon as the data thread has handled
/// its batch.
pub const MIN_RNR_TIMER: u8 = 12;

/// The owner of communication management.
#[derive(Debug)]
pub enum Manager {
    /// The kernel.
    RdmaCm(RdmaCm),
    /// We.
    Umad(Box<UmadCm>),
}

/// An id of the owner.
#[derive(Debug)]
pub enum Line {
    /// Of the kernel.
    RdmaCm(rdma_cm::Line),
    /// Ours.
    Umad(umad::Line),
}

/// The connections of a device.
#[derive(Debug)]
pub struct RealDevice {
    manager: Manager,
    device: Arc<Device>,
    port: u8,
    depth: u32,
    /// Proofs that the posted work of queue pairs is forgotten.
    emptied: Vec<Emptied>,
}

impl RealDevice {
    /// For a port of a device. Queue pairs hold `depth` messages.
    pub fn new(device: &Arc<Device>, manager: Manager, port: u8, depth: u32) -> RealDevice {
        RealDevice {
            manager,
            device: Arc::clone(device),
            port,
            depth,
            emptied: Vec::new(),
        }
    }

    /// Readable when there are events.
    ///
    /// # Errors
    /// InvalidData if the library gave no descriptor.
    pub fn fd(&self) -> io::Result<BorrowedFd<'_>> {
        match &self.manager {
            Manager::RdmaCm(rdma_cm) => rdma_cm.fd(),
            Manager::Umad(umad) => Ok(umad.fd()),
        }
    }

    /// Our communication management, if it is not the kernel's.
    pub fn umad(&mut self) -> Option<&mut UmadCm> {
        match &mut self.manager {
            Manager::RdmaCm(_) => None,
            Manager::Umad(umad) => Some(umad),
        }
    }

    /// Takes the destroyed queue pairs, whose places can be reclaimed.
    pub fn take_emptied(&mut self) -> Vec<Emptied> {
        std::mem::take(&mut self.emptied)
    }
}

/// The error for an id of the other owner, which cannot exist.
fn mixed_up<T>() -> io::Result<T> {
    Err(io::ErrorKind::InvalidInput.into())
}

fn parameters(pair: &QueuePair) -> ConnectionParameters {
    ConnectionParameters {
        qpn: pair.qpn(),
        srq: true,
        retry_count: RETRY_COUNT,
        rnr_retry: RNR_RETRY,
    }
}

/// Replaces rdma_cm's times and retries.
fn adapt(change: StateChange) -> StateChange {
    if change.is_to_send() {
        change.with_retries(ACK_TIMEOUT, RETRY_COUNT, RNR_RETRY)
    } else {
        change.with_min_rnr_timer(MIN_RNR_TIMER)
    }
}

impl Calls for RealDevice {
    type Id = Line;
    type Pair = QueuePair;
    type Slot = Place;
    type Memory = Transmit;

    fn listen(&mut self, at: &Address) -> io::Result<Line> {
        match &mut self.manager {
            Manager::RdmaCm(rdma_cm) => rdma_cm.listen(at).map(Line::RdmaCm),
            Manager::Umad(umad) => Ok(Line::Umad(umad.manager.listen(at.service))),
        }
    }

    fn begin(&mut self, context: u64, from: &Source, to: &Address) -> io::Result<Line> {
        match &mut self.manager {
            Manager::RdmaCm(rdma_cm) => rdma_cm.begin(context, from, to).map(Line::RdmaCm),
            Manager::Umad(umad) => Ok(Line::Umad(umad.manager.begin(context, from, to))),
        }
    }

    fn set_context(&mut self, line: &mut Line, context: u64) {
        match (&mut self.manager, line) {
            (Manager::RdmaCm(rdma_cm), Line::RdmaCm(line)) => rdma_cm.set_context(line, context),
            (Manager::Umad(umad), Line::Umad(line)) => umad.manager.set_context(line, context),
            _ => {}
        }
    }

    fn resolve_route(&mut self, line: &Line) -> io::Result<()> {
        match (&mut self.manager, line) {
            (Manager::RdmaCm(_), Line::RdmaCm(line)) => RdmaCm::resolve_route(line),
            (Manager::Umad(umad), Line::Umad(line)) => Ok(umad.manager.resolve_route(line)?),
            _ => mixed_up(),
        }
    }

    fn path(&mut self, line: &Line, pkeys: &PKeyTable) -> io::Result<Path> {
        match (&mut self.manager, line) {
            (Manager::RdmaCm(rdma_cm), Line::RdmaCm(line)) => rdma_cm.path(line),
            (Manager::Umad(umad), Line::Umad(line)) => Ok(umad.manager.path(line, pkeys)?),
            _ => mixed_up(),
        }
    }

    fn make(&mut self, _: &Line, pkey_index: u16) -> io::Result<QueuePair> {
        let device = &self.device;
        let init = QueuePairInit {
            kind: QueuePairKind::Rc,
            send_cq: Arc::clone(&device.send_cq),
            receive_cq: Arc::clone(&device.receive_cq),
            srq: device.messages.clone(),
            max_send_wr: self.depth,
            max_recv_wr: 0,
            max_inline: device.limits.inline,
        };
        let pair = QueuePair::new(&device.domain, init)?;
        // The peer may only send; rdma_cm would allow it to write.
        pair.modify(&StateChange::init_rc(self.port, pkey_index))?;
        Ok(pair)
    }

    fn qpn(&self, pair: &QueuePair) -> Qpn {
        pair.qpn()
    }

    fn bring_up(&mut self, line: &Line, pair: &QueuePair, sends: bool) -> io::Result<Path> {
        match (&mut self.manager, line) {
            (Manager::RdmaCm(rdma_cm), Line::RdmaCm(line)) => {
                rdma_cm.bring_up(line, pair, sends, adapt)
            }
            (Manager::Umad(umad), Line::Umad(line)) => {
                let (parameters, path) = umad.manager.agreed(line)?;
                pair.modify(&StateChange::rtr_rc(&parameters))?;
                if sends {
                    pair.modify(&StateChange::rts_rc(&parameters))?;
                }
                Ok(path)
            }
            _ => mixed_up(),
        }
    }

    fn ask(&mut self, line: &Line, pair: &QueuePair, private_data: &[u8]) -> io::Result<()> {
        match (&mut self.manager, line) {
            (Manager::RdmaCm(_), Line::RdmaCm(line)) => {
                RdmaCm::ask(line, &parameters(pair), private_data)
            }
            (Manager::Umad(umad), Line::Umad(line)) => {
                Ok(umad.act(|cm, now| cm.ask(now, line, pair.qpn(), private_data))?)
            }
            _ => mixed_up(),
        }
    }

    fn accept(&mut self, line: &Line, pair: &QueuePair, private_data: &[u8]) -> io::Result<()> {
        match (&mut self.manager, line) {
            (Manager::RdmaCm(_), Line::RdmaCm(line)) => {
                RdmaCm::accept(line, &parameters(pair), private_data)
            }
            (Manager::Umad(umad), Line::Umad(line)) => {
                umad.act(|cm, now| cm.accept(now, line, pair.qpn(), private_data));
                Ok(())
            }
            _ => mixed_up(),
        }
    }

    fn confirm(&mut self, line: &Line) -> io::Result<()> {
        match (&mut self.manager, line) {
            (Manager::RdmaCm(_), Line::RdmaCm(line)) => line.id.establish(),
            (Manager::Umad(umad), Line::Umad(line)) => {
                umad.act(|cm, _| cm.confirm(line));
                Ok(())
            }
            _ => mixed_up(),
        }
    }

    fn reject(&mut self, line: &Line, reason: RejectReason, private_data: &[u8]) -> io::Result<()> {
        match (&mut self.manager, line) {
            (Manager::RdmaCm(_), Line::RdmaCm(line)) => line.id.reject(private_data),
            (Manager::Umad(umad), Line::Umad(line)) => {
                umad.act(|cm, now| cm.reject(now, line, reason, private_data));
                Ok(())
            }
            _ => mixed_up(),
        }
    }

    fn disconnect(&mut self, line: &Line) -> io::Result<()> {
        match (&mut self.manager, line) {
            (Manager::RdmaCm(_), Line::RdmaCm(line)) => line.id.disconnect(),
            (Manager::Umad(umad), Line::Umad(line)) => {
                umad.act(|cm, now| cm.disconnect(now, line));
                Ok(())
            }
            _ => mixed_up(),
        }
    }

    fn stop(&mut self, pair: &QueuePair) -> io::Result<()> {
        pair.modify(&StateChange::error())
    }

    fn event(&mut self) -> io::Result<Option<Event<Line>>> {
        Ok(match &mut self.manager {
            Manager::RdmaCm(rdma_cm) => rdma_cm.event()?.map(|e| e.with_id(Line::RdmaCm)),
            Manager::Umad(umad) => umad.event()?.map(|e| e.with_id(Line::Umad)),
        })
    }

    fn next_deadline(&self) -> Option<Instant> {
        match &self.manager {
            Manager::RdmaCm(_) => None,
            Manager::Umad(umad) => umad.manager.next_deadline(),
        }
    }

    fn handle_timeout(&mut self, now: Instant) {
        if let Manager::Umad(umad) = &mut self.manager {
            umad.act(|cm, _| cm.handle_timeout(now));
        }
    }

    fn counters(&self) -> Counters {
        match &self.manager {
            Manager::RdmaCm(_) => Counters::new(),
            Manager::Umad(umad) => umad.manager.counters(),
        }
    }

    fn post(
        &mut self,
        pair: &QueuePair,
        memory: &mut Transmit,
        slot: Place,
        shape: &Shape,
    ) -> io::Result<()> {
        memory.post_messages(pair, slot, shape)
    }

    fn destroy(&mut self, line: Line, pair: Option<QueuePair>) {
        // Memory of queue pairs that cannot be destroyed stays in use.
        self.emptied.extend(pair.and_then(QueuePair::close));
        if let (Manager::Umad(umad), Line::Umad(line)) = (&mut self.manager, line) {
            umad.act(|cm, now| cm.destroy(now, line));
        }
    }
}
