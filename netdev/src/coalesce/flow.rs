//! A frame during merging.

use std::io::IoSlice;

use zerocopy::IntoBytes;
use zerocopy::little_endian::U16;

use super::MAX_PACKETS;
use super::candidate::{Addresses, Candidate, FlowKey, Protocol, Version};
use crate::checksum::Sum;
use crate::ip::{ETHERNET_HEADER_LEN, IPV6_HEADER_LEN, be16, be32, put16, tcp, udp, v4, v6};
use crate::vnet::{
    FLAG_NEEDS_CSUM, GSO_ECN, GSO_TCPV4, GSO_TCPV6, GSO_UDP_L4, VNET_HEADER_LEN, VnetHeader,
};

/// Places for each flow: place 0 has the whole first packet, the others have payloads.
pub(super) const PLACES: usize = MAX_PACKETS;

/// The maximum lengths of an IP header without options and a TCP header together.
const MAX_HEADERS: usize = IPV6_HEADER_LEN + 60;
const HEAD_LEN: usize = VNET_HEADER_LEN + ETHERNET_HEADER_LEN + MAX_HEADERS;
const NETWORK: usize = VNET_HEADER_LEN + ETHERNET_HEADER_LEN;

/// The sequence of IPv4 identifications in a flow. Without fragments they have no meaning (RFC 6864), but
/// cutting must give the original packets. IPv6 packets, which have none, count as fixed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Ids {
    /// A single packet with "don't fragment": both are possible.
    Open,
    /// All are equal.
    Fixed,
    /// Each one is one more than the one before.
    Incrementing,
}

/// The result for a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Merge {
    /// Merged; the frame stays open.
    More,
    /// Merged; the frame is complete.
    Full,
    /// Not merged: the packet does not continue the frame.
    Unlike,
    /// Not merged: the frame's only packet has a wrong checksum.
    FirstIsBad,
    /// Not merged: the packet has a wrong checksum.
    Bad,
}

#[derive(Debug)]
pub(super) struct Flow {
    key: FlowKey,
    opened: u64,
    /// virtio-net, Ethernet, IP and transport header: those of the first packet until the frame is
    /// finished.
    head: [u8; HEAD_LEN],
    /// Bytes of IP and transport header.
    headers: usize,
    /// The first packet's checksums were verified; a packet that stays alone does not need this.
    verified: bool,
    ids: Ids,
    packets: usize,
    /// Payload bytes of each packet except the last.
    size: usize,
    /// Payload bytes of all packets.
    payload: usize,
    /// TCP flags of the last packet, for the frame.
    last_flags: u8,
}

impl Flow {
    pub(super) const fn empty() -> Flow {
        Flow {
            key: FlowKey {
                addresses: [0; 32],
                ports: [0; 4],
                protocol: Protocol::Tcp,
                version: Version::V4,
            },
            opened: 0,
            head: [0; HEAD_LEN],
            headers: 0,
            verified: false,
            ids: Ids::Open,
            packets: 0,
            size: 0,
            payload: 0,
            last_flags: 0,
        }
    }

    pub(super) fn key(&self) -> &FlowKey {
        &self.key
    }

    pub(super) fn addresses(&self) -> &Addresses {
        &self.key.addresses
    }

    pub(super) fn opened(&self) -> u64 {
        self.opened
    }

    pub(super) fn packets(&self) -> usize {
        self.packets
    }

    /// Starts a frame with its first packet.
    pub(super) fn begin(
        &mut self,
        ethernet: &[u8; ETHERNET_HEADER_LEN],
        first: &Candidate<'_>,
        opened: u64,
    ) {
        self.key = first.key;
        self.opened = opened;
        self.headers = first.headers;
        self.head[VNET_HEADER_LEN..NETWORK].copy_from_slice(ethernet);
        self.head[NETWORK..NETWORK + first.headers].copy_from_slice(&first.packet[..first.headers]);
        self.verified = first.verified;
        self.ids = match (first.key.version, first.dont_fragment()) {
            (Version::V6, _) => Ids::Fixed,
            (Version::V4, true) => Ids::Open,
            (Version::V4, false) => Ids::Incrementing,
        };
        self.packets = 1;
        self.size = first.payload().len();
        self.payload = self.size;
        self.last_flags = 0;
    }

