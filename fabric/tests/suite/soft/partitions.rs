//! Partitions: the P_Key table changes under endpoints, and nothing crosses between partitions.

use std::collections::BTreeSet;

use fabric::GidChoice;
use fabric::port::UdEndpoint;
use fabric::soft::SoftConfig;
use fabric::{Gid, PKey, PortState, QKey, Qpn, Sent};

use crate::net::Cable;
use crate::node::{Got, Node, QKEY, payloads};

fn config(table: &[u16]) -> SoftConfig {
    SoftConfig {
        pkeys: table.iter().copied().map(PKey::new).collect(),
        ..SoftConfig::new("u0")
    }
}

/// The broadcast group of a partition.
fn broadcast(pkey: u16) -> Gid {
    let full = pkey | 0x8000;
    format!("ff12:401b:{full:x}::ffff:ffff").parse().unwrap()
}

/// An endpoint in a partition, attached to the partition's broadcast group.
fn member(node: &mut Node<'_>, pkey: u16) -> UdEndpoint {
    let endpoint = node.endpoint_in(pkey);
    node.attach(&endpoint, broadcast(pkey));
    endpoint
}

/// The indices of the endpoints that received something.
fn receivers(got: &[Got], all: &[&UdEndpoint]) -> BTreeSet<usize> {
    let place = |g: &Got| all.iter().position(|e| e.id == g.1.endpoint).unwrap();
    got.iter().map(place).collect()
}

/// Sends a datagram to a queue pair and one to the partition's group; returns how many arrive.
fn arrive(a: &mut Node<'_>, s: &UdEndpoint, b: &mut Node<'_>, r: &UdEndpoint, pkey: u16) -> usize {
    let one = payloads(0, 30, 30);
    let gid = b.gid();
    a.send(s, gid, r.qpn, QKEY, &one);
    a.send(s, broadcast(pkey), Qpn::MULTICAST, QKEY, &one);
    b.receive_for_a_while().len()
}

#[test]
fn c86_an_endpoint_waits_for_its_key_and_comes_up_with_it() {
    let cable = Cable::new(1500);
    let mut a = Node::open(&cable.a, config(&[0xffff, 0x8001]));
    let mut b = Node::open(&cable.b, config(&[0xffff]));
    let s = member(&mut a, 0x8001);
    let r = member(&mut b, 0x0001);
    assert_eq!((r.pkey, b.port.endpoint_pkey(r.id)), (None, None));
    assert_eq!(b.queue_pair(&r), ("RESET", 0x0001));
    assert_eq!(b.port.attributes().state, PortState::Active);
    // The number is reserved already.
    assert_ne!(b.endpoint_wishing(Some(r.qpn)).qpn, r.qpn);
    assert_eq!(arrive(&mut a, &s, &mut b, &r, 1), 0);
    let own = a.gid();
    let sent = b.send(&r, own, s.qpn, QKEY, &payloads(0, 30, 30));
    assert_eq!(sent, Sent::Failed, "it sends nothing");
    assert_eq!(b.set_pkeys(&[0xffff, 0x8002]), [], "another partition");
    assert_eq!(b.set_pkeys(&[0xffff, 0x8002, 0x8001]), [r.id]);
    assert_eq!(b.port.endpoint_pkey(r.id), Some(PKey::new(0x8001)));
    assert_eq!(b.queue_pair(&r), ("RTS", 0x8001));
    assert_eq!(arrive(&mut a, &s, &mut b, &r, 1), 2, "its group, too");
    assert_eq!(
        b.send(&r, own, s.qpn, QKEY, &payloads(0, 30, 30)),
        Sent::Done
    );
    assert_eq!(a.receive(1).len(), 1);
    b.port.destroy_ud(r.id).unwrap();
    assert_eq!(b.port.endpoint_pkey(r.id), None);
    assert_eq!(b.endpoint_wishing(Some(r.qpn)).qpn, r.qpn, "free again");
}

