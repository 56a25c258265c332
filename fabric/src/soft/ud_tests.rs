//! Packets built by [`train::seal`] and received by [`receive`].

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use proptest::prelude::*;
use proto::{EndpointId, Psn};

use super::super::endpoint::UdQueuePair;
use super::super::qp::State;
use super::super::snapshot::Endpoints;
use super::super::train::{self, Header, Ipv4Id, Route, packet_len};
use super::*;
use crate::pkeys::Entry;
use crate::worker::TrainTicket;

const OWN: Qpn = Qpn::new(0x1a);
const PEER: Qpn = Qpn::new(0x11);
const QKEY: QKey = QKey::new(0x0b1b);
const MGID: &str = "ff12:401b:ffff::ffff:ffff";

fn gid(s: &str) -> Gid {
    s.parse().unwrap()
}

fn endpoint(id: u32, qpn: Qpn, pkey: u16, qkey: QKey) -> UdQueuePair {
    let pkey = PKey::new(pkey);
    let mut ud = UdQueuePair::new(EndpointId(id), qpn, pkey, qkey);
    ud.follow(Some(Entry { index: 0, pkey }), Psn::new(0));
    ud
}

/// A port at `own` with these endpoints, all attached to the broadcast group.
fn table(own: &str, endpoints: Vec<UdQueuePair>) -> Table {
    let all = endpoints.iter().map(UdQueuePair::id).collect();
    Table {
        gid: gid(own),
        payload_max: 4096,
        endpoints: Arc::new(Endpoints::of(endpoints.iter())),
        groups: Arc::new([(gid(MGID), all)].into_iter().collect()),
        ..Table::default()
    }
}

fn one() -> Table {
    table("fe80::2", vec![endpoint(1, OWN, 0xffff, QKEY)])
}

fn header() -> Header {
    Header {
        opcode: opcode::UD_SEND_ONLY,
        pkey: PKey::DEFAULT,
        dest_qp: OWN,
        qkey: QKEY,
        src_qp: PEER,
    }
}

fn route(source: &str, destination: &str) -> Route {
    let ip: IpAddr = source.parse().unwrap();
    Route {
        source: SocketAddr::new(ip, 0xc001),
        destination: destination.parse().unwrap(),
        ids: Ipv4Id::Segment,
    }
}

fn path(route: &Route) -> Path {
    Path {
        src: route.source.ip().into(),
        dst: route.destination.into(),
        src_port: route.source.port(),
    }
}

/// The bytes of a train of `count` packets; `payload` and `last` are their payload lengths.
fn sealed(header: &Header, route: &Route, count: usize, payload: usize, last: usize) -> Vec<u8> {
    let ticket = TrainTicket {
        count,
        payload,
        last,
    };
    // The memory contains old bytes of another train.
    let mut memory = vec![0xa5; count * packet_len(payload)];
    for (k, place) in memory.chunks_mut(packet_len(payload)).enumerate() {
        let len = if k + 1 == count { last } else { payload };
        for (i, b) in place[HEAD..HEAD + len].iter_mut().enumerate() {
            *b = (k + i) as u8;
        }
    }
    let total = train::seal(&mut memory, &ticket, header, Psn::new(0xff_fffe), route).unwrap();
    memory.truncate(total);
    memory
}

fn packet(header: &Header, route: &Route, len: usize) -> Vec<u8> {
    sealed(header, route, 1, len, len)
}

/// The receivers of a single packet.
fn outcome(table: &Table, route: &Route, bytes: &[u8]) -> Result<Vec<u32>, Refusal> {
    let mut icrc = IcrcCheck::default();
    let mut got = Vec::new();
    receive(table, &path(route), &mut icrc, bytes, |d| {
        got.push(d.to.map_or(0, |e| e.id.0));
    })?;
    Ok(got)
}

fn to_own(table: &Table, header: &Header) -> Result<Vec<u32>, Refusal> {
    let r = route("fe80::1", "fe80::2");
    outcome(table, &r, &packet(header, &r, 100))
}

