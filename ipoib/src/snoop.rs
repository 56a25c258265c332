//! Parses membership reports: IGMPv1 (RFC 1112), IGMPv2 (RFC 2236), IGMPv3 (RFC 3376), MLDv1 (RFC 2710) and
//! MLDv2 (RFC 3810).
//!
//! Sources are ignored, because multicast GIDs have none. A host that wants a group from some sources, or
//! from all but some, is a member; a host that wants no source is not a member.

#![cfg_attr(
    not(test),
    deny(clippy::cast_possible_truncation, clippy::cast_sign_loss)
)]

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use proto::{Mac, Time};

use crate::checksum::{self, checksum};
use crate::wire::{NEXT_HEADER_ICMPV6, TYPE_IPV4, be16, ip_header, ipv4_at, ipv6_at};

const PROTOCOL_IGMP: u8 = 2;
const NEXT_HEADER_HOP_BY_HOP: u8 = 0;

const IGMP_V1_REPORT: u8 = 0x12;
const IGMP_V2_REPORT: u8 = 0x16;
const IGMP_V2_LEAVE: u8 = 0x17;
const IGMP_V3_REPORT: u8 = 0x22;
const MLD_V1_REPORT: u8 = 131;
const MLD_V1_DONE: u8 = 132;
const MLD_V2_REPORT: u8 = 143;

/// Option types of a hop-by-hop header (RFC 8200, section 4.2; RFC 2711).
const OPTION_PAD1: u8 = 0;
const OPTION_ROUTER_ALERT: u8 = 5;

/// A group in a report.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Record {
    pub group: IpAddr,
    /// True: the host joined or is still a member. False: it left.
    pub joined: bool,
}

/// Whether an IP packet, at least as long as its header, may be a membership report: a check of a byte.
#[inline]
pub fn may_report(ethertype: u16, l3: &[u8]) -> bool {
    if ethertype == TYPE_IPV4 {
        l3[9] == PROTOCOL_IGMP
    } else {
        l3[6] == NEXT_HEADER_HOP_BY_HOP
    }
}

/// The groups in the membership report `l3`, in order; empty if the packet is no report, or has wrong
/// lengths or checksums. `l3` may be longer than the packet. With `unfinished` the ICMPv6 checksum is
/// partial and not verified.
pub fn records(ethertype: u16, l3: &[u8], unfinished: bool) -> Records<'_> {
    let found = match ethertype {
        TYPE_IPV4 => igmp(l3),
        _ => mld(l3, unfinished),
    };
    found.unwrap_or_default()
}

/// An iterator over the groups of a report.
#[derive(Clone, Debug, Default)]
pub struct Records<'p> {
    single: Option<Record>,
    /// Group records of version 3 (IGMP) or 2 (MLD), with valid lengths.
    multiple: &'p [u8],
    ipv6: bool,
}

impl Iterator for Records<'_> {
    type Item = Record;

    fn next(&mut self) -> Option<Record> {
        if let Some(single) = self.single.take() {
            return Some(single);
        }
        while !self.multiple.is_empty() {
            let (record, rest) = split_record(self.multiple, self.ipv6)?;
            self.multiple = rest;
            if let Some(record) = meaning(record, self.ipv6) {
                return Some(record);
            }
        }
        None
    }
}

/// A group record (RFC 3376, section 4.2.4; RFC 3810, section 5.2.4): type, length of auxiliary
/// data in words, number of sources, group, sources, auxiliary data.
fn split_record(bytes: &[u8], ipv6: bool) -> Option<(&[u8], &[u8])> {
    let [_, auxiliary, high, low, ..] = *bytes else {
        return None;
    };
    let address = if ipv6 { 16 } else { 4 };
    let sources = usize::from(u16::from_be_bytes([high, low]));
    bytes.split_at_checked(4 + address * (1 + sources) + 4 * usize::from(auxiliary))
}

/// The meaning of a group record (RFC 3376, section 4.2.12). Blocked sources (type 6) do not show whether
/// others remain.
fn meaning(record: &[u8], ipv6: bool) -> Option<Record> {
    let any_source = be16(record, 2) != 0;
    let joined = match record[0] {
        1 | 3 => any_source,
        2 | 4 => true,
        5 if any_source => true,
        _ => return None,
    };
    let group = if ipv6 {
        ipv6_at(record, 4).into()
    } else {
        ipv4_at(record, 4).into()
    };
    reportable(group, joined)
}

fn reportable(group: IpAddr, joined: bool) -> Option<Record> {
    is_reported(group).then_some(Record { group, joined })
}

/// Whether reports about a group are meaningful. Every node is in 224.0.0.1 and ff02::1 and sends no report
/// for them (RFC 3376, section 6; RFC 3810, section 6); groups of scope 0 and 1 stay inside a node.
fn is_reported(group: IpAddr) -> bool {
    match group {
        IpAddr::V4(g) => g.is_multicast() && g != Ipv4Addr::new(224, 0, 0, 1),
        IpAddr::V6(g) => {
            let scope = g.octets()[1] & 0x0f;
            g.is_multicast() && scope > 1 && g != Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1)
        }
    }
}

