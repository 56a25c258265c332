//! Reliable connections: the RC transport of one queue pair, sans-IO (IBA vol. 1, 9.7).
//!
//! [`RcQp`] takes received packets, posted messages and the time, and gives packets to send,
//! received messages, completions and the next deadline. What queue pairs of one worker share (the
//! shared receive queue, the list of what was received, counters) is handed in as [`Shared`].
//!
//! One side of a packet run on its way out lies in a [`SendBuffer`]: packets side by side, BTH in
//! front of each payload and room for pad and ICRC behind it, so that retransmission copies nothing
//! and a run leaves in one UDP_SEGMENT send. The ICRC is the sender's of [`Packets`] to write.
//!
//! One sans-IO `RcQp` for each connection implements the IBA's RC transport. Choices that the wire
//! format leaves open are made for a network that drops:
//!
//! * A window (at most 1 MiB) bounds the data in flight. It shrinks when round trips grow by more
//!   than 4 ms or when more than one packet in 32 is lost. Smaller losses are the network's, and a
//!   smaller window would not help. A full window is `Room::Full`: nothing queues behind it.
//! * Packets behind a gap are kept (1 MiB for each queue pair, 16 MiB for each data thread), so
//!   that the peer resends only lost packets. Adapters and `rdma_rxe` discard them; the first loss
//!   shows the kind of peer, without negotiation.
//! * Kept packets are acknowledged to a requester that goes back only after it has sent them again,
//!   or is silent. `rdma_rxe` forgets a request whose acknowledgement arrives before the
//!   retransmission, and may then stop for ever (`repeats.rs`).
//! * A requester asks again after the measured round trip. `retry_cnt` counts the negotiated
//!   timeouts and the first NAK of a packet until there is progress, so early requests do not mean
//!   early failure: with 7 tries of 134 ms, a vanished peer is detected after a second. With 0,
//!   nothing is sent again.
//! * Acknowledgements wait for fifteen others or a millisecond: a request and its response need
//!   none in between.

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
pub use srq::{Inbox, ReceivedMessage, Srq};
pub use types::{Packets, QpEvent, RcPacket, Room, SendCompletion, SendRequest, Statistics};

/// What the queue pairs of one worker share.
#[derive(Debug)]
pub struct Shared {
    /// The shared receive queue.
    pub srq: Srq,
    /// What was received.
    pub inbox: Inbox,
    /// Counters.
    pub counts: RcCounts,
}
