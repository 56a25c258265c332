//! Lengths and refusals.

use super::*;
use crate::counters::Counters;

const GROUPS: &[Lid] = &[Lid::new(0xf0_0000), Lid::new(0xf0_0002)];

fn receiver() -> Receiver<'static> {
    Receiver {
        lid: header().dlid,
        groups: GROUPS,
        pkey: header().pkey,
        vesw_id: header().vesw_id,
        forwarding: true,
        eth_mtu: 1500,
    }
}

fn strict(packet: &[u8]) -> Result<Decoded<'_>, Refusal> {
    decode(packet, Profile::Wire0, Strictness::Strict)
}

/// Verdict of [`receiver`] on a packet with this header and a frame of `len` bytes.
fn verdict(header: Header16B, len: usize, arrival: Arrival) -> Result<(), Refusal> {
    let packet = encoded(&header, &frame(len), Profile::Wire0);
    strict(&packet).and_then(|d| admit(&d, &receiver(), arrival))
}

#[test]
fn c15_c16_c17_padding_and_length_of_every_frame() {
    for len in FRAME_MIN..=FRAME_MAX {
        // The driver's expression (kernel opa_vnic_encap.c, opa_vnic_wire_length).
        let padding = (len + 20 + 5).wrapping_neg() & 7;
        assert_eq!(pad(len), padding, "{len}");
        assert_eq!(packet_len(len), 20 + len + padding + 5, "{len}");
        assert_eq!(packet_len(len) / 8, len / 8 + 4, "{len}");
    }
    assert_eq!(
        [60, 61, 62, 63, 64].map(|l| packet_len(l) / 8),
        [11, 11, 11, 11, 12]
    );
    assert_eq!((FRAME_MAX, packet_len(FRAME_MAX)), (16351, PACKET_MAX));
}

#[test]
fn the_mtu_of_a_payload() {
    let budget = [
        (256, 231, 213),
        (1024, 999, 981),
        (1472, 1447, 1429),
        (2048, 2023, 2005),
        (4096, 4071, 4053),
        (8972, 8943, 8925),
        (10240, 10215, 10197),
        (65535, 65503, 16333),
    ];
    for (payload, longest, mtu) in budget {
        assert_eq!(
            (frame_max(payload), eth_mtu(payload)),
            (longest, mtu),
            "{payload}"
        );
        assert!(packet_len(mtu + 18) <= payload && packet_len(frame_max(payload)) <= payload);
        assert!(packet_len(frame_max(payload) + 1) > payload);
    }
    assert_eq!([0, 31, 32, 48].map(eth_mtu), [0, 0, 0, 5]);
}

#[test]
fn c01_c18_c19_around_the_frame() {
    for (profile, tail) in [(Profile::Mem, 7), (Profile::Wire0, 0x47)] {
        let p = packet(64, profile);
        assert_eq!(p[20..84], frame(64));
        assert_eq!(p[84..95], [0; 11]);
        assert_eq!(p[95], tail);
    }
    assert_eq!(packet(64, Profile::WireSw32)[84..91], [0; 7]);
}

#[test]
fn c20_short_frames_are_filled_up_with_zeros() {
    for len in 0..FRAME_MIN {
        let p = packet(len, Profile::WireSw32);
        assert_eq!((p.len(), p[87]), (88, 0x43), "{len}");
        let read = decode(&p, Profile::WireSw32, Strictness::Strict).unwrap();
        assert_eq!(read.header.length_qw, 11);
        let (given, filled) = read.frame.split_at(len);
        assert_eq!(given, frame(len));
        assert!(filled.iter().all(|byte| *byte == 0) && read.frame.len() == FRAME_MIN);
    }
}

