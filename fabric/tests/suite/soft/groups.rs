//! The maximum number of groups, and siblings with copies to peers.

use fabric::soft::SoftConfig;
use fabric::{FabricError, Gid, Joined, Qpn, Sent};

use crate::lab::mgid;
use crate::net::Cable;
use crate::node::{Node, QKEY, payloads};

#[test]
fn left_groups_make_room_and_refusals_are_reported() {
    let cable = Cable::new(1500);
    let mut a = Node::open(&cable.a, SoftConfig::new("u0"));
    let to = a.endpoint();
    let most = a.port.capabilities().groups_max;
    let all: Vec<Gid> = (1..=most as u16).map(mgid).collect();
    let bad: Gid = "fe80::1".parse().unwrap();
    let answers = a.change_groups(&to, &all, &[]);
    let is_now = |answer: &Joined| matches!(answer, Joined::Now(_));
    assert!(answers.iter().all(is_now), "{answers:?}");
    let over = [mgid(0xfff0), bad, mgid(0xfff1)];
    let answers = a.change_groups(&to, &over, &[all[0], bad]);
    let full = format!("a port can join at most {most} multicast groups");
    let refused = [FabricError::BadGroup(bad), FabricError::Limit(full)];
    let refused = refused.map(|e| Joined::Refused(e.to_string()));
    assert!(is_now(&answers[0]), "{answers:?}");
    assert_eq!(answers[1..], refused);
    let has: Vec<Gid> = a.port.resources().groups.iter().map(|g| g.mgid).collect();
    assert_eq!(has.len(), most);
    assert!(has.contains(&mgid(0xfff0)) && !has.contains(&all[0]));
    a.port.destroy_ud(to.id).unwrap();
    assert!(a.port.resources().groups.is_empty());
    let gone = a.port.change_groups(to.id, &all, &[]);
    assert!(matches!(gone, Err(FabricError::NoSuchEndpoint(_))));
}

/// Conformance item 44: all attached queue pairs of the host except the sender receive a multicast.
#[test]
fn t44_siblings_receive_from_each_other() {
    for peers in [vec![], vec!["fe80::99".parse().unwrap()]] {
        let cable = Cable::new(1500);
        let config = SoftConfig {
            peers,
            ..SoftConfig::new("u0")
        };
        let mut a = Node::open(&cable.a, config);
        let (x, y) = (a.endpoint(), a.endpoint());
        a.attach(&x, mgid(1));
        a.attach(&y, mgid(1));
        a.receive_for_a_while();
        let two = payloads(1, 20, 20);
        assert_eq!(a.send(&x, mgid(1), Qpn::MULTICAST, QKEY, &two), Sent::Done);
        let got = a.receive_for_a_while();
        assert!(got.iter().all(|g| g.1.endpoint == y.id), "{got:?}");
        assert_eq!(got.len(), 2, "{:?}", a.workers[0].counters());
        // Unicast to a sibling, too.
        let own = a.gid();
        assert_eq!(a.send(&x, own, y.qpn, QKEY, &two), Sent::Done);
        assert_eq!(a.receive(2).len(), 2, "{:?}", a.workers[0].counters());
        a.port.destroy_ud(y.id).unwrap();
        let echoes = a.counter("rx_own_echo") + a.counter("rx_not_member");
        assert_eq!(a.send(&x, mgid(1), Qpn::MULTICAST, QKEY, &two), Sent::Done);
        assert!(a.receive_for_a_while().is_empty());
        assert_eq!(
            a.counter("rx_own_echo") + a.counter("rx_not_member"),
            echoes,
            "not looped"
        );
    }
}
