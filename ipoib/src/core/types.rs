//! What goes in and comes out.

use std::net::IpAddr;

use fabric::{AddressHandle, Gid, PKey, Qpn};

use crate::address::{HardwareAddress, Mac};
use crate::counters::DropReason;

/// Milliseconds of a monotonic clock, from any origin.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Time(pub u64);

impl Time {
    /// `ms` milliseconds later.
    #[must_use]
    pub const fn after(self, ms: u64) -> Time {
        Time(self.0.saturating_add(ms))
    }
}

/// Bounds of all tables.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Neighbours. Twice as many IP addresses are kept.
    pub neighbours: usize,
    /// Multicast groups, joined and send-only.
    pub groups: usize,
    /// Destinations that are being asked for.
    pub unresolved: usize,
    /// Frames that wait for one destination; 4 MiB in all.
    pub held_per_neighbour: usize,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            neighbours: 16384,
            groups: 4096,
            unresolved: 256,
            held_per_neighbour: 3,
        }
    }
}

/// What an interface is.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// Our own address on the fabric.
    pub local: HardwareAddress,
    /// The TAP's Ethernet address.
    pub mac: Mac,
    /// The partition.
    pub pkey: PKey,
    /// The scope of the link's multicast GIDs: 2 (link-local) unless configured otherwise.
    pub scope: u8,
    /// Bounds of the tables.
    pub limits: Limits,
}

/// Where a payload goes: a slot of the neighbour or the group table.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Target {
    /// A peer.
    Neighbour(u32),
    /// A multicast group.
    Group(u32),
}

/// What to do with a frame from the TAP.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outgoing<'a> {
    /// Strip 14 bytes of Ethernet, cut the IP packet to the link's size, put `encap` before each
    /// piece. Bytes behind the IP packet's own length are Ethernet padding and must not be sent.
    Forward {
        /// The destination.
        to: Target,
        /// The encapsulation header.
        encap: [u8; 4],
    },
    /// Send this instead: a complete IB payload.
    Rewritten {
        /// The destination.
        to: Target,
        /// Encapsulation header and packet.
        packet: &'a [u8],
    },
    /// Kept until the destination is known; see [`crate::Ipoib::pop_released`].
    Held,
    /// Dropped and counted.
    Dropped(DropReason),
}

/// What the fabric knows about a received datagram.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Meta {
    /// The sender's queue pair.
    pub src_qpn: Qpn,
    /// The sender's GID.
    pub src_gid: Gid,
    /// The destination: a multicast GID, or our own. A multicast that came as a unicast copy has
    /// our own GID and `multicast` set.
    pub dst_gid: Gid,
    /// Sent to the multicast queue pair number.
    pub multicast: bool,
}

/// What a datagram from the fabric is for the TAP.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Incoming<'a, 'p> {
    /// An IP packet as it came.
    Packet {
        /// The Ethernet header to put before it.
        ethernet: [u8; 14],
        /// The packet, cut to its own length.
        l3: &'p [u8],
    },
    /// A translated Ethernet frame.
    Frame(&'a [u8]),
    /// Dropped and counted.
    Dropped(DropReason),
}

/// News for the other replicas of an interface.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Update {
    /// A neighbour spoke ARP or neighbour discovery.
    Learned {
        /// Its address.
        address: HardwareAddress,
        /// The Ethernet address that it was given.
        mac: Mac,
        /// An IP address that it said it has.
        ip: Option<IpAddr>,
    },
    /// A peer restarted: frames for `old` go to `new`.
    Superseded {
        /// The queue pair that was.
        old: HardwareAddress,
        /// The queue pair that is.
        new: HardwareAddress,
    },
    /// A neighbour must be forgotten.
    Forgotten {
        /// Its address.
        address: HardwareAddress,
    },
}

/// One neighbour.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NeighbourInfo {
    /// The Ethernet address that stands for it.
    pub mac: Mac,
    /// Its address.
    pub address: HardwareAddress,
    /// IP addresses that it has, sorted.
    pub ips: Vec<IpAddr>,
    /// Spoke ARP or neighbour discovery, and did not only send data.
    pub confirmed: bool,
    /// Frames for it go to another queue pair of its port.
    pub superseded: bool,
    /// Its address handle.
    pub ah: Option<AddressHandle>,
    /// When it was last heard of or sent to, to about a second.
    pub used: Time,
}

/// One multicast group.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct GroupInfo {
    /// The group.
    pub mgid: Gid,
    /// We only send to it.
    pub send_only: bool,
    /// When it was first joined or sent to.
    pub created: Time,
    /// Its address handle.
    pub ah: Option<AddressHandle>,
}
