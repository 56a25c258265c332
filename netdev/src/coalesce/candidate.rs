//! The selection of packets that may be merged.

use super::CoalesceConfig;
use crate::checksum::{Sum, pseudo_header};
use crate::ip::{
    self, ETHERNET_HEADER_LEN, IPV4_HEADER_LEN, IPV6_HEADER_LEN, TCP_HEADER_LEN, UDP_HEADER_LEN,
    be16, tcp, udp, v4, v6,
};

/// Source and destination address as in the packet; IPv4 addresses use the first eight bytes.
pub(super) type Addresses = [u8; 32];

/// The common properties of a flow's packets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct FlowKey {
    pub addresses: Addresses,
    /// Source and destination port number as in the packet.
    pub ports: [u8; 4],
    pub protocol: Protocol,
    pub version: Version,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Protocol {
    Tcp,
    Udp,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Version {
    V4,
    V6,
}

impl Version {
    /// Bytes of the IP header; packets with options or extension headers are not merged.
    pub(super) const fn header_len(self) -> usize {
        match self {
            Version::V4 => IPV4_HEADER_LEN,
            Version::V6 => IPV6_HEADER_LEN,
        }
    }
}

/// A packet that may be merged if its checksums are right: all lengths are consistent, the payload is not
/// empty, and no flag, option or fragment prevents it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Candidate<'b> {
    pub key: FlowKey,
    pub packet: &'b [u8],
    /// Bytes of IP and transport header.
    pub headers: usize,
    /// The checksums are known to be right.
    pub verified: bool,
}

/// The handling of a packet.
#[derive(Debug)]
pub(super) enum Verdict<'b> {
    /// Merge it.
    Candidate(Candidate<'b>),
    /// Pass it after the open frame of its flow.
    Flow(FlowKey),
    /// Unknown port numbers (a fragment, options): pass it after all open frames between its two hosts.
    Host(Addresses),
    /// Pass it.
    Other,
}

#[inline]
pub(super) fn look<'b>(
    config: &CoalesceConfig,
    ethernet: &[u8; ETHERNET_HEADER_LEN],
    packet: &'b [u8],
) -> Verdict<'b> {
    match be16(ethernet, 12) {
        ip::ETHERTYPE_IPV4 => look_v4(config, packet),
        ip::ETHERTYPE_IPV6 => look_v6(config, packet),
        _ => Verdict::Other,
    }
}

fn look_v4<'b>(config: &CoalesceConfig, packet: &'b [u8]) -> Verdict<'b> {
    let Some(header) = packet.first_chunk::<IPV4_HEADER_LEN>() else {
        return Verdict::Other;
    };
    let Some(protocol) = protocol(config, header[v4::PROTOCOL]) else {
        return Verdict::Other;
    };
    let mut addresses = [0; 32];
    addresses[..8].copy_from_slice(&header[v4::SOURCE..v4::SOURCE + 8]);
    // The reserved bit counts as fragmentation, as in the kernel.
    let plain = header[0] == 0x45
        && be16(header, v4::FRAGMENT) & !v4::DF == 0
        && usize::from(be16(header, v4::TOTAL_LEN)) == packet.len();
    if plain {
        look_transport(packet, Version::V4, protocol, addresses)
    } else {
        Verdict::Host(addresses)
    }
}

fn look_v6<'b>(config: &CoalesceConfig, packet: &'b [u8]) -> Verdict<'b> {
    let Some(header) = packet.first_chunk::<IPV6_HEADER_LEN>() else {
        return Verdict::Other;
    };
    if header[v6::NEXT_HEADER] == ip::PROTOCOL_ICMPV6 {
        return Verdict::Other;
    }
    let mut addresses = [0; 32];
    addresses.copy_from_slice(&header[v6::SOURCE..]);
    let plain = header[0] >> 4 == 6
        && usize::from(be16(header, v6::PAYLOAD_LEN)) == packet.len() - IPV6_HEADER_LEN;
    match protocol(config, header[v6::NEXT_HEADER]) {
        Some(protocol) if plain => look_transport(packet, Version::V6, protocol, addresses),
        // A segment of a flow may follow the extension header.
        _ => Verdict::Host(addresses),
    }
}

