//! The underlay changes under a running port.

use std::time::{Duration, Instant};

use fabric::port::PortState;
use fabric::soft::SoftConfig;
use fabric::{Gid, Port, PortEvent, Qpn, Sent};

use crate::net::Cable;
use crate::node::{Node, QKEY, payloads};

const BROADCAST: &str = "ff12:401b:ffff::ffff:ffff";

fn config() -> SoftConfig {
    SoftConfig::new("u0")
}

/// The events until one of them is `last`, or for three seconds.
fn until(node: &mut Node<'_>, last: impl Fn(&PortEvent) -> bool) -> Vec<PortEvent> {
    let deadline = Instant::now() + Duration::from_secs(3);
    let mut all = Vec::new();
    while !all.iter().any(&last) {
        assert!(Instant::now() < deadline, "only {all:?}");
        std::thread::sleep(Duration::from_millis(5));
        all.extend(node.process());
    }
    all
}

fn active(node: &mut Node<'_>) -> Vec<PortEvent> {
    until(node, |e| *e == PortEvent::Active)
}

/// A datagram to a group and one to a queue pair arrive.
fn assert_talk(a: &mut Node<'_>, b: &mut Node<'_>) {
    let mgid: Gid = BROADCAST.parse().unwrap();
    let (s, r) = (a.endpoint(), b.endpoint());
    a.attach(&s, mgid);
    b.attach(&r, mgid);
    b.receive_for_a_while();
    let one = payloads(0, 30, 30);
    let gid = b.gid();
    assert_eq!(a.send(&s, gid, r.qpn, QKEY, &one), Sent::Done);
    assert_eq!(a.send(&s, mgid, Qpn::MULTICAST, QKEY, &one), Sent::Done);
    let got = b.receive(2);
    let mine: Vec<bool> = got
        .iter()
        .filter(|g| g.1.endpoint == r.id)
        .map(|g| g.1.multicast)
        .collect();
    assert_eq!(mine, [false, true], "{:?}", b.workers[0].counters());
    a.port.destroy_ud(s.id).unwrap();
    b.port.destroy_ud(r.id).unwrap();
}

#[test]
fn down_and_up() {
    let cable = Cable::new(1500);
    let mut a = Node::open(&cable.a, config());
    let mut b = Node::open(&cable.b, config());
    assert_talk(&mut a, &mut b);
    cable.b.ip(&["link", "set", "u0", "down"]);
    let down = |e: &PortEvent| matches!(e, PortEvent::Down(_));
    let events = until(
        &mut b,
        |e| matches!(e, PortEvent::Down(s) if s.contains("ip link set u0 up")),
    );
    assert!(events.iter().all(down), "{events:?}");
    until(
        &mut a,
        |e| matches!(e, PortEvent::Down(s) if s.contains("no carrier")),
    );
    assert_eq!(b.port.attributes().state, PortState::Down);
    assert!(b.port.attributes().state_reason.is_some());
    cable.b.ip(&["link", "set", "u0", "up"]);
    active(&mut b);
    active(&mut a);
    assert_eq!(b.port.attributes().state_reason, None);
    assert_talk(&mut a, &mut b);
    assert_talk(&mut b, &mut a);
}

#[test]
fn vanished_and_back() {
    let cable = Cable::new(1500);
    let two = || SoftConfig {
        workers: 2,
        ..config()
    };
    let mut a = Node::open(&cable.a, two());
    let mut b = Node::open(&cable.b, config());
    let mgid: Gid = BROADCAST.parse().unwrap();
    let (s, r) = (a.endpoint(), b.endpoint());
    b.attach(&r, mgid);
    cable.a.ip(&["link", "del", "u0"]);
    until(&mut a, |e| *e == PortEvent::Removed);
    until(&mut b, |e| *e == PortEvent::Removed);
    assert_eq!(
        a.send(&s, mgid, Qpn::MULTICAST, QKEY, &payloads(0, 8, 8)),
        Sent::Failed
    );
    // What is asked for meanwhile holds afterwards.
    let late = b.endpoint();
    b.attach(&late, mgid);
    // Another interface takes the old index.
    cable.a.ip(&["link", "add", "other", "type", "veth"]);
    cable.plug(9000);
    let events = active(&mut a);
    assert!(events.contains(&PortEvent::MtuChange(4096)), "{events:?}");
    active(&mut b);
    assert_eq!(
        a.send(&s, mgid, Qpn::MULTICAST, QKEY, &payloads(1, 4096, 8)),
        Sent::Done
    );
    let got = b.receive(4);
    for id in [r.id, late.id] {
        assert_eq!(got.iter().filter(|g| g.1.endpoint == id).count(), 2);
    }
    assert_talk(&mut a, &mut b);
}

#[test]
fn the_gid_follows_the_address() {
    let cable = Cable::new(1500);
    let mut a = Node::open(&cable.a, config());
    let mut b = Node::open(&cable.b, config());
    let old = a.gid();
    cable.a.ip(&["address", "add", "fe80::77/64", "dev", "u0"]);
    cable
        .a
        .ip(&["address", "del", &format!("{old}/64"), "dev", "u0"]);
    let new: Gid = "fe80::77".parse().unwrap();
    let events = until(&mut a, |e| matches!(e, PortEvent::GidChange(_)));
    assert_eq!(events, [PortEvent::GidChange(new)]);
    assert_eq!(a.gid(), new);
    assert_talk(&mut a, &mut b);
    assert_talk(&mut b, &mut a);
    cable.a.ip(&["address", "del", "fe80::77/64", "dev", "u0"]);
    until(
        &mut a,
        |e| matches!(e, PortEvent::Down(s) if s.contains("link-local")),
    );
    cable.a.ip(&["address", "add", "fe80::77/64", "dev", "u0"]);
    assert_eq!(active(&mut a), [PortEvent::Active]);
    assert_talk(&mut a, &mut b);
}

#[test]
fn the_payload_follows_the_mtu() {
    let cable = Cable::new(1500);
    let mut a = Node::open(&cable.a, config());
    let mut b = Node::open(&cable.b, config());
    for ns in [&cable.a, &cable.b] {
        ns.ip(&["link", "set", "u0", "mtu", "2200"]);
    }
    let changed = |e: &PortEvent| *e == PortEvent::MtuChange(2048);
    until(&mut a, changed);
    until(&mut b, changed);
    assert_eq!(a.port.attributes().underlay_mtu, Some(2200));
    let (s, r) = (a.endpoint(), b.endpoint());
    let gid = b.gid();
    assert_eq!(
        a.send(&s, gid, r.qpn, QKEY, &payloads(3, 2048, 2048)),
        Sent::Done
    );
    assert_eq!(b.receive(4).len(), 4);
}
