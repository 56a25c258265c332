//! Properties of all packets.

use proptest::prelude::*;

use super::*;

fn any_header() -> impl Strategy<Value = Header16B> {
    let lids = (1..0xf0_0000_u32, 1..0xf8_0000_u32);
    let bits = (any::<bool>(), any::<bool>(), 0..32_u8, 0..8_u8);
    let numbers = (any::<u16>(), any::<u16>(), 0..0x1000_u16);
    (lids, bits, numbers).prop_map(|((slid, dlid), (becn, fecn, sc, rc), numbers)| {
        let dlid = Lid::new(dlid);
        Header16B {
            slid: Lid::new(slid),
            dlid,
            becn,
            fecn,
            // Multicast cannot have the service class of management.
            sc: if dlid.is_multicast() && sc == 15 {
                14
            } else {
                sc
            },
            rc,
            pkey: PKey::new(numbers.0),
            entropy: numbers.1,
            vesw_id: numbers.2,
            ..Header16B::default()
        }
    })
}

fn any_profile() -> impl Strategy<Value = Profile> {
    prop_oneof![
        Just(Profile::Mem),
        Just(Profile::Wire0),
        Just(Profile::WireSw32)
    ]
}

/// Encodes the header by the table of the format, bit by bit, independent of the machine's byte order: for
/// each field (quad word q, lowest bit, value, width), bit b of the quad word is bit b mod 8 of byte 8q +
/// b/8.
fn bit_by_bit(h: &Header16B) -> [u8; 20] {
    let (slid, dlid) = (h.slid.get(), h.dlid.get());
    let fields = [
        (0, 0, slid & 0xf_ffff, 20),
        (0, 20, h.length_qw.into(), 11),
        (0, 31, h.becn.into(), 1),
        (0, 32, dlid & 0xf_ffff, 20),
        (0, 52, h.sc.into(), 5),
        (0, 57, h.rc.into(), 3),
        (0, 60, h.fecn.into(), 1),
        (0, 61, h.l2.into(), 2),
        (0, 63, h.lt.into(), 1),
        (1, 0, h.l4.into(), 8),
        (1, 8, slid >> 20, 4),
        (1, 12, dlid >> 20, 4),
        (1, 16, h.pkey.get().into(), 16),
        (1, 32, h.entropy.into(), 16),
        (2, 16, h.vesw_id.into(), 16),
    ];
    let mut bytes = [0; 20];
    for (word, lowest, value, width) in fields {
        for bit in (0..width).filter(|bit| value >> bit & 1 == 1) {
            let place = word * 64 + lowest + bit;
            bytes[place / 8] |= 1 << (place % 8);
        }
    }
    bytes
}

#[test]
fn c21_every_length_comes_back_as_it_was() {
    let mut out = vec![0; PACKET_MAX];
    for len in FRAME_MIN..=9018 {
        let sent = frame(len);
        let packet = encode(&header(), &sent, Profile::WireSw32, &mut out).unwrap();
        let read = decode(&out[..packet], Profile::WireSw32, Strictness::Strict).unwrap();
        assert_eq!(read.frame, sent);
        let length_qw = (packet / 8) as u16;
        assert_eq!(
            read.header,
            Header16B {
                length_qw,
                ..header()
            }
        );
    }
}

/// The ICRC covers every bit before it, except those that a switch may change.
#[test]
fn c27_the_icrc_covers_all_but_what_switches_change() {
    for len in [60, 63, 64, 77] {
        let good = packet(len, Profile::WireSw32);
        let right = icrc(&good).unwrap();
        assert_eq!(stored_icrc(&good), Some(right));
        // BECN; the lower bits of SC; the upper bit of SC and FECN; the age.
        let mutable = |at, bit| match at {
            3 => bit == 7,
            6 => bit >= 4,
            7 => bit == 0 || bit == 4,
            14 => true,
            _ => false,
        };
        let tail = good.len() - 1;
        for at in (0..good.len() - 5).chain([tail]) {
            for bit in 0..8 {
                let mut changed = good.clone();
                changed[at] ^= 1 << bit;
                // LT is not part of the padding.
                let free = mutable(at, bit) || (at == tail && bit >= 6);
                assert_eq!(icrc(&changed) == Some(right), free, "byte {at} bit {bit}");
            }
        }
    }
}

/// Check value of the polynomial, and no ICRC in a packet that is too short.
#[test]
fn c26_the_icrc_is_that_of_ethernet() {
    assert_eq!(crc32fast::hash(b"123456789"), 0xcbf4_3926);
    for len in 0..25 {
        assert_eq!(icrc(&vec![0; len]), None, "{len}");
    }
    assert!(icrc(&[0; 25]).is_some());
    assert_eq!(stored_icrc(&[1, 2, 3, 4]), None);
}

proptest! {
    #[test]
    fn c21_encoded_packets_decode_to_the_same(
        header in any_header(),
        len in FRAME_MIN..=9018,
        profile in any_profile(),
    ) {
        let sent = frame(len);
        let packet = encoded(&header, &sent, profile);
        let read = decode(&packet, profile, Strictness::Strict).unwrap();
        prop_assert_eq!(read.frame, sent);
        let length_qw = (packet.len() / 8) as u16;
        prop_assert_eq!(read.header, Header16B { length_qw, ..header });
    }

    #[test]
    fn c30_headers_are_the_same_whatever_the_machines_byte_order(
        header in any_header(),
        length_qw in 0..2048_u16,
        (l2, lt, l4) in (0..4_u8, any::<bool>(), any::<u8>()),
    ) {
        let header = Header16B { length_qw, l2, lt, l4, ..header };
        let bytes = header.to_bytes();
        prop_assert_eq!(bytes, bit_by_bit(&header));
        prop_assert_eq!(Header16B::from_bytes(&bytes), header);
    }

    #[test]
    fn c29_any_bytes_are_read_or_refused(
        bytes in proptest::collection::vec(any::<u8>(), 0..300),
        profile in any_profile(),
    ) {
        for strictness in [Strictness::Strict, Strictness::Lenient] {
            let _ = decode(&bytes, profile, strictness);
        }
    }

    /// Damaged packets, whose headers are mostly valid.
    #[test]
    fn c29_damaged_packets_are_read_or_refused(
        len in 0..2000_usize,
        damage in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
        profile in any_profile(),
    ) {
        let mut packet = packet(len, profile);
        for (at, byte) in damage {
            let at = at.index(packet.len());
            packet[at] = byte;
        }
        for strictness in [Strictness::Strict, Strictness::Lenient] {
            if let Ok(read) = decode(&packet, profile, strictness) {
                prop_assert!(read.frame.len() + 25 <= packet.len());
                prop_assert!(read.frame.len() + 32 >= packet.len());
            }
        }
    }
}

/// Every length up to 20000: all zeros, all ones, and with a valid header.
#[test]
fn c29_every_length_is_read_or_refused() {
    let mut right = vec![0; 20_000];
    right[..20].copy_from_slice(&header().to_bytes());
    for bytes in [vec![0; 20_000], vec![0xff; 20_000], right] {
        for len in 0..bytes.len() {
            for profile in [Profile::Wire0, Profile::Mem] {
                let _ = decode(&bytes[..len], profile, Strictness::Lenient);
            }
        }
        for len in (0..bytes.len()).step_by(61) {
            let _ = decode(&bytes[..len], Profile::WireSw32, Strictness::Lenient);
        }
    }
}
