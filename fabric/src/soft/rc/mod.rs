//! Reliable connections: the RC transport of one queue pair, sans-IO (IBA vol. 1, 9.7).
//!
//! [`RcQp`] takes received packets, posted messages and the time, and gives packets to send,
//! received messages, completions and the next deadline. What queue pairs of one worker share (the
//! shared receive queue, the list of what was received, counters) is handed in as [`Shared`].
//!
//! One side of a packet run on its way out lies in a [`SendBuffer`]: packets side by side, BTH in
//! front of each payload and room for pad and ICRC behind it, so that retransmission copies nothing
//! and a run leaves in one UDP_SEGMENT send. The ICRC is the sender's of [`Packets`] to write.

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
