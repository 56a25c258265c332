//! Global and local identifiers.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// A 16-byte global identifier, unicast or multicast, in network order. On RoCEv2 the GID is an IP address,
/// IPv4 in the form `::ffff:a.b.c.d` (IBA vol. 1, annex A17.4.1.2).
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Gid(pub [u8; 16]);

impl Gid {
    /// All zero: no GID.
    pub const UNSPECIFIED: Gid = Gid([0; 16]);

    /// Whether this is a multicast GID: `ff…`, or an IPv4-mapped group address.
    pub fn is_multicast(&self) -> bool {
        self.0[0] == 0xff || self.ipv4().is_some_and(|a| a.is_multicast())
    }

    /// The IPv4 address of an IPv4-mapped GID.
    pub fn ipv4(&self) -> Option<Ipv4Addr> {
        Ipv6Addr::from(self.0).to_ipv4_mapped()
    }

    /// The IP address of this GID on RoCEv2.
    pub fn to_ip(&self) -> IpAddr {
        match self.ipv4() {
            Some(v4) => IpAddr::V4(v4),
            None => IpAddr::V6(self.0.into()),
        }
    }

    /// The subnet prefix, bytes 0 to 7.
    pub fn prefix(&self) -> [u8; 8] {
        let mut p = [0; 8];
        p.copy_from_slice(&self.0[..8]);
        p
    }

    /// The interface identifier, bytes 8 to 15; for GID index 0 the port GUID.
    pub fn interface_id(&self) -> Guid {
        let mut g = [0; 8];
        g.copy_from_slice(&self.0[8..]);
        Guid(g)
    }
}

impl From<Ipv6Addr> for Gid {
    fn from(a: Ipv6Addr) -> Gid {
        Gid(a.octets())
    }
}

impl From<Ipv4Addr> for Gid {
    fn from(a: Ipv4Addr) -> Gid {
        Gid(a.to_ipv6_mapped().octets())
    }
}

impl From<IpAddr> for Gid {
    fn from(a: IpAddr) -> Gid {
        match a {
            IpAddr::V4(a) => a.into(),
            IpAddr::V6(a) => a.into(),
        }
    }
}

impl FromStr for Gid {
    type Err = std::net::AddrParseError;

    fn from_str(s: &str) -> Result<Gid, Self::Err> {
        Ok(s.parse::<IpAddr>()?.into())
    }
}

impl fmt::Display for Gid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Ipv6Addr::from(self.0).fmt(f)
    }
}

impl fmt::Debug for Gid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Gid({self})")
    }
}

impl Serialize for Gid {
    fn serialize<S: serde::Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Gid {
    fn deserialize<D: serde::Deserializer<'de>>(d: D) -> Result<Gid, D::Error> {
        String::deserialize(d)?
            .parse()
            .map_err(serde::de::Error::custom)
    }
}

/// An EUI-64 globally unique identifier, in network order.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Guid(pub [u8; 8]);

impl Guid {
    /// The EUI-64 of a 48-bit MAC address with the U/L bit inverted, as on RoCE ports.
    pub const fn from_mac(m: [u8; 6]) -> Guid {
        Guid([m[0] ^ 2, m[1], m[2], 0xff, 0xfe, m[3], m[4], m[5]])
    }
}

impl fmt::Display for Guid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let g = &self.0;
        write!(
            f,
            "{:02x}{:02x}:{:02x}{:02x}:{:02x}{:02x}:{:02x}{:02x}",
            g[0], g[1], g[2], g[3], g[4], g[5], g[6], g[7]
        )
    }
}

impl fmt::Debug for Guid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Guid({self})")
    }
}

/// A local identifier of an InfiniBand subnet, 16 bits. RoCE ports have none.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Lid(pub u16);

impl Lid {
    /// Whether the LID is unicast (IBA vol. 1, 4.1.3).
    pub const fn is_unicast(self) -> bool {
        self.0 != 0 && self.0 < 0xc000
    }

    /// Whether the LID is multicast, and not the permissive one (IBA vol. 1, 4.1.3).
    pub const fn is_multicast(self) -> bool {
        self.0 >= 0xc000 && self.0 != 0xffff
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gids_are_addresses() {
        let g: Gid = "192.0.2.1".parse().unwrap();
        assert_eq!(g.to_string(), "::ffff:192.0.2.1");
        assert_eq!(g.to_ip(), "192.0.2.1".parse::<IpAddr>().unwrap());
        assert!("ff12::1".parse::<Gid>().unwrap().is_multicast());
        assert!("239.1.2.3".parse::<Gid>().unwrap().is_multicast());
    }
}
