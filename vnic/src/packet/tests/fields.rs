//! Positions of the fields.

use super::*;

const NOWHERE: Header16B = Header16B {
    slid: Lid::NONE,
    dlid: Lid::NONE,
    length_qw: 0,
    becn: false,
    fecn: false,
    sc: 0,
    rc: 0,
    l2: 0,
    lt: false,
    l4: 0,
    pkey: PKey::new(0),
    entropy: 0,
    vesw_id: 0,
};

/// Bytes of `header` that are not zero, with their offsets.
fn set_bytes(header: Header16B) -> Vec<(usize, u8)> {
    let bytes = header.to_bytes();
    assert_eq!(Header16B::from_bytes(&bytes), header);
    let places = bytes.into_iter().enumerate();
    places.filter(|(_, byte)| *byte != 0).collect()
}

#[test]
fn c02_the_lower_bits_of_the_slid_come_first() {
    let slid = |lid| {
        set_bytes(Header16B {
            slid: Lid::new(lid),
            ..NOWHERE
        })
    };
    assert_eq!(slid(0x0a_bcde), [(0, 0xde), (1, 0xbc), (2, 0x0a)]);
}

#[test]
fn c03_the_upper_bits_of_both_lids_share_byte_9() {
    let slid = |lid| {
        set_bytes(Header16B {
            slid: Lid::new(lid),
            ..NOWHERE
        })
    };
    let dlid = |lid| {
        set_bytes(Header16B {
            dlid: Lid::new(lid),
            ..NOWHERE
        })
    };
    assert_eq!(slid(0x90_0000), [(9, 0x09)]);
    assert_eq!(dlid(0x60_0000), [(9, 0x60)]);
    assert_eq!(slid(0x10_0000), [(9, 0x01)]);
}

#[test]
fn c04_the_lower_bits_of_the_dlid_begin_at_byte_4() {
    let dlid = |lid| {
        set_bytes(Header16B {
            dlid: Lid::new(lid),
            ..NOWHERE
        })
    };
    assert_eq!(dlid(0x05_4321), [(4, 0x21), (5, 0x43), (6, 0x05)]);
}

#[test]
fn c05_the_length_is_split_over_bytes_2_and_3() {
    let length = |length_qw| {
        set_bytes(Header16B {
            length_qw,
            ..NOWHERE
        })
    };
    assert_eq!(length(0x00b), [(2, 0xb0)]);
    assert_eq!(length(0x0c1), [(2, 0x10), (3, 0x0c)]);
    assert_eq!(length(0x46a), [(2, 0xa0), (3, 0x46)]);
    assert_eq!(length(2047), [(2, 0xf0), (3, 0x7f)]);
}

#[test]
fn c06_congestion_bits_are_read_and_do_not_stop_a_packet() {
    assert_eq!(
        set_bytes(Header16B {
            becn: true,
            ..NOWHERE
        }),
        [(3, 0x80)]
    );
    assert_eq!(
        set_bytes(Header16B {
            fecn: true,
            ..NOWHERE
        }),
        [(7, 0x10)]
    );
    let default = Header16B::default();
    assert!(!default.becn && !default.fecn);
    let mut packet = packet(60, Profile::WireSw32);
    packet[3] |= 0x80;
    packet[7] |= 0x10;
    let read = decode(&packet, Profile::WireSw32, Strictness::Strict).unwrap();
    assert!(read.header.becn && read.header.fecn);
}

#[test]
fn c07_the_service_class_is_split_over_bytes_6_and_7() {
    let sc = |sc| set_bytes(Header16B { sc, ..NOWHERE });
    assert_eq!(sc(16), [(7, 0x01)]);
    assert_eq!(sc(1), [(6, 0x10)]);
    assert_eq!(sc(31), [(6, 0xf0), (7, 0x01)]);
}

#[test]
fn c08_routing_control_is_in_byte_7() {
    let rc = |rc| set_bytes(Header16B { rc, ..NOWHERE });
    assert_eq!(rc(1), [(7, 0x02)]);
    assert_eq!(rc(4), [(7, 0x08)]);
}

#[test]
fn c09_c10_a_header_says_16b_and_ethernet() {
    let bytes = Header16B::default().to_bytes();
    assert_eq!(bytes[7], 0b1100_0000);
    assert_eq!(bytes[8], 0x78);
    assert_eq!(header().to_bytes()[7] >> 5, 0b110);
}

#[test]
fn c11_c12_c14_numbers_are_little_endian() {
    let pkey = PKey::new(0x1234);
    assert_eq!(
        set_bytes(Header16B { pkey, ..NOWHERE }),
        [(10, 0x34), (11, 0x12)]
    );
    let entropy = 0x5a;
    assert_eq!(set_bytes(Header16B { entropy, ..NOWHERE }), [(12, 0x5a)]);
    let entropy = 0xbeef;
    assert_eq!(
        set_bytes(Header16B { entropy, ..NOWHERE }),
        [(12, 0xef), (13, 0xbe)]
    );
    let vesw_id = 0x123;
    assert_eq!(
        set_bytes(Header16B { vesw_id, ..NOWHERE }),
        [(18, 0x23), (19, 0x01)]
    );
}

#[test]
fn c13_reserved_bytes_are_sent_as_zero_and_ignored() {
    let sent = packet(60, Profile::Wire0);
    assert_eq!(sent[14..18], [0; 4]);
    let mut changed = sent.clone();
    changed[14..18].fill(0xff);
    let read = |packet| {
        decode(packet, Profile::Wire0, Strictness::Strict)
            .unwrap()
            .header
    };
    assert_eq!(read(&changed), read(&sent));
}

#[test]
fn c24_a_field_that_is_too_wide_does_not_reach_its_neighbours() {
    let wide = |header: Header16B| Header16B::from_bytes(&header.to_bytes());
    let cut = wide(Header16B {
        sc: 0xff,
        rc: 0xff,
        l2: 0xff,
        ..NOWHERE
    });
    assert_eq!(
        cut,
        Header16B {
            sc: 31,
            rc: 7,
            l2: 3,
            ..NOWHERE
        }
    );
    let cut = wide(Header16B {
        length_qw: 0xffff,
        ..NOWHERE
    });
    assert_eq!(
        cut,
        Header16B {
            length_qw: 2047,
            ..NOWHERE
        }
    );
}
