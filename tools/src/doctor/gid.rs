//! The port's GID: a usable address of the underlay that no other host has.

use std::net::IpAddr;

use control::api::{InterfaceInfo, NeighbourInfo, ResourcesInfo};
use control::config::GidChoice;
use fabric::LinkLayer;
use fabric::soft::Seen;
use rtnl::Address;

use super::finding::{Finding, Level};

const CHECK: &str = "gid";

/// Judges the address for the GID.
pub fn judge(name: &str, seen: &Seen, choice: GidChoice) -> Vec<Finding> {
    if seen.link.is_none() {
        return Vec::new();
    }
    let candidates: Vec<&Address> = seen
        .addresses
        .iter()
        .filter(|a| is_meant(choice, a.ip))
        .collect();
    if let Some(usable) = candidates.iter().find(|a| a.is_usable()) {
        let found = format!("{} is usable", usable.ip);
        return vec![Finding::new(CHECK, Level::Ok, name, found)];
    }
    let fail = |found: String| Finding::new(CHECK, Level::Fail, name, found);
    vec![match candidates.first() {
        Some(a) if a.dadfailed => fail(format!(
            "another host on the link has the address {}",
            a.ip
        ))
        .advise(format!(
            "change the address: ip link set {name} address MAC changes the link-local address; or \
                 choose another address with --gid"
        )),
        // An address stays tentative while its interface is down.
        Some(a) if !is_up(seen) => fail(format!("{} is not usable while {name} is down", a.ip))
            .advise(format!("ip link set {name} up")),
        Some(a) => Finding::new(
            CHECK,
            Level::Warn,
            name,
            format!("duplicate address detection of {} is not finished", a.ip),
        )
        .advise("wait two seconds and run this again"),
        None => missing(name, seen, choice),
    }]
}

fn is_up(seen: &Seen) -> bool {
    seen.link.as_ref().is_some_and(|link| link.up)
}

fn is_meant(choice: GidChoice, ip: IpAddr) -> bool {
    match (choice, ip) {
        (GidChoice::Auto, IpAddr::V6(a)) => a.is_unicast_link_local(),
        (GidChoice::Ipv4, a) => a.is_ipv4(),
        (GidChoice::Auto | GidChoice::Index(_), _) => false,
        (GidChoice::Address(wanted), a) => a == wanted,
    }
}

fn missing(name: &str, seen: &Seen, choice: GidChoice) -> Finding {
    let fail = |found: String| Finding::new(CHECK, Level::Fail, name, found);
    match choice {
        GidChoice::Ipv4 => fail("the underlay has no IPv4 address".into()).advise(format!(
            "ip address add ADDRESS/LENGTH dev {name}, or leave gid out to use IPv6"
        )),
        GidChoice::Address(a) => fail(format!("the underlay does not have the address {a}"))
            .advise(format!(
                "ip address add {a}/LENGTH dev {name}, or choose another with --gid"
            )),
        // The configuration's check refuses an index for an underlay.
        GidChoice::Auto | GidChoice::Index(_) => {
            let finding = |why| {
                fail(format!(
                    "the underlay has no IPv6 link-local address: {why}"
                ))
            };
            if seen.ipv6_disabled {
                finding("IPv6 is disabled (disable_ipv6)").advise(format!(
                    "sysctl net/ipv6/conf/{name}/disable_ipv6=0, or use --gid"
                ))
            } else if seen.no_link_local {
                finding("the kernel generates none (addr_gen_mode none)").advise(format!(
                    "ip link set {name} addrgenmode eui64, or use --gid"
                ))
            } else if !is_up(seen) {
                finding("the interface is down").advise(format!("ip link set {name} up"))
            } else {
                finding("it was removed, or the kernel has no IPv6").advise(format!(
                    "ip link set {name} down; ip link set {name} up; without IPv6 in the kernel: \
                     --gid ipv4 --peers ADDRESS,..."
                ))
            }
        }
    }
}

/// Other hosts that use the GID of an interface's port. The other links of the daemon on the port, among them VLANs,
/// have the GID, too; `ports` has their queue pairs. Without these of the port, nothing is judged. On InfiniBand, the
/// kernel's interface on the same port has the GID, and the GUID of a port is from its manufacturer: nothing is judged.
pub fn duplicates(
    interface: &InterfaceInfo,
    ports: &[ResourcesInfo],
    neighbours: &[NeighbourInfo],
) -> Vec<Finding> {
    let own = ports.iter().find(|port| port.port == interface.port);
    let (LinkLayer::Ethernet, Some(own)) = (interface.link_layer, own) else {
        return Vec::new();
    };
    let is_ours = |n: &NeighbourInfo| own.queue_pairs.iter().any(|own| own.qpn == n.qpn);
    let claims = |n: &&NeighbourInfo| n.gid == interface.gid && !is_ours(n);
    let finding = |n: &NeighbourInfo| {
        Finding::new(
            CHECK,
            Level::Fail,
            interface.qualified_name(),
            format!(
                "queue pair {} of another host also has the GID {}",
                n.qpn, n.gid
            ),
        )
        .advise(
            "two hosts have the same MAC or address; change it on one of them (cloned virtual machines \
             often share both)",
        )
    };
    neighbours.iter().filter(claims).map(finding).collect()
}
