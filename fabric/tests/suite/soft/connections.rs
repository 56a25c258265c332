//! Reliable connections between two ports.

use std::net::UdpSocket;
use std::os::fd::AsFd;
use std::thread::sleep;
use std::time::{Duration, Instant};

use fabric::soft::SoftConfig;
use fabric::{CloseReason, Posted, WcStatus};

use rustix::event::{Timespec, epoll};

use super::exchange::ipv4;
use crate::net::Cable;
use crate::node::{Node, SOON, payloads};
use crate::side::{Place, SIZES, Side, connected, counters, exchange, sizes, until};

fn all_sizes(cable: &Cable, of_a: SoftConfig, of_b: SoftConfig, path_mtu: usize) {
    let mut a = Side::new(Node::open(&cable.a, of_a));
    let mut b = Side::new(Node::open(&cable.b, of_b));
    let places = connected(&mut a, &mut b, 0);
    let (worker, connection) = places.0;
    let w = &mut a.node.workers[worker];
    assert_eq!(w.connections().unwrap().path_mtu(connection), path_mtu);
    exchange(&mut a, &mut b, places, &sizes(&SIZES));
    exchange(&mut a, &mut b, places, &sizes(&[65524; 50]));
    assert!(a.log.closed.is_empty() && b.log.closed.is_empty());
    assert_eq!(a.node.counter("rx_icrc_errors"), 0);
}

fn config() -> SoftConfig {
    SoftConfig::new("u0")
}

#[test]
fn messages_of_all_sizes_over_ipv6_with_an_ordinary_mtu() {
    all_sizes(&Cable::new(1500), config(), config(), 1024);
}

#[test]
fn messages_of_all_sizes_over_ipv4_with_an_ordinary_mtu() {
    let cable = Cable::new(1500);
    all_sizes(&cable, ipv4("192.0.2.2"), ipv4("192.0.2.1"), 1024);
}

#[test]
fn messages_of_a_mebibyte() {
    let cable = Cable::new(9000);
    let large = || SoftConfig {
        message_max: 1 << 20,
        ..config()
    };
    let mut a = Side::new(Node::open(&cable.a, large()));
    let mut b = Side::new(Node::open(&cable.b, large()));
    assert_eq!(a.node.port.capabilities().message_max, 1 << 20);
    let places = connected(&mut a, &mut b, 0);
    exchange(
        &mut a,
        &mut b,
        places,
        &sizes(&[1 << 20, 1, 1 << 20, 999_999]),
    );
    let connections = a.node.workers[0].connections().unwrap();
    assert!(connections.message(places.0.1, (1 << 20) + 1).is_none());
}

#[test]
fn small_messages_leave_in_one_train() {
    let cable = Cable::new(9000);
    let mut a = Side::new(Node::open(&cable.a, config()));
    let mut b = Side::new(Node::open(&cable.b, config()));
    let ((_, connection), _) = connected(&mut a, &mut b, 0);
    let sent = payloads(20, 100, 33);
    let trains = a.node.counter("tx_trains");
    let connections = a.node.workers[0].connections().unwrap();
    let mut places = connections.messages(connection, 100, sent.len()).unwrap();
    places.next(100).unwrap().copy_from_slice(&sent[0]);
    let ticket = places.finish();
    let mut places = connections.resume(ticket);
    for message in &sent[1..] {
        places.next(message.len()).unwrap().copy_from_slice(message);
    }
    let ticket = places.finish();
    assert_eq!(connections.post(connection, ticket), Posted::Done);
    assert_eq!(a.node.counter("tx_trains") - trains, 1);
    until(&mut a, &mut b, |_, b| b.log.messages.len() == sent.len());
    assert!(b.log.messages.iter().map(|m| &m.1).eq(&sent));
}

