//! Announcements of guests.

use super::*;

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
    c.set_local(T0, address(0xa, 0x99));
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
    c.set_local(T0, address(0xa, 0x99));
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
    // Data is the occasion for a query, and for another one after a lost answer.
    for now in [1, 2_001] {
        discovers(&mut c, now, (peer, "fe80::b"), &[128, 0, 0, 0, 0, 0, 0, 0]);
        let asked = tap_frames(&mut c, now);
        assert_eq!((asked.len(), asked[0][54]), (1, 135));
    }
    discovers(&mut c, 2_002, (peer, "fe80::b"), &answer(0xe0));
    assert_eq!(advertised(&mut c, 2_002), [0xa0]);
    discovers(&mut c, 2_003, (peer, "fe80::b"), &answer(0xe0));
    assert!(advertised(&mut c, 2_003).is_empty());
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
    peer_advertises(&mut c, b(), "fd05::b");
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
    c.set_local(T0, address(0xa, 0x99));
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
        replica.set_local(T0, address(0xa, 0x99));
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
    sibling.set_local(T0, address(0xa, 0x99));
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
    c.set_local(T0, address(0xa, 0x99));
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

/// Gives the updates of one replica to another.
fn update(now: u64, from: &mut Ipoib, to: &mut Ipoib) {
    from.drain_updates().for_each(|u| to.apply(Time(now), &u));
}

/// The number of announcements after data of each guest. One replica reads the data at first, then the other one.
fn announced_by_both(guests: &[(Mac, [u8; 4])], c: &mut Ipoib, sibling: &mut Ipoib) -> [usize; 2] {
    update(0, c, sibling);
    let peer = teach(sibling, b(), IP_B);
    let announced = |now, replica: &mut Ipoib| {
        for (mac, ip) in guests {
            guest_data(replica, now, *mac, *ip, peer);
        }
        sent(replica, now).len()
    };
    let by_sibling = announced(30_000, sibling);
    update(30_000, sibling, c);
    [by_sibling, announced(31_000, c)]
}

/// One replica reads the guests' answers, and another one reads their other frames.
#[test]
fn c118_a_refused_announcement_is_made_up_for_by_the_replica_that_hears_the_guest() {
    let (mut c, mut sibling) = (a(), a());
    let peer = teach(&mut c, b(), IP_B);
    let guests = numbered(120);
    for (mac, ip) in &guests {
        guest_answers(&mut c, 0, *mac, *ip, peer);
    }
    assert_eq!(sent(&mut c, 0).len(), 100);
    let announced = announced_by_both(&guests, &mut c, &mut sibling);
    assert_eq!(announced, [20, 0]);
}

#[test]
fn c118_a_cancelled_announcement_is_made_up_for_by_the_replica_that_hears_the_guest() {
    let (mut c, mut sibling) = (a(), a());
    let guests = numbered(120);
    for (mac, ip) in &guests {
        guest_asks(&mut c, 0, *mac, *ip, *ip);
    }
    update(0, &mut c, &mut sibling);
    c.announce_guests(T0, T0);
    c.flush();
    let announced = announced_by_both(&guests, &mut c, &mut sibling);
    assert_eq!(announced, [100, 20]);
}

/// The other replica lost the update about the guest's claim.
#[test]
fn c118_a_hint_of_another_replica_does_not_replace_an_announcement() {
    let (mut c, mut sibling) = (a(), a());
    guest_asks(&mut c, 0, G1, IP1, IP_B);
    c.drain_updates().for_each(drop);
    c.set_local(T0, address(0xa, 0x99));
    let peer = teach(&mut sibling, b(), IP_B);
    guest_data(&mut sibling, 1000, G1, IP1, peer);
    update(1000, &mut sibling, &mut c);
    guest_data(&mut c, 2000, G1, IP1, peer);
    assert_eq!(sent(&mut c, 2000), [announcement(&c, IP1)]);
}

/// Perhaps the guests move to another host before the carrier returns.
#[test]
fn c118_guests_that_wait_when_the_carrier_goes_off_are_announced_when_they_are_heard() {
    let mut c = a();
    let peer = teach(&mut c, b(), IP_B);
    let guests = numbered(10);
    for (mac, ip) in &guests {
        guest_asks(&mut c, 0, *mac, *ip, *ip);
    }
    c.announce([10, 0, 0, 1].into(), false);
    c.announce_guests(T0, T0);
    assert_eq!(sent(&mut c, 0).len(), 2);
    c.postpone_announcements();
    assert!((20..1000).all(|now| sent(&mut c, now).is_empty()));
    // Announcements at the host's own request continue.
    assert_eq!(sent(&mut c, 1000), [announcement(&c, [10, 0, 0, 1])]);
    assert!((1001..3000).all(|now| sent(&mut c, now).is_empty()));
    for (mac, ip) in guests {
        guest_data(&mut c, 4000, mac, ip, peer);
        assert_eq!(sent(&mut c, 4000), [announcement(&c, ip)]);
    }
}

/// At most 768 announcements of guests are pending.
#[test]
fn c118_a_guest_beyond_the_pending_announcements_is_announced_when_it_is_heard() {
    let mut c = a();
    let peer = teach(&mut c, b(), IP_B);
    let guests = many_guests(&mut c);
    c.set_local(T0, address(0xa, 0x99));
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
    c.set_local(T0, address(0xa, 0x99));
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
