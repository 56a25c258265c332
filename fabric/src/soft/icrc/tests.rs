use proptest::prelude::*;

use super::*;
use crate::soft::wire::ROCE_V2_PORT;

/// Bytes from hexadecimal digits; white space is skipped.
fn hex(s: &str) -> Vec<u8> {
    let digits: Vec<u8> = s.bytes().filter(|b| !b.is_ascii_whitespace()).collect();
    digits
        .chunks(2)
        .map(|d| u8::from_str_radix(std::str::from_utf8(d).unwrap(), 16).unwrap())
        .collect()
}

const IPV4_HELLO: &str = "4500003c000040004011b6adc0000201c0000202 c00112b700280000
    64b0ffff0000001a00000001 1111111100000011 68656c6c6f000000 d1a70e5f";
const IPV6_HELLO: &str = "6000000000281140 20010db8000000000000000000000001
    20010db8000000000000000000000002 c00112b700280000
    64b0ffff0000001a00000001 1111111100000011 68656c6c6f000000 333173fc";

/// Recomputes the ICRC of the IP packet `l3`.
fn sealed(mut l3: Vec<u8>) -> Vec<u8> {
    let at = l3.len() - ICRC_LEN;
    if let Verdict::Bad { computed } = verify_l3(&l3) {
        l3[at..].copy_from_slice(&computed);
    }
    l3
}

/// Checklist 18. The register is the inverted finalised value.
#[test]
fn seed_after_the_ones() {
    assert_eq!(crc32fast::hash(&[0xff; 8]), ONES);
    assert_eq!(!ONES, 0xdebb_20e3);
}

/// Checklist 19 and 24, with the intermediate registers.
#[test]
fn ud_over_ipv4() {
    let packet = hex(IPV4_HELLO);
    assert_eq!(verify_l3(&packet), Verdict::Good);
    let prefix = Prefix::ipv4([192, 0, 2, 1], [192, 0, 2, 2], 0xc001, ROCE_V2_PORT, 40, 0);
    assert_eq!(!prefix.0, 0xae30_c97a);
    let mut transport = packet[28..56].to_vec();
    assert_eq!(prefix.finish_received(&transport), [0xd1, 0xa7, 0x0e, 0x5f]);
    transport[4] = 0xff;
    assert_eq!(prefix.finish(&transport), [0xd1, 0xa7, 0x0e, 0x5f]);
}

/// Checklist 19.
#[test]
fn ud_over_ipv6() {
    let packet = hex(IPV6_HELLO);
    assert_eq!(verify_l3(&packet), Verdict::Good);
    let l3 = L3::parse(&packet).unwrap();
    assert_eq!(!l3.prefix().0, 0x7088_69ae);
    assert_eq!(
        l3.source,
        "2001:db8::1".parse::<std::net::IpAddr>().unwrap()
    );
}

/// Checklist 19: other identifications of the same packet.
#[test]
fn the_identification_counts() {
    for (id, icrc) in [
        (1u16, [0x42, 0x54, 0x30, 0x95]),
        (2, [0xb6, 0x46, 0x02, 0x10]),
        (0x1234, [0x9d, 0x40, 0xe8, 0x06]),
    ] {
        let mut packet = hex(IPV4_HELLO);
        packet[4..6].copy_from_slice(&id.to_be_bytes());
        packet[56..60].copy_from_slice(&icrc);
        assert_eq!(verify_l3(&packet), Verdict::Good, "{id}");
    }
}

