//! The Internet checksum (RFC 1071) for small packets that the core reads or makes. Bulk data never comes
//! here.

#![cfg_attr(
    not(test),
    deny(clippy::cast_possible_truncation, clippy::cast_sign_loss)
)]

use crate::wire::{ipv4_at, ipv6_at};

const PROTOCOL_UDP: u8 = 17;
const PROTOCOL_ICMPV6: u8 = 58;

/// The checksum over `parts`; each part starts at an even offset. With a zero checksum field the result is
/// the value for the field; with a valid field the result is 0.
pub fn checksum(parts: &[&[u8]]) -> u16 {
    let mut sum = 0u64;
    for part in parts {
        let mut words = part.chunks_exact(2);
        for w in &mut words {
            sum += u64::from(u16::from_be_bytes([w[0], w[1]]));
        }
        if let [odd] = words.remainder() {
            sum += u64::from(*odd) << 8;
        }
    }
    while sum >> 16 != 0 {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !((sum & 0xffff) as u16)
}

/// The checksum of an ICMPv6 message at offset `at` in an IPv6 packet, with pseudo header (RFC 4443,
/// section 2.3; RFC 8200, section 8.1).
pub fn icmpv6(packet: &[u8], at: usize) -> u16 {
    let message = &packet[at..];
    let len = u32::try_from(message.len())
        .unwrap_or(u32::MAX)
        .to_be_bytes();
    let (source, destination) = (ipv6_at(packet, 8), ipv6_at(packet, 24));
    checksum(&[
        &source.octets(),
        &destination.octets(),
        &len,
        &[0, PROTOCOL_ICMPV6],
        message,
    ])
}

/// The checksum of the UDP datagram `udp` in the IPv4 packet with the header `header`, with pseudo header
/// (RFC 768).
pub fn udp_v4(header: &[u8], udp: &[u8]) -> u16 {
    let len = u16::try_from(udp.len()).unwrap_or(u16::MAX).to_be_bytes();
    let (source, destination) = (ipv4_at(header, 12), ipv4_at(header, 16));
    checksum(&[
        &source.octets(),
        &destination.octets(),
        &[0, PROTOCOL_UDP],
        &len,
        udp,
    ])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_example_of_rfc_1071() {
        let data = [0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7];
        assert_eq!(checksum(&[&data]), !0xddf2);
        assert_eq!(checksum(&[&data[..4], &data[4..]]), !0xddf2);
    }

    #[test]
    fn an_odd_byte_counts_as_if_a_zero_followed() {
        assert_eq!(checksum(&[&[1, 2, 3]]), checksum(&[&[1, 2, 3, 0]]));
    }

    #[test]
    fn what_is_summed_with_its_checksum_gives_zero() {
        let mut data = [0x45, 0, 0, 36, 0, 0, 0x40, 0, 1, 2, 0, 0];
        let sum = checksum(&[&data]);
        data[10..].copy_from_slice(&sum.to_be_bytes());
        assert_eq!(checksum(&[&data]), 0);
    }
}
