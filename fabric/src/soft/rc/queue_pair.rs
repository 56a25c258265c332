//! The queue pair: its state, its requester and its responder.

use std::time::Duration;

use super::{SendBuffer, Shared};
use crate::connection::WcStatus;
use crate::port::FabricError;
use crate::soft::qp::{Attributes, State};
use crate::soft::wire::{Aeth, Bth};
use crate::time::Instant;
use crate::types::Qpn;

/// Messages to send.
#[derive(Debug)]
pub struct SendRequest {
    /// The consumer's own; comes back in the completion.
    pub id: u64,
    /// The messages, payloads filled in. Headers are the queue pair's to write.
    pub buffer: SendBuffer,
    /// Immediate data of the last message.
    pub immediate: Option<[u8; 4]>,
    /// Ask the receiver for a completion event with the last message.
    pub solicited: bool,
}

/// What became of a [`SendRequest`], in the order of posting.
#[derive(Debug)]
pub struct SendCompletion {
    /// The consumer's own.
    pub id: u64,
    /// [`WcStatus::Success`] if the peer has acknowledged all of it.
    pub status: WcStatus,
    /// Its memory, to be used again.
    pub buffer: SendBuffer,
}

/// Asynchronous events (IBA vol. 1, 11.6.3; include/rdma/ib_verbs.h, `enum ib_event_type`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum QpEvent {
    /// The first packet came in RTR.
    CommEst,
    /// The send queue is drained.
    SqDrained,
    /// The queue pair failed.
    QpFatal,
    /// A request was invalid.
    QpReqErr,
    /// The queue pair takes no more buffers of the shared receive queue.
    LastWqeReached,
    /// The shared receive queue is below its limit.
    SrqLimitReached,
}

/// One received packet of a reliable connection, its ICRC verified.
#[derive(Clone, Copy, Debug)]
pub struct RcPacket<'a> {
    /// The base transport header.
    pub bth: Bth,
    /// Behind an acknowledgement's.
    pub aeth: Option<Aeth>,
    /// Behind a send's.
    pub immediate: Option<[u8; 4]>,
    /// The payload, without padding.
    pub payload: &'a [u8],
    /// Where the payload lies in the memory of the batch.
    pub at: usize,
}

/// Packets to send now, all of one length but the last: BTH to pad are written, the last 4 bytes of
/// each are room for the ICRC.
#[derive(Debug)]
pub struct Packets<'a> {
    /// The packets side by side.
    pub memory: &'a mut [u8],
    /// Bytes from one to the next; the last may be shorter.
    pub stride: usize,
    /// How many there are.
    pub count: usize,
}

/// Whether a queue pair takes more to send.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Room {
    /// It does.
    Open,
    /// The window is full, and acknowledgements are coming.
    Full,
    /// The window is full, and nothing has been acknowledged for a while: the peer may be gone.
    Stalled,
}

/// Counts of one queue pair.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Statistics {
    /// Messages sent and acknowledged.
    pub tx_messages: u64,
    /// Payload bytes of them.
    pub tx_bytes: u64,
    /// Messages received.
    pub rx_messages: u64,
    /// Payload bytes of them.
    pub rx_bytes: u64,
    /// Packets sent again.
    pub retransmits: u64,
    /// Packets sent and not acknowledged.
    pub in_flight: u32,
    /// Packets that may be in flight.
    pub window: u32,
    /// The smoothed round trip.
    pub srtt: Duration,
}

/// A queue pair of the service type RC.
#[derive(Debug)]
pub struct RcQp {
    qpn: Qpn,
    state: State,
}

impl RcQp {
    /// A queue pair in RESET.
    pub fn new(qpn: Qpn) -> RcQp {
        RcQp {
            qpn,
            state: State::Reset,
        }
    }

    /// Stub.
    pub fn set_path(&mut self, _pkey: crate::types::PKey, _run_max: usize) {}

    /// Its number.
    pub const fn qpn(&self) -> Qpn {
        self.qpn
    }

    /// Its state.
    pub const fn state(&self) -> State {
        self.state
    }

    /// The modify verb. To ERR everything is flushed, to RESET everything is forgotten.
    ///
    /// # Errors
    /// Those of [`crate::soft::qp::QueuePair::modify`].
    pub fn modify(
        &mut self,
        _now: Instant,
        _shared: &mut Shared,
        to: State,
        _attributes: &Attributes,
    ) -> Result<(), FabricError> {
        self.state = to;
        Ok(())
    }

    /// Posts messages to send. In SQD they wait, in ERR they are flushed.
    ///
    /// # Errors
    /// The request itself, in a state that takes none, or if a message is longer than 2^31 bytes or
    /// the buffer is empty.
    pub fn post_send(&mut self, _now: Instant, request: SendRequest) -> Result<(), SendRequest> {
        Err(request)
    }

    /// Whether it takes more to send.
    pub fn room(&self, _now: Instant) -> Room {
        Room::Open
    }

    /// Takes a packet. What it completes is in `shared.inbox` and in [`RcQp::poll_completion`]; what
    /// it asks for is sent by [`RcQp::poll_transmit`].
    pub fn receive(&mut self, _now: Instant, _shared: &mut Shared, _packet: &RcPacket<'_>) {}

    /// The batch's memory is given back: keeps what a message that is not whole has in it. To be
    /// called before `shared.inbox` is handed on. True if it had something to keep.
    pub fn end_batch(&mut self, _shared: &mut Shared, _memory: &[u8]) -> bool {
        false
    }

    /// What to send now, if anything: to be followed by [`RcQp::transmitted`]. Acknowledgements that
    /// may wait come only with `flush`.
    pub fn poll_transmit(
        &mut self,
        _now: Instant,
        _shared: &mut Shared,
        _flush: bool,
    ) -> Option<Packets<'_>> {
        None
    }

    /// The first `count` packets of what [`RcQp::poll_transmit`] gave are on the network.
    pub fn transmitted(&mut self, _now: Instant, _shared: &mut Shared, _count: usize) {}

    /// What became of what was posted.
    pub fn poll_completion(&mut self) -> Option<SendCompletion> {
        None
    }

    /// What happened.
    pub fn poll_event(&mut self) -> Option<QpEvent> {
        None
    }

    /// When [`RcQp::handle_timeout`] wants to be called next: retransmission, the end of an RNR
    /// delay, an acknowledgement that has waited.
    pub fn next_deadline(&self) -> Option<Instant> {
        None
    }

    /// Lets time pass.
    pub fn handle_timeout(&mut self, _now: Instant, _shared: &mut Shared) {}

    /// The status that it failed with.
    pub fn failure(&self) -> Option<WcStatus> {
        None
    }

    /// Its counts.
    pub fn statistics(&self) -> Statistics {
        Statistics::default()
    }
}
