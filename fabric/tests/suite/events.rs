//! Changes of the device under an open port, or of its interface.

use std::thread::sleep;
use std::time::{Duration, Instant};

use fabric::port::UdEndpoint;
use fabric::{AddressHandle, AhAttributes, Gid, PKey, PortEvent, PortState, Qpn, Room, Sent};

use crate::exchange::{of, train_arrives};
use crate::lab::{End, Lab};
use crate::node::{Node, QKEY, SOON, payloads};

const BROADCAST: &str = "ff12:401b:ffff::ffff:ffff";

/// Returns the events until one satisfies `last`.
pub fn until(node: &mut Node<'_>, last: impl Fn(&PortEvent) -> bool) -> Vec<PortEvent> {
    let deadline = Instant::now() + SOON;
    let mut all = Vec::new();
    while !all.iter().any(&last) {
        let about = node.port.attributes();
        assert!(Instant::now() < deadline, "only {all:?}: {about:?}");
        sleep(Duration::from_millis(5));
        all.extend(node.process());
        // Lets its workers handle the event.
        node.receive_for_no_time();
    }
    all
}

pub fn active(node: &mut Node<'_>) -> Vec<PortEvent> {
    until(node, |e| *e == PortEvent::Active)
}

/// An address handle of `a`'s first worker that stays.
fn handle(a: &mut Node<'_>, to: Gid) -> AddressHandle {
    let to = AhAttributes::to(to, PKey::DEFAULT);
    a.workers[0].create_ah(&to).unwrap()
}

/// Checks that a datagram to a group and one to a queue pair arrive.
pub fn assert_talk(a: &mut Node<'_>, b: &mut Node<'_>) {
    let mgid: Gid = BROADCAST.parse().unwrap();
    let (s, r) = (a.endpoint(), b.endpoint());
    a.attach(&s, mgid);
    b.attach(&r, mgid);
    b.receive_for_a_while_from(a);
    let one = payloads(0, 30, 30);
    let gid = b.gid();
    assert_eq!(a.send(&s, gid, r.qpn, QKEY, &one), Sent::Done);
    let mut got = b.receive_from(a, 1);
    assert_eq!(a.send(&s, mgid, Qpn::MULTICAST, QKEY, &one), Sent::Done);
    let deadline = Instant::now() + SOON;
    while of(&got, &r).len() < 2 && Instant::now() < deadline {
        got.extend(b.receive_for_a_while_from(a));
    }
    let mine = got.iter().filter(|g| g.1.endpoint == r.id);
    let kinds: Vec<bool> = mine.map(|g| g.1.multicast).collect();
    assert_eq!(kinds, [false, true], "{:?}", b.workers[0].counters());
    a.port.destroy_ud(s.id).unwrap();
    b.port.destroy_ud(r.id).unwrap();
}

/// Checks that an address handle of `a` and endpoints made before a change work after it.
fn assert_still_talk(
    a: &mut Node<'_>,
    b: &mut Node<'_>,
    ah: AddressHandle,
    (s, r): (&UdEndpoint, &UdEndpoint),
) {
    let qpn = b.port.endpoint_qpn(r.id).expect("a queue pair");
    let two = payloads(1, 500, 8);
    assert_eq!(a.send_by(s, ah, qpn, QKEY, &two), Sent::Done);
    let got = b.receive_from(a, 2);
    assert_eq!(of(&got, r), two.iter().collect::<Vec<_>>());
    let source = (a.port.endpoint_qpn(s.id), a.gid());
    for (_, d, _) in &got {
        assert_eq!((Some(d.src_qpn), d.src_gid), source);
    }
}

#[test]
fn down_and_up() {
    let lab = Lab::new();
    let (mut a, mut b) = lab.pair();
    let r = b.endpoint();
    b.attach(&r, BROADCAST.parse().unwrap());
    assert_talk(&mut a, &mut b);
    lab.ip(End::B, "link set u0 down");
    for node in [&mut a, &mut b] {
        until(node, |e| matches!(e, PortEvent::Down(_)));
        let about = node.port.attributes();
        assert_eq!(about.state, PortState::Down);
        assert!(about.state_reason.is_some_and(|why| !why.is_empty()));
    }
    lab.ip(End::B, "link set u0 up");
    active(&mut a);
    active(&mut b);
    assert_eq!(b.port.attributes().state_reason, None);
    assert_talk(&mut a, &mut b);
    assert_talk(&mut b, &mut a);
    assert!(b.port.resources().groups.iter().any(|g| g.qpn == r.qpn));
}

