//! Reliable connections, if the provider has them. The first port connects, the second listens: if both
//! are on one device, only one of them can listen on a service of rdma_cm.

use std::time::{Duration, Instant};

use fabric::port::UdEndpoint;
use fabric::{
    CloseReason, ConnectRequest, PKey, Port, RejectReason, Room, Sent, ServiceId, Services,
};

use crate::lab::{Family, Lab};
use crate::node::{Node, QKEY, payloads};
use crate::side::{Place, SERVICE, SIZES, Side, connected, counters, exchange, sizes, until};

/// The test's port number in rdma_cm's TCP port space.
const PORT: u16 = 4755;

/// The services that peers of a provider can request.
fn services(port: &dyn Port) -> &'static [ServiceId] {
    const BOTH: [ServiceId; 2] = [SERVICE, ServiceId::rdma_cm(PORT)];
    const OF_DEVICE: [ServiceId; 1] = [ServiceId::rdma_ib(PORT)];
    match port.capabilities().services {
        Services::Any => &BOTH,
        Services::RdmaCm => &BOTH[1..],
        Services::InfiniBand | Services::RdmaCmInfiniBand => &OF_DEVICE,
    }
}

/// The active and the passive side; `None`, with a message, if the provider has no connections.
fn sides<'n>(lab: &'n Lab, family: Family, service: usize) -> Option<(Side<'n>, Side<'n>)> {
    let (a, b) = lab.pair_of(family);
    let has = |node: &Node<'_>| node.port.capabilities().message_max > 0;
    if !has(&a) || !has(&b) {
        kit::skip("this provider has no connections here");
        return None;
    }
    let service = *services(a.port.as_ref()).get(service)?;
    Some((Side::asking(a, service), Side::answering(b, service)))
}

/// Runs a test with every service, each in its own lab.
fn over_services(run: impl for<'n> Fn(&'n Lab, Side<'n>, Side<'n>)) {
    for service in 0.. {
        let lab = Lab::new();
        match sides(&lab, Family::V6, service) {
            Some((a, b)) => run(&lab, a, b),
            None => return,
        }
    }
}

fn list(side: &mut Side<'_>) -> Vec<fabric::ConnectionInfo> {
    side.node.workers[0].connections().unwrap().list()
}

fn all_sizes<'n>(a: &mut Side<'n>, b: &mut Side<'n>) {
    let places = connected(a, b, 0);
    // The passive side is established last.
    until(a, b, |_, b| list(b)[0].state == "ESTABLISHED");
    for (side, place, active) in [(&mut *a, places.0, true), (&mut *b, places.1, false)] {
        let list = list(side);
        let one = list.iter().find(|c| c.connection == place.1).unwrap();
        assert_eq!(
            (one.active, one.state, one.qp_state),
            (active, "ESTABLISHED", "RTS")
        );
        let fits = side.node.payload_max() as u32;
        assert!(
            one.path_mtu.is_power_of_two() && one.path_mtu <= fits,
            "{one:?}"
        );
        assert!(2 * one.path_mtu > fits.min(4096), "{one:?}");
        let connections = side.node.workers[0].connections().unwrap();
        assert_eq!(connections.path_mtu(place.1), one.path_mtu as usize);
        assert!(connections.message(place.1, 65_537).is_none());
    }
    let (qpn, theirs) = (list(a)[0].local_qpn, list(b)[0].remote_qpn);
    assert_eq!(qpn, theirs);
    exchange(a, b, places, &sizes(&SIZES));
    exchange(a, b, places, &sizes(&[65524; 50]));
    assert!(a.log.closed.is_empty() && b.log.closed.is_empty());
    // Acknowledged messages count.
    until(a, b, |a, _| list(a)[0].tx_messages == 62);
    assert_eq!(list(a)[0].rx_messages, 62);
}

#[test]
fn messages_of_all_sizes_over_ipv6() {
    over_services(|_, mut a, mut b| all_sizes(&mut a, &mut b));
}

