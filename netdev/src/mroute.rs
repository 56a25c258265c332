//! Groups that the kernel routes from an interface, from `/proc/net/ip_mr_vif`, `ip_mr_cache`, `ip6_mr_vif`
//! and `ip6_mr_cache` (kernel net/ipv4/ipmr.c, ipmr_vif_seq_show and ipmr_mfc_seq_show; net/ipv6/ip6mr.c,
//! ip6mr_vif_seq_show and ip6mr_mfc_seq_show).
//!
//! A multicast router receives all groups on its interfaces without joining them; the kernel reports this
//! by IFF_ALLMULTI. The files only list routes made by a routing daemon. A daemon that makes a route at the
//! first packet of a group, as for routes from any source, shows no group before. The files show only the
//! default table of each family.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The files of an address family, in the namespace of the calling thread.
#[derive(Debug)]
struct Files {
    interfaces: &'static str,
    routes: &'static str,
    group: fn(&str) -> Option<IpAddr>,
}

static FILES: [Files; 2] = [
    Files {
        interfaces: "/proc/thread-self/net/ip_mr_vif",
        routes: "/proc/thread-self/net/ip_mr_cache",
        group: ipv4_group,
    },
    Files {
        interfaces: "/proc/thread-self/net/ip6_mr_vif",
        routes: "/proc/thread-self/net/ip6_mr_cache",
        group: ipv6_group,
    },
];

/// Multicast routing on an interface.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct MulticastRoutes {
    /// Whether a multicast router, of either family, uses the interface.
    pub routes: bool,
    /// The groups routed from the interface to others.
    pub groups: BTreeSet<IpAddr>,
}

/// The multicast routing of a network namespace.
#[derive(Clone, Debug, Default)]
pub struct Tables {
    /// The text of both files, for each family with interfaces.
    families: Vec<(&'static Files, String, String)>,
}

impl Tables {
    /// Reads the tables of the calling thread's network namespace. A kernel without multicast routing lacks the
    /// files; nothing is routed then.
    ///
    /// # Errors
    /// A file exists and cannot be read.
    pub fn read() -> io::Result<Tables> {
        let mut tables = Tables::default();
        for files in &FILES {
            let interfaces = read(files.interfaces)?;
            // Most hosts route no multicast, and the second file may be long. The first line is a heading.
            if interfaces.lines().nth(1).is_some() {
                tables
                    .families
                    .push((files, interfaces, read(files.routes)?));
            }
        }
        Ok(tables)
    }

    /// The multicast routing of the interface `name`.
    pub fn of(&self, name: &str) -> MulticastRoutes {
        let mut found = MulticastRoutes::default();
        for (files, interfaces, routes) in &self.families {
            if let Some(number) = interface_number(interfaces, name) {
                found.routes = true;
                found.groups.extend(groups(routes, number, files.group));
            }
        }
        found
    }
}

fn read(path: &str) -> io::Result<String> {
    match fs::read_to_string(path) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(String::new()),
        Err(e) => Err(io::Error::new(e.kind(), format!("cannot read {path}: {e}"))),
        read => read,
    }
}

/// The number of an interface in multicast routing, from the text of `ip_mr_vif` or `ip6_mr_vif`; `None` if
/// it has none. Unknown lines are skipped.
pub fn interface_number(text: &str, name: &str) -> Option<u16> {
    text.lines().find_map(|line| {
        let mut fields = line.split_ascii_whitespace();
        let number = fields.next()?.parse().ok()?;
        (fields.next() == Some(name)).then_some(number)
    })
}

/// The groups routed from the interface with this number, from the text of `ip_mr_cache`. Unknown lines and
/// packets that wait for a route (interface -1) are skipped.
///
/// Addresses are numbers *in host byte order*, as in `/proc/net/igmp`: 239.1.2.3 is `030201EF` on a
/// little-endian host.
pub fn parse_ip_mr_cache(text: &str, number: u16) -> BTreeSet<IpAddr> {
    groups(text, number, ipv4_group).collect()
}

/// The groups routed from the interface with this number, from the text of `ip6_mr_cache`, which has
/// addresses in network order.
pub fn parse_ip6_mr_cache(text: &str, number: u16) -> BTreeSet<IpAddr> {
    groups(text, number, ipv6_group).collect()
}

/// Parses the lines of both families: group, origin, number of the incoming interface, and more.
fn groups(
    text: &str,
    number: u16,
    group: fn(&str) -> Option<IpAddr>,
) -> impl Iterator<Item = IpAddr> {
    text.lines().filter_map(move |line| {
        let mut fields = line.split_ascii_whitespace();
        let group = group(fields.next()?)?;
        let from: u16 = fields.nth(1)?.parse().ok()?;
        (from == number && group.is_multicast()).then_some(group)
    })
}