proptest! {
    #[test]
    fn any_bytes_are_taken_without_a_panic(
        bytes in proptest::collection::vec(any::<u8>(), 0..200),
        opcode in prop_oneof![Just(opcode::UD_SEND_ONLY), Just(opcode::UD_SEND_ONLY_IMM)],
        multicast in any::<bool>(),
    ) {
        let mut bytes = bytes;
        let r = route("fe80::1", if multicast { MGID } else { "fe80::2" });
        let _ = outcome(&one(), &r, &bytes);
        // A valid first byte, to reach more than the first check.
        if let Some(b) = bytes.first_mut() {
            *b = opcode;
        }
        if let Some(b) = bytes.get_mut(1) {
            *b &= 0xf0;
        }
        if let Some(q) = bytes.get_mut(5..8) {
            q.copy_from_slice(&(if multicast { Qpn::MULTICAST } else { OWN }).to_bytes());
        }
        prop_assert!(outcome(&one(), &r, &bytes).is_err());
    }

    #[test]
    fn what_is_built_is_received(
        count in 1usize..16,
        payload in 1usize..300,
        shorter in 0usize..300,
        v4 in any::<bool>(),
    ) {
        let last = payload.saturating_sub(shorter);
        let (a, b) = if v4 { ("192.0.2.1", "192.0.2.2") } else { ("fe80::1", "fe80::2") };
        let t = table(b, vec![endpoint(1, OWN, 0xffff, QKEY)]);
        let r = route(a, b);
        let bytes = sealed(&header(), &r, count, payload, last);
        let mut icrc = IcrcCheck::default();
        let mut got = Vec::new();
        icrc.start_run();
        for (k, p) in bytes.chunks(packet_len(payload)).enumerate() {
            icrc.at(k);
            receive(&t, &path(&r), &mut icrc, p, |d| {
                assert_eq!((d.src_qpn, d.pkey, d.multicast), (PEER, PKey::DEFAULT, false));
                got.push(p[d.payload].to_vec());
            }).unwrap();
        }
        prop_assert_eq!(got.len(), count);
        for (k, g) in got.iter().enumerate() {
            let len = if k + 1 == count { last } else { payload };
            prop_assert_eq!(g.len(), len);
            prop_assert!(g.iter().enumerate().all(|(i, b)| *b == (k + i) as u8));
        }
    }

    #[test]
    fn a_flipped_bit_is_refused(len in 0usize..64, bit in any::<proptest::sample::Index>()) {
        let r = route("fe80::1", "fe80::2");
        let mut bytes = packet(&header(), &r, len);
        let bit = bit.index(bytes.len() * 8);
        bytes[bit / 8] ^= 1 << (bit % 8);
        // FECN, BECN and their neighbours may change (conformance item 15).
        prop_assert_eq!(outcome(&one(), &r, &bytes).is_ok(), bit / 8 == 4);
    }

    #[test]
    fn a_path_that_differs_is_refused(byte in 8usize..16, port in 1u16..) {
        let r = route("fe80::1", "fe80::2");
        let bytes = packet(&header(), &r, 40);
        let mut from = path(&r);
        from.src.0[byte] ^= 1;
        let mut other = path(&r);
        other.src_port ^= port;
        for p in [from, other] {
            let mut icrc = IcrcCheck::default();
            let outcome = receive(&one(), &p, &mut icrc, &bytes, |_| ());
            prop_assert_eq!(outcome, Err(Refusal::Icrc));
        }
    }
}

