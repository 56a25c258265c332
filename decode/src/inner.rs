//! IPoIB packets (RFC 4391): encapsulation, ARP and neighbour discovery with 20-byte addresses, IP. The
//! summaries are also used for packets outside of RoCEv2.

use std::fmt::Write;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use etherparse::{Icmpv6Slice, LaxNetSlice, LaxSlicedPacket, TcpSlice, TransportSlice};
use serde::Serialize;

use super::link::{ARP, IPV4, IPV6, RARP};

/// An IPoIB packet.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Ipoib {
    /// From the encapsulation header.
    pub ethertype: u16,
    /// `arp`, `rarp`, `ipv4` or `ipv6`.
    pub protocol: &'static str,
    /// IP source address.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source: Option<IpAddr>,
    /// IP destination address.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub destination: Option<IpAddr>,
    /// The packet in a few words.
    pub summary: String,
}

/// Reads `payload` as IPoIB; `None` if it does not begin with an encapsulation header (RFC 4391, 6) of a
/// known type. The headers before it do not identify IPoIB.
pub fn ipoib(payload: &[u8]) -> Option<Ipoib> {
    let ([t0, t1, 0, 0], packet) = payload.split_first_chunk::<4>()? else {
        return None;
    };
    let ethertype = u16::from_be_bytes([*t0, *t1]);
    let protocol = match ethertype {
        ARP => "arp",
        RARP => "rarp",
        IPV4 => "ipv4",
        IPV6 => "ipv6",
        _ => return None,
    };
    let (source, destination) = match ethertype {
        IPV4 | IPV6 => addresses(packet).unzip(),
        _ => (None, None),
    };
    Some(Ipoib {
        ethertype,
        protocol,
        source,
        destination,
        summary: summary(ethertype, packet),
    })
}

/// Source and destination of an IP packet.
pub fn addresses(packet: &[u8]) -> Option<(IpAddr, IpAddr)> {
    match LaxSlicedPacket::from_ip(packet).ok()?.net? {
        LaxNetSlice::Ipv4(ip) => Some((
            ip.header().source_addr().into(),
            ip.header().destination_addr().into(),
        )),
        LaxNetSlice::Ipv6(ip) => Some((
            ip.header().source_addr().into(),
            ip.header().destination_addr().into(),
        )),
        LaxNetSlice::Arp(_) => None,
    }
}

/// A summary of a packet of type `ethertype`.
pub fn summary(ethertype: u16, packet: &[u8]) -> String {
    match ethertype {
        ARP | RARP => arp(packet).unwrap_or_else(|| "ARP, truncated".to_owned()),
        IPV4 | IPV6 => ip(packet),
        other => format!("EtherType {other:#06x}, {} bytes", packet.len()),
    }
}

/// ARP with hardware addresses of any length (RFC 826; RFC 4391, 9.1).
fn arp(packet: &[u8]) -> Option<String> {
    let (fixed, rest) = packet.split_first_chunk::<8>()?;
    let (hardware, protocol) = (usize::from(fixed[4]), usize::from(fixed[5]));
    let (sender_hardware, rest) = rest.split_at_checked(hardware)?;
    let (sender, rest) = rest.split_at_checked(protocol)?;
    let (target_hardware, rest) = rest.split_at_checked(hardware)?;
    let (target, _) = rest.split_at_checked(protocol)?;
    let (sender, target) = (protocol_address(sender), protocol_address(target));
    let (from, to) = (hex(sender_hardware), hex(target_hardware));
    Some(match u16::from_be_bytes([fixed[6], fixed[7]]) {
        1 => format!("ARP request {target} tell {sender} at {from}"),
        2 => format!("ARP reply {sender} is at {from}, to {target} at {to}"),
        3 => format!("RARP request for {to}"),
        4 => format!("RARP reply {to} is {target}"),
        other => format!("ARP operation {other}"),
    })
}

fn protocol_address(bytes: &[u8]) -> String {
    match <[u8; 4]>::try_from(bytes) {
        Ok(v4) => Ipv4Addr::from(v4).to_string(),
        Err(_) => hex(bytes),
    }
}

/// Bytes in the format of `ip link`.
fn hex(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len() * 3);
    for (i, b) in bytes.iter().enumerate() {
        let colon = if i > 0 { ":" } else { "" };
        // Writing to a string does not fail.
        let _ = write!(text, "{colon}{b:02x}");
    }
    text
}

