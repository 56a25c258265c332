//! Communication management through librdmacm (rdma_cm(7)): identifiers and their events.
//!
//! librdmacm does not own the queue pairs: an identifier gives the attributes of their states
//! ([`CmId::state_change`]), and `rdma_connect` and `rdma_accept` get their numbers.

mod address;
mod channel;
mod event;
mod hold;
mod id;

pub use address::{CmAddress, IbAddress};
pub use channel::EventChannel;
pub use event::{CmEvent, CmEventKind, CmKey};
pub use hold::Hold;
pub use id::{CmId, CmPath, ConnectionParameters, PortSpace};
