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
    let peer = teach(&mut c, b(), IP_B);
    peer_advertises(&mut c, b(), "fe80::b");
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

/// The source of the packet may be a host behind the peer, or forged: the guests must not note the peer's MAC for it.
#[test]
fn a_guest_is_asked_for_in_the_name_of_the_peer_itself() {
    let mut c = a();
    c.set_stacked(true);
    let from = [10, 7, 0, 9];
    let asked = |c: &mut Ipoib, now, to: [u8; 4]| {
        assert_eq!(arrive(c, now, 0x0800, &ipv4(from, to, b"")), None);
        let frames = tap_frames(c, now);
        let [question] = &frames[..] else {
            panic!("{frames:?}")
        };
        question.clone()
    };
    // The peer is known from data only.
    let mac = peer_mac(&b());
    let nobody = arp(1, &mac, [0; 4], &[0; 6], IP1);
    let nobody = frame(MAC_BROADCAST, mac, 0x0806, &nobody);
    assert_eq!(asked(&mut c, 0, IP1), nobody);
    let echo = icmpv6("fd07::9", "fd00::11", &[128, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(arrive(&mut c, 0, 0x86dd, &echo), None);
    let of_mac = crate::own::nobody(mac, v6("::")).to_string();
    let solicitation = nd(135, "fd00::11", &mac_option(1, mac));
    let solicitation = icmpv6(&of_mac, "ff02::1:ff00:11", &solicitation);
    let to = group_mac_of("ff02::1:ff00:11");
    let solicitation = frame(to, mac, 0x86dd, &solicitation);
    assert_eq!(tap_frames(&mut c, 0), [solicitation]);
    // The answer has no address of the peer either.
    let reply = arp(2, &G1, IP1, &mac, [0; 4]);
    send(&mut c, Time(1), &frame(mac, G1, 0x0806, &reply));
    let released = frame(G1, mac, 0x0800, &ipv4(from, IP1, b""));
    assert_eq!(tap_frames(&mut c, 1), [released]);
    // An address of the peer is known.
    for ip in [[10, 7, 0, 1], IP_B] {
        teach(&mut c, b(), ip);
    }
    let question = arp(1, &mac, IP_B, &[0; 6], IP2);
    let question = frame(MAC_BROADCAST, mac, 0x0806, &question);
    assert_eq!(asked(&mut c, 2, IP2), question);
    // The address of another peer, which data from this one has.
    teach(&mut c, address(0xc, 0x4c), from);
    let third = [10, 7, 0, 13];
    let question = arp(1, &mac, [10, 7, 0, 1], &[0; 6], third);
    let question = frame(MAC_BROADCAST, mac, 0x0806, &question);
    assert_eq!(asked(&mut c, 3, third), question);
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
