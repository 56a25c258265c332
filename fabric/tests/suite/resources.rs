//! The attributes and resources of a port.

use fabric::{Gid, PKey, PortState};

use crate::lab::{End, Family, Lab, mgid, pkeys};
use crate::node::{QKEY, payloads};

#[test]
fn queue_pairs_and_groups_are_listed_while_they_are_there() {
    let lab = Lab::new();
    let mut a = lab.node(End::A, Family::V6);
    let before = a.port.resources();
    assert!(!before.completion_queues.is_empty());
    let workers = a.workers.len() as u32;
    assert!(before.completion_queues.iter().all(|q| q.worker < workers));
    let (x, y) = (a.endpoint(), a.endpoint());
    assert_ne!((x.id, x.qpn), (y.id, y.qpn));
    a.attach(&x, mgid(1));
    a.attach(&x, mgid(2));
    let now = a.port.resources();
    assert_eq!(now.queue_pairs.len(), before.queue_pairs.len() + 2);
    for endpoint in [&x, &y] {
        let mut all = now.queue_pairs.iter();
        let q = all.find(|q| q.endpoint == endpoint.id && q.kind == "UD");
        let q = q.expect("exists");
        assert_eq!(
            (q.qpn, q.state, q.pkey, q.qkey),
            (endpoint.qpn, "RTS", PKey::DEFAULT, QKEY)
        );
        assert_eq!(a.port.endpoint_qpn(endpoint.id), Some(endpoint.qpn));
        assert_eq!(a.port.endpoint_pkey(endpoint.id), endpoint.pkey);
        assert!(!endpoint.qpn.is_reserved());
    }
    let mut groups: Vec<_> = now.groups.iter().map(|g| (g.mgid, g.qpn)).collect();
    groups.sort();
    assert_eq!(groups, [(mgid(1), x.qpn), (mgid(2), x.qpn)]);
    a.port.destroy_ud(x.id).unwrap();
    a.port.destroy_ud(y.id).unwrap();
    let after = a.port.resources();
    assert_eq!(after.queue_pairs.len(), before.queue_pairs.len());
    assert!(after.groups.is_empty());
}

#[test]
fn attributes_and_capabilities_make_sense() {
    let lab = Lab::new();
    let mut a = lab.node(End::A, Family::V6);
    let about = a.port.attributes();
    assert_eq!(about.state, PortState::Active);
    assert_eq!(about.state_reason, None);
    assert!(about.name.contains('/'), "{}", about.name);
    assert!(a.gid() != Gid::UNSPECIFIED);
    assert!(about.guid.0 != [0; 8]);
    assert!((256..=65_507).contains(&about.ud_payload_max));
    let underlay = about.underlay_mtu.unwrap_or(u32::MAX);
    assert!(about.ud_payload_max < underlay);
    assert!(pkeys(&a).contains(&PKey::DEFAULT));
    let can = a.port.capabilities();
    assert_eq!((can.lanes, can.multicast), (a.workers.len(), true));
    assert!(can.groups_max > 0);
    assert_eq!(can.message_max > 0, a.workers[0].connections().is_some());
    assert!(a.port.take_workers().is_empty(), "they were taken");
    // Each train can be allocated.
    let most = a.payload_max();
    for payload in [1, 100, most] {
        let room = a.workers[0].train(payload).unwrap().room();
        assert!(room > 0, "{payload}");
    }
}

/// Counters have unique names, and packets sent count once.
#[test]
fn packets_are_counted() {
    let lab = Lab::new();
    let (mut a, mut b) = lab.pair();
    let (s, r) = (a.endpoint(), b.endpoint());
    let (tx, rx) = (a.counter("tx_packets"), b.counter("rx_packets"));
    let sent = payloads(6, 200, 100);
    let gid = b.gid();
    a.send(&s, gid, r.qpn, QKEY, &sent);
    a.send(&s, gid, r.qpn, QKEY, &sent);
    b.receive_from(&mut a, 14);
    a.receive_for_a_while();
    assert_eq!(a.counter("tx_packets") - tx, 14);
    assert_eq!(b.counter("rx_packets") - rx, 14);
    let mut names: Vec<_> = a.workers[0].counters().iter().map(|c| c.0).collect();
    let count = names.len();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), count, "{names:?}");
}
