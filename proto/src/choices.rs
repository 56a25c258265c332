//! What an administrator chooses for a port or an interface.

use std::fmt;
use std::net::IpAddr;

use serde::{Deserialize, Serialize};

/// How IP packets travel (RFC 4391: datagram, RFC 4755: connected).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "clap", derive(clap::ValueEnum))]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// Over an unreliable datagram queue pair.
    #[default]
    Datagram,
    /// Over reliable connections to peers that have them.
    Connected,
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Mode::Datagram => "datagram",
            Mode::Connected => "connected",
        })
    }
}

/// What is done to DHCPv4 that passes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "clap", derive(clap::ValueEnum))]
#[serde(rename_all = "lowercase")]
pub enum DhcpMode {
    /// Clients ask for broadcast answers, and get answers with their hardware address.
    #[default]
    Broadcast,
    /// The same, and requests leave as RFC 4390, section 2.1 has them.
    Rfc4390,
    /// Nothing.
    Off,
}

impl fmt::Display for DhcpMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            DhcpMode::Broadcast => "broadcast",
            DhcpMode::Rfc4390 => "rfc4390",
            DhcpMode::Off => "off",
        })
    }
}

/// Which of the underlay's addresses, or of an RDMA device's GIDs, is the port's GID.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum GidChoice {
    /// The IPv6 link-local address. Of an RDMA device on Ethernet the entry of RoCE v2 that has an IPv6
    /// address of its interface, link-local first, since IPoIB's groups are IPv6 groups; on InfiniBand
    /// the first entry.
    #[default]
    Auto,
    /// The first IPv4 address, as `::ffff:a.b.c.d`.
    Ipv4,
    /// This address.
    Address(IpAddr),
    /// The entry of an RDMA device's GID table at this index. An underlay has no such table.
    Index(u32),
}

impl GidChoice {
    /// Whether the GID is an IPv4-mapped one.
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

/// How the largest UD payload follows from the underlay's MTU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LinkMtu {
    /// The largest IB MTU code that fits, if that is 2048 or more; else all that fits. The code below
    /// would be 1024, which is too small for IPv6 in IPoIB (RFC 8200, 5: 1280).
    #[default]
    Auto,
    /// All that fits, in multiples of 4.
    Exact,
    /// This many bytes, encapsulation header included; 76 to 65524.
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
