//! Reads and writes fields of packets.

#![cfg_attr(
    not(test),
    deny(clippy::cast_possible_truncation, clippy::cast_sign_loss)
)]

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::checksum;
use crate::counters::DropReason;

pub const ETHERNET_LEN: usize = 14;
/// The encapsulation header: EtherType and two reserved bytes (RFC 4391, section 6).
pub const ENCAP_LEN: usize = 4;

pub const TYPE_IPV4: u16 = 0x0800;
pub const TYPE_ARP: u16 = 0x0806;
pub const TYPE_RARP: u16 = 0x8035;
pub const TYPE_VLAN: u16 = 0x8100;
pub const TYPE_IPV6: u16 = 0x86dd;

pub const NEXT_HEADER_FRAGMENT: u8 = 44;
pub const NEXT_HEADER_ICMPV6: u8 = 58;

pub const fn encap(ethertype: u16) -> [u8; 4] {
    let [a, b] = ethertype.to_be_bytes();
    [a, b, 0, 0]
}

/// A part of `bytes` as an array; the caller has checked the length.
pub fn array<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    let mut a = [0; N];
    a.copy_from_slice(&bytes[at..at + N]);
    a
}

pub fn be16(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes(array(bytes, at))
}

pub fn ipv4_at(bytes: &[u8], at: usize) -> Ipv4Addr {
    Ipv4Addr::from(array::<4>(bytes, at))
}

pub fn ipv6_at(bytes: &[u8], at: usize) -> Ipv6Addr {
    Ipv6Addr::from(array::<16>(bytes, at))
}

/// Length, source and destination of an IP packet.
#[derive(Clone, Copy, Debug)]
pub struct IpHeader {
    /// Bytes of the packet, its header included.
    pub len: usize,
    pub source: IpAddr,
    pub destination: IpAddr,
}

/// Parses an IP header. `l3` may be longer than the packet (an Ethernet trailer).
pub fn ip_header(ethertype: u16, l3: &[u8]) -> Result<IpHeader, DropReason> {
    ip_header_of(ethertype, l3, l3.len())
}

/// Parses an IP header; `l3` is the beginning of `room` bytes.
pub fn ip_header_of(ethertype: u16, l3: &[u8], room: usize) -> Result<IpHeader, DropReason> {
    let header = match ethertype {
        TYPE_IPV4 => ipv4_header(l3),
        _ => ipv6_header(l3),
    };
    header
        .filter(|h| h.len <= room)
        .ok_or(DropReason::Malformed)
}

fn ipv4_header(l3: &[u8]) -> Option<IpHeader> {
    let header: &[u8; 20] = l3.first_chunk()?;
    let header_len = usize::from(header[0] & 0x0f) * 4;
    let len = usize::from(be16(header, 2));
    (header[0] >> 4 == 4 && header_len >= 20 && len >= header_len).then(|| IpHeader {
        len,
        source: ipv4_at(header, 12).into(),
        destination: ipv4_at(header, 16).into(),
    })
}

fn ipv6_header(l3: &[u8]) -> Option<IpHeader> {
    let header: &[u8; 40] = l3.first_chunk()?;
    (header[0] >> 4 == 6).then(|| IpHeader {
        len: 40 + usize::from(be16(header, 4)),
        source: ipv6_at(header, 8).into(),
        destination: ipv6_at(header, 24).into(),
    })
}

/// The checksum over the ICMPv6 message behind a 40-byte IPv6 header; 0 if its field is valid.
pub fn icmpv6_checksum(packet: &[u8]) -> u16 {
    checksum::icmpv6(packet, 40)
}

/// Computes the checksum of an ICMPv6 message behind a 40-byte IPv6 header and writes it.
pub fn fill_icmpv6_checksum(packet: &mut [u8]) {
    packet[42..44].fill(0);
    let sum = icmpv6_checksum(packet);
    packet[42..44].copy_from_slice(&sum.to_be_bytes());
}
