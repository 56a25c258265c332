//! Communication management through librdmacm (rdma_cm(7)): identifiers and their events.
//!
//! The queue pairs are ours, not librdmacm's: an identifier says what state they are to be in
//! ([`CmId::state_change`]), and `rdma_connect` and `rdma_accept` are given their numbers.

mod address;
mod channel;
mod event;
mod hold;
mod id;

pub use channel::EventChannel;
pub use event::{CmEvent, CmEventKind, CmKey};
pub use hold::Hold;
pub use id::{CmId, CmPath, ConnectionParameters};
