//! Replicas that ask each other for neighbours.

use super::*;

const IP_B: [u8; 4] = [10, 0, 0, 2];

fn b() -> HardwareAddress {
    address(0xb, 0x4b)
}

/// A frame to a MAC that no replica knows.
fn to(ip: [u8; 4]) -> Vec<u8> {
    let packet = ipv4([10, 0, 0, 1], ip, b"");
    frame([2, 9, 9, 9, 9, 9], MAC_A, 0x0800, &packet)
}

fn updates(c: &mut Ipoib) -> Vec<Update> {
    c.drain_updates().collect()
}

/// A replica that does not know `b`, and one that does; the update about `b` is lost.
fn without_and_with_b() -> (Ipoib, Ipoib) {
    let (one, mut two) = (a(), a());
    teach(&mut two, b(), IP_B);
    two.drain_updates().for_each(drop);
    (one, two)
}

/// The lost update was sent before the lane was added, or before a flush.
#[test]
fn a_replica_that_lacks_a_neighbour_learns_it_from_another() {
    let (mut one, mut two) = without_and_with_b();
    assert_eq!(send(&mut one, T0, &to(IP_B)), Sent::Held);
    assert_eq!(send(&mut one, T0, &to(IP_B)), Sent::Held);
    let question = updates(&mut one);
    assert_eq!(question.len(), 1, "one for each query: {question:?}");
    two.apply(T0, &question[0]);
    // The reply of the peer tells the other replica nothing new.
    teach(&mut two, b(), IP_B);
    let answer = updates(&mut two);
    assert_eq!(answer.len(), 1, "{answer:?}");
    one.apply(T0, &answer[0]);
    assert!(!one.has_updates());
    for _ in 0..2 {
        let held = one.pop_released().unwrap();
        let sent = send(&mut one, T0, &held.frame);
        assert!(matches!(sent, Sent::Forward(gid, ..) if gid == b().gid()));
    }
    assert_eq!(one.neighbours().next(), two.neighbours().next());
}

/// The peer restarted and has another queue pair.
#[test]
fn the_answer_names_the_present_queue_pair() {
    let (mut one, mut two) = without_and_with_b();
    let second = [10, 0, 0, 3];
    teach(&mut two, b(), second);
    let now = address(0xb, 0x99);
    teach(&mut two, now, IP_B);
    two.drain_updates().for_each(drop);
    send(&mut one, T0, &to(second));
    updates(&mut one).iter().for_each(|u| two.apply(T0, u));
    updates(&mut two).iter().for_each(|u| one.apply(T0, u));
    let sent = send(&mut one, T0, &to(second));
    assert!(matches!(sent, Sent::Forward(_, qpn, _) if qpn == now.qpn()));
}

/// Another replica may answer with a former owner.
#[test]
fn an_answer_takes_nothing_from_an_owner_that_a_replica_knows() {
    let (mut one, mut two) = without_and_with_b();
    let mut three = a();
    let now = address(0xc, 0x4c);
    teach(&mut three, now, IP_B);
    send(&mut one, T0, &to(IP_B));
    updates(&mut one).iter().for_each(|u| two.apply(T0, u));
    updates(&mut two).iter().for_each(|u| three.apply(T0, u));
    let sent = send(&mut three, T0, &to(IP_B));
    assert!(matches!(sent, Sent::Forward(gid, ..) if gid == now.gid()));
}

/// The MACs on the TAP of two peers.
fn macs(c: &Ipoib, peers: [HardwareAddress; 2]) -> [Mac; 2] {
    peers.map(|peer| c.mac_of(&peer))
}

/// An attacker has chosen its queue pair such that its MAC is that of a victim.
#[test]
fn c57_a_source_of_data_does_not_keep_the_mac_of_a_peer_that_another_replica_knows() {
    let (attacker, mut c) = (address(0xe, 0x4e), a());
    let stolen = peer_mac(&attacker);
    let m = meta(attacker, c.local().gid());
    let data = payload(0x0800, &ipv4([10, 0, 0, 9], [10, 0, 0, 1], b""));
    let shown = |c: &mut Ipoib| receive(c, &m, &data).unwrap()[6..12].to_vec();
    assert_eq!(shown(&mut c), stolen);
    let (address, mac, ip) = (b(), stolen, Some(IP_B.into()));
    c.apply(T0, &Update::Learned { address, mac, ip });
    let to_victim = frame(stolen, MAC_A, 0x0800, &ipv4([10, 0, 0, 1], IP_B, b""));
    let sent = send(&mut c, T0, &to_victim);
    assert!(matches!(sent, Sent::Forward(gid, ..) if gid == b().gid()));
    assert_ne!(shown(&mut c), stolen);
    assert!(!c.has_updates());
}

/// Two peers have the same hash, and two replicas learn one of them each.
#[test]
fn c57_replicas_agree_on_the_peer_that_keeps_a_mac() {
    let (one, other) = (address(0xc, 0x4c), address(0xe, 0x4e));
    for (first, second) in [(one, other), (other, one)] {
        let (mut c, mut sibling) = (a(), a());
        let (shared, second_ip) = (peer_mac(&first), [10, 0, 0, 3]);
        let learned = |address, ip: [u8; 4]| Update::Learned {
            address,
            mac: shared,
            ip: Some(ip.into()),
        };
        teach(&mut c, first, IP_B);
        sibling.apply(T0, &learned(second, second_ip));
        assert_eq!(c.drain_updates().count(), 1);
        let mut news = [vec![learned(second, second_ip)], vec![learned(first, IP_B)]];
        for _ in 0..3 {
            let [for_c, for_sibling] = news;
            for_c.iter().for_each(|u| c.apply(T0, u));
            for_sibling.iter().for_each(|u| sibling.apply(T0, u));
            news = [updates(&mut sibling), updates(&mut c)];
        }
        assert!(news.iter().all(Vec::is_empty), "{news:?}");
        let agreed = macs(&c, [one, other]);
        assert_eq!(macs(&sibling, [one, other]), agreed);
        assert_eq!(agreed[0], shared);
        assert_ne!(agreed[1], shared);
        // The host knows it.
        let ip = if other == first { IP_B } else { second_ip };
        let request = arp(1, &agreed[1], ip, &[0; 6], ip);
        let announced = frame(MAC_BROADCAST, agreed[1], 0x0806, &request);
        assert_eq!(c.poll_tap(T0), Some(&announced[..]));
        assert_eq!(sibling.poll_tap(T0), Some(&announced[..]));
    }
}

/// A weak claim, from the source address of data, is no answer.
#[test]
fn what_no_replica_knows_is_asked_once_for_each_query() {
    let (mut one, mut two) = (a(), a());
    let to_two = meta(b(), two.local().gid());
    let packet = payload(0x0800, &ipv4(IP_B, [10, 0, 0, 1], b""));
    receive(&mut two, &to_two, &packet).unwrap();
    let mut questions = 0;
    for now in (0..12_000).step_by(100) {
        let now = Time(now);
        one.handle_timeout(now);
        while one.poll_transmit(now).is_some() {}
        send(&mut one, now, &to(IP_B));
        for update in updates(&mut one) {
            questions += 1;
            two.apply(now, &update);
        }
        assert!(!two.has_updates());
    }
    // A query lasts for 3 s, and its failure is remembered for 1 s.
    assert_eq!(questions, 3);
}
