//! What a replica tells the control side: news for people, and memberships behind the interface.

use std::net::IpAddr;

use proto::{CloseReason, Mac};

use crate::address::HardwareAddress;
use crate::core::{Ended, Role};

/// Something worth telling.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Event {
    /// A neighbour spoke ARP or neighbour discovery for the first time, or with a new address.
    /// Told only while somebody watches ([`crate::Ipoib::watch`]).
    NeighbourLearned {
        /// Its address.
        address: HardwareAddress,
        /// The Ethernet address that stands for it.
        mac: Mac,
        /// The IP address that it said it has.
        ip: Option<IpAddr>,
    },
    /// A neighbour came back with another queue pair. Told only while somebody watches.
    NeighbourReplaced {
        /// What was.
        old: HardwareAddress,
        /// What is.
        new: HardwareAddress,
    },
    /// A neighbour made room or was forgotten. Told only while somebody watches.
    NeighbourForgotten {
        /// Its address.
        address: HardwareAddress,
    },
    /// A guest, which is a host behind the interface with an Ethernet address of its own, has this
    /// IP address. Told of the host itself, too, while there are guests, where it said so: a
    /// bridge often has the interface's address.
    GuestLearned {
        /// The IP address.
        ip: IpAddr,
        /// The guest.
        mac: Mac,
        /// Known only as the source address of data, which the guest may have forwarded.
        weak: bool,
    },
    /// An IP address is no longer a guest's.
    GuestForgotten {
        /// The IP address.
        ip: IpAddr,
    },
    /// Two hosts claim one IP address, again and again. Told once for each address.
    AddressConflict {
        /// The address.
        ip: IpAddr,
        /// The Ethernet address of the one, a guest's or one that stands for a peer.
        one: Mac,
        /// That of the other.
        other: Mac,
    },
    /// A guest has the Ethernet address that stood for a peer, which got another.
    MacClash {
        /// The guest's.
        guest: Mac,
        /// The peer's from now on.
        peer: Mac,
    },
    /// Signed neighbour discovery (SEND, RFC 3971) passed untouched. Told once for each interface.
    SignedNd,
    /// A host behind the interface joined a multicast group or answered a query for it.
    GroupJoined {
        /// Who: the interface's own address is the host itself.
        mac: Mac,
        /// The group.
        group: IpAddr,
    },
    /// A host behind the interface left a multicast group.
    GroupLeft {
        /// Who.
        mac: Mac,
        /// The group.
        group: IpAddr,
    },
    /// A host on the fabric reported a multicast group. Told only while the host routes multicast
    /// ([`crate::Ipoib::route_multicast`]).
    GroupSeen {
        /// The group.
        group: IpAddr,
    },
    /// A connection is there. Told only while somebody watches.
    ConnectionUp {
        /// With whom; without flags if the peer asked for it.
        peer: HardwareAddress,
        /// Who asked for it.
        role: Role,
    },
    /// A connection that was there is over. Told only while somebody watches.
    ConnectionDown {
        /// With whom.
        peer: HardwareAddress,
        /// Who asked for it.
        role: Role,
        /// Why.
        why: Ended,
    },
    /// A peer did not take a connection, or did not answer: it is served by datagrams for a minute.
    /// Told only while somebody watches.
    ConnectionRefused {
        /// Who.
        peer: HardwareAddress,
        /// Why.
        reason: CloseReason,
    },
    /// An echo request of ours was answered.
    Echo {
        /// By whom.
        from: HardwareAddress,
        /// What the request carried.
        id: u16,
        /// What the request carried.
        sequence: u32,
        /// What the request carried.
        stamp: u64,
        /// Bytes of IB payload, encapsulation header included.
        len: usize,
    },
}
