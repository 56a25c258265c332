//! Learning of guests.

use super::*;

#[test]
fn arp_teaches_a_guest_and_data_for_it_has_its_address() {
    let mut c = a();
    teach(&mut c, b(), IP_B);
    assert_eq!(goes_to(&mut c, 0, IP1), Some(MAC_A));
    assert!(matches!(
        guest_asks(&mut c, 0, G1, IP1, IP_B),
        Sent::Rewritten(..)
    ));
    assert_eq!(owner(&c, ip(IP1)), Some((G1, false)));
    assert_eq!(goes_to(&mut c, 0, IP1), Some(G1));
    let learned = Event::GuestLearned {
        ip: ip(IP1),
        mac: G1,
        weak: false,
    };
    assert_eq!(events(&mut c), [learned]);
    // The guest's own broadcast has informed the link.
    assert!(sent(&mut c, 0).is_empty());
    // With a guest present, the host itself is learned in the same way.
    guest_asks(&mut c, 0, MAC_A, [10, 0, 0, 1], IP_B);
    assert_eq!(goes_to(&mut c, 0, [10, 0, 0, 1]), Some(MAC_A));
    assert_eq!(c.counters().guests_learned, 2);
}

#[test]
fn without_guests_nothing_is_learned_of_the_host() {
    let mut c = a();
    guest_asks(&mut c, 0, MAC_A, [10, 0, 0, 1], IP_B);
    assert_eq!(c.guests().count(), 0);
    c.set_stacked(true);
    guest_asks(&mut c, 0, MAC_A, [10, 0, 0, 1], IP_B);
    assert_eq!(owner(&c, ip([10, 0, 0, 1])), Some((MAC_A, false)));
    assert!(!c.is_reflected(&frame(MAC_A, G1, 0x0800, &[])));
}

#[test]
fn neighbour_discovery_teaches_guests() {
    let mut c = a();
    let group = group_mac_of("ff02::1:ff00:b");
    let ns = |src: &str, mac| {
        let m = nd(135, "fe80::b", &mac_option(1, mac));
        frame(group, G1, 0x86dd, &icmpv6(src, "ff02::1:ff00:b", &m))
    };
    send(&mut c, T0, &ns("fe80::11", G1));
    assert_eq!(owner(&c, v6("fe80::11")), Some((G1, false)));
    // The address in the option differs from the frame's source: the option counts.
    send(&mut c, T0, &ns("fe80::12", G2));
    assert_eq!(owner(&c, v6("fe80::12")), Some((G2, false)));
    let na = icmpv6("fe80::13", "ff02::1", &nd(136, "fd00::13", &[]));
    send(&mut c, T0, &frame(group_mac_of("ff02::1"), G1, 0x86dd, &na));
    assert_eq!(owner(&c, v6("fd00::13")), Some((G1, false)));
    let rs = icmpv6("fe80::14", "ff02::2", &[133, 0, 0, 0, 0, 0, 0, 0]);
    send(&mut c, T0, &frame(group_mac_of("ff02::2"), G1, 0x86dd, &rs));
    assert_eq!(owner(&c, v6("fe80::14")), Some((G1, false)));
    // With a wrong checksum or hop limit the core learns no more than from data.
    for (at, host) in [(43, "fe80::15"), (7, "fe80::16")] {
        let mut f = ns(host, G1);
        f[14 + at] ^= 1;
        send(&mut c, T0, &f);
        assert_eq!(owner(&c, v6(host)), Some((G1, true)));
    }
    // It learns no tentative address either.
    let dad = icmpv6("::", "ff02::1:ff00:17", &nd(135, "fe80::17", &[]));
    send(&mut c, T0, &frame(group, G1, 0x86dd, &dad));
    assert_eq!(c.guests().count(), 6);
}

