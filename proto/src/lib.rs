//! The vocabulary that all rooms of ibtap share: the fabric's numbers and ids, Ethernet addresses, time, and
//! small tables that several rooms use.
//!
//! Everything here is sans-IO: nothing opens a socket, reads a clock or starts a thread. The crate depends on
//! no other room.

#![forbid(unsafe_code)]

pub mod backoff;
mod choices;
mod connection;
pub mod damping;
mod event_queue;
mod gid;
mod log_limiter;
pub mod lru;
mod numbers;
mod opa;
mod port;
mod time;

pub use choices::{DhcpMode, GidChoice, LinkMtu, Mode};
pub use connection::{
    CloseReason, ConnectError, ConnectionEvent, ConnectionId, RejectReason, ServiceId, WcStatus,
};
pub use event_queue::EventQueue;
pub use gid::{Gid, Guid, Lid};
pub use log_limiter::LogLimiter;
pub use numbers::{IbMtu, PKey, Psn, QKey, Qpn};
pub use opa::{ConfigState, OpaLid};
pub use port::{AddressHandle, EndpointId, LinkLayer, PortState, Services};
pub use time::{Instant, Time};

/// A 48-bit Ethernet address, in the order of transmission.
pub type Mac = [u8; 6];
