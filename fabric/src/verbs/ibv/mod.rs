//! Verbs objects with owners: safe, and destroyed automatically.
//!
//! An object holds the objects it depends on by `Arc`, so that objects are destroyed in the order that
//! the library requires. A failure to destroy an object is logged once; its memory then stays
//! allocated. Pointers from the library are checked for NULL and never made from numbers; its numbers
//! (queue pairs, work requests, counts, codes) are checked before they index anything.
//!
//! Memory that a device may use is not accessible: see [`Place`].

#[allow(unsafe_code)]
mod address_handle;
mod attributes;
mod call;
#[allow(unsafe_code)]
pub mod cm;
mod completion;
#[allow(unsafe_code)]
mod completion_queue;
#[allow(unsafe_code)]
mod context;
mod event;
#[cfg(test)]
#[allow(unsafe_code)]
pub mod fake;
#[allow(unsafe_code)]
mod memory;
mod pool;
#[allow(unsafe_code)]
mod post;
#[allow(unsafe_code)]
mod queue_pair;
#[allow(unsafe_code)]
mod shared_receive_queue;
#[allow(unsafe_code)]
mod state_change;

pub use address_handle::{AddressHandle, AhInit};
pub use attributes::{DeviceAttributes, GidEntry, GidKind, LinkLayer, PortInfo};
pub use completion::WorkCompletion;
pub use completion_queue::{CompletionChannel, CompletionQueue, Completions};
pub use context::{Context, ProtectionDomain, device_names};
pub use event::{AsyncEvent, ElementId};
pub use memory::{MemoryRegion, Place};
pub use pool::{Completed, Pool};
pub use post::{ReceiveList, Refused, SendList, Sends, UdTarget};
pub use queue_pair::{Emptied, QueuePair, QueuePairInit, QueuePairKind};
pub use shared_receive_queue::SharedReceiveQueue;
pub use state_change::{QueuePairState, RcParameters, StateChange};