/// An IPv4 address as a hexadecimal number in host byte order.
pub(crate) fn ipv4_group(field: &str) -> Option<IpAddr> {
    let digits = Some(field).filter(|field| field.len() == 8)?;
    let number = u32::from_str_radix(digits, 16).ok()?;
    Some(Ipv4Addr::from(number.to_ne_bytes()).into())
}

fn ipv6_group(field: &str) -> Option<IpAddr> {
    field.parse::<Ipv6Addr>().ok().map(IpAddr::from)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn set(groups: &[&str]) -> BTreeSet<IpAddr> {
        groups.iter().map(|group| group.parse().unwrap()).collect()
    }

    #[test]
    fn interfaces_are_known_by_name() {
        for text in [
            include_str!("../../tests/data/proc-net-ip_mr_vif.txt"),
            include_str!("../../tests/data/proc-net-ip6_mr_vif.txt"),
        ] {
            assert_eq!(interface_number(text, "ib0"), Some(0));
            assert_eq!(interface_number(text, "ib1"), Some(1));
            assert_eq!(interface_number(text, "ib"), None);
            assert_eq!(interface_number(text, "BytesIn"), None);
        }
    }

    #[test]
    #[cfg(target_endian = "little")]
    fn ipv4_routes_are_host_endian_numbers() {
        let text = include_str!("../../tests/data/proc-net-ip_mr_cache.txt");
        assert_eq!(parse_ip_mr_cache(text, 0), set(&["239.1.2.3"]));
        assert_eq!(parse_ip_mr_cache(text, 1), set(&["239.7.8.9"]));
        assert_eq!(parse_ip_mr_cache(text, 2), set(&[]));
    }

    #[test]
    fn ipv6_routes_are_written_out() {
        let text = include_str!("../../tests/data/proc-net-ip6_mr_cache.txt");
        assert_eq!(parse_ip6_mr_cache(text, 0), set(&["ff15::1234"]));
        assert_eq!(parse_ip6_mr_cache(text, 1), set(&["ff15::99"]));
        assert_eq!(parse_ip6_mr_cache(text, 2), set(&[]));
    }

    /// Routes in the kernel's format.
    fn print(routes: &[(IpAddr, u16)]) -> (String, String) {
        let mut v4 = String::from("Group    Origin   Iif     Pkts    Bytes    Wrong Oifs\n");
        let mut v6 = String::from("Group Origin Iif Pkts  Bytes     Wrong  Oifs\n");
        for (group, from) in routes {
            match group {
                IpAddr::V4(g) => {
                    let number = u32::from_ne_bytes(g.octets());
                    v4 += &format!("{number:08X} 0900090A {from:<3} {:8} {:8} {:8}\n", 0, 0, 0);
                }
                IpAddr::V6(g) => {
                    let words = g.segments().map(|word| format!("{word:04x}")).join(":");
                    v6 += &format!("{words} {words} {from:<3} {:8} {:8} {:8}\n", 0, 0, 0);
                }
            }
        }
        (v4, v6)
    }

    fn group() -> impl Strategy<Value = IpAddr> {
        prop_oneof![
            (224u8..240, any::<[u8; 3]>())
                .prop_map(|(a, [b, c, d])| Ipv4Addr::new(a, b, c, d).into()),
            any::<[u8; 15]>().prop_map(|tail| {
                let mut octets = [0xff; 16];
                octets[1..].copy_from_slice(&tail);
                IpAddr::from(octets)
            }),
        ]
    }

    proptest! {
        #[test]
        fn each_interface_gets_its_own_routes(
            routes in proptest::collection::vec((group(), 0u16..4), 0..40),
        ) {
            let (v4, v6) = print(&routes);
            for number in 0..4 {
                let mut found = parse_ip_mr_cache(&v4, number);
                found.append(&mut parse_ip6_mr_cache(&v6, number));
                let of_number = routes.iter().filter(|(_, from)| *from == number);
                prop_assert_eq!(found, of_number.map(|(group, _)| *group).collect::<BTreeSet<_>>());
            }
        }

        #[test]
        fn any_text_is_survived(text in "[ \\t\\n0-9a-fA-F:é-]{0,400}", number in 0u16..20) {
            let mut groups = parse_ip_mr_cache(&text, number);
            groups.append(&mut parse_ip6_mr_cache(&text, number));
            prop_assert!(groups.iter().all(IpAddr::is_multicast));
            let _ = interface_number(&text, "1");
        }
    }
}
