//! Packets larger than their path allows, and the errors, checked by an independent parser.

use etherparse::{Icmpv4Type, Icmpv6Type, NetSlice, SlicedPacket, TransportSlice, icmpv4, icmpv6};

use super::*;

const IP_B: [u8; 4] = [10, 0, 0, 2];
const MAC_B_UNKNOWN: Mac = [2, 9, 9, 9, 9, 9];

/// An interface with a known peer without connections, and the target.
fn with_peer() -> (Ipoib, Mac, Target) {
    let mut c = a();
    let mac = teach(&mut c, address(0xb, 0x4b), IP_B);
    let small = frame(mac, MAC_A, 0x0800, &ipv4([10, 0, 0, 1], IP_B, b""));
    let Outgoing::Forward { to, .. } = c.from_tap(T0, &NO_OFFLOAD, &small) else {
        panic!()
    };
    (c, mac, to)
}

fn too_big(c: &mut Ipoib, to: Target, frame: &[u8]) -> Option<Vec<u8>> {
    match c.too_big(T0, to, &NO_OFFLOAD, frame, frame.len() - 14) {
        TooBig::Answer(answer) => Some(answer.to_vec()),
        TooBig::Dropped => None,
        TooBig::Held => panic!("nothing is being made"),
    }
}

/// The MTU and the quote of an error; verifies everything else.
fn read_answer(answer: &[u8], offender: &[u8]) -> (u32, Vec<u8>) {
    assert_eq!(answer[..6], offender[6..12]);
    assert_eq!(answer[6..12], offender[..6]);
    let parsed = SlicedPacket::from_ethernet(answer).unwrap();
    match (parsed.net.unwrap(), parsed.transport.unwrap()) {
        (NetSlice::Ipv4(ip), TransportSlice::Icmpv4(icmp)) => {
            let header = ip.header();
            assert_eq!(
                header.header_checksum(),
                header.to_header().calc_header_checksum()
            );
            assert_eq!(header.source(), offender[30..34]);
            assert_eq!(header.destination(), offender[26..30]);
            assert!(usize::from(header.total_len()) <= 576);
            let kind = icmp.icmp_type();
            assert_eq!(kind.calc_checksum(icmp.payload()), icmp.checksum());
            let Icmpv4Type::DestinationUnreachable(
                icmpv4::DestUnreachableHeader::FragmentationNeeded { next_hop_mtu },
            ) = kind
            else {
                panic!("{kind:?}")
            };
            (next_hop_mtu.into(), icmp.payload().to_vec())
        }
        (NetSlice::Ipv6(ip), TransportSlice::Icmpv6(icmp)) => {
            let header = ip.header();
            assert_eq!(header.source(), offender[38..54]);
            assert_eq!(header.destination(), offender[22..38]);
            assert!(answer.len() <= 14 + 1280);
            assert!(icmp.is_checksum_valid(header.source(), header.destination()));
            let Icmpv6Type::PacketTooBig { mtu } = icmp.icmp_type() else {
                panic!("{:?}", icmp.icmp_type())
            };
            assert_eq!(icmp.code_u8(), 0);
            assert!(matches!(icmpv6::TYPE_PACKET_TOO_BIG, 2));
            (mtu, icmp.payload().to_vec())
        }
        other => panic!("{other:?}"),
    }
}

fn ipv6(next: u8, payload: &[u8]) -> Vec<u8> {
    let mut p = icmpv6("fd00::1", "fd00::2", &[0; 4])[..40].to_vec();
    p[4..6].copy_from_slice(&(payload.len() as u16).to_be_bytes());
    p[6] = next;
    p.extend_from_slice(payload);
    p
}

#[test]
fn c107_ipv4_over_the_datagram_mtu_is_answered_in_the_destinations_name() {
    let (mut c, mac, to) = with_peer();
    let f = frame(mac, MAC_A, 0x0800, &ipv4([10, 0, 0, 1], IP_B, &[7; 2100]));
    let (mtu, quote) = read_answer(&too_big(&mut c, to, &f).unwrap(), &f);
    assert_eq!((mtu, &quote[..]), (2044, &f[14..14 + 548]));
    assert_eq!(c.counters().too_big_answered, 1);
}