#[test]
fn c87_a_removed_key_stops_traffic_and_its_return_restores_it() {
    let cable = Cable::new(1500);
    let table = [0xffff, 0x8001];
    let mut a = Node::open(&cable.a, config(&table));
    let mut b = Node::open(&cable.b, config(&table));
    let (s, r) = (member(&mut a, 0x8001), member(&mut b, 0x8001));
    for _ in 0..3 {
        assert_eq!(arrive(&mut a, &s, &mut b, &r, 1), 2);
        let refused = b.counter("rx_unknown_qpn") + b.counter("rx_not_member");
        assert_eq!(b.set_pkeys(&[0xffff]), [r.id]);
        assert_eq!(b.port.endpoint_pkey(r.id), None);
        assert_eq!(b.queue_pair(&r), ("RESET", 0x8001));
        assert_eq!(arrive(&mut a, &s, &mut b, &r, 1), 0);
        let now = b.counter("rx_unknown_qpn") + b.counter("rx_not_member");
        assert_eq!(now - refused, 2, "both arrived and were refused");
        assert_eq!(b.set_pkeys(&table), [r.id]);
        assert_eq!(b.queue_pair(&r), ("RTS", 0x8001));
    }
    assert_eq!(arrive(&mut a, &s, &mut b, &r, 1), 2);
}

#[test]
fn c88_a_key_that_moves_restarts_its_queue_pair_alone() {
    let cable = Cable::new(1500);
    let mut a = Node::open(&cable.a, config(&[0xffff, 0x8001]));
    let mut b = Node::open(&cable.b, config(&[0xffff, 0x8001]));
    let (s, r) = (member(&mut a, 0x8001), member(&mut b, 0x8001));
    let default = b.endpoint();
    assert_eq!(b.set_pkeys(&[0xffff, 0x8001]), [], "the same table");
    assert_eq!(b.set_pkeys(&[0xffff, 0x8009, 0x8001]), [r.id]);
    assert_eq!(b.queue_pair(&r), ("RTS", 0x8001));
    assert_eq!(arrive(&mut a, &s, &mut b, &r, 1), 2);
    // A full entry is preferred, so this change affects the endpoint.
    assert_eq!(b.set_pkeys(&[0xffff, 0x8009, 0x0001]), [r.id]);
    assert_eq!(b.set_pkeys(&[0xffff, 0x8001, 0x0001]), [r.id]);
    assert_eq!(b.set_pkeys(&[0x8001, 0xffff, 0x0001]), [r.id, default.id]);
    assert_eq!(b.set_pkeys(&[0x8001, 0xffff]), []);
    assert_eq!(arrive(&mut a, &s, &mut b, &r, 1), 2);
}

/// Packets are in the socket buffer whenever the table changes, and none of them is lost.
#[test]
fn c89_no_packet_is_lost_while_another_key_comes_and_goes() {
    const ROUNDS: usize = 300;
    let cable = Cable::new(1500);
    let tables = [
        &[0xffff, 0x8001, 0x8002][..],
        &[0xffff, 0x8001],
        &[0, 0x8001, 0x8002],
    ];
    let mut a = Node::open(&cable.a, config(tables[0]));
    let mut b = Node::open(&cable.b, config(tables[0]));
    let (s, r) = (member(&mut a, 0x8001), member(&mut b, 0x8001));
    let others = [member(&mut a, 0x8002), member(&mut b, 0x8002)];
    let sent = payloads(9, 500, 100);
    let (gid, mgid) = (b.gid(), broadcast(1));
    for round in 0..ROUNDS {
        for node in [&mut a, &mut b] {
            let changed = node.set_pkeys(tables[round % 3]);
            assert!(changed.iter().all(|id| others.iter().any(|o| o.id == *id)));
        }
        assert_eq!(a.send(&s, gid, r.qpn, QKEY, &sent), Sent::Done);
        b.set_pkeys(tables[(round + 1) % 3]);
        assert_eq!(a.send(&s, mgid, Qpn::MULTICAST, QKEY, &sent), Sent::Done);
        a.set_pkeys(tables[(round + 2) % 3]);
        let got = b.receive(2 * sent.len());
        let in_order = got.iter().map(|g| &g.2).eq(sent.iter().chain(&sent));
        assert!(in_order, "round {round}: {:?}", b.workers[0].counters());
    }
    assert_eq!(b.counter("rx_packets"), (2 * ROUNDS * sent.len()) as u64);
}

