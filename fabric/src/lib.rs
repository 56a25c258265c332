//! The fabric side of ibtap.
//!
//! [`port`] and [`worker`] define the fabric interface; [`pkeys`] holds the P_Key table. The vocabulary
//! (queue pair numbers, keys, GIDs) comes from `proto`. [`provider::open`] selects one of two
//! providers: [`soft`], a software RoCEv2 fabric over UDP that needs no hardware, and [`verbs`], which
//! uses RDMA devices of the kernel through libibverbs and librdmacm. [`administered`] puts a port of the
//! software fabric on a simulated InfiniBand subnet.
//!
//! The interface resembles verbs, but a *batch* crosses it: a worker yields a batch of received
//! datagrams and messages, and sends a *train* of equal-sized packets. [`connection`] has the reliable
//! connections of a worker; [`cm`] sets them up with the datagrams of [`mad`]. The interface has
//! nothing for only one provider.

#![deny(unsafe_code)]

pub mod administered;
pub mod administration;
pub mod cm;
pub mod connection;
pub mod group;
mod handles;
mod kernel;
pub mod mad;
mod mail;
mod membership;
mod memory;
#[cfg(test)]
mod namespace;
pub mod pkeys;
pub mod port;
pub mod provider;
mod random;
mod ready_queue;
pub mod rmpp;
pub mod sa;
pub mod soft;
pub mod subnet;
pub mod umad;
pub mod verbs;
pub mod worker;

pub use connection::{ConnectRequest, ConnectionInfo, Connections, Posted};
pub use group::{GroupParameters, Joined};
pub use kernel::{clock, random};
pub use memory::{ReceiveMemory, ReceivePlaces};
pub use pkeys::PKeyTable;
pub use port::{
    Capabilities, DeviceAttributes, FabricError, Port, PortAttributes, PortEvent, Resources, UdInit,
};
pub use proto::{
    AddressHandle, CloseReason, ConnectError, ConnectionEvent, ConnectionId, EndpointId, Gid,
    GidChoice, Guid, IbMtu, Instant, Lid, LinkLayer, LinkMtu, PKey, PortState, Psn, QKey, Qpn,
    RejectReason, ServiceId, Services, WcStatus,
};
pub use provider::{ProviderConfig, counter_descriptions, open};
pub use worker::{
    AhAttributes, Batch, Message, RcReceived, Room, Sent, TOKEN, Train, TrainTicket, UdDestination,
    UdReceived, Worker,
};
