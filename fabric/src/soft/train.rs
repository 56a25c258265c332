//! Building packets: BTH, DETH, pad and ICRC are written around payloads that lie side by side.
//!
//! One packet of a train, in bytes: BTH 12, DETH 8, payload, pad 0 to 3, ICRC 4. All packets but
//! the last have the same length, so the bytes of a train are what a UDP_SEGMENT send takes.

use std::net::SocketAddr;

use zerocopy::IntoBytes;
use zerocopy::big_endian::{U16, U32};

use super::icrc::Prefix;
use super::wire::{Bth, Deth, ICRC_LEN, ROCE_V2_PORT, opcode, pad_count};
use crate::types::{PKey, Psn, QKey, Qpn};
use crate::worker::TrainTicket;

/// Bytes in front of a UD payload.
pub const HEAD: usize = size_of::<Bth>() + size_of::<Deth>();

/// Bytes of a UDP header.
const UDP_HEADER_LEN: usize = 8;

/// Packets that one UDP_SEGMENT send takes on every kernel (include/linux/udp.h,
/// UDP_MAX_SEGMENTS, before 6.9) and that UDP_GRO merges (net/ipv4/udp_offload.c).
pub const PACKETS_MAX: usize = 64;

/// The place of the byte with FECN, BECN and reserved bits, which the ICRC takes as ones (IBA
/// vol. 1, annex A17.3.3).
const MASKED: usize = 4;

/// The place of PadCnt's byte.
const FLAGS: usize = 1;

/// Bytes on the UDP level of one packet with a payload of `len` bytes.
pub const fn packet_len(len: usize) -> usize {
    HEAD + len + (len.wrapping_neg() & 3) + ICRC_LEN
}

/// How many packets of `payload` bytes fit a send of `send_max` bytes; at least one.
pub const fn capacity(payload: usize, send_max: usize) -> usize {
    let fit = send_max / packet_len(payload);
    if fit == 0 {
        1
    } else if fit > PACKETS_MAX {
        PACKETS_MAX
    } else {
        fit
    }
}

/// What all packets of a train have in common.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Header {
    /// The sender's P_Key.
    pub pkey: PKey,
    /// The destination queue pair.
    pub dest_qp: Qpn,
    /// The Q_Key that goes out.
    pub qkey: QKey,
    /// The sending queue pair.
    pub src_qp: Qpn,
}

impl Header {
    fn to_bytes(self, psn: Psn) -> [u8; HEAD] {
        let [_, p0, p1, p2] = psn.get().to_be_bytes();
        let bth = Bth {
            opcode: opcode::UD_SEND_ONLY,
            flags: 0,
            pkey: U16::new(self.pkey.get()),
            fecn_becn: 0xff,
            dest_qp: self.dest_qp.to_bytes(),
            ack_req: 0,
            psn: [p0, p1, p2],
        };
        let deth = Deth {
            qkey: U32::new(self.qkey.get()),
            reserved: 0,
            src_qp: self.src_qp.to_bytes(),
        };
        let mut bytes = [0; HEAD];
        bytes[..size_of::<Bth>()].copy_from_slice(bth.as_bytes());
        bytes[size_of::<Bth>()..].copy_from_slice(deth.as_bytes());
        bytes
    }
}

/// The IPv4 identification that the packets of a train will get; IPv6 has none.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ipv4Id {
    /// Segment `k` of a UDP_SEGMENT send gets `k` (net/ipv4/af_inet.c, `inet_gso_segment`).
    Segment,
    /// Datagrams of their own with DF set from an unconnected socket get 0 (include/net/ip.h,
    /// `ip_select_ident_segs`).
    Zero,
}

/// The addresses that the ICRC covers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Route {
    /// The sender's address and port.
    pub source: SocketAddr,
    /// The destination; its port is the RoCEv2 port.
    pub destination: std::net::IpAddr,
    /// What IPv4 will say.
    pub ids: Ipv4Id,
}

impl Route {
    /// The ICRC over everything in front of the BTH, of packet `k` of a train; `None` if the two
    /// addresses are of different families.
    fn prefix(&self, transport_len: usize, k: usize) -> Option<Prefix> {
        let port = self.source.port();
        let udp_len = (UDP_HEADER_LEN + transport_len) as u16;
        match (self.source, self.destination) {
            (SocketAddr::V6(s), std::net::IpAddr::V6(d)) => Some(Prefix::ipv6(
                &s.ip().octets(),
                &d.octets(),
                port,
                ROCE_V2_PORT,
                udp_len,
            )),
            (SocketAddr::V4(s), std::net::IpAddr::V4(d)) => {
                let id = match self.ids {
                    Ipv4Id::Segment => k as u16,
                    Ipv4Id::Zero => 0,
                };
                Some(Prefix::ipv4(
                    s.ip().octets(),
                    d.octets(),
                    port,
                    ROCE_V2_PORT,
                    udp_len,
                    id,
                ))
            }
            _ => None,
        }
    }

    /// Whether every packet of one length has the same prefix.
    fn is_uniform(&self) -> bool {
        self.source.is_ipv6() || self.ids == Ipv4Id::Zero
    }
}

/// Writes the headers, pads and ICRCs of the train in `memory`; gives the bytes of all its
/// packets. `None`, with nothing sealed, if the train is empty or larger than `memory`, or if the
/// route mixes address families.
pub fn seal(
    memory: &mut [u8],
    train: &TrainTicket,
    header: &Header,
    psn: Psn,
    route: &Route,
) -> Option<usize> {
    let stride = packet_len(train.payload);
    let total = train.count.checked_sub(1)? * stride + packet_len(train.last);
    let memory = memory.get_mut(..total)?;
    let full = route.prefix(stride, 0)?;
    let mut head = header.to_bytes(psn);
    for (k, packet) in memory.chunks_mut(stride).enumerate() {
        let len = if k + 1 == train.count {
            train.last
        } else {
            train.payload
        };
        let prefix = if route.is_uniform() && len == train.payload {
            full
        } else {
            route.prefix(packet.len(), k)?
        };
        head[9..12].copy_from_slice(&psn.advance(k as u32).get().to_be_bytes()[1..]);
        seal_packet(packet, len, &mut head, prefix);
    }
    Some(total)
}

fn seal_packet(packet: &mut [u8], len: usize, head: &mut [u8; HEAD], prefix: Prefix) {
    head[FLAGS] = pad_count(len) << 4;
    let (covered, icrc) = packet.split_at_mut(packet.len() - ICRC_LEN);
    covered[..HEAD].copy_from_slice(head);
    covered[HEAD + len..].fill(0);
    icrc.copy_from_slice(&prefix.finish(covered));
    covered[MASKED] = 0;
}