#[test]
fn c90_limited_members_hear_full_ones_and_not_each_other() {
    for (of_a, of_b, passes) in [
        (0x0001, 0x0001, 0),
        (0x0001, 0x8001, 2),
        (0x8001, 0x0001, 2),
        (0x8001, 0x8001, 2),
    ] {
        let cable = Cable::new(1500);
        let mut a = Node::open(&cable.a, config(&[0xffff, of_a]));
        let mut b = Node::open(&cable.b, config(&[0xffff, of_b]));
        // Endpoints request the full P_Key and get the table's entry.
        let (s, r) = (member(&mut a, 0x8001), member(&mut b, 0x8001));
        assert_eq!(s.pkey, Some(PKey::new(of_a)));
        let arrived = arrive(&mut a, &s, &mut b, &r, 1);
        assert_eq!(arrived, passes, "{of_a:#06x} to {of_b:#06x}");
        assert_eq!(b.counter("rx_pkey_violations"), 2 - passes as u64);
    }
}

/// The partitions of the endpoints of [`nothing_crosses`], on both ports.
const MEMBERS: [u16; 4] = [0xffff, 0x8001, 0x8002, 0x8001];

/// All endpoints send to all others and to all groups, between two ports and within one.
fn nothing_crosses(copies: bool) {
    let cable = Cable::new(1500);
    let mut nodes = [(&cable.a, 1, 2), (&cable.b, 2, 1)].map(|(ns, own, other)| {
        let address = |n: u8| format!("fe80::{n}");
        ns.ip(&["address", "add", &(address(own) + "/64"), "dev", "u0"]);
        let config = SoftConfig {
            gid: GidChoice::Address(address(own).parse().unwrap()),
            peers: copies
                .then(|| address(other).parse().unwrap())
                .into_iter()
                .collect(),
            workers: own.into(),
            ..config(&[0xffff, 0x8001, 0x8002])
        };
        Node::open(ns, config)
    });
    let members = nodes
        .each_mut()
        .map(|node| MEMBERS.map(|pkey| member(node, pkey)));
    // A listener of another partition at a group's address: the MGID does not protect it.
    for (node, all) in nodes.iter_mut().zip(&members) {
        node.attach(&all[2], broadcast(1));
        node.receive_for_a_while();
    }
    for from in 0..2 {
        for (sender, &partition) in MEMBERS.iter().enumerate() {
            send_everywhere(&mut nodes, &members, from, sender);
            for to in 0..2 {
                let got = nodes[to].receive_for_a_while();
                for (i, r) in members[to].iter().enumerate() {
                    let hears = MEMBERS[i] == partition && (to, i) != (from, sender);
                    let mine = || got.iter().filter(|g| g.1.endpoint == r.id);
                    assert!(mine().all(|g| g.1.pkey.get() == partition));
                    let multicasts = mine().filter(|g| g.1.multicast).count();
                    let unicasts = mine().count() - multicasts;
                    // A copy does not name its group: copies to all three groups reach the members with
                    // the P_Key.
                    let groups = if copies { 3 } else { groups_of(i) };
                    let expected = if hears { (1, groups) } else { (0, 0) };
                    let how = format!("{from}.{sender} to {to}.{i}");
                    assert_eq!((unicasts, multicasts), expected, "{how}");
                }
            }
        }
    }
    assert!(nodes.iter().all(|n| n.counter("rx_pkey_violations") > 0));
}

/// Number of groups of a member.
fn groups_of(member: usize) -> usize {
    if member == 2 { 2 } else { 1 }
}

