//! Reliable connections and partitions.

use std::time::{Duration, Instant};

use fabric::port::UdEndpoint;
use fabric::soft::SoftConfig;
use fabric::{CloseReason, ConnectError, ConnectRequest, PKey, RejectReason, ServiceId};

use crate::net::{Cable, Namespace};
use crate::node::Node;
use crate::side::{SERVICE, SIZES, Side, connected, exchange, sizes, until};

/// A node whose workers listen for its only endpoint, in this partition.
fn side<'n>(ns: &'n Namespace, table: &[u16], partition: u16) -> (Side<'n>, UdEndpoint) {
    let config = SoftConfig {
        pkeys: table.iter().copied().map(PKey::new).collect(),
        workers: 2,
        ..SoftConfig::new("u0")
    };
    let mut node = Node::open(ns, config);
    let endpoint = node.endpoint_in(partition);
    (Side::listening(node, &endpoint), endpoint)
}

/// Runs both sides for a while.
fn go_on<'n>(a: &mut Side<'n>, b: &mut Side<'n>) {
    let end = Instant::now() + Duration::from_millis(100);
    until(a, b, |_, _| Instant::now() > end);
}

/// Neither table has the default partition: management datagrams use another one.
#[test]
fn connections_are_made_without_the_default_partition() {
    for (of_a, of_b) in [
        (&[0x8001][..], &[0x8001][..]),
        (&[0x8002, 0x8001], &[0x8001]),
        (&[0x8001], &[0xffff, 0x8003, 0x0001]),
    ] {
        let cable = Cable::new(9000);
        let (mut a, _) = side(&cable.a, of_a, 0x8001);
        let (mut b, _) = side(&cable.b, of_b, 0x8001);
        let places = connected(&mut a, &mut b, 0);
        exchange(&mut a, &mut b, places, &sizes(&SIZES));
        not_listening(&mut a, &mut b);
        not_listening(&mut b, &mut a);
    }
}

/// Without a listener, the rejection reaches the requester.
fn not_listening<'n>(from: &mut Side<'n>, to: &mut Side<'n>) {
    let place = from.connect(0, to.node.gid(), ServiceId(1));
    until(from, to, |from, _| !from.log.closed.is_empty());
    let reason = CloseReason::Rejected(RejectReason::INVALID_SERVICE_ID);
    assert_eq!(from.log.closed, [(place, reason)]);
}

#[test]
fn c87_connections_end_with_the_key_and_listeners_come_back_with_it() {
    let cable = Cable::new(9000);
    let table = [0xffff, 0x8001];
    let (mut a, of_a) = side(&cable.a, &table, 0x8001);
    let (mut b, of_b) = side(&cable.b, &table, 0x8001);
    for worker in [0, 1] {
        let (ours, theirs) = connected(&mut a, &mut b, worker);
        exchange(&mut a, &mut b, (ours, theirs), &sizes(&SIZES));
        assert_eq!(b.node.set_pkeys(&[0xffff]), [of_b.id]);
        until(&mut a, &mut b, |a, b| {
            !a.log.closed.is_empty() && !b.log.closed.is_empty()
        });
        assert_eq!(b.log.closed, [(theirs, CloseReason::PKeyChange)]);
        // The last message used the common partition that remains.
        assert_eq!(a.log.closed, [(ours, CloseReason::Disconnected)]);
        // It can neither be reached nor reach others.
        let violations = b.node.counter("rx_pkey_violations");
        let (_, unanswered) = a.connect(worker, b.node.gid(), SERVICE);
        until(&mut a, &mut b, |_, b| {
            b.node.counter("rx_pkey_violations") > violations
        });
        let request = ConnectRequest {
            service: SERVICE,
            peer: a.node.gid(),
            to: fabric::Qpn::new(0),
            private_data: b"may I",
        };
        let connections = b.node.workers[worker].connections().unwrap();
        let error = connections.connect(of_b.id, &request).unwrap_err();
        assert!(matches!(error, ConnectError::NoPKey(id) if id == of_b.id));
        a.node.workers[worker]
            .connections()
            .unwrap()
            .close(unanswered);
        a.log.closed.clear();
        b.log.closed.clear();
        assert_eq!(b.node.set_pkeys(&table), [of_b.id]);
        let (ours, theirs) = connected(&mut a, &mut b, worker);
        exchange(&mut a, &mut b, (ours, theirs), &sizes(&SIZES));
        let (back, accepted) = connected(&mut b, &mut a, worker);
        exchange(&mut b, &mut a, (back, accepted), &sizes(&SIZES));
        for (side, place) in [(&mut a, ours), (&mut b, back)] {
            side.node.workers[worker]
                .connections()
                .unwrap()
                .close(place.1);
        }
        until(&mut a, &mut b, |a, b| {
            let closed = [(theirs, CloseReason::Disconnected)];
            b.log.closed == closed && a.log.closed == [(accepted, closed[0].1)]
        });
        a.log.closed.clear();
        b.log.closed.clear();
    }
    let entry = a.node.port.endpoint_pkey(of_a.id);
    assert_eq!(entry, Some(PKey::new(0x8001)), "this entry did not change");
}

