//! Learning, resolution, announcements and replicas.

use super::*;

#[test]
fn c55_restarted_peer_heals_at_once_and_its_old_address_goes_on_working() {
    let mut c = a();
    let ip = [10, 0, 0, 2];
    let old = teach(&mut c, address(0xb, 0x4b), ip);
    let new = teach(&mut c, address(0xb, 0x99), ip);
    assert_ne!(old, new);
    let to = |c: &mut Ipoib, mac| {
        let f = frame(mac, MAC_A, 0x0800, &ipv4([10, 0, 0, 1], ip, b""));
        match send(c, T0, &f) {
            Sent::Forward(_, qpn, _) => qpn.get(),
            other => panic!("{other:?}"),
        }
    };
    assert_eq!((to(&mut c, old), to(&mut c, new)), (0x99, 0x99));
    // The address moves to another port, so to another host; frames for the old MAC stay with the old host.
    let elsewhere = teach(&mut c, address(0xc, 0x11), ip);
    assert_eq!((to(&mut c, new), to(&mut c, elsewhere)), (0x99, 0x11));
    // The old queue pair sends packets again: it had not restarted.
    teach(&mut c, address(0xb, 0x4b), [10, 0, 0, 7]);
    assert_eq!((to(&mut c, old), to(&mut c, new)), (0x4b, 0x99));
    assert_eq!(c.counters().neighbours_superseded, 1);
}

/// After a restart of the daemon, the host knows the MAC of a router, and the core does not know the router. Frames for
/// hosts behind the router leave when the router is found.
#[test]
fn frames_for_hosts_behind_a_router_wait_for_the_router() {
    let mut c = a();
    let router = address(0xb, 0x4b);
    let behind = |n, to| frame(to, MAC_A, 0x0800, &ipv4([10, 0, 0, 1], [192, 0, 2, n], b""));
    let other = peer_mac(&address(0xc, 0x11));
    for (n, to) in [(1, peer_mac(&router)), (2, peer_mac(&router)), (1, other)] {
        assert_eq!(send(&mut c, T0, &behind(n, to)), Sent::Held);
    }
    while c.poll_transmit(T0).is_some() {}
    teach(&mut c, router, [10, 0, 0, 2]);
    let released: Vec<_> = std::iter::from_fn(|| c.pop_released()).collect();
    assert_eq!(released.len(), 2);
    for held in released {
        let way = c.from_released(T0, &held.prefix, &held.frame);
        assert!(
            matches!(
                way,
                Outgoing::Forward {
                    to: Target::Neighbour(_),
                    ..
                }
            ),
            "{way:?}"
        );
    }
    // The query for the second host is over, and that for the first one goes on for the other frame.
    let queried = |c: &mut Ipoib| {
        c.handle_timeout(Time(1000));
        std::iter::from_fn(|| c.poll_transmit(Time(1000)).map(drop)).count()
    };
    assert_eq!(queried(&mut c), 1);
}

/// Two containers with one port: an address moves from the first to the second, which has just started.
#[test]
fn a_queue_pair_that_sends_data_has_no_successor() {
    let (first, second) = (address(0xb, 0x4b), address(0xb, 0x99));
    let (own, moved) = ([10, 0, 0, 2], [10, 0, 0, 9]);
    let (mut c, mut sibling) = (a(), a());
    let arrive = |c: &mut Ipoib, now, from, packet: &[u8]| {
        let m = meta(from, c.local().gid());
        let got = c.from_fabric(Time(now), &m, packet);
        assert!(!matches!(got, Incoming::Dropped(_)), "{got:?}");
    };
    let claims = |c: &mut Ipoib, now, from: HardwareAddress, ip| {
        let request = arp(1, &from.0, ip, &[0; 20], [10, 0, 0, 1]);
        arrive(c, now, from, &payload(0x0806, &request));
    };
    let speaks = |c: &mut Ipoib, now| {
        let data = payload(0x0800, &ipv4(own, [10, 0, 0, 1], b""));
        arrive(c, now, first, &data);
    };
    let goes_to = |c: &mut Ipoib, now, mac, ip| {
        let data = frame(mac, MAC_A, 0x0800, &ipv4([10, 0, 0, 1], ip, b""));
        match send(c, Time(now), &data) {
            Sent::Forward(_, qpn, _) => qpn,
            other => panic!("{other:?}"),
        }
    };
    let update = |now, from: &mut Ipoib, to: &mut Ipoib| {
        from.drain_updates().for_each(|u| to.apply(Time(now), &u));
    };
    let mac = peer_mac(&first);
    claims(&mut c, 0, first, own);
    claims(&mut c, 0, first, moved);
    claims(&mut c, 20_000, second, [10, 0, 0, 3]);
    claims(&mut c, 20_900, second, moved);
    update(20_900, &mut c, &mut sibling);
    // The last packets before a restart.
    for now in [20_900, 21_899] {
        speaks(&mut c, now);
        speaks(&mut sibling, now);
        for replica in [&mut c, &mut sibling] {
            assert_eq!(goes_to(replica, now, mac, own), second.qpn());
            assert!(!replica.has_updates());
        }
    }
    speaks(&mut sibling, 21_900);
    update(21_900, &mut sibling, &mut c);
    for replica in [&mut c, &mut sibling] {
        assert_eq!(goes_to(replica, 21_900, mac, own), first.qpn());
        let unknown = [2, 9, 9, 9, 9, 9];
        assert_eq!(goes_to(replica, 21_900, unknown, moved), second.qpn());
        assert!(!replica.has_updates());
    }
}