#[test]
fn messages_of_all_sizes_over_ipv4() {
    let lab = Lab::new();
    if let Some((mut a, mut b)) = sides(&lab, Family::V4, 0) {
        all_sizes(&mut a, &mut b);
    }
}

/// Fills and posts several small messages at once.
#[test]
fn small_messages_by_the_score() {
    over_services(|_, mut a, mut b| {
        let ((worker, connection), _) = connected(&mut a, &mut b, 0);
        let sent = crate::node::payloads(20, 100, 33);
        let connections = a.node.workers[worker].connections().unwrap();
        let mut places = connections.messages(connection, 100, sent.len()).unwrap();
        assert!(places.room() >= 1);
        let mut next = 0;
        while let Some(place) = sent.get(next).and_then(|m| places.next(m.len())) {
            place.copy_from_slice(&sent[next]);
            next += 1;
        }
        let ticket = places.finish();
        assert_ne!(
            connections.post(connection, ticket),
            fabric::Posted::Refused
        );
        while next < sent.len() {
            until(&mut a, &mut b, |a, _| a.has_room(worker));
            assert!(a.post((worker, connection), &sent[next]));
            next += 1;
        }
        until(&mut a, &mut b, |_, b| b.log.messages.len() == sent.len());
        assert!(b.log.messages.iter().map(|m| &m.1).eq(&sent));
    });
}

#[test]
fn a_closed_connection_ends_on_both_sides_and_can_be_replaced() {
    over_services(|_, mut a, mut b| {
        for who_closes in 0..4 {
            let (ab, ba) = connected(&mut a, &mut b, 0);
            let (closer, place, other) = match who_closes % 2 {
                0 => (&mut a, ab, ba),
                _ => (&mut b, ba, ab),
            };
            closer.node.workers[0].connections().unwrap().close(place.1);
            until(&mut a, &mut b, |a, b| {
                a.log.closed.len() + b.log.closed.len() > who_closes
            });
            let notified = if who_closes % 2 == 0 { &b } else { &a };
            assert_eq!(
                notified.log.closed.last(),
                Some(&(other, CloseReason::Disconnected))
            );
            assert!(!a.post(ab, b"late") && !b.post(ba, b"late"));
        }
        assert_eq!(
            (a.log.closed.len(), b.log.closed.len()),
            (2, 2),
            "no event for the side that closes"
        );
        let again = connected(&mut a, &mut b, 0);
        exchange(&mut a, &mut b, again, &sizes(&SIZES));
    });
}

#[test]
fn many_connections_at_once() {
    over_services(|_, mut a, mut b| {
        let places: Vec<(Place, Place)> = (0..16).map(|_| connected(&mut a, &mut b, 0)).collect();
        assert_eq!((list(&mut a).len(), list(&mut b).len()), (16, 16));
        for place in &places {
            exchange(&mut a, &mut b, *place, &sizes(&[1, 5000, 65524]));
        }
        assert!(a.log.closed.is_empty() && b.log.closed.is_empty());
    });
}

#[test]
fn rejections_reach_the_requester() {
    over_services(|_, mut a, mut b| {
        b.log.refuse = Some(RejectReason::CONSUMER);
        let peer = b.node.gid();
        let first = a.connect(0, peer, a.service);
        until(&mut a, &mut b, |a, _| a.log.closed.len() == 1);
        let second = a.connect(0, peer, ServiceId(a.service.0 ^ 0x0101));
        until(&mut a, &mut b, |a, _| a.log.closed.len() == 2);
        let why = |place, reason| (place, CloseReason::Rejected(reason));
        let expected = [
            why(first, RejectReason::CONSUMER),
            why(second, RejectReason::INVALID_SERVICE_ID),
        ];
        assert_eq!(a.log.closed, expected);
        b.log.refuse = None;
        let places = connected(&mut a, &mut b, 0);
        exchange(&mut a, &mut b, places, &sizes(&SIZES));
    });
}

