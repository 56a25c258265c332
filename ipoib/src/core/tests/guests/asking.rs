//! Searches for guests: packets from the fabric wait meanwhile.

use super::*;

#[test]
fn unknown_guest_is_asked_for_and_packets_wait() {
    let mut c = a();
    c.set_stacked(true);
    let peer = teach(&mut c, b(), IP_B);
    for n in 0..3 {
        assert_eq!(arrive(&mut c, 0, 0x0800, &ipv4(IP_B, IP1, &[n])), None);
    }
    let m = meta(b(), c.local().gid());
    let fourth = payload(0x0800, &ipv4(IP_B, IP1, b"4"));
    assert_eq!(
        c.from_fabric(T0, &m, &fourth),
        Incoming::Dropped(DropReason::HoldFull)
    );
    let question = frame(
        MAC_BROADCAST,
        peer,
        0x0806,
        &arp(1, &peer, IP_B, &[0; 6], IP1),
    );
    assert_eq!(tap_frames(&mut c, 0), [question]);
    assert_eq!(c.next_deadline(), Some(Time(250)));
    guest_answers(&mut c, 100, G1, IP1, peer);
    let got = tap_frames(&mut c, 100);
    assert_eq!(got.len(), 3);
    for (n, f) in got.iter().enumerate() {
        let packet = ipv4(IP_B, IP1, &[n as u8]);
        assert_eq!(*f, frame(G1, peer, 0x0800, &packet));
    }
    assert_eq!(goes_to(&mut c, 100, IP1), Some(G1));
}

