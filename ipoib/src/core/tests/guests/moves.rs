//! IP addresses and MACs that move between guests and peers.

use super::*;

#[test]
fn c57_a_guest_and_a_peer_never_share_an_address() {
    let (mut c, mut sibling) = (a(), a());
    let peer = teach(&mut c, b(), IP_B);
    teach(&mut sibling, b(), IP_B);
    c.drain_updates()
        .chain(sibling.drain_updates())
        .for_each(drop);
    // The guest's probe shows its MAC, which is the peer's.
    guest_asks(&mut c, 0, peer, [0; 4], IP1);
    let other = c.neighbours().next().unwrap().mac;
    assert_ne!(other, peer);
    assert_eq!(other[0] & 3, 2);
    let clash = Event::MacClash {
        guest: peer,
        peer: other,
    };
    assert_eq!(events(&mut c), [clash]);
    assert_eq!(c.counters().mac_clashes, 1);
    // The host side gets the peer's new MAC.
    let correction = frame(
        MAC_BROADCAST,
        other,
        0x0806,
        &arp(1, &other, IP_B, &[0; 6], IP_B),
    );
    assert_eq!(c.next_deadline(), Some(T0));
    assert_eq!(tap_frames(&mut c, 0), [correction]);
    // All replicas serve both under their own MACs.
    let news: Vec<Update> = c.drain_updates().collect();
    news.iter().for_each(|u| sibling.apply(T0, u));
    for core in [&mut c, &mut sibling] {
        assert_eq!(core.neighbours().next().unwrap().mac, other);
        let f = arrive(core, 0, 0x0800, &ipv4(IP_B, [255; 4], b"")).unwrap();
        assert_eq!(f[6..12], other);
        assert!(matches!(
            guest_data(core, 0, peer, IP1, other),
            Sent::Forward(..)
        ));
        let to_guest = frame(peer, G2, 0x0800, &ipv4(IP2, IP1, b""));
        assert_eq!(
            send(core, T0, &to_guest),
            Sent::Dropped(DropReason::ToGuest)
        );
    }
    assert_eq!(sibling.counters().mac_clashes, 0);
    // A later peer with that MAC gets another immediately, also if a replica wishes for that MAC.
    let mut late = a();
    guest_asks(&mut late, 0, peer, IP1, IP_B);
    assert_ne!(teach(&mut late, b(), IP_B), peer);
    let mut late = a();
    guest_asks(&mut late, 0, peer, IP1, IP_B);
    late.drain_updates().for_each(drop);
    let wish = Update::Learned {
        address: b(),
        mac: peer,
        ip: None,
    };
    late.apply(T0, &wish);
    let given = late.neighbours().next().unwrap().mac;
    assert_ne!(given, peer);
    let updates: Vec<Update> = late.drain_updates().collect();
    assert_eq!(
        updates,
        [Update::Remapped {
            address: b(),
            mac: given
        }]
    );
}

#[test]
fn c57_the_interface_takes_a_peers_address() {
    let mut c = a();
    let peer = teach(&mut c, b(), IP_B);
    let na = icmpv6(
        "fe80::b",
        "ff02::1",
        &nd(136, "fe80::b", &ib_option(2, b())),
    );
    let m = meta(b(), group(&c, "ff02::1"));
    receive(&mut c, &m, &payload(0x86dd, &na)).unwrap();
    c.set_mac(peer);
    let other = c.neighbours().next().unwrap().mac;
    assert_ne!(other, peer);
    // Without the override flag, hosts keep a default route through the peer.
    let advertisement = nd(136, "fe80::b", &mac_option(2, other));
    let corrections = [
        frame(
            MAC_BROADCAST,
            other,
            0x0806,
            &arp(1, &other, IP_B, &[0; 6], IP_B),
        ),
        frame(
            group_mac_of("ff02::1"),
            other,
            0x86dd,
            &icmpv6("fe80::b", "ff02::1", &advertisement),
        ),
    ];
    assert_eq!(tap_frames(&mut c, 0), corrections);
}

