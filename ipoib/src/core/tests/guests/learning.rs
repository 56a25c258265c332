//! Learning of guests, and its announcement.

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

/// A guest's neighbour discovery from fe80::11 to `to`.
fn discovers(c: &mut Ipoib, now: u64, to: (Mac, &str), message: &[u8]) {
    let packet = icmpv6("fe80::11", to.1, message);
    send(c, Time(now), &frame(to.0, G1, 0x86dd, &packet));
}

/// The flags of the advertisements of fe80::11 that the core sends to the fabric.
fn advertised(c: &mut Ipoib, now: u64) -> Vec<u8> {
    let packets = sent(c, now);
    let ours = packets.iter().filter(|p| p[44] == 136);
    ours.map(|p| p[48]).collect()
}

fn answer(flags: u8) -> Vec<u8> {
    let mut message = nd(136, "fe80::11", &mac_option(2, G1));
    message[4] = flags;
    message
}

#[test]
fn c125_the_address_of_a_guest_that_is_a_router_is_announced_as_such() {
    let (mut c, mut sibling) = (a(), a());
    let all = (group_mac_of("ff02::1"), "ff02::1");
    let ra = [134, 0, 0, 0, 64, 0, 7, 8, 0, 0, 0, 0, 0, 0, 0, 0];
    discovers(&mut c, 0, all, &ra);
    assert_eq!(advertised(&mut c, 0), [0xa0]);
    c.drain_updates().for_each(|u| sibling.apply(T0, &u));
    // The replicas know it, too.
    let peer = teach(&mut sibling, b(), IP_B);
    discovers(&mut sibling, 10, (peer, "fe80::b"), &answer(0xe0));
    assert!(advertised(&mut sibling, 10).is_empty());
}

#[test]
fn c118_guests_are_announced_when_the_address_changes() {
    let mut c = a();
    let peer = teach(&mut c, b(), IP_B);
    guest_asks(&mut c, 0, G1, IP1, IP_B);
    guest_data(&mut c, 0, G2, IP2, peer);
    c.set_local(address(0xa, 0x99));
    assert!(sent(&mut c, 1).is_empty());
    c.announce_guests(Time(1), T0);
    // No hints.
    let one = announcement(&c, IP1);
    assert_eq!(sent(&mut c, 1), std::slice::from_ref(&one));
    assert_eq!(sent(&mut c, 1001), [one]);
    // The host's announcement is not replaced.
    c.announce(ip(IP1), false);
    c.announce_guests(Time(2000), T0);
    assert!(sent(&mut c, 2000).contains(&announcement(&c, IP1)));
    let [next, last] = [2020, 5000].map(|now| sent(&mut c, now).len());
    assert_eq!((next, last), (0, 1));
    // An address that the host gave up is no guest's either.
    c.withdraw(ip(IP1));
    c.announce_guests(Time(6000), T0);
    assert!(sent(&mut c, 6000).is_empty());
}

/// Hosts of a VLAN, ipvlans, macvlans in passthru mode.
#[test]
fn c118_hosts_with_the_interfaces_mac_are_announced_when_the_address_changes() {
    let mut c = a();
    c.set_stacked(true);
    guest_asks(&mut c, 0, MAC_A, IP2, IP_B);
    c.set_local(address(0xa, 0x99));
    c.announce_guests(Time(1), T0);
    assert_eq!(sent(&mut c, 1), [announcement(&c, IP2)]);
}

/// Peers may know the address at a queue pair from before a restart. The daemon does not know the address.
#[test]
fn hosts_with_the_interfaces_mac_are_announced_when_they_are_found() {
    let mut c = a();
    c.set_stacked(true);
    let peer = teach(&mut c, b(), IP_B);
    guest_answers(&mut c, 0, MAC_A, IP2, peer);
    assert_eq!(sent(&mut c, 0), [announcement(&c, IP2)]);
}

/// MACs and addresses of guests.
fn numbered(count: u16) -> Vec<(Mac, [u8; 4])> {
    let numbers = (0..count).map(u16::to_be_bytes);
    let all = numbers.map(|[hi, lo]| ([2, 0, 0, 9, hi, lo], [10, 9, hi, lo]));
    all.collect()
}

