//! A port takes over the receiving sockets of a former process.

use std::sync::Arc;

use fabric::soft::SoftConfig;
use fabric::{FabricError, Sent};
use rustix::net::SocketFlags;

use super::exchange::config;
use crate::net::Cable;
use crate::node::{Node, QKEY, open, payloads};

fn with(workers: usize) -> SoftConfig {
    SoftConfig {
        workers,
        ..config()
    }
}

/// `config` with the sockets of a port.
fn after(port: &Node<'_>, config: SoftConfig) -> SoftConfig {
    let sockets = port.port.receiving_sockets();
    let former = sockets
        .iter()
        .map(|fd| Arc::new(fd.try_clone_to_owned().unwrap()))
        .collect();
    SoftConfig { former, ..config }
}

/// Datagrams that arrive while no process receives are delivered by the next one. With fewer workers, those in the
/// sockets of the others are lost.
fn datagrams_wait(before: usize, now: usize) {
    let cable = Cable::new(9000);
    let mut a = Node::open(&cable.a, config());
    let s = a.endpoint();
    let mut former = Node::open(&cable.b, with(before));
    let (gid, r) = (former.gid(), former.endpoint());
    let sent = payloads(3, 700, 9);
    let mut send = |range: std::ops::Range<usize>| {
        for payload in &sent[range] {
            let one = std::slice::from_ref(payload);
            assert_eq!(a.send(&s, gid, r.qpn, QKEY, one), Sent::Done);
        }
    };
    send(0..1);
    assert_eq!(former.receive(1).len(), 1);
    former.port.set_receiving(false);
    send(1..2);
    assert_eq!(former.receive_for_a_while().len(), 0);
    let kept = after(&former, with(now));
    drop(former);
    send(2..3);
    let mut next = Node::open(&cable.b, kept);
    assert_eq!(next.gid(), gid);
    send(3..4);
    // The queue pair is created before the packets are read.
    assert_eq!(next.receive_for_a_while().len(), 0);
    let again = next.endpoint_wishing(Some(r.qpn));
    assert_eq!(again.qpn, r.qpn);
    next.port.set_receiving(true);
    let waited = if now < before { 3 } else { 1 };
    let got = next.receive(sent.len() - waited);
    let got: Vec<_> = got.into_iter().map(|(_, _, payload)| payload).collect();
    assert!(got.ends_with(&sent[waited..]), "{got:?}");
    assert_eq!(next.counter("rx_socket_drops"), 0);
    assert_eq!(next.port.receiving_sockets().len(), now);
}

#[test]
fn datagrams_wait_for_the_next_process() {
    for (before, now) in [(1, 1), (3, 3), (1, 3), (3, 1)] {
        datagrams_wait(before, now);
    }
}

/// Connections of the next process reach the worker that has them.
#[test]
fn packets_of_connections_are_steered_in_a_group_that_has_grown() {
    use crate::side::{SIZES, Side, connected, exchange, sizes};
    let cable = Cable::new(4200);
    let mut a = Side::new(Node::open(&cable.a, with(2)));
    let former = Node::open(&cable.b, with(1));
    let kept = after(&former, with(3));
    drop(former);
    let mut next = Node::open(&cable.b, kept);
    next.port.set_receiving(true);
    let mut b = Side::new(next);
    let places = connected(&mut a, &mut b, 0);
    exchange(&mut a, &mut b, places, &sizes(&SIZES));
}

/// Sockets of another interface, of another network namespace, and other descriptors.
#[test]
fn descriptors_that_do_not_fit_are_replaced() {
    let (cable, elsewhere) = (Cable::new(4200), Cable::new(4200));
    let mut a = Node::open(&cable.a, config());
    let s = a.endpoint();
    let stranger = Node::open(&elsewhere.b, config());
    let of_stranger = after(&stranger, config());
    let pipe = rustix::pipe::pipe().unwrap();
    let unbound = rustix::net::socket_with(
        rustix::net::AddressFamily::INET6,
        rustix::net::SocketType::DGRAM,
        SocketFlags::NONBLOCK,
        None,
    );
    let former = |fd| SoftConfig {
        former: vec![Arc::new(fd)],
        ..config()
    };
    for unfit in [of_stranger, former(pipe.0), former(unbound.unwrap())] {
        let mut b = Node::open(&cable.b, unfit);
        let r = b.endpoint();
        b.port.set_receiving(true);
        let sent = payloads(0, 100, 100);
        assert_eq!(a.send(&s, b.gid(), r.qpn, QKEY, &sent), Sent::Done);
        assert_eq!(b.receive(1).len(), 1);
    }
}

/// The sockets keep the UDP port: a process without them is refused.
#[test]
fn the_port_is_in_use_while_the_sockets_are_kept() {
    let cable = Cable::new(4200);
    let former = Node::open(&cable.b, config());
    let kept = after(&former, config());
    drop(former);
    let Err(FabricError::Unusable(why)) = open(&cable.b, &config()).map(drop) else {
        panic!("another process has the port");
    };
    assert!(why.contains("4791"), "{why}");
    Node::open(&cable.b, kept);
}
