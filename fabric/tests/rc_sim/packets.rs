//! Packets in wire format: over IPv6, with their ICRC.

use std::net::Ipv6Addr;

use fabric::soft::icrc::Prefix;
use fabric::soft::rc::RcPacket;
use fabric::soft::wire::{Aeth, Extended, ICRC_LEN, Packet, ROCE_V2_PORT, Repr, opcode};
use fabric::{Gid, PKey, Psn, Qpn};

/// Any valid port; a queue pair always uses the same.
pub const SOURCE_PORT: u16 = 0xc000;
const UDP_HEADER_LEN: usize = 8;

/// A node's address.
pub fn gid(node: usize) -> Gid {
    Gid::from(Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, node as u16 + 1))
}

fn icrc(from: usize, to: usize, covered: &[u8]) -> [u8; ICRC_LEN] {
    let udp_len = (UDP_HEADER_LEN + covered.len() + ICRC_LEN) as u16;
    Prefix::ipv6(&gid(from).0, &gid(to).0, SOURCE_PORT, ROCE_V2_PORT, udp_len)
        .finish_received(covered)
}

/// Writes the ICRC into the last four bytes.
pub fn seal(from: usize, to: usize, packet: &mut [u8]) {
    let (covered, room) = packet.split_last_chunk_mut().expect("room for an ICRC");
    *room = icrc(from, to, covered);
}

/// Parses a packet as a port does; `None` if a port would drop it.
pub fn open(from: usize, to: usize, bytes: &[u8]) -> Option<Packet<'_>> {
    let packet = Packet::parse(bytes).ok()?;
    (icrc(from, to, packet.covered) == packet.icrc).then_some(packet)
}

/// A response.
pub fn acknowledgement(dest_qp: Qpn, psn: Psn, aeth: Aeth) -> Repr<'static> {
    Repr {
        opcode: opcode::RC_ACKNOWLEDGE,
        solicited: false,
        mig_req: false,
        pkey: PKey::DEFAULT,
        fecn: false,
        becn: false,
        dest_qp,
        ack_req: false,
        psn,
        extended: Extended {
            aeth: Some(aeth),
            ..Extended::default()
        },
        payload: &[],
    }
}

/// A forged packet with valid addresses and ICRC.
pub fn forge(from: usize, to: usize, repr: &Repr<'_>) -> Vec<u8> {
    let mut bytes = Vec::new();
    repr.emit(&mut bytes).expect("a packet that can be");
    bytes.resize(bytes.len() + ICRC_LEN, 0);
    seal(from, to, &mut bytes);
    bytes
}

/// The input of a queue pair; the payload lies in the batch that starts at `batch`.
pub fn for_queue_pair<'a>(packet: &Packet<'a>, batch: &[u8]) -> RcPacket<'a> {
    RcPacket {
        bth: packet.bth,
        aeth: packet.extended.aeth,
        immediate: packet.extended.imm_dt.map(|i| i.0),
        payload: packet.payload,
        at: packet.payload.as_ptr().addr() - batch.as_ptr().addr(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sealed(payload: &[u8]) -> Vec<u8> {
        let repr = Repr {
            opcode: opcode::RC_SEND_ONLY,
            solicited: false,
            mig_req: false,
            pkey: PKey::DEFAULT,
            fecn: false,
            becn: false,
            dest_qp: Qpn::new(0x12),
            ack_req: true,
            psn: Psn::new(9),
            extended: Default::default(),
            payload,
        };
        forge(0, 1, &repr)
    }

    /// All bytes except the one that the ICRC does not cover.
    #[test]
    fn every_flipped_bit_is_noticed() {
        let bytes = sealed(&[7; 61]);
        assert_eq!(open(0, 1, &bytes).unwrap().payload, [7; 61]);
        assert!(open(1, 0, &bytes).is_none(), "another pair of addresses");
        for bit in 0..8 * bytes.len() {
            let mut damaged = bytes.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(open(0, 1, &damaged).is_some(), bit / 8 == 4, "bit {bit}");
        }
        for len in 0..bytes.len() {
            assert!(open(0, 1, &bytes[..len]).is_none());
        }
    }
}
