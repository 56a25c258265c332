//! Cuts a TCP or UDP super-packet.

use super::SegmentError;
use crate::checksum::{Sum, pseudo_header};
use crate::ip::{
    self, ETHERNET_HEADER_LEN, IPV6_HEADER_LEN, TCP_HEADER_LEN, UDP_HEADER_LEN, be16, be32, put16,
    tcp, udp, v4, v6,
};
use crate::vnet::{GsoKind, PartialChecksum};

/// Maximum number of datagrams in a UDP super-packet: Linux's limit (include/linux/udp.h,
/// `UDP_MAX_SEGMENTS`).
const DATAGRAMS_MAX: usize = 128;

/// Payload bytes of the smallest TCP segments for a super-packet of 64 KiB: Linux takes no maximum segment
/// size below 88 bytes from a peer (include/net/tcp.h, `TCP_MIN_MSS`), and 40 of the bytes may be options.
const SEGMENT_MIN: usize = 48;

/// Maximum number of segments in a TCP super-packet.
const SEGMENTS_MAX: usize = 65535usize.div_ceil(SEGMENT_MIN);

/// A super-packet and the progress of cutting it.
#[derive(Clone, Debug)]
pub(super) struct Cut<'a> {
    /// The original IP and transport header.
    headers: &'a [u8],
    /// The payload still to be written.
    payload: &'a [u8],
    /// Payload bytes of every packet except the last.
    size: usize,
    network: Network,
    /// Bytes of IP header, options and extension headers.
    network_len: usize,
    transport: Transport,
    /// The sum of the constant part: pseudo header without the length, and transport header without the
    /// fields of [`Transport`].
    transport_sum: Sum,
}

#[derive(Clone, Copy, Debug)]
enum Network {
    V4 {
        /// Identification of the next packet.
        id: u16,
        /// The sum of the header without total length, identification and checksum.
        header_sum: Sum,
    },
    V6,
}

#[derive(Clone, Copy, Debug)]
enum Transport {
    Tcp {
        /// Sequence number of the next packet.
        sequence: u32,
        /// The flags for the last packet.
        flags: u8,
        /// The byte before the flags: data offset and reserved bits.
        data_offset: u8,
    },
    Udp,
}

/// The end of the headers, and the addresses of the pseudo header.
struct Layout {
    protocol: u8,
    network_len: usize,
    source: usize,
    destination: usize,
    address_len: usize,
}

