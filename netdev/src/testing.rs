//! Packets for tests, each built from its fields by etherparse: the reference for cutting and merging.

use etherparse::{
    IpNumber, Ipv4Header, Ipv4Options, Ipv6FlowLabel, Ipv6Header, SlicedPacket, TcpHeader,
    TransportSlice, UdpHeader,
};
use proptest::prelude::*;
use smoltcp::wire::{IpAddress, Ipv4Address, Ipv4Packet, Ipv6Address, TcpPacket, UdpPacket};
use zerocopy::little_endian::U16;

use crate::ip::{ETHERNET_HEADER_LEN, tcp};
use crate::vnet::{FLAG_NEEDS_CSUM, GSO_ECN, GSO_TCPV4, GSO_TCPV6, GSO_UDP_L4, VnetHeader};

pub const MACS: [u8; 12] = [2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2];

/// The fields of a TCP or UDP packet of any size.
#[derive(Clone, Debug, PartialEq)]
pub struct Model {
    pub v6: bool,
    pub tcp: bool,
    pub tos: u8,
    pub ttl: u8,
    pub df: bool,
    pub id: u16,
    pub flow_label: u32,
    pub ip_options: Vec<u8>,
    pub extensions: Extensions,
    pub source: [u8; 16],
    pub destination: [u8; 16],
    pub ports: [u16; 2],
    pub sequence: u32,
    pub ack: u32,
    pub flags: u8,
    pub window: u16,
    pub tcp_options: Vec<u8>,
    pub payload: Vec<u8>,
}

/// The IPv6 extension headers of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Default)]
pub struct Extensions {
    pub hop_by_hop: bool,
    /// A segment routing header with one segment left; the last address of its route.
    pub route_to: Option<[u8; 16]>,
    pub destination_options: bool,
}

/// The contents of the transport checksum field.
#[derive(Clone, Copy, PartialEq)]
enum Checksum {
    Complete,
    PseudoHeader,
}

impl Model {
    pub fn tcp_v4(payload: usize) -> Model {
        Model {
            v6: false,
            tcp: true,
            tos: 0,
            ttl: 64,
            df: true,
            id: 0xfffe,
            flow_label: 0,
            ip_options: vec![],
            extensions: Extensions::default(),
            source: [10; 16],
            destination: [11; 16],
            ports: [40000, 5201],
            sequence: 0xffff_f000,
            ack: 77,
            flags: tcp::ACK_FLAG,
            window: 502,
            tcp_options: vec![1, 1, 8, 10, 0, 0, 1, 2, 0, 0, 3, 4],
            payload: (0..payload).map(|i| (i * 7 + i / 251) as u8).collect(),
        }
    }

    pub fn tcp_v6(payload: usize) -> Model {
        Model {
            v6: true,
            id: 0,
            flow_label: 0x12345,
            ..Model::tcp_v4(payload)
        }
    }

    pub fn udp_v4(payload: usize) -> Model {
        Model {
            tcp: false,
            ..Model::tcp_v4(payload)
        }
    }

    pub fn udp_v6(payload: usize) -> Model {
        Model {
            tcp: false,
            ..Model::tcp_v6(payload)
        }
    }

    pub fn ethernet(&self) -> [u8; ETHERNET_HEADER_LEN] {
        let mut header = [0; ETHERNET_HEADER_LEN];
        header[..12].copy_from_slice(&MACS);
        header[12..].copy_from_slice(if self.v6 { &[0x86, 0xdd] } else { &[8, 0] });
        header
    }

    /// The packet with complete checksums.
    pub fn packet(&self) -> Vec<u8> {
        self.build(Checksum::Complete)
    }

    /// The frame as read from the TAP, with a partial transport checksum.
    pub fn frame(&self) -> Vec<u8> {
        [&self.ethernet()[..], &self.build(Checksum::PseudoHeader)].concat()
    }

