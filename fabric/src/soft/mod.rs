//! The software RoCEv2 fabric (IBA vol. 1, annex A17): a port over UDP port 4791 of one network
//! interface, the *underlay*. The port's GID is an IP address of the underlay. The packets are
//! compatible with the kernel's `rdma_rxe` and with RoCE NICs.
//!
//! [`wire`] and [`icrc`] are the packet format, [`qp`], `ud` and [`rc`] the transport, [`engine`] the
//! connections of one worker; [`train`] builds packets. None of these uses a socket. [`SoftPort`]
//! connects them to the network.

pub mod engine;
pub mod icrc;
pub mod qp;
pub mod rc;
pub mod train;
mod ud;
pub mod wire;

mod address_handle;
mod administrator;
mod config;
mod connections;
mod counts;
mod datagrams;
mod endpoint;
#[cfg(test)]
pub(crate) mod fake_gsi;
mod gsi;
mod holder;
mod icrc_check;
mod lanes;
mod mailbox;
mod port;
mod reception;
mod snapshot;
mod socket;
mod steering;
#[allow(unsafe_code)]
mod sys;
mod transmitter;
mod underlay;
mod underlay_query;
mod unmanaged;
mod worker;

use proto::counters::Description;

use crate::cm;
pub use administrator::Qp1Carrier;
pub use config::SoftConfig;
pub use engine::{Answer, LocalQp, RemoteQp};
pub use holder::{PortUser, Process, port_user, user_of};
pub use port::SoftPort;
pub(crate) use snapshot::SubnetMail;
pub use ud::{Path, Refusal};
pub use underlay::{Seen, Unusable, Usable, evaluate};
pub use underlay_query::see;
pub use worker::SoftWorker;

/// Names and descriptions of a worker's counters.
pub fn counter_descriptions() -> impl Iterator<Item = &'static Description> {
    let packets = counts::PacketCounts::DESCRIPTIONS.iter();
    let connections = rc::RcCounts::DESCRIPTIONS.iter();
    let datagrams = packets.chain(Refusal::DESCRIPTIONS);
    datagrams
        .chain(connections)
        .chain(cm::Counts::descriptions())
}
