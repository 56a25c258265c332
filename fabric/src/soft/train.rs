//! Builds packets: writes BTH, DETH, pad and ICRC around contiguous payloads.
//!
//! One packet of a train, in bytes: BTH 12, DETH 8, payload, pad 0 to 3, ICRC 4. All packets except the
//! last have the same length, so the kernel can send the bytes of a train with UDP_SEGMENT.

use std::net::SocketAddr;

use proto::{PKey, Psn, QKey, Qpn};
use zerocopy::IntoBytes;
use zerocopy::big_endian::{U16, U32};

use super::icrc::Prefix;
use super::wire::{Bth, Deth, ICRC_LEN, ROCE_V2_PORT, pad_count};
use crate::worker::TrainTicket;

/// Bytes before a UD payload.
pub const HEAD: usize = size_of::<Bth>() + size_of::<Deth>();

/// Bytes of a UDP header.
const UDP_HEADER_LEN: usize = 8;

/// The number of packets that one UDP_SEGMENT send takes on every kernel (include/linux/udp.h,
/// UDP_MAX_SEGMENTS, before 6.9) and that UDP_GRO merges (net/ipv4/udp_offload.c).
pub const PACKETS_MAX: usize = 64;

/// Offset of the byte with FECN, BECN and reserved bits, which counts as ones in the ICRC (IBA vol. 1,
/// annex A17.3.3).
const MASKED: usize = 4;

/// Offset of the byte with PadCnt.
const FLAGS: usize = 1;

/// UDP payload bytes of one packet with a payload of `len` bytes.
pub const fn packet_len(len: usize) -> usize {
    HEAD + len + (len.wrapping_neg() & 3) + ICRC_LEN
}

/// Number of packets of `payload` bytes in a send of `send_max` bytes; at least one.
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

/// Common fields of all packets of a train.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Header {
    /// SEND Only, or SEND Only with Immediate ([`super::wire::opcode`]). With the latter, the first
    /// four bytes of each payload are the immediate data: they follow the DETH.
    pub opcode: u8,
    /// The sender's P_Key.
    pub pkey: PKey,
    /// The destination queue pair.
    pub dest_qp: Qpn,
    /// The Q_Key to send.
    pub qkey: QKey,
    /// The sending queue pair.
    pub src_qp: Qpn,
}

impl Header {
    /// The headers in wire order; PadCnt is 0.
    pub fn to_bytes(self, psn: Psn) -> [u8; HEAD] {
        let [_, p0, p1, p2] = psn.get().to_be_bytes();
        let bth = Bth {
            opcode: self.opcode,
            flags: 0,
            pkey: U16::new(self.pkey.get()),
            fecn_becn: 0,
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

/// The IPv4 identification of the packets of a train; IPv6 has none.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ipv4Id {
    /// Segment `k` of a UDP_SEGMENT send gets `k` (net/ipv4/af_inet.c, `inet_gso_segment`).
    Segment,
    /// A datagram with DF from an unconnected socket gets 0 (include/net/ip.h, `ip_select_ident_segs`).
    Zero,
}

/// The addresses that the ICRC covers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Route {
    /// The sender's address and port.
    pub source: SocketAddr,
    /// The destination address; the UDP port is the RoCEv2 port.
    pub destination: std::net::IpAddr,
    /// The IPv4 identifications.
    pub ids: Ipv4Id,
}

impl Route {
    /// The ICRC over everything before the BTH of packet `k` of a train; `None` if the addresses have
    /// different families.
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

/// The ICRCs over everything before the BTH, for the packets of one run.
struct Prefixes<'r> {
    route: &'r Route,
    /// Bytes of every packet except the last.
    stride: usize,
    /// The prefix of the first packet, if it has this length.
    full: Prefix,
}

impl<'r> Prefixes<'r> {
    /// `None` if the addresses have different families.
    fn new(route: &'r Route, stride: usize) -> Option<Prefixes<'r>> {
        let full = route.prefix(stride, 0)?;
        Some(Prefixes {
            route,
            stride,
            full,
        })
    }

    /// The prefix of packet `k`, which has `len` UDP payload bytes.
    fn of(&self, len: usize, k: usize) -> Option<Prefix> {
        if self.route.is_uniform() && len == self.stride {
            Some(self.full)
        } else {
            self.route.prefix(len, k)
        }
    }
}

/// Writes the headers, pads and ICRCs of the train in `memory`. Returns the bytes of all packets.
/// `None`, without changes, if the train is empty or larger than `memory`, or if the addresses have
/// different families.
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
    let prefixes = Prefixes::new(route, stride)?;
    let mut head = header.to_bytes(psn);
    for (k, packet) in memory.chunks_mut(stride).enumerate() {
        let len = if k + 1 == train.count {
            train.last
        } else {
            train.payload
        };
        head[FLAGS] = pad_count(len) << 4;
        head[9..12].copy_from_slice(&psn.advance(k as u32).get().to_be_bytes()[1..]);
        let pad = packet.len() - ICRC_LEN;
        packet[..HEAD].copy_from_slice(&head);
        packet[HEAD + len..pad].fill(0);
        write_icrc(packet, prefixes.of(packet.len(), k)?);
    }
    Some(total)
}

/// Writes the ICRCs of contiguous packets that are otherwise complete: `stride` bytes each, the last
/// one may be shorter. The last 4 bytes of each packet are room for the ICRC. `None` if the addresses
/// have different families, or if a packet is too short for a BTH and an ICRC.
pub fn seal_run(memory: &mut [u8], stride: usize, route: &Route) -> Option<usize> {
    let least = size_of::<Bth>() + ICRC_LEN;
    if stride < least || (1..least).contains(&(memory.len() % stride)) {
        return None;
    }
    let prefixes = Prefixes::new(route, stride)?;
    for (k, packet) in memory.chunks_mut(stride).enumerate() {
        write_icrc(packet, prefixes.of(packet.len(), k)?);
    }
    Some(memory.len())
}

/// Writes the ICRC of a packet whose byte with FECN and BECN is 0, as in all packets that we send.
fn write_icrc(packet: &mut [u8], prefix: Prefix) {
    let (covered, icrc) = packet.split_at_mut(packet.len() - ICRC_LEN);
    covered[MASKED] = 0xff;
    icrc.copy_from_slice(&prefix.finish(covered));
    covered[MASKED] = 0;
}
