//! The underlay: state, MTU, offloads, master.

use std::collections::BTreeMap;

use control::config::PortConfig;
use fabric::LinkMtu;
use fabric::soft::{Seen, Unusable, evaluate};
use rtnl::{Link, OperState, Requests};

use super::finding::{Finding, Level};

const CHECK: &str = "underlay";

/// Bytes of IPoIB's encapsulation header (RFC 4391, 6). The UD payload contains it and the IP packet.
pub const ENCAPSULATION: u32 = 4;

/// The smallest MTU for IPv6 (RFC 8200, 5), in bytes.
const IPV6_MTU_MIN: u32 = 1280;

/// Kinds of interfaces with a hardware address that encrypt or encapsulate the packets of another interface.
const TUNNELS: [&str; 4] = ["macsec", "vxlan", "geneve", "gretap"];

/// ARPHRD_ETHER and ARPHRD_LOOPBACK (include/uapi/linux/if_arp.h).
const ETHER: u16 = 1;
const LOOPBACK: u16 = 772;

/// Facts of this check.
#[derive(Debug, Default)]
pub struct Facts {
    /// The interface and its addresses.
    pub seen: Seen,
    /// Its bridge, bond or VRF.
    pub master: Option<Link>,
    /// Features by ethtool's names; empty if not readable.
    pub features: BTreeMap<String, bool>,
}

/// Reads the facts of an interface.
///
/// # Errors
/// Errors of netlink.
pub fn gather(name: &str, requests: &mut Requests) -> Result<Facts, rtnl::Error> {
    let seen = fabric::soft::see(name, requests)?;
    let master = seen.link.as_ref().and_then(|link| link.master);
    Ok(Facts {
        master: master.and_then(|index| requests.link_by_index(index).ok()),
        features: netdev::ethtool::all_features(name).unwrap_or_default(),
        seen,
    })
}

/// Judges the facts.
pub fn judge(name: &str, facts: &Facts, port: &PortConfig) -> Vec<Finding> {
    let Some(link) = &facts.seen.link else {
        return vec![
            Finding::new(CHECK, Level::Fail, name, "no such interface")
                .advise(
                    "name another one: underlay in the configuration, or --underlay; ip link show lists the \
                     interfaces",
                ),
        ];
    };
    let mut findings = vec![state(name, link)];
    findings.extend(kind(name, link, port));
    findings.extend(facts.master.as_ref().and_then(|m| belongs(name, m)));
    findings.extend(mtu(name, facts, port));
    findings.extend(offloads(name, link, &facts.features));
    findings.extend(queue(name, link));
    findings
}

fn state(name: &str, link: &Link) -> Finding {
    let finding = |found: &str| Finding::new(CHECK, Level::Fail, name, found);
    if !link.up {
        return finding("is down").advise(format!("ip link set {name} up"));
    }
    if !link.lower_up || link.operstate == OperState::LowerLayerDown {
        return match link.operstate {
            OperState::LowerLayerDown => finding("has no carrier: the interface below it is down")
                .advise("set up the interface below it, or the other end of the veth"),
            _ => finding("has no carrier").advise(
                "check the cable and the other end; for a virtual interface, its peer or host",
            ),
        };
    }
    if !link.running {
        return finding(&format!("has the operational state {}", link.operstate))
            .advise("check 802.1X (wpa_supplicant); a bond or team needs a port");
    }
    let kind = link.kind.as_deref().unwrap_or("hardware");
    let found = format!("up, with carrier ({kind}, MTU {})", link.mtu);
    Finding::new(CHECK, Level::Ok, name, found)
}

fn kind(name: &str, link: &Link, port: &PortConfig) -> Option<Finding> {
    let finding = |found: String| Finding::new(CHECK, Level::Warn, name, found);
    if link.hardware_type == LOOPBACK {
        return Some(
            finding("is the loopback interface, which reaches no other host".into())
                .advise("name the Ethernet interface that reaches the other hosts"),
        );
    }
    // With a list of peers, the port needs no multicast.
    if !port.peers.is_empty() {
        return None;
    }
    if link.hardware_type != ETHER {
        return Some(
            finding(format!(
                "is not an Ethernet interface (type {})",
                link.hardware_type
            ))
            .advise("without IPv6 multicast on the interface, list the hosts with --peers"),
        );
    }
    (!link.multicast).then(|| {
        finding("multicast is disabled".into()).advise(format!(
            "ip link set {name} multicast on, or list the hosts with --peers"
        ))
    })
}

