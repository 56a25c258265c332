//! Reliable connections: the RC transport of one queue pair, sans-IO (IBA vol. 1, 9.7).
//!
//! Each connection has one [`RcQp`]. Its input is received packets, posted messages and time; its
//! output is packets to send, received messages, completions and the next deadline. The queue pairs of
//! one worker share the shared receive queue, the list of received messages and counters; the caller
//! passes them as [`Shared`].
//!
//! Outgoing packets lie in a [`SendBuffer`]: contiguous packets, with the BTH before each payload and
//! room for pad and ICRC after it. So retransmission copies nothing, and a run leaves in one
//! UDP_SEGMENT send. The sender of [`Packets`] writes the ICRC.
//!
//! The wire format leaves some choices open. They are made for a network that drops packets:
//!
//! - A window (at most 2 MiB) bounds the data in flight. It shrinks when round trips grow by more than
//!   4 ms (to 512 KiB) or when more than one packet in 32 is lost (to 128 KiB). The network loses some packets itself, and a
//!   smaller window would not help. While it is full, the consumer waits.
//! - Packets after a gap are kept (2 MiB for each queue pair, 16 MiB for each data thread), so the peer
//!   resends only lost packets. Adapters and `rdma_rxe` discard them. The first loss shows the kind of
//!   peer, without negotiation.
//! - If a requester goes back, kept packets are acknowledged only after it has sent them again or is
//!   silent. `rdma_rxe` forgets a request whose acknowledgement arrives before the retransmission, and
//!   may then stop for ever (`repeats.rs`).
//! - A requester retransmits after the measured round trip. `retry_cnt` counts the negotiated timeouts
//!   and the first NAK of a packet until there is progress, so early retransmissions do not cause early
//!   failure: with 7 retries of 134 ms, a vanished peer is detected after a second. With 0, nothing is
//!   sent again.
//! - Acknowledgements wait for fifteen others or a millisecond: a request and its response need none in
//!   between. The end of each message requests an acknowledgement, and the middle of a message if the
//!   window is half full. A peer that does the same waits for more. An acknowledgement leaves with the
//!   next packets for the same peer.

mod buffer;
mod counts;
mod credits;
mod held;
mod message;
mod queue_pair;
mod recovery;
mod repeats;
mod reply;
mod requester;
mod responder;
mod retry;
mod rnr;
mod rtt;
mod send_queue;
mod srq;
mod types;
mod window;

pub use buffer::{Layout, SendBuffer};
pub use counts::RcCounts;
pub use queue_pair::RcQp;
pub use reply::Ack;
pub use srq::{Inbox, ReceivedMessage, Srq};
pub use types::{Packets, QpEvent, RcPacket, SendCompletion, SendRequest, Statistics};

/// Shared by the queue pairs of one worker.
#[derive(Debug)]
pub struct Shared {
    /// The shared receive queue.
    pub srq: Srq,
    /// Received messages.
    pub inbox: Inbox,
    /// Counters.
    pub counts: RcCounts,
}