#[test]
fn c88_connections_end_when_their_key_moves_or_becomes_a_limited_one() {
    let cable = Cable::new(9000);
    let (mut a, _) = side(&cable.a, &[0xffff, 0x8001], 0x8001);
    let (mut b, of_b) = side(&cable.b, &[0xffff, 0x8001], 0x8001);
    for table in [&[0x8001, 0xffff][..], &[0x0001, 0xffff], &[0xffff, 0x8001]] {
        let (_, theirs) = connected(&mut a, &mut b, 0);
        assert_eq!(b.node.set_pkeys(table), [of_b.id]);
        until(&mut a, &mut b, |a, b| {
            !a.log.closed.is_empty() && !b.log.closed.is_empty()
        });
        assert_eq!(b.log.closed, [(theirs, CloseReason::PKeyChange)]);
        a.log.closed.clear();
        b.log.closed.clear();
    }
}

#[test]
fn c89_connections_go_on_while_another_key_comes_and_goes() {
    let cable = Cable::new(9000);
    let table = [0xffff, 0x8001, 0x8002];
    let (mut a, _) = side(&cable.a, &table, 0x8001);
    let (mut b, _) = side(&cable.b, &table, 0x8001);
    let others = [a.node.endpoint_in(0x8002), b.node.endpoint_in(0x8002)];
    let places = connected(&mut a, &mut b, 0);
    for round in 0..50 {
        let table = if round % 2 == 0 { &table[..2] } else { &table };
        assert_eq!(a.node.set_pkeys(table), [others[0].id]);
        assert_eq!(b.node.set_pkeys(table), [others[1].id]);
        exchange(&mut a, &mut b, places, &sizes(&SIZES));
    }
    assert!(a.log.closed.is_empty() && b.log.closed.is_empty());
    for (side, name) in [&a, &b]
        .into_iter()
        .flat_map(|s| REFUSED.map(|name| (s, name)))
    {
        assert_eq!(side.node.counter(name), 0, "{name}");
    }
}

/// The drops of packets that arrive while their queue pair is restarted.
const REFUSED: [&str; 3] = ["rx_pkey_violations", "rx_unknown_qpn", "rx_bad_state"];

#[test]
fn c90_limited_members_get_no_connection_to_each_other() {
    for (of_a, of_b, passes) in [
        (0x0001, 0x8001, true),
        (0x8001, 0x0001, true),
        (0x0001, 0x0001, false),
    ] {
        let cable = Cable::new(9000);
        let (mut a, _) = side(&cable.a, &[0xffff, of_a], 0x8001);
        let (mut b, _) = side(&cable.b, &[0xffff, of_b], 0x8001);
        if passes {
            let places = connected(&mut a, &mut b, 1);
            exchange(&mut a, &mut b, places, &sizes(&SIZES));
            continue;
        }
        // The request is from a limited member to a limited one: QP1 refuses it.
        a.connect(0, b.node.gid(), SERVICE);
        until(&mut a, &mut b, |_, b| {
            b.node.counter("rx_pkey_violations") > 0
        });
        go_on(&mut a, &mut b);
        assert!(a.log.established.is_empty() && b.log.accepted.is_empty());
    }
}

/// The listener is in another partition than the request, though the port is in both.
#[test]
fn a_request_in_another_partition_is_rejected() {
    let cable = Cable::new(9000);
    let (mut a, _) = side(&cable.a, &[0x8002], 0x8002);
    let (mut b, _) = side(&cable.b, &[0xffff, 0x8001, 0x8002], 0x8001);
    let place = a.connect(0, b.node.gid(), SERVICE);
    until(&mut a, &mut b, |a, _| !a.log.closed.is_empty());
    let reason = CloseReason::Rejected(RejectReason::INVALID_GID);
    assert_eq!(a.log.closed, [(place, reason)]);
    assert!(b.log.accepted.is_empty());
}
