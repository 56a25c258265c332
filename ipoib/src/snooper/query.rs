//! Query frames: IGMPv3 (RFC 3376, section 4.1) and MLDv2 (RFC 3810, section 5.1).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use proto::Mac;

use crate::address::link_local;
use crate::checksum::{self, checksum};
use crate::multicast::group_mac;
use crate::wire::{NEXT_HEADER_ICMPV6, TYPE_IPV4, TYPE_IPV6};

const ALL_HOSTS: Ipv4Addr = Ipv4Addr::new(224, 0, 0, 1);
const ALL_NODES: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);

const IGMP_QUERY: u8 = 0x11;
const MLD_QUERY: u8 = 130;

/// The response time, in tenths of a second; below 128 the code equals the number (RFC 3376, section
/// 4.1.1).
const GENERAL_RESPONSE: u8 = 100;
const SPECIFIC_RESPONSE: u8 = 10;
/// No suppression, robustness 2; a query interval of 125 s.
const ROBUSTNESS: u8 = 2;
const INTERVAL_S: u8 = 125;

/// Internetwork control (RFC 3376, section 4).
const TOS: u8 = 0xc0;

/// A query.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Query {
    /// For all IPv4 groups.
    GeneralV4,
    /// For all IPv6 groups.
    GeneralV6,
    /// For one group.
    Specific(IpAddr),
}

impl Query {
    /// Writes the Ethernet frame.
    pub fn write(self, mac: Mac, out: &mut Vec<u8>) {
        let (destination, group) = match self {
            Query::GeneralV4 => (ALL_HOSTS.into(), Ipv4Addr::UNSPECIFIED.into()),
            Query::GeneralV6 => (ALL_NODES.into(), Ipv6Addr::UNSPECIFIED.into()),
            Query::Specific(group) => (group, group),
        };
        let response = match self {
            Query::Specific(_) => SPECIFIC_RESPONSE,
            _ => GENERAL_RESPONSE,
        };
        out.clear();
        out.extend_from_slice(&group_mac(destination));
        out.extend_from_slice(&mac);
        match (destination, group) {
            (IpAddr::V4(to), IpAddr::V4(group)) => igmp(to, group, response, out),
            (IpAddr::V6(to), IpAddr::V6(group)) => mld(link_local(mac), to, group, response, out),
            _ => {}
        }
    }
}

fn put_checksum(bytes: &mut [u8], at: usize, sum: u16) {
    bytes[at..at + 2].copy_from_slice(&sum.to_be_bytes());
}

/// EtherType and an IPv4 packet with the router alert option (RFC 2113).
///
/// The source is 0.0.0.0, as for a proxy: such a querier takes no part in elections, so it never silences a
/// router (RFC 4541, section 2.1.1). Linux hosts answer it regardless of their reverse-path filter, and a
/// Linux bridge still treats the port as a router port.
fn igmp(to: Ipv4Addr, group: Ipv4Addr, response: u8, out: &mut Vec<u8>) {
    out.extend_from_slice(&TYPE_IPV4.to_be_bytes());
    let mut header = [0; 24];
    header[..12].copy_from_slice(&[0x46, TOS, 0, 36, 0, 0, 0x40, 0, 1, 2, 0, 0]);
    header[16..20].copy_from_slice(&to.octets());
    header[20..].copy_from_slice(&[0x94, 4, 0, 0]);
    let sum = checksum(&[&header]);
    put_checksum(&mut header, 10, sum);
    out.extend_from_slice(&header);
    let mut message = [
        IGMP_QUERY, response, 0, 0, 0, 0, 0, 0, ROBUSTNESS, INTERVAL_S, 0, 0,
    ];
    message[4..8].copy_from_slice(&group.octets());
    let sum = checksum(&[&message]);
    put_checksum(&mut message, 2, sum);
    out.extend_from_slice(&message);
}

/// EtherType and an IPv6 packet with the router alert option (RFC 2711).
fn mld(source: Ipv6Addr, to: Ipv6Addr, group: Ipv6Addr, response: u8, out: &mut Vec<u8>) {
    const HOP_BY_HOP: [u8; 8] = [NEXT_HEADER_ICMPV6, 0, 5, 2, 0, 0, 1, 0];
    out.extend_from_slice(&TYPE_IPV6.to_be_bytes());
    let at = out.len();
    out.extend_from_slice(&[0x60, 0, 0, 0, 0, 36, 0, 1]);
    out.extend_from_slice(&source.octets());
    out.extend_from_slice(&to.octets());
    out.extend_from_slice(&HOP_BY_HOP);
    // In milliseconds; below 32768 the code equals the number (RFC 3810, section 5.1.3).
    let [high, low] = (u16::from(response) * 100).to_be_bytes();
    out.extend_from_slice(&[MLD_QUERY, 0, 0, 0, high, low, 0, 0]);
    out.extend_from_slice(&group.octets());
    out.extend_from_slice(&[ROBUSTNESS, INTERVAL_S, 0, 0]);
    let packet = &mut out[at..];
    let sum = checksum::icmpv6(packet, 48);
    put_checksum(packet, 50, sum);
}
