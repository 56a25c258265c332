//! IP data, encapsulation and destinations.

use super::*;

#[test]
fn c01_c02_encapsulation_is_the_ethertype_and_zero() {
    let mut c = a();
    let mac = teach(&mut c, address(0xb, 0x4b), [10, 0, 0, 2]);
    let to = (address(0xb, 0).gid(), Qpn::new(0x4b));
    let v4 = frame(
        mac,
        MAC_A,
        0x0800,
        &ipv4([10, 0, 0, 1], [10, 0, 0, 2], b"x"),
    );
    assert_eq!(
        send(&mut c, T0, &v4),
        Sent::Forward(to.0, to.1, [8, 0, 0, 0])
    );
    let mut v6 = icmpv6("fe80::a", "fe80::b", &[128, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(
        send(&mut c, T0, &frame(mac, MAC_A, 0x86dd, &v6)),
        Sent::Forward(to.0, to.1, [0x86, 0xdd, 0, 0])
    );
    v6[6] = 17;
    assert_eq!(
        send(&mut c, T0, &frame(mac, MAC_A, 0x86dd, &v6)),
        Sent::Forward(to.0, to.1, [0x86, 0xdd, 0, 0])
    );
    for ethertype in [0x0806u16, 0x8035] {
        let f = frame(mac, MAC_A, ethertype, &arp(2, &MAC_A, [1; 4], &mac, [2; 4]));
        let Sent::Rewritten(_, _, p) = send(&mut c, T0, &f) else {
            panic!()
        };
        assert_eq!(
            p[..4],
            [ethertype.to_be_bytes()[0], ethertype.to_be_bytes()[1], 0, 0]
        );
    }
}

#[test]
fn c03_reserved_bytes_are_ignored() {
    let mut c = a();
    let b = address(0xb, 0x4b);
    let mut p = payload(0x0800, &ipv4([10, 0, 0, 2], [10, 0, 0, 1], b"data"));
    p[2..4].copy_from_slice(&[0xde, 0xad]);
    let own = c.local().gid();
    let f = receive(&mut c, &meta(b, own), &p).unwrap();
    assert_eq!((&f[..6], &f[12..14]), (&MAC_A[..], &[8, 0][..]));
    assert_eq!(f[14..], p[4..]);
}

#[test]
fn c04_other_types_are_dropped_and_counted() {
    let mut c = a();
    for t in [0x8100, 0x88cc, 0x88ca, 0x8863, 0x0026, 0x88a8] {
        let f = frame(MAC_BROADCAST, MAC_A, t, &[0; 46]);
        assert_eq!(
            send(&mut c, T0, &f),
            Sent::Dropped(DropReason::UnsupportedType)
        );
    }
    assert_eq!(c.counters().tx_dropped(DropReason::UnsupportedType), 6);
    let p = payload(0x88ca, &[0; 40]);
    let m = meta(address(0xb, 0x4b), c.local().gid());
    assert_eq!(receive(&mut c, &m, &p), Err(DropReason::UnsupportedType));
}

#[test]
fn tagged_frames_are_another_links_where_tags_select_links() {
    let mut c = a();
    c.set_vlans(true);
    let tagged = |t| frame(MAC_BROADCAST, MAC_A, t, &[0; 46]);
    assert_eq!(send(&mut c, T0, &tagged(0x8100)), Sent::Tagged);
    assert_eq!(c.counters().tx_dropped(DropReason::UnsupportedType), 0);
    let unsupported = Sent::Dropped(DropReason::UnsupportedType);
    assert_eq!(send(&mut c, T0, &tagged(0x88a8)), unsupported);
    c.set_vlans(false);
    assert_eq!(send(&mut c, T0, &tagged(0x8100)), unsupported);
}

#[test]
fn c11_c17_broadcasts_go_to_the_broadcast_group() {
    let mut c = a();
    for dst in [[255; 4], [10, 0, 0, 255]] {
        let f = frame(MAC_BROADCAST, MAC_A, 0x0800, &ipv4([10, 0, 0, 1], dst, b""));
        assert_eq!(
            send(&mut c, T0, &f),
            Sent::Forward(
                "ff12:401b:8001::ffff:ffff".parse().unwrap(),
                Qpn::MULTICAST,
                [8, 0, 0, 0]
            )
        );
    }
    let f = frame(
        [1, 0, 0x5e, 0, 0, 1],
        MAC_A,
        0x0800,
        &ipv4([10, 0, 0, 1], [10, 0, 0, 2], b""),
    );
    assert_eq!(send(&mut c, T0, &f), Sent::Dropped(DropReason::NotAGroup));
}

#[test]
fn c22_the_mgid_comes_from_the_ip_destination() {
    let mut c = a();
    let f = frame(
        [1, 0, 0x5e, 0, 0, 0xfb],
        MAC_A,
        0x0800,
        &ipv4([10, 0, 0, 1], [225, 0, 0, 251], b""),
    );
    let Sent::Forward(gid, qpn, _) = send(&mut c, T0, &f) else {
        panic!()
    };
    assert_eq!(gid, "ff12:401b:8001::100:fb".parse().unwrap());
    assert_eq!(qpn, Qpn::MULTICAST);
}

#[test]
fn c23_reports_go_to_their_groups() {
    let mut c = a();
    // MLDv2 with its hop-by-hop header, without neighbour discovery.
    let mut mld = icmpv6("fe80::a", "ff02::16", &[143, 0, 0, 0, 0, 0, 0, 0]);
    mld[6] = 0;
    let f = frame([0x33, 0x33, 0, 0, 0, 0x16], MAC_A, 0x86dd, &mld);
    let Sent::Forward(gid, ..) = send(&mut c, T0, &f) else {
        panic!()
    };
    assert_eq!(gid, "ff12:601b:8001::16".parse().unwrap());
    let f = frame(
        [1, 0, 0x5e, 0, 0, 0x16],
        MAC_A,
        0x0800,
        &ipv4([10, 0, 0, 1], [224, 0, 0, 22], b""),
    );
    let Sent::Forward(gid, ..) = send(&mut c, T0, &f) else {
        panic!()
    };
    assert_eq!(gid, "ff12:401b:8001::16".parse().unwrap());
}

#[test]
fn c35_c36_destination_follows_from_where_it_came() {
    let mut c = a();
    let b = address(0xb, 0x4b);
    let to = |c: &mut Ipoib, gid: Gid, dst: [u8; 4]| {
        receive(
            c,
            &meta(b, gid),
            &payload(0x0800, &ipv4([10, 0, 0, 2], dst, b"")),
        )
        .map(|f| f[..6].to_vec())
    };
    let (own, broadcast) = (c.local().gid(), c.broadcast_mgid());
    assert_eq!(to(&mut c, own, [10, 0, 0, 1]).unwrap(), MAC_A);
    assert_eq!(
        to(&mut c, broadcast, [10, 0, 0, 255]).unwrap(),
        MAC_BROADCAST
    );
    let g = group(&c, "225.1.2.3");
    assert_eq!(
        to(&mut c, g, [225, 1, 2, 3]).unwrap(),
        [1, 0, 0x5e, 1, 2, 3]
    );
    assert_eq!(to(&mut c, g, [10, 0, 0, 1]), Err(DropReason::NotAGroup));
}

#[test]
fn unicast_copies_take_the_group_from_the_packet() {
    let mut c = a();
    let m = Meta {
        multicast: true,
        ..meta(address(0xb, 0x4b), c.local().gid())
    };
    let mut dst = |ethertype, l3: &[u8]| {
        receive(&mut c, &m, &payload(ethertype, l3)).map(|f| f[..6].to_vec())
    };
    let v4 = |d| ipv4([10, 0, 0, 2], d, b"");
    assert_eq!(
        dst(0x0800, &v4([239, 1, 2, 3])).unwrap(),
        [1, 0, 0x5e, 1, 2, 3]
    );
    assert_eq!(dst(0x0800, &v4([255; 4])).unwrap(), MAC_BROADCAST);
    assert_eq!(dst(0x0800, &v4([10, 0, 0, 255])).unwrap(), MAC_BROADCAST);
    let echo = [128, 0, 0, 0, 0, 0, 0, 0];
    assert_eq!(
        dst(0x86dd, &icmpv6("fe80::b", "ff02::1", &echo)).unwrap(),
        [0x33, 0x33, 0, 0, 0, 1]
    );
    assert_eq!(
        dst(0x86dd, &icmpv6("fe80::b", "fe80::a", &echo)),
        Err(DropReason::NotAGroup)
    );
    let request = arp(
        1,
        &address(0xb, 0x4b).0,
        [10, 0, 0, 2],
        &[0; 20],
        [10, 0, 0, 1],
    );
    assert_eq!(dst(0x0806, &request).unwrap(), MAC_BROADCAST);
}

#[test]
fn c37_c38_only_our_own_echo_is_dropped() {
    let mut c = a();
    let p = payload(0x0800, &ipv4([10, 0, 0, 2], [224, 0, 0, 1], b""));
    let g = group(&c, "224.0.0.1");
    let own = meta(c.local(), g);
    assert_eq!(receive(&mut c, &own, &p), Err(DropReason::SelfEcho));
    assert_eq!(c.counters().rx_dropped(DropReason::SelfEcho), 1);
    assert!(receive(&mut c, &meta(address(0xb, 0x4a), g), &p).is_ok());
    assert!(receive(&mut c, &meta(address(0xa, 0x4b), g), &p).is_ok());
}

#[test]
fn c39_short_or_lying_packets_are_dropped() {
    let mut c = a();
    let m = meta(address(0xb, 0x4b), c.local().gid());
    let good = payload(0x0800, &ipv4([10, 0, 0, 2], [10, 0, 0, 1], b"data"));
    for len in 0..good.len() {
        assert_eq!(
            receive(&mut c, &m, &good[..len]),
            Err(DropReason::Malformed),
            "{len}"
        );
    }
    let long = [&good[..], b"trailer"].concat();
    assert_eq!(receive(&mut c, &m, &long).unwrap()[14..], good[4..]);
    for (at, value) in [(4, 0x65), (4, 0x44), (6, 0xff), (7, 10)] {
        let mut bad = good.clone();
        bad[at] = value;
        assert_eq!(
            receive(&mut c, &m, &bad),
            Err(DropReason::Malformed),
            "byte {at}"
        );
    }
}

/// A peer with several data threads over an RDMA device has one address, and sends from more queue pairs.
#[test]
fn data_from_another_queue_pair_of_a_peer_is_from_the_peer() {
    let mut c = a();
    let (ip, own) = ([10, 0, 0, 2], c.local().gid());
    let mac = teach(&mut c, address(0xb, 0x4b), ip);
    let source = |c: &mut Ipoib, from, ip| {
        let p = payload(0x0800, &ipv4(ip, [10, 0, 0, 1], b""));
        let frame = receive(c, &meta(from, own), &p).unwrap();
        <Mac>::try_from(&frame[6..12]).unwrap()
    };
    let second = address(0xb, 0x77);
    assert_eq!(source(&mut c, second, ip), mac);
    assert_eq!(c.neighbours().count(), 1);
    // The IP address of a neighbour at another port tells nothing.
    assert_ne!(source(&mut c, address(0xd, 0x77), ip), mac);
    // An unknown IP address does not tell which interface of the port it is.
    let mut c = a();
    let mac = teach(&mut c, address(0xb, 0x4b), ip);
    assert_ne!(source(&mut c, second, [10, 0, 0, 9]), mac);
}
