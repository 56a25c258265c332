//! IP addresses of interfaces (RTM_NEWADDR, RTM_DELADDR; kernel net/ipv4/devinet.c and net/ipv6/addrconf.c)
//! and multicast groups that the host has joined (RTM_NEWMULTICAST, RTM_DELMULTICAST).

use std::net::IpAddr;

use netlink_packet_route::address::{AddressFlags, AddressHeader};

use crate::attributes::{attributes, u32_of};

/// Bytes of `struct ifaddrmsg` (kernel include/uapi/linux/if_addr.h).
const HEADER_LEN: usize = 8;

// Attribute numbers of the same file.
const IFA_ADDRESS: u16 = 1;
const IFA_LOCAL: u16 = 2;
const IFA_CACHEINFO: u16 = 6;
const IFA_MULTICAST: u16 = 7;
const IFA_FLAGS: u16 = 8;

/// The scope of an address (kernel include/uapi/linux/rtnetlink.h, `rt_scope_t`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Scope {
    /// Everywhere.
    Global,
    /// In the site (deprecated, RFC 3879).
    Site,
    /// On the link.
    Link,
    /// In the host.
    Host,
    /// Any other number, set by an administrator.
    Other(u8),
}

impl Scope {
    fn from_code(code: u8) -> Scope {
        match code {
            0 => Scope::Global,
            200 => Scope::Site,
            253 => Scope::Link,
            254 => Scope::Host,
            other => Scope::Other(other),
        }
    }
}

/// An address of an interface.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Address {
    /// The interface index.
    pub ifindex: u32,
    /// The local address, not the far end of a point-to-point link.
    pub ip: IpAddr,
    /// Bits of the network prefix.
    pub prefix_len: u8,
    /// The scope.
    pub scope: Scope,
    /// Duplicate address detection has not finished (RFC 4862, 5.4). A socket cannot be bound to the
    /// address unless `optimistic` is set too.
    pub tentative: bool,
    /// The address is usable before detection has finished (RFC 4429).
    pub optimistic: bool,
    /// Duplicate address detection found another owner; the address is not usable.
    pub dadfailed: bool,
    /// The preferred lifetime has ended (RFC 4862, 5.5.4).
    pub deprecated: bool,
    /// A temporary IPv6 address (RFC 8981).
    pub temporary: bool,
    /// The address does not expire.
    pub permanent: bool,
    /// Time of creation, in hundredths of a second after boot.
    pub created: u32,
}

impl Address {
    /// Whether a socket can be bound to the address now.
    pub fn is_usable(&self) -> bool {
        !self.dadfailed && (!self.tentative || self.optimistic)
    }

    /// Whether duplicate address detection has found no other owner, or is not necessary. Before that, a host
    /// must not replace other hosts' entries for the address (RFC 4862, 5.4; RFC 4429, 3.3).
    pub fn is_unique(&self) -> bool {
        !self.dadfailed && !self.tentative
    }
}

/// Decodes the payload of RTM_NEWADDR or RTM_DELADDR.
pub(crate) fn decode(payload: &[u8]) -> Option<Address> {
    let header = AddressHeader::parse(payload).ok()?;
    let mut flags = AddressFlags::from_bits_retain(header.flags.bits().into());
    let (mut local, mut peer, mut created) = (None, None, 0);
    for (kind, value) in attributes(payload.get(HEADER_LEN..)?) {
        match kind {
            IFA_LOCAL => local = ip_of(value),
            IFA_ADDRESS => peer = ip_of(value),
            IFA_FLAGS => {
                flags = u32_of(value).map_or(flags, AddressFlags::from_bits_retain);
            }
            // struct ifa_cacheinfo: preferred and valid lifetime, creation and change.
            IFA_CACHEINFO => created = value.get(8..).and_then(u32_of).unwrap_or_default(),
            _ => {}
        }
    }
    // With IFA_LOCAL, IFA_ADDRESS is the far end. IPv6 usually has IFA_ADDRESS only.
    let ip = local.or(peer)?;
    let has = |flag| flags.contains(flag);
    Some(Address {
        ifindex: header.index,
        ip,
        prefix_len: header.prefix_len,
        scope: Scope::from_code(header.scope.into()),
        tentative: has(AddressFlags::Tentative),
        optimistic: has(AddressFlags::Optimistic),
        dadfailed: has(AddressFlags::Dadfailed),
        deprecated: has(AddressFlags::Deprecated),
        // The same bit means a secondary IPv4 address or a temporary IPv6 address.
        temporary: ip.is_ipv6() && has(AddressFlags::Secondary),
        permanent: has(AddressFlags::Permanent),
        created,
    })
}

/// Decodes the payload of RTM_NEWMULTICAST or RTM_DELMULTICAST: the interface and the group.
pub(crate) fn decode_multicast(payload: &[u8]) -> Option<(u32, IpAddr)> {
    let header = AddressHeader::parse(payload).ok()?;
    let group = attributes(payload.get(HEADER_LEN..)?)
        .filter(|&(kind, _)| kind == IFA_MULTICAST)
        .find_map(|(_, value)| ip_of(value))?;
    Some((header.index, group))
}

fn ip_of(value: &[u8]) -> Option<IpAddr> {
    if let Ok(v4) = <[u8; 4]>::try_from(value) {
        return Some(v4.into());
    }
    <[u8; 16]>::try_from(value).ok().map(IpAddr::from)
}