impl<'a> Cut<'a> {
    /// `packet` is an IP packet with checked length, of the IP version in `kind`.
    pub(super) fn new(
        kind: GsoKind,
        packet: &'a [u8],
        size: usize,
        checksum: Option<PartialChecksum>,
        mtu: usize,
    ) -> Result<Cut<'a>, SegmentError> {
        let is_v4 = packet[0] >> 4 == 4;
        let layout = if is_v4 {
            layout_v4(packet)?
        } else {
            layout_v6(packet)?
        };
        let expected = match kind {
            GsoKind::TcpV4 | GsoKind::TcpV6 => ip::PROTOCOL_TCP,
            GsoKind::UdpL4 => ip::PROTOCOL_UDP,
        };
        if layout.protocol != expected {
            return Err(SegmentError::NotSegmentable);
        }
        let network_len = layout.network_len;
        let transport = Transport::of(layout.protocol, &packet[network_len..])?;
        let (field, transport_len) = match transport {
            Transport::Tcp { data_offset, .. } => {
                (tcp::CHECKSUM, usize::from(data_offset >> 4) * 4)
            }
            Transport::Udp => (udp::CHECKSUM, UDP_HEADER_LEN),
        };
        check_place(checksum, network_len, field)?;
        let (headers, payload) = packet.split_at(network_len + transport_len);
        let size = fit(transport, headers.len(), payload.len(), size, mtu)?;
        let pseudo = pseudo_header(
            &packet[layout.source..][..layout.address_len],
            &packet[layout.destination..][..layout.address_len],
            layout.protocol,
            0,
        );
        let network = if is_v4 {
            Network::v4(&packet[..network_len])
        } else {
            Network::V6
        };
        Ok(Cut {
            headers,
            payload,
            size,
            network,
            network_len,
            transport,
            transport_sum: pseudo.plus(transport.constant_sum(&headers[network_len..])),
        })
    }

    pub(super) fn full_len(&self) -> usize {
        self.headers.len() + self.size
    }

    pub(super) fn remaining(&self) -> usize {
        match self.size {
            // A super-packet without payload is one packet.
            0 => 1,
            size => self.payload.len().div_ceil(size),
        }
    }

    pub(super) fn next_len(&self) -> usize {
        self.headers.len() + self.payload.len().min(self.size)
    }

    pub(super) fn last_len(&self) -> usize {
        let before = self.remaining().saturating_sub(1) * self.size;
        self.headers.len() + self.payload.len().saturating_sub(before)
    }

    /// Bytes of IP and transport header.
    pub(super) fn headers_len(&self) -> usize {
        self.headers.len()
    }

    /// Bytes of payload still to be written.
    pub(super) fn payload_len(&self) -> usize {
        self.payload.len()
    }

    /// The next packet's payload.
    pub(super) fn next_payload(&self) -> &'a [u8] {
        &self.payload[..self.payload.len().min(self.size)]
    }

    /// Writes the next packet to `out`, which has its length. Returns whether another one follows.
    #[inline]
    pub(super) fn write_next(&mut self, out: &mut [u8]) -> bool {
        let (head, body) = out.split_at_mut(self.headers.len());
        let payload_sum = Sum::of_copy(body, self.next_payload());
        self.write_headers(head, payload_sum)
    }

    /// Writes the headers of the next packet to `head`, which has their length, and advances. `payload_sum`
    /// is the sum of the packet's payload. Returns whether another packet follows.
    #[inline]
    pub(super) fn write_headers(&mut self, head: &mut [u8], payload_sum: Sum) -> bool {
        let (now, later) = self.payload.split_at(self.payload.len().min(self.size));
        let last = later.is_empty();
        head.copy_from_slice(self.headers);
        let (network, transport) = head.split_at_mut(self.network_len);
        // At most 65535, the limit of the uncut packet.
        let transport_len = (transport.len() + now.len()) as u16;
        let sum = self.transport_sum.plus(payload_sum).word(transport_len);
        self.transport.patch(transport, sum, transport_len, last);
        self.network.patch(network, transport_len);
        self.transport.advance(now.len());
        self.network.advance();
        self.payload = later;
        !last
    }
}

impl Network {
    fn v4(header: &[u8]) -> Network {
        // Adding the complement of a word subtracts it.
        let without = [v4::TOTAL_LEN, v4::ID, v4::CHECKSUM];
        let header_sum = without
            .iter()
            .fold(Sum::of(header), |sum, at| sum.word(!be16(header, *at)));
        Network::V4 {
            id: be16(header, v4::ID),
            header_sum,
        }
    }

    #[inline]
    fn patch(&self, header: &mut [u8], transport_len: u16) {
        match *self {
            Network::V4 { id, header_sum } => {
                let total = header.len() as u16 + transport_len;
                put16(header, v4::TOTAL_LEN, total);
                put16(header, v4::ID, id);
                put16(
                    header,
                    v4::CHECKSUM,
                    header_sum.word(total).word(id).finish(),
                );
            }
            Network::V6 => {
                let extensions = (header.len() - IPV6_HEADER_LEN) as u16;
                put16(header, v6::PAYLOAD_LEN, extensions + transport_len);
            }
        }
    }

    fn advance(&mut self) {
        if let Network::V4 { id, .. } = self {
            *id = id.wrapping_add(1);
        }
    }
}

impl Transport {
    /// Maximum number of packets that a frame may request.
    const fn packets_max(self) -> usize {
        match self {
            Transport::Tcp { .. } => SEGMENTS_MAX,
            Transport::Udp => DATAGRAMS_MAX,
        }
    }

    /// `segment` is everything after the IP header.
    fn of(protocol: u8, segment: &[u8]) -> Result<Transport, SegmentError> {
        if protocol == ip::PROTOCOL_UDP {
            if segment.len() < UDP_HEADER_LEN {
                return Err(SegmentError::Malformed);
            }
            return Ok(Transport::Udp);
        }
        if segment.len() < TCP_HEADER_LEN {
            return Err(SegmentError::Malformed);
        }
        let data_offset = segment[tcp::DATA_OFFSET];
        let header = usize::from(data_offset >> 4) * 4;
        if header < TCP_HEADER_LEN || header > segment.len() {
            return Err(SegmentError::Malformed);
        }
        Ok(Transport::Tcp {
            sequence: be32(segment, tcp::SEQUENCE),
            flags: segment[tcp::FLAGS],
            data_offset,
        })
    }

