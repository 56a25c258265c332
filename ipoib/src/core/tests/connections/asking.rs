//! The peers from which a core requests connections, the services, and the setup.

use super::*;

#[test]
fn c92_c93_services_are_in_linuxs_layout_and_in_the_rfcs_and_rdma_cms() {
    assert_eq!(
        a().service_ids(),
        [
            ServiceId(0x1000_0000_0000_004a),
            ServiceId(0x0106_1293),
            ServiceId(0x0100_0000_0000_004a)
        ]
    );
    assert_eq!(over_rdma_cm().service_ids(), [ServiceId(0x0106_1293)]);
    for (n, service) in a().service_ids().into_iter().enumerate() {
        let mut c = connected();
        request_for(&mut c, 0, C1, b().gid(), &THEIRS, service);
        assert_eq!(actions(&mut c), [accept(C1)], "layout {n}");
    }
    let mut c = connected();
    let other = ServiceId(0x1000_0000_0000_004c);
    request_for(&mut c, 0, C1, b().gid(), &THEIRS, other);
    let reason = RejectReason::INVALID_SERVICE_ID;
    assert_eq!(actions(&mut c), [reject(C1, reason)]);
}

#[test]
fn c94_the_first_packet_asks_for_a_connection_and_the_reply_makes_it() {
    let mut c = connected();
    let mac = teach(&mut c, b(), IP_B);
    assert_eq!(actions(&mut c), []);
    assert_eq!(way(&mut c, 0, mac), None);
    let all = actions(&mut c);
    let connect = ConnectionAction::Connect {
        request: 1,
        peer: b().gid(),
        to: b().qpn(),
        service: ServiceId(0x1000_0000_0000_004b),
        private_data: OURS,
    };
    assert_eq!(all, [connect]);
    c.connecting(T0, 1, Ok(C1));
    assert_eq!((way(&mut c, 0, mac), actions(&mut c)), (None, vec![]));
    replied(&mut c, 5, C1, &THEIRS);
    assert_eq!(
        actions(&mut c),
        [ConnectionAction::Establish { connection: C1 }]
    );
    assert_eq!(way(&mut c, 5, mac), Some((C1, 65520)));
    let peer = c.connection_peer(C1).unwrap();
    assert_eq!((peer.address, peer.role), (b(), Role::Active));
    let events: Vec<Event> = std::iter::from_fn(|| c.pop_event()).collect();
    let role = Role::Active;
    assert!(events.contains(&Event::ConnectionUp { peer: b(), role }));
}

#[test]
fn c95_a_reply_whose_mtu_carries_less_than_a_datagram_is_rejected() {
    for mtu in [0u32, 4, 5, 2047] {
        let mut c = connected();
        let mac = teach(&mut c, b(), IP_B);
        way(&mut c, 0, mac);
        begun(&mut c, 0, C1);
        let data = PrivateData {
            qpn: b().qpn(),
            receive_mtu: mtu,
        };
        replied(&mut c, 0, C1, &data.to_bytes());
        let reason = RejectReason::CONSUMER;
        assert_eq!(actions(&mut c), [reject(C1, reason)], "{mtu}");
        assert_eq!(reason.0, 28);
        assert_eq!((way(&mut c, 1, mac), actions(&mut c)), (None, vec![]));
    }
}

#[test]
fn the_smaller_of_both_mtus_counts() {
    for (theirs, expected) in [(2048, 2044), (9004, 9000), (u32::MAX, 65520)] {
        let mut c = connected();
        let mac = teach(&mut c, b(), IP_B);
        way(&mut c, 0, mac);
        begun(&mut c, 0, C1);
        let data = PrivateData {
            qpn: b().qpn(),
            receive_mtu: theirs,
        };
        replied(&mut c, 0, C1, &data.to_bytes());
        assert_eq!(way(&mut c, 0, mac), Some((C1, expected)));
    }
}

#[test]
fn c99_requests_that_cross_make_two_connections() {
    let mut c = connected();
    let mac = teach(&mut c, b(), IP_B);
    way(&mut c, 0, mac);
    begun(&mut c, 0, C1);
    requested(&mut c, 0, C2, b().gid(), &THEIRS);
    assert_eq!(actions(&mut c), [accept(C2)]);
    replied(&mut c, 1, C1, &THEIRS);
    assert_eq!(way(&mut c, 1, mac), Some((C1, 65520)));
    let roles: Vec<Role> = c.connections().map(|(_, peer)| peer.role).collect();
    assert_eq!(roles, [Role::Active, Role::Passive]);
}

