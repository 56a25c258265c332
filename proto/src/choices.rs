//! Choices of the administrator for a port or an interface.

use std::fmt;
use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use crate::{Gid, Qpn};

/// Transport of IP packets (RFC 4391: datagram, RFC 4755: connected).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "clap", derive(clap::ValueEnum))]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// Unreliable datagram queue pairs.
    #[default]
    Datagram,
    /// Reliable connections, with peers that support them.
    Connected,
}

/// Changes to DHCPv4 messages that pass.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "clap", derive(clap::ValueEnum))]
#[serde(rename_all = "lowercase")]
pub enum DhcpMode {
    /// Requests get the broadcast flag; answers get the client's hardware address.
    #[default]
    Broadcast,
    /// As `Broadcast`; requests also get the form of RFC 4390, section 2.1.
    Rfc4390,
    /// No changes.
    Off,
}

/// What the hardware address that ARP or neighbour discovery claims must have in common with the datagram that
/// carries it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "clap", derive(clap::ValueEnum))]
#[serde(rename_all = "lowercase")]
pub enum ClaimCheck {
    /// Nothing.
    Off,
    /// The GID.
    #[default]
    Gid,
    /// The GID and the queue pair. A port may send from other queue pairs than the one it is reached at, so
    /// this is not the default.
    Qpn,
}

/// The action for a claim of an IP address that contradicts a pin, or takes over the address of a live neighbour.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "clap", derive(clap::ValueEnum))]
#[serde(rename_all = "lowercase")]
pub enum Inspect {
    /// Follow the claim.
    #[default]
    Off,
    /// Count, report and follow the claim.
    Warn,
    /// Count, report and drop the claim.
    Enforce,
}

/// The neighbour that has an IP address, as an administrator says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pin {
    /// The IP address.
    pub ip: IpAddr,
    /// The neighbour's GID.
    pub gid: Gid,
    /// The neighbour's queue pair; `None`: any.
    pub qpn: Option<Qpn>,
}

/// The largest segment that TCP uses in connected mode.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MssChoice {
    /// The largest segment that leaves with a whole number of system calls, each sending a full train.
    #[default]
    Train,
    /// The largest segment that fits the MTU: packets pass unchanged.
    Mtu,
    /// This number of bytes, TCP's options included (RFC 9293, 3.7.1).
    Bytes(u16),
}

impl fmt::Display for MssChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            MssChoice::Train => f.write_str("train"),
            MssChoice::Mtu => f.write_str("mtu"),
            MssChoice::Bytes(bytes) => bytes.fmt(f),
        }
    }
}

/// How a port reaches the subnet administrator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SaChoice {
    /// Not at all: groups need no administrator.
    None,
    /// By libibumad: on the RDMA device of the port. For an underlay, on the first device that libibumad
    /// finds.
    Umad,
    /// By the QP1 of a port of the software fabric: the subnet administrator is at the port with this GID.
    Port(Gid),
}

/// The choice of the port's GID, among the underlay's addresses or the RDMA device's GIDs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum GidChoice {
    /// The IPv6 link-local address. On an RDMA device with Ethernet: a RoCE v2 entry with an IPv6 address
    /// of its interface, link-local first, because IPoIB's groups are IPv6 groups. On InfiniBand: the first
    /// entry.
    #[default]
    Auto,
    /// The first IPv4 address, as `::ffff:a.b.c.d`.
    Ipv4,
    /// This address.
    Address(IpAddr),
    /// The entry at this index of the RDMA device's GID table. An underlay has no such table.
    Index(u32),
}

impl GidChoice {
    /// Whether the GID is IPv4-mapped.
    pub fn is_ipv4(self) -> bool {
        matches!(self, GidChoice::Ipv4 | GidChoice::Address(IpAddr::V4(_)))
    }
}

impl fmt::Display for GidChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            GidChoice::Auto => f.write_str("auto"),
            GidChoice::Ipv4 => f.write_str("ipv4"),
            GidChoice::Address(address) => address.fmt(f),
            GidChoice::Index(index) => index.fmt(f),
        }
    }
}

/// The rule that derives the largest UD payload from the underlay's MTU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LinkMtu {
    /// The largest IB MTU code that fits, if it is 2048 or more; else `Exact`. The next lower code, 1024,
    /// is too small for IPv6 in IPoIB (RFC 8200, 5: 1280).
    #[default]
    Auto,
    /// The largest multiple of 4 that fits.
    Exact,
    /// This number of bytes, encapsulation header included; 76 to 65524.
    Bytes(u32),
}

impl fmt::Display for LinkMtu {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LinkMtu::Auto => f.write_str("auto"),
            LinkMtu::Exact => f.write_str("exact"),
            LinkMtu::Bytes(bytes) => bytes.fmt(f),
        }
    }
}

/// The manager of reliable connections of an InfiniBand port.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "clap", derive(clap::ValueEnum))]
#[cfg_attr(feature = "clap", value(rename_all = "snake_case"))]
#[serde(rename_all = "snake_case")]
pub enum CmChoice {
    /// `Umad` where no kernel module manages the connections of the port, else `RdmaCm`.
    #[default]
    Auto,
    /// The daemon itself, with management datagrams of class 7 (umad(7)).
    Umad,
    /// The kernel (rdma_cm(7)).
    RdmaCm,
    /// No connections.
    Off,
}

/// Implements `Display` for enumerations of unit variants: the text is the name that `Serialize` writes. So a name
/// stands once, and is the same in the configuration, in JSON and in texts for people.
#[macro_export]
macro_rules! display_as_serialized {
    ($($name:ty),+) => {$(
        impl ::std::fmt::Display for $name {
            fn fmt(&self, f: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                ::serde::Serialize::serialize(self, f)
            }
        }
    )+};
}

crate::display_as_serialized!(Mode, DhcpMode, ClaimCheck, Inspect, CmChoice);
