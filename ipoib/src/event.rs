//! Events of a replica for the control side: news for users, and memberships behind the interface.

use std::net::IpAddr;

use proto::{CloseReason, Mac};

use crate::address::HardwareAddress;
use crate::core::{Ended, Role};

/// An event.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Event {
    /// A neighbour sent ARP or neighbour discovery for the first time, or with a new address. Only while
    /// events are enabled ([`crate::Ipoib::watch`]).
    NeighbourLearned {
        /// Its address.
        address: HardwareAddress,
        /// Its MAC on the TAP.
        mac: Mac,
        /// The IP address that it claimed.
        ip: Option<IpAddr>,
    },
    /// A neighbour returned with another queue pair. Only while events are enabled.
    NeighbourReplaced {
        /// The former address.
        old: HardwareAddress,
        /// The present address.
        new: HardwareAddress,
    },
    /// A neighbour was evicted or removed. Only while events are enabled.
    NeighbourForgotten {
        /// Its address.
        address: HardwareAddress,
    },
    /// A guest (a host behind the interface with another MAC) has this IP address. While there are guests,
    /// also for addresses that the host itself claimed: a bridge often has the interface's MAC.
    GuestLearned {
        /// The IP address.
        ip: IpAddr,
        /// The guest.
        mac: Mac,
        /// Known only from the source address of data, which the guest may have forwarded.
        weak: bool,
    },
    /// A guest no longer has an IP address.
    GuestForgotten {
        /// The IP address.
        ip: IpAddr,
    },
    /// Two hosts repeatedly claim the same IP address. Once for each address.
    AddressConflict {
        /// The address.
        ip: IpAddr,
        /// The MAC of the first host, a guest's or that of a peer on the TAP.
        one: Mac,
        /// The MAC of the second host.
        other: Mac,
    },
    /// A neighbour claimed an IP address that it should not have. At most once a second.
    SuspiciousClaim {
        /// The claimed hardware address.
        address: HardwareAddress,
        /// The IP address.
        ip: IpAddr,
        /// The address is pinned to another neighbour; otherwise another live host has it.
        pinned: bool,
        /// The claim was dropped.
        refused: bool,
    },
    /// A guest has the MAC of a peer on the TAP; the peer got another.
    MacClash {
        /// The guest's MAC.
        guest: Mac,
        /// The peer's new MAC.
        peer: Mac,
    },
    /// Signed neighbour discovery (SEND, RFC 3971) passed unchanged. Once for each interface.
    SignedNd,
    /// A host behind the interface joined a multicast group or answered a query for it.
    GroupJoined {
        /// The member; the interface's own MAC means the host itself.
        mac: Mac,
        /// The group.
        group: IpAddr,
    },
    /// A host behind the interface left a multicast group.
    GroupLeft {
        /// The former member.
        mac: Mac,
        /// The group.
        group: IpAddr,
    },
    /// A host on the fabric reported membership in a group. Only while the host routes multicast
    /// ([`crate::Ipoib::route_multicast`]).
    GroupSeen {
        /// The group.
        group: IpAddr,
    },
    /// A connection was established. Only while events are enabled.
    ConnectionUp {
        /// The peer; without flags if it requested the connection.
        peer: HardwareAddress,
        /// The requester.
        role: Role,
    },
    /// An established connection ended. Only while events are enabled.
    ConnectionDown {
        /// The peer.
        peer: HardwareAddress,
        /// The requester.
        role: Role,
        /// The reason.
        why: Ended,
    },
    /// A peer refused a connection or did not answer; it gets datagrams for a minute. Only while events are
    /// enabled.
    ConnectionRefused {
        /// The peer.
        peer: HardwareAddress,
        /// The reason.
        reason: CloseReason,
    },
    /// A peer answered an echo request of this host.
    Echo {
        /// The peer.
        from: HardwareAddress,
        /// The identifier of the request.
        id: u16,
        /// The sequence number of the request.
        sequence: u32,
        /// The time stamp of the request.
        stamp: u64,
        /// Bytes of IB payload, encapsulation header included.
        len: usize,
    },
}
