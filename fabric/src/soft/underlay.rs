//! What an underlay is good for: its GID and its MTU, worked out from what the kernel says about
//! it. No system call is made here.

use std::net::IpAddr;

use proto::{Gid, GidChoice, Guid, IbMtu, LinkMtu};
use rtnl::{Address, Link};

use super::train::{capacity, packet_len};

/// Bytes of the IPv6, IPv4 and UDP headers and of an Ethernet header.
const IPV6_HEADER: usize = 40;
const IPV4_HEADER: usize = 20;
const UDP_HEADER: usize = 8;
const ETHERNET_HEADER: usize = 14;

/// What the kernel takes where it does not say (include/linux/netdevice.h,
/// GSO_LEGACY_MAX_SIZE).
const GSO_MAX_SIZE: u32 = 65536;

/// An underlay that can be used.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Usable {
    /// Its interface index.
    pub ifindex: u32,
    /// The address that is the GID.
    pub address: IpAddr,
    /// Its MTU in bytes.
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
}

/// What was seen of an underlay.
#[derive(Clone, Debug, Default)]
pub struct Seen {
    /// The interface, if there is one.
    pub link: Option<Link>,
    /// Its addresses.
    pub addresses: Vec<Address>,
    /// `net.ipv6.conf.NAME.disable_ipv6` is 1.
    pub ipv6_disabled: bool,
    /// `net.ipv6.conf.NAME.addr_gen_mode` is 1: no link-local address is made.
    pub no_link_local: bool,
}

/// Why an underlay cannot be used now.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Unusable {
    /// No such interface.
    Missing(String),
    /// It may become usable; the text is a whole sentence.
    Waiting(String),
    /// The configuration does not fit it; the text is a whole sentence.
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

/// What is usable of the underlay `name`. `current` is the address that is the GID already: it
/// stays so as long as it is there.
///
/// # Errors
/// Why it cannot be used.
pub fn evaluate(
    name: &str,
    seen: &Seen,
    choice: GidChoice,
    link_mtu: LinkMtu,
    current: Option<IpAddr>,
) -> Result<Usable, Unusable> {
    let Some(link) = &seen.link else {
        return Err(Unusable::Missing(format!(
            "there is no interface {name}; make it, or name another underlay"
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

/// How many packets of `payload` bytes one train holds.
pub fn train_packets(payload: u32, send_max: usize) -> usize {
    capacity(payload as usize, send_max)
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
            "another host on the link of {name} has the address {}, so it cannot be the GID; change one of them, or choose another with gid = \"ADDRESS\"",
            a.ip
        ),
        (Some(a), _) => format!(
            "the address {} of {name} is still checked for duplicates and cannot be the GID yet",
            a.ip
        ),
        (None, GidChoice::Auto | GidChoice::Index(_)) => no_link_local(name, seen),
        (None, GidChoice::Ipv4) => format!(
            "{name} has no IPv4 address; add one: ip address add ADDRESS/LENGTH dev {name}, or leave gid out to use IPv6"
        ),
        (None, GidChoice::Address(a)) => format!(
            "{name} does not have the address {a} that gid names; add it: ip address add {a}/LENGTH dev {name}"
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
        format!(
            "IPv6 is switched off there; switch it on: sysctl net.ipv6.conf.{name}.disable_ipv6=0"
        )
    } else if seen.no_link_local {
        format!("addr_gen_mode is none there; make one: ip link set {name} addrgenmode eui64")
    } else {
        "it may appear shortly after the interface comes up".to_owned()
    };
    format!(
        "{name} has no IPv6 link-local address to use as GID ({why}); or choose another address with gid = \"ADDRESS\""
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
    // `fit` is a multiple of 4, so what is not over it is not over it with its pad either.
    if wanted == 0 || wanted > fit {
        return Err(Unusable::Wrong(format!(
            "a UD payload of {wanted} bytes does not fit {name} with its MTU of {}; at most {fit} do: raise the MTU or lower link_mtu",
            link.mtu
        )));
    }
    Ok(wanted)
}

#[cfg(test)]
#[path = "underlay_tests.rs"]
mod tests;
