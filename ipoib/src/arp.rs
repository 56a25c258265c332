//! ARP and RARP between Ethernet (RFC 826, RFC 903) and InfiniBand (RFC 4391, section 9.2).

#![cfg_attr(
    not(test),
    deny(clippy::cast_possible_truncation, clippy::cast_sign_loss)
)]

use std::net::Ipv4Addr;

use proto::Mac;

use crate::address::HardwareAddress;
use crate::wire::{array, be16, ipv4_at};

/// Bytes of an Ethernet ARP packet.
pub const ETHERNET_ARP_LEN: usize = 28;
/// Bytes of an InfiniBand ARP packet.
pub const INFINIBAND_ARP_LEN: usize = 56;

/// Operation codes (RFC 826, RFC 903).
pub const REQUEST: u16 = 1;
/// See [`REQUEST`].
pub const REPLY: u16 = 2;

const HARDWARE_ETHERNET: u16 = 1;
const HARDWARE_INFINIBAND: u16 = 32;
const PROTOCOL_IPV4: u16 = 0x0800;

/// An ARP packet with hardware addresses of type `H`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Arp<H> {
    pub operation: u16,
    pub sender: H,
    pub sender_ip: Ipv4Addr,
    pub target: H,
    pub target_ip: Ipv4Addr,
}

fn lengths_are(packet: &[u8], hardware: u8) -> bool {
    be16(packet, 2) == PROTOCOL_IPV4 && packet[4] == hardware && packet[5] == 4
}

impl Arp<Mac> {
    /// Parses a packet; `None` unless it has IPv4 and 6-byte addresses.
    pub fn parse(packet: &[u8]) -> Option<Arp<Mac>> {
        let p: &[u8; ETHERNET_ARP_LEN] = packet.first_chunk()?;
        (lengths_are(p, 6) && be16(p, 0) == HARDWARE_ETHERNET).then(|| Arp {
            operation: be16(p, 6),
            sender: array(p, 8),
            sender_ip: ipv4_at(p, 14),
            target: array(p, 18),
            target_ip: ipv4_at(p, 24),
        })
    }

    pub fn write(&self, out: &mut [u8; ETHERNET_ARP_LEN]) {
        out[..8].copy_from_slice(&[0, 1, 8, 0, 6, 4, 0, 0]);
        out[6..8].copy_from_slice(&self.operation.to_be_bytes());
        out[8..14].copy_from_slice(&self.sender);
        out[14..18].copy_from_slice(&self.sender_ip.octets());
        out[18..24].copy_from_slice(&self.target);
        out[24..28].copy_from_slice(&self.target_ip.octets());
    }
}

impl Arp<HardwareAddress> {
    /// Parses a packet; `None` unless it has IPv4 and 20-byte addresses.
    pub fn parse(packet: &[u8]) -> Option<Arp<HardwareAddress>> {
        let p: &[u8; INFINIBAND_ARP_LEN] = packet.first_chunk()?;
        (lengths_are(p, 20) && be16(p, 0) == HARDWARE_INFINIBAND).then(|| Arp {
            operation: be16(p, 6),
            sender: HardwareAddress(array(p, 8)),
            sender_ip: ipv4_at(p, 28),
            target: HardwareAddress(array(p, 32)),
            target_ip: ipv4_at(p, 52),
        })
    }

    pub fn write(&self, out: &mut [u8; INFINIBAND_ARP_LEN]) {
        out[..8].copy_from_slice(&[0, 32, 8, 0, 20, 4, 0, 0]);
        out[6..8].copy_from_slice(&self.operation.to_be_bytes());
        out[8..28].copy_from_slice(&self.sender.0);
        out[28..32].copy_from_slice(&self.sender_ip.octets());
        out[32..52].copy_from_slice(&self.target.0);
        out[52..56].copy_from_slice(&self.target_ip.octets());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_forms_come_back_as_they_were() {
        let ethernet = Arp {
            operation: 2,
            sender: [2, 1, 2, 3, 4, 5],
            sender_ip: Ipv4Addr::new(10, 0, 0, 1),
            target: [6, 5, 4, 3, 2, 1],
            target_ip: Ipv4Addr::new(10, 0, 0, 2),
        };
        let mut b = [0; ETHERNET_ARP_LEN];
        ethernet.write(&mut b);
        assert_eq!(Arp::<Mac>::parse(&b), Some(ethernet));
        assert_eq!(Arp::<HardwareAddress>::parse(&b), None);
        b[4] = 20;
        assert_eq!(Arp::<Mac>::parse(&b), None);
        assert_eq!(Arp::<Mac>::parse(&b[..27]), None);
    }
}
