//! Datagrams for others do not reach an endpoint, and bad requests are refused.

use std::time::Instant;

use fabric::port::UdEndpoint;
use fabric::{
    AhAttributes, FabricError, Gid, Joined, QKey, Qpn, Room, Sent, TrainTicket, UdDestination,
};

use crate::exchange::train_arrives;
use crate::lab::{End, Family, Lab, mgid};
use crate::node::{QKEY, SOON, payloads};

#[test]
fn wrong_keys_and_numbers_reach_no_endpoint() {
    let lab = Lab::new();
    let (mut a, mut b) = lab.pair();
    let (s, r, ended) = (a.endpoint(), b.endpoint(), b.endpoint());
    let gid = b.gid();
    let two = payloads(1, 500, 500);
    train_arrives(&mut a, &mut b, &two);
    b.port.destroy_ud(ended.id).unwrap();
    let mut send = |from: &UdEndpoint, qpn, qkey| {
        assert_eq!(a.send(from, gid, qpn, qkey, &two), Sent::Done);
    };
    send(&s, r.qpn, QKey::new(1));
    send(&s, ended.qpn, QKEY);
    send(&s, Qpn::new(0xff_fffe), QKEY);
    assert!(b.receive_for_a_while_from(&mut a).is_empty());
    // A controlled Q_Key is replaced by the endpoint's own.
    assert_eq!(
        a.send(&s, gid, r.qpn, QKey::new(0x8000_0000), &two),
        Sent::Done
    );
    let got = b.receive_from(&mut a, 2);
    assert!(got.iter().map(|g| &g.2).eq(&two));
    train_arrives(&mut a, &mut b, &two);
}

/// Conformance item 42.
#[test]
fn t42_nothing_over_the_mtu_leaves() {
    let lab = Lab::new();
    let (mut a, mut b) = lab.pair();
    let (s, r) = (a.endpoint(), b.endpoint());
    let gid = b.gid();
    let most = a.payload_max();
    let w = &mut a.workers[0];
    assert!(w.train(most).unwrap().room() > 0);
    let mut train = w.train(most + 1).unwrap();
    assert_eq!(train.room(), 0);
    assert!(train.next(most + 1).is_none());
    let ticket = TrainTicket {
        count: 1,
        payload: most + 1,
        last: most + 1,
    };
    let ah = w
        .create_ah(&AhAttributes::to(gid, fabric::PKey::DEFAULT))
        .unwrap();
    let to = UdDestination {
        ah,
        qpn: r.qpn,
        qkey: QKEY,
    };
    assert_eq!(w.send(s.id, &to, ticket), Sent::Failed);
    w.destroy_ah(ah);
    assert!(b.receive_for_a_while_from(&mut a).is_empty());
    train_arrives(&mut a, &mut b, &payloads(1, most, most));
}

#[test]
fn the_port_refuses_bad_groups_and_unknown_endpoints() {
    let lab = Lab::new();
    let mut a = lab.node(End::A, Family::V6);
    let s = a.endpoint();
    let group = |g: &str| g.parse::<Gid>().unwrap();
    for bad in ["fe80::1", "239.1.2.3"] {
        let refused = FabricError::BadGroup(group(bad)).to_string();
        let answers = a.change_groups(&s, &[group(bad)], &[]);
        assert_eq!(answers, [Joined::Refused(refused)], "{bad}");
    }
    a.port.destroy_ud(s.id).unwrap();
    let is_gone = |refused| matches!(refused, Err(FabricError::NoSuchEndpoint(id)) if id == s.id);
    assert!(is_gone(a.port.destroy_ud(s.id)));
    let left = a.port.change_groups(s.id, &[], &[mgid(1)]);
    assert!(is_gone(left.map(|_| ())));
    assert_eq!(a.port.endpoint_qpn(s.id), None);
    assert_eq!(a.port.endpoint_pkey(s.id), None);
    let sent = a.send(&s, group("fe80::1"), s.qpn, QKEY, &payloads(0, 8, 8));
    assert_eq!(sent, Sent::Failed);
}

/// Destroyed handles make room for others. A handle of the wrong address family or to an unreachable
/// address blocks nothing.
#[test]
fn address_handles_come_and_go() {
    let lab = Lab::new();
    let (mut a, mut b) = lab.pair();
    let (s, r) = (a.endpoint(), b.endpoint());
    let gid = b.gid();
    let one = payloads(0, 100, 100);
    for n in 0..200 {
        let w = &mut a.workers[0];
        let nowhere: Gid = format!("fe80::dead:{n:x}").parse().unwrap();
        let ah = w
            .create_ah(&AhAttributes::to(nowhere, fabric::PKey::DEFAULT))
            .unwrap();
        if n % 50 == 0 {
            // Dropped or refused, depending on the provider.
            a.send(&s, nowhere, Qpn::new(5), QKEY, &one);
        }
        a.workers[0].destroy_ah(ah);
        let deadline = Instant::now() + SOON;
        while a.workers[0].room() == Room::Nothing {
            assert!(Instant::now() < deadline, "{:?}", a.workers[0].counters());
            a.receive_for_no_time();
        }
        assert_eq!(a.send(&s, gid, r.qpn, QKEY, &one), Sent::Done);
        assert_eq!(b.receive_from(&mut a, 1).len(), 1, "round {n}");
    }
}