/// Conformance items 2 and 4, and the wrap of the sequence number.
#[test]
fn headers_of_a_train() {
    let bytes = sealed(&header(), &route("fe80::1", "fe80::2"), 3, 9, 4);
    let packets: Vec<&[u8]> = bytes.chunks(packet_len(9)).collect();
    assert_eq!(
        packets.iter().map(|p| p.len()).collect::<Vec<_>>(),
        [36, 36, 28]
    );
    for (p, psn) in packets.iter().zip([0xff_fffe, 0xff_ffff, 0]) {
        let (bth, rest) = Bth::ref_from_prefix(p).unwrap();
        let (deth, _) = Deth::ref_from_prefix(rest).unwrap();
        assert_eq!((bth.opcode, bth.tver(), bth.ack_req()), (0x64, 0, false));
        assert_eq!(
            (bth.psn(), bth.dest_qp(), bth.fecn_becn),
            (Psn::new(psn), OWN, 0)
        );
        assert_eq!((deth.src_qp(), deth.qkey(), deth.reserved), (PEER, QKEY, 0));
    }
    assert_eq!((packets[0][1], packets[2][1]), (0x30, 0));
    assert_eq!(packets[0][HEAD + 9..HEAD + 12], [0; 3], "the pad is zero");
}

/// The worked example of a UD packet over IPv6, except SE, which we do not set.
#[test]
fn a_known_packet() {
    let r = route("2001:db8::1", "2001:db8::2");
    let h = Header {
        qkey: QKey::new(0x1111_1111),
        ..header()
    };
    let ticket = TrainTicket {
        count: 1,
        payload: 5,
        last: 5,
    };
    let mut memory = [0xa5; 32];
    memory[HEAD..HEAD + 5].copy_from_slice(b"hello");
    assert_eq!(
        train::seal(&mut memory, &ticket, &h, Psn::new(1), &r),
        Some(32)
    );
    let known =
        "64 30 ff ff 00 00 00 1a 00 00 00 01 11 11 11 11 00 00 00 11 68 65 6c 6c 6f 00 00 00";
    let known: Vec<u8> = known
        .split(' ')
        .map(|b| u8::from_str_radix(b, 16).unwrap())
        .collect();
    assert_eq!(memory[..28], known);
    // The ICRC by its definition: zlib's CRC of ones, the masked headers and the packet.
    let mut covered = vec![0xff; 8];
    covered.extend([0x6f, 0xff, 0xff, 0xff, 0, 40, 17, 0xff]);
    covered.extend(gid("2001:db8::1").0);
    covered.extend(gid("2001:db8::2").0);
    covered.extend([0xc0, 0x01, 0x12, 0xb7, 0, 40, 0xff, 0xff]);
    covered.extend(&known);
    covered[8 + 48 + 4] = 0xff;
    assert_eq!(memory[28..], crc32fast::hash(&covered).to_le_bytes());
}

/// Frame 3 of the capture cm_udaddy_v4: `udaddy` of rdma-core sends its queue pair number in this way.
#[test]
fn immediate_data_go_in_front_of_the_payload() {
    let r = Route {
        source: "192.168.77.11:49500".parse().unwrap(),
        destination: "192.168.77.10".parse().unwrap(),
        ids: Ipv4Id::Zero,
    };
    let h = Header {
        opcode: opcode::UD_SEND_ONLY_IMM,
        qkey: QKey::new(0x0123_4567),
        src_qp: Qpn::new(0x15),
        dest_qp: Qpn::new(0x14),
        ..header()
    };
    let immediate = [0, 0, 0, 0x15];
    let ticket = TrainTicket {
        count: 1,
        payload: 104,
        last: 104,
    };
    let mut memory = [0; packet_len(104)];
    memory[HEAD..HEAD + 4].copy_from_slice(&immediate);
    train::seal(&mut memory, &ticket, &h, Psn::new(0), &r).unwrap();
    let captured = "65 00 ff ff 00 00 00 14 00 00 00 00 01 23 45 67 00 00 00 15 00 00 00 15 00";
    let captured: Vec<u8> = captured
        .split(' ')
        .map(|b| u8::from_str_radix(b, 16).unwrap())
        .collect();
    assert_eq!(memory[..captured.len()], captured);

    let own = endpoint(1, h.dest_qp, 0xffff, h.qkey);
    let table = table("::ffff:192.168.77.10", vec![own]);
    let mut got = None;
    let mut icrc = IcrcCheck::default();
    receive(&table, &path(&r), &mut icrc, &memory, |d| {
        got = Some(d.payload)
    })
    .unwrap();
    assert_eq!(got, Some(HEAD + 4..HEAD + 104));
}