#[test]
fn data_is_a_hint_that_is_checked() {
    let mut c = a();
    let peer = teach(&mut c, b(), IP_B);
    guest_data(&mut c, 0, G1, IP1, peer);
    assert_eq!(owner(&c, ip(IP1)), Some((G1, true)));
    assert_eq!(goes_to(&mut c, 0, IP1), Some(G1));
    assert_eq!(c.next_deadline(), Some(Time(0)));
    let question = frame(
        MAC_BROADCAST,
        peer,
        0x0806,
        &arp(1, &peer, IP_B, &[0; 6], IP1),
    );
    assert_eq!(tap_frames(&mut c, 0), [question]);
    // A hint is not announced. The guest's answer is, because peers may know the address at another queue
    // pair.
    assert!(sent(&mut c, 0).is_empty());
    guest_answers(&mut c, 5, G1, IP1, peer);
    assert_eq!(owner(&c, ip(IP1)), Some((G1, false)));
    assert_eq!(sent(&mut c, 5), [announcement(&c, IP1)]);
    assert!(sent(&mut c, 5000).is_empty());
    // Data of another guest, a router: no change while the owner is active.
    guest_data(&mut c, 2000, G2, IP1, peer);
    assert_eq!(owner(&c, ip(IP1)), Some((G1, false)));
    assert_eq!(tap_frames(&mut c, 2000).len(), 1);
    guest_data(&mut c, 3500, G2, IP1, peer);
    assert!(tap_frames(&mut c, 3500).is_empty());
    guest_data(&mut c, 70_000, G2, IP1, peer);
    assert_eq!(owner(&c, ip(IP1)), Some((G2, true)));
}

#[test]
fn rarp_makes_a_guest_known_and_passes() {
    let mut c = a();
    let request = arp(3, &G1, [0; 4], &G1, [0; 4]);
    let f = frame(MAC_BROADCAST, G1, 0x8035, &request);
    assert!(matches!(send(&mut c, T0, &f), Sent::Rewritten(..)));
    assert!(c.is_reflected(&frame(G1, G2, 0x0800, &[])));
    assert_eq!(c.guests().count(), 0);
    let news: Vec<Update> = c.drain_updates().collect();
    assert_eq!(news, [Update::GuestMac { mac: G1 }]);
}

#[test]
fn replicas_know_the_same_guests_and_release_what_waits() {
    let (mut c, mut sibling) = (a(), a());
    sibling.set_stacked(true);
    teach(&mut sibling, b(), IP_B);
    assert_eq!(goes_to(&mut sibling, 0, IP1), None);
    sibling.drain_updates().for_each(|u| c.apply(T0, &u));
    let peer = c.neighbours().next().unwrap().mac;
    guest_answers(&mut c, 0, G1, IP1, peer);
    c.drain_updates().for_each(|u| sibling.apply(T0, &u));
    assert!(!sibling.has_updates());
    let released: Vec<_> = tap_frames(&mut sibling, 0);
    assert!(released.iter().any(|f| f[..6] == G1));
    // An answer a second later is published again, because a replica may have missed the first.
    guest_answers(&mut c, 100, G1, IP1, peer);
    assert!(!c.has_updates());
    guest_answers(&mut c, 1100, G1, IP1, peer);
    assert!(c.has_updates());
    peer_asks(&mut c, 1200, b(), IP1);
    c.drain_updates()
        .for_each(|u| sibling.apply(Time(1200), &u));
    assert_eq!((owner(&c, ip(IP1)), owner(&sibling, ip(IP1))), (None, None));
    assert_eq!(events(&mut sibling), []);
}

#[test]
fn guests_expire_and_the_expiry_is_reported() {
    let mut c = a();
    guest_asks(&mut c, 0, G1, IP1, IP_B);
    events(&mut c);
    assert_eq!(c.next_deadline(), Some(Time(1_800_000)));
    c.handle_timeout(Time(1_800_000));
    assert_eq!(events(&mut c), [Event::GuestForgotten { ip: ip(IP1) }]);
    assert_eq!(goes_to(&mut c, 1_800_000, IP1), Some(MAC_A));
    assert_eq!(c.next_deadline(), None);
}

#[test]
fn neighbours_are_reported_while_watched() {
    let mut c = a();
    teach(&mut c, b(), IP_B);
    assert!(!c.has_events());
    c.watch(true);
    let mac = teach(&mut c, address(0xb, 0x99), IP_B);
    teach(&mut c, address(0xb, 0x99), IP_B);
    let learned = Event::NeighbourLearned {
        address: address(0xb, 0x99),
        mac,
        ip: Some(ip(IP_B)),
    };
    let replaced = Event::NeighbourReplaced {
        old: b(),
        new: address(0xb, 0x99),
    };
    assert_eq!(events(&mut c), [learned, replaced]);
    for n in 0..63 {
        teach(&mut c, address(0xc, 100 + n), [10, 1, 0, n as u8]);
    }
    let forgotten = Event::NeighbourForgotten { address: b() };
    assert!(events(&mut c).contains(&forgotten));
}