    /// The sum of the header without the fields that change.
    fn constant_sum(self, header: &[u8]) -> Sum {
        let without: &[usize] = match self {
            Transport::Tcp { .. } => &[
                tcp::SEQUENCE,
                tcp::SEQUENCE + 2,
                tcp::DATA_OFFSET,
                tcp::CHECKSUM,
            ],
            Transport::Udp => &[udp::LEN, udp::CHECKSUM],
        };
        without
            .iter()
            .fold(Sum::of(header), |sum, at| sum.word(!be16(header, *at)))
    }

    /// Writes the changing fields; `sum` covers all others.
    #[inline]
    fn patch(&self, header: &mut [u8], sum: Sum, transport_len: u16, last: bool) {
        match *self {
            Transport::Tcp {
                sequence,
                flags,
                data_offset,
            } => {
                let flags = if last {
                    flags
                } else {
                    flags & !(tcp::FIN | tcp::PSH)
                };
                header[tcp::SEQUENCE..tcp::SEQUENCE + 4].copy_from_slice(&sequence.to_be_bytes());
                header[tcp::FLAGS] = flags;
                let sum = sum
                    .word32(sequence)
                    .word(u16::from_be_bytes([data_offset, flags]));
                put16(header, tcp::CHECKSUM, sum.finish());
            }
            Transport::Udp => {
                put16(header, udp::LEN, transport_len);
                put16(
                    header,
                    udp::CHECKSUM,
                    sum.word(transport_len).finish_nonzero(),
                );
            }
        }
    }

    fn advance(&mut self, payload: usize) {
        if let Transport::Tcp {
            sequence, flags, ..
        } = self
        {
            *sequence = sequence.wrapping_add(payload as u32);
            *flags &= !tcp::CWR;
        }
    }
}

fn layout_v4(packet: &[u8]) -> Result<Layout, SegmentError> {
    if be16(packet, v4::FRAGMENT) & v4::FRAGMENTED != 0 {
        return Err(SegmentError::NotSegmentable);
    }
    Ok(Layout {
        protocol: packet[v4::PROTOCOL],
        network_len: ip::ipv4_lengths(packet)?.0,
        source: v4::SOURCE,
        destination: v4::DESTINATION,
        address_len: 4,
    })
}

fn layout_v6(packet: &[u8]) -> Result<Layout, SegmentError> {
    let upper = ip::ipv6_upper(packet)?;
    Ok(Layout {
        protocol: upper.protocol,
        network_len: upper.offset,
        source: v6::SOURCE,
        destination: upper.destination,
        address_len: 16,
    })
}

/// Checks that the virtio-net header requests the checksum of this transport header; in a frame of a tunnel
/// it is that of the inner header.
fn check_place(
    checksum: Option<PartialChecksum>,
    network_len: usize,
    field: usize,
) -> Result<(), SegmentError> {
    let start = ETHERNET_HEADER_LEN + network_len;
    let found = PartialChecksum {
        start,
        field: start + field,
    };
    match checksum {
        Some(asked) if asked != found => Err(SegmentError::ChecksumPlace),
        _ => Ok(()),
    }
}

/// Payload bytes of every packet except the last. A smaller MTU cuts TCP into more packets; a UDP datagram
/// cannot be cut further.
fn fit(
    transport: Transport,
    headers: usize,
    payload: usize,
    size: usize,
    mtu: usize,
) -> Result<usize, SegmentError> {
    let packets = payload.div_ceil(size);
    if packets > transport.packets_max() {
        return Err(SegmentError::TooMany { packets });
    }
    let size = size.min(payload);
    let largest = headers + size;
    let room = mtu.saturating_sub(headers);
    match transport {
        _ if largest <= mtu => Ok(size),
        Transport::Tcp { .. } if room > 0 => Ok(size.min(room)),
        _ => Err(SegmentError::TooBig { len: largest }),
    }
}