/// Checklist 19: acknowledgement, NAK, RNR NAK, CNP and a 256-byte first packet.
#[test]
fn rc_and_cnp_vectors() {
    let ack = "450000300000400040 11b6b9c0000202c0000201 c00212b7001c0000 1100ffff00000012";
    for tail in [
        "0000abcd1f000007 36f52c6f",
        "0000001060000003 20dba359",
        "000000102c000003 a53c6188",
    ] {
        let packet = hex(&format!("{ack}{tail}"));
        assert_eq!(verify_l3(&packet), Verdict::Good, "{tail}");
    }
    let cnp = hex("45c0003c000040004011b5edc0000202c0000201 c00212b700280000
        8100ffff4000001200000000 00000000000000000000000000000000 09682633");
    assert_eq!(verify_l3(&cnp), Verdict::Good);
    let mut first = hex("4502012c000040004011b5bbc0000201c0000202 c00112b701180000
        0000ffff0000001200fffffe");
    first.extend(0..=255);
    first.extend([0x17, 0xfc, 0xbb, 0x90]);
    assert_eq!(verify_l3(&first), Verdict::Good);
}

/// Checklist 20: from a ConnectX-4 Lx (scapy, test/contrib/roce.uts).
#[test]
fn adapter_cnp() {
    let packet = hex("45c2003c718c400040119161 0a0011010a001201 000012b700280000
        8100ffff4000011800000000 00000000000000000000000000000000 82fd002a");
    assert_eq!(verify_l3(&packet), Verdict::Good);
}

/// The bits whose change leaves the ICRC right, as offset and mask.
fn indifferent_bits(packet: &[u8]) -> Vec<(usize, u8)> {
    let bits = (0..packet.len()).flat_map(|at| (0..8).map(move |bit| (at, 1 << bit)));
    bits.filter(|&(at, bit)| {
        let mut changed = packet.to_vec();
        changed[at] ^= bit;
        verify_l3(&changed) == Verdict::Good
    })
    .collect()
}

fn all_bits(bytes: impl IntoIterator<Item = usize>) -> Vec<(usize, u8)> {
    bytes
        .into_iter()
        .flat_map(|at| (0..8).map(move |bit| (at, 1 << bit)))
        .collect()
}

/// Checklist 21 and 23 for every bit of the packet: only TOS, TTL, both checksums and BTH byte 4 may
/// change.
#[test]
fn ipv4_masks_exactly_the_variable_bits() {
    let masked = all_bits([1, 8, 10, 11, 26, 27, 32]);
    assert_eq!(indifferent_bits(&hex(IPV4_HELLO)), masked);
}

/// Checklist 22 and 23: traffic class, flow label, hop limit, UDP checksum and BTH byte 4.
#[test]
fn ipv6_masks_exactly_the_variable_bits() {
    let mut masked = all_bits([0]);
    masked.truncate(4);
    masked.extend(all_bits([1, 2, 3, 7, 46, 47, 52]));
    assert_eq!(indifferent_bits(&hex(IPV6_HELLO)), masked);
}

#[test]
fn other_packets_have_a_reason() {
    let change = |s: &str, at: usize, value: u8| {
        let mut p = hex(s);
        p[at] = value;
        verify_l3(&p)
    };
    let not = Verdict::NotRoce;
    assert_eq!(verify_l3(&[]), not(NotRoce::Ip));
    assert_eq!(change(IPV4_HELLO, 0, 0x46), not(NotRoce::Ip));
    assert_eq!(change(IPV4_HELLO, 6, 0x20), not(NotRoce::Fragment));
    assert_eq!(change(IPV4_HELLO, 7, 1), not(NotRoce::Fragment));
    assert_eq!(change(IPV4_HELLO, 9, 6), not(NotRoce::NotUdp));
    assert_eq!(change(IPV6_HELLO, 6, 44), not(NotRoce::NotUdp));
    assert_eq!(change(IPV4_HELLO, 23, 0xb8), not(NotRoce::Port(4792)));
    assert_eq!(change(IPV4_HELLO, 25, 27), not(NotRoce::Length));
    assert_eq!(change(IPV4_HELLO, 3, 19), not(NotRoce::Length));
    let packet = hex(IPV4_HELLO);
    for len in 1..packet.len() {
        assert_eq!(verify_l3(&packet[..len]), not(NotRoce::Length), "{len}");
    }
}

#[test]
fn ethernet_padding_does_no_harm() {
    let mut packet = hex(IPV4_HELLO);
    packet.extend([0; 18]);
    assert_eq!(verify_l3(&packet), Verdict::Good);
}

/// Checklist 15.
#[test]
fn congestion_marks_do_no_harm() {
    let mut packet = hex(IPV6_HELLO);
    packet[52] = 0xff;
    assert_eq!(verify_l3(&packet), Verdict::Good);
}

fn ipv4_packet(id: u16, payload: &[u8]) -> Vec<u8> {
    let udp_len = 8 + 12 + payload.len() as u16 + 4;
    let mut p = hex(&IPV4_HELLO[..40]);
    p[2..4].copy_from_slice(&(udp_len + 20).to_be_bytes());
    p[4..6].copy_from_slice(&id.to_be_bytes());
    p.extend(hex("c00112b7"));
    p.extend(udp_len.to_be_bytes());
    p.extend([0, 0]);
    p.extend(hex("0400ffff0000001200000001"));
    p.extend(payload);
    p.extend([0; 4]);
    sealed(p)
}

fn recover(solver: &mut Ipv4IdSolver, packet: &[u8], hint: u16) -> Option<u16> {
    let l3 = L3::parse(packet).unwrap();
    let (covered, found) = l3.transport.split_last_chunk().unwrap();
    let src = packet[12..16].try_into().unwrap();
    let dst = packet[16..20].try_into().unwrap();
    let prefix = Prefix::ipv4(src, dst, l3.source_port, ROCE_V2_PORT, l3.udp_len, hint);
    solver.recover(prefix.finish_received(covered), *found, covered.len(), hint)
}

proptest! {
    /// Checklist 26, first half: for any packet and any hint the solver finds the identification.
    #[test]
    fn identifications_are_recovered(
        ids in prop::collection::vec((any::<u16>(), any::<u16>()), 1..8),
        mut payload in prop::collection::vec(any::<u8>(), 0..4200),
    ) {
        payload.truncate(payload.len() & !3);
        let mut solver = Ipv4IdSolver::new();
        for (id, hint) in ids {
            let packet = ipv4_packet(id, &payload);
            prop_assert_eq!(verify_l3(&packet), Verdict::Good);
            prop_assert_eq!(recover(&mut solver, &packet, hint), Some(id));
            // Lengths that share a place in the cache do not disturb each other.
            let other = ipv4_packet(hint, &[payload.as_slice(), &[0; 64]].concat());
            prop_assert_eq!(recover(&mut solver, &other, id), Some(hint));
        }
    }
}

/// Checklist 26, second half: about two of 2^17 corruptions pass.
#[test]
fn corruption_rarely_looks_like_an_identification() {
    let good = ipv4_packet(77, &[0x5a; 64]);
    let l3 = L3::parse(&good).unwrap();
    let (covered, found) = l3.transport.split_last_chunk::<ICRC_LEN>().unwrap();
    let computed = l3.prefix().finish_received(covered);
    let mut solver = Ipv4IdSolver::new();
    let accepted = (1..=1u32 << 17)
        .filter(|n| {
            let error = n.wrapping_mul(0x9e37_79b1);
            let damaged = u32::from_le_bytes(*found) ^ error;
            solver
                .recover(computed, damaged.to_le_bytes(), covered.len(), 77)
                .is_some()
        })
        .count();
    assert!(accepted <= 4, "{accepted} of 131072");
}

/// The longest packet IP can carry.
#[test]
fn the_largest_length_is_handled() {
    let packet = ipv4_packet(0xabcd, &vec![1; 65_532 - 20 - 8 - 12 - 4]);
    let mut solver = Ipv4IdSolver::new();
    assert_eq!(recover(&mut solver, &packet, 3), Some(0xabcd));
}
