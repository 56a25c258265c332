//! Packets of our own making: questions and announcements.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::Time;
use crate::address::HardwareAddress;
use crate::arp::{Arp, INFINIBAND_ARP_LEN, REQUEST};
use crate::multicast::solicited_node;
use crate::nd::{INFINIBAND_OPTION_LEN, OPTION_SOURCE, OPTION_TARGET, put_hardware_address};
use crate::wire::{ENCAP_LEN, TYPE_ARP, TYPE_IPV6, encap, fill_icmpv6_checksum};

/// An announcement is sent once and once again after this long.
const REPEAT_MS: u64 = 1000;
const REPEATS: u8 = 2;
/// Addresses that may be announced at the same time; more are forgotten.
const PENDING_MAX: usize = 1024;

const ARP_LEN: usize = ENCAP_LEN + INFINIBAND_ARP_LEN;
/// IPv6 header, fixed part of a solicitation or advertisement, one option.
const ND_LEN: usize = ENCAP_LEN + 40 + 24 + INFINIBAND_OPTION_LEN;

const ALL_NODES: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);

/// A whole IB payload in `out`, for a group.
pub struct Written {
    pub group: IpAddr,
    pub len: usize,
}

fn write_arp(
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

/// The parts of a neighbour solicitation or advertisement that differ.
struct Nd<'a> {
    icmp_type: u8,
    flags: u8,
    option: u8,
    local: &'a HardwareAddress,
    source: Ipv6Addr,
    destination: Ipv6Addr,
    target: Ipv6Addr,
}

fn write_nd(out: &mut [u8], nd: &Nd<'_>) -> Written {
    let out = &mut out[..ND_LEN];
    out.fill(0);
    out[..ENCAP_LEN].copy_from_slice(&encap(TYPE_IPV6));
    let ip = &mut out[ENCAP_LEN..];
    ip[0] = 0x60;
    ip[4..6].copy_from_slice(&(24 + INFINIBAND_OPTION_LEN as u16).to_be_bytes());
    ip[6] = 58;
    ip[7] = 255;
    ip[8..24].copy_from_slice(&nd.source.octets());
    ip[24..40].copy_from_slice(&nd.destination.octets());
    ip[40] = nd.icmp_type;
    ip[44] = nd.flags;
    ip[48..64].copy_from_slice(&nd.target.octets());
    let mut option = [0; INFINIBAND_OPTION_LEN];
    put_hardware_address(nd.option, nd.local, &mut option);
    ip[64..].copy_from_slice(&option);
    fill_icmpv6_checksum(ip);
    Written {
        group: nd.destination.into(),
        len: ND_LEN,
    }
}

/// An ARP request or a neighbour solicitation for `target` in the name of `source`; `None` when
/// they are not of one family.
pub fn write_question(
    out: &mut [u8],
    local: &HardwareAddress,
    source: IpAddr,
    target: IpAddr,
) -> Option<Written> {
    match (source, target) {
        (IpAddr::V4(source), IpAddr::V4(target)) => Some(write_arp(out, local, source, target)),
        (IpAddr::V6(source), IpAddr::V6(target)) => Some(write_nd(
            out,
            &Nd {
                icmp_type: 135,
                flags: 0,
                option: OPTION_SOURCE,
                local,
                source,
                destination: solicited_node(target),
                target,
            },
        )),
        _ => None,
    }
}

/// A gratuitous ARP request (RFC 5227, section 3) or an unsolicited advertisement with the override
/// flag (RFC 4861, section 7.2.6).
pub fn write_announcement(out: &mut [u8], local: &HardwareAddress, ip: IpAddr) -> Written {
    match ip {
        IpAddr::V4(ip) => write_arp(out, local, ip, ip),
        IpAddr::V6(ip) => write_nd(
            out,
            &Nd {
                icmp_type: 136,
                flags: 0x20,
                option: OPTION_TARGET,
                local,
                source: ip,
                destination: ALL_NODES,
                target: ip,
            },
        ),
    }
}

struct Pending {
    ip: IpAddr,
    due: Time,
    left: u8,
}

/// Announcements that are due or will be.
#[derive(Default)]
pub struct Announcer {
    pending: Vec<Pending>,
}

impl Announcer {
    pub fn announce(&mut self, ip: IpAddr) {
        self.pending.retain(|p| p.ip != ip);
        if self.pending.len() < PENDING_MAX {
            self.pending.push(Pending {
                ip,
                due: Time(0),
                left: REPEATS,
            });
        }
    }

    pub fn next(&mut self, now: Time) -> Option<IpAddr> {
        let at = self.pending.iter().position(|p| p.due <= now)?;
        let p = &mut self.pending[at];
        let ip = p.ip;
        p.left -= 1;
        p.due = now.after(REPEAT_MS);
        if p.left == 0 {
            self.pending.swap_remove(at);
        }
        Some(ip)
    }

    pub fn next_deadline(&self) -> Option<Time> {
        self.pending.iter().map(|p| p.due).min()
    }
}