#[test]
fn unknown_destination_is_asked_for_and_frames_wait() {
    let mut c = a();
    host_uses(&mut c, Ipv4Addr::new(10, 0, 0, 1).into());
    let b = address(0xb, 0x4b);
    let stale = [2, 9, 9, 9, 9, 9];
    let f = frame(
        stale,
        MAC_A,
        0x0800,
        &ipv4([10, 0, 0, 1], [10, 0, 0, 2], b"hello"),
    );
    assert_eq!(send(&mut c, T0, &f), Sent::Held);
    assert_eq!(c.next_deadline(), Some(T0));
    let (to, p) = c.poll_transmit(T0).unwrap();
    let request = p.to_vec();
    assert_eq!(c.address(to), (c.broadcast_mgid(), Qpn::MULTICAST));
    let expected = arp(1, &c.local().0, [10, 0, 0, 1], &[0; 20], [10, 0, 0, 2]);
    assert_eq!(request, payload(0x0806, &expected));
    assert!(c.poll_transmit(T0).is_none());
    assert_eq!(c.next_deadline(), Some(Time(1000)));
    assert_eq!(c.pop_released(), None);
    teach(&mut c, b, [10, 0, 0, 2]);
    let held = c.pop_released().unwrap();
    assert_eq!(held.frame[..], f);
    assert_eq!(
        send(&mut c, T0, &held.frame),
        Sent::Forward(b.gid(), b.qpn(), [8, 0, 0, 0])
    );
    assert_eq!(c.next_deadline(), None);
}