#[test]
fn c23_a_frame_that_is_too_long_is_refused() {
    let mut out = vec![0xa5; 20_000];
    for len in [FRAME_MAX + 1, 16384, 19_000] {
        let refused = encode(&header(), &frame(len), Profile::Wire0, &mut out);
        assert_eq!(refused, Err(EncodeError::TooLong(len)));
        let refused = Prefix::new(&header()).wrap(Profile::Wire0, len, &mut out);
        assert_eq!(refused, Err(EncodeError::TooLong(len)));
    }
    let no_room = EncodeError::NoRoom {
        needed: 88,
        available: 87,
    };
    let small = &mut out[..87];
    assert_eq!(
        encode(&header(), &frame(60), Profile::Wire0, small),
        Err(no_room)
    );
    assert!(out.iter().all(|byte| *byte == 0xa5));
}

#[test]
fn a_prefix_writes_nothing_after_the_packet() {
    let mut out = vec![0xa5; 200];
    out[20..97].copy_from_slice(&frame(77));
    let len = Prefix::new(&header()).wrap(Profile::WireSw32, 77, &mut out);
    assert_eq!(len, Ok(104));
    assert_eq!(out[..104], packet(77, Profile::WireSw32));
    assert!(out[104..].iter().all(|byte| *byte == 0xa5));
}

#[test]
fn invalid_packets_are_refused_each_with_its_reason() {
    let good = packet(60, Profile::Wire0);
    let with = |at: usize, byte: u8| {
        let mut p = good.clone();
        p[at] = byte;
        strict(&p).err()
    };
    for len in [0, 1, 19, 20, 24, 31, 33, 87] {
        assert_eq!(strict(&good[..len]), Err(Refusal::Truncated), "{len}");
    }
    assert_eq!(strict(&[0; 16384]), Err(Refusal::Truncated));
    assert_eq!(with(7, 0xab), Some(Refusal::BadL2));
    // No LT.
    assert_eq!(with(7, 0x4b), Some(Refusal::BadL2));
    assert_eq!(with(8, 0x09), Some(Refusal::BadL4));
    assert_eq!(with(2, 0xca), Some(Refusal::LengthMismatch));
    assert_eq!(
        strict(&[&good[..], &[0; 8]].concat()),
        Err(Refusal::LengthMismatch)
    );
    assert_eq!(with(87, 0x48), Some(Refusal::BadTail));
    assert_eq!(with(19, 0x1a), Some(Refusal::BadVeswId));
    assert_eq!(with(9, 0x6f), Some(Refusal::BadLid));
}

#[test]
fn lenient_decoding_accepts_what_the_driver_accepts() {
    let mut p = packet(60, Profile::Wire0);
    p[7] &= 0x7f;
    p[19] |= 0xf0;
    *p.last_mut().unwrap() = 0xfb;
    let read = decode(&p, Profile::Wire0, Strictness::Lenient).unwrap();
    assert_eq!(read.frame, frame(60));
    assert_eq!(admit(&read, &receiver(), Arrival::Addressed), Ok(()));
}

#[test]
fn invalid_lids_are_refused() {
    let lids = |slid, dlid, sc| {
        let lids = Header16B {
            slid: Lid::new(slid),
            dlid: Lid::new(dlid),
            sc,
            ..header()
        };
        verdict(lids, 60, Arrival::Addressed)
    };
    let own = header().dlid.get();
    let cases = [
        (5, own, 0, Ok(())),
        (5, own, 15, Ok(())),
        (0, own, 0, Err(Refusal::BadLid)),
        (5, 0, 0, Err(Refusal::BadLid)),
        (0xf0_0000, own, 0, Err(Refusal::BadLid)),
        (5, 0xf0_0002, 0, Ok(())),
        (5, 0xf0_0002, 15, Err(Refusal::BadLid)),
        (5, 0xf0_0001, 0, Err(Refusal::BadLid)),
        (5, 0xf8_0000, 0, Err(Refusal::BadLid)),
        (5, 0xff_ffff, 0, Err(Refusal::BadLid)),
        (5, 0xff_ffff, 15, Ok(())),
        (5, 6, 0, Err(Refusal::BadLid)),
        (own, own, 0, Err(Refusal::BadLid)),
        (own, 0xf0_0000, 0, Err(Refusal::SelfMulticast)),
    ];
    for (slid, dlid, sc, expected) in cases {
        assert_eq!(
            lids(slid, dlid, sc),
            expected,
            "{slid:#x} > {dlid:#x} SC {sc}"
        );
    }
}

