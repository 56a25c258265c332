//! IP groups that the host has joined on an interface, from `/proc/net/igmp` and `/proc/net/igmp6` (kernel
//! net/ipv4/igmp.c, igmp_mc_seq_show; net/ipv6/mcast.c, igmp6_mc_seq_show), and group addresses that an
//! Ethernet interface receives, from `/proc/net/dev_mcast` (net/core/net-procfs.c, dev_mc_seq_show).
//!
//! The files list each group once, regardless of the number of sockets, and include groups that the host
//! joins by itself: all hosts, all nodes, solicited-node. Kernels of 2025 and later announce changes
//! ([`rtnl::Group::Ipv4Multicast`]); with older kernels, poll the files.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::net::{IpAddr, Ipv6Addr};

use crate::mroute::ipv4_group;

/// The calling thread's namespace; `/proc/net` is that of the process's first thread.
const IGMP: &str = "/proc/thread-self/net/igmp";
const IGMP6: &str = "/proc/thread-self/net/igmp6";
const DEV_MCAST: &str = "/proc/thread-self/net/dev_mcast";

/// The groups joined on each interface of the calling thread's network namespace, by interface index. Interfaces
/// without groups are left out.
///
/// # Errors
/// Neither file can be read. A kernel without one of the protocols lacks its file.
pub fn read_all() -> io::Result<BTreeMap<u32, BTreeSet<IpAddr>>> {
    let (v4, v6) = (fs::read_to_string(IGMP), fs::read_to_string(IGMP6));
    if let (Err(e), Err(_)) = (&v4, &v6) {
        return Err(io::Error::new(e.kind(), format!("cannot read {IGMP}: {e}")));
    }
    let mut all: BTreeMap<u32, BTreeSet<IpAddr>> = BTreeMap::new();
    let (v4, v6) = (v4.unwrap_or_default(), v6.unwrap_or_default());
    for (ifindex, group) in igmp(&v4).chain(igmp6(&v6)) {
        all.entry(ifindex).or_default().insert(group);
    }
    Ok(all)
}

/// The Ethernet group addresses that each interface of the calling thread's network namespace receives, for IP
/// groups and others, by interface index.
///
/// # Errors
/// The file cannot be read.
pub fn read_links() -> io::Result<BTreeMap<u32, BTreeSet<[u8; 6]>>> {
    let text = fs::read_to_string(DEV_MCAST)
        .map_err(|e| io::Error::new(e.kind(), format!("cannot read {DEV_MCAST}: {e}")))?;
    Ok(parse_dev_mcast(&text))
}

/// Interfaces and groups in the text of `/proc/net/igmp`. Unknown lines are skipped.
///
/// The line of an interface starts with its index. The lines of its groups follow, indented, with the
/// address as a hexadecimal number *in host byte order*: 224.0.0.1 is `010000E0` on a little-endian host.
pub fn igmp(text: &str) -> impl Iterator<Item = (u32, IpAddr)> {
    let mut interface = None;
    text.lines().filter_map(move |line| {
        let first = line.split_ascii_whitespace().next().unwrap_or_default();
        if !line.starts_with(['\t', ' ']) {
            interface = first.parse().ok();
            return None;
        }
        let group = ipv4_group(first)?;
        group.is_multicast().then_some((interface?, group))
    })
}

/// Interfaces and groups in the text of `/proc/net/igmp6`: a line for each group, with the interface's
/// index, its name, and the group in 32 hexadecimal digits in network order.
pub fn igmp6(text: &str) -> impl Iterator<Item = (u32, IpAddr)> {
    text.lines().filter_map(|line| {
        let mut fields = line.split_ascii_whitespace();
        let index: u32 = fields.next()?.parse().ok()?;
        let digits = fields.nth(1).filter(|digits| digits.len() == 32)?;
        let group = Ipv6Addr::from(u128::from_str_radix(digits, 16).ok()?);
        group.is_multicast().then_some((index, group.into()))
    })
}

