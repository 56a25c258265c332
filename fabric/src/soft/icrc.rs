//! The Invariant CRC of RoCEv2 (IBA vol. 1, 7.8.1 and annex A17.3.3; the kernel's
//! drivers/infiniband/sw/rxe/rxe_icrc.c).
//!
//! The ICRC is the CRC-32 of Ethernet over eight bytes of ones, in place of the LRH, which RoCEv2 does
//! not have, and the packet from the IP header to the pad. Fields that a router may change count as
//! ones. The ICRC is stored least significant byte first. It *covers* IPv4's identification;
//! [`Ipv4IdSolver`] finds the identification where a socket does not report it.

mod ipv4_id;
mod l3;
#[cfg(test)]
mod tests;

use crc32fast::Hasher;

pub use ipv4_id::Ipv4IdSolver;
pub use l3::{L3, NotRoce, Verdict, verify_l3};

use super::wire::{Bth, ICRC_LEN};

/// The finalised CRC of the eight bytes of ones.
const ONES: u32 = 0x2144_df1c;

const UDP_HEADER_LEN: u16 = 8;
const IPV4_HEADER_LEN: u16 = 20;
const IPV4_DONT_FRAGMENT: u16 = 0x4000;
const PROTOCOL_UDP: u8 = 17;

/// Offset of the BTH byte with FECN, BECN and reserved bits.
const MASKED_BTH_BYTE: usize = 4;

/// The CRC over everything before the BTH. It is constant for a flow and a packet length (over IPv4,
/// also for an identification), so callers keep it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Prefix(
    /// Finalised CRC of the ones, the masked IP header and the masked UDP header.
    u32,
);

impl Prefix {
    /// The prefix of an IPv6 packet without extension headers. Addresses are in network order;
    /// `udp_len` is the UDP length field, header included.
    pub fn ipv6(
        src: &[u8; 16],
        dst: &[u8; 16],
        src_port: u16,
        dst_port: u16,
        udp_len: u16,
    ) -> Prefix {
        let mut h = [0xff; 48];
        // Version 6; traffic class and flow label are ones.
        h[0] = 0x6f;
        h[4..6].copy_from_slice(&udp_len.to_be_bytes());
        // Byte 7, the hop limit, stays ones.
        h[6] = PROTOCOL_UDP;
        h[8..24].copy_from_slice(src);
        h[24..40].copy_from_slice(dst);
        h[40..48].copy_from_slice(&masked_udp(src_port, dst_port, udp_len));
        Prefix(update(ONES, &h))
    }

    /// The prefix of an IPv4 packet without options and with DF set, as RoCEv2 peers send it. Addresses
    /// are in network order; `udp_len` is the UDP length field, header included.
    pub fn ipv4(
        src: [u8; 4],
        dst: [u8; 4],
        src_port: u16,
        dst_port: u16,
        udp_len: u16,
        id: u16,
    ) -> Prefix {
        Prefix::ipv4_with_fragment_field(
            src,
            dst,
            src_port,
            dst_port,
            udp_len,
            id,
            IPV4_DONT_FRAGMENT,
        )
    }

    /// As [`Prefix::ipv4`], with any flags and fragment offset (bytes 6 and 7 of the IP header).
    pub fn ipv4_with_fragment_field(
        src: [u8; 4],
        dst: [u8; 4],
        src_port: u16,
        dst_port: u16,
        udp_len: u16,
        id: u16,
        fragment: u16,
    ) -> Prefix {
        let mut h = [0xff; 28];
        // Bytes 1 (TOS), 8 (TTL), 10 and 11 (header checksum) stay ones.
        h[0] = 0x45;
        h[2..4].copy_from_slice(&udp_len.wrapping_add(IPV4_HEADER_LEN).to_be_bytes());
        h[4..6].copy_from_slice(&id.to_be_bytes());
        h[6..8].copy_from_slice(&fragment.to_be_bytes());
        h[9] = PROTOCOL_UDP;
        h[12..16].copy_from_slice(&src);
        h[16..20].copy_from_slice(&dst);
        h[20..28].copy_from_slice(&masked_udp(src_port, dst_port, udp_len));
        Prefix(update(ONES, &h))
    }

    /// The ICRC of a packet that is being built. `transport` is everything from the BTH to the pad,
    /// with byte 4 (FECN, BECN, reserved) set to 0xff; the caller then restores that byte. Returns the
    /// bytes in wire order.
    pub fn finish(self, transport: &[u8]) -> [u8; ICRC_LEN] {
        update(self.0, transport).to_le_bytes()
    }

    /// The ICRC of a packet as it is on the wire. `transport` is everything from the BTH to the pad.
    /// The result for less than a BTH belongs to no packet.
    pub fn finish_received(self, transport: &[u8]) -> [u8; ICRC_LEN] {
        let Some((&(mut bth), rest)) = transport.split_first_chunk::<{ size_of::<Bth>() }>() else {
            return self.finish(transport);
        };
        bth[MASKED_BTH_BYTE] = 0xff;
        update(update(self.0, &bth), rest).to_le_bytes()
    }
}

/// The UDP header with its checksum as ones.
fn masked_udp(src_port: u16, dst_port: u16, udp_len: u16) -> [u8; UDP_HEADER_LEN as usize] {
    let [a, b] = src_port.to_be_bytes();
    let [c, d] = dst_port.to_be_bytes();
    let [e, f] = udp_len.to_be_bytes();
    [a, b, c, d, e, f, 0xff, 0xff]
}

/// Continues a finalised CRC over `bytes`.
fn update(crc: u32, bytes: &[u8]) -> u32 {
    let mut hasher = Hasher::new_with_initial(crc);
    hasher.update(bytes);
    hasher.finalize()
}
