//! Requests of peers, and the maximum number of connections.

use super::*;

#[test]
fn c96_nothing_is_sent_on_a_connection_that_was_accepted() {
    let mut c = connected();
    let mac = teach(&mut c, b(), IP_B);
    requested(&mut c, 0, C1, b().gid(), &THEIRS);
    assert_eq!(actions(&mut c), [accept(C1)]);
    let message = payload(0x0800, &ipv4(IP_B, [10, 0, 0, 1], b"data"));
    let got = c.from_connection(T0, C1, &message, message.len());
    assert!(matches!(got, Incoming::Packet { .. }));
    assert_eq!(way(&mut c, 0, mac), None);
    begun(&mut c, 0, C2);
    assert_eq!(way(&mut c, 0, mac), None);
    replied(&mut c, 0, C2, &THEIRS);
    assert_eq!(way(&mut c, 0, mac), Some((C2, 65520)));
}

#[test]
fn c104_out_of_connections_a_request_is_rejected_unless_one_is_idle() {
    let mut c = connected_with(2);
    let far = |n: u16| address(0x20 + n, 0x60).gid();
    let theirs = PrivateData::new(Qpn::new(0x60)).to_bytes();
    for n in 0..2 {
        requested(&mut c, 0, ConnectionId(n), far(n as u16), &theirs);
        assert_eq!(actions(&mut c), [accept(ConnectionId(n))]);
    }
    requested(&mut c, 1000, ConnectionId(7), far(7), &theirs);
    let reason = RejectReason::NO_QP;
    assert_eq!(actions(&mut c), [reject(ConnectionId(7), reason)]);
    assert_eq!(reason.0, 1);
    // The first connection is in use, the second is idle.
    let message = payload(0x0800, &ipv4(IP_B, [10, 0, 0, 1], b"data"));
    c.from_connection(Time(2500), ConnectionId(0), &message, message.len());
    requested(&mut c, 2500, ConnectionId(8), far(8), &theirs);
    let connection = ConnectionId(1);
    assert_eq!(
        actions(&mut c),
        [
            ConnectionAction::Close { connection },
            accept(ConnectionId(8))
        ]
    );
    // Connections of this host are evicted or refused in the same way; large packets then get an error.
    let mac = teach(&mut c, b(), IP_B);
    assert_eq!(way(&mut c, 2600, mac), None);
    assert_eq!(actions(&mut c), []);
    assert_eq!(c.counters().connections_no_room, 1);
    let large = data(mac, IP_B, 9000);
    assert!(matches!(offer(&mut c, 2600, &large), TooBig::Answer(_)));
    way(&mut c, 9000, mac);
    assert_eq!(actions(&mut c).len(), 2);
    assert_eq!(c.connections().count(), 1);
}

#[test]
fn none_are_taken_where_there_may_be_none() {
    let mut c = connected_with(0);
    requested(&mut c, 0, C1, b().gid(), &THEIRS);
    assert_eq!(actions(&mut c), [reject(C1, RejectReason::NO_QP)]);
    let mac = teach(&mut c, b(), IP_B);
    assert_eq!(way(&mut c, 0, mac), None);
    assert_eq!(actions(&mut c), []);
    assert_eq!(c.counters().connections_no_room, 0, "it is as configured");
}

#[test]
fn private_data_that_lies_is_rejected() {
    let mut c = connected();
    let ours = c.local().gid();
    let mut refuse = |peer: Gid, qpn: u32| {
        let data = PrivateData::new(Qpn::new(qpn)).to_bytes();
        requested(&mut c, 0, C1, peer, &data);
        actions(&mut c) == [reject(C1, RejectReason::CONSUMER)]
    };
    for reserved in [0, 1, 0xff_ffff] {
        assert!(refuse(b().gid(), reserved), "{reserved:#x}");
    }
    assert!(refuse(ours, 0x4a));
    assert!(!refuse(ours, 0x4b), "another interface of this port");
    for len in 0..8 {
        requested(&mut c, 0, C2, b().gid(), &THEIRS[..len]);
        let reason = RejectReason::CONSUMER;
        assert_eq!(actions(&mut c), [reject(C2, reason)]);
    }
    assert_eq!(c.counters().connections_rejected, 12);
}

#[test]
fn a_port_that_asks_for_many_loses_its_own() {
    let mut c = connected_with(1000);
    requested(&mut c, 0, ConnectionId(1000), b().gid(), &THEIRS);
    let far = address(0xf, 0x60).gid();
    let theirs = PrivateData::new(Qpn::new(0x60)).to_bytes();
    for n in 0..200 {
        requested(&mut c, u64::from(n), ConnectionId(n), far, &theirs);
    }
    assert_eq!(c.connections().count(), 65);
    assert!(c.connection_peer(ConnectionId(1000)).is_some());
    assert!(c.connection_peer(ConnectionId(199)).is_some());
    assert!(c.connection_peer(ConnectionId(0)).is_none());
}

/// A forger sends many requests in the name of a peer.
#[test]
fn requests_in_a_peers_name_do_not_end_the_connections_that_it_uses() {
    let mut c = connected_with(1000);
    let message = payload(0x0800, &ipv4(IP_B, [10, 0, 0, 1], b"data"));
    requested(&mut c, 0, C1, b().gid(), &THEIRS);
    for now in 0..20_000 {
        if now % 5000 == 0 {
            c.from_connection(Time(now), C1, &message, message.len());
        }
        requested(
            &mut c,
            now,
            ConnectionId(100 + now as u32),
            b().gid(),
            &THEIRS,
        );
        assert!(c.connection_peer(C1).is_some(), "after {now} ms");
    }
    assert_eq!(c.connections().count(), 64);
    // The peer's own new requests are still accepted.
    assert_eq!(c.counters().connections_rejected, 0);
}

#[test]
fn a_port_whose_connections_are_all_in_use_gets_no_more() {
    let mut c = connected_with(1000);
    let message = payload(0x0800, &ipv4(IP_B, [10, 0, 0, 1], b"data"));
    for n in 0..64 {
        requested(&mut c, 0, ConnectionId(n), b().gid(), &THEIRS);
        c.from_connection(Time(0), ConnectionId(n), &message, message.len());
    }
    actions(&mut c);
    let one_more = ConnectionId(100);
    requested(&mut c, 9_999, one_more, b().gid(), &THEIRS);
    assert_eq!(actions(&mut c), [reject(one_more, RejectReason::NO_QP)]);
    let one_more = ConnectionId(101);
    requested(&mut c, 10_000, one_more, b().gid(), &THEIRS);
    assert!(c.connection_peer(one_more).is_some());
    assert_eq!(c.connections().count(), 64);
}

/// A stranger's requests cost memory, and a host in datagram mode needs no connections.
#[test]
fn requests_in_datagram_mode_are_refused_if_configured() {
    let mut c = connected();
    let service = c.service_ids()[0];
    c.set_refuse_requests(true);
    request_for(&mut c, 0, C1, b().gid(), &THEIRS, service);
    assert_eq!(actions(&mut c), [accept(C1)], "in connected mode");
    c.set_mode(Mode::Datagram);
    actions(&mut c);
    let service = c.service_ids()[0];
    request_for(&mut c, 0, C2, b().gid(), &THEIRS, service);
    let reason = RejectReason::INVALID_SERVICE_ID;
    assert_eq!(actions(&mut c), [reject(C2, reason)]);
    c.set_refuse_requests(false);
    request_for(&mut c, 0, C2, b().gid(), &THEIRS, service);
    assert_eq!(actions(&mut c), [accept(C2)]);
}
