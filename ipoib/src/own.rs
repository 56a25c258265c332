//! Packets made by the core: queries and announcements.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use proto::{Mac, Time};

use crate::address::{HardwareAddress, MAC_BROADCAST, link_local};
use crate::arp::{Arp, ETHERNET_ARP_LEN, INFINIBAND_ARP_LEN, REPLY, REQUEST};
use crate::multicast::{group_mac, solicited_node};
use crate::nd::{
    INFINIBAND_OPTION_LEN, OPTION_SOURCE, OPTION_TARGET, put_hardware_address, put_mac,
};
use crate::wire::{
    ENCAP_LEN, ETHERNET_LEN, TYPE_ARP, TYPE_IPV6, array, encap, fill_icmpv6_checksum,
};

/// Time between the two announcements of an address.
const REPEAT_MS: u64 = 1000;
const REPEATS: u8 = 2;
/// Maximum number of pending announcements with which another address of the host is announced again later.
const REPEATED_MAX: usize = 1024;
/// Maximum number of pending announcements; more are ignored. The difference has room for addresses that are announced
/// only once.
const PENDING_MAX: usize = REPEATED_MAX + 256;
/// Maximum number of pending announcements of guests. The rest has room for the host's own.
const GUESTS_PENDING_MAX: usize = 768;
/// Announcements of guests in a second. A guest beyond that is announced when it is heard again.
const GUESTS_PER_SECOND: u8 = 100;
/// Time between two guests if all are announced.
const APART_MS: u64 = 1000 * REPEATS as u64 / GUESTS_PER_SECOND as u64;

const ARP_LEN: usize = ENCAP_LEN + INFINIBAND_ARP_LEN;
/// IPv6 header, fixed part of a solicitation or advertisement, an option.
const ND_LEN: usize = ENCAP_LEN + 40 + 24 + INFINIBAND_OPTION_LEN;

/// Flags of an advertisement (RFC 4861, section 4.4): its sender is a router; the address replaces a known one.
const ROUTER: u8 = 0x80;
const OVERRIDE: u8 = 0x20;

const ALL_NODES: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);

/// A complete IB payload in `out`, for a group.
pub struct Written {
    pub group: IpAddr,
    pub len: usize,
}

/// The variable parts of a neighbour solicitation or advertisement.
struct Nd<'a> {
    icmp_type: u8,
    flags: u8,
    /// The whole link-layer address option.
    option: &'a [u8],
    source: Ipv6Addr,
    destination: Ipv6Addr,
    target: Ipv6Addr,
}

/// Writes an IPv6 packet to `ip`, which has exactly its length.
fn write_nd(ip: &mut [u8], nd: &Nd<'_>) {
    ip.fill(0);
    ip[0] = 0x60;
    ip[4..6].copy_from_slice(&(24 + nd.option.len() as u16).to_be_bytes());
    ip[6] = 58;
    ip[7] = 255;
    ip[8..24].copy_from_slice(&nd.source.octets());
    ip[24..40].copy_from_slice(&nd.destination.octets());
    ip[40] = nd.icmp_type;
    ip[44] = nd.flags;
    ip[48..64].copy_from_slice(&nd.target.octets());
    ip[64..].copy_from_slice(nd.option);
    fill_icmpv6_checksum(ip);
}

/// A neighbour solicitation (RFC 4861, section 4.3).
fn solicitation<'a>(source: Ipv6Addr, target: Ipv6Addr, option: &'a [u8]) -> Nd<'a> {
    Nd {
        icmp_type: 135,
        flags: 0,
        option,
        source,
        destination: solicited_node(target),
        target,
    }
}

/// An unsolicited advertisement (RFC 4861, section 7.2.6).
fn advertisement<'a>(ip: Ipv6Addr, flags: u8, option: &'a [u8]) -> Nd<'a> {
    Nd {
        icmp_type: 136,
        flags,
        option,
        source: ip,
        destination: ALL_NODES,
        target: ip,
    }
}

