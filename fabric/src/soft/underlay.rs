//! Evaluates an underlay: its GID and its MTU, from the kernel's information about it. No system calls.

use std::net::IpAddr;

use proto::{Gid, GidChoice, Guid, IbMtu, LinkMtu};
use rtnl::{Address, Link};

use super::rc::SendBuffer;
use super::train::{PACKETS_MAX, packet_len};

/// Bytes of the IPv6, IPv4 and UDP headers and of an Ethernet header.
const IPV6_HEADER: usize = 40;
const IPV4_HEADER: usize = 20;
const UDP_HEADER: usize = 8;
const ETHERNET_HEADER: usize = 14;

/// DETH bytes minus bytes of immediate data.
const DETH_OVER_IMM: u32 = 4;

/// The kernel's limit if it reports none (include/linux/netdevice.h, GSO_LEGACY_MAX_SIZE).
const GSO_MAX_SIZE: u32 = 65536;

/// A usable underlay.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Usable {
    /// The interface index.
    pub ifindex: u32,
    /// The address that is the GID.
    pub address: IpAddr,
    /// The MTU in bytes.
    pub mtu: u32,
    /// The largest UD payload in bytes.
    pub ud_payload_max: u32,
    /// The largest UDP payload of one send in bytes.
    pub send_max: usize,
    /// The port GUID.
    pub guid: Guid,
}

impl Usable {
    /// The GID.
    pub fn gid(&self) -> Gid {
        self.address.into()
    }

    /// Payload bytes of a message that one send takes. The packets of a message have the path MTU, which is
    /// often smaller than the UD payload. 0 without a path MTU.
    pub fn message_train(&self) -> usize {
        path_mtu(self.ud_payload_max).map_or(0, |path_mtu| {
            let payload = path_mtu.bytes() as usize;
            let packets = self.send_max / SendBuffer::packet_len(payload);
            packets.min(PACKETS_MAX) * payload
        })
    }
}

/// The kernel's information about an underlay.
#[derive(Clone, Debug, Default)]
pub struct Seen {
    /// The interface, if it exists.
    pub link: Option<Link>,
    /// The addresses.
    pub addresses: Vec<Address>,
    /// `net.ipv6.conf.NAME.disable_ipv6` is 1.
    pub ipv6_disabled: bool,
    /// `net.ipv6.conf.NAME.addr_gen_mode` is 1: the kernel creates no link-local address.
    pub no_link_local: bool,
}

/// Why an underlay is not usable now.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Unusable {
    /// No such interface.
    Missing(String),
    /// The underlay may become usable; the text is a whole sentence.
    Waiting(String),
    /// The configuration does not fit the underlay; the text is a whole sentence.
    Wrong(String),
}

impl Unusable {
    /// The sentence.
    pub fn reason(&self) -> &str {
        match self {
            Unusable::Missing(s) | Unusable::Waiting(s) | Unusable::Wrong(s) => s,
        }
    }
}

/// Evaluates the underlay `name`. `current` is the present GID's address, which stays the GID while the
/// underlay has it.
///
/// # Errors
/// Why the underlay is not usable.
pub fn evaluate(
    name: &str,
    seen: &Seen,
    choice: GidChoice,
    link_mtu: LinkMtu,
    current: Option<IpAddr>,
) -> Result<Usable, Unusable> {
    let Some(link) = &seen.link else {
        return Err(Unusable::Missing(format!(
            "no interface {name}; create it or choose another underlay"
        )));
    };
    if !link.up {
        return Err(Unusable::Waiting(format!(
            "{name} is down; bring it up: ip link set {name} up"
        )));
    }
    if !link.is_usable() {
        return Err(Unusable::Waiting(format!(
            "{name} has no carrier; check its cable or the other end"
        )));
    }
    let address = choose(name, seen, choice, current)?;
    let ud_payload_max = payload_max(name, link, address, link_mtu)?;
    let gid = Gid::from(address);
    Ok(Usable {
        ifindex: link.index,
        address,
        mtu: link.mtu,
        ud_payload_max,
        send_max: send_max(link, address).max(packet_len(ud_payload_max as usize)),
        guid: link.address.map_or(gid.interface_id(), Guid::from_mac),
    })
}

/// The largest path MTU of connections on a port whose largest UD payload has `payload` bytes. Compared with
/// a SEND, a datagram has a DETH, which is longer than immediate data.
pub fn path_mtu(payload: u32) -> Option<IbMtu> {
    IbMtu::fitting(payload + DETH_OVER_IMM)
}