    /// The virtio-net header of [`Model::frame`] that requests segments of `size` bytes.
    pub fn vnet(&self, size: usize) -> VnetHeader {
        let gso_type = match (self.tcp, self.v6) {
            (true, false) => GSO_TCPV4,
            (true, true) => GSO_TCPV6,
            (false, _) => GSO_UDP_L4,
        };
        let ecn = if self.tcp && self.flags & tcp::CWR != 0 {
            GSO_ECN
        } else {
            0
        };
        VnetHeader {
            gso_type: gso_type | ecn,
            gso_size: U16::new(size as u16),
            hdr_len: U16::new((14 + self.network_len() + self.transport_len()) as u16),
            ..self.vnet_whole()
        }
    }

    /// The virtio-net header of [`Model::frame`] that requests a checksum only.
    pub fn vnet_whole(&self) -> VnetHeader {
        VnetHeader {
            flags: FLAG_NEEDS_CSUM,
            csum_start: U16::new((14 + self.network_len()) as u16),
            csum_offset: U16::new(if self.tcp { 16 } else { 6 }),
            ..VnetHeader::default()
        }
    }

    pub fn headers_len(&self) -> usize {
        self.network_len() + self.transport_len()
    }

    /// The packets that the kernel would cut, each built from its fields.
    pub fn cut(&self, size: usize) -> Vec<Vec<u8>> {
        let count = self.payload.len().div_ceil(size).max(1);
        (0..count)
            .map(|i| {
                let from = i * size;
                let to = self.payload.len().min(from + size);
                let mut flags = self.flags;
                if i > 0 {
                    flags &= !tcp::CWR;
                }
                if i + 1 < count {
                    flags &= !(tcp::FIN | tcp::PSH);
                }
                Model {
                    id: self.id.wrapping_add(i as u16),
                    sequence: self.sequence.wrapping_add(from as u32),
                    flags,
                    payload: self.payload[from..to].to_vec(),
                    ..self.clone()
                }
                .packet()
            })
            .collect()
    }

    fn network_len(&self) -> usize {
        let extensions = self.extension_bytes(0).1.len();
        if self.v6 {
            40 + extensions
        } else {
            20 + self.ip_options.len()
        }
    }

    fn transport_len(&self) -> usize {
        if self.tcp {
            20 + self.tcp_options.len()
        } else {
            8
        }
    }

    /// The first next-header value and the extension headers.
    fn extension_bytes(&self, upper: u8) -> (u8, Vec<u8>) {
        let e = &self.extensions;
        let mut chain: Vec<(u8, Vec<u8>)> = vec![];
        if e.hop_by_hop {
            chain.push((0, vec![0, 0, 1, 4, 0, 0, 0, 0]));
        }
        if let Some(last) = e.route_to {
            let mut header = vec![0, 4, 4, 1, 1, 0, 0, 0];
            header.extend(last);
            header.extend(self.destination);
            chain.push((43, header));
        }
        if e.destination_options {
            chain.push((60, [&[0, 1, 1, 12][..], &[0; 12]].concat()));
        }
        let mut next = upper;
        let mut bytes = vec![];
        for (number, mut header) in chain.into_iter().rev() {
            header[0] = next;
            next = number;
            header.extend(bytes);
            bytes = header;
        }
        (next, bytes)
    }

    fn build(&self, checksum: Checksum) -> Vec<u8> {
        let transport = self.transport(checksum);
        let body_len = transport.len() + self.payload.len();
        let mut packet = if self.v6 {
            self.ipv6(body_len)
        } else {
            self.ipv4(body_len)
        };
        packet.extend(transport);
        packet.extend(&self.payload);
        packet
    }

    fn ipv4(&self, body_len: usize) -> Vec<u8> {
        let mut header = Ipv4Header {
            dscp: (self.tos >> 2).try_into().unwrap(),
            ecn: (self.tos & 3).try_into().unwrap(),
            total_len: (20 + self.ip_options.len() + body_len) as u16,
            identification: self.id,
            dont_fragment: self.df,
            time_to_live: self.ttl,
            protocol: IpNumber(self.protocol()),
            source: self.v4(self.source),
            destination: self.v4(self.destination),
            options: Ipv4Options::try_from(&self.ip_options[..]).unwrap(),
            ..Ipv4Header::default()
        };
        header.header_checksum = header.calc_header_checksum();
        header.to_bytes().to_vec()
    }