/// A thousand guests announce themselves.
fn many_guests(c: &mut Ipoib) -> Vec<(Mac, [u8; 4])> {
    let all = numbered(1000);
    for (mac, ip) in &all {
        guest_asks(c, 0, *mac, *ip, *ip);
    }
    all
}

#[test]
fn c118_many_guests_are_announced_one_after_the_other() {
    let mut c = a();
    many_guests(&mut c);
    c.announce_guests(T0, T0);
    let seconds = (0..20).map(|second| {
        let moments = (second * 1000..(second + 1) * 1000).step_by(10);
        moments.map(|now| sent(&mut c, now).len()).sum::<usize>()
    });
    let seconds: Vec<usize> = seconds.collect();
    assert!(seconds.iter().all(|sent| *sent <= 101), "{seconds:?}");
    assert_eq!(seconds.iter().sum::<usize>(), 2 * 768);
    c.announce([10, 0, 0, 1].into(), false);
    assert_eq!(sent(&mut c, 20_000).len(), 1);
}

#[test]
fn c125_an_address_is_announced_when_its_router_flag_is_known() {
    let mut c = a();
    let peer = teach(&mut c, b(), IP_B);
    let group = (group_mac_of("ff02::1:ff00:b"), "ff02::1:ff00:b");
    discovers(&mut c, 0, group, &nd(135, "fe80::b", &mac_option(1, G1)));
    assert_eq!(owner(&c, v6("fe80::11")), Some((G1, false)));
    assert!(advertised(&mut c, 0).is_empty());
    // Data is the occasion for a query.
    discovers(&mut c, 1, (peer, "fe80::b"), &[128, 0, 0, 0, 0, 0, 0, 0]);
    let asked = tap_frames(&mut c, 1);
    assert_eq!((asked.len(), asked[0][54]), (1, 135));
    discovers(&mut c, 2, (peer, "fe80::b"), &answer(0xe0));
    assert_eq!(advertised(&mut c, 2), [0xa0]);
    discovers(&mut c, 3, (peer, "fe80::b"), &answer(0xe0));
    assert!(advertised(&mut c, 3).is_empty());
    let updates: Vec<Update> = c.drain_updates().collect();
    let known = |u: &Update| matches!(u, Update::Guest { router, .. } if *router == Some(true));
    assert!(updates.iter().any(known));
}

/// A query before the move does not delay the one for the Router flag.
#[test]
fn c125_a_guest_that_comes_from_a_peer_is_asked_for_its_router_flag_at_once() {
    let mut c = a();
    let (peer, former) = (teach(&mut c, b(), IP_B), address(0xc, 0x4c));
    let claim = nd(136, "fe80::11", &ib_option(2, former));
    let claim = payload(0x86dd, &icmpv6("fe80::11", "fe80::a", &claim));
    let to = c.local().gid();
    receive(&mut c, &meta(former, to), &claim).unwrap();
    let data = [128, 0, 0, 0, 0, 0, 0, 0];
    discovers(&mut c, 10, (peer, "fe80::b"), &data);
    assert_eq!(tap_frames(&mut c, 10).len(), 1);
    let group = (group_mac_of("ff02::1:ff00:b"), "ff02::1:ff00:b");
    discovers(&mut c, 20, group, &nd(135, "fe80::b", &mac_option(1, G1)));
    assert_eq!(owner(&c, v6("fe80::11")), Some((G1, false)));
    assert!(advertised(&mut c, 20).is_empty());
    discovers(&mut c, 30, (peer, "fe80::b"), &data);
    let asked = tap_frames(&mut c, 30);
    assert!(asked.iter().any(|f| f[54] == 135), "{asked:?}");
    discovers(&mut c, 31, (peer, "fe80::b"), &answer(0xe0));
    assert_eq!(advertised(&mut c, 31), [0xa0]);
}

