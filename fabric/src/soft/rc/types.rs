//! Input and output of a queue pair.

use std::fmt;
use std::time::Duration;

use proto::WcStatus;

use super::SendBuffer;
use crate::soft::wire::{Aeth, Bth};

/// Messages to send.
#[derive(Debug)]
pub struct SendRequest {
    /// An id of the consumer; the completion returns it.
    pub id: u64,
    /// The messages, with payloads filled in. The queue pair writes the headers.
    pub buffer: SendBuffer,
    /// Immediate data of the last message.
    pub immediate: Option<[u8; 4]>,
    /// Requests a completion event at the receiver for the last message.
    pub solicited: bool,
}

/// The completion of a [`SendRequest`], in the order of posting.
#[derive(Debug)]
pub struct SendCompletion {
    /// The id of the request.
    pub id: u64,
    /// [`WcStatus::Success`] if the peer has acknowledged all messages.
    pub status: WcStatus,
    /// The memory, to be used again.
    pub buffer: SendBuffer,
}

/// Asynchronous events (IBA vol. 1, 11.6.3; include/rdma/ib_verbs.h, `enum ib_event_type`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum QpEvent {
    /// The first packet was received in RTR.
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

/// The names of the kernel (drivers/infiniband/core/verbs.c, `ib_events`).
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
    /// The AETH of an acknowledgement.
    pub aeth: Option<Aeth>,
    /// The immediate data of a SEND.
    pub immediate: Option<[u8; 4]>,
    /// The payload, without padding.
    pub payload: &'a [u8],
    /// Offset of the payload in the memory of the batch.
    pub at: usize,
}

/// Packets to send now, all of one length except the last. BTH to pad are written; the last 4 bytes of
/// each are room for the ICRC.
#[derive(Debug)]
pub struct Packets<'a> {
    /// The contiguous packets.
    pub memory: &'a mut [u8],
    /// Bytes from one packet to the next; the last may be shorter.
    pub stride: usize,
    /// Number of packets.
    pub count: usize,
    /// The last packet is an acknowledgement of another queue pair.
    pub carries: bool,
}

/// Counters of one queue pair.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Statistics {
    /// Messages sent and acknowledged.
    pub tx_messages: u64,
    /// Payload bytes of messages sent and acknowledged.
    pub tx_bytes: u64,
    /// Messages received.
    pub rx_messages: u64,
    /// Payload bytes of messages received.
    pub rx_bytes: u64,
    /// Packets sent again.
    pub retransmits: u64,
    /// Packets sent and not acknowledged.
    pub in_flight: u32,
    /// Packets that may be in flight.
    pub window: u32,
    /// The smoothed round trip time.
    pub srtt: Duration,
}