#[test]
fn c105_peers_without_the_flag_are_sent_datagrams_only() {
    let mut c = connected();
    let mac = teach(&mut c, address(0xb, 0x4b), IP_B);
    assert_eq!(way(&mut c, 0, mac), None);
    assert_eq!(actions(&mut c), []);
    let got = offer(&mut c, 0, &data(mac, IP_B, 2045));
    assert!(matches!(got, TooBig::Answer(_)), "{got:?}");
}

#[test]
fn a_peer_known_only_from_data_gets_a_request() {
    let mut c = connected();
    let from = address(0xb, 0x4b);
    let m = meta(from, c.local().gid());
    let p = payload(0x0800, &ipv4(IP_B, [10, 0, 0, 1], b"data"));
    receive(&mut c, &m, &p).unwrap();
    let mac = c.neighbours().next().unwrap().mac;
    way(&mut c, 0, mac);
    begun(&mut c, 0, C1);
    // With the RC flag the attempt continues. Without the flag it ends.
    teach(&mut c, b(), IP_B);
    assert_eq!(actions(&mut c), []);
    teach(&mut c, from, IP_B);
    let connection = C1;
    assert_eq!(actions(&mut c), [ConnectionAction::Close { connection }]);
}

#[test]
fn flags_that_change_are_news_and_end_or_begin_connections() {
    let (mut one, mut two) = (connected(), connected());
    let mac = up(&mut one, 0, C1);
    one.drain_updates().for_each(|u| two.apply(T0, &u));
    teach(&mut one, b(), IP_B);
    assert!(!one.has_updates());
    let plain = address(0xb, 0x4b);
    teach(&mut one, plain, IP_B);
    let connection = C1;
    assert_eq!(actions(&mut one), [ConnectionAction::Close { connection }]);
    assert_eq!(way(&mut one, 0, mac), None);
    assert_eq!(actions(&mut one), []);
    let news: Vec<Update> = one.drain_updates().collect();
    assert_eq!(news.len(), 1);
    news.iter().for_each(|u| two.apply(T0, u));
    assert_eq!(two.neighbours().next().unwrap().address, plain);
    teach(&mut one, b(), IP_B);
    one.drain_updates().for_each(|u| two.apply(T0, &u));
    for c in [&mut one, &mut two] {
        way(c, 0, mac);
        asked(c);
    }
}

#[test]
fn an_advertisement_without_an_address_has_no_flags() {
    let mut c = connected();
    let mac = up(&mut c, 0, C1);
    let na = payload(
        0x86dd,
        &icmpv6("fe80::b", "fe80::a", &nd(136, "fe80::b", &[])),
    );
    let m = meta(b(), c.local().gid());
    receive(&mut c, &m, &na).unwrap();
    assert_eq!(way(&mut c, 0, mac), Some((C1, 65520)));
    assert_eq!(c.neighbours().next().unwrap().address, b());
}

const NOT_THERE: CloseReason = CloseReason::Rejected(RejectReason::INVALID_SERVICE_ID);
const LINUX: ServiceId = ServiceId(0x1000_0000_0000_004b);
const RDMA_CM: ServiceId = ServiceId::rdma_cm(4755);
const RFC4755: ServiceId = ServiceId(0x0100_0000_0000_004b);

/// A core on a port whose kernel owns communication management.
fn over_rdma_cm() -> Ipoib {
    let mut c = Ipoib::new(Config {
        services: proto::Services::RdmaCm,
        ..connected().config
    });
    c.watch(true);
    c
}

/// The requested services, in order, until the peer has none.
fn services_asked(c: &mut Ipoib, now: u64) -> Vec<ServiceId> {
    let mut services = Vec::new();
    loop {
        let all = actions(c);
        let [
            ConnectionAction::Connect {
                request, service, ..
            },
        ] = all[..]
        else {
            assert_eq!(all, []);
            return services;
        };
        services.push(service);
        let connection = ConnectionId(100 + services.len() as u32);
        c.connecting(Time(now), request, Ok(connection));
        closed(c, now, connection, NOT_THERE);
    }
}

#[test]
fn a_peer_that_does_not_know_a_service_is_asked_for_the_next_at_once() {
    let mut c = connected();
    let mac = teach(&mut c, b(), IP_B);
    way(&mut c, 0, mac);
    assert_eq!(services_asked(&mut c, 0), [LINUX, RDMA_CM, RFC4755]);
    assert_eq!((way(&mut c, 0, mac), actions(&mut c)), (None, vec![]));
    assert_eq!(c.counters().connections_refused, 1);
    // Until the peer sends the flag again, or a minute has passed.
    teach(&mut c, address(0xb, 0x4b), IP_B);
    teach(&mut c, b(), IP_B);
    way(&mut c, 1, mac);
    asked(&mut c);
}