#[test]
fn an_address_moves_from_a_guest_to_a_peer() {
    let mut c = a();
    let peer = teach(&mut c, b(), IP_B);
    guest_asks(&mut c, 0, G1, IP1, IP_B);
    guest_data(&mut c, 0, G1, IP1, peer);
    events(&mut c);
    peer_asks(&mut c, 10, b(), IP1);
    assert_eq!(events(&mut c), [Event::GuestForgotten { ip: ip(IP1) }]);
    assert_eq!(owner(&c, ip(IP1)), None);
    // A host that still uses the guest's MAC reaches the peer.
    let f = frame(G1, G2, 0x0800, &ipv4(IP2, IP1, b""));
    assert!(matches!(send(&mut c, Time(20), &f), Sent::Forward(_, q, _) if q == b().qpn()));
    // Data of the former owner takes nothing back.
    guest_data(&mut c, 20, G1, IP1, peer);
    assert_eq!(owner(&c, ip(IP1)), None);
}

#[test]
fn an_address_moves_from_a_peer_to_a_guest() {
    let mut c = a();
    let peer = teach(&mut c, b(), IP1);
    teach(&mut c, b(), IP_B);
    c.drain_updates().for_each(drop);
    // Only data, as after a migration announced by RARP: it starts a query, and the answer counts.
    guest_data(&mut c, 0, G1, IP1, peer);
    assert_eq!(owner(&c, ip(IP1)), None);
    let question = arp(1, &peer, IP_B, &[0; 6], IP1);
    assert_eq!(
        tap_frames(&mut c, 0),
        [frame(MAC_BROADCAST, peer, 0x0806, &question)]
    );
    guest_answers(&mut c, 1, G1, IP1, peer);
    assert_eq!(owner(&c, ip(IP1)), Some((G1, false)));
    let announced = announcement(&c, IP1);
    assert_eq!(sent(&mut c, 1), std::slice::from_ref(&announced));
    assert_eq!(sent(&mut c, 1001), [announced]);
    let news = Update::Guest {
        ip: ip(IP1),
        mac: G1,
        weak: false,
        router: None,
        unannounced: false,
    };
    assert!(c.drain_updates().any(|u| u == news));
    // The guest's own broadcast needs no further announcement.
    let mut c = a();
    teach(&mut c, b(), IP1);
    guest_asks(&mut c, 0, G1, IP1, IP1);
    assert_eq!(owner(&c, ip(IP1)), Some((G1, false)));
    assert!(sent(&mut c, 0).is_empty());
}

/// The interface's own multicast loops back late, from the former GID.
#[test]
fn a_guest_keeps_its_address_after_a_change_of_the_gid() {
    let mut c = a();
    let former = c.local();
    guest_asks(&mut c, 0, G1, IP1, IP1);
    c.set_local(Time(10), address(0xc, 0x4a));
    let claim = payload(0x0806, &arp(1, &former.0, IP1, &[0; 20], IP1));
    let m = meta(former, c.broadcast_mgid());
    for now in [10, 59] {
        let got = c.from_fabric(Time(now), &m, &claim);
        assert_eq!(got, Incoming::Dropped(DropReason::SelfEcho));
    }
    assert_eq!(owner(&c, ip(IP1)), Some((G1, false)));
    c.announce_guests(Time(59), T0);
    assert_eq!(sent(&mut c, 59), [announcement(&c, IP1)]);
    // Later, the GID is that of a peer.
    peer_asks(&mut c, 60, former, IP1);
    assert_eq!(owner(&c, ip(IP1)), None);
}