#[test]
fn each_worker_has_connections_of_its_own() {
    let cable = Cable::new(9000);
    let two = || SoftConfig {
        workers: 2,
        ..config()
    };
    let mut a = Side::new(Node::open(&cable.a, two()));
    let mut b = Side::new(Node::open(&cable.b, two()));
    for worker in [0, 1, 1, 0] {
        let places = connected(&mut a, &mut b, worker);
        assert_eq!(places.1.0, worker, "both sides count in one way");
        exchange(&mut a, &mut b, places, &sizes(&SIZES));
        let back = connected(&mut b, &mut a, worker);
        exchange(&mut b, &mut a, back, &sizes(&SIZES));
    }
    assert_eq!(a.node.counter("rx_handed_on"), 0, "the kernel steers");
    for side in [&mut a, &mut b] {
        for w in &mut side.node.workers {
            let list = w.connections().unwrap().list();
            assert_eq!(list.len(), 4);
            assert!(list.iter().all(|c| c.state == "ESTABLISHED"), "{list:?}");
        }
    }
}

#[test]
fn more_workers_here_than_there() {
    let cable = Cable::new(9000);
    let three = SoftConfig {
        workers: 3,
        ..config()
    };
    let mut a = Side::new(Node::open(&cable.a, three));
    let mut b = Side::new(Node::open(&cable.b, config()));
    for worker in 0..3 {
        let places = connected(&mut a, &mut b, worker);
        exchange(&mut a, &mut b, places, &sizes(&SIZES));
        let back = connected(&mut b, &mut a, 0);
        exchange(&mut b, &mut a, back, &sizes(&SIZES));
    }
}

/// The smaller path MTU is used, whichever side connects.
#[test]
fn path_mtus_fit_both_sides() {
    let cable = Cable::new(9000);
    cable.b.ip(&["link", "set", "u0", "mtu", "1500"]);
    let mut a = Side::new(Node::open(&cable.a, config()));
    let mut b = Side::new(Node::open(&cable.b, config()));
    let places = connected(&mut b, &mut a, 0);
    exchange(&mut b, &mut a, places, &sizes(&SIZES));
    let places = connected(&mut a, &mut b, 0);
    exchange(&mut a, &mut b, places, &sizes(&SIZES));
    for side in [&mut a, &mut b] {
        let list = side.node.workers[0].connections().unwrap().list();
        assert_eq!(list.len(), 2);
        assert!(list.iter().all(|c| c.path_mtu == 1024), "{list:?}");
    }
}

/// A worker that sleeps is woken to end connections whose packets no longer fit.
#[test]
fn a_smaller_underlay_ends_connections_of_a_sleeping_worker() {
    let cable = Cable::new(9000);
    let mut a = Side::new(Node::open(&cable.a, config()));
    let mut b = Side::new(Node::open(&cable.b, config()));
    let (ab, ba) = connected(&mut a, &mut b, 0);
    let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).unwrap();
    a.node.workers[0].register(epoll.as_fd(), 42).unwrap();
    let is_woken = |patience: i64| {
        let patience = Timespec {
            tv_sec: patience,
            tv_nsec: 0,
        };
        let mut events = Vec::with_capacity(4);
        let events = rustix::buffer::spare_capacity(&mut events);
        epoll::wait(&epoll, events, Some(&patience)).unwrap() > 0
    };
    while is_woken(0) {
        a.turn();
    }
    cable.a.ip(&["link", "set", "u0", "mtu", "2400"]);
    assert!(!a.node.process().is_empty());
    assert!(is_woken(SOON.as_secs() as i64));
    a.turn();
    assert_eq!(a.log.closed, [(ab, CloseReason::PathMtu)]);
    until(&mut a, &mut b, |_, b| !b.log.closed.is_empty());
    assert_eq!(b.log.closed, [(ba, CloseReason::Disconnected)]);
}

#[test]
fn a_peer_that_vanishes_is_noticed() {
    let cable = Cable::new(9000);
    let mut a = Side::new(Node::open(&cable.a, config()));
    let mut b = Side::new(Node::open(&cable.b, config()));
    let (ab, _) = connected(&mut a, &mut b, 0);
    drop(b);
    assert!(a.post(ab, &[1; 5000]));
    a.await_closed();
    let reason = CloseReason::Failed(WcStatus::RetryExcErr);
    assert_eq!(a.log.closed, [(ab, reason)]);
    assert!(a.has_room(0), "other connections are not blocked");
}

