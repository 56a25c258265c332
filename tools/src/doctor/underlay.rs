//! The interface below: its state, its MTU, its offloads, what it belongs to.

use std::collections::BTreeMap;

use control::config::PortConfig;
use fabric::LinkMtu;
use fabric::soft::{Seen, Unusable, evaluate};
use rtnl::{Link, OperState, Requests};

use super::finding::{Finding, Level};

const CHECK: &str = "underlay";

/// Bytes of IPoIB's encapsulation header (RFC 4391, 6), which the UD payload holds beside the IP
/// packet.
const ENCAPSULATION: u32 = 4;

/// What IPv6 needs (RFC 8200, 5), in bytes.
const IPV6_MTU_MIN: u32 = 1280;

/// What is to be judged.
#[derive(Debug, Default)]
pub struct Facts {
    /// The interface and its addresses.
    pub seen: Seen,
    /// The bridge, bond or VRF that it belongs to.
    pub master: Option<Link>,
    /// Features by ethtool's names; empty where they cannot be read.
    pub features: BTreeMap<String, bool>,
}

/// Looks at an interface.
///
/// # Errors
/// Those of netlink.
pub fn gather(name: &str, requests: &mut Requests) -> Result<Facts, rtnl::Error> {
    let seen = fabric::soft::see(name, requests)?;
    let master = seen.link.as_ref().and_then(|link| link.master);
    Ok(Facts {
        master: master.and_then(|index| requests.link_by_index(index).ok()),
        features: netdev::ethtool::all_features(name).unwrap_or_default(),
        seen,
    })
}

/// Judges.
pub fn judge(name: &str, facts: &Facts, port: &PortConfig) -> Vec<Finding> {
    let Some(link) = &facts.seen.link else {
        return vec![
            Finding::new(CHECK, Level::Fail, name, "there is no such interface")
                .advise("name another with --underlay; ip link show lists them"),
        ];
    };
    let mut findings = vec![state(name, link)];
    findings.extend(kind(name, link));
    findings.extend(facts.master.as_ref().and_then(|m| belongs(name, m)));
    findings.extend(mtu(name, facts, port));
    findings.extend(offloads(name, link, &facts.features));
    findings.extend(queue(name, link));
    findings
}

fn state(name: &str, link: &Link) -> Finding {
    let finding = |found: &str| Finding::new(CHECK, Level::Fail, name, found);
    if !link.up {
        return finding("it is down").advise(format!("ip link set {name} up"));
    }
    if !link.lower_up || link.operstate == OperState::LowerLayerDown {
        return match link.operstate {
            OperState::LowerLayerDown => finding("it has no carrier: what it runs on is down")
                .advise("bring up the interface below it, or the other end of the veth"),
            _ => finding("it has no carrier")
                .advise("check the cable and the other end; for a virtual one, its peer or host"),
        };
    }
    if !link.running {
        return finding(&format!("its operational state is {}", link.operstate)).advise(
            "something else holds it back: 802.1X (wpa_supplicant), a bond or team without a port",
        );
    }
    let kind = link.kind.as_deref().unwrap_or("hardware");
    let found = format!("up, with carrier ({kind}, MTU {})", link.mtu);
    Finding::new(CHECK, Level::Ok, name, found)
}

fn kind(name: &str, link: &Link) -> Option<Finding> {
    /// ARPHRD_ETHER and ARPHRD_LOOPBACK (include/uapi/linux/if_arp.h).
    const ETHER: u16 = 1;
    const LOOPBACK: u16 = 772;
    let finding = |found: String| Finding::new(CHECK, Level::Warn, name, found);
    if link.hardware_type == LOOPBACK {
        return Some(
            finding("it is the loopback interface, which no other host can hear".into())
                .advise("name the Ethernet interface that reaches the other hosts"),
        );
    }
    if link.hardware_type != ETHER {
        return Some(
            finding(format!(
                "it is no Ethernet interface (type {})",
                link.hardware_type
            ))
            .advise("it works if it carries IPv6 multicast; else list the hosts with --peers"),
        );
    }
    (!link.multicast).then(|| {
        finding("multicast is switched off".into()).advise(format!(
            "ip link set {name} multicast on, or list the hosts with --peers"
        ))
    })
}

/// What a master does with the packets that its port receives.
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
            format!("it is a port of the {of} {above}, which takes what it receives"),
        )
        .advise(format!("use the {of} instead: --underlay {above}"))
    } else {
        Finding::new(
            CHECK,
            Level::Note,
            name,
            format!("it belongs to the VRF {above}"),
        )
    })
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
        // Told by the checks of its state and of the GID.
        Err(_) => return None,
    };
    let ip = usable.ud_payload_max.saturating_sub(ENCAPSULATION);
    let found = format!("{} bytes below leave {ip} to IP", usable.mtu);
    Some(if ip < IPV6_MTU_MIN {
        Finding::new(
            "mtu",
            Level::Warn,
            name,
            found + ", too few for IPv6, which needs 1280",
        )
        .advise(format!(
            "ip link set {name} mtu 1500 or more, on every host"
        ))
    } else if ip < 2044 && link_mtu == LinkMtu::Auto {
        Finding::new("mtu", Level::Note, name, found).advise(format!(
            "larger packets are faster: ip link set {name} mtu 9000, on every host and switch"
        ))
    } else {
        Finding::new("mtu", Level::Ok, name, found)
    })
}

/// Offloads without which each packet costs a pass through the stack, or its checksum time.
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
            "the kernel cuts what could be cut by the device, or not at all",
        ),
        (
            checksums.into_iter().any(is_on),
            "tx-checksum-ip-generic",
            "UDP checksums are made by the processor",
        ),
        (
            // What is cut late, at the far end of a veth or macvlan, arrives whole.
            is_on("rx-gro") || link.kind.is_some(),
            "rx-gro",
            "received packets are taken one by one",
        ),
    ];
    let missing: Vec<_> = wanted.iter().filter(|(on, _, _)| !on).collect();
    if missing.is_empty() {
        let found = "nothing that helps is off";
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
            "ethtool -K {name} {feature} on, where the driver has it"
        ))
    };
    missing.iter().map(finding).collect()
}

fn queue(name: &str, link: &Link) -> Option<Finding> {
    // Virtual interfaces have no queue, and need none. The default of Ethernet is 1000.
    let short = (1..100).contains(&link.tx_queue_len);
    short.then(|| {
        let found = format!(
            "its queue of {} packets is short of a train of 64 KiB",
            link.tx_queue_len
        );
        Finding::new("offload", Level::Note, name, found)
            .advise(format!("ip link set {name} txqueuelen 1000"))
    })
}