/// The protocol, if its packets are merged. Others have no flows whose order matters.
fn protocol(config: &CoalesceConfig, number: u8) -> Option<Protocol> {
    match number {
        ip::PROTOCOL_TCP if config.tcp => Some(Protocol::Tcp),
        ip::PROTOCOL_UDP if config.udp => Some(Protocol::Udp),
        _ => None,
    }
}

fn look_transport(
    packet: &[u8],
    version: Version,
    protocol: Protocol,
    addresses: Addresses,
) -> Verdict<'_> {
    let segment = &packet[version.header_len()..];
    let Some(ports) = segment.first_chunk::<4>() else {
        return Verdict::Host(addresses);
    };
    let key = FlowKey {
        addresses,
        ports: *ports,
        protocol,
        version,
    };
    let header = match protocol {
        Protocol::Tcp => tcp_header(segment),
        Protocol::Udp => udp_header(segment),
    };
    match header {
        Some(len) => Verdict::Candidate(Candidate {
            key,
            packet,
            headers: version.header_len() + len,
            verified: false,
        }),
        None => Verdict::Flow(key),
    }
}

/// Bytes of the TCP header, if the segment has payload and no flag that must be delivered at once.
fn tcp_header(segment: &[u8]) -> Option<usize> {
    let header = segment.first_chunk::<TCP_HEADER_LEN>()?;
    let len = usize::from(header[tcp::DATA_OFFSET] >> 4) * 4;
    let flags = header[tcp::FLAGS];
    let ordinary = flags & (tcp::SYN | tcp::RST | tcp::URG | tcp::ACK_FLAG) == tcp::ACK_FLAG;
    (ordinary && len >= TCP_HEADER_LEN && len < segment.len()).then_some(len)
}

/// Bytes of the UDP header, if the datagram has payload, a checksum and a correct length.
fn udp_header(segment: &[u8]) -> Option<usize> {
    let header = segment.first_chunk::<UDP_HEADER_LEN>()?;
    let whole = usize::from(be16(header, udp::LEN)) == segment.len();
    let summed = be16(header, udp::CHECKSUM) != 0;
    (whole && summed && segment.len() > UDP_HEADER_LEN).then_some(UDP_HEADER_LEN)
}

impl<'b> Candidate<'b> {
    pub(super) fn payload(&self) -> &'b [u8] {
        &self.packet[self.headers..]
    }

    pub(super) fn network(&self) -> &'b [u8] {
        &self.packet[..self.key.version.header_len()]
    }

    pub(super) fn transport(&self) -> &'b [u8] {
        &self.packet[self.key.version.header_len()..self.headers]
    }

    /// Whether the packet ends its frame: PSH or FIN.
    pub(super) fn is_last(&self) -> bool {
        self.key.protocol == Protocol::Tcp
            && self.transport()[tcp::FLAGS] & (tcp::PSH | tcp::FIN) != 0
    }

    /// The IPv4 "don't fragment" bit; true for IPv6, which routers do not fragment.
    pub(super) fn dont_fragment(&self) -> bool {
        match self.key.version {
            Version::V4 => be16(self.packet, v4::FRAGMENT) & v4::DF != 0,
            Version::V6 => true,
        }
    }

    /// The IPv4 identification; 0 for IPv6.
    pub(super) fn id(&self) -> u16 {
        match self.key.version {
            Version::V4 => be16(self.packet, v4::ID),
            Version::V6 => 0,
        }
    }

    /// Whether the IP header checksum and the transport checksum are right.
    pub(super) fn is_intact(&self) -> bool {
        if self.verified {
            return true;
        }
        let network = self.network();
        let segment = &self.packet[network.len()..];
        let header_ok = match self.key.version {
            Version::V4 => Sum::of(network).is_valid(),
            Version::V6 => true,
        };
        header_ok
            && self
                .key
                .pseudo(segment.len())
                .plus(Sum::of(segment))
                .is_valid()
    }
}

impl FlowKey {
    /// The pseudo header of a segment with `len` bytes of transport header and payload.
    pub(super) fn pseudo(&self, len: usize) -> Sum {
        let address_len = match self.version {
            Version::V4 => 4,
            Version::V6 => 16,
        };
        let (source, rest) = self.addresses.split_at(address_len);
        let number = match self.protocol {
            Protocol::Tcp => ip::PROTOCOL_TCP,
            Protocol::Udp => ip::PROTOCOL_UDP,
        };
        // Below 65536: the packet's length fits the IP header.
        pseudo_header(source, &rest[..address_len], number, len as u32)
    }
}
