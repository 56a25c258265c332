//! The fabric side of ibtap.
//!
//! [`pkeys`] holds the P_Key table, [`port`] and [`worker`] the interface that devices program against; its
//! vocabulary (queue pair numbers, keys, GIDs) is that of `proto`. It has two providers, which
//! [`provider::open`] chooses between: [`soft`] needs no hardware, it is a software RoCEv2 fabric over
//! UDP; [`verbs`] uses the RDMA devices of the kernel, over libibverbs and librdmacm.
//!
//! The interface is shaped after verbs and cut where a *batch* crosses it: a worker yields a batch
//! of received datagrams and messages, and takes a *train* of equal-sized packets to send; a part of
//! it are the reliable connections of [`connection`], which [`cm`] sets up by the datagrams of
//! [`mad`]. Nothing in it may exist for the software provider alone.

#![deny(unsafe_code)]

pub mod cm;
pub mod connection;
pub mod group;
mod kernel;
pub mod mad;
mod membership;
mod memory;
pub mod pkeys;
pub mod port;
pub mod provider;
pub mod soft;
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
pub use provider::{ProviderConfig, open};
pub use worker::{
    AhAttributes, Batch, Message, RcReceived, Sent, TOKEN, Train, TrainTicket, UdDestination,
    UdReceived, Worker,
};