#[test]
fn unknown_ipv6_destination_is_solicited() {
    let mut c = a();
    host_uses(&mut c, "fe80::a".parse().unwrap());
    let echo = icmpv6("fe80::a", "fe80::b", &[128, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(
        send(&mut c, T0, &frame([2, 9, 9, 9, 9, 9], MAC_A, 0x86dd, &echo)),
        Sent::Held
    );
    let (to, p) = c.poll_transmit(T0).unwrap();
    let p = p.to_vec();
    assert_eq!(c.address(to).0, group(&c, "ff02::1:ff00:b"));
    let expected = icmpv6(
        "fe80::a",
        "ff02::1:ff00:b",
        &nd(135, "fe80::b", &ib_option(1, c.local())),
    );
    assert_eq!(p, payload(0x86dd, &expected));
}

#[test]
fn unicast_request_to_a_forgotten_peer_asks_everybody() {
    let mut c = a();
    let probe = arp(1, &MAC_A, [10, 0, 0, 1], &[0; 6], [10, 0, 0, 2]);
    let got = send(
        &mut c,
        T0,
        &frame([2, 9, 9, 9, 9, 9], MAC_A, 0x0806, &probe),
    );
    assert!(matches!(got, Sent::Rewritten(g, Qpn::MULTICAST, _) if g == c.broadcast_mgid()));
    let f = frame(MAC_A, MAC_A, 0x0806, &probe);
    assert_eq!(send(&mut c, T0, &f), Sent::Dropped(DropReason::ToSelf));
}

#[test]
fn announcements_are_sent_twice() {
    let mut c = a();
    c.announce(Ipv4Addr::new(10, 0, 0, 1).into(), false);
    c.announce("fe80::a".parse().unwrap(), false);
    c.announce("ff02::1".parse().unwrap(), false);
    let mut all = Vec::new();
    for now in [0, 500, 1000, 5000] {
        while let Some((to, p)) = c.poll_transmit(Time(now)) {
            let p = p.to_vec();
            all.push((now, c.address(to).0, p));
        }
    }
    let garp = payload(
        0x0806,
        &arp(1, &c.local().0, [10, 0, 0, 1], &[0; 20], [10, 0, 0, 1]),
    );
    let mut m = nd(136, "fe80::a", &ib_option(2, c.local()));
    m[4] = 0x20;
    let na = payload(0x86dd, &icmpv6("fe80::a", "ff02::1", &m));
    assert_eq!(all.len(), 4);
    for now in [0, 1000] {
        assert!(all.contains(&(now, c.broadcast_mgid(), garp.clone())));
        assert!(all.contains(&(now, group(&c, "ff02::1"), na.clone())));
    }
    assert_eq!(c.next_deadline(), None);
}

/// The daemon sends what the core has after each announcement. Memory is bounded if it does not.
#[test]
fn each_of_many_addresses_is_announced() {
    let ip = |n: u32| IpAddr::from(Ipv4Addr::from(0x0a00_0000 + n));
    let announced = |c: &mut Ipoib, now| {
        let packets = std::iter::from_fn(|| c.poll_transmit(Time(now)).map(|(_, p)| p.to_vec()));
        let packets: Vec<_> = packets.collect();
        packets
    };
    let mut c = a();
    let mut first = std::collections::HashSet::new();
    for n in 0..3000 {
        c.announce(ip(n), false);
        first.extend(announced(&mut c, 0));
    }
    assert_eq!(first.len(), 3000);
    assert_eq!(announced(&mut c, 1000).len(), 1024, "again");
    assert_eq!(c.next_deadline(), None);

    (0..3000).for_each(|n| c.announce(ip(n), false));
    assert_eq!(announced(&mut c, 2000).len(), 1280);
}

#[test]
fn c125_an_address_of_a_router_is_announced_as_such() {
    let mut c = a();
    c.announce("fe80::a".parse().unwrap(), true);
    let (_, announced) = c.poll_transmit(T0).unwrap();
    let mut m = nd(136, "fe80::a", &ib_option(2, address(0xa, 0x4a)));
    m[4] = 0xa0;
    let na = payload(0x86dd, &icmpv6("fe80::a", "ff02::1", &m));
    assert_eq!(announced, na);
}

#[test]
fn replicas_agree_and_release_what_others_resolved() {
    let (mut one, mut two) = (a(), a());
    let ip = [10, 0, 0, 2];
    let f = frame(
        [2, 9, 9, 9, 9, 9],
        MAC_A,
        0x0800,
        &ipv4([10, 0, 0, 1], ip, b""),
    );
    assert_eq!(send(&mut two, T0, &f), Sent::Held);
    two.drain_updates().for_each(drop);
    let old = teach(&mut one, address(0xb, 0x4b), ip);
    teach(&mut one, address(0xb, 0x4b), ip);
    let news: Vec<Update> = one.drain_updates().collect();
    assert_eq!(news.len(), 1);
    news.iter().for_each(|u| two.apply(T0, u));
    assert!(!two.has_updates());
    assert!(two.pop_released().is_some());
    teach(&mut one, address(0xb, 0x99), ip);
    let news: Vec<Update> = one.drain_updates().collect();
    assert_eq!(news.len(), 2);
    news.iter().for_each(|u| two.apply(T0, u));
    let f = frame(old, MAC_A, 0x0800, &ipv4([10, 0, 0, 1], ip, b""));
    assert_eq!(send(&mut one, T0, &f), send(&mut two, T0, &f));
    assert!(matches!(send(&mut two, T0, &f), Sent::Forward(_, q, _) if q.get() == 0x99));
}

#[test]
fn address_handles_come_back() {
    let mut c = a();
    let mac = teach(&mut c, address(0xb, 0x4b), [10, 0, 0, 2]);
    let f = frame(mac, MAC_A, 0x0800, &ipv4([10, 0, 0, 1], [10, 0, 0, 2], b""));
    let Outgoing::Forward { to, .. } = c.from_tap(T0, &NO_OFFLOAD, &f) else {
        panic!()
    };
    assert_eq!(c.ah(to), None);
    c.set_ah(to, AddressHandle(1));
    c.set_ah(to, AddressHandle(2));
    assert_eq!(
        (c.ah(to), c.pop_released_ah()),
        (Some(AddressHandle(2)), Some(AddressHandle(1)))
    );
    for n in 0..100 {
        teach(&mut c, address(0xc, 100 + n), [10, 1, 0, n as u8]);
    }
    assert_eq!(c.pop_released_ah(), Some(AddressHandle(2)));
    assert_eq!(
        (c.neighbours().count(), c.counters().neighbours_evicted),
        (64, 37)
    );
    c.set_ah(Target::Group(0), AddressHandle(3));
    c.release_all();
    assert_eq!(c.pop_released_ah(), Some(AddressHandle(3)));
}

#[test]
fn data_teaches_a_hint_that_never_takes_an_address_away() {
    let mut c = a();
    let ip = [10, 0, 0, 2];
    teach(&mut c, address(0xb, 0x4b), ip);
    c.drain_updates().for_each(drop);
    let m = meta(address(0xd, 0x4d), c.local().gid());
    receive(&mut c, &m, &payload(0x0800, &ipv4(ip, [10, 0, 0, 1], b""))).unwrap();
    assert!(!c.has_updates());
    let f = frame(
        [2, 9, 9, 9, 9, 9],
        MAC_A,
        0x0800,
        &ipv4([10, 0, 0, 1], ip, b""),
    );
    assert!(matches!(send(&mut c, T0, &f), Sent::Forward(_, q, _) if q.get() == 0x4b));
}

/// One forged or routed packet does not divert the frames of the host.
#[test]
fn an_owner_known_from_data_only_is_asked_for() {
    let mut c = a();
    let (ip, local) = ([10, 0, 0, 2], c.local());
    let (owner, forger) = (address(0xb, 0x4b), address(0xd, 0x4d));
    let to = |mac| frame(mac, MAC_A, 0x0800, &ipv4([10, 0, 0, 1], ip, b""));
    let unknown = [2, 9, 9, 9, 9, 9];
    let data = payload(0x0800, &ipv4(ip, [10, 0, 0, 1], b""));
    let forged = receive(&mut c, &meta(forger, local.gid()), &data).unwrap();
    assert_eq!(send(&mut c, T0, &to(unknown)), Sent::Held);
    let questions = |c: &mut Ipoib| std::iter::from_fn(|| c.poll_transmit(T0).map(drop)).count();
    assert_eq!(questions(&mut c), 1);
    // More of them neither release the frame nor cause a query each.
    for n in 0..10 {
        let m = meta(address(0xd, 0x50 + n), local.gid());
        receive(&mut c, &m, &data).unwrap();
    }
    assert!(!c.has_released());
    assert_eq!(questions(&mut c), 0);
    // ARP of the host goes to everybody.
    let request = arp(1, &MAC_A, [10, 0, 0, 1], &[0; 6], ip);
    let request = frame(unknown, MAC_A, 0x0806, &request);
    let sent = send(&mut c, T0, &request);
    assert!(matches!(sent, Sent::Rewritten(g, Qpn::MULTICAST, _) if g == c.broadcast_mgid()));
    // The MAC of a peer is enough, as after a restart of the daemon.
    let mac: Mac = forged[6..12].try_into().unwrap();
    let sent = send(&mut c, T0, &to(mac));
    assert!(matches!(sent, Sent::Forward(gid, ..) if gid == forger.gid()));
    teach(&mut c, owner, ip);
    let held = c.pop_released().unwrap();
    let sent = send(&mut c, T0, &held.frame);
    assert!(matches!(sent, Sent::Forward(gid, ..) if gid == owner.gid()));
}

#[test]
fn own_address_changes_take_effect() {
    let mut c = a();
    let b = address(0xb, 0x4b);
    let mac = teach(&mut c, b, [10, 0, 0, 2]);
    c.set_mac(mac);
    let other = c.neighbours().next().unwrap().mac;
    assert_ne!(other, mac);
    assert_eq!(teach(&mut c, b, [10, 0, 0, 2]), other);
    c.set_local(T0, b);
    assert_eq!(c.neighbours().count(), 0);
    let p = payload(0x0800, &ipv4([10, 0, 0, 2], [10, 0, 0, 1], b""));
    assert_eq!(
        receive(&mut c, &meta(b, b.gid()), &p),
        Err(DropReason::SelfEcho)
    );
}
