//! Connected mode: connections that are asked for, taken, used and ended.

use proto::{
    CloseReason, ConnectError, ConnectionEvent, ConnectionId, EndpointId, RejectReason, ServiceId,
    WcStatus,
};

use super::*;
use crate::{Ended, Event, FLAG_RC, PrivateData, Role};

const C1: ConnectionId = ConnectionId(1);
const C2: ConnectionId = ConnectionId(2);
const OURS: [u8; 8] = [0, 0, 0, 0x4a, 0, 0, 0xff, 0xf4];
const THEIRS: [u8; 8] = [0, 0, 0, 0x4b, 0, 0, 0xff, 0xf4];
const IP_B: [u8; 4] = [10, 0, 0, 2];
const MINUTE: u64 = 60_000;

fn reliable(host: u16, qpn: u32) -> HardwareAddress {
    let plain = address(host, qpn);
    HardwareAddress::new(FLAG_RC, plain.qpn(), plain.gid())
}

fn b() -> HardwareAddress {
    reliable(0xb, 0x4b)
}

fn connected_with(connections: usize) -> Ipoib {
    let mut c = Ipoib::new(Config {
        mode: Mode::Connected,
        limits: Limits {
            connections,
            ..a().config.limits
        },
        ..a().config
    });
    c.watch(true);
    c
}

fn connected() -> Ipoib {
    connected_with(8)
}

fn data(to: Mac, ip: [u8; 4], len: usize) -> Vec<u8> {
    let packet = ipv4([10, 0, 0, 1], ip, &vec![7; len - 20]);
    frame(to, MAC_A, 0x0800, &packet)
}

/// The connection that a small packet takes, or `None` for a datagram.
fn way(c: &mut Ipoib, now: u64, mac: Mac) -> Option<(ConnectionId, usize)> {
    match c.from_tap(Time(now), &NO_OFFLOAD, &data(mac, IP_B, 60)) {
        Outgoing::Message {
            connection, mtu, ..
        } => Some((connection, mtu)),
        Outgoing::Forward { .. } => None,
        other => panic!("{other:?}"),
    }
}

fn actions(c: &mut Ipoib, now: u64) -> Vec<ConnectionAction> {
    std::iter::from_fn(|| c.poll_connection(Time(now))).collect()
}

/// The one request that is there: its number and the service.
fn asked(c: &mut Ipoib, now: u64) -> (u32, ServiceId) {
    let all = actions(c, now);
    let [
        ConnectionAction::Connect {
            request, service, ..
        },
    ] = all[..]
    else {
        panic!("{all:?}")
    };
    (request, service)
}

fn begun(c: &mut Ipoib, now: u64, connection: ConnectionId) {
    let (request, _) = asked(c, now);
    c.connecting(Time(now), request, Ok(connection));
}

fn replied(c: &mut Ipoib, now: u64, connection: ConnectionId, data: &[u8]) {
    let mut private_data = vec![0; 196].into_boxed_slice();
    private_data[..data.len()].copy_from_slice(data);
    c.connection_event(
        Time(now),
        &ConnectionEvent::Replied {
            connection,
            private_data,
        },
    );
}

fn closed(c: &mut Ipoib, now: u64, connection: ConnectionId, reason: CloseReason) {
    c.connection_event(Time(now), &ConnectionEvent::Closed { connection, reason });
}

fn requested(c: &mut Ipoib, now: u64, connection: ConnectionId, peer: Gid, data: &[u8]) {
    let service = c.service_ids()[0];
    request_for(c, now, connection, peer, data, service);
}

fn request_for(
    c: &mut Ipoib,
    now: u64,
    connection: ConnectionId,
    peer: Gid,
    data: &[u8],
    service: ServiceId,
) {
    c.connection_event(
        Time(now),
        &ConnectionEvent::Requested {
            connection,
            endpoint: EndpointId(0),
            service,
            peer,
            private_data: data.into(),
        },
    );
}

/// Makes a connection to `b`; its Ethernet address.
fn up(c: &mut Ipoib, now: u64, connection: ConnectionId) -> Mac {
    let mac = teach(c, b(), IP_B);
    assert_eq!(way(c, now, mac), None);
    begun(c, now, connection);
    replied(c, now, connection, &THEIRS);
    assert_eq!(
        actions(c, now),
        [ConnectionAction::Establish { connection }]
    );
    mac
}

fn reject(connection: ConnectionId, reason: RejectReason) -> ConnectionAction {
    ConnectionAction::Reject {
        connection,
        reason,
        private_data: OURS,
    }
}

fn accept(connection: ConnectionId) -> ConnectionAction {
    ConnectionAction::Accept {
        connection,
        private_data: OURS,
    }
}

/// Lets time pass as a data thread does.
fn wait_until(c: &mut Ipoib, from: u64, to: u64) {
    let mut now = from;
    while let Some(due) = c.next_deadline().filter(|due| due.0 <= to) {
        now = now.max(due.0);
        c.handle_timeout(Time(now));
        assert!(
            c.next_deadline().is_none_or(|next| next.0 > now),
            "at {now}"
        );
    }
    c.handle_timeout(Time(to));
}

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
        assert_eq!(actions(&mut c, 0), [accept(C1)], "layout {n}");
    }
    let mut c = connected();
    let other = ServiceId(0x1000_0000_0000_004c);
    request_for(&mut c, 0, C1, b().gid(), &THEIRS, other);
    let reason = RejectReason::INVALID_SERVICE_ID;
    assert_eq!(actions(&mut c, 0), [reject(C1, reason)]);
}