fn ip(packet: &[u8]) -> String {
    let Ok(parsed) = LaxSlicedPacket::from_ip(packet) else {
        return format!("IP, {} bytes, not readable", packet.len());
    };
    let (name, length, payload) = match &parsed.net {
        Some(LaxNetSlice::Ipv4(ip)) => ("IPv4", usize::from(ip.header().total_len()), ip.payload()),
        Some(LaxNetSlice::Ipv6(ip)) => (
            "IPv6",
            usize::from(ip.header().payload_length()) + 40,
            ip.payload(),
        ),
        _ => return format!("IP, {} bytes, not readable", packet.len()),
    };
    let ends = match addresses(packet) {
        Some((s, d)) => format!("{s} > {d}"),
        None => String::new(),
    };
    let above = match &parsed.transport {
        _ if payload.fragmented => format!("{} fragment", keyword(payload.ip_number)),
        Some(transport) => describe(transport),
        None => keyword(payload.ip_number),
    };
    format!("{name} {ends} {above}, {length} bytes")
}

fn keyword(number: etherparse::IpNumber) -> String {
    match number.keyword_str() {
        Some(name) => name.to_owned(),
        None => format!("protocol {}", number.0),
    }
}

fn describe(transport: &TransportSlice<'_>) -> String {
    match transport {
        TransportSlice::Udp(u) => {
            format!("UDP {} > {}", u.source_port(), u.destination_port())
        }
        TransportSlice::Tcp(t) => tcp(t),
        TransportSlice::Icmpv4(i) => format!("ICMP {}", icmpv4(i.type_u8(), i.code_u8())),
        TransportSlice::Icmpv6(i) => format!("ICMPv6 {}", icmpv6(i)),
        TransportSlice::Igmp(_) => "IGMP".to_owned(),
    }
}

fn tcp(t: &TcpSlice<'_>) -> String {
    let flags = [
        (t.syn(), 'S'),
        (t.fin(), 'F'),
        (t.rst(), 'R'),
        (t.psh(), 'P'),
        (t.ack(), '.'),
    ];
    let flags: String = flags.iter().filter(|f| f.0).map(|f| f.1).collect();
    let (source, destination) = (t.source_port(), t.destination_port());
    let (seq, ack) = (t.sequence_number(), t.acknowledgment_number());
    format!("TCP {source} > {destination} [{flags}] seq {seq} ack {ack}")
}

fn icmpv4(kind: u8, code: u8) -> String {
    match (kind, code) {
        (0, _) => "echo reply".to_owned(),
        (3, 4) => "fragmentation needed".to_owned(),
        (3, _) => format!("unreachable, code {code}"),
        (8, _) => "echo request".to_owned(),
        (11, _) => "time exceeded".to_owned(),
        _ => format!("type {kind} code {code}"),
    }
}

fn icmpv6(i: &Icmpv6Slice<'_>) -> String {
    let target = || match i.payload().first_chunk::<16>() {
        Some(octets) => Ipv6Addr::from(*octets).to_string(),
        None => "nothing".to_owned(),
    };
    // Options follow the fixed part, whose length depends on the type.
    let with_options = |text: String, fixed: usize| {
        let options = i.payload().get(fixed..).unwrap_or(&[]);
        text + &link_layer_addresses(options)
    };
    match i.type_u8() {
        1 => format!("unreachable, code {}", i.code_u8()),
        2 => format!("packet too big, MTU {}", u32::from_be_bytes(i.bytes5to8())),
        128 => "echo request".to_owned(),
        129 => "echo reply".to_owned(),
        130 => "multicast listener query".to_owned(),
        131 => "multicast listener report".to_owned(),
        133 => with_options("router solicitation".to_owned(), 0),
        134 => with_options("router advertisement".to_owned(), 8),
        135 => with_options(format!("neighbour solicitation for {}", target()), 16),
        136 => with_options(format!("neighbour advertisement of {}", target()), 16),
        137 => with_options(format!("redirect of {}", target()), 32),
        143 => "multicast listener report v2".to_owned(),
        other => format!("type {other} code {}", i.code_u8()),
    }
}

/// The source and target link-layer address options (RFC 4861, 4.6.1): 6 bytes on Ethernet; on IPoIB two
/// bytes of padding and 20 bytes (RFC 4391, 9.3).
fn link_layer_addresses(mut options: &[u8]) -> String {
    let mut text = String::new();
    while let Some((&[kind, units], rest)) = options.split_first_chunk::<2>() {
        let Some(len) = usize::from(units).checked_mul(8).filter(|l| *l >= 8) else {
            break;
        };
        let Some((value, next)) = rest.split_at_checked(len - 2) else {
            break;
        };
        let address = if len == 24 { &value[2..] } else { value };
        let name = match kind {
            1 => Some("source"),
            2 => Some("target"),
            _ => None,
        };
        if let Some(name) = name {
            // Writing to a string does not fail.
            let _ = write!(text, ", {name} at {}", hex(address));
        }
        options = next;
    }
    text
}