    fn ipv6(&self, body_len: usize) -> Vec<u8> {
        let (next, extensions) = self.extension_bytes(self.protocol());
        let header = Ipv6Header {
            traffic_class: self.tos,
            flow_label: Ipv6FlowLabel::try_new(self.flow_label).unwrap(),
            payload_length: (extensions.len() + body_len) as u16,
            next_header: IpNumber(next),
            hop_limit: self.ttl,
            source: self.source,
            destination: self.destination,
        };
        [&header.to_bytes()[..], &extensions].concat()
    }

    fn protocol(&self) -> u8 {
        if self.tcp { 6 } else { 17 }
    }

    fn v4(&self, address: [u8; 16]) -> [u8; 4] {
        [address[0], address[1], address[2], address[3]]
    }

    fn transport(&self, checksum: Checksum) -> Vec<u8> {
        let (src, dst) = (self.v4(self.source), self.v4(self.destination));
        let last = self.extensions.route_to.unwrap_or(self.destination);
        let body = &self.payload[..];
        let (mut bytes, complete) = if self.tcp {
            let header = self.tcp_header();
            let sum = if self.v6 {
                header.calc_checksum_ipv6_raw(self.source, last, body)
            } else {
                header.calc_checksum_ipv4_raw(src, dst, body)
            };
            (header.to_bytes().to_vec(), sum.unwrap())
        } else {
            let header = UdpHeader {
                source_port: self.ports[0],
                destination_port: self.ports[1],
                length: (8 + body.len()) as u16,
                checksum: 0,
            };
            let sum = if self.v6 {
                header.calc_checksum_ipv6_raw(self.source, last, body)
            } else {
                header.calc_checksum_ipv4_raw(src, dst, body)
            };
            (header.to_bytes().to_vec(), sum.unwrap())
        };
        let value = match checksum {
            Checksum::Complete => complete,
            Checksum::PseudoHeader => self.pseudo(bytes.len() + body.len()),
        };
        let at = if self.tcp { 16 } else { 6 };
        bytes[at..at + 2].copy_from_slice(&value.to_be_bytes());
        bytes
    }

    fn tcp_header(&self) -> TcpHeader {
        let flag = |bit| self.flags & bit != 0;
        let mut header = TcpHeader {
            source_port: self.ports[0],
            destination_port: self.ports[1],
            sequence_number: self.sequence,
            acknowledgment_number: self.ack,
            fin: flag(tcp::FIN),
            syn: flag(tcp::SYN),
            rst: flag(tcp::RST),
            psh: flag(tcp::PSH),
            ack: flag(tcp::ACK_FLAG),
            urg: flag(tcp::URG),
            ece: flag(0x40),
            cwr: flag(tcp::CWR),
            window_size: self.window,
            ..TcpHeader::default()
        };
        header.set_options_raw(&self.tcp_options).unwrap();
        header
    }

    /// The sum of the pseudo header, word by word.
    fn pseudo(&self, len: usize) -> u16 {
        let last = self.extensions.route_to.unwrap_or(self.destination);
        let n = if self.v6 { 16 } else { 4 };
        let mut words = [&self.source[..n], &last[..n]].concat();
        words.extend([0, self.protocol()]);
        words.extend((len as u16).to_be_bytes());
        let mut sum = 0u32;
        for word in words.chunks(2) {
            sum += u32::from(word[0]) << 8 | u32::from(word[1]);
            sum = (sum & 0xffff) + (sum >> 16);
        }
        sum as u16
    }
}