#[test]
fn c108_ipv6_is_answered_by_packet_too_big() {
    let (mut c, mac, to) = with_peer();
    let f = frame(mac, MAC_A, 0x86dd, &ipv6(17, &[7; 2100]));
    let (mtu, quote) = read_answer(&too_big(&mut c, to, &f).unwrap(), &f);
    assert_eq!((mtu, &quote[..]), (2044, &f[14..14 + 1232]));
}

#[test]
fn a_part_of_a_large_send_is_quoted_as_the_packet_that_it_would_be() {
    let (mut c, mac, to) = with_peer();
    for (ethertype, l3) in [
        (0x0800, ipv4([10, 0, 0, 1], IP_B, &[7; 60_000])),
        (0x86dd, ipv6(253, &[7; 60_000])),
    ] {
        let f = frame(mac, MAC_A, ethertype, &l3);
        let got = c.too_big(T0, to, &NO_OFFLOAD, &f, 9000);
        let TooBig::Answer(answer) = got else {
            panic!("{got:?}")
        };
        let (_, quote) = read_answer(answer, &f);
        match SlicedPacket::from_ip(&[&quote[..], &[0; 9000]].concat())
            .unwrap()
            .net
        {
            Some(NetSlice::Ipv4(ip)) => {
                let header = ip.header();
                assert_eq!(header.total_len(), 9000);
                assert_eq!(
                    header.header_checksum(),
                    header.to_header().calc_header_checksum()
                );
            }
            Some(NetSlice::Ipv6(ip)) => assert_eq!(ip.header().payload_length(), 8960),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn c109_later_fragments_icmp_errors_and_groups_are_not_answered() {
    let (mut c, mac, to) = with_peer();
    let v4 = |change: &dyn Fn(&mut Vec<u8>)| {
        let mut p = ipv4([10, 0, 0, 1], IP_B, &[8; 2100]);
        change(&mut p);
        frame(mac, MAC_A, 0x0800, &p)
    };
    let mut answered = |f: &[u8]| too_big(&mut c, to, f).is_some();
    assert!(
        answered(&v4(&|p| p[6..8].copy_from_slice(&[0x20, 0]))),
        "a first fragment"
    );
    assert!(!answered(&v4(&|p| p[6..8].copy_from_slice(&[0x20, 1]))));
    assert!(answered(&v4(&|p| p[9] = 1)), "an echo");
    for error in [3, 4, 5, 11, 12] {
        assert!(!answered(&v4(&|p| (p[9], p[20]) = (1, error))), "{error}");
    }
    for group in [[224, 0, 0, 1], [255; 4], [0; 4]] {
        assert!(!answered(&v4(&|p| p[16..20].copy_from_slice(&group))));
        assert!(!answered(&v4(&|p| p[12..16].copy_from_slice(&group))));
    }
    let v6 = |next, payload: &[u8]| {
        let payload = [payload, &[0; 2100]].concat();
        frame(mac, MAC_A, 0x86dd, &ipv6(next, &payload))
    };
    assert!(answered(&v6(58, &[128, 0])), "an echo");
    for error in [1, 2, 3, 4, 137] {
        assert!(!answered(&v6(58, &[error, 0])), "{error}");
        let hop_by_hop = [&[58, 0, 0, 0, 0, 0, 0, 0][..], &[error, 0]].concat();
        assert!(!answered(&v6(0, &hop_by_hop)), "{error} behind options");
    }
    assert!(
        answered(&v6(44, &[17, 0, 0, 1, 0, 0, 0, 0])),
        "a first fragment"
    );
    assert!(!answered(&v6(44, &[17, 0, 0, 9, 0, 0, 0, 0])));
    assert!(!answered(&v6(44, &[58, 0, 0, 1, 0, 0, 0, 0, 2, 0])));
    assert_eq!(c.counters().too_big_unanswerable, 24);
}

#[test]
fn c111_multicast_over_the_datagram_mtu_is_dropped_and_counted() {
    let (mut c, ..) = with_peer();
    let group = ipv4([10, 0, 0, 1], [239, 1, 2, 3], &[7; 2100]);
    let f = frame([1, 0, 0x5e, 1, 2, 3], MAC_A, 0x0800, &group);
    let Outgoing::Forward { to, .. } = c.from_tap(T0, &NO_OFFLOAD, &f) else {
        panic!()
    };
    assert_eq!(too_big(&mut c, to, &f), None);
    assert_eq!(c.counters().too_big_multicast, 1);
}

#[test]
fn answers_are_limited_for_each_destination() {
    let (mut c, mac, to) = with_peer();
    let f = frame(mac, MAC_A, 0x0800, &ipv4([10, 0, 0, 1], IP_B, &[7; 2100]));
    let count = (0..25)
        .filter(|_| too_big(&mut c, to, &f).is_some())
        .count();
    assert_eq!((count, c.counters().too_big_limited), (10, 15));
    // Another destination behind the same peer, which may be a router.
    let f = frame(
        mac,
        MAC_A,
        0x0800,
        &ipv4([10, 0, 0, 1], [10, 9, 9, 9], &[7; 2100]),
    );
    assert!(too_big(&mut c, to, &f).is_some());
}

#[test]
fn frames_that_are_no_ip_are_not_answered() {
    let (mut c, _, to) = with_peer();
    let f = frame(MAC_B_UNKNOWN, MAC_A, 0x0806, &[0; 2100]);
    assert_eq!(too_big(&mut c, to, &f), None);
    let f = frame(
        MAC_B_UNKNOWN,
        MAC_A,
        0x0800,
        &ipv4([10, 0, 0, 1], IP_B, &[7; 40]),
    );
    for len in 14..42 {
        let got = c.too_big(T0, to, &NO_OFFLOAD, &f[..len], 3000);
        assert_eq!(got, TooBig::Dropped, "{len} bytes");
    }
}

/// As for a neighbour without connection; the slot is empty.
#[test]
fn an_empty_slot_gets_an_answer_as_well() {
    let (mut c, mac, to) = with_peer();
    let f = frame(mac, MAC_A, 0x0800, &ipv4([10, 0, 0, 1], IP_B, &[7; 2100]));
    let expected = too_big(&mut c, to, &f);
    for slot in [1, 64, u32::MAX - 1, u32::MAX] {
        assert_eq!(too_big(&mut c, Target::Neighbour(slot), &f), expected);
        assert_eq!(too_big(&mut c, Target::Group(slot), &f), None);
    }
}

#[test]
fn c100_the_largest_packet_of_a_connection_is_taken_and_one_byte_more_is_answered() {
    use proto::{ConnectionEvent, ConnectionId, Mode};
    let mut c = Ipoib::new(Config {
        mode: Mode::Connected,
        ..a().config
    });
    let peer = address(0xb, 0x4b);
    let flagged = HardwareAddress::new(crate::FLAG_RC, peer.qpn(), peer.gid());
    let mac = teach(&mut c, flagged, IP_B);
    let large = |len: usize| {
        let packet = ipv6(17, &vec![7; len - 40]);
        frame(mac, MAC_A, 0x86dd, &packet)
    };
    c.from_tap(T0, &NO_OFFLOAD, &large(100));
    let Some(ConnectionAction::Connect { request, .. }) = c.poll_connection() else {
        panic!()
    };
    let connection = ConnectionId(7);
    c.connecting(T0, request, Ok(connection));
    let private_data = [0, 0, 0, 0x4b, 0, 0, 0xff, 0xf4].into();
    c.connection_event(
        T0,
        &ConnectionEvent::Replied {
            connection,
            private_data,
        },
    );
    let f = large(65_521);
    let Outgoing::Message { to, mtu, .. } = c.from_tap(T0, &NO_OFFLOAD, &f) else {
        panic!()
    };
    assert_eq!(mtu, 65_520);
    let (mtu, _) = read_answer(&too_big(&mut c, to, &f).unwrap(), &f);
    assert_eq!(mtu, 65_520);
}