/// A host of a VLAN: its frames have the interface's MAC.
#[test]
fn c125_the_router_flag_of_the_interfaces_own_addresses_is_asked_for() {
    let mut c = a();
    c.set_stacked(true);
    let peer = teach(&mut c, b(), IP_B);
    let group = group_mac_of("ff02::1:ff00:b");
    let question = icmpv6(
        "fd05::1",
        "ff02::1:ff00:b",
        &nd(135, "fd05::b", &mac_option(1, MAC_A)),
    );
    send(&mut c, T0, &frame(group, MAC_A, 0x86dd, &question));
    assert_eq!(owner(&c, v6("fd05::1")), Some((MAC_A, false)));
    let data = |source| {
        let echo = icmpv6(source, "fd05::b", &[128, 0, 0, 0, 0, 0, 0, 0]);
        frame(peer, MAC_A, 0x86dd, &echo)
    };
    send(&mut c, Time(1), &data("fd05::1"));
    let solicitation = nd(135, "fd05::1", &mac_option(1, peer));
    let solicitation = icmpv6("fd05::b", "ff02::1:ff00:1", &solicitation);
    let solicitation = frame(group_mac_of("ff02::1:ff00:1"), peer, 0x86dd, &solicitation);
    assert_eq!(tap_frames(&mut c, 1), [solicitation]);
    // The host may route for any other address.
    send(&mut c, Time(2), &data("fd05::99"));
    assert!(tap_frames(&mut c, 2).is_empty());
    let mut answer = nd(136, "fd05::1", &mac_option(2, MAC_A));
    answer[4] = 0xe0;
    let answer = icmpv6("fd05::1", "fd05::b", &answer);
    send(&mut c, Time(3), &frame(peer, MAC_A, 0x86dd, &answer));
    assert_eq!(advertised(&mut c, 3), [0xa0]);
    c.set_local(address(0xa, 0x99));
    c.announce_guests(Time(4), T0);
    assert_eq!(advertised(&mut c, 4), [0xa0]);
    send(&mut c, Time(200_000), &data("fd05::1"));
    assert!(tap_frames(&mut c, 200_000).is_empty());
}

/// The guests may have moved to another host meanwhile, and their announcements there were not received.
#[test]
fn c118_a_guest_is_announced_after_an_outage_when_it_is_heard() {
    let (mut c, mut sibling) = (a(), a());
    teach(&mut c, b(), IP_B);
    guest_asks(&mut c, 0, G1, IP1, IP_B);
    guest_asks(&mut c, 0, MAC_A, IP2, IP_B);
    c.drain_updates().for_each(|u| sibling.apply(T0, &u));
    for replica in [&mut c, &mut sibling] {
        replica.flush();
        replica.set_local(address(0xa, 0x99));
    }
    c.announce_guests(Time(60_000), Time(60_000));
    assert!(sent(&mut c, 60_000).is_empty());
    let peer = teach(&mut c, b(), IP_B);
    for (mac, from) in [(G1, IP1), (MAC_A, IP2)] {
        guest_data(&mut c, 61_000, mac, from, peer);
        assert_eq!(sent(&mut c, 61_000), [announcement(&c, from)]);
        guest_data(&mut c, 63_000, mac, from, peer);
        assert!(sent(&mut c, 63_000).is_empty());
    }
    // The other replicas know it.
    c.drain_updates()
        .for_each(|u| sibling.apply(Time(63_000), &u));
    teach(&mut sibling, b(), IP_B);
    guest_data(&mut sibling, 65_000, G1, IP1, peer);
    assert!(sent(&mut sibling, 65_000).is_empty());
}

/// The replica that reads the guest's frames announces the guest; a broadcast needs no announcement.
#[test]
fn c118_each_replica_announces_the_guests_that_it_hears() {
    let (mut c, mut sibling) = (a(), a());
    for (mac, ip) in [(G1, IP1), (G2, IP2)] {
        guest_asks(&mut c, 0, mac, ip, IP_B);
    }
    c.drain_updates().for_each(|u| sibling.apply(T0, &u));
    let peer = teach(&mut sibling, b(), IP_B);
    sibling.set_local(address(0xa, 0x99));
    guest_data(&mut sibling, 61_000, G1, IP1, peer);
    guest_asks(&mut sibling, 61_000, G2, IP2, IP_B);
    let one = announcement(&sibling, IP1);
    assert_eq!(sent(&mut sibling, 61_000), [one]);
}