/// Judges the master: whether it takes the packets that its port receives.
fn belongs(name: &str, master: &Link) -> Option<Finding> {
    let (of, above) = (master.kind.as_deref()?, &master.name);
    let takes = match of {
        "bridge" | "bond" | "team" | "ovs-system" | "openvswitch" => true,
        "vrf" => false,
        _ => return None,
    };
    Some(if takes {
        Finding::new(
            CHECK,
            Level::Fail,
            name,
            format!("is a port of the {of} {above}, which takes the received packets"),
        )
        .advise(format!("use the {of} instead: --underlay {above}"))
    } else {
        Finding::new(
            CHECK,
            Level::Note,
            name,
            format!("belongs to the VRF {above}"),
        )
    })
}

/// Advice for more room in the packets of an underlay.
fn larger(name: &str, link: &Link) -> String {
    let is_tunnel = link.hardware_type != ETHER
        || (link.kind.as_deref()).is_some_and(|kind| TUNNELS.contains(&kind));
    match is_tunnel {
        true => format!(
            "larger packets are faster: raise the MTU of the interface below {name}, then the MTU of {name}, \
             on every host. The MTU of {name} must be smaller: WireGuard adds up to 80 bytes to a packet, MACsec 32"
        ),
        false => format!(
            "larger packets are faster: ip link set {name} mtu 9000, on every host and switch"
        ),
    }
}

fn mtu(name: &str, facts: &Facts, port: &PortConfig) -> Option<Finding> {
    let (choice, link_mtu) = (port.gid, port.link_mtu);
    let usable = match evaluate(name, &facts.seen, choice, link_mtu, None) {
        Ok(usable) => usable,
        Err(Unusable::Wrong(why)) => {
            return Some(Finding::new("mtu", Level::Fail, name, why).advise(format!(
                "ip link set {name} mtu BYTES, or link_mtu = \"auto\""
            )));
        }
        // The checks of the state and of the GID report the other errors.
        Err(_) => return None,
    };
    let ip = usable.ud_payload_max.saturating_sub(ENCAPSULATION);
    let found = format!("the underlay's {} bytes leave {ip} for IP", usable.mtu);
    Some(if ip < IPV6_MTU_MIN {
        Finding::new("mtu", Level::Warn, name, found + ", but IPv6 needs 1280").advise(format!(
            "ip link set {name} mtu 1500 or more, on every host"
        ))
    } else if ip < 2044 && link_mtu == LinkMtu::Auto {
        let link = facts.seen.link.as_ref();
        let note = Finding::new("mtu", Level::Note, name, found);
        note.advise(link.map_or_else(String::new, |link| larger(name, link)))
    } else {
        Finding::new("mtu", Level::Ok, name, found)
    })
}

/// Judges the offloads. Without them, packets pass the stack one by one and the CPU computes checksums.
fn offloads(name: &str, link: &Link, features: &BTreeMap<String, bool>) -> Vec<Finding> {
    if features.is_empty() {
        return Vec::new();
    }
    let is_on = |feature: &str| features.get(feature).copied().unwrap_or(false);
    let checksums = ["tx-checksum-ip-generic", "tx-checksum-ipv6"];
    let wanted = [
        (
            is_on("tx-udp-segmentation"),
            "tx-udp-segmentation",
            "the kernel segments packets instead of the adapter",
        ),
        (
            checksums.into_iter().any(is_on),
            "tx-checksum-ip-generic",
            "the CPU computes UDP checksums",
        ),
        (
            // A train arrives whole through a veth or macvlan.
            is_on("rx-gro") || link.kind.is_some(),
            "rx-gro",
            "packets are received one by one",
        ),
    ];
    let missing: Vec<_> = wanted.iter().filter(|(on, _, _)| !on).collect();
    if missing.is_empty() {
        let found = "all useful offloads are on";
        return vec![Finding::new("offload", Level::Ok, name, found)];
    }
    let finding = |(_, feature, cost): &&(bool, &str, &str)| {
        Finding::new(
            "offload",
            Level::Note,
            name,
            format!("{feature} is off: {cost}"),
        )
        .advise(format!(
            "ethtool -K {name} {feature} on, if the driver supports it"
        ))
    };
    missing.iter().map(finding).collect()
}

fn queue(name: &str, link: &Link) -> Option<Finding> {
    // Virtual interfaces need no queue. Ethernet's default is 1000.
    let short = (1..100).contains(&link.tx_queue_len);
    short.then(|| {
        let found = format!(
            "its queue of {} packets is shorter than a train of 64 KiB",
            link.tx_queue_len
        );
        Finding::new("offload", Level::Note, name, found)
            .advise(format!("ip link set {name} txqueuelen 1000"))
    })
}