#[test]
fn c94_the_first_packet_asks_for_a_connection_and_the_reply_makes_it() {
    let mut c = connected();
    let mac = teach(&mut c, b(), IP_B);
    assert_eq!(actions(&mut c, 0), []);
    assert_eq!(way(&mut c, 0, mac), None);
    let all = actions(&mut c, 0);
    let connect = ConnectionAction::Connect {
        request: 1,
        peer: b().gid(),
        to: b().qpn(),
        service: ServiceId(0x1000_0000_0000_004b),
        private_data: OURS,
    };
    assert_eq!(all, [connect]);
    c.connecting(T0, 1, Ok(C1));
    assert_eq!((way(&mut c, 0, mac), actions(&mut c, 0)), (None, vec![]));
    replied(&mut c, 5, C1, &THEIRS);
    assert_eq!(
        actions(&mut c, 5),
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
        assert_eq!(actions(&mut c, 0), [reject(C1, reason)], "{mtu}");
        assert_eq!(reason.0, 28);
        assert_eq!((way(&mut c, 1, mac), actions(&mut c, 1)), (None, vec![]));
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
fn c96_nothing_is_sent_on_a_connection_that_was_accepted() {
    let mut c = connected();
    let mac = teach(&mut c, b(), IP_B);
    requested(&mut c, 0, C1, b().gid(), &THEIRS);
    assert_eq!(actions(&mut c, 0), [accept(C1)]);
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
fn c97_arp_multicast_and_discovery_are_datagrams_though_there_is_a_connection() {
    let mut c = connected();
    let mac = up(&mut c, 0, C1);
    let arp = arp(1, &MAC_A, [10, 0, 0, 1], &[0; 6], IP_B);
    let got = c.from_tap(T0, &NO_OFFLOAD, &frame(mac, MAC_A, 0x0806, &arp));
    assert!(matches!(got, Outgoing::Rewritten { .. }));
    let group = ipv4([10, 0, 0, 1], [239, 1, 2, 3], b"");
    let f = frame([1, 0, 0x5e, 1, 2, 3], MAC_A, 0x0800, &group);
    assert!(matches!(
        c.from_tap(T0, &NO_OFFLOAD, &f),
        Outgoing::Forward {
            to: Target::Group(_),
            ..
        }
    ));
    for options in [vec![], mac_option(1, MAC_A)] {
        let ns = icmpv6("fe80::a", "fe80::b", &nd(135, "fe80::b", &options));
        let got = c.from_tap(T0, &NO_OFFLOAD, &frame(mac, MAC_A, 0x86dd, &ns));
        assert!(!matches!(got, Outgoing::Message { .. }), "{got:?}");
    }
    let echo = icmpv6("fe80::a", "fe80::b", &[128, 0, 0, 0, 0, 0, 0, 0]);
    let got = c.from_tap(T0, &NO_OFFLOAD, &frame(mac, MAC_A, 0x86dd, &echo));
    assert!(matches!(got, Outgoing::Message { .. }));
}

#[test]
fn c99_requests_that_cross_make_two_connections() {
    let mut c = connected();
    let mac = teach(&mut c, b(), IP_B);
    way(&mut c, 0, mac);
    begun(&mut c, 0, C1);
    requested(&mut c, 0, C2, b().gid(), &THEIRS);
    assert_eq!(actions(&mut c, 0), [accept(C2)]);
    replied(&mut c, 1, C1, &THEIRS);
    assert_eq!(way(&mut c, 1, mac), Some((C1, 65520)));
    let roles: Vec<Role> = c.connections().map(|(_, peer)| peer.role).collect();
    assert_eq!(roles, [Role::Active, Role::Passive]);
}

#[test]
fn c101_idle_connections_are_ended_and_those_in_use_are_not() {
    let mut c = connected();
    let mac = up(&mut c, 0, C1);
    requested(&mut c, 0, C2, b().gid(), &THEIRS);
    actions(&mut c, 0);
    let message = payload(0x0800, &ipv4(IP_B, [10, 0, 0, 1], b"data"));
    let mut now = 0;
    while now < 600_000 {
        now += 1000;
        wait_until(&mut c, now - 1000, now);
        assert_eq!(way(&mut c, now, mac), Some((C1, 65520)), "at {now}");
        c.from_connection(Time(now), C2, &message, message.len());
        assert_eq!(actions(&mut c, now), []);
    }
    wait_until(&mut c, now, now + 59_000);
    assert_eq!(actions(&mut c, now), []);
    wait_until(&mut c, now, now + 61_000);
    let close = |connection| ConnectionAction::Close { connection };
    assert_eq!(actions(&mut c, now), [close(C1)]);
    wait_until(&mut c, now, now + 511_000);
    assert_eq!(actions(&mut c, now), []);
    wait_until(&mut c, now, now + 513_000);
    assert_eq!(actions(&mut c, now), [close(C2)]);
    assert_eq!(c.counters().connections_reaped, 2);
    assert_eq!((c.connections().count(), c.next_deadline()), (0, None));
}

#[test]
fn c102_a_failed_connection_is_made_anew_by_the_next_packet() {
    for status in [WcStatus::RetryExcErr, WcStatus::RnrRetryExcErr] {
        let mut c = connected();
        let mac = up(&mut c, 0, C1);
        closed(&mut c, MINUTE / 2, C1, CloseReason::Failed(status));
        let events: Vec<Event> = std::iter::from_fn(|| c.pop_event()).collect();
        let down = Event::ConnectionDown {
            peer: b(),
            role: Role::Active,
            why: Ended::Closed(CloseReason::Failed(status)),
        };
        assert!(events.contains(&down));
        assert_eq!(actions(&mut c, MINUTE / 2), []);
        assert_eq!(way(&mut c, MINUTE / 2, mac), None);
        begun(&mut c, MINUTE / 2, C2);
        replied(&mut c, MINUTE / 2, C2, &THEIRS);
        assert_eq!(way(&mut c, MINUTE / 2, mac), Some((C2, 65520)));
        assert_eq!(c.counters().connections_failed, 1);
    }
}

#[test]
fn failures_in_a_row_make_longer_and_longer_pauses_and_then_datagrams_do() {
    let mut c = connected();
    let mac = teach(&mut c, b(), IP_B);
    let (mut now, mut pauses) = (0, Vec::new());
    for n in 0..9 {
        let failed = now;
        while way(&mut c, now, mac).is_none() && actions_pending(&mut c).is_none() {
            now += 50;
        }
        pauses.push(now - failed);
        begun(&mut c, now, ConnectionId(n));
        replied(&mut c, now, ConnectionId(n), &THEIRS);
        actions(&mut c, now);
        closed(
            &mut c,
            now,
            ConnectionId(n),
            CloseReason::Failed(WcStatus::RetryExcErr),
        );
    }
    assert_eq!(pauses, [0, 0, 100, 200, 400, 800, 1600, 3200, 5000]);
    let large = data(mac, IP_B, 9000);
    let got = offer(&mut c, now, &large);
    assert!(matches!(got, TooBig::Answer(_)), "{got:?}");
    assert_eq!(way(&mut c, now + MINUTE - 1, mac), None);
    assert_eq!(actions(&mut c, now), []);
    way(&mut c, now + MINUTE, mac);
    asked(&mut c, now + MINUTE);
}

/// Whether a request waits to be polled; it stays.
fn actions_pending(c: &mut Ipoib) -> Option<()> {
    (c.connected.table.slots() > 0).then_some(())?;
    let at = c.neighbours.get(0).connection;
    let state = c.connected.table.active(at)?.state;
    matches!(state, crate::connections::State::Connecting { .. }).then_some(())
}

/// Sends a frame that is too large for a datagram as a data thread does.
fn offer<'c>(c: &'c mut Ipoib, now: u64, large: &[u8]) -> TooBig<'c> {
    let to = match c.from_tap(Time(now), &NO_OFFLOAD, large) {
        Outgoing::Forward { to, .. } | Outgoing::Message { to, .. } => to,
        other => panic!("{other:?}"),
    };
    c.too_big(Time(now), to, &NO_OFFLOAD, large, large.len() - 14)
}

#[test]
fn large_packets_wait_for_the_connection_and_no_more_than_three() {
    let mut c = connected();
    let mac = teach(&mut c, b(), IP_B);
    let large = data(mac, IP_B, 9000);
    for n in 0..5 {
        let got = offer(&mut c, 0, &large);
        let expected = if n < 3 { TooBig::Held } else { TooBig::Dropped };
        assert_eq!(got, expected, "{n}");
    }
    assert_eq!(c.counters().too_big_hold_full, 2);
    assert_eq!(c.pop_released(), None);
    begun(&mut c, 0, C1);
    replied(&mut c, 0, C1, &THEIRS);
    let released: Vec<_> = std::iter::from_fn(|| c.pop_released()).collect();
    assert_eq!(released.len(), 3);
    assert!(released.iter().all(|held| held.frame[..] == large));
    let got = c.from_tap(T0, &NO_OFFLOAD, &large);
    assert!(matches!(got, Outgoing::Message { mtu: 65520, .. }));
}

#[test]
fn large_packets_of_all_peers_wait_in_four_mebibytes() {
    let mut c = connected_with(256);
    let mut held = 0;
    for host in 0..60u8 {
        let ip = [10, 0, 1, host];
        let mac = teach(&mut c, reliable(0x100 + u16::from(host), 0x4b), ip);
        for _ in 0..3 {
            held += u64::from(offer(&mut c, 0, &data(mac, ip, 65_000)) == TooBig::Held);
        }
    }
    let bytes = held * (65_000 + 14);
    assert!(bytes <= 4 << 20 && bytes > (4 << 20) - 66_000, "{bytes}");
    c.set_mode(T0, Mode::Datagram);
    assert_eq!(std::iter::from_fn(|| c.pop_released()).count() as u64, held);
}

#[test]
fn c104_out_of_connections_a_request_is_rejected_unless_one_is_idle() {
    let mut c = connected_with(2);
    let far = |n: u16| address(0x20 + n, 0x60).gid();
    let theirs = PrivateData::new(Qpn::new(0x60)).to_bytes();
    for n in 0..2 {
        requested(&mut c, 0, ConnectionId(n), far(n as u16), &theirs);
        assert_eq!(actions(&mut c, 0), [accept(ConnectionId(n))]);
    }
    requested(&mut c, 1000, ConnectionId(7), far(7), &theirs);
    let reason = RejectReason::NO_QP;
    assert_eq!(actions(&mut c, 1000), [reject(ConnectionId(7), reason)]);
    assert_eq!(reason.0, 1);
    // The first is used, the other has been idle.
    let message = payload(0x0800, &ipv4(IP_B, [10, 0, 0, 1], b"data"));
    c.from_connection(Time(2500), ConnectionId(0), &message, message.len());
    requested(&mut c, 2500, ConnectionId(8), far(8), &theirs);
    let connection = ConnectionId(1);
    assert_eq!(
        actions(&mut c, 2500),
        [
            ConnectionAction::Close { connection },
            accept(ConnectionId(8))
        ]
    );
    // Ours makes room likewise, or is not made; then large packets are answered.
    let mac = teach(&mut c, b(), IP_B);
    assert_eq!(way(&mut c, 2600, mac), None);
    assert_eq!(actions(&mut c, 2600), []);
    assert_eq!(c.counters().connections_no_room, 1);
    let large = data(mac, IP_B, 9000);
    assert!(matches!(offer(&mut c, 2600, &large), TooBig::Answer(_)));
    way(&mut c, 9000, mac);
    assert_eq!(actions(&mut c, 9000).len(), 2);
    assert_eq!(c.connections().count(), 1);
}

#[test]
fn none_are_taken_where_there_may_be_none() {
    let mut c = connected_with(0);
    requested(&mut c, 0, C1, b().gid(), &THEIRS);
    assert_eq!(actions(&mut c, 0), [reject(C1, RejectReason::NO_QP)]);
    let mac = teach(&mut c, b(), IP_B);
    assert_eq!(way(&mut c, 0, mac), None);
    assert_eq!(actions(&mut c, 0), []);
    assert_eq!(c.counters().connections_no_room, 0, "it is as configured");
}

#[test]
fn c105_peers_without_the_flag_are_sent_datagrams_only() {
    let mut c = connected();
    let mac = teach(&mut c, address(0xb, 0x4b), IP_B);
    assert_eq!(way(&mut c, 0, mac), None);
    assert_eq!(actions(&mut c, 0), []);
    let got = offer(&mut c, 0, &data(mac, IP_B, 2045));
    assert!(matches!(got, TooBig::Answer(_)), "{got:?}");
}

#[test]
fn a_peer_that_only_sent_data_is_asked_since_it_has_not_said() {
    let mut c = connected();
    let from = address(0xb, 0x4b);
    let m = meta(from, c.local().gid());
    let p = payload(0x0800, &ipv4(IP_B, [10, 0, 0, 1], b"data"));
    receive(&mut c, &m, &p).unwrap();
    let mac = c.neighbours().next().unwrap().mac;
    way(&mut c, 0, mac);
    begun(&mut c, 0, C1);
    // It says that it takes them: the attempt goes on. It says that it does not: it ends.
    teach(&mut c, b(), IP_B);
    assert_eq!(actions(&mut c, 0), []);
    teach(&mut c, from, IP_B);
    let connection = C1;
    assert_eq!(actions(&mut c, 0), [ConnectionAction::Close { connection }]);
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
    assert_eq!(
        actions(&mut one, 0),
        [ConnectionAction::Close { connection }]
    );
    assert_eq!(way(&mut one, 0, mac), None);
    assert_eq!(actions(&mut one, 0), []);
    let news: Vec<Update> = one.drain_updates().collect();
    assert_eq!(news.len(), 1);
    news.iter().for_each(|u| two.apply(T0, u));
    assert_eq!(two.neighbours().next().unwrap().address, plain);
    teach(&mut one, b(), IP_B);
    one.drain_updates().for_each(|u| two.apply(T0, &u));
    for c in [&mut one, &mut two] {
        way(c, 0, mac);
        asked(c, 0);
    }
}

#[test]
fn an_advertisement_without_an_address_says_nothing_of_flags() {
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

/// On a port whose communication management is the kernel's.
fn over_rdma_cm() -> Ipoib {
    let mut c = Ipoib::new(Config {
        services: proto::Services::RdmaCm,
        ..connected().config
    });
    c.watch(true);
    c
}

/// The services that are asked for, in order, until the peer has none.
fn services_asked(c: &mut Ipoib, now: u64) -> Vec<ServiceId> {
    let mut services = Vec::new();
    loop {
        let all = actions(c, now);
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
    assert_eq!((way(&mut c, 0, mac), actions(&mut c, 0)), (None, vec![]));
    assert_eq!(c.counters().connections_refused, 1);
    // Until the peer says anew that it takes connections, or a minute has gone.
    teach(&mut c, address(0xb, 0x4b), IP_B);
    teach(&mut c, b(), IP_B);
    way(&mut c, 1, mac);
    asked(&mut c, 1);
}

#[test]
fn a_port_that_has_rdma_cm_alone_asks_for_nothing_else() {
    let mut c = over_rdma_cm();
    let mac = teach(&mut c, b(), IP_B);
    way(&mut c, 0, mac);
    let all = actions(&mut c, 0);
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
    assert_eq!((way(&mut c, 0, mac), actions(&mut c, 0)), (None, vec![]));
    assert_eq!(c.counters().connections_refused, 1);
    // Nor does it take anything else.
    for service in [LINUX, RFC4755] {
        let ours = ServiceId(service.0 & !0xff | 0x4a);
        request_for(&mut c, 0, C2, b().gid(), &THEIRS, ours);
        let reason = RejectReason::INVALID_SERVICE_ID;
        assert_eq!(actions(&mut c, 0), [reject(C2, reason)]);
    }
    request_for(&mut c, 0, C2, b().gid(), &THEIRS, RDMA_CM);
    assert_eq!(actions(&mut c, 0), [accept(C2)]);
}

/// What a peer took is what it is asked for first, as long as it is known.
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
    actions(&mut c, 0);
    closed(&mut c, MINUTE / 2, C1, CloseReason::Disconnected);
    way(&mut c, MINUTE / 2, mac);
    // Once around, from there.
    let asked = services_asked(&mut c, MINUTE / 2);
    assert_eq!(asked, [RDMA_CM, RFC4755, LINUX]);
    // It is another neighbour when it is there again: from the beginning.
    teach(&mut c, address(0xb, 0x4b), IP_B);
    let mac = teach(&mut c, b(), IP_B);
    way(&mut c, MINUTE, mac);
    let (_, service) = self::asked(&mut c, MINUTE);
    assert_eq!(service, LINUX);
}

/// A port that serves the kernel's IPoIB by datagrams does not offer connections, and asks for them.
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

/// A daemon that is restarted listens no more, is not there, then does not listen yet; "packet too
/// big" in between would have the host send small packets for ten minutes. Likewise while underlays
/// get another MTU.
#[test]
fn a_peer_that_had_a_connection_and_gives_none_for_now_is_soon_asked_again() {
    for (why, layouts) in [
        (CloseReason::Rejected(RejectReason::INVALID_SERVICE_ID), 3),
        (CloseReason::Rejected(RejectReason::INVALID_MTU), 1),
        (CloseReason::TimedOut, 1),
    ] {
        let mut c = connected();
        let mac = up(&mut c, 0, C1);
        let large = data(mac, IP_B, 9000);
        let mut now = MINUTE / 2;
        closed(&mut c, now, C1, CloseReason::Disconnected);
        for (n, pause) in [0, 100, 200, 400].into_iter().enumerate() {
            wait_until(&mut c, now, now + pause);
            now += pause;
            let got = offer(&mut c, now, &large);
            let expected = if n < 3 { TooBig::Held } else { TooBig::Dropped };
            assert_eq!(got, expected);
            for _ in 0..layouts {
                let connection = ConnectionId(10 + n as u32);
                begun(&mut c, now, connection);
                closed(&mut c, now, connection, why);
            }
        }
        now += 800;
        wait_until(&mut c, now - 800, now);
        begun(&mut c, now, C2);
        replied(&mut c, now, C2, &THEIRS);
        assert_eq!(way(&mut c, now, mac), Some((C2, 65520)));
        assert_eq!(std::iter::from_fn(|| c.pop_released()).count(), 3);
        assert_eq!(c.counters().too_big_answered, 0);
    }
}

/// Or a host with few connections asks those that refuse with every packet.
#[test]
fn few_connections_do_not_mean_that_few_refusals_are_remembered() {
    let mut c = connected_with(1);
    let peers: Vec<Mac> = (2..10)
        .map(|n| {
            teach(
                &mut c,
                reliable(n, 0x40 + u32::from(n)),
                [10, 0, 0, n as u8],
            )
        })
        .collect();
    for (n, mac) in peers.iter().enumerate() {
        way(&mut c, 0, *mac);
        let connection = ConnectionId(n as u32);
        begun(&mut c, 0, connection);
        let why = CloseReason::Rejected(RejectReason::NO_QP);
        closed(&mut c, 0, connection, why);
    }
    for mac in peers {
        assert_eq!(way(&mut c, 1, mac), None);
        assert_eq!(actions(&mut c, 1), []);
    }
}

#[test]
fn stale_connections_and_consumers_that_reject_are_asked_at_once_again_and_once() {
    for why in [RejectReason::STALE_CONNECTION, RejectReason::CONSUMER] {
        let mut c = connected();
        let mac = teach(&mut c, b(), IP_B);
        way(&mut c, 0, mac);
        begun(&mut c, 0, C1);
        closed(&mut c, 0, C1, CloseReason::Rejected(why));
        begun(&mut c, 0, C2);
        closed(&mut c, 0, C2, CloseReason::Rejected(why));
        way(&mut c, 1, mac);
        assert_eq!(actions(&mut c, 1), [], "{why}");
    }
}

#[test]
fn refused_peers_get_datagrams_and_waiting_packets_an_answer_for_a_minute() {
    for reason in [
        CloseReason::TimedOut,
        CloseReason::Rejected(RejectReason::NO_QP),
    ] {
        let mut c = connected();
        let mac = teach(&mut c, b(), IP_B);
        let large = data(mac, IP_B, 9000);
        assert_eq!(offer(&mut c, 0, &large), TooBig::Held);
        begun(&mut c, 0, C1);
        closed(&mut c, 10, C1, reason);
        // Who rejects is there. Who is silent may be down, and takes large packets when it is back.
        let waited = c.pop_released().is_some();
        assert_eq!(waited, reason != CloseReason::TimedOut);
        assert_eq!(c.counters().too_big_hold_full, u64::from(!waited));
        assert!(matches!(offer(&mut c, 10, &large), TooBig::Answer(_)));
        wait_until(&mut c, 10, MINUTE);
        assert_eq!(way(&mut c, MINUTE, mac), None);
        assert_eq!(actions(&mut c, MINUTE), []);
        wait_until(&mut c, MINUTE, MINUTE + 10);
        way(&mut c, MINUTE + 10, mac);
        asked(&mut c, MINUTE + 10);
    }
}

#[test]
fn a_request_that_is_never_answered_is_given_up() {
    let mut c = connected();
    let mac = teach(&mut c, b(), IP_B);
    assert_eq!(offer(&mut c, 0, &data(mac, IP_B, 9000)), TooBig::Held);
    begun(&mut c, 0, C1);
    wait_until(&mut c, 0, 19_999);
    assert_eq!((actions(&mut c, 19_999), c.pop_released()), (vec![], None));
    wait_until(&mut c, 19_999, 20_000);
    let connection = C1;
    assert_eq!(
        actions(&mut c, 20_000),
        [ConnectionAction::Close { connection }]
    );
    assert_eq!(c.pop_released(), None);
    assert_eq!(c.counters().too_big_hold_full, 1);
}

#[test]
fn large_packets_that_wait_for_the_next_attempt_begin_it() {
    let mut c = connected();
    let mac = up(&mut c, 0, C1);
    let failed = CloseReason::Failed(WcStatus::RetryExcErr);
    closed(&mut c, 10, C1, failed);
    way(&mut c, 10, mac);
    begun(&mut c, 10, C2);
    closed(&mut c, 10, C2, failed);
    assert_eq!(offer(&mut c, 11, &data(mac, IP_B, 9000)), TooBig::Held);
    wait_until(&mut c, 11, 110);
    begun(&mut c, 110, ConnectionId(3));
    replied(&mut c, 110, ConnectionId(3), &THEIRS);
    assert!(c.pop_released().is_some());
}

#[test]
fn a_fabric_that_cannot_ask_is_not_asked_for_a_while() {
    let mut c = connected();
    let mac = teach(&mut c, b(), IP_B);
    way(&mut c, 0, mac);
    let (request, _) = asked(&mut c, 0);
    c.connecting(T0, request, Err(ConnectError::Full));
    way(&mut c, 0, mac);
    let (request, _) = asked(&mut c, 0);
    c.connecting(T0, request, Err(ConnectError::Unreachable(b().gid())));
    way(&mut c, MINUTE - 1, mac);
    assert_eq!(actions(&mut c, MINUTE - 1), []);
    // A name that comes for what nobody wants any more is given back.
    c.connecting(T0, request, Ok(C1));
    let connection = C1;
    assert_eq!(actions(&mut c, 0), [ConnectionAction::Close { connection }]);
}

/// What a data thread does until there is nothing left to do, where the fabric begins no connection.
#[test]
fn a_fabric_that_begins_no_connection_does_not_keep_a_round_going() {
    let because: [fn() -> ConnectError; 4] = [
        || ConnectError::Full,
        || ConnectError::Unreachable(b().gid()),
        || ConnectError::NoSuchEndpoint(EndpointId(0)),
        || ConnectError::Os(std::io::ErrorKind::Unsupported.into()),
    ];
    for why in because {
        let mut c = connected();
        let mac = teach(&mut c, b(), IP_B);
        let large = data(mac, IP_B, 60_000);
        way(&mut c, 0, mac);
        offer(&mut c, 0, &large);
        let mut turns = 0;
        while let Some(action) = c.poll_connection(T0) {
            let ConnectionAction::Connect { request, .. } = action else {
                panic!("{action:?}")
            };
            c.connecting(T0, request, Err(why()));
            while let Some(held) = c.pop_released() {
                way(&mut c, 0, mac);
                offer(&mut c, 0, &held.frame);
            }
            turns += 1;
            assert!(turns < 10, "{}: for ever", why());
        }
    }
}

/// After a restart of ours only data has come from the peer, when it answers the host's probe: by an
/// advertisement that does not name its address, as answers to unicast solicitations do not.
#[test]
fn an_advertisement_without_an_option_says_nothing_about_connections() {
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
    actions(&mut c, 0);
    let answer = icmpv6("fe80::b", "fe80::a", &nd(136, "fe80::b", &[]));
    let answer = payload(0x86dd, &answer);
    let got = c.from_fabric(T0, &from_b, &answer);
    assert!(matches!(got, Incoming::Packet { .. }), "{got:?}");
    assert_eq!(actions(&mut c, 0), []);
    assert_eq!(way(&mut c, 0, mac), Some((C1, 65_520)));
    // From one of whom nothing is known at all, neither.
    let from_c = meta(address(0xc, 0x4c), c.local().gid());
    c.from_fabric(T0, &from_c, &answer);
    let mac = crate::peer_mac(&address(0xc, 0x4c));
    way(&mut c, 0, mac);
    asked(&mut c, 0);
}

/// However few connections there may be, of those who refuse none is asked with every packet.
#[test]
fn more_peers_may_refuse_than_there_are_connections() {
    let mut c = connected_with(2);
    let peers = 40;
    let (mut requests, mut connection) = (0, 0);
    for now in 0..50 {
        for host in 0..peers {
            let mac = teach(&mut c, reliable(0x100 + host, 0x4b), [10, 0, 1, host as u8]);
            way(&mut c, now, mac);
            for action in actions(&mut c, now) {
                let ConnectionAction::Connect { request, .. } = action else {
                    panic!("{action:?}")
                };
                (requests, connection) = (requests + 1, connection + 1);
                let connection = ConnectionId(connection);
                c.connecting(Time(now), request, Ok(connection));
                let reason = CloseReason::Rejected(RejectReason::NO_QP);
                closed(&mut c, now, connection, reason);
            }
        }
    }
    assert_eq!(requests, peers);
}

/// A peer that was down for longer than a request lasts is asked when it comes back, by every replica,
/// though its address is the same.
#[test]
fn a_peer_that_announces_itself_is_asked_again() {
    let announcement = arp(1, &b().0, IP_B, &[0; 20], IP_B);
    let advertisement = nd(136, "fe80::b", &ib_option(2, b()));
    let advertisement = icmpv6("fe80::b", "ff02::1", &advertisement);
    for said in [
        payload(0x0806, &announcement),
        payload(0x86dd, &advertisement),
    ] {
        let (mut c, mut sibling) = (connected(), connected());
        let mac = teach(&mut c, b(), IP_B);
        teach(&mut sibling, b(), IP_B);
        for core in [&mut c, &mut sibling] {
            way(core, 0, mac);
            begun(core, 0, C1);
            closed(core, 0, C1, CloseReason::TimedOut);
            way(core, 10, mac);
            assert_eq!(actions(core, 10), []);
        }
        c.drain_updates().for_each(drop);
        let all = meta(b(), c.broadcast_mgid());
        c.from_fabric(Time(20), &all, &said);
        way(&mut c, 20, mac);
        asked(&mut c, 20);
        let news: Vec<Update> = c.drain_updates().collect();
        news.iter().for_each(|n| sibling.apply(Time(20), n));
        way(&mut sibling, 20, mac);
        asked(&mut sibling, 20);
        // Many in a row are one.
        c.from_fabric(Time(21), &all, &said);
        assert!(!c.has_updates());
    }
}

#[test]
fn c114_a_change_of_mode_keeps_neighbours_groups_and_what_peers_send_on() {
    let mut c = connected();
    let mac = up(&mut c, 0, C1);
    requested(&mut c, 0, C2, b().gid(), &THEIRS);
    actions(&mut c, 0);
    let before = (c.neighbours().count(), c.groups().count());
    c.set_mode(T0, Mode::Datagram);
    let connection = C1;
    assert_eq!(actions(&mut c, 0), [ConnectionAction::Close { connection }]);
    assert_eq!(way(&mut c, 0, mac), None);
    assert_eq!(actions(&mut c, 0), []);
    let message = payload(0x0800, &ipv4(IP_B, [10, 0, 0, 1], b"data"));
    let got = c.from_connection(T0, C2, &message, message.len());
    assert!(matches!(got, Incoming::Packet { .. }));
    c.set_mode(T0, Mode::Connected);
    assert_eq!((c.neighbours().count(), c.groups().count()), before);
    way(&mut c, 0, mac);
    asked(&mut c, 0);
}

#[test]
fn another_address_of_ours_ends_connections_and_other_flags_do_not() {
    let mut c = connected();
    up(&mut c, 0, C1);
    requested(&mut c, 0, C2, b().gid(), &THEIRS);
    actions(&mut c, 0);
    c.set_local(reliable(0xa, 0x4a));
    assert_eq!(actions(&mut c, 0), []);
    c.set_local(reliable(0xa, 0x55));
    assert_eq!(actions(&mut c, 0).len(), 2);
    assert_eq!(c.service_ids()[0], ServiceId(0x1000_0000_0000_0055));
    assert_eq!(c.connections().count(), 0);
}

#[test]
fn connections_end_with_their_neighbours() {
    let mut c = connected_with(128);
    up(&mut c, 0, C1);
    let close = |connection| ConnectionAction::Close { connection };
    c.apply(T0, &Update::Forgotten { address: b() });
    assert_eq!(actions(&mut c, 0), [close(C1)]);
    up(&mut c, 0, C2);
    // The neighbour table is full: the oldest goes, and its connection.
    for n in 0..64 {
        teach(&mut c, address(0xc, 100 + n), [10, 1, 0, n as u8]);
    }
    assert_eq!(actions(&mut c, 0), [close(C2)]);
    // Its place is another's now, who has none.
    assert_eq!(c.connections().count(), 0);
}

#[test]
fn a_peer_that_restarts_with_another_queue_pair_gets_another_connection() {
    let mut c = connected();
    let mac = up(&mut c, 0, C1);
    teach(&mut c, reliable(0xb, 0x99), IP_B);
    let connection = C1;
    assert_eq!(actions(&mut c, 0), [ConnectionAction::Close { connection }]);
    way(&mut c, 0, mac);
    let (_, service) = asked(&mut c, 0);
    assert_eq!(service, ServiceId(0x1000_0000_0000_0099));
}

#[test]
fn private_data_that_lies_is_rejected() {
    let mut c = connected();
    let ours = c.local().gid();
    let mut refuse = |peer: Gid, qpn: u32| {
        let data = PrivateData::new(Qpn::new(qpn)).to_bytes();
        requested(&mut c, 0, C1, peer, &data);
        actions(&mut c, 0) == [reject(C1, RejectReason::CONSUMER)]
    };
    for reserved in [0, 1, 0xff_ffff] {
        assert!(refuse(b().gid(), reserved), "{reserved:#x}");
    }
    assert!(refuse(ours, 0x4a));
    assert!(!refuse(ours, 0x4b), "another interface of this port");
    for len in 0..8 {
        requested(&mut c, 0, C2, b().gid(), &THEIRS[..len]);
        let reason = RejectReason::CONSUMER;
        assert_eq!(actions(&mut c, 0), [reject(C2, reason)]);
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

/// Somebody asks in the name of a peer, as often as he likes.
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
    // Nor are new ones of its own kept out.
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
    actions(&mut c, 0);
    let one_more = ConnectionId(100);
    requested(&mut c, 9_999, one_more, b().gid(), &THEIRS);
    assert_eq!(
        actions(&mut c, 9_999),
        [reject(one_more, RejectReason::NO_QP)]
    );
    let one_more = ConnectionId(101);
    requested(&mut c, 10_000, one_more, b().gid(), &THEIRS);
    assert!(c.connection_peer(one_more).is_some());
    assert_eq!(c.connections().count(), 64);
}

#[test]
fn messages_come_from_the_connections_peer() {
    let mut c = connected();
    requested(&mut c, 0, C1, b().gid(), &THEIRS);
    let message = payload(0x0800, &ipv4(IP_B, [10, 0, 0, 1], b"data"));
    let Incoming::Packet { ethernet, l3 } = c.from_connection(T0, C1, &message, message.len())
    else {
        panic!()
    };
    assert_eq!(ethernet[6..12], crate::peer_mac(&b()));
    assert_eq!((&ethernet[..6], l3), (&MAC_A[..], &message[4..]));
    let got = c.from_connection(T0, C2, &message, message.len());
    assert_eq!(got, Incoming::Dropped(DropReason::NotConnected));
    assert_eq!(c.counters().rx_dropped(DropReason::NotConnected), 1);
}

#[test]
fn long_messages_are_decided_on_by_their_beginning() {
    let mut c = connected();
    requested(&mut c, 0, C1, b().gid(), &THEIRS);
    let long = payload(0x0800, &ipv4(IP_B, [10, 0, 0, 1], &[7; 65_500]));
    assert_eq!(long.len(), 65_524);
    let mut take = |head: usize, len: usize| match c.from_connection(T0, C1, &long[..head], len) {
        Incoming::Packet { l3, .. } => Ok(l3.len()),
        Incoming::Dropped(reason) => Err(reason),
        other => panic!("{other:?}"),
    };
    assert_eq!(take(128, 65_524), Ok(124));
    assert_eq!(take(65_524, 65_524), Ok(65_520));
    assert_eq!(take(4096, 65_600), Ok(4092));
    assert_eq!(take(128, 65_523), Err(DropReason::Malformed));
    assert_eq!(take(3, 65_524), Err(DropReason::Malformed));
    let options = vec![0; 8000];
    let nd = payload(
        0x86dd,
        &icmpv6("fe80::b", "fe80::a", &nd(135, "fe80::a", &options)),
    );
    let got = c.from_connection(T0, C1, &nd[..4096], nd.len());
    assert_eq!(got, Incoming::Dropped(DropReason::TooLong));
    let echo = payload(0x88b5, &[0; 8000]);
    let got = c.from_connection(T0, C1, &echo[..128], echo.len());
    assert_eq!(got, Incoming::Dropped(DropReason::TooLong));
}

#[test]
fn c56_neighbour_discovery_over_a_connection_is_taken() {
    let mut c = connected();
    requested(&mut c, 0, C1, b().gid(), &THEIRS);
    let na = nd(136, "fe80::b", &ib_option(2, b()));
    let na = payload(0x86dd, &icmpv6("fe80::b", "fe80::a", &na));
    let Incoming::Frame(f) = c.from_connection(T0, C1, &na, na.len()) else {
        panic!()
    };
    assert_eq!(f[12..14], [0x86, 0xdd]);
    let n = c.neighbours().next().unwrap();
    assert_eq!((n.address, n.confirmed), (b(), true));
}

#[test]
fn router_advertisements_keep_an_mtu_that_connections_carry() {
    let option = [&[5, 1, 0, 0][..], &9000u32.to_be_bytes()].concat();
    let message = [
        &[134, 0, 0, 0, 64, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0][..],
        &option,
    ]
    .concat();
    let ra = payload(0x86dd, &icmpv6("fe80::b", "ff02::1", &message));
    let mtu = |c: &mut Ipoib| {
        let m = meta(b(), group(c, "ff02::1"));
        let f = receive(c, &m, &ra).unwrap();
        u32::from_be_bytes(f[f.len() - 4..].try_into().unwrap())
    };
    assert_eq!((mtu(&mut a()), mtu(&mut connected())), (2044, 9000));
}