/// Another guest still uses the peer's MAC for a host that is a guest now.
#[test]
fn a_guest_that_uses_a_former_mac_gets_a_correction() {
    let mut c = a();
    let peer = teach(&mut c, b(), IP1);
    teach(&mut c, b(), IP_B);
    let to_peer = frame(peer, G2, 0x0800, &ipv4(IP2, IP1, b""));
    assert!(matches!(send(&mut c, T0, &to_peer), Sent::Forward(..)));
    guest_asks(&mut c, 10, G1, IP1, IP1);
    guest_asks(&mut c, 10, G2, IP2, IP2);
    tap_frames(&mut c, 10);
    // The peer may be a gateway, too: a guest in another subnet keeps the MAC, and its frames are sent.
    let reply = arp(2, &G1, IP1, &G2, IP2);
    let correction = [frame(G2, peer, 0x0806, &reply)];
    for (now, corrections) in [(20, 1), (1019, 0), (1020, 1)] {
        let fate = send(&mut c, Time(now), &to_peer);
        assert!(matches!(fate, Sent::Forward(_, q, _) if q == b().qpn()));
        assert_eq!(tap_frames(&mut c, now), correction[..corrections]);
    }
    // Correct frames and frames for the peer itself need no correction.
    let right = frame(G1, G2, 0x0800, &ipv4(IP2, IP1, b""));
    let to_guest = Sent::Dropped(DropReason::ToGuest);
    assert_eq!(send(&mut c, Time(1021), &right), to_guest);
    let other = frame(peer, G2, 0x0800, &ipv4(IP2, IP_B, b""));
    assert!(matches!(
        send(&mut c, Time(1022), &other),
        Sent::Forward(..)
    ));
    assert!(tap_frames(&mut c, 1022).is_empty());
    // After this time no host uses the former MAC.
    assert!(matches!(
        send(&mut c, Time(200_000), &to_peer),
        Sent::Forward(..)
    ));
}

/// The address moves on before the correction is written.
#[test]
fn a_correction_about_a_guest_that_has_gone_is_not_sent() {
    for back in [false, true] {
        let mut c = a();
        let peer = teach(&mut c, b(), IP1);
        guest_asks(&mut c, 10, G1, IP1, IP1);
        guest_asks(&mut c, 10, G2, IP2, IP2);
        let to_peer = frame(peer, G2, 0x0800, &ipv4(IP2, IP1, b""));
        send(&mut c, Time(20), &to_peer);
        match back {
            true => peer_asks(&mut c, 21, b(), IP1),
            false => drop(guest_asks(&mut c, 21, [6, 0, 0, 0, 0, 0x33], IP1, IP1)),
        }
        assert!(tap_frames(&mut c, 22).is_empty());
    }
}

/// A guest comes from a peer. There it knew this host's guests by the MAC under which peers see this host.
#[test]
fn a_guest_that_came_from_a_peer_gets_the_macs_of_other_guests() {
    let mut c = a();
    teach(&mut c, b(), IP1);
    guest_asks(&mut c, 0, G2, IP2, IP2);
    guest_asks(&mut c, 10, G1, IP1, IP1);
    tap_frames(&mut c, 10);
    let own = crate::peer_mac(&c.local());
    let fate = send(
        &mut c,
        Time(20),
        &frame(own, G1, 0x0800, &ipv4(IP1, IP2, b"")),
    );
    assert_eq!(fate, Sent::Dropped(DropReason::ToGuest));
    let reply = arp(2, &G2, IP2, &G1, IP1);
    assert_eq!(tap_frames(&mut c, 20), [frame(G1, own, 0x0806, &reply)]);
}

/// A router among the guests. The bridge does not know its port at the moment, and a frame with the router's MAC would
/// teach the bridge a wrong one.
#[test]
fn a_flooded_frame_for_another_guest_causes_no_correction() {
    const G3: Mac = [0x52, 0x54, 0, 0, 0, 3];
    let mut c = a();
    teach(&mut c, b(), IP1);
    guest_asks(&mut c, 0, G1, IP1, IP1);
    guest_asks(&mut c, 0, G2, IP2, IP2);
    guest_asks(&mut c, 0, G3, [10, 0, 0, 13], IP2);
    tap_frames(&mut c, 0);
    let flooded = frame(G3, G2, 0x0800, &ipv4(IP2, IP1, b""));
    let fate = send(&mut c, Time(20), &flooded);
    assert_eq!(fate, Sent::Dropped(DropReason::ToGuest));
    assert!(tap_frames(&mut c, 20).is_empty());
}