#[test]
fn a_peer_that_goes_is_noticed() {
    over_services(|lab, mut a, b| {
        let mut b = b;
        let (ab, _) = connected(&mut a, &mut b, 0);
        drop(b);
        // The side notices when it sends, if it is not notified before.
        a.post(ab, &[1; 5000]);
        a.await_closed();
        assert_eq!(a.log.closed.len(), 1, "{:?}", counters(&a));
        assert_eq!(a.log.closed[0].0, ab);
        assert!(a.has_room(0), "other connections are not blocked");
        // The node returns.
        let node = lab.node(crate::lab::End::B, Family::V6);
        let mut b = Side::answering(node, a.service);
        let places = connected(&mut a, &mut b, 0);
        exchange(&mut a, &mut b, places, &sizes(&SIZES));
    });
}

#[test]
fn connections_of_an_endpoint_end_with_it() {
    over_services(|_, mut a, mut b| {
        let (ab, ba) = connected(&mut a, &mut b, 0);
        let endpoint = a.endpoint();
        a.node.port.destroy_ud(endpoint).unwrap();
        until(&mut a, &mut b, |a, b| {
            !a.log.closed.is_empty() && !b.log.closed.is_empty()
        });
        assert_eq!(a.log.closed, [(ab, CloseReason::PortGone)]);
        assert_eq!(b.log.closed, [(ba, CloseReason::Disconnected)]);
        let request = ConnectRequest {
            service: a.service,
            peer: b.node.gid(),
            to: b.qpn(),
            private_data: &[],
        };
        let connections = a.node.workers[0].connections().unwrap();
        connections.connect(endpoint, &request).unwrap_err();
        let all = connections.list();
        assert!(all.iter().all(|c| c.state != "ESTABLISHED"), "{all:?}");
    });
}

#[test]
fn a_full_connection_leaves_room_for_datagrams() {
    over_services(|_, mut a, mut b| {
        let (ab, _) = connected(&mut a, &mut b, 0);
        let from = UdEndpoint {
            id: a.endpoint(),
            qpn: a.qpn(),
            pkey: Some(PKey::DEFAULT),
        };
        let (gid, qpn) = (b.node.gid(), b.qpn());
        while a.has_room(0) {
            assert!(a.post(ab, &[1; 5000]));
        }
        assert_eq!(a.node.workers[0].room(), Room::Datagrams);
        let one = payloads(0, 100, 100);
        assert_eq!(a.node.send(&from, gid, qpn, QKEY, &one), Sent::Done);
        assert_eq!(a.node.workers[0].room(), Room::Datagrams);
        let got = b.node.receive_from(&mut a.node, 1);
        assert_eq!(got.len(), 1, "{:?}", counters(&a));
        until(&mut a, &mut b, |a, _| a.has_room(0));
    });
}

/// A receiver that does not poll for a while delays its senders and loses nothing.
#[test]
fn a_receiver_that_oversleeps_loses_nothing() {
    over_services(|_, mut a, mut b| {
        let (ab, _) = connected(&mut a, &mut b, 0);
        let messages = sizes(&[65524; 300]);
        let mut sent = 0;
        // A connection ends if its receiver sleeps for seconds.
        let waking = Instant::now() + Duration::from_millis(200);
        while Instant::now() < waking {
            while sent < messages.len() && a.has_room(0) && a.post(ab, &messages[sent]) {
                sent += 1;
            }
            a.turn();
            std::thread::sleep(Duration::from_millis(1));
        }
        until(&mut a, &mut b, |a, b| {
            while sent < messages.len() && a.has_room(0) && a.post(ab, &messages[sent]) {
                sent += 1;
            }
            b.log.messages.len() == messages.len()
        });
        assert!(b.log.messages.iter().map(|m| &m.1).eq(&messages));
        assert!(a.log.closed.is_empty() && b.log.closed.is_empty());
    });
}