/// The device disappears and returns: endpoints and groups return, possibly with other numbers, which
/// the port reports. Requests made meanwhile take effect.
#[test]
fn vanished_and_back() {
    let lab = Lab::new();
    if let Lab::Verbs(devices) = &lab
        && !devices.are_software()
    {
        return kit::skip("only software devices can be deleted and made again");
    }
    let (mut a, mut b) = lab.pair();
    let mgid: Gid = BROADCAST.parse().unwrap();
    let (s, r) = (a.endpoint(), b.endpoint());
    let gid = b.gid();
    let ah = handle(&mut a, gid);
    b.attach(&r, mgid);
    let mut now = vec![r];
    for round in 0..2 {
        lab.unplug();
        until(&mut a, |e| *e == PortEvent::Removed);
        until(&mut b, |e| *e == PortEvent::Removed);
        assert_eq!(a.port.attributes().state, PortState::Down);
        let deadline = Instant::now() + SOON;
        while !lab.is_unplugged() {
            assert!(Instant::now() < deadline, "the device is in use");
            for node in [&mut a, &mut b] {
                node.process();
                node.receive_for_no_time();
            }
            sleep(Duration::from_millis(5));
        }
        assert_ne!(a.workers[0].room(), Room::Nothing, "round {round}");
        if a.workers[0].train(8).is_some() {
            let one = payloads(0, 8, 8);
            let sent = a.send(&s, mgid, Qpn::MULTICAST, QKEY, &one);
            assert_eq!(sent, Sent::Failed, "round {round}");
        }
        // The software fabric creates endpoints meanwhile, which work later. Over verbs, the device creates them.
        let late = b.endpoint_if_any();
        assert_eq!(late.is_some(), matches!(lab, Lab::Soft(_)));
        if let Some(late) = late {
            b.attach(&late, mgid);
            now.push(late);
        }
        lab.plug();
        for node in [&mut a, &mut b] {
            let events = active(node);
            let is_told = |e: &PortEvent| {
                matches!(
                    e,
                    PortEvent::Active
                        | PortEvent::GidChange(_)
                        | PortEvent::MtuChange(_)
                        | PortEvent::QpnChange(_)
                        | PortEvent::Down(_)
                )
            };
            assert!(events.iter().all(is_told), "{events:?}");
        }
        for endpoint in &now {
            let qpn = b.port.endpoint_qpn(endpoint.id).expect("a queue pair");
            let all = b.port.resources().queue_pairs;
            let q = all.iter().find(|q| q.qpn == qpn).expect("listed");
            assert_eq!((q.endpoint, q.state), (endpoint.id, "RTS"));
        }
        let two = payloads(1, 500, 8);
        assert_eq!(a.send(&s, mgid, Qpn::MULTICAST, QKEY, &two), Sent::Done);
        let mut got = b.receive_from(&mut a, 2 * now.len());
        got.extend(b.receive_for_a_while_from(&mut a));
        for endpoint in &now {
            assert_eq!(of(&got, endpoint).len(), 2, "round {round}: {endpoint:?}");
        }
        train_arrives(&mut a, &mut b, &two);
        // The underlay of the software fabric returns with another address.
        if b.gid() == gid {
            assert_still_talk(&mut a, &mut b, ah, (&s, &now[0]));
        }
        assert_talk(&mut a, &mut b);
    }
}

#[test]
fn the_gid_follows_the_address() {
    let lab = Lab::new();
    let (mut a, mut b) = lab.pair();
    let old = a.gid();
    let new: Gid = "fe80::77".parse().unwrap();
    let (s, r) = (a.endpoint(), b.endpoint());
    let gid = b.gid();
    let ah = handle(&mut a, gid);
    lab.ip(End::A, "address add fe80::77/64 dev u0 nodad");
    lab.ip(End::A, &format!("address del {old}/64 dev u0"));
    until(&mut a, |e| *e == PortEvent::GidChange(new));
    assert_eq!(a.gid(), new);
    if lab.is_one_device() {
        until(&mut b, |e| *e == PortEvent::GidChange(new));
    }
    assert_talk(&mut a, &mut b);
    assert_talk(&mut b, &mut a);
    // An address that stays is not replaced by a better one.
    lab.ip(End::A, &format!("address add {old}/64 dev u0 nodad"));
    for _ in 0..10 {
        sleep(Duration::from_millis(50));
        assert_eq!(a.process(), []);
    }
    lab.ip(End::A, "address del fe80::77/64 dev u0");
    until(&mut a, |e| *e == PortEvent::GidChange(old));
    if lab.is_one_device() {
        until(&mut b, |e| *e == PortEvent::GidChange(old));
    }
    assert_still_talk(&mut a, &mut b, ah, (&s, &r));
}

#[test]
fn the_payload_follows_the_mtu() {
    let lab = Lab::new();
    let (mut a, mut b) = lab.pair();
    let most = a.payload_max();
    for (mtu, payload) in [("2200", 2048), ("1500", 1024), ("2200", 2048)] {
        for end in [End::A, End::B] {
            lab.ip(end, &format!("link set u0 mtu {mtu}"));
        }
        let payload = match &lab {
            // Over verbs an IB MTU, in the software fabric the exact fit.
            Lab::Verbs(_) => payload,
            Lab::Soft(_) => payload.max(if mtu == "1500" { 1428 } else { 0 }),
        };
        let changed = |e: &PortEvent| *e == PortEvent::MtuChange(payload);
        until(&mut a, changed);
        until(&mut b, changed);
        let payload = payload as usize;
        assert!(payload < most && a.payload_max() == payload);
        train_arrives(&mut a, &mut b, &payloads(3, payload, payload));
    }
}