/// As after a restart of this host: the peer's packets are data only, and so are those of the guest that moves to
/// this host.
#[test]
fn a_guest_that_uses_the_mac_of_a_peer_that_is_known_from_data_gets_a_correction() {
    let mut c = a();
    let (former, to) = (address(0xc, 0x4c), c.local().gid());
    let data = payload(0x0800, &ipv4(IP1, [10, 0, 0, 1], b"data"));
    receive(&mut c, &meta(former, to), &data).unwrap();
    let stale = c.neighbours().next().unwrap().mac;
    let peer = teach(&mut c, b(), IP_B);
    guest_asks(&mut c, 0, G2, IP2, IP_B);
    guest_data(&mut c, 10, G1, IP1, peer);
    guest_answers(&mut c, 11, G1, IP1, peer);
    tap_frames(&mut c, 11);
    let to_former = frame(stale, G2, 0x0800, &ipv4(IP2, IP1, b""));
    let fate = send(&mut c, Time(20), &to_former);
    assert!(matches!(fate, Sent::Forward(_, q, _) if q == former.qpn()));
    let reply = arp(2, &G1, IP1, &G2, IP2);
    assert_eq!(tap_frames(&mut c, 20), [frame(G2, stale, 0x0806, &reply)]);
}

/// The guests are in different subnets. The gateway, a peer, never had the address.
#[test]
fn a_guest_reaches_another_through_a_gateway_after_a_move() {
    let mut c = a();
    let gateway = teach(&mut c, b(), IP_B);
    let former = teach(&mut c, address(0xc, 0x4c), IP1);
    guest_asks(&mut c, 10, G1, IP1, IP1);
    guest_asks(&mut c, 10, G2, IP2, IP2);
    tap_frames(&mut c, 10);
    let over = |mac, to| frame(mac, G2, 0x0800, &ipv4(IP2, to, b""));
    let fate = send(&mut c, Time(20), &over(gateway, IP1));
    assert!(matches!(fate, Sent::Forward(_, q, _) if q == b().qpn()));
    // The former owner is a gateway for others.
    let back = frame(former, G1, 0x0800, &ipv4(IP1, IP2, b""));
    assert!(matches!(send(&mut c, Time(21), &back), Sent::Forward(..)));
    assert!(tap_frames(&mut c, 21).is_empty());
    // It may have restarted since.
    let restarted = teach(&mut c, address(0xc, 0x5c), [10, 0, 0, 77]);
    teach(&mut c, address(0xc, 0x4c), [10, 0, 0, 78]);
    teach(&mut c, address(0xc, 0x5c), [10, 0, 0, 78]);
    assert_ne!(restarted, former);
    for mac in [former, restarted] {
        let fate = send(&mut c, Time(22), &over(mac, IP1));
        assert!(matches!(fate, Sent::Forward(_, q, _) if q == Qpn::new(0x5c)));
        assert_eq!(tap_frames(&mut c, 22).len(), 1);
    }
    // After the interface was down, a link to a neighbour is another's.
    c.flush();
    let gateway = teach(&mut c, b(), IP_B);
    guest_asks(&mut c, 30, G2, IP2, IP2);
    teach(&mut c, address(0xd, 0x4d), [10, 0, 0, 13]);
    guest_asks(&mut c, 31, G1, [10, 0, 0, 13], IP2);
    let fate = send(&mut c, Time(32), &over(gateway, IP1));
    assert!(matches!(fate, Sent::Forward(..)));
}