fn write_fabric_arp(
    out: &mut [u8],
    local: &HardwareAddress,
    sender: Ipv4Addr,
    target: Ipv4Addr,
) -> Written {
    let mut packet = [0; INFINIBAND_ARP_LEN];
    Arp {
        operation: REQUEST,
        sender: *local,
        sender_ip: sender,
        target: HardwareAddress([0; 20]),
        target_ip: target,
    }
    .write(&mut packet);
    out[..ENCAP_LEN].copy_from_slice(&encap(TYPE_ARP));
    out[ENCAP_LEN..ARP_LEN].copy_from_slice(&packet);
    Written {
        group: Ipv4Addr::BROADCAST.into(),
        len: ARP_LEN,
    }
}

fn write_fabric_nd(out: &mut [u8], nd: &Nd<'_>) -> Written {
    out[..ENCAP_LEN].copy_from_slice(&encap(TYPE_IPV6));
    write_nd(&mut out[ENCAP_LEN..ND_LEN], nd);
    Written {
        group: nd.destination.into(),
        len: ND_LEN,
    }
}

fn fabric_option(kind: u8, local: &HardwareAddress) -> [u8; INFINIBAND_OPTION_LEN] {
    let mut option = [0; INFINIBAND_OPTION_LEN];
    put_hardware_address(kind, local, &mut option);
    option
}

/// The source of a query for `target` that claims nothing, by the host with the MAC: no receiver notes an owner that it
/// could need. For ARP 0.0.0.0, as in a probe (RFC 5227, section 1.1), which Linux sends without an own address, too.
///
/// For neighbour discovery, the link-local address of the MAC, usually the host's. With the
/// unspecified address, the query would be duplicate address detection: a host that checks the queried address at that
/// moment would give it up (RFC 4862, section 5.4.3; `addrconf_dad_failure` in net/ipv6/addrconf.c).
pub fn nobody(mac: Mac, target: IpAddr) -> IpAddr {
    match target {
        IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        IpAddr::V6(_) => link_local(mac).into(),
    }
}

/// Writes an ARP request or a neighbour solicitation for `target` in the name of `source`, for the fabric;
/// `None` if the address families differ.
pub fn write_question(
    out: &mut [u8],
    local: &HardwareAddress,
    source: IpAddr,
    target: IpAddr,
) -> Option<Written> {
    match (source, target) {
        (IpAddr::V4(source), IpAddr::V4(target)) => {
            Some(write_fabric_arp(out, local, source, target))
        }
        (IpAddr::V6(source), IpAddr::V6(target)) => {
            let option = fabric_option(OPTION_SOURCE, local);
            Some(write_fabric_nd(out, &solicitation(source, target, &option)))
        }
        _ => None,
    }
}

/// Writes a gratuitous ARP request (RFC 5227, section 3) or an unsolicited advertisement, for the fabric.
/// `router`: the owner of the address is an IPv6 router.
pub fn write_announcement(
    out: &mut [u8],
    local: &HardwareAddress,
    ip: IpAddr,
    router: bool,
) -> Written {
    match ip {
        IpAddr::V4(ip) => write_fabric_arp(out, local, ip, ip),
        IpAddr::V6(ip) => {
            let option = fabric_option(OPTION_TARGET, local);
            let flags = if router { OVERRIDE | ROUTER } else { OVERRIDE };
            write_fabric_nd(out, &advertisement(ip, flags, &option))
        }
    }
}

fn ethernet_header(out: &mut Vec<u8>, destination: Mac, source: Mac, ethertype: u16) {
    out.clear();
    out.extend_from_slice(&destination);
    out.extend_from_slice(&source);
    out.extend_from_slice(&ethertype.to_be_bytes());
}

fn write_host_arp(out: &mut Vec<u8>, mac: Mac, sender_ip: Ipv4Addr, target_ip: Ipv4Addr) {
    ethernet_header(out, MAC_BROADCAST, mac, TYPE_ARP);
    let mut packet = [0; ETHERNET_ARP_LEN];
    Arp {
        operation: REQUEST,
        sender: mac,
        sender_ip,
        target: [0; 6],
        target_ip,
    }
    .write(&mut packet);
    out.extend_from_slice(&packet);
}

