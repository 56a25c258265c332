//! Vocabulary of all rooms of ibtap: the fabric's numbers and ids, Ethernet addresses, time, and small
//! tables.
//!
//! The crate is sans-IO: it opens no socket, reads no clock and starts no thread. It depends on no other
//! room.

#![forbid(unsafe_code)]
#![cfg_attr(
    not(test),
    deny(clippy::cast_possible_truncation, clippy::cast_sign_loss)
)]

pub mod backoff;
mod choices;
mod connection;
pub mod counters;
pub mod damping;
mod event_queue;
mod former;
mod gid;
mod log_limiter;
pub mod lru;
pub mod mgid;
mod numbers;
mod opa;
mod port;
mod prefix;
mod time;
mod token_bucket;

pub use choices::{
    ClaimCheck, CmChoice, DhcpMode, GidChoice, Inspect, LinkMtu, Mode, MssChoice, Pin, SaChoice,
};
pub use connection::{
    CloseReason, ConnectError, ConnectionEvent, ConnectionId, RejectReason, ServiceId, WcStatus,
};
pub use event_queue::EventQueue;
pub use former::{Former, LATE_MS};
pub use gid::{Gid, Guid, Lid};
pub use log_limiter::LogLimiter;
pub use numbers::{IbMtu, PKey, Psn, QKey, Qpn};
pub use opa::{ConfigState, OpaLid};
pub use port::{AddressHandle, EndpointId, LinkLayer, PortState, Services};
pub use prefix::{GidPrefix, PrefixError};
pub use time::{Instant, Time};
pub use token_bucket::{TokenBucket, TokenRate};

/// A 48-bit Ethernet address, in transmission order.
pub type Mac = [u8; 6];