    /// Appends the flow's next packet if it continues the frame. `places[0]` has the first packet.
    pub(super) fn merge<'b>(
        &mut self,
        ethernet: &[u8; ETHERNET_HEADER_LEN],
        next: &Candidate<'b>,
        max_frame: usize,
        places: &mut [&'b [u8]],
    ) -> Merge {
        let payload = next.payload();
        let fits =
            payload.len() <= self.size && self.headers + self.payload + payload.len() <= max_frame;
        let ids = self.continued_ids(next);
        if !fits || !self.is_like(ethernet, next) || ids.is_none() {
            return Merge::Unlike;
        }
        if !self.verified {
            let first = Candidate {
                packet: places[0],
                headers: self.headers,
                key: self.key,
                verified: false,
            };
            if !first.is_intact() {
                return Merge::FirstIsBad;
            }
            self.verified = true;
        }
        if !next.is_intact() {
            return Merge::Bad;
        }
        self.ids = ids.unwrap_or(self.ids);
        places[self.packets] = payload;
        self.packets += 1;
        self.payload += payload.len();
        if self.key.protocol == Protocol::Tcp {
            self.last_flags = next.transport()[tcp::FLAGS] & (tcp::PSH | tcp::FIN);
        }
        let full = payload.len() < self.size || next.is_last() || self.packets == places.len();
        if full { Merge::Full } else { Merge::More }
    }

    fn network(&self) -> &[u8] {
        &self.head[NETWORK..NETWORK + self.key.version.header_len()]
    }

    fn transport(&self) -> &[u8] {
        &self.head[NETWORK + self.key.version.header_len()..NETWORK + self.headers]
    }

    /// Whether the fields that must be constant in a frame equal those of the first packet, and a TCP
    /// segment is the next of the stream.
    fn is_like(&self, ethernet: &[u8; ETHERNET_HEADER_LEN], next: &Candidate<'_>) -> bool {
        let network = self.network();
        let same_network = match self.key.version {
            // Type of service with ECN, time to live, and the fragmentation bits.
            Version::V4 => {
                let other = next.network();
                network[1] == other[1]
                    && network[v4::TTL] == other[v4::TTL]
                    && be16(network, v4::FRAGMENT) == be16(other, v4::FRAGMENT)
            }
            // Traffic class with ECN, flow label, hop limit.
            Version::V6 => {
                let other = next.network();
                network[..4] == other[..4] && network[v6::HOP_LIMIT] == other[v6::HOP_LIMIT]
            }
        };
        same_network
            && self.head[VNET_HEADER_LEN..NETWORK] == ethernet[..]
            && match self.key.protocol {
                Protocol::Tcp => self.is_next_segment(next.transport()),
                Protocol::Udp => true,
            }
    }

    /// Whether a TCP header continues the first one: contiguous sequence, same acknowledgement and window,
    /// same options, no CWR, no change of flags except PSH and FIN.
    fn is_next_segment(&self, next: &[u8]) -> bool {
        let first = self.transport();
        let expected = be32(first, tcp::SEQUENCE).wrapping_add(self.payload as u32);
        let may_change = tcp::CWR | tcp::FIN | tcp::PSH;
        next.len() == first.len()
            && be32(next, tcp::SEQUENCE) == expected
            && next[tcp::ACK..=tcp::DATA_OFFSET] == first[tcp::ACK..=tcp::DATA_OFFSET]
            && next[tcp::FLAGS] & tcp::CWR == 0
            && (next[tcp::FLAGS] ^ first[tcp::FLAGS]) & !may_change == 0
            && next[tcp::WINDOW..tcp::CHECKSUM] == first[tcp::WINDOW..tcp::CHECKSUM]
            && next[tcp::URGENT..] == first[tcp::URGENT..]
    }