/// Checks a packet with two other implementations: etherparse parses it, smoltcp verifies its checksums.
pub fn assert_well_formed(packet: &[u8]) {
    let sliced = SlicedPacket::from_ip(packet).expect("a packet that parses");
    let (header_len, end) = match sliced.transport.as_ref().expect("a transport header") {
        TransportSlice::Tcp(t) => (t.slice().len(), t.slice().as_ptr()),
        TransportSlice::Udp(u) => (u.slice().len(), u.slice().as_ptr()),
        other => panic!("neither TCP nor UDP: {other:?}"),
    };
    assert!(header_len > 0);
    let offset = end as usize - packet.as_ptr() as usize;
    let (source, destination): (IpAddress, IpAddress) = if packet[0] >> 4 == 4 {
        assert!(Ipv4Packet::new_checked(packet).unwrap().verify_checksum());
        assert_eq!(
            usize::from(u16::from_be_bytes([packet[2], packet[3]])),
            packet.len()
        );
        let four = |at: usize| {
            Ipv4Address::new(packet[at], packet[at + 1], packet[at + 2], packet[at + 3]).into()
        };
        (four(12), four(16))
    } else {
        assert_eq!(
            usize::from(u16::from_be_bytes([packet[4], packet[5]])) + 40,
            packet.len()
        );
        let sixteen = |at: usize| {
            Ipv6Address::from(<[u8; 16]>::try_from(&packet[at..at + 16]).unwrap()).into()
        };
        (sixteen(8), sixteen(final_destination(packet)))
    };
    let segment = &packet[offset..];
    match sliced.transport {
        Some(TransportSlice::Tcp(_)) => {
            assert!(
                TcpPacket::new_checked(segment)
                    .unwrap()
                    .verify_checksum(&source, &destination)
            );
        }
        _ => {
            let udp = UdpPacket::new_checked(segment).unwrap();
            assert_eq!(usize::from(udp.len()), segment.len());
            assert_ne!(udp.checksum(), 0);
            assert!(udp.verify_checksum(&source, &destination));
        }
    }
}

/// Offset of the destination address in the pseudo header; supports the headers of [`Extensions`].
fn final_destination(packet: &[u8]) -> usize {
    match (packet[6], packet[40]) {
        (43, _) => 48,
        (0, 43) => 56,
        _ => 24,
    }
}

/// Any TCP or UDP packet with up to `max_payload` bytes, without options or extension headers of IP.
pub fn plain_model(max_payload: usize) -> impl Strategy<Value = Model> {
    let network = (
        any::<[bool; 3]>(),
        any::<u8>(),
        any::<u8>(),
        any::<u16>(),
        0u32..1 << 20,
    );
    let addresses = (any::<[u8; 16]>(), any::<[u8; 16]>(), any::<[u16; 2]>());
    let stream = (
        any::<u32>(),
        any::<u32>(),
        any::<u8>(),
        any::<u16>(),
        0usize..=10,
    );
    let payload = (0..=max_payload, any::<u32>());
    (network, addresses, stream, payload).prop_map(|(n, a, s, (len, seed))| Model {
        v6: n.0[0],
        tcp: n.0[1],
        df: n.0[2],
        tos: n.1,
        ttl: n.2,
        id: n.3,
        flow_label: n.4,
        ip_options: vec![],
        extensions: Extensions::default(),
        source: a.0,
        destination: a.1,
        ports: a.2,
        sequence: s.0,
        ack: s.1,
        flags: s.2,
        window: s.3,
        tcp_options: vec![1; s.4 * 4],
        payload: noise(len, seed),
    })
}

/// `len` pseudo-random bytes.
pub fn noise(len: usize, seed: u32) -> Vec<u8> {
    let mut state = seed | 1;
    (0..len)
        .map(|_| {
            state ^= state << 13;
            state ^= state >> 17;
            state ^= state << 5;
            state as u8
        })
        .collect()
}

/// As [`plain_model`], with IP options and extension headers.
pub fn model(max_payload: usize) -> impl Strategy<Value = Model> {
    let extensions = (any::<bool>(), any::<Option<[u8; 16]>>(), any::<bool>());
    (plain_model(max_payload), 0usize..=10, extensions).prop_map(|(m, options, e)| {
        let (ip_options, extensions) = if m.v6 {
            let (hop_by_hop, route_to, destination_options) = e;
            (
                vec![],
                Extensions {
                    hop_by_hop,
                    route_to,
                    destination_options,
                },
            )
        } else {
            (vec![1; options * 4], Extensions::default())
        };
        Model {
            ip_options,
            extensions,
            ..m
        }
    })
}