fn write_host_nd(out: &mut Vec<u8>, mac: Mac, nd: &Nd<'_>) {
    ethernet_header(out, group_mac(nd.destination.into()), mac, TYPE_IPV6);
    out.resize(ETHERNET_LEN + 64 + nd.option.len(), 0);
    write_nd(&mut out[ETHERNET_LEN..], nd);
}

fn host_option(kind: u8, mac: Mac) -> [u8; 8] {
    let mut option = [0; INFINIBAND_OPTION_LEN];
    put_mac(kind, mac, &mut option);
    array(&option, 0)
}

/// Writes a query for `target` in the name of a peer, with the MAC and the address `source`, for the host side.
/// False if the address families differ.
pub fn write_host_question(out: &mut Vec<u8>, mac: Mac, source: IpAddr, target: IpAddr) -> bool {
    match (source, target) {
        (IpAddr::V4(source), IpAddr::V4(target)) => write_host_arp(out, mac, source, target),
        (IpAddr::V6(source), IpAddr::V6(target)) => {
            let option = host_option(OPTION_SOURCE, mac);
            write_host_nd(out, mac, &solicitation(source, target, &option));
        }
        _ => return false,
    }
    true
}

/// Writes an announcement of the MAC of a peer's IP address, for the host side.
///
/// The core does not know whether the peer is a router. Without the Router flag, hosts delete a default
/// route through the peer. Such routes have link-local addresses (RFC 4861, section 4.2), so an advertisement of
/// these has no Override flag: a host that knows another MAC checks that MAC, and keeps the route.
pub fn write_host_announcement(out: &mut Vec<u8>, mac: Mac, ip: IpAddr) {
    match ip {
        IpAddr::V4(ip) => write_host_arp(out, mac, ip, ip),
        IpAddr::V6(ip) => {
            let option = host_option(OPTION_TARGET, mac);
            let flags = match ip.is_unicast_link_local() {
                true => 0,
                false => OVERRIDE,
            };
            write_host_nd(out, mac, &advertisement(ip, flags, &option));
        }
    }
}

/// Writes the correction for `to`, which sends to the MAC `stale`, that a guest has the IP address: an ARP
/// reply or a query in the guest's name, for the host side. The query does not change what `to` knows about
/// routers (RFC 4861, section 7.2.3). False if the address families differ.
pub fn write_host_correction(out: &mut Vec<u8>, stale: Mac, guest: Holder, to: Holder) -> bool {
    match (guest.ip, to.ip) {
        (IpAddr::V4(ip), IpAddr::V4(to_ip)) => {
            ethernet_header(out, to.mac, stale, TYPE_ARP);
            let mut packet = [0; ETHERNET_ARP_LEN];
            Arp {
                operation: REPLY,
                sender: guest.mac,
                sender_ip: ip,
                target: to.mac,
                target_ip: to_ip,
            }
            .write(&mut packet);
            out.extend_from_slice(&packet);
        }
        (IpAddr::V6(ip), IpAddr::V6(to_ip)) => {
            let option = host_option(OPTION_SOURCE, guest.mac);
            let nd = Nd {
                destination: to_ip,
                ..solicitation(ip, to_ip, &option)
            };
            write_host_nd(out, stale, &nd);
            out[..6].copy_from_slice(&to.mac);
        }
        _ => return false,
    }
    true
}

/// An IP address and the MAC of its owner.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Holder {
    pub ip: IpAddr,
    pub mac: Mac,
}

/// A frame of the core for the host side.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum HostSide {
    /// The IP address of a peer is at this MAC.
    Announce { ip: IpAddr, mac: Mac },
    /// A query for `target` in the name of the peer with the MAC, because of a packet from `source`.
    Ask {
        target: IpAddr,
        source: IpAddr,
        mac: Mac,
    },
    /// A guest has the IP address for which `to` uses the MAC `stale`.
    Correct {
        stale: Mac,
        guest: Holder,
        to: Holder,
    },
}

