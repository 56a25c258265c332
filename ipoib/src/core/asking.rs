//! In whose name the core queries an IP address: a query claims its source, so every receiver notes the sender's
//! hardware address for the source (RFC 826; RFC 4861, section 7.2.3).
//!
//! A query is caused by a packet, whose sender may have routed the packet. So the packet's source counts only if it is
//! known to be an address of the host that sent it: on the fabric, of this host or its guests; on the host side, of the
//! peer. Otherwise the query has another address of that host, or claims nothing: see [`nobody`]. Linux does the same
//! (`arp_solicit` in net/ipv4/arp.c, `ndisc_solicit` in net/ipv6/ndisc.c).

use std::net::IpAddr;

use proto::Mac;

use super::learning::is_claimable;
use super::{Ipoib, Update};
use crate::bounded::push_bounded;
use crate::own::nobody;

/// Maximum number of remembered addresses of the host. The host has further ones, but the core queries in the name of
/// these.
const HOST_ADDRESSES_MAX: usize = 256;

/// IP addresses of the host itself, the latest last.
#[derive(Default)]
pub(super) struct HostAddresses(Vec<IpAddr>);

impl HostAddresses {
    pub(super) fn contains(&self, ip: IpAddr) -> bool {
        self.0.contains(&ip)
    }

    /// Adds an address, instead of the oldest one if there are too many. True if the address is new.
    fn add(&mut self, ip: IpAddr) -> bool {
        let is_new = !self.contains(ip);
        if is_new {
            if self.0.len() >= HOST_ADDRESSES_MAX {
                self.0.remove(0);
            }
            push_bounded(&mut self.0, HOST_ADDRESSES_MAX, ip);
        }
        is_new
    }

    /// Removes an address; false if it is unknown.
    pub(super) fn remove(&mut self, ip: IpAddr) -> bool {
        let before = self.0.len();
        self.0.retain(|known| *known != ip);
        self.0.len() < before
    }
}

/// The number of leading bits that two addresses have in common; `None` if their families differ.
fn common_bits(one: IpAddr, other: IpAddr) -> Option<u32> {
    match (one, other) {
        (IpAddr::V4(one), IpAddr::V4(other)) => {
            Some((one.to_bits() ^ other.to_bits()).leading_zeros())
        }
        (IpAddr::V6(one), IpAddr::V6(other)) => {
            Some((one.to_bits() ^ other.to_bits()).leading_zeros())
        }
        _ => None,
    }
}

/// The address that is most likely in the subnet of `target`: a host that checks reverse paths (`rp_filter`) does not
/// answer others.
fn nearest(addresses: impl Iterator<Item = IpAddr>, target: IpAddr) -> Option<IpAddr> {
    let of_family = addresses.filter_map(|ip| Some((common_bits(ip, target)?, ip)));
    of_family.max_by_key(|(bits, _)| *bits).map(|(_, ip)| ip)
}

impl Ipoib {
    /// Notes that the host itself has an IP address, in all replicas.
    pub(super) fn host_uses(&mut self, ip: IpAddr) {
        if is_claimable(ip) && self.host_addresses.add(ip) {
            self.publish(Update::HostAddress { ip, present: true });
        }
    }

    /// Notes that the host no longer has an IP address, in all replicas.
    pub(super) fn host_lost(&mut self, ip: IpAddr) {
        if self.host_addresses.remove(ip) {
            self.publish(Update::HostAddress { ip, present: false });
        }
    }

    /// Notes that all replicas know about an address of the host.
    pub(super) fn apply_host_address(&mut self, ip: IpAddr, present: bool) {
        match present {
            true => self.host_addresses.add(ip),
            false => self.host_addresses.remove(ip),
        };
    }

    /// The source of a query for `target` on the fabric, because of a packet from `source`.
    pub(super) fn own_name(&self, source: IpAddr, target: IpAddr) -> IpAddr {
        let of_guest = |ip| self.guests.get(ip).is_some_and(|g| g.is_claimed());
        if self.host_addresses.contains(source) || of_guest(source) {
            return source;
        }
        let others = self.host_addresses.0.iter().copied();
        nearest(others, target).unwrap_or_else(|| nobody(self.config.mac, target))
    }

    /// The source of a query for `target` on the host side, because of a packet from `source` by the peer with the
    /// MAC.
    pub(super) fn peers_name(&self, mac: Mac, source: IpAddr, target: IpAddr) -> IpAddr {
        let neighbours = &self.neighbours;
        let Some(slot) = neighbours.by_mac(mac) else {
            return nobody(mac, target);
        };
        let owner = neighbours.strong_owner(source);
        if owner.is_some_and(|owner| neighbours.leads(slot, neighbours.link(owner))) {
            return source;
        }
        let others = neighbours.ips_of(slot);
        nearest(others, target).unwrap_or_else(|| nobody(mac, target))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(n: u32) -> IpAddr {
        std::net::Ipv4Addr::from(0x0a00_0000 + n).into()
    }

    #[test]
    fn the_latest_addresses_of_the_host_are_remembered() {
        let mut all = HostAddresses::default();
        assert!((0..1000).all(|n| all.add(ip(n))));
        assert!(!all.add(ip(999)) && all.contains(ip(1000 - 256)) && !all.contains(ip(0)));
        assert_eq!((all.0.len(), all.0.capacity()), (256, 256));
        assert!(all.remove(ip(999)) && !all.remove(ip(999)));
    }

    #[test]
    fn the_nearest_address_has_the_family_and_most_bits_of_the_target() {
        let v6: [IpAddr; 2] = ["fe80::1", "fd00::1"].map(|text| text.parse().unwrap());
        let all = || {
            [ip(1), ip(0x0001_0001), ip(0x00ff_0001)]
                .into_iter()
                .chain(v6)
        };
        for (target, expected) in [
            (ip(0x0001_0209), ip(0x0001_0001)),
            (ip(0x0000_ff09), ip(1)),
            ("fd00::9".parse().unwrap(), v6[1]),
            ("fe80::9".parse().unwrap(), v6[0]),
        ] {
            assert_eq!(nearest(all(), target), Some(expected));
        }
        assert_eq!(nearest(v6.into_iter(), ip(1)), None);
    }
}