/// Sends a datagram to each queue pair of both ports, and to each group.
fn send_everywhere(
    nodes: &mut [Node<'_>; 2],
    members: &[[UdEndpoint; 4]; 2],
    from: usize,
    sender: usize,
) {
    let one = payloads(0, 40, 40);
    let s = &members[from][sender];
    for pkey in [0xffff, 0x8001, 0x8002] {
        let sent = nodes[from].send(s, broadcast(pkey), Qpn::MULTICAST, QKEY, &one);
        assert_eq!(sent, Sent::Done);
    }
    for to in 0..2 {
        let gid = nodes[to].gid();
        for r in &members[to] {
            assert_eq!(nodes[from].send(s, gid, r.qpn, QKEY, &one), Sent::Done);
        }
    }
}

#[test]
fn nothing_crosses_partitions_on_one_port_or_between_two() {
    nothing_crosses(false);
}

#[test]
fn nothing_crosses_partitions_with_copies_to_peers() {
    nothing_crosses(true);
}

/// Several endpoints of one partition on one port, as in a daemon with several namespaces.
#[test]
fn endpoints_of_one_partition_on_one_port_reach_each_other() {
    let cable = Cable::new(1500);
    let two = SoftConfig {
        workers: 2,
        ..config(&[0xffff, 0x8001])
    };
    let mut a = Node::open(&cable.a, two);
    let x = member(&mut a, 0x8001);
    let mgid = broadcast(1);
    let own = a.gid();
    let sent = payloads(4, 300, 70);
    assert_eq!(a.send(&x, mgid, Qpn::MULTICAST, QKEY, &sent), Sent::Done);
    assert_eq!(a.send(&x, own, x.qpn, QKEY, &sent), Sent::Done);
    assert!(a.receive_for_a_while().is_empty(), "nothing to its sender");
    let (y, z) = (member(&mut a, 0x8001), member(&mut a, 0x8001));
    let qpns: BTreeSet<u32> = [&x, &y, &z].map(|e| e.qpn.get()).into();
    assert_eq!(qpns.len(), 3);
    a.receive_for_a_while();
    assert_eq!(a.send(&x, mgid, Qpn::MULTICAST, QKEY, &sent), Sent::Done);
    for to in [&y, &z] {
        assert_eq!(a.send(&x, own, to.qpn, QKEY, &sent), Sent::Done);
    }
    let got = a.receive_for_a_while();
    for to in [&x, &y, &z] {
        for multicast in [true, false] {
            let those = got
                .iter()
                .filter(|g| g.1.endpoint == to.id && g.1.multicast == multicast);
            let expected = if to.id == x.id { &[][..] } else { &sent[..] };
            assert!(those.map(|g| &g.2).eq(expected), "multicast: {multicast}");
        }
    }
    // If one of them is destroyed or out of service, the others continue.
    a.port.destroy_ud(z.id).unwrap();
    assert_eq!(a.send(&y, mgid, Qpn::MULTICAST, QKEY, &sent), Sent::Done);
    let got = a.receive_for_a_while();
    assert_eq!(receivers(&got, &[&x, &y]), [0].into());
    assert_eq!(a.set_pkeys(&[0xffff]), [x.id, y.id]);
    assert_eq!(a.send(&y, mgid, Qpn::MULTICAST, QKEY, &sent), Sent::Failed);
    assert!(a.receive_for_a_while().is_empty());
}

#[test]
fn tables_have_empty_places_and_always_an_entry() {
    let cable = Cable::new(1500);
    let mut a = Node::open(&cable.a, config(&[]));
    let places = |node: &Node<'_>| -> Vec<u16> {
        let table = node.port.attributes().pkeys;
        table.iter().map(|k| k.get()).collect()
    };
    assert_eq!(places(&a), [0xffff]);
    let x = a.endpoint();
    assert_eq!(a.set_pkeys(&[0x8003, 0x8000, 0x8003, 0x8001, 0]), [x.id]);
    assert_eq!(places(&a), [0x8003, 0, 0, 0x8001]);
    // QP1 has an existing entry.
    let gsi = a.port.resources().queue_pairs.remove(0);
    assert_eq!(
        (gsi.kind, gsi.state, gsi.pkey.get()),
        ("GSI", "RTS", 0x8003)
    );
    assert_eq!(gsi.qkey, QKey::GSI);
    assert_eq!(a.set_pkeys(&[]), [x.id], "the default partition alone");
    assert_eq!(places(&a), [0xffff]);
    let invalid = a.endpoint_in(0x8000);
    assert_eq!(invalid.pkey, None);
    assert_eq!(a.set_pkeys(&[0, 0x8000, 0xffff]), [x.id], "it is not found");
}

#[test]
fn all_partitions_there_are_fit_a_table() {
    let cable = Cable::new(1500);
    let mut a = Node::open(&cable.a, SoftConfig::new("u0"));
    let all: Vec<u16> = (0x8001..=0xffff).chain(0x0001..=0x7fff).collect();
    a.set_pkeys(&all);
    assert_eq!(a.port.attributes().pkeys.len(), 65534);
    let last = a.endpoint_in(0x7fff);
    assert_eq!(last.pkey, Some(PKey::DEFAULT));
}