#[test]
fn a_port_that_has_rdma_cm_alone_asks_for_nothing_else() {
    let mut c = over_rdma_cm();
    let mac = teach(&mut c, b(), IP_B);
    way(&mut c, 0, mac);
    let all = actions(&mut c);
    let connect = ConnectionAction::Connect {
        request: 1,
        peer: b().gid(),
        to: b().qpn(),
        service: RDMA_CM,
        private_data: OURS,
    };
    assert_eq!(all, [connect]);
    c.connecting(T0, 1, Ok(C1));
    closed(&mut c, 0, C1, NOT_THERE);
    assert_eq!((way(&mut c, 0, mac), actions(&mut c)), (None, vec![]));
    assert_eq!(c.counters().connections_refused, 1);
    // It accepts no other service either.
    for service in [LINUX, RFC4755] {
        let ours = ServiceId(service.0 & !0xff | 0x4a);
        request_for(&mut c, 0, C2, b().gid(), &THEIRS, ours);
        let reason = RejectReason::INVALID_SERVICE_ID;
        assert_eq!(actions(&mut c), [reject(C2, reason)]);
    }
    request_for(&mut c, 0, C2, b().gid(), &THEIRS, RDMA_CM);
    assert_eq!(actions(&mut c), [accept(C2)]);
}

/// As long as a peer is known, its last accepted service is requested first.
#[test]
fn the_service_that_a_peer_took_is_asked_for_first() {
    let mut c = connected();
    let mac = teach(&mut c, b(), IP_B);
    way(&mut c, 0, mac);
    begun(&mut c, 0, C1);
    closed(&mut c, 0, C1, NOT_THERE);
    begun(&mut c, 0, C1);
    replied(&mut c, 0, C1, &THEIRS);
    assert_eq!(way(&mut c, 0, mac), Some((C1, 65520)));
    actions(&mut c);
    closed(&mut c, MINUTE / 2, C1, CloseReason::Disconnected);
    way(&mut c, MINUTE / 2, mac);
    // All services, starting with that one.
    let asked = services_asked(&mut c, MINUTE / 2);
    assert_eq!(asked, [RDMA_CM, RFC4755, LINUX]);
    // After its return the peer is a new neighbour: the normal order.
    teach(&mut c, address(0xb, 0x4b), IP_B);
    let mac = teach(&mut c, b(), IP_B);
    way(&mut c, MINUTE, mac);
    let (_, service) = self::asked(&mut c);
    assert_eq!(service, LINUX);
}

/// A port that serves the kernel's IPoIB by datagrams requests connections without advertising them.
#[test]
fn who_offers_no_connections_may_ask_for_some() {
    let mut c = over_rdma_cm();
    assert_eq!(c.local().flags(), 0);
    let mac = teach(&mut c, b(), IP_B);
    assert_eq!(way(&mut c, 0, mac), None);
    begun(&mut c, 0, C1);
    replied(&mut c, 0, C1, &THEIRS);
    assert_eq!(way(&mut c, 0, mac), Some((C1, 65520)));
}

/// After a restart of this host, only data has come from the peer. It answers the host's probe with an
/// advertisement without its address, as usual for answers to unicast solicitations.
#[test]
fn an_advertisement_without_an_option_has_no_flags() {
    let mut c = connected();
    let packet = payload(0x0800, &ipv4(IP_B, [10, 0, 0, 1], b"data"));
    let from_b = meta(b(), c.local().gid());
    let Incoming::Packet { ethernet, .. } = c.from_fabric(T0, &from_b, &packet) else {
        panic!()
    };
    let mac: Mac = ethernet[6..12].try_into().unwrap();
    way(&mut c, 0, mac);
    begun(&mut c, 0, C1);
    replied(&mut c, 0, C1, &THEIRS);
    actions(&mut c);
    let answer = icmpv6("fe80::b", "fe80::a", &nd(136, "fe80::b", &[]));
    let answer = payload(0x86dd, &answer);
    let got = c.from_fabric(T0, &from_b, &answer);
    assert!(matches!(got, Incoming::Packet { .. }), "{got:?}");
    assert_eq!(actions(&mut c), []);
    assert_eq!(way(&mut c, 0, mac), Some((C1, 65_520)));
    // Nor does one from an unknown sender.
    let from_c = meta(address(0xc, 0x4c), c.local().gid());
    c.from_fabric(T0, &from_c, &answer);
    let mac = crate::peer_mac(&address(0xc, 0x4c));
    way(&mut c, 0, mac);
    asked(&mut c);
}
