//! The underlay changes under a running port.

use fabric::soft::SoftConfig;
use fabric::{Gid, PortEvent, Qpn, Sent};

use crate::events::{active, assert_talk, until};
use crate::net::Cable;
use crate::node::{Node, QKEY, payloads};

const BROADCAST: &str = "ff12:401b:ffff::ffff:ffff";

fn config() -> SoftConfig {
    SoftConfig::new("u0")
}

#[test]
fn a_port_that_is_down_has_a_reason() {
    let cable = Cable::new(1500);
    let mut a = Node::open(&cable.a, config());
    let mut b = Node::open(&cable.b, config());
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
    cable.b.ip(&["link", "set", "u0", "up"]);
    active(&mut b);
    active(&mut a);
}

#[test]
fn an_underlay_may_return_as_another_interface() {
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
    // Requests made meanwhile take effect.
    let late = b.endpoint();
    b.attach(&late, mgid);
    // Another interface gets the old index.
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
fn a_port_without_its_address_is_down() {
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
