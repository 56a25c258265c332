//! Offsets in IP packets for segmentation and coalescing (RFC 791, 3.1; RFC 8200, 3 and 4; RFC 9293, 3.1;
//! RFC 768).

pub(crate) const ETHERTYPE_IPV4: u16 = 0x0800;
pub(crate) const ETHERTYPE_ARP: u16 = 0x0806;
pub(crate) const ETHERTYPE_IPV6: u16 = 0x86dd;

/// Bytes of an Ethernet header without a tag.
pub const ETHERNET_HEADER_LEN: usize = 14;
pub(crate) const IPV4_HEADER_LEN: usize = 20;
pub(crate) const IPV6_HEADER_LEN: usize = 40;
pub(crate) const TCP_HEADER_LEN: usize = 20;
pub(crate) const UDP_HEADER_LEN: usize = 8;

pub(crate) const PROTOCOL_TCP: u8 = 6;
pub(crate) const PROTOCOL_UDP: u8 = 17;
pub(crate) const PROTOCOL_ICMPV6: u8 = 58;
const HOP_BY_HOP: u8 = 0;
const ROUTING: u8 = 43;
const DESTINATION_OPTIONS: u8 = 60;

/// Offsets of IPv4 header fields, in bytes.
pub(crate) mod v4 {
    pub const TOTAL_LEN: usize = 2;
    pub const ID: usize = 4;
    pub const FRAGMENT: usize = 6;
    pub const TTL: usize = 8;
    pub const PROTOCOL: usize = 9;
    pub const CHECKSUM: usize = 10;
    pub const SOURCE: usize = 12;
    pub const DESTINATION: usize = 16;
    /// "Don't fragment" in the word at [`FRAGMENT`].
    pub const DF: u16 = 0x4000;
    /// "More fragments" and the fragment offset in the word at [`FRAGMENT`].
    pub const FRAGMENTED: u16 = 0x3fff;
    /// The fragment offset in the word at [`FRAGMENT`].
    pub const OFFSET: u16 = 0x1fff;
}

/// Offsets of IPv6 header fields, in bytes.
pub(crate) mod v6 {
    pub const PAYLOAD_LEN: usize = 4;
    pub const NEXT_HEADER: usize = 6;
    pub const HOP_LIMIT: usize = 7;
    pub const SOURCE: usize = 8;
    pub const DESTINATION: usize = 24;
}

/// Offsets of TCP header fields, in bytes.
pub(crate) mod tcp {
    pub const SEQUENCE: usize = 4;
    pub const ACK: usize = 8;
    pub const DATA_OFFSET: usize = 12;
    pub const FLAGS: usize = 13;
    pub const WINDOW: usize = 14;
    pub const CHECKSUM: usize = 16;
    pub const URGENT: usize = 18;
    pub const FIN: u8 = 0x01;
    pub const SYN: u8 = 0x02;
    pub const RST: u8 = 0x04;
    pub const PSH: u8 = 0x08;
    pub const ACK_FLAG: u8 = 0x10;
    pub const URG: u8 = 0x20;
    pub const CWR: u8 = 0x80;
}

/// Offsets of UDP header fields, in bytes.
pub(crate) mod udp {
    pub const LEN: usize = 4;
    pub const CHECKSUM: usize = 6;
}

