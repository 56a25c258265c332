//! Refusals by peers and fabrics, and the time of the next request.

use super::*;

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
        assert_eq!(actions(&mut c), []);
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
        actions(&mut c);
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
    assert_eq!(actions(&mut c), []);
    way(&mut c, now + MINUTE, mac);
    asked(&mut c);
}

/// Whether a request is pending; it stays pending.
fn actions_pending(c: &mut Ipoib) -> Option<()> {
    (c.connected.table.slots() > 0).then_some(())?;
    let at = c.neighbours.get(0).connection;
    let state = c.connected.table.active(at)?.state;
    matches!(state, crate::connections::State::Connecting { .. }).then_some(())
}

/// A restarting daemon stops listening, is absent, then does not listen yet. "Packet too big" in between
/// would make the host send small packets for ten minutes. The same applies while the underlays' MTUs
/// change.
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

/// Otherwise a host with few connections would send requests to refusing peers with every packet.
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
        assert_eq!(actions(&mut c), []);
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
        assert_eq!(actions(&mut c), [], "{why}");
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
        // A rejecting peer is up. A silent one may be down, and accepts large packets after its return.
        let waited = c.pop_released().is_some();
        assert_eq!(waited, reason != CloseReason::TimedOut);
        assert_eq!(c.counters().too_big_hold_full, u64::from(!waited));
        assert!(matches!(offer(&mut c, 10, &large), TooBig::Answer(_)));
        wait_until(&mut c, 10, MINUTE);
        assert_eq!(way(&mut c, MINUTE, mac), None);
        assert_eq!(actions(&mut c), []);
        wait_until(&mut c, MINUTE, MINUTE + 10);
        way(&mut c, MINUTE + 10, mac);
        asked(&mut c);
    }
}

#[test]
fn a_request_that_is_never_answered_is_given_up() {
    let mut c = connected();
    let mac = teach(&mut c, b(), IP_B);
    assert_eq!(offer(&mut c, 0, &data(mac, IP_B, 9000)), TooBig::Held);
    begun(&mut c, 0, C1);
    wait_until(&mut c, 0, 19_999);
    assert_eq!((actions(&mut c), c.pop_released()), (vec![], None));
    wait_until(&mut c, 19_999, 20_000);
    let connection = C1;
    assert_eq!(actions(&mut c), [ConnectionAction::Close { connection }]);
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
    let (request, _) = asked(&mut c);
    c.connecting(T0, request, Err(ConnectError::Full));
    way(&mut c, 0, mac);
    let (request, _) = asked(&mut c);
    c.connecting(T0, request, Err(ConnectError::Unreachable(b().gid())));
    way(&mut c, MINUTE - 1, mac);
    assert_eq!(actions(&mut c), []);
    // A connection id for a cancelled request is closed.
    c.connecting(T0, request, Ok(C1));
    let connection = C1;
    assert_eq!(actions(&mut c), [ConnectionAction::Close { connection }]);
}

/// The underlay disappears for longer than eight pauses last, and returns with the same GID.
#[test]
fn after_the_return_of_the_ports_gid_peers_get_requests_at_once() {
    let mut c = connected();
    let mac = up(&mut c, 0, C1);
    let large = data(mac, IP_B, 9000);
    closed(&mut c, MINUTE / 2, C1, CloseReason::PortGone);
    let (back, mut requests) = (MINUTE, 0);
    for now in (MINUTE / 2..back).step_by(10) {
        c.handle_timeout(Time(now));
        assert_ne!(
            c.next_deadline(),
            Some(Time(now)),
            "the thread would not wait"
        );
        if requests == 0 {
            assert_eq!(offer(&mut c, now, &large), TooBig::Held);
        } else {
            way(&mut c, now, mac);
        }
        for action in actions(&mut c) {
            let ConnectionAction::Connect { request, .. } = action else {
                panic!("{action:?}")
            };
            c.connecting(Time(now), request, Err(ConnectError::NoGid));
            requests += 1;
        }
    }
    assert!((2..400).contains(&requests), "{requests}");
    assert_eq!(c.counters().connections_refused, 0);
    wait_until(&mut c, back, back + 100);
    begun(&mut c, back + 100, C2);
    replied(&mut c, back + 100, C2, &THEIRS);
    assert_eq!(way(&mut c, back + 100, mac), Some((C2, 65_520)));
    assert!(c.pop_released().is_some());
}

/// Loops as a data thread does, with a fabric that starts no connection.
#[test]
fn a_fabric_that_begins_no_connection_does_not_keep_a_round_going() {
    let because: [fn() -> ConnectError; 5] = [
        || ConnectError::Full,
        || ConnectError::NoGid,
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
        while let Some(action) = c.poll_connection() {
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

/// Even with few connections, no refusing peer gets a request with every packet.
#[test]
fn more_peers_may_refuse_than_there_are_connections() {
    let mut c = connected_with(2);
    let peers = 40;
    let (mut requests, mut connection) = (0, 0);
    for now in 0..50 {
        for host in 0..peers {
            let mac = teach(&mut c, reliable(0x100 + host, 0x4b), [10, 0, 1, host as u8]);
            way(&mut c, now, mac);
            for action in actions(&mut c) {
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

/// A peer that was down for longer than a request lasts gets a request when it returns, from every replica,
/// with an unchanged address.
#[test]
fn a_peer_that_announces_itself_is_asked_again() {
    let announcement = arp(1, &b().0, IP_B, &[0; 20], IP_B);
    let advertisement = nd(136, "fe80::b", &ib_option(2, b()));
    let advertisement = icmpv6("fe80::b", "ff02::1", &advertisement);
    for announcement in [
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
            assert_eq!(actions(core), []);
        }
        c.drain_updates().for_each(drop);
        let all = meta(b(), c.broadcast_mgid());
        c.from_fabric(Time(20), &all, &announcement);
        way(&mut c, 20, mac);
        asked(&mut c);
        let news: Vec<Update> = c.drain_updates().collect();
        news.iter().for_each(|n| sibling.apply(Time(20), n));
        way(&mut sibling, 20, mac);
        asked(&mut sibling);
        // Several in quick succession count as one.
        c.from_fabric(Time(21), &all, &announcement);
        assert!(!c.has_updates());
    }
}