    /// The sequence of identifications with the next packet; `None` if it breaks the sequence.
    fn continued_ids(&self, next: &Candidate<'_>) -> Option<Ids> {
        let first = match self.key.version {
            Version::V4 => be16(self.network(), v4::ID),
            Version::V6 => 0,
        };
        let ids = match (self.ids, next.id().wrapping_sub(first)) {
            (Ids::Open, 0) => Ids::Fixed,
            (Ids::Open, _) => Ids::Incrementing,
            (ids, _) => ids,
        };
        // A frame has at most 64 packets.
        let expected = match ids {
            Ids::Incrementing => first.wrapping_add(self.packets as u16),
            Ids::Fixed | Ids::Open => first,
        };
        (next.id() == expected).then_some(ids)
    }

    /// Completes the headers and passes the frame to `give`.
    pub(super) fn frame(&mut self, places: &[&[u8]], give: impl FnOnce(&[IoSlice<'_>])) {
        if self.packets == 1 {
            self.head[..VNET_HEADER_LEN].copy_from_slice(VnetHeader::default().as_bytes());
            return give(&[IoSlice::new(&self.head[..NETWORK]), IoSlice::new(places[0])]);
        }
        self.finish_headers();
        let mut parts = [IoSlice::new(&[]); PLACES + 1];
        parts[0] = IoSlice::new(&self.head[..NETWORK + self.headers]);
        parts[1] = IoSlice::new(&places[0][self.headers..]);
        for (part, payload) in parts[2..].iter_mut().zip(&places[1..self.packets]) {
            *part = IoSlice::new(payload);
        }
        give(&parts[..=self.packets]);
    }

    /// Sets lengths and flags of the whole frame, the IPv4 checksum, and the partial transport checksum, to
    /// be completed when the frame is cut.
    fn finish_headers(&mut self) {
        let network_len = self.key.version.header_len();
        let transport_len = self.headers - network_len;
        // Both are at most 65535: `merge` limits the packet's length.
        let segment_len = transport_len + self.payload;
        let total = (network_len + segment_len) as u16;
        let pseudo = self.key.pseudo(segment_len).fold();
        let vnet = self.vnet(network_len);
        self.head[..VNET_HEADER_LEN].copy_from_slice(vnet.as_bytes());
        let (network, transport) = self.head[NETWORK..].split_at_mut(network_len);
        match self.key.version {
            Version::V4 => {
                put16(network, v4::TOTAL_LEN, total);
                put16(network, v4::CHECKSUM, 0);
                let checksum = Sum::of(network).finish();
                put16(network, v4::CHECKSUM, checksum);
            }
            Version::V6 => put16(network, v6::PAYLOAD_LEN, segment_len as u16),
        }
        match self.key.protocol {
            Protocol::Tcp => {
                transport[tcp::FLAGS] |= self.last_flags;
                put16(transport, tcp::CHECKSUM, pseudo);
            }
            Protocol::Udp => {
                put16(transport, udp::LEN, segment_len as u16);
                put16(transport, udp::CHECKSUM, pseudo);
            }
        }
    }

    fn vnet(&self, network_len: usize) -> VnetHeader {
        let (gso_type, csum_offset) = match (self.key.protocol, self.key.version) {
            (Protocol::Tcp, Version::V4) => (GSO_TCPV4 | self.ecn(), tcp::CHECKSUM),
            (Protocol::Tcp, Version::V6) => (GSO_TCPV6 | self.ecn(), tcp::CHECKSUM),
            (Protocol::Udp, _) => (GSO_UDP_L4, udp::CHECKSUM),
        };
        // All numbers are below 65536: header lengths, and parts of a packet.
        let number = |n: usize| U16::new(n as u16);
        VnetHeader {
            flags: FLAG_NEEDS_CSUM,
            gso_type,
            hdr_len: number(ETHERNET_HEADER_LEN + self.headers),
            gso_size: number(self.size),
            csum_start: number(ETHERNET_HEADER_LEN + network_len),
            csum_offset: number(csum_offset),
            num_buffers: U16::ZERO,
        }
    }

    /// The ECN flag; only the first packet can carry CWR.
    fn ecn(&self) -> u8 {
        if self.transport()[tcp::FLAGS] & tcp::CWR != 0 {
            GSO_ECN
        } else {
            0
        }
    }
}
