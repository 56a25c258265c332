use proptest::prelude::*;
use zerocopy::IntoBytes;

use super::opcode;
use super::*;

/// "hello" from queue pair 0x11 to 0x1a with a solicited event.
fn hello() -> Repr<'static> {
    Repr {
        opcode: opcode::UD_SEND_ONLY,
        solicited: true,
        mig_req: false,
        pkey: PKey::DEFAULT,
        fecn: false,
        becn: false,
        dest_qp: Qpn::new(0x1a),
        ack_req: false,
        psn: Psn::new(1),
        extended: Extended {
            deth: Some(Deth::new(QKey::new(0x1111_1111), Qpn::new(0x11))),
            ..Extended::default()
        },
        payload: b"hello",
    }
}

const HELLO: [u8; 28] = [
    0x64, 0xb0, 0xff, 0xff, 0, 0, 0, 0x1a, 0, 0, 0, 1, 0x11, 0x11, 0x11, 0x11, 0, 0, 0, 0x11, b'h',
    b'e', b'l', b'l', b'o', 0, 0, 0,
];

fn emit(repr: &Repr<'_>) -> Vec<u8> {
    let mut out = Vec::new();
    repr.emit(&mut out).unwrap();
    out
}

/// The bytes and an ICRC of ones, which this module does not check.
fn with_icrc(repr: &Repr<'_>) -> Vec<u8> {
    let mut bytes = emit(repr);
    bytes.extend([0xff; ICRC_LEN]);
    bytes
}

/// Checklist 1.
#[test]
fn ud_send_only_is_the_known_bytes() {
    assert_eq!(emit(&hello()), HELLO);
    let bytes = with_icrc(&hello());
    let packet = Packet::parse(&bytes).unwrap();
    assert_eq!(packet.repr(), hello());
    assert_eq!((packet.pad, packet.icrc), (&[0, 0, 0][..], [0xff; 4]));
    assert_eq!(packet.covered, HELLO);
}

/// Checklist 2.
#[test]
fn padding_is_zero_and_fills_up_to_four() {
    let data = [0xee; 8];
    for len in 0..=8 {
        let pad = [0, 3, 2, 1, 0, 3, 2, 1, 0][len];
        assert_eq!(pad_count(len), pad, "{len}");
        let repr = Repr {
            payload: &data[..len],
            ..hello()
        };
        let bytes = with_icrc(&repr);
        let packet = Packet::parse(&bytes).unwrap();
        assert_eq!(packet.bth.pad_count(), pad);
        assert_eq!(packet.payload, &data[..len]);
        assert_eq!(packet.pad, &[0; 3][..usize::from(pad)]);
    }
}

/// Checklist 3: the P_Key of the default partition is the default value.
#[test]
fn the_default_partition_key_is_ffff() {
    assert_eq!(emit(&hello())[2..4], [0xff, 0xff]);
}

/// Checklist 4.
#[test]
fn numbers_are_cut_to_24_bits_and_reserved_bits_are_zero() {
    let repr = Repr {
        dest_qp: Qpn::new(0xab12_3456),
        psn: Psn::new(0xcd65_4321),
        fecn: true,
        ack_req: true,
        extended: Extended {
            deth: Some(Deth::new(QKey::GSI, Qpn::new(0xef00_0001))),
            ..Extended::default()
        },
        ..hello()
    };
    let bytes = emit(&repr);
    assert_eq!(bytes[4..8], [0x80, 0x12, 0x34, 0x56]);
    assert_eq!(bytes[8..12], [0x80, 0x65, 0x43, 0x21]);
    assert_eq!(bytes[12..20], [0x80, 1, 0, 0, 0, 0, 0, 1]);
}

#[test]
fn bits_of_the_base_header() {
    let mut bth = hello().bth();
    assert!(bth.solicited() && !bth.mig_req() && !bth.fecn() && !bth.becn() && !bth.ack_req());
    bth.flags = 0x7f;
    bth.fecn_becn = 0x40;
    assert!(!bth.solicited() && bth.mig_req() && bth.becn());
    assert_eq!((bth.pad_count(), bth.tver()), (3, 15));
}