/// At most 100 guests are announced in a second.
#[test]
fn c118_a_guest_whose_announcement_is_refused_is_announced_when_it_is_heard_again() {
    let mut c = a();
    let peer = teach(&mut c, b(), IP_B);
    let guests = numbered(150);
    for (mac, ip) in guests.clone() {
        guest_asks(&mut c, 0, mac, ip, ip);
    }
    c.set_local(address(0xa, 0x99));
    for (now, expected) in [(61_000, 100), (63_000, 50), (65_000, 0)] {
        for (mac, ip) in guests.clone() {
            guest_data(&mut c, now, mac, ip, peer);
        }
        assert_eq!(sent(&mut c, now).len(), expected);
    }
}

/// A host has failed, or this host has restarted: many guests are new at once. Not all changes of owner are counted.
#[test]
fn many_guests_that_are_found_at_once_are_all_announced() {
    for (is_from_peer, repeated) in [(true, 100), (false, 0)] {
        let mut c = Ipoib::new(Config {
            limits: Limits::default(),
            ..a().config
        });
        let guests = numbered(300);
        for (_, ip) in guests.iter().filter(|_| is_from_peer) {
            teach(&mut c, b(), *ip);
        }
        let peer = teach(&mut c, b(), IP_B);
        for (mac, ip) in guests.clone() {
            guest_answers(&mut c, 0, mac, ip, peer);
        }
        assert_eq!(sent(&mut c, 0).len(), 100);
        assert_eq!(sent(&mut c, 1000).len(), repeated);
        for (now, expected) in [(2000, 100), (4000, 100), (6000, 0)] {
            for (mac, ip) in guests.clone() {
                guest_data(&mut c, now, mac, ip, peer);
            }
            assert_eq!(sent(&mut c, now).len(), expected);
        }
    }
}

/// At most 768 announcements of guests are pending.
#[test]
fn c118_a_guest_beyond_the_pending_announcements_is_announced_when_it_is_heard() {
    let mut c = a();
    let peer = teach(&mut c, b(), IP_B);
    let guests = many_guests(&mut c);
    c.set_local(address(0xa, 0x99));
    c.announce_guests(Time(60_000), T0);
    let all = (60_000..80_000)
        .step_by(10)
        .flat_map(|now| sent(&mut c, now));
    let all: Vec<_> = all.collect();
    let missing = |c: &Ipoib, ip| !all.contains(&announcement(c, ip));
    let (mac, ip) = guests.into_iter().find(|(_, ip)| missing(&c, *ip)).unwrap();
    guest_data(&mut c, 90_000, mac, ip, peer);
    assert_eq!(sent(&mut c, 90_000), [announcement(&c, ip)]);
}

/// One guest sends after the change of the address, the other does not.
#[test]
fn c118_guests_whose_announcement_a_flush_cancels_are_announced_when_they_are_heard() {
    let mut c = a();
    let peer = teach(&mut c, b(), IP_B);
    for (mac, ip) in [(G1, IP1), (G2, IP2)] {
        guest_asks(&mut c, 0, mac, ip, IP_B);
    }
    c.set_local(address(0xa, 0x99));
    c.announce_guests(Time(1000), T0);
    guest_data(&mut c, 1500, G2, IP2, peer);
    c.flush();
    assert!(sent(&mut c, 4000).is_empty());
    let peer = teach(&mut c, b(), IP_B);
    for (mac, ip) in [(G1, IP1), (G2, IP2)] {
        guest_data(&mut c, 4000, mac, ip, peer);
        assert_eq!(sent(&mut c, 4000), [announcement(&c, ip)]);
        guest_data(&mut c, 6000, mac, ip, peer);
    }
    // No announcement was pending.
    c.flush();
    let peer = teach(&mut c, b(), IP_B);
    guest_data(&mut c, 8000, G1, IP1, peer);
    assert!(sent(&mut c, 8000).is_empty());
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