#[test]
fn a_train_that_mixes_families_or_is_empty_is_not_sealed() {
    let mut memory = [0; 100];
    let ticket = |count| TrainTicket {
        count,
        payload: 4,
        last: 4,
    };
    let psn = Psn::new(0);
    let mixed = route("fe80::1", "192.0.2.2");
    assert_eq!(
        train::seal(&mut memory, &ticket(1), &header(), psn, &mixed),
        None
    );
    let good = route("fe80::1", "fe80::2");
    assert_eq!(
        train::seal(&mut memory, &ticket(0), &header(), psn, &good),
        None
    );
    assert_eq!(
        train::seal(&mut memory, &ticket(9), &header(), psn, &good),
        None
    );
}

/// Conformance items 5 to 9: checks before the lookup of a queue pair.
#[test]
fn t5_to_t9_malformed_packets() {
    let r = route("fe80::1", "fe80::2");
    let good = packet(&header(), &r, 8);
    let with = |at: usize, value: u8| {
        let mut p = good.clone();
        p[at] = value;
        outcome(&one(), &r, &p)
    };
    assert_eq!(outcome(&one(), &r, &good), Ok(vec![1]));
    assert_eq!(with(1, 0x01), Err(Refusal::Version));
    assert_eq!(with(0, 0x04), Err(Refusal::Opcode), "RC");
    assert_eq!(with(0, 0x81), Err(Refusal::Opcode), "CNP");
    assert_eq!(with(7, 0), Err(Refusal::UnknownQpn), "DestQP 0");
    for len in 0..HEAD + ICRC_LEN {
        assert_eq!(
            outcome(&one(), &r, &good[..len]),
            Err(Refusal::Length),
            "{len}"
        );
    }
    // Three pad bytes in an empty packet.
    let mut empty = packet(&header(), &r, 0);
    empty[1] = 0x30;
    assert_eq!(outcome(&one(), &r, &empty), Err(Refusal::Length));
    let mut small = one();
    small.payload_max = 7;
    assert_eq!(outcome(&small, &r, &good), Err(Refusal::Length));
}

/// Conformance items 31 and 32.
#[test]
fn t31_t32_pkeys() {
    let sent = |own: u16, pkey: u16| {
        let t = table("fe80::2", vec![endpoint(1, OWN, own, QKEY)]);
        let h = Header {
            pkey: PKey::new(pkey),
            ..header()
        };
        to_own(&t, &h)
    };
    assert_eq!(sent(0xffff, 0x7fff), Ok(vec![1]));
    assert_eq!(sent(0x7fff, 0xffff), Ok(vec![1]));
    assert_eq!(sent(0x8001, 0x8001), Ok(vec![1]));
    for (own, pkey) in [
        (0xffff, 0),
        (0xffff, 0x8001),
        (0x7fff, 0x7fff),
        (0x8001, 0x8002),
    ] {
        assert_eq!(sent(own, pkey), Err(Refusal::PKey), "{own:#x} {pkey:#x}");
    }
}

/// Conformance items 33 and 34.
#[test]
fn t33_t34_qkeys() {
    let with = |dest_qp, qkey| {
        let h = Header {
            dest_qp,
            qkey: QKey::new(qkey),
            ..header()
        };
        to_own(&one(), &h)
    };
    assert_eq!(with(OWN, 0x0b1c), Err(Refusal::QKey));
    assert_eq!(with(Qpn::GSI, 0x0b1b), Err(Refusal::QKey));
    assert_eq!(with(Qpn::GSI, 0x8001_0000), Ok(vec![0]));
}