/// Parses the group addresses of all interfaces in the text of `/proc/net/dev_mcast`: a line for each, with
/// the interface's index, its name, two counts, and the address in hexadecimal digits. Unknown lines and
/// addresses other than Ethernet's are skipped.
pub fn parse_dev_mcast(text: &str) -> BTreeMap<u32, BTreeSet<[u8; 6]>> {
    let address = |line: &str| {
        let mut fields = line.split_ascii_whitespace();
        let index: u32 = fields.next()?.parse().ok()?;
        let digits = fields.nth(3).filter(|digits| digits.len() == 12)?;
        let number = u64::from_str_radix(digits, 16).ok()?;
        let [_, _, mac @ ..] = number.to_be_bytes();
        (mac[0] & 1 != 0).then_some((index, mac))
    };
    let mut all: BTreeMap<u32, BTreeSet<[u8; 6]>> = BTreeMap::new();
    for (index, mac) in text.lines().filter_map(address) {
        all.entry(index).or_default().insert(mac);
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::net::Ipv4Addr;

    fn of(ifindex: u32, groups: impl Iterator<Item = (u32, IpAddr)>) -> BTreeSet<IpAddr> {
        let of_it = groups.filter(|(index, _)| *index == ifindex);
        of_it.map(|(_, group)| group).collect()
    }

    fn set(groups: &[&str]) -> BTreeSet<IpAddr> {
        groups.iter().map(|group| group.parse().unwrap()).collect()
    }

    #[test]
    #[cfg(target_endian = "little")]
    fn igmp_addresses_are_host_endian_numbers() {
        let text = include_str!("../../tests/data/proc-net-igmp.txt");
        assert_eq!(of(1, igmp(text)), set(&["224.0.0.1"]));
        assert_eq!(
            of(3, igmp(text)),
            set(&["239.1.2.3", "224.0.0.251", "224.0.0.1"])
        );
        assert!(of(4, igmp(text)).is_empty());
    }

    #[test]
    fn igmp6_addresses_are_in_network_order() {
        let text = include_str!("../../tests/data/proc-net-igmp6.txt");
        assert_eq!(of(1, igmp6(text)), set(&["ff02::1", "ff01::1"]));
        assert_eq!(
            of(3, igmp6(text)),
            set(&["ff15::1234", "ff02::1:ff00:20", "ff02::1", "ff01::1"])
        );
    }

    /// The kernel accepts a name with white space other than that of Latin-1.
    #[test]
    fn a_name_may_have_white_space_of_unicode() {
        let text = "3    vnic\u{2003}0  ff020000000000000000000000000001     1 0000000C 0\n";
        assert_eq!(of(3, igmp6(text)), set(&["ff02::1"]));
    }

    #[test]
    fn link_addresses_are_those_of_the_interface() {
        let text = "1    lo              1     0     00:00\n\
                    3    vnic0           1     0     333300000001\n\
                    3    vnic\u{2003}           1     0     01005e000001\n\
                    3    vnic0           0     1     0180c2000021\n\
                    4    eth0            2     0     0180c200000e\n\
                    5    ib0             1     0     00ffffffff12401bffff0000000000000000000100000001\n\
                    3    vnic0           1     0     025400000001\n\
                    3    vnic0           1     0     01x05e000001\n\
                    3    vnic0 é\n";
        let own = [
            [0x01, 0x00, 0x5e, 0, 0, 1],
            [0x01, 0x80, 0xc2, 0, 0, 0x21],
            [0x33, 0x33, 0, 0, 0, 1],
        ];
        let all = parse_dev_mcast(text);
        assert_eq!(all[&3], own.into());
        assert!(!all.contains_key(&5) && !all.contains_key(&6));
    }

    #[test]
    fn what_is_no_group_is_left_out() {
        let text = "2\tib0 : 1 V3\n\t\t\t\tXX0000E0 1 0:0 0\n\t\t\t\t0100007F 1\n\t\t\t\tE0 1\n";
        assert!(igmp(text).next().is_none());
        let text = "2 ib0 fe800000000000000000000000000001 1 0 0\n2 ib0 ff02 1 0 0\n2\n";
        assert!(igmp6(text).next().is_none());
    }

    /// The two texts in the kernel's format.
    fn print(interfaces: &[(u32, Vec<IpAddr>)]) -> (String, String) {
        let mut igmp =
            String::from("Idx\tDevice    : Count Querier\tGroup    Users Timer\tReporter\n");
        let mut igmp6 = String::new();
        for (index, groups) in interfaces {
            igmp += &format!("{index}\tdev{index:<7}: {:5}      V3\n", groups.len());
            for group in groups {
                match group {
                    IpAddr::V4(g) => {
                        let number = u32::from_ne_bytes(g.octets());
                        igmp += &format!("\t\t\t\t{number:08X} {:5} 0:00000000\t\t0\n", 1);
                    }
                    IpAddr::V6(g) => {
                        let number = u128::from_be_bytes(g.octets());
                        igmp6 +=
                            &format!("{index:<4} dev{index:<12} {number:032x}     1 0000000C 0\n");
                    }
                }
            }
        }
        (igmp, igmp6)
    }

    fn group() -> impl Strategy<Value = IpAddr> {
        prop_oneof![
            (224u8..240, any::<[u8; 3]>())
                .prop_map(|(a, [b, c, d])| Ipv4Addr::new(a, b, c, d).into()),
            any::<[u8; 16]>().prop_map(|mut octets| {
                octets[0] = 0xff;
                IpAddr::from(octets)
            }),
        ]
    }

    proptest! {
        #[test]
        fn each_interface_gets_its_own_groups(
            listed in proptest::collection::vec(proptest::collection::vec(group(), 0..20), 0..8),
        ) {
            let interfaces: Vec<_> = (1..).zip(listed).collect();
            let (v4, v6) = print(&interfaces);
            for (index, groups) in &interfaces {
                let found = of(*index, igmp(&v4).chain(igmp6(&v6)));
                prop_assert_eq!(found, groups.iter().copied().collect::<BTreeSet<_>>());
            }
        }

        #[test]
        fn any_text_is_survived(text in "[ \\t\\n0-9a-fA-FX:é]{0,400}") {
            let mut groups = igmp(&text).chain(igmp6(&text));
            prop_assert!(groups.all(|(_, group)| group.is_multicast()));
            let all = parse_dev_mcast(&text);
            prop_assert!(all.values().flatten().all(|mac| mac[0] & 1 == 1));
        }
    }
}
