//! The host side of an interface: state, addresses, MTU, master, and limits of the kernel.

use std::fs;

use control::api::InterfaceInfo;
use rtnl::{Address, Link, Requests};

use super::finding::{Finding, Level};
use super::underlay::ENCAPSULATION;

const CHECK: &str = "host";

/// Facts of this check.
#[derive(Clone, Debug, Default)]
pub struct Facts {
    /// The interface, if it is in this namespace.
    pub link: Option<Link>,
    /// Its addresses.
    pub addresses: Vec<Address>,
    /// Its bridge or bond.
    pub master: Option<Link>,
    /// Number of its neighbours in ibtapd.
    pub neighbours: usize,
    /// Number of guests' addresses in ibtapd.
    pub guests: usize,
    /// The kernel's limits for neighbours of IPv4 and IPv6, if readable.
    pub gc_thresh3: Vec<(&'static str, usize)>,
}

/// Reads the facts.
///
/// # Errors
/// Errors of netlink.
pub fn gather(
    interface: &InterfaceInfo,
    neighbours: usize,
    requests: &mut Requests,
) -> Result<Facts, rtnl::Error> {
    let link = match requests.link_by_name(&interface.name) {
        Ok(link) => Some(link),
        Err(e) if e.is_not_found() => None,
        Err(e) => return Err(e),
    };
    let mut facts = Facts {
        neighbours,
        gc_thresh3: limits(),
        ..Facts::default()
    };
    if let Some(link) = &link {
        facts.addresses = requests.addresses(link.index)?;
        facts.master = link.master.and_then(|i| requests.link_by_index(i).ok());
    }
    facts.link = link;
    Ok(facts)
}

/// The limits. Only the initial namespace has these keys.
fn limits() -> Vec<(&'static str, usize)> {
    ["ipv4", "ipv6"]
        .into_iter()
        .filter_map(|family| {
            let path = format!("/proc/sys/net/{family}/neigh/default/gc_thresh3");
            Some((family, fs::read_to_string(path).ok()?.trim().parse().ok()?))
        })
        .collect()
}

/// Judges the facts.
pub fn judge(interface: &InterfaceInfo, facts: &Facts) -> Vec<Finding> {
    let name = interface.name.as_str();
    let Some(link) = &facts.link else {
        return vec![
            Finding::new(
                CHECK,
                Level::Fail,
                name,
                "the interface is not in this namespace",
            )
            .advise("restart ibtapd in the namespace of the interface"),
        ];
    };
    let mut findings = Vec::new();
    if !link.up {
        findings.push(
            Finding::new(CHECK, Level::Fail, name, "is down")
                .advise(format!("ip link set {name} up")),
        );
    }
    findings.push(addresses(name, link, facts));
    findings.extend(facts.addresses.iter().filter_map(|a| duplicate(name, a)));
    findings.extend(mtu(interface, link));
    findings.extend(limit(name, facts));
    findings
}

fn addresses(name: &str, link: &Link, facts: &Facts) -> Finding {
    let configured: Vec<String> = facts
        .addresses
        .iter()
        .filter(|a| a.scope != rtnl::Scope::Link)
        .map(|a| format!("{}/{}", a.ip, a.prefix_len))
        .collect();
    let above = facts.master.as_ref();
    let kind = above.and_then(|m| m.kind.as_deref()).unwrap_or("master");
    match above {
        Some(master) if configured.is_empty() => {
            let found = format!("is a port of the {kind} {}", master.name);
            Finding::new(CHECK, Level::Ok, name, found)
        }
        Some(master) => {
            let (listed, above) = (configured.join(", "), &master.name);
            let found = format!("is a port of the {kind} {above}, but has {listed}");
            Finding::new(CHECK, Level::Warn, name, found).advise(format!(
                "addresses belong on {above}: ip address add {} dev {above}; ip address flush dev {name}",
                configured.first().map_or("ADDRESS", String::as_str)
            ))
        }
        None if configured.is_empty() && facts.guests > 0 => {
            let found = format!("has no address; its guests have {}", facts.guests);
            Finding::new(CHECK, Level::Ok, name, found)
        }
        None if configured.is_empty() && link.up => {
            Finding::new(CHECK, Level::Warn, name, "has at most a link-local address").advise(
                format!("ip address add ADDRESS/LENGTH dev {name}, or run a DHCP client"),
            )
        }
        None => {
            let listed = if configured.is_empty() {
                "no address".to_owned()
            } else {
                configured.join(", ")
            };
            Finding::new(CHECK, Level::Ok, name, format!("has {listed}"))
        }
    }
}

fn duplicate(name: &str, address: &Address) -> Option<Finding> {
    address.dadfailed.then(|| {
        let found = format!(
            "another host on the link also has the address {}",
            address.ip
        );
        Finding::new(CHECK, Level::Fail, name, found).advise(format!(
            "use another address: ip address del {}/{} dev {name}",
            address.ip, address.prefix_len
        ))
    })
}

fn mtu(interface: &InterfaceInfo, link: &Link) -> Option<Finding> {
    // The record of the broadcast group also bounds datagrams, on a subnet.
    let of_group = interface.broadcast_record.and_then(|record| record.mtu);
    let datagram = interface.link_mtu.min(of_group.unwrap_or(u32::MAX));
    let largest = datagram.saturating_sub(ENCAPSULATION);
    (link.mtu < largest).then(|| {
        let found = format!("has the MTU {}, but the link carries {largest}", link.mtu);
        Finding::new(CHECK, Level::Note, &interface.name, found).advise(format!(
            "if this is not intended: ip link set {} mtu {largest}, on every host",
            interface.name
        ))
    })
}

fn limit(name: &str, facts: &Facts) -> Option<Finding> {
    let near = |max: usize| max != 0 && facts.neighbours >= max / 10 * 8;
    let (family, max) = facts.gc_thresh3.iter().find(|(_, max)| near(*max))?;
    let found = format!(
        "ibtapd knows {} neighbours; the kernel keeps at most {max} of {family} for all interfaces",
        facts.neighbours
    );
    Some(
        Finding::new(CHECK, Level::Warn, name, found).advise(format!(
            "sysctl net.{family}.neigh.default.gc_thresh3={}",
            max.saturating_mul(16)
        )),
    )
}
