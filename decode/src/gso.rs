//! Large sends: a capture on the sending host, or behind a virtual link that does not segment, contains
//! several RoCEv2 packets as one IP packet (UDP_SEGMENT, net/ipv4/udp_offload.c). The capture does not
//! contain the size of a segment. The size that gives the most correct ICRCs is used.

use fabric::soft::icrc::{L3, Verdict};
use fabric::soft::wire::{Bth, ICRC_LEN, opcode};

/// Bytes of the smallest packet: BTH and ICRC.
const PACKET_MIN: usize = size_of::<Bth>() + ICRC_LEN;

/// Bytes of the largest packet to try: the payload of a jumbo frame.
const PACKET_MAX: usize = 9216;

/// UDP header.
const UDP_HEADER_LEN: usize = 8;

/// Splits the large send `l3` into its packets on the wire; `None` if no segment size gives a correct ICRC.
///
/// All segments except the last have the same size, a multiple of four, and one destination queue pair.
/// Segment k has the identification of the large send plus k (net/ipv4/af_inet.c, `inet_gso_segment`).
pub fn split<'a>(l3: &L3<'a>) -> Option<Vec<L3<'a>>> {
    let len = l3.transport.len();
    let largest = PACKET_MAX.min(len.saturating_sub(PACKET_MIN));
    let mut best: Option<(usize, Vec<L3<'a>>)> = None;
    for size in (PACKET_MIN..=largest).step_by(4) {
        if !follows(l3.transport, size) {
            continue;
        }
        let segments = cut(l3, size);
        let right = |s: &&L3<'_>| s.verify() == Verdict::Good;
        let good = segments.iter().filter(right).count();
        if good == segments.len() {
            return Some(segments);
        }
        if good > best.as_ref().map_or(0, |b| b.0) {
            best = Some((good, segments));
        }
    }
    best.map(|b| b.1)
}

/// Whether a packet of the same flow can begin at `size`: a cheap check before the ICRCs are computed.
fn follows(transport: &[u8], size: usize) -> bool {
    let next = transport.get(size..).and_then(Bth::from_prefix);
    let (Some(first), Some(next)) = (Bth::from_prefix(transport), next) else {
        return false;
    };
    opcode::headers(next.opcode).is_some()
        && next.tver() == 0
        && next.dest_qp == first.dest_qp
        && next.pkey == first.pkey
}

fn cut<'a>(l3: &L3<'a>, size: usize) -> Vec<L3<'a>> {
    let segment = |(k, transport): (usize, &'a [u8])| L3 {
        ipv4: l3
            .ipv4
            .map(|(id, flags)| (id.wrapping_add(k as u16), flags)),
        udp_len: (UDP_HEADER_LEN + transport.len()) as u16,
        transport,
        ..*l3
    };
    l3.transport.chunks(size).enumerate().map(segment).collect()
}