/// Checklist 5, 7 and 8, as far as one packet shows them.
#[test]
fn packets_that_the_kernel_drops_are_malformed() {
    let good = with_icrc(&hello());
    for len in 0..12 + 8 + 3 + 4 {
        assert!(
            matches!(
                Packet::parse(&good[..len]),
                Err(Malformed::Short { len: l, .. }) if l == len
            ),
            "{len}"
        );
    }
    let change = |at: usize, value: u8| {
        let mut bytes = good.clone();
        bytes[at] = value;
        Packet::parse(&bytes).map(|_| ()).unwrap_err()
    };
    assert_eq!(change(0, 0x15), Malformed::Opcode(0x15));
    assert_eq!(change(0, 0x44), Malformed::Opcode(0x44));
    assert_eq!(change(1, 0xb1), Malformed::Version(1));
    assert_eq!(change(0, 0x11), Malformed::UnexpectedPayload(5 + 3 + 4));
}

#[test]
fn a_header_that_is_not_the_opcodes_is_refused() {
    let repr = Repr {
        opcode: opcode::RC_SEND_ONLY,
        ..hello()
    };
    assert_eq!(
        repr.emit(&mut Vec::new()),
        Err(Malformed::Opcode(opcode::RC_SEND_ONLY))
    );
    let repr = Repr {
        opcode: 0x60,
        ..hello()
    };
    assert_eq!(repr.emit(&mut Vec::new()), Err(Malformed::Opcode(0x60)));
}

#[test]
fn every_opcode_with_headers_has_a_name() {
    for op in 0..=255 {
        assert_eq!(
            opcode::headers(op).is_some(),
            opcode::name(op).is_some(),
            "{op:#04x}"
        );
    }
    assert_eq!(opcode::name(0x2a), Some("UC WRITE_ONLY"));
    assert_eq!(opcode::name(0x14), Some("RC FETCH_ADD"));
}

#[test]
fn syndromes_of_the_specification() {
    let decoded = |syndrome| {
        Aeth {
            syndrome,
            msn: [0, 0, 7],
        }
        .acknowledgement()
    };
    assert_eq!(decoded(0x1f), Acknowledgement::Ack { credits: 31 });
    assert_eq!(decoded(0x2c), Acknowledgement::Rnr { timer: 12 });
    assert_eq!(decoded(0x60), Acknowledgement::Nak { code: 0 });
    assert_eq!(decoded(0x40), Acknowledgement::Reserved);
    assert_eq!(decoded(0xe0), Acknowledgement::Reserved);
}

proptest! {
    /// Accepted packets are unchanged after a round trip, except reserved bits and pad bytes, which are
    /// sent as zero.
    #[test]
    fn packets_round_trip(
        op in prop::sample::select((0u8..=255).filter(|o| opcode::headers(*o).is_some()).collect::<Vec<_>>()),
        mut bytes in prop::collection::vec(any::<u8>(), 16..120),
    ) {
        bytes[0] = op;
        bytes[1] &= 0xf0;
        if let Ok(packet) = Packet::parse(&bytes) {
            // PadCnt may be wrong in received packets; only the right value is written.
            prop_assume!(packet.bth.pad_count() == pad_count(packet.payload.len()));
            let mut out = Vec::new();
            packet.repr().emit(&mut out).unwrap();
            let again = [&out[..], &packet.icrc].concat();
            prop_assert_eq!(again.len(), bytes.len());
            let second = Packet::parse(&again).unwrap();
            prop_assert_eq!(second.repr(), packet.repr());
            let known = Bth { fecn_becn: packet.bth.fecn_becn & 0xc0, ack_req: packet.bth.ack_req & 0x80, ..packet.bth };
            prop_assert_eq!(second.bth.as_bytes(), known.as_bytes());
            prop_assert!(second.pad.iter().all(|b| *b == 0));
        }
    }
}