fn choose(
    name: &str,
    seen: &Seen,
    choice: GidChoice,
    current: Option<IpAddr>,
) -> Result<IpAddr, Unusable> {
    let candidates = || seen.addresses.iter().filter(|a| matches(choice, a));
    let usable = || candidates().filter(|a| a.is_usable());
    if let Some(kept) = usable().find(|a| Some(a.ip) == current) {
        return Ok(kept.ip);
    }
    let eui64 = seen
        .link
        .as_ref()
        .and_then(|l| l.address)
        .map(Guid::from_mac);
    let best = usable().min_by_key(|a| {
        let from_mac = Some(Gid::from(a.ip).interface_id()) == eui64;
        (
            matches!(choice, GidChoice::Auto | GidChoice::Index(_)) && !from_mac,
            a.deprecated,
            a.created,
        )
    });
    if let Some(best) = best {
        return Ok(best.ip);
    }
    let waits = candidates().next();
    Err(Unusable::Waiting(match (waits, choice) {
        (Some(a), _) if a.dadfailed => format!(
            "address {} of {name} cannot be the GID: another host on the link has the same address; change one of the two, or choose another address with gid = \"ADDRESS\"",
            a.ip
        ),
        (Some(a), _) => format!(
            "address {} of {name} cannot be the GID yet: duplicate address detection is in progress",
            a.ip
        ),
        (None, GidChoice::Auto | GidChoice::Index(_)) => no_link_local(name, seen),
        (None, GidChoice::Ipv4) => format!(
            "{name} has no IPv4 address; add one: ip address add ADDRESS/LENGTH dev {name}, or remove gid from the configuration to use IPv6"
        ),
        (None, GidChoice::Address(a)) => format!(
            "{name} does not have the address {a} of the gid setting; add it: ip address add {a}/LENGTH dev {name}"
        ),
    }))
}

fn matches(choice: GidChoice, address: &Address) -> bool {
    match (choice, address.ip) {
        (GidChoice::Auto | GidChoice::Index(_), IpAddr::V6(a)) => a.is_unicast_link_local(),
        (GidChoice::Auto | GidChoice::Index(_), IpAddr::V4(_))
        | (GidChoice::Ipv4, IpAddr::V6(_)) => false,
        (GidChoice::Ipv4, IpAddr::V4(_)) => true,
        (GidChoice::Address(wanted), a) => wanted == a,
    }
}

fn no_link_local(name: &str, seen: &Seen) -> String {
    let why = if seen.ipv6_disabled {
        format!("IPv6 is disabled; enable it: sysctl net/ipv6/conf/{name}/disable_ipv6=0")
    } else if seen.no_link_local {
        format!("addr_gen_mode is none; change it: ip link set {name} addrgenmode eui64")
    } else {
        format!("the kernel has created none; type: ip link set {name} down; ip link set {name} up")
    };
    format!(
        "{name} has no IPv6 link-local address for the GID: {why}; or choose another address with gid = \"ADDRESS\""
    )
}

fn ip_header(address: IpAddr) -> usize {
    match address {
        IpAddr::V4(_) => IPV4_HEADER,
        IpAddr::V6(_) => IPV6_HEADER,
    }
}

/// The largest UDP payload of one send. A frame of `gso_max_size` bytes or more is cut in software
/// before the driver sees it (net/core/dev.c, `gso_features_check`) and never merges again.
fn send_max(link: &Link, address: IpAddr) -> usize {
    let stated = match address {
        IpAddr::V4(_) => link.gso_ipv4_max_size,
        IpAddr::V6(_) => link.gso_max_size,
    };
    let size = if stated == 0 {
        GSO_MAX_SIZE
    } else {
        stated.min(GSO_MAX_SIZE)
    };
    (size as usize - 1).saturating_sub(ETHERNET_HEADER + ip_header(address) + UDP_HEADER)
}

fn payload_max(
    name: &str,
    link: &Link,
    address: IpAddr,
    link_mtu: LinkMtu,
) -> Result<u32, Unusable> {
    // One packet is never larger than a whole send.
    let mtu = (link.mtu as usize).min(65535 - ETHERNET_HEADER);
    let fit = mtu.saturating_sub(ip_header(address) + UDP_HEADER + packet_len(0)) as u32 & !3;
    let wanted = match link_mtu {
        LinkMtu::Exact => fit,
        LinkMtu::Bytes(n) => n,
        LinkMtu::Auto => match IbMtu::fitting(fit) {
            Some(code) if code >= IbMtu::B2048 => code.bytes(),
            _ => fit,
        },
    };
    // `fit` is a multiple of 4, so a payload of at most `fit` fits with its pad.
    if wanted == 0 || wanted > fit {
        return Err(Unusable::Wrong(format!(
            "a UD payload of {wanted} bytes does not fit the MTU of {name} ({}): at most {fit} bytes fit; raise the MTU or lower link_mtu",
            link.mtu
        )));
    }
    Ok(wanted)
}

#[cfg(test)]
#[path = "underlay_tests.rs"]
mod tests;