#[test]
fn the_same_over_ipv6_also_by_a_replica_that_did_not_see_the_move() {
    let (mut c, mut sibling) = (a(), a());
    let peer = teach(&mut c, b(), IP_B);
    let na = icmpv6(
        "fd00::11",
        "ff02::1",
        &nd(136, "fd00::11", &ib_option(2, b())),
    );
    let m = meta(b(), group(&c, "ff02::1"));
    receive(&mut c, &m, &payload(0x86dd, &na)).unwrap();
    c.drain_updates().for_each(|u| sibling.apply(T0, &u));
    let ns = nd(135, "fd00::12", &mac_option(1, G1));
    let ns = icmpv6("fd00::11", "ff02::1:ff00:12", &ns);
    let ns = frame(group_mac_of("ff02::1:ff00:12"), G1, 0x86dd, &ns);
    send(&mut c, Time(10), &ns);
    tap_frames(&mut c, 10);
    c.drain_updates().for_each(|u| sibling.apply(Time(10), &u));
    let echo = icmpv6("fd00::12", "fd00::11", &[128, 0, 0, 0, 0, 0, 0, 0]);
    let stale = frame(peer, G2, 0x86dd, &echo);
    let question = nd(135, "fd00::12", &mac_option(1, G1));
    let correction = icmpv6("fd00::11", "fd00::12", &question);
    for replica in [&mut c, &mut sibling] {
        let fate = send(replica, Time(20), &stale);
        assert!(matches!(fate, Sent::Forward(..)));
        let expected = frame(G2, peer, 0x86dd, &correction);
        assert_eq!(tap_frames(replica, 20).pop(), Some(expected));
    }
}

#[test]
fn an_alternating_address_is_kept_and_reported_once() {
    let mut c = a();
    teach(&mut c, b(), IP_B);
    let peer = c.neighbours().next().unwrap().mac;
    let mut announced = 0;
    for n in 0..1000 {
        let now = n * 20;
        guest_answers(&mut c, now, G1, IP1, peer);
        peer_asks(&mut c, now + 10, b(), IP1);
        announced += sent(&mut c, now).len();
    }
    let conflicts = events(&mut c)
        .into_iter()
        .filter(|e| matches!(e, Event::AddressConflict { .. }))
        .count();
    assert_eq!((conflicts, c.counters().address_conflicts), (1, 1));
    assert!(announced <= 8, "{announced} announcements in 20 s");
    assert!(c.drain_updates().count() < 40);
}

/// One replica reads the peer's claim, another one the last answer of the guest, and their updates cross.
#[test]
fn replicas_agree_again_after_crossing_updates() {
    let (mut c, mut sibling) = (a(), a());
    let peer = teach(&mut sibling, b(), IP_B);
    guest_answers(&mut sibling, 0, G1, IP1, peer);
    sibling.drain_updates().for_each(|u| c.apply(T0, &u));
    peer_asks(&mut c, 2000, b(), IP1);
    guest_answers(&mut sibling, 2000, G1, IP1, peer);
    let from_c: Vec<Update> = c.drain_updates().collect();
    sibling
        .drain_updates()
        .for_each(|u| c.apply(Time(2000), &u));
    from_c.iter().for_each(|u| sibling.apply(Time(2000), u));
    assert_eq!(owner(&c, ip(IP1)), Some((G1, false)));
    assert_eq!(owner(&sibling, ip(IP1)), None);
    // The next claims of the peer.
    for now in [20_000, 20_001] {
        peer_asks(&mut sibling, now, b(), IP1);
    }
    let updates: Vec<Update> = sibling.drain_updates().collect();
    assert_eq!(updates.len(), 1, "{updates:?}");
    c.apply(Time(20_000), &updates[0]);
    for replica in [&mut c, &mut sibling] {
        assert_eq!(owner(replica, ip(IP1)), None);
        let f = frame(G1, G2, 0x0800, &ipv4(IP2, IP1, b""));
        let sent = send(replica, Time(20_001), &f);
        assert!(matches!(sent, Sent::Forward(_, q, _) if q == b().qpn()));
    }
}

