use proptest::prelude::*;
use smoltcp::wire::{IpAddress, IpProtocol, Ipv4Address, Ipv6Address, UdpPacket};

use super::*;

/// The definition of RFC 1071, 1: 16-bit big-endian words, added in order.
fn plain(data: &[u8]) -> u16 {
    let mut sum = 0u32;
    for pair in data.chunks(2) {
        sum += u32::from(pair[0]) << 8 | pair.get(1).map_or(0, |b| u32::from(*b));
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

#[test]
fn example_of_rfc_1071() {
    let sum = Sum::of(&[0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7]);
    assert_eq!(sum.fold(), 0xddf2);
    assert_eq!(sum.finish(), 0x220d);
    assert!(sum.word(sum.finish()).is_valid());
    assert!(!sum.word(sum.finish() ^ 1).is_valid());
}

#[test]
fn udp_never_writes_zero() {
    let sum = Sum::of(&[0xff, 0xff]);
    assert_eq!(sum.finish(), 0);
    assert_eq!(sum.finish_nonzero(), 0xffff);
    assert_eq!(Sum::of(&[0x12, 0x34]).finish_nonzero(), !0x1234);
}

#[test]
fn no_carry_is_lost_in_the_largest_frame() {
    for len in [65535, 65536, 1 << 20] {
        let ones = vec![0xff; len];
        assert_eq!(Sum::of(&ones).fold(), plain(&ones), "{len} bytes");
    }
    assert_eq!(Sum(u64::MAX).plus(Sum(u64::MAX)).fold_native(), 0xffff);
    assert_eq!(Sum(u64::MAX).plus(Sum(1)).fold_native(), 1);
}

proptest! {
    #[test]
    fn agrees_with_the_definition_and_with_smoltcp(data in prop::collection::vec(any::<u8>(), 0..3000)) {
        let sum = Sum::of(&data);
        // 0 and 0xffff are equal as sums; only zeros give 0.
        prop_assert_eq!(sum.fold(), plain(&data));
        prop_assert_eq!(sum.fold(), smoltcp::wire::checksum::data(&data));
        let mut copy = vec![0; data.len()];
        prop_assert_eq!(Sum::of_copy(&mut copy, &data).fold(), sum.fold());
        prop_assert_eq!(copy, data);
    }

    #[test]
    fn parts_add_up_at_any_offset(data in prop::collection::vec(any::<u8>(), 0..600), cut in any::<prop::sample::Index>()) {
        let cut = cut.index(data.len() + 1);
        let (head, tail) = data.split_at(cut);
        let sum = Sum::of(head).plus_at(cut, Sum::of(tail));
        prop_assert_eq!(sum.fold(), plain(&data));
    }

    #[test]
    fn words_are_big_endian(data in prop::collection::vec(any::<u8>(), 0..100), w in any::<u16>(), l in any::<u32>()) {
        let mut all = data.clone();
        if all.len() % 2 == 1 {
            all.push(0);
        }
        all.extend(w.to_be_bytes());
        all.extend(l.to_be_bytes());
        prop_assert_eq!(Sum::of(&data).word(w).word32(l).fold(), plain(&all));
    }

    #[test]
    fn pseudo_headers_agree_with_smoltcp(
        v6 in any::<bool>(), src in any::<[u8; 16]>(), dst in any::<[u8; 16]>(),
        payload in prop::collection::vec(any::<u8>(), 0..200),
    ) {
        let len = 8 + payload.len();
        let mut udp = vec![0; len];
        udp[..4].copy_from_slice(&[1, 2, 3, 4]);
        udp[4..6].copy_from_slice(&(len as u16).to_be_bytes());
        udp[8..].copy_from_slice(&payload);
        let (source, destination, n) = if v6 {
            (IpAddress::Ipv6(Ipv6Address::from(src)), IpAddress::Ipv6(Ipv6Address::from(dst)), 16)
        } else {
            let four = |a: [u8; 16]| IpAddress::Ipv4(Ipv4Address::new(a[0], a[1], a[2], a[3]));
            (four(src), four(dst), 4)
        };
        let protocol = u8::from(IpProtocol::Udp);
        let ours = pseudo_header(&src[..n], &dst[..n], protocol, len as u32).plus(Sum::of(&udp));
        let mut packet = UdpPacket::new_unchecked(&mut udp[..]);
        packet.fill_checksum(&source, &destination);
        prop_assert_eq!(ours.finish_nonzero(), packet.checksum());
    }
}