/// The workers also keep their positions in the group of sockets.
#[test]
fn a_new_address_ends_connections_of_the_old_one() {
    let cable = Cable::new(1500);
    let two = |peer| SoftConfig {
        workers: 2,
        ..ipv4(peer)
    };
    let mut a = Side::new(Node::open(&cable.a, two("192.0.2.2")));
    let mut b = Side::new(Node::open(&cable.b, two("192.0.2.1")));
    let (ab, _) = connected(&mut a, &mut b, 1);
    cable.a.ip(&["address", "del", "192.0.2.1/24", "dev", "u0"]);
    cable.a.ip(&["address", "add", "192.0.2.3/24", "dev", "u0"]);
    until(&mut a, &mut b, |a, _| {
        a.node.process();
        !a.log.closed.is_empty()
    });
    assert_eq!(a.log.closed, [(ab, CloseReason::PortGone)]);
    for worker in [0, 1] {
        let again = connected(&mut a, &mut b, worker);
        exchange(&mut a, &mut b, again, &sizes(&SIZES));
    }
    assert_eq!(a.node.counter("rx_handed_on"), 0);
}

/// Arbitrary packets to the UDP port do no harm.
#[test]
fn garbage_does_not_disturb_a_connection() {
    let cable = Cable::new(1500);
    let mut a = Side::new(Node::open(&cable.a, ipv4("192.0.2.2")));
    let mut b = Side::new(Node::open(&cable.b, ipv4("192.0.2.1")));
    let places = connected(&mut a, &mut b, 0);
    let list = b.node.workers[0].connections().unwrap().list();
    let qpn = list[0].local_qpn.to_bytes();
    let socket = cable.a.run(|| UdpSocket::bind("192.0.2.1:0").unwrap());
    for k in 0..600u32 {
        let mut packet: Vec<u8> = (0..k % 97).map(|i| (i * 31 + k * 7) as u8).collect();
        for (at, byte) in [(0, (k % 0x20) as u8), (1, 0), (2, 0xff), (3, 0xff)] {
            if k % 3 > 0
                && let Some(b) = packet.get_mut(at)
            {
                *b = byte;
            }
        }
        if k % 3 > 1
            && let Some(dest_qp) = packet.get_mut(5..8)
        {
            dest_qp.copy_from_slice(&qpn);
        }
        socket.send_to(&packet, "192.0.2.2:4791").unwrap();
    }
    exchange(&mut a, &mut b, places, &sizes(&SIZES));
    assert!(b.node.counter("rx_icrc_errors") > 10);
    assert!(b.node.counter("rx_length_errors") > 10);
    assert!(b.log.closed.is_empty());
}

/// The receiver does not poll, and its socket overflows with packets of many connections. All messages
/// arrive in the end, no connection fails, and afterwards hardly anything is sent twice.
#[test]
fn an_overflowing_socket_heals() {
    const CONNECTIONS: usize = 128;
    const EACH: usize = 4;
    let cable = Cable::new(9000);
    let mut a = Side::new(Node::open(&cable.a, config()));
    let mut b = Side::new(Node::open(&cable.b, config()));
    let places: Vec<Place> = (0..CONNECTIONS)
        .map(|_| connected(&mut a, &mut b, 0).0)
        .collect();
    let message = payloads(0, 0, 65524).remove(0);
    for place in &places {
        for _ in 0..EACH {
            assert!(a.post(*place, &message));
        }
    }
    let asleep = Instant::now() + Duration::from_millis(300);
    while Instant::now() < asleep {
        a.turn();
        sleep(Duration::from_millis(1));
    }
    until(&mut a, &mut b, |_, b| {
        b.log.messages.len() == CONNECTIONS * EACH
    });
    assert!(b.node.counter("rx_socket_drops") > 0, "{:?}", counters(&b));
    assert!(b.log.messages.iter().all(|(_, m)| *m == message));
    // All messages are acknowledged.
    until(&mut a, &mut b, |a, _| {
        let list = a.node.workers[0].connections().unwrap().list();
        list.iter().all(|c| c.in_flight == 0)
    });
    let before = a.node.counter("retransmitted");
    b.log.messages.clear();
    for _ in 0..50 {
        let sent = b.log.messages.len() + 1;
        assert!(a.post(places[0], &message));
        until(&mut a, &mut b, |_, b| b.log.messages.len() == sent);
    }
    // A test process that is not scheduled probes early, once a message.
    let again = a.node.counter("retransmitted") - before;
    assert!(again <= 50, "{again} of 800 packets");
    assert!(a.log.closed.is_empty() && b.log.closed.is_empty());
}