/// An IP address to announce.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Announcement {
    pub ip: IpAddr,
    /// The owner is an IPv6 router. Without the Router flag, hosts delete a default route through the address
    /// (RFC 4861, section 7.2.5).
    pub router: bool,
}

struct Pending {
    what: Announcement,
    due: Time,
    left: u8,
    /// The announcement is that of a guest, and ends with the guest. False: the host itself asked for the announcement.
    guest: bool,
}

/// Pending announcements.
#[derive(Default)]
pub struct Announcer {
    pending: Vec<Pending>,
    /// Number of guests announced since `second`.
    guests: u8,
    second: Time,
}

impl Announcer {
    /// Announces an address of the host, now, and again later unless too many wait for that.
    pub fn announce(&mut self, what: Announcement) {
        self.withdraw(what.ip);
        let left = match self.pending.len() < REPEATED_MAX {
            true => REPEATS,
            false => 1,
        };
        self.add(what, left, PENDING_MAX, false);
    }

    /// Cancels the announcements of an address that is no longer here: they would take it from its present
    /// owner.
    pub fn withdraw(&mut self, ip: IpAddr) {
        self.pending.retain(|p| p.what.ip != ip);
    }

    /// Cancels the announcements of an address that no guest has any more, except those at the host's request.
    pub fn withdraw_guest(&mut self, ip: IpAddr) {
        self.pending.retain(|p| p.what.ip != ip || !p.guest);
    }

    /// Announces an address of a guest, now and again later if it was a peer's. False: refused, because a flood of
    /// guests must delay neither the link nor the host's own announcements.
    pub fn announce_guest(&mut self, now: Time, what: Announcement, again: bool) -> bool {
        if now >= self.second.after(1000) {
            self.second = now;
            self.guests = 0;
        }
        if self.guests >= GUESTS_PER_SECOND {
            return false;
        }
        self.guests += 1;
        self.withdraw_guest(what.ip);
        let left = if again { REPEATS } else { 1 };
        self.add(what, left, GUESTS_PENDING_MAX, true)
    }

    /// Announces addresses of guests, one after the other, each again later. Returns the number of accepted ones; the
    /// rest are too many.
    pub fn announce_guests(&mut self, now: Time, all: &[Announcement]) -> usize {
        for (n, what) in all.iter().enumerate() {
            if self.pending.len() >= GUESTS_PENDING_MAX {
                return n;
            }
            // The host has announced this one itself.
            if !self.pending.iter().any(|p| p.what.ip == what.ip) {
                self.pending.push(Pending {
                    what: *what,
                    due: now.after(n as u64 * APART_MS),
                    left: REPEATS,
                    guest: true,
                });
            }
        }
        all.len()
    }

    /// Cancels the announcements of guests; returns their addresses.
    pub fn take_guests(&mut self) -> Vec<IpAddr> {
        let guests = self.pending.extract_if(.., |p| p.guest);
        guests.map(|p| p.what.ip).collect()
    }

    /// Cancels all announcements.
    pub fn clear(&mut self) {
        self.pending.clear();
    }

    fn add(&mut self, what: Announcement, left: u8, max: usize, guest: bool) -> bool {
        let has_room = self.pending.len() < max;
        if has_room {
            self.pending.push(Pending {
                what,
                due: Time(0),
                left,
                guest,
            });
        }
        has_room
    }

    pub fn next(&mut self, now: Time) -> Option<Announcement> {
        let at = self.pending.iter().position(|p| p.due <= now)?;
        let p = &mut self.pending[at];
        let what = p.what;
        p.left -= 1;
        p.due = now.after(REPEAT_MS);
        if p.left == 0 {
            self.pending.swap_remove(at);
        }
        Some(what)
    }

    pub fn next_deadline(&self) -> Option<Time> {
        self.pending.iter().map(|p| p.due).min()
    }
}
