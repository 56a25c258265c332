//! Multicast groups: many of them, and siblings in one.

use fabric::{FabricError, Gid, GroupParameters, Joined, PortEvent, Qpn, Sent};

use crate::exchange::of;
use crate::lab::{End, Family, Lab, mgid};
use crate::node::{QKEY, payloads};

fn is_now(answer: &Joined) -> bool {
    matches!(answer, Joined::Now(_))
}

#[test]
fn thousands_of_groups() {
    let lab = Lab::new();
    let (mut a, mut b) = lab.pair();
    let count = a.port.capabilities().groups_max.min(2500) as u16;
    let (s, r) = (a.endpoint(), b.endpoint());
    let all: Vec<Gid> = (1..=count).map(mgid).collect();
    let answers = b.change_groups(&r, &all, &[]);
    assert_eq!(answers.len(), all.len());
    assert!(answers.iter().all(is_now), "{answers:?}");
    assert_eq!(b.port.resources().groups.len(), count.into());
    let one = payloads(0, 20, 20);
    let middle = count / 2;
    for n in [1, middle, middle + 1, count, count + 1] {
        assert_eq!(a.send(&s, mgid(n), Qpn::MULTICAST, QKEY, &one), Sent::Done);
    }
    let mut got = b.receive_from(&mut a, 4);
    got.extend(b.receive_for_a_while_from(&mut a));
    // Packets of one group arrive in order; those of different groups need not.
    let mut to: Vec<Gid> = got.iter().map(|g| g.1.dst_gid).collect();
    to.sort();
    assert_eq!(to, [1, middle, middle + 1, count].map(mgid));
    assert_eq!(b.change_groups(&r, &[], &[mgid(middle)]), []);
    let sent = a.send(&s, mgid(middle), Qpn::MULTICAST, QKEY, &one);
    assert_eq!(sent, Sent::Done);
    assert!(b.receive_for_a_while_from(&mut a).is_empty());
}

#[test]
fn bad_groups_are_refused_and_the_others_are_joined() {
    let lab = Lab::new();
    let mut a = lab.node(End::A, Family::V6);
    let to = a.endpoint();
    let bad: Gid = "fe80::1".parse().unwrap();
    let join = [mgid(1), bad, mgid(2)];
    // Each join has its answer, in the order of the joins.
    let answers = a.change_groups(&to, &join, &[mgid(9)]);
    let refused = Joined::Refused(FabricError::BadGroup(bad).to_string());
    assert!(is_now(&answers[0]) && is_now(&answers[2]), "{answers:?}");
    assert_eq!((answers.len(), &answers[1]), (3, &refused));
    // Once more, and one of them less.
    let answers = a.change_groups(&to, &[mgid(2)], &[mgid(1), bad]);
    assert!(matches!(answers[..], [Joined::Now(_)]), "{answers:?}");
    let has: Vec<Gid> = a.port.resources().groups.iter().map(|g| g.mgid).collect();
    assert_eq!(has, [mgid(2)]);
    a.port.destroy_ud(to.id).unwrap();
    assert!(a.port.resources().groups.is_empty());
    let gone = a.port.change_groups(to.id, &join, &[]);
    assert!(matches!(gone, Err(FabricError::NoSuchEndpoint(id)) if id == to.id));
}

/// The parameters of groups; a group left by one endpoint keeps its other members.
#[test]
fn answers_come_at_once_and_members_are_counted_below() {
    let lab = Lab::new();
    let mut a = lab.node(End::A, Family::V6);
    let (x, y) = (a.endpoint(), a.endpoint());
    let now = Joined::Now(GroupParameters::unadministered(QKEY));
    for endpoint in [&x, &y, &x] {
        let mut answers = a.change_groups(endpoint, &[mgid(1)], &[]);
        // Groups on InfiniBand have LIDs.
        if let Some(Joined::Now(parameters)) = answers.first_mut() {
            assert_eq!(
                parameters.mlid.take().is_some(),
                a.port.attributes().lid.is_some()
            );
        }
        assert_eq!(answers, std::slice::from_ref(&now));
    }
    // All answers were immediate, so no event follows.
    let events = a.process();
    let late = |event: &PortEvent| matches!(event, PortEvent::Group { .. });
    assert!(!events.iter().any(late), "{events:?}");
    let members = |a: &crate::node::Node| -> Vec<Qpn> {
        let groups = a.port.resources().groups;
        groups.iter().map(|g| g.qpn).collect()
    };
    assert_eq!(members(&a).len(), 2);
    // Leaves twice, and leaves and joins in one change.
    a.change_groups(&x, &[], &[mgid(1)]);
    a.change_groups(&x, &[], &[mgid(1)]);
    assert_eq!(members(&a), [y.qpn]);
    assert_eq!(a.change_groups(&y, &[mgid(1)], &[mgid(1)]).len(), 1);
    assert_eq!(members(&a), [y.qpn]);
    let can = a.port.capabilities();
    assert!((1..=can.groups_max).contains(&can.group_requests));
}

/// Conformance item 44: all attached queue pairs of the host except the sender receive a multicast.
#[test]
fn t44_all_of_a_host_but_the_sender_get_a_multicast() {
    let lab = Lab::new();
    let mut a = lab.node(End::A, Family::V6);
    let (x, y, z) = (a.endpoint(), a.endpoint(), a.endpoint());
    for endpoint in [&x, &y] {
        a.attach(endpoint, mgid(1));
        a.attach(endpoint, mgid(1));
    }
    a.attach(&z, mgid(2));
    a.receive_for_a_while();
    let two = payloads(1, 20, 20);
    assert_eq!(a.send(&x, mgid(1), Qpn::MULTICAST, QKEY, &two), Sent::Done);
    let mut got = a.receive(2);
    got.extend(a.receive_for_a_while());
    assert_eq!(of(&got, &y), two.iter().collect::<Vec<_>>());
    assert_eq!(got.len(), 2, "{got:?} {:?}", a.workers[0].counters());
    // Unicast to a sibling, too.
    let own = a.gid();
    assert_eq!(a.send(&x, own, y.qpn, QKEY, &two), Sent::Done);
    assert_eq!(of(&a.receive(2), &y).len(), 2);
    // The sender need not be a member.
    assert_eq!(a.send(&z, mgid(1), Qpn::MULTICAST, QKEY, &two), Sent::Done);
    let got = a.receive(4);
    assert_eq!((of(&got, &x).len(), of(&got, &y).len()), (2, 2), "{got:?}");
    // A member that leaves takes no other along.
    a.attach(&z, mgid(1));
    a.change_groups(&x, &[], &[mgid(1)]);
    assert_eq!(a.send(&z, mgid(1), Qpn::MULTICAST, QKEY, &two), Sent::Done);
    let mut got = a.receive(2);
    got.extend(a.receive_for_a_while());
    assert_eq!((of(&got, &x).len(), of(&got, &y).len()), (0, 2), "{got:?}");
    a.port.destroy_ud(y.id).unwrap();
    assert_eq!(a.send(&z, mgid(1), Qpn::MULTICAST, QKEY, &two), Sent::Done);
    assert!(a.receive_for_a_while().is_empty());
}
