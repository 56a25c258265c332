//! What goes into a queue pair and comes out of it.

use std::fmt;
use std::time::Duration;

use proto::WcStatus;

use super::SendBuffer;
use crate::soft::wire::{Aeth, Bth};

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

/// As the kernel calls them (drivers/infiniband/core/verbs.c, `ib_events`).
impl fmt::Display for QpEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            QpEvent::CommEst => "communication established",
            QpEvent::SqDrained => "send queue drained",
            QpEvent::QpFatal => "QP fatal error",
            QpEvent::QpReqErr => "QP request error",
            QpEvent::LastWqeReached => "last WQE reached",
            QpEvent::SrqLimitReached => "SRQ limit reached",
        })
    }
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
    /// The window has been full for a while, or nothing was acknowledged: the peer is slow, or gone.
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