#[test]
fn r12_groups_deliver_packets_for_others_and_own_packets() {
    let own = header().dlid;
    let lids = |slid, dlid| Header16B {
        slid,
        dlid,
        ..header()
    };
    let by_group = |slid, dlid| verdict(lids(slid, dlid), 60, Arrival::Group);
    let (other, another) = (Lid::new(5), Lid::new(6));
    assert_eq!(by_group(other, own), Ok(()));
    assert_eq!(by_group(other, another), Err(Refusal::OtherLid));
    assert_eq!(by_group(other, GROUPS[1]), Ok(()));
    assert_eq!(by_group(own, GROUPS[1]), Err(Refusal::SelfMulticast));
    assert_eq!(by_group(own, another), Err(Refusal::SelfMulticast));
    assert_eq!(by_group(own, own), Err(Refusal::BadLid));
}

#[test]
fn r03_r05_r06_partition_switch_state_and_length() {
    let with = |header, len| verdict(header, len, Arrival::Addressed);
    let pkey = |pkey| {
        with(
            Header16B {
                pkey: PKey::new(pkey),
                ..header()
            },
            60,
        )
    };
    assert_eq!(pkey(0x0fed), Ok(()));
    assert_eq!(pkey(0x8fee), Err(Refusal::BadPkey));
    // Equal in the 8 bits that the kernel's driver compares.
    let vesw = |vesw_id| {
        with(
            Header16B {
                vesw_id,
                ..header()
            },
            60,
        )
    };
    assert_eq!(vesw(0xbbc), Err(Refusal::BadVeswId));
    assert_eq!(with(header(), 1518), Ok(()));
    assert_eq!(with(header(), 1519), Err(Refusal::Oversize));
    let mut runt = packet(60, Profile::Wire0);
    *runt.last_mut().unwrap() = 0x44;
    let runt = strict(&runt).unwrap();
    assert_eq!(runt.frame.len(), 59);
    assert_eq!(
        admit(&runt, &receiver(), Arrival::Addressed),
        Err(Refusal::Runt)
    );
    let down = Receiver {
        forwarding: false,
        ..receiver()
    };
    assert_eq!(
        admit(&runt, &down, Arrival::Addressed),
        Err(Refusal::DropState)
    );
    let limited = Receiver {
        pkey: PKey::new(0x0fed),
        ..receiver()
    };
    let both_limited = Header16B {
        pkey: PKey::new(0x0fed),
        ..header()
    };
    let packet = encoded(&both_limited, &frame(60), Profile::Wire0);
    let refused = admit(&strict(&packet).unwrap(), &limited, Arrival::Addressed);
    assert_eq!(refused, Err(Refusal::BadPkey));
}

#[test]
fn the_shortest_packets_are_runts() {
    let shortest = Header16B {
        length_qw: 4,
        ..header()
    };
    let mut p = shortest.to_bytes().to_vec();
    p.resize(32, 0);
    p[31] = 0x47;
    let read = strict(&p).unwrap();
    assert_eq!(read.frame, b"");
    assert_eq!(
        admit(&read, &receiver(), Arrival::Addressed),
        Err(Refusal::Runt)
    );
}

#[test]
fn r14_each_refusal_counts_in_the_counter_of_its_name_alone() {
    for refusal in Refusal::ALL {
        let mut counters = Counters::default();
        refusal.count(&mut counters);
        let counted: Vec<_> = counters
            .named()
            .into_iter()
            .filter(|(_, n)| *n != 0)
            .collect();
        assert_eq!(counted, [(refusal.counter(), 1)]);
    }
}