#[test]
fn unknown_ipv6_guest_is_solicited() {
    let mut c = a();
    c.set_stacked(true);
    teach(&mut c, b(), IP_B);
    let peer = c.neighbours().next().unwrap().mac;
    let echo = icmpv6("fe80::b", "fe80::11", &[128, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(arrive(&mut c, 0, 0x86dd, &echo), None);
    let question = icmpv6(
        "fe80::b",
        "ff02::1:ff00:11",
        &nd(135, "fe80::11", &mac_option(1, peer)),
    );
    let f = frame(group_mac_of("ff02::1:ff00:11"), peer, 0x86dd, &question);
    assert_eq!(tap_frames(&mut c, 0), [f]);
    let answer = nd(136, "fe80::11", &mac_option(2, G1));
    let na = icmpv6("fe80::11", "fe80::b", &answer);
    send(&mut c, Time(1), &frame(peer, G1, 0x86dd, &na));
    assert_eq!(tap_frames(&mut c, 1), [frame(G1, peer, 0x86dd, &echo)]);
}

#[test]
fn packets_for_an_unanswered_address_go_to_the_host_for_a_minute() {
    let mut c = a();
    c.set_stacked(true);
    teach(&mut c, b(), IP_B);
    assert_eq!(goes_to(&mut c, 0, IP1), None);
    let mut questions = tap_frames(&mut c, 0).len();
    c.handle_timeout(Time(250));
    questions += tap_frames(&mut c, 250).len();
    assert_eq!(questions, 2);
    c.handle_timeout(Time(500));
    let released = tap_frames(&mut c, 500);
    assert_eq!((released.len(), &released[0][..6]), (1, &MAC_A[..]));
    assert_eq!(goes_to(&mut c, 30_000, IP1), Some(MAC_A));
    assert_eq!(c.guests().count(), 0);
    c.handle_timeout(Time(60_500));
    assert_eq!(goes_to(&mut c, 60_500, IP1), None);
    // Without a source address there is no query.
    let f = arrive(&mut c, 0, 0x0800, &ipv4([0; 4], IP2, b"")).unwrap();
    assert_eq!(f[..6], MAC_A);
    assert!(events(&mut c).is_empty());
}

/// Linux takes a gratuitous reply for one only if both hardware addresses are equal (`arp_is_garp` in
/// net/ipv4/arp.c). It ignores any other reply within a second after the last one (`locktime`).
#[test]
fn a_guests_gratuitous_reply_stays_gratuitous() {
    let mut c = a();
    let local = c.local();
    for (ethertype, operation) in [(0x0806, 2), (0x8035, 3)] {
        let request = arp(operation, &G1, IP1, &G1, IP1);
        assert_eq!(
            send(&mut c, T0, &frame(MAC_BROADCAST, G1, ethertype, &request)),
            Sent::Rewritten(
                c.broadcast_mgid(),
                Qpn::MULTICAST,
                payload(ethertype, &arp(operation, &local.0, IP1, &local.0, IP1))
            )
        );
    }
    let reply = payload(0x0806, &arp(2, &b().0, IP_B, &b().0, IP_B));
    let group = c.broadcast_mgid();
    let f = receive(&mut c, &meta(b(), group), &reply).unwrap();
    let peer = peer_mac(&b());
    let expected = arp(2, &peer, IP_B, &peer, IP_B);
    assert_eq!(f, frame(MAC_BROADCAST, peer, 0x0806, &expected));
}

/// The interface stands for all its guests: a router among them may name another one.
#[test]
fn a_guests_redirect_names_another_guest() {
    let mut c = a();
    let peer = teach(&mut c, b(), IP_B);
    for (guest, ip) in [(G1, IP1), (G2, IP2)] {
        guest_asks(&mut c, 0, guest, ip, IP_B);
    }
    let mut redirect = nd(137, "fe80::12", &[]);
    redirect.extend_from_slice(&"2001:db8::9".parse::<Ipv6Addr>().unwrap().octets());
    let with = |option: Vec<u8>| icmpv6("fe80::11", "fe80::b", &[&redirect[..], &option].concat());
    let ethernet = with(mac_option(2, G2));
    assert_eq!(
        send(&mut c, T0, &frame(peer, G1, 0x86dd, &ethernet)),
        Sent::Rewritten(
            b().gid(),
            b().qpn(),
            payload(0x86dd, &with(ib_option(2, c.local())))
        )
    );
}

#[test]
fn arp_from_the_fabric_names_the_guest() {
    let mut c = a();
    let peer = teach(&mut c, b(), IP_B);
    guest_asks(&mut c, 0, G1, IP1, IP_B);
    let local = c.local();
    let reply = arp(2, &b().0, IP_B, &local.0, IP1);
    let f = arrive(&mut c, 0, 0x0806, &reply).unwrap();
    assert_eq!(f, frame(G1, peer, 0x0806, &arp(2, &peer, IP_B, &G1, IP1)));
    let probe = arp(1, &b().0, IP_B, &[0; 20], IP1);
    let f = arrive(&mut c, 0, 0x0806, &probe).unwrap();
    assert_eq!(
        f,
        frame(G1, peer, 0x0806, &arp(1, &peer, IP_B, &[0; 6], IP1))
    );
    // An unknown guest answers a broadcast.
    let probe = arp(1, &b().0, IP_B, &[0; 20], IP2);
    assert_eq!(
        arrive(&mut c, 0, 0x0806, &probe).unwrap()[..6],
        MAC_BROADCAST
    );
    // The destination address selects the receiver of unicast neighbour discovery.
    send(
        &mut c,
        T0,
        &frame(
            group_mac_of("ff02::1"),
            G1,
            0x86dd,
            &icmpv6(
                "fe80::11",
                "ff02::1",
                &nd(136, "fe80::11", &mac_option(2, G1)),
            ),
        ),
    );
    let na = icmpv6(
        "fe80::b",
        "fe80::11",
        &nd(136, "fe80::b", &ib_option(2, b())),
    );
    assert_eq!(arrive(&mut c, 0, 0x86dd, &na).unwrap()[..6], G1);
}

#[test]
fn answer_to_a_guests_probe_finds_it() {
    let (mut c, mut sibling) = (a(), a());
    sibling.set_stacked(true);
    teach(&mut c, b(), IP_B);
    assert!(matches!(
        guest_asks(&mut c, 0, G1, [0; 4], IP_B),
        Sent::Rewritten(..)
    ));
    assert_eq!(c.guests().count(), 0);
    let news: Vec<Update> = c.drain_updates().collect();
    let local = c.local();
    let defence = arp(2, &b().0, IP_B, &local.0, [0; 4]);
    let f = arrive(&mut c, 100, 0x0806, &defence).unwrap();
    assert_eq!((&f[..6], &f[32..38]), (&G1[..], &G1[..]));
    news.iter().for_each(|u| sibling.apply(T0, u));
    let f = arrive(&mut sibling, 100, 0x0806, &defence).unwrap();
    assert_eq!((&f[..6], &f[32..38]), (&G1[..], &G1[..]));
    assert!(!sibling.has_updates());
}

/// A packet capture makes the interface promiscuous, as a macvlan does. Packets for the host do not wait.
#[test]
fn packets_for_the_host_do_not_wait_when_something_is_stacked() {
    let mut c = a();
    c.host_has(T0, ip([10, 0, 0, 1]));
    assert_eq!(c.guests().count(), 1);
    c.set_stacked(true);
    for now in 0..10 {
        assert_eq!(goes_to(&mut c, now, [10, 0, 0, 1]), Some(MAC_A));
    }
    assert_eq!(goes_to(&mut c, 10, IP1), None);
    c.set_stacked(false);
    assert_eq!(c.guests().count(), 0);
}
