//! IP over InfiniBand, datagram mode (RFC 4391, RFC 4392) and connected mode (RFC 4755), between an
//! Ethernet interface and the queue pairs of a fabric.
//!
//! A TAP speaks Ethernet with 6-byte addresses, IPoIB has 20-byte ones. [`Ipoib`] keeps a table
//! between a peer's 20-byte address and a locally administered Ethernet address made from it,
//! rewrites ARP, RARP and neighbour discovery both ways, maps IP groups to multicast GIDs, and asks
//! for peers that the host addresses but nobody has spoken for. The host sees an ordinary Ethernet
//! segment; the fabric sees an ordinary IPoIB node.
//!
//! The crate is sans-IO: packets and the time go in, packets and deadlines come out. It opens no
//! socket, reads no clock and starts no thread. Several threads may serve one interface with one
//! replica of [`Ipoib`] each; what a replica learns it hands out as [`Update`]s for the others, so
//! that no packet takes a lock.

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
#[cfg(test)]
mod testing;
mod too_big;
mod wire;

pub use address::{FLAG_RC, HardwareAddress, MAC_BROADCAST, local_mac, local_qpn, peer_mac};
pub use connections::RDMA_CM_PORT;
pub use core::{
    Config, ConnectionAction, ConnectionPeer, EchoRequest, EchoTarget, Ended, GroupInfo, GuestInfo,
    Incoming, Ipoib, Limits, Meta, NeighbourInfo, Outgoing, Role, Sibling, Target, TooBig, Update,
};
pub use counters::{Counters, DropReason};
pub use event::Event;
pub use multicast::{broadcast_mgid, group_mac, mgid, solicited_node};
pub use private_data::{CONNECTED_MTU, PrivateData};
pub use proto::{DhcpMode, Mac, Mode, Time};
pub use resolve::HeldFrame;
pub use snooper::Snooper;