#[test]
fn signed_neighbour_discovery_is_reported_once() {
    let (mut c, mut sibling) = (a(), a());
    let signed = icmpv6(
        "fe80::b",
        "ff02::1",
        &nd(136, "fe80::b", &[11, 1, 0, 0, 0, 0, 0, 0]),
    );
    let m = meta(b(), group(&c, "ff02::1"));
    for _ in 0..2 {
        receive(&mut c, &m, &payload(0x86dd, &signed)).unwrap();
    }
    c.drain_updates().for_each(|u| sibling.apply(T0, &u));
    receive(&mut sibling, &m, &payload(0x86dd, &signed)).unwrap();
    assert_eq!(events(&mut c), [Event::SignedNd]);
    assert_eq!(events(&mut sibling), []);
    assert_eq!(c.counters().nd_signed, 2);
}

#[test]
fn too_many_events_are_lost_and_counted() {
    let mut c = core(address(0xa, 0x4a), MAC_A);
    c.watch(true);
    for n in 0..2000u16 {
        let [hi, lo] = n.to_be_bytes();
        teach(&mut c, b(), [10, 1, hi, lo]);
    }
    assert_eq!(events(&mut c).len(), 1024);
    assert_eq!(c.counters().events_lost, 2000 - 1024);
}

#[test]
fn the_end_of_many_guests_at_once_is_reported_for_each() {
    const GUESTS: u16 = 3000;
    let mut c = a();
    for n in 0..GUESTS {
        let [hi, lo] = n.to_be_bytes();
        let ip = [10, 9, hi, lo];
        guest_asks(&mut c, 0, [2, 0, 0, 9, hi, lo], ip, ip);
    }
    while c.pop_event().is_some() {}
    let end = Time(10_000_000);
    let mut gone = 0;
    while c.next_deadline().is_some_and(|due| due <= end) {
        c.handle_timeout(end);
        let events = std::iter::from_fn(|| c.pop_event());
        gone += events
            .filter(|e| matches!(e, Event::GuestForgotten { .. }))
            .count();
    }
    assert_eq!((gone, c.guests().count()), (GUESTS.into(), 0));
}

/// A bridge was removed; the interface has its IP address now, with another MAC.
#[test]
fn a_guest_that_an_address_of_the_host_replaces_is_reported() {
    let config = a().config;
    let limits = Limits {
        guests: 1,
        ..config.limits
    };
    let mut c = Ipoib::new(Config { limits, ..config });
    let group = (group_mac_of("ff02::1"), "ff02::1");
    let claim = icmpv6("fe80::11", group.1, &nd(136, "fe80::11", &[]));
    send(&mut c, T0, &frame(group.0, G1, 0x86dd, &claim));
    assert_eq!(owner(&c, v6("fe80::11")), Some((G1, false)));
    events(&mut c);
    c.drain_updates().for_each(drop);
    c.host_has(T0, v6("fe80::a"));
    let ip = v6("fe80::11");
    assert_eq!(events(&mut c), [Event::GuestForgotten { ip }]);
    let updates: Vec<Update> = c.drain_updates().collect();
    assert!(
        matches!(updates[..], [Update::GuestForgotten { ip: gone }] if gone == ip),
        "{updates:?}"
    );
    assert_eq!(c.counters().guests_evicted, 1);
    assert_eq!(owner(&c, v6("fe80::a")), Some((MAC_A, false)));
}

#[test]
fn without_anything_stacked_there_are_no_guests() {
    let mut c = a();
    c.set_stacked(true);
    for (now, mac) in [(0, G1), (1, G2), (2, G1)] {
        guest_asks(&mut c, now, mac, IP1, IP1);
    }
    assert_eq!(goes_to(&mut c, 3, IP1), Some(G1));
    c.set_stacked(false);
    assert_eq!(c.guests().count(), 0);
    assert_eq!(goes_to(&mut c, 4, IP1), Some(MAC_A));
    let gone = |e: &Event| matches!(e, Event::GuestForgotten { .. });
    assert!(std::iter::from_fn(|| c.pop_event()).any(|e| gone(&e)));
}
