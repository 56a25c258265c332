//! IP groups, multicast GIDs and Ethernet group addresses.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use proto::mgid::{SIGNATURE_IPV4, SIGNATURE_IPV6, base, broadcast};
use proto::{Gid, Mac, PKey};

/// The multicast GID of an IPv4 group: its low 28 bits (RFC 4391, section 4; the kernel's `ip_ib_mc_map`).
/// The limited broadcast address gives the broadcast GID.
fn mgid_v4(group: Ipv4Addr, pkey: PKey, scope: u8) -> Option<Gid> {
    if group.is_broadcast() {
        return Some(broadcast(pkey, scope));
    }
    if !group.is_multicast() {
        return None;
    }
    let mut g = base(pkey, scope, SIGNATURE_IPV4);
    g[12..].copy_from_slice(&group.octets());
    g[12] &= 0x0f;
    Some(Gid(g))
}

/// The multicast GID of an IPv6 group: its low 80 bits (RFC 4391, section 4; the kernel's
/// `ipv6_ib_mc_map`). Groups that differ only in higher bits share a GID.
fn mgid_v6(group: Ipv6Addr, pkey: PKey, scope: u8) -> Option<Gid> {
    if !group.is_multicast() {
        return None;
    }
    let mut g = base(pkey, scope, SIGNATURE_IPV6);
    g[6..].copy_from_slice(&group.octets()[6..]);
    Some(Gid(g))
}

/// The multicast GID of an IP group; `None` for an address that is neither a group nor the IPv4 limited
/// broadcast. The scope is that of the link, not that of the IP address.
pub fn mgid(group: IpAddr, pkey: PKey, scope: u8) -> Option<Gid> {
    match group {
        IpAddr::V4(g) => mgid_v4(g, pkey, scope),
        IpAddr::V6(g) => mgid_v6(g, pkey, scope),
    }
}

/// The group MAC of an IP group (RFC 1112, section 6.4; RFC 2464, section 7).
pub fn group_mac(group: IpAddr) -> Mac {
    match group {
        IpAddr::V4(g) => {
            let [_, b, c, d] = g.octets();
            [0x01, 0x00, 0x5e, b & 0x7f, c, d]
        }
        IpAddr::V6(g) => {
            let o = g.octets();
            [0x33, 0x33, o[12], o[13], o[14], o[15]]
        }
    }
}

/// The solicited-node group of an IPv6 address (RFC 4291, section 2.7.1).
pub fn solicited_node(address: Ipv6Addr) -> Ipv6Addr {
    let o = address.octets();
    let low = u16::from_be_bytes([o[14], o[15]]);
    Ipv6Addr::new(0xff02, 0, 0, 0, 0, 1, 0xff00 | u16::from(o[13]), low)
}

#[cfg(test)]
mod tests {
    use super::*;

    const P1: PKey = PKey::new(0x8001);

    #[track_caller]
    fn maps(ip: &str, expected: &str) {
        let got = mgid(ip.parse().unwrap(), P1, 2).unwrap();
        assert_eq!(got, expected.parse().unwrap(), "{ip}");
    }

    #[test]
    fn c08_broadcast_of_the_default_partition() {
        assert_eq!(
            broadcast(PKey::DEFAULT, 2),
            "ff12:401b:ffff::ffff:ffff".parse().unwrap()
        );
    }

    #[test]
    fn c09_broadcast_has_the_full_member_key_even_for_limited_members() {
        let expected = "ff12:401b:8001::ffff:ffff".parse().unwrap();
        assert_eq!(broadcast(PKey::new(0x0001), 2), expected);
        assert_eq!(broadcast(P1, 2), expected);
    }

    #[test]
    fn c10_scope_is_the_links() {
        assert_eq!(
            broadcast(P1, 5),
            "ff15:401b:8001::ffff:ffff".parse().unwrap()
        );
        for ip in ["224.0.0.1", "239.1.2.3", "ff02::1", "ff0e::7"] {
            let g = mgid(ip.parse().unwrap(), P1, 5).unwrap();
            assert_eq!(g.0[..2], [0xff, 0x15]);
        }
        let g = mgid("239.192.7.7".parse().unwrap(), PKey::new(0x8013), 0xe).unwrap();
        assert_eq!(g, "ff1e:401b:8013::fc0:707".parse().unwrap());
    }

    #[test]
    fn c13_ipv4_multicast_mapping() {
        maps("224.0.0.251", "ff12:401b:8001::fb");
    }

    #[test]
    fn c14_ipv4_multicast_mapping_of_ssdp() {
        maps("239.255.255.250", "ff12:401b:8001::fff:fffa");
    }

    #[test]
    fn c15_groups_that_share_an_ethernet_address_have_their_own_mgid() {
        maps("224.1.2.3", "ff12:401b:8001::1:203");
        maps("225.1.2.3", "ff12:401b:8001::101:203");
        let mac = |s: &str| group_mac(s.parse().unwrap());
        assert_eq!(mac("224.1.2.3"), mac("225.1.2.3"));
        assert_eq!(mac("225.129.2.3"), [1, 0, 0x5e, 1, 2, 3]);
    }

    #[test]
    fn c16_low_28_bits() {
        maps("239.1.2.3", "ff12:401b:8001::f01:203");
    }

    #[test]
    fn c17_limited_broadcast_is_the_broadcast_group() {
        maps("255.255.255.255", "ff12:401b:8001::ffff:ffff");
        assert_eq!(mgid("10.0.0.255".parse().unwrap(), P1, 2), None);
        assert_eq!(mgid("fe80::1".parse().unwrap(), P1, 2), None);
    }

    #[test]
    fn c18_all_nodes() {
        maps("ff02::1", "ff12:601b:8001::1");
    }

    #[test]
    fn c19_solicited_node() {
        maps("ff02::1:ff12:3456", "ff12:601b:8001::1:ff12:3456");
        let a: Ipv6Addr = "2001:db8::aa12:3456".parse().unwrap();
        assert_eq!(
            solicited_node(a),
            "ff02::1:ff12:3456".parse::<Ipv6Addr>().unwrap()
        );
    }

    #[test]
    fn c20_groups_of_two_scopes_share_an_mgid() {
        maps("ff05::1:3", "ff12:601b:8001::1:3");
        maps("ff02::1:3", "ff12:601b:8001::1:3");
        let mac = group_mac("ff05::1:3".parse().unwrap());
        assert_eq!(mac, [0x33, 0x33, 0, 1, 0, 3]);
    }

    #[test]
    fn c21_low_80_bits() {
        maps(
            "ff3e:40:2001:db8:cafe:1:11ff:11ee",
            "ff12:601b:8001:db8:cafe:1:11ff:11ee",
        );
    }

    #[test]
    fn c24_every_mgid_carries_the_partition() {
        for ip in ["224.0.0.1", "239.1.2.3", "255.255.255.255", "ff02::1"] {
            let g = mgid(ip.parse().unwrap(), PKey::new(0x8002), 2).unwrap();
            assert_eq!(g.0[4..6], [0x80, 0x02]);
        }
    }
}
