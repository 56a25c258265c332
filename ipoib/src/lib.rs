//! IP over InfiniBand, in datagram mode (RFC 4391, RFC 4392) and connected mode (RFC 4755), between an
//! Ethernet interface and the queue pairs of a fabric.
//!
//! A TAP has 6-byte Ethernet addresses, IPoIB has 20-byte addresses. [`Ipoib`] keeps a table of peers with
//! their 20-byte address and a locally administered MAC derived from it. It rewrites ARP, RARP and
//! neighbour discovery in both directions, maps IP groups to multicast GIDs, and queries unknown
//! destinations. The host sees an ordinary Ethernet segment; the fabric sees an ordinary IPoIB node.
//!
//! The crate is sans-IO: input is packets and time, output is packets and deadlines. It opens no socket,
//! reads no clock and starts no thread. Several threads may serve an interface with a replica of [`Ipoib`]
//! each. Replicas exchange what they learn as [`Update`]s, so that no packet takes a lock.

#![forbid(unsafe_code)]

mod address;
mod arp;
mod bounded;
mod checksum;
mod connections;
mod core;
mod counters;
mod dhcp;
mod echo;
mod event;
mod group;
mod guests;
mod ip_table;
mod multicast;
mod nd;
mod neighbour;
mod own;
mod private_data;
mod resolve;
mod snoop;
mod snooper;
mod source_limits;
#[cfg(test)]
mod testing;
mod too_big;
mod wire;

pub use address::{FLAG_RC, HardwareAddress, MAC_BROADCAST, local_mac, local_qpn, peer_mac};
pub use connections::RDMA_CM_PORT;
pub use core::{
    Config, ConnectionAction, ConnectionPeer, EchoRequest, EchoTarget, Ended, GroupInfo, GuestInfo,
    Incoming, Ipoib, Limits, Meta, NeighbourInfo, Outgoing, Pins, Role, Sibling, Target, TooBig,
    Update,
};
pub use counters::{Counters, DropReason};
pub use event::Event;
pub use multicast::{group_mac, mgid, solicited_node};
pub use private_data::{CONNECTED_MTU, PrivateData};
pub use proto::mgid::broadcast as broadcast_mgid;
pub use proto::{ClaimCheck, DhcpMode, Inspect, Mac, Mode, Time};
pub use resolve::HeldFrame;
pub use snooper::Snooper;