#[test]
fn two_guests_with_one_address_are_reported_once() {
    let (mut c, mut sibling) = (a(), a());
    for n in 0..500 {
        let now = n * 20;
        guest_asks(&mut c, now, G1, IP1, IP_B);
        c.drain_updates().for_each(|u| sibling.apply(Time(now), &u));
        guest_asks(&mut sibling, now + 10, G2, IP1, IP_B);
        sibling.drain_updates().for_each(|u| c.apply(Time(now), &u));
    }
    let conflicts = events(&mut c)
        .into_iter()
        .chain(events(&mut sibling))
        .filter(|e| matches!(e, Event::AddressConflict { .. }))
        .count();
    assert_eq!(conflicts, 1);
    assert_eq!(owner(&c, ip(IP1)), owner(&sibling, ip(IP1)));
}

/// An announcement would take the address from its present owner.
#[test]
fn an_address_that_has_gone_is_not_announced_again() {
    let mut c = a();
    let ip = IpAddr::from([10, 0, 0, 1]);
    c.announce(ip, false);
    assert_eq!(sent(&mut c, 0).len(), 1);
    c.withdraw(ip);
    assert!(sent(&mut c, 1000).is_empty());
    // The address of a guest, which was a peer's and moves back immediately.
    let peer = teach(&mut c, b(), IP1);
    guest_answers(&mut c, 2000, G1, IP1, peer);
    assert!(!sent(&mut c, 2000).is_empty());
    peer_asks(&mut c, 2001, b(), IP1);
    assert!(sent(&mut c, 3500).is_empty());
}

/// A host of a VLAN, or an ipvlan: its frames have the interface's MAC.
#[test]
fn an_address_that_has_gone_is_not_announced_again_with_the_interfaces_mac_either() {
    let mut c = a();
    c.set_stacked(true);
    guest_asks(&mut c, 0, MAC_A, IP1, IP_B);
    c.announce_guests(T0, T0);
    assert_eq!(sent(&mut c, 0), [announcement(&c, IP1)]);
    peer_asks(&mut c, 500, b(), IP1);
    assert!(sent(&mut c, 1000).is_empty());
    // The guest may have gone before, because the interface got another MAC.
    for by_replica in [false, true] {
        let mut c = a();
        c.set_stacked(true);
        guest_asks(&mut c, 0, MAC_A, IP1, IP_B);
        c.announce_guests(T0, T0);
        assert_eq!(sent(&mut c, 0), [announcement(&c, IP1)]);
        c.set_mac(G1);
        if by_replica {
            let (address, mac) = (b(), crate::peer_mac(&b()));
            let ip = Some(ip(IP1));
            c.apply(Time(500), &Update::Learned { address, mac, ip });
        } else {
            peer_asks(&mut c, 500, b(), IP1);
        }
        assert!(sent(&mut c, 1000).is_empty());
    }
    // An announcement at the host's own request does not depend on guests.
    guest_asks(&mut c, 20_000, MAC_A, IP2, IP_B);
    c.announce(ip(IP2), false);
    c.announce_guests(Time(20_000), T0);
    c.set_stacked(false);
    assert_eq!(sent(&mut c, 20_000), [announcement(&c, IP2)]);
    assert_eq!(sent(&mut c, 21_000), [announcement(&c, IP2)]);
}

#[test]
fn a_guest_that_takes_one_peers_address_after_another_is_stopped() {
    let mut c = a();
    let mut peer = teach(&mut c, b(), IP_B);
    for n in 0..100 {
        let claim = frame(
            MAC_BROADCAST,
            peer,
            0x0800,
            &ipv4(IP1, [10, 0, 0, 255], b"x"),
        );
        send(&mut c, Time(n), &claim);
        peer = c.neighbours().next().unwrap().mac;
    }
    assert!(
        c.counters().mac_clashes <= 8,
        "{}",
        c.counters().mac_clashes
    );
    assert!(c.counters().tx_dropped(DropReason::Looped) >= 92);
    // Later it is an ordinary collision.
    let before = c.counters().mac_clashes;
    let claim = frame(
        MAC_BROADCAST,
        peer,
        0x0800,
        &ipv4(IP1, [10, 0, 0, 255], b"x"),
    );
    send(&mut c, Time(10_100), &claim);
    assert_eq!(c.counters().mac_clashes, before + 1);
}