/// The 16-bit big-endian number at `at`; the caller has checked the length.
#[inline]
pub(crate) fn be16(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

/// The 32-bit big-endian number at `at`; the caller has checked the length.
#[inline]
pub(crate) fn be32(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

/// Writes `value` big-endian at `at`.
#[inline]
pub(crate) fn put16(bytes: &mut [u8], at: usize, value: u16) {
    bytes[at..at + 2].copy_from_slice(&value.to_be_bytes());
}

/// The lengths in the packet contradict each other or the packet's actual length.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Malformed;

/// Bytes of the IPv4 header and of the whole packet; at most `packet.len()`.
#[inline]
pub(crate) fn ipv4_lengths(packet: &[u8]) -> Result<(usize, usize), Malformed> {
    if packet.len() < IPV4_HEADER_LEN || packet[0] >> 4 != 4 {
        return Err(Malformed);
    }
    let header = usize::from(packet[0] & 0xf) * 4;
    let total = usize::from(be16(packet, v4::TOTAL_LEN));
    if header < IPV4_HEADER_LEN || total < header || total > packet.len() {
        return Err(Malformed);
    }
    Ok((header, total))
}

/// Bytes of the whole IPv6 packet; at most `packet.len()`. A jumbogram (RFC 2675), which has its length
/// elsewhere, counts as malformed.
#[inline]
pub(crate) fn ipv6_length(packet: &[u8]) -> Result<usize, Malformed> {
    if packet.len() < IPV6_HEADER_LEN || packet[0] >> 4 != 6 {
        return Err(Malformed);
    }
    let payload = usize::from(be16(packet, v6::PAYLOAD_LEN));
    let jumbo = payload == 0 && packet[v6::NEXT_HEADER] == HOP_BY_HOP;
    if jumbo || IPV6_HEADER_LEN + payload > packet.len() {
        return Err(Malformed);
    }
    Ok(IPV6_HEADER_LEN + payload)
}

/// Bytes of the IP and transport headers that are known; at most `packet.len()`. A fragment counts as
/// having no transport header.
pub(crate) fn headers_len(packet: &[u8]) -> usize {
    let found = match packet.first().map(|first| first >> 4) {
        Some(4) if packet.len() >= IPV4_HEADER_LEN => {
            let network = usize::from(packet[0] & 0xf) * 4;
            let protocol = match be16(packet, v4::FRAGMENT) & v4::FRAGMENTED {
                0 => packet[v4::PROTOCOL],
                _ => return network.min(packet.len()),
            };
            network + transport_len(protocol, packet.get(network..))
        }
        Some(6) if packet.len() >= IPV6_HEADER_LEN => match ipv6_upper(packet) {
            Ok(upper) => upper.offset + transport_len(upper.protocol, packet.get(upper.offset..)),
            Err(Malformed) => IPV6_HEADER_LEN,
        },
        _ => 0,
    };
    found.min(packet.len())
}

fn transport_len(protocol: u8, segment: Option<&[u8]>) -> usize {
    match protocol {
        PROTOCOL_TCP => segment
            .and_then(|s| s.get(tcp::DATA_OFFSET))
            .map_or(0, |offset| usize::from(offset >> 4) * 4),
        PROTOCOL_UDP => UDP_HEADER_LEN,
        _ => 0,
    }
}

/// The header that follows the IPv6 extension headers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Upper {
    /// The protocol number.
    pub protocol: u8,
    /// Offset of the header in the packet.
    pub offset: usize,
    /// Offset of the destination address of the pseudo header.
    pub destination: usize,
}

/// Skips hop-by-hop options, destination options and routing headers. Returns the first other header.
///
/// With an unfinished routing header, the pseudo header has the last address of the route (RFC 8200, 8.1):
/// in type 2 (RFC 6275, 6.4) the only one, in type 4 (RFC 8754, 2) the first of the list. Other types
/// cannot be followed: the routing header itself is returned.
pub(crate) fn ipv6_upper(packet: &[u8]) -> Result<Upper, Malformed> {
    let mut upper = Upper {
        protocol: packet[v6::NEXT_HEADER],
        offset: IPV6_HEADER_LEN,
        destination: v6::DESTINATION,
    };
    while let HOP_BY_HOP | ROUTING | DESTINATION_OPTIONS = upper.protocol {
        let header = packet.get(upper.offset..).ok_or(Malformed)?;
        let [next, units, routing_type, left, ..] = *header else {
            return Err(Malformed);
        };
        let len = 8 + usize::from(units) * 8;
        if header.len() < len {
            return Err(Malformed);
        }
        if upper.protocol == ROUTING && left > 0 {
            if !matches!(routing_type, 2 | 4) || len < 24 {
                return Ok(upper);
            }
            upper.destination = upper.offset + 8;
        }
        upper.protocol = next;
        upper.offset += len;
    }
    Ok(upper)
}