/// The `count` group records at the start of `bytes`, if they fit.
fn multiple(bytes: &[u8], count: u16, ipv6: bool) -> Option<Records<'_>> {
    let mut rest = bytes;
    for _ in 0..count {
        (_, rest) = split_record(rest, ipv6)?;
    }
    Some(Records {
        single: None,
        multiple: &bytes[..bytes.len() - rest.len()],
        ipv6,
    })
}

fn single(group: IpAddr, joined: bool) -> Records<'static> {
    Records {
        single: reportable(group, joined),
        ..Records::default()
    }
}

fn igmp(l3: &[u8]) -> Option<Records<'_>> {
    let header = ip_header(TYPE_IPV4, l3).ok()?;
    let (head, message) = l3[..header.len].split_at(usize::from(l3[0] & 0x0f) * 4);
    // All bits except "don't fragment".
    let fragment = be16(head, 6) & 0xbfff != 0;
    if head[9] != PROTOCOL_IGMP || fragment || message.len() < 8 {
        return None;
    }
    // IGMP's checksum covers the whole payload of the packet (RFC 2236, section 2.3).
    if checksum(&[head]) != 0 || checksum(&[message]) != 0 {
        return None;
    }
    let group = || ipv4_at(message, 4).into();
    match message[0] {
        IGMP_V1_REPORT | IGMP_V2_REPORT => Some(single(group(), true)),
        IGMP_V2_LEAVE => Some(single(group(), false)),
        IGMP_V3_REPORT => multiple(&message[8..], be16(message, 6), false),
        _ => None,
    }
}

/// Parses multicast listener discovery, which does not cross routers, has a link-local or unspecified
/// source, and a router alert (RFC 3810, section 5).
fn mld(l3: &[u8], unfinished: bool) -> Option<Records<'_>> {
    let header = ip_header(crate::wire::TYPE_IPV6, l3).ok()?;
    let packet = &l3[..header.len];
    let IpAddr::V6(source) = header.source else {
        return None;
    };
    let local = source.is_unicast_link_local() || source.is_unspecified();
    if packet[6] != NEXT_HEADER_HOP_BY_HOP || packet[7] != 1 || !local {
        return None;
    }
    let options = packet.get(40..)?;
    let len = 8 * (1 + usize::from(*options.get(1)?));
    let (options, message) = options.split_at_checked(len)?;
    if options[0] != NEXT_HEADER_ICMPV6 || !has_router_alert(&options[2..]) || message.len() < 8 {
        return None;
    }
    if !unfinished && checksum::icmpv6(packet, 40 + len) != 0 {
        return None;
    }
    match message[0] {
        MLD_V2_REPORT => multiple(&message[8..], be16(message, 6), true),
        MLD_V1_REPORT if message.len() >= 24 => Some(single(ipv6_at(message, 8).into(), true)),
        MLD_V1_DONE if message.len() >= 24 => Some(single(ipv6_at(message, 8).into(), false)),
        _ => None,
    }
}

/// Whether a hop-by-hop header has the router alert of MLD (RFC 2711, section 2.1: value 0).
fn has_router_alert(mut options: &[u8]) -> bool {
    loop {
        match *options {
            [OPTION_PAD1, ref rest @ ..] => options = rest,
            [OPTION_ROUTER_ALERT, 2, 0, 0, ..] => return true,
            [_, len, ref rest @ ..] if rest.len() >= usize::from(len) => {
                options = &rest[usize::from(len)..];
            }
            _ => return false,
        }
    }
}

/// Recently reported records, so that repetitions are not reported. The table has a fixed size: a report
/// that hashes to an occupied place replaces it.
pub struct Lately {
    places: Vec<Option<Reported>>,
}

#[derive(Clone, Copy)]
struct Reported {
    mac: Mac,
    record: Record,
    at: Time,
}

impl Lately {
    const PLACES: usize = 256;
    /// Time for which a repetition is not reported.
    const QUIET_MS: u64 = 1000;

    pub fn new() -> Lately {
        Lately { places: Vec::new() }
    }

    /// Whether the record of `mac` must be reported: it is different, or the last one was a second ago.
    pub fn is_news(&mut self, now: Time, mac: Mac, record: Record) -> bool {
        let low = match record.group {
            IpAddr::V4(g) => g.octets(),
            IpAddr::V6(g) => *g.octets().last_chunk().unwrap_or(&[0; 4]),
        };
        let mixed = u32::from_be_bytes(low) ^ u32::from_be_bytes([mac[2], mac[3], mac[4], mac[5]]);
        let place = (mixed.wrapping_mul(0x9e37_79b1) >> 24) as usize % Lately::PLACES;
        let reported = Reported {
            mac,
            record,
            at: now,
        };
        if self.places.is_empty() {
            // Allocated on demand: most interfaces see no reports.
            self.places = vec![None; Lately::PLACES];
        }
        let before = self.places[place];
        if before.is_some_and(|b| {
            b.mac == mac && b.record == record && now < b.at.after(Lately::QUIET_MS)
        }) {
            return false;
        }
        self.places[place] = Some(reported);
        true
    }
}

#[cfg(test)]
mod tests;