/// Conformance item 10: a queue pair below RTR receives nothing.
#[test]
fn t10_a_queue_pair_that_does_not_receive() {
    let with = |state| {
        let mut endpoints = Endpoints::of([endpoint(1, OWN, 0xffff, QKEY)].iter());
        endpoints.modify_first(state);
        Table {
            endpoints: Arc::new(endpoints),
            ..one()
        }
    };
    assert_eq!(to_own(&with(State::Err), &header()), Err(Refusal::State));
}

#[test]
fn only_our_gid_is_served() {
    let r = route("fe80::1", "fe80::3");
    assert_eq!(
        outcome(&one(), &r, &packet(&header(), &r, 4)),
        Err(Refusal::NotOurGid)
    );
}

fn three() -> Table {
    table(
        "fe80::2",
        vec![
            endpoint(1, OWN, 0xffff, QKEY),
            endpoint(2, Qpn::new(0x1b), 0x8001, QKEY),
            endpoint(3, Qpn::new(0x1c), 0xffff, QKEY),
        ],
    )
}

fn to_group(
    table: &Table,
    header: Header,
    source: &str,
    destination: &str,
) -> Result<Vec<u32>, Refusal> {
    let h = Header {
        dest_qp: Qpn::MULTICAST,
        ..header
    };
    let r = route(source, destination);
    outcome(table, &r, &packet(&h, &r, 40))
}

/// Conformance items 43 and 44.
#[test]
fn t43_t44_multicast_reaches_attached_endpoints_with_its_keys() {
    let t = three();
    assert_eq!(to_group(&t, header(), "fe80::1", MGID), Ok(vec![1, 3]));
    let foreign = Header {
        pkey: PKey::new(0x8005),
        ..header()
    };
    assert_eq!(to_group(&t, foreign, "fe80::1", MGID), Err(Refusal::PKey));
    let other = "ff12:401b:ffff::1";
    assert_eq!(
        to_group(&t, header(), "fe80::1", other),
        Err(Refusal::NotMember)
    );
    let echo = Header {
        src_qp: OWN,
        ..header()
    };
    assert_eq!(
        to_group(&t, echo, "fe80::2", MGID),
        Ok(vec![3]),
        "a sibling's"
    );
    assert_eq!(
        to_group(&one(), echo, "fe80::2", MGID),
        Err(Refusal::OwnEcho)
    );
}

#[test]
fn copies_of_multicast_reach_endpoints_with_its_keys() {
    let mut t = three();
    assert_eq!(
        to_group(&t, header(), "fe80::1", "fe80::2"),
        Err(Refusal::NotMember)
    );
    t.copies = true;
    t.groups = Arc::default();
    assert_eq!(to_group(&t, header(), "fe80::1", "fe80::2"), Ok(vec![1, 3]));
    assert_eq!(
        to_group(&t, header(), "fe80::1", "fe80::3"),
        Err(Refusal::NotOurGid)
    );
}

/// Runs that the network has split or renumbered, and the identifications of other senders.
#[test]
fn any_ipv4_identification_is_accepted_and_corruption_is_not() {
    let t = table("192.0.2.2", vec![endpoint(1, OWN, 0xffff, QKEY)]);
    let r = route("192.0.2.1", "192.0.2.2");
    let bytes = sealed(&header(), &r, 10, 100, 60);
    let packets: Vec<&[u8]> = bytes.chunks(packet_len(100)).collect();
    let mut icrc = IcrcCheck::default();
    // The second half of a run arrives as a separate run.
    icrc.start_run();
    for (k, p) in packets[5..].iter().enumerate() {
        icrc.at(k);
        assert_eq!(receive(&t, &path(&r), &mut icrc, p, |_| ()), Ok(()));
    }
    let mut bad = packets[3].to_vec();
    bad[60] ^= 4;
    bad[90] ^= 0x10;
    assert_eq!(outcome(&t, &r, &bad), Err(Refusal::Icrc));
}
