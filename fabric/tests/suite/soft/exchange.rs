//! Trains arrive in one run, and multicast reaches all peers of the list.

use std::net::IpAddr;

use fabric::GidChoice;
use fabric::soft::SoftConfig;
use fabric::{Gid, Qpn, Sent};

use crate::exchange::train_arrives;
use crate::net::Cable;
use crate::node::{Node, QKEY, payloads};

const BROADCAST: &str = "ff12:401b:ffff::ffff:ffff";

pub fn config() -> SoftConfig {
    SoftConfig::new("u0")
}

pub fn ipv4(peer: &str) -> SoftConfig {
    SoftConfig {
        gid: GidChoice::Ipv4,
        peers: vec![peer.parse::<IpAddr>().unwrap()],
        ..config()
    }
}

/// Sends a train; it arrives in one run.
fn unicast(from: &mut Node<'_>, to: &mut Node<'_>, count: usize, len: usize, last: usize) {
    let runs = to.counter("rx_trains");
    train_arrives(from, to, &payloads(count, len, last));
    assert_eq!(
        to.counter("rx_trains") - runs,
        1,
        "a train arrives as one run"
    );
}

fn both_ways(a: &mut Node<'_>, b: &mut Node<'_>) {
    unicast(a, b, 14, 4096, 1001);
    unicast(b, a, 14, 4096, 4096);
    unicast(b, a, 0, 4096, 5);
    unicast(a, b, 62, 64, 63);
}

#[test]
fn trains_arrive_in_one_run_over_ipv6() {
    let cable = Cable::new(9000);
    let mut a = Node::open(&cable.a, config());
    let mut b = Node::open(&cable.b, config());
    assert_eq!(a.port.attributes().ud_payload_max, 4096);
    both_ways(&mut a, &mut b);
}

#[test]
fn trains_arrive_in_one_run_over_ipv4() {
    let cable = Cable::new(9000);
    let mut a = Node::open(&cable.a, ipv4("192.0.2.2"));
    let mut b = Node::open(&cable.b, ipv4("192.0.2.1"));
    assert_eq!(a.gid(), "192.0.2.1".parse::<Gid>().unwrap());
    both_ways(&mut a, &mut b);
}

fn multicast(a: &mut Node<'_>, b: &mut Node<'_>, dst_gid: Gid) {
    let mgid: Gid = BROADCAST.parse().unwrap();
    let (s, r, other) = (a.endpoint(), b.endpoint(), b.endpoint());
    a.attach(&s, mgid);
    b.attach(&r, mgid);
    let sent = payloads(5, 2000, 100);
    assert_eq!(a.send(&s, mgid, Qpn::MULTICAST, QKEY, &sent), Sent::Done);
    let got = b.receive_for_a_while();
    let mine: Vec<_> = got.iter().filter(|g| g.1.endpoint == r.id).collect();
    assert!(
        mine.iter().map(|g| &g.2).eq(&sent),
        "one copy of each: {:?}",
        b.workers[0].counters()
    );
    for (_, d, _) in &got {
        assert_eq!((d.dst_gid, d.multicast, d.src_qpn), (dst_gid, true, s.qpn));
    }
    let theirs = got.iter().filter(|g| g.1.endpoint == other.id).count();
    // A copy does not name its group, so all endpoints with its keys receive it.
    assert_eq!(theirs, if dst_gid == mgid { 0 } else { sent.len() });
    assert!(a.receive_for_a_while().is_empty(), "no echo");
}

#[test]
fn multicast_over_ipv6_reaches_a_group_once_however_many_workers() {
    let cable = Cable::new(9000);
    let two = || SoftConfig {
        workers: 2,
        ..config()
    };
    let mut a = Node::open(&cable.a, two());
    let mut b = Node::open(&cable.b, two());
    multicast(&mut a, &mut b, BROADCAST.parse().unwrap());
}

#[test]
fn multicast_over_ipv4_goes_to_the_peers() {
    let cable = Cable::new(9000);
    let mut a = Node::open(&cable.a, ipv4("192.0.2.2"));
    let mut b = Node::open(&cable.b, ipv4("192.0.2.1"));
    let own = b.gid();
    multicast(&mut a, &mut b, own);
}

#[test]
fn the_list_of_peers_changes_while_the_port_is_open() {
    let mgid: Gid = BROADCAST.parse().unwrap();
    let cable = Cable::new(9000);
    let mut a = Node::open(&cable.a, ipv4("192.0.2.9"));
    let mut b = Node::open(&cable.b, ipv4("192.0.2.1"));
    let (s, r) = (a.endpoint(), b.endpoint());
    a.attach(&s, mgid);
    b.attach(&r, mgid);
    let sent = payloads(3, 500, 100);
    let sends_to_all = |a: &mut Node<'_>| a.send(&s, mgid, Qpn::MULTICAST, QKEY, &sent);
    assert_eq!(sends_to_all(&mut a), Sent::Done);
    assert!(b.receive_for_a_while().is_empty(), "not on the list");
    let list = |text: &[&str]| text.iter().map(|t| t.parse().unwrap()).collect();
    a.port.set_peers(list(&["192.0.2.9", "192.0.2.2"])).unwrap();
    assert_eq!(sends_to_all(&mut a), Sent::Done);
    assert_eq!(b.receive(sent.len()).len(), sent.len());
    // A refused list changes nothing.
    for wrong in [&[][..], &["fe80::2"], &["192.0.2.9", "fe80::2"]] {
        a.port.set_peers(list(wrong)).unwrap_err();
    }
    assert_eq!(sends_to_all(&mut a), Sent::Done);
    assert_eq!(b.receive(sent.len()).len(), sent.len());
    a.port.set_peers(list(&["192.0.2.9"])).unwrap();
    assert_eq!(sends_to_all(&mut a), Sent::Done);
    assert!(b.receive_for_a_while().is_empty(), "removed from the list");
}

#[test]
fn a_port_without_a_list_of_peers_gets_none_later() {
    let cable = Cable::new(9000);
    let mut a = Node::open(&cable.a, config());
    let error = a.port.set_peers(vec!["fe80::2".parse().unwrap()]);
    let error = error.unwrap_err().to_string();
    assert!(error.contains("restart ibtapd"), "{error}");
    a.port.set_peers(Vec::new()).unwrap();
}
