//! Guests behind the interface: a bridge's other ports.

use super::*;
use crate::Event;

const G1: Mac = [0x52, 0x54, 0, 0, 0, 1];
const G2: Mac = [0x52, 0x54, 0, 0, 0, 2];
const IP1: [u8; 4] = [10, 0, 0, 11];
const IP2: [u8; 4] = [10, 0, 0, 12];
/// The peer and its address.
const IP_B: [u8; 4] = [10, 0, 0, 2];

fn b() -> HardwareAddress {
    address(0xb, 0x4b)
}

fn ip(octets: [u8; 4]) -> IpAddr {
    octets.into()
}

fn v6(text: &str) -> IpAddr {
    text.parse().unwrap()
}

/// A guest asks everybody for `tpa`; with `tpa` its own, that is a gratuitous request.
fn guest_asks(c: &mut Ipoib, now: u64, mac: Mac, spa: [u8; 4], tpa: [u8; 4]) -> Sent {
    let request = arp(1, &mac, spa, &[0; 6], tpa);
    send(c, Time(now), &frame(MAC_BROADCAST, mac, 0x0806, &request))
}

/// A guest answers a peer.
fn guest_answers(c: &mut Ipoib, now: u64, mac: Mac, spa: [u8; 4], peer: Mac) -> Sent {
    let reply = arp(2, &mac, spa, &peer, IP_B);
    send(c, Time(now), &frame(peer, mac, 0x0806, &reply))
}

fn guest_data(c: &mut Ipoib, now: u64, mac: Mac, src: [u8; 4], peer: Mac) -> Sent {
    let f = frame(peer, mac, 0x0800, &ipv4(src, IP_B, b"data"));
    send(c, Time(now), &f)
}

/// The peer asks everybody, so that it has `ip`.
fn peer_asks(c: &mut Ipoib, now: u64, peer: HardwareAddress, ip: [u8; 4]) {
    let p = payload(0x0806, &arp(1, &peer.0, ip, &[0; 20], [10, 0, 0, 99]));
    let m = meta(peer, c.broadcast_mgid());
    assert!(matches!(
        c.from_fabric(Time(now), &m, &p),
        Incoming::Frame(_)
    ));
}

/// What a unicast packet from the peer becomes; `None` when it is held.
fn arrive(c: &mut Ipoib, now: u64, ethertype: u16, l3: &[u8]) -> Option<Vec<u8>> {
    let m = meta(b(), c.local().gid());
    let p = payload(ethertype, l3);
    match c.from_fabric(Time(now), &m, &p) {
        Incoming::Packet { ethernet, l3 } => Some([&ethernet[..], l3].concat()),
        Incoming::Frame(f) => Some(f.to_vec()),
        Incoming::Held => None,
        other => panic!("{other:?}"),
    }
}

/// The Ethernet destination of data from the peer to `dst`.
fn goes_to(c: &mut Ipoib, now: u64, dst: [u8; 4]) -> Option<Mac> {
    let f = arrive(c, now, 0x0800, &ipv4(IP_B, dst, b"data"))?;
    Some(f[..6].try_into().unwrap())
}

fn tap_frames(c: &mut Ipoib, now: u64) -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    while let Some(f) = c.poll_tap(Time(now)) {
        all.push(f.to_vec());
    }
    all
}

/// What is sent on the fabric of our own accord.
fn sent(c: &mut Ipoib, now: u64) -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    while let Some((_, p)) = c.poll_transmit(Time(now)) {
        all.push(p.to_vec());
    }
    all
}

fn events(c: &mut Ipoib) -> Vec<Event> {
    std::iter::from_fn(|| c.pop_event()).collect()
}

fn announcement(c: &Ipoib, ip: [u8; 4]) -> Vec<u8> {
    payload(0x0806, &arp(1, &c.local().0, ip, &[0; 20], ip))
}

fn owner(c: &Ipoib, ip: IpAddr) -> Option<(Mac, bool)> {
    c.guests().find(|g| g.ip == ip).map(|g| (g.mac, g.weak))
}

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
    // A broadcast of the guest's own has told the link.
    assert!(sent(&mut c, 0).is_empty());
    // The host itself is learned like a guest, now that there is one.
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
    // Its option says another address than the frame's: the option counts.
    send(&mut c, T0, &ns("fe80::12", G2));
    assert_eq!(owner(&c, v6("fe80::12")), Some((G2, false)));
    let na = icmpv6("fe80::13", "ff02::1", &nd(136, "fd00::13", &[]));
    send(&mut c, T0, &frame(group_mac_of("ff02::1"), G1, 0x86dd, &na));
    assert_eq!(owner(&c, v6("fd00::13")), Some((G1, false)));
    let rs = icmpv6("fe80::14", "ff02::2", &[133, 0, 0, 0, 0, 0, 0, 0]);
    send(&mut c, T0, &frame(group_mac_of("ff02::2"), G1, 0x86dd, &rs));
    assert_eq!(owner(&c, v6("fe80::14")), Some((G1, false)));
    // Neither a wrong checksum nor a router's hop teaches more than data does.
    for (at, host) in [(43, "fe80::15"), (7, "fe80::16")] {
        let mut f = ns(host, G1);
        f[14 + at] ^= 1;
        send(&mut c, T0, &f);
        assert_eq!(owner(&c, v6(host)), Some((G1, true)));
    }
    // Nor does a tentative address.
    let dad = icmpv6("::", "ff02::1:ff00:17", &nd(135, "fe80::17", &[]));
    send(&mut c, T0, &frame(group, G1, 0x86dd, &dad));
    assert_eq!(c.guests().count(), 6);
}

fn group_mac_of(group: &str) -> Mac {
    crate::group_mac(group.parse().unwrap())
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
    // Nothing is told of a hint; what the guest answers is, since the link may know us by another
    // queue pair.
    assert!(sent(&mut c, 0).is_empty());
    guest_answers(&mut c, 5, G1, IP1, peer);
    assert_eq!(owner(&c, ip(IP1)), Some((G1, false)));
    assert_eq!(sent(&mut c, 5), [announcement(&c, IP1)]);
    assert!(sent(&mut c, 5000).is_empty());
    // Data of another guest, which routes: no change while the owner is heard of.
    guest_data(&mut c, 2000, G2, IP1, peer);
    assert_eq!(owner(&c, ip(IP1)), Some((G1, false)));
    assert_eq!(tap_frames(&mut c, 2000).len(), 1);
    guest_data(&mut c, 3500, G2, IP1, peer);
    assert!(tap_frames(&mut c, 3500).is_empty());
    guest_data(&mut c, 70_000, G2, IP1, peer);
    assert_eq!(owner(&c, ip(IP1)), Some((G2, true)));
}

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
fn what_nobody_answers_for_goes_to_the_host_for_a_minute() {
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
    // In nobody's name nobody is asked.
    let f = arrive(&mut c, 0, 0x0800, &ipv4([0; 4], IP2, b"")).unwrap();
    assert_eq!(f[..6], MAC_A);
    assert!(events(&mut c).is_empty());
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
    // A guest that we do not know answers to a broadcast.
    let probe = arp(1, &b().0, IP_B, &[0; 20], IP2);
    assert_eq!(
        arrive(&mut c, 0, 0x0806, &probe).unwrap()[..6],
        MAC_BROADCAST
    );
    // Unicast neighbour discovery goes by the destination.
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

#[test]
fn flooded_frames_for_guests_do_not_reach_the_fabric() {
    let mut c = a();
    teach(&mut c, b(), IP_B);
    guest_asks(&mut c, 0, G1, IP1, IP_B);
    guest_asks(&mut c, 0, G2, IP2, IP_B);
    let data = ipv4(IP1, IP2, b"");
    for destination in [G2, [2, 9, 9, 9, 9, 9]] {
        let f = frame(destination, G1, 0x0800, &data);
        assert_eq!(send(&mut c, T0, &f), Sent::Dropped(DropReason::ToGuest));
        let f = frame(destination, G1, 0x0806, &arp(1, &G1, IP1, &[0; 6], IP2));
        assert_eq!(send(&mut c, T0, &f), Sent::Dropped(DropReason::ToGuest));
    }
    let unknown = frame(G2, G1, 0x0800, &ipv4(IP1, [10, 0, 0, 77], b""));
    assert_eq!(
        send(&mut c, T0, &unknown),
        Sent::Dropped(DropReason::ToGuest)
    );
    assert_eq!(c.counters().tx_dropped(DropReason::ToGuest), 5);
    assert_eq!(c.counters().frames_held, 0);
    assert!(c.is_reflected(&frame(G2, G1, 0x0800, &data)));
    assert!(c.is_reflected(&frame(MAC_BROADCAST, G1, 0x0800, &data)));
    assert!(!c.is_reflected(&frame([2, 9, 9, 9, 9, 9], G1, 0x0800, &data)));
    assert!(!c.is_reflected(&[0x52]));
}

#[test]
fn c57_a_guest_and_a_peer_never_share_an_address() {
    let (mut c, mut sibling) = (a(), a());
    let peer = teach(&mut c, b(), IP_B);
    teach(&mut sibling, b(), IP_B);
    c.drain_updates()
        .chain(sibling.drain_updates())
        .for_each(drop);
    // The guest's own probe shows its address, which is the peer's.
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
    // The host side is told where the peer's address is now.
    let correction = frame(
        MAC_BROADCAST,
        other,
        0x0806,
        &arp(1, &other, IP_B, &[0; 6], IP_B),
    );
    assert_eq!(c.next_deadline(), Some(T0));
    assert_eq!(tap_frames(&mut c, 0), [correction]);
    // Both are served under their own addresses, by every replica.
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
    // A peer that appears later under that address gets another at once; so does one that a
    // sibling wishes it for.
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
    let told: Vec<Update> = late.drain_updates().collect();
    assert_eq!(
        told,
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
    let mut advertisement = nd(136, "fe80::b", &mac_option(2, other));
    advertisement[4] = 0x20;
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
fn a_peers_own_frame_that_comes_back_is_dropped() {
    let mut c = a();
    let peer = teach(&mut c, b(), IP_B);
    let request = arp(1, &peer, IP_B, &[0; 6], IP1);
    let f = frame(MAC_BROADCAST, peer, 0x0806, &request);
    assert_eq!(send(&mut c, T0, &f), Sent::Dropped(DropReason::Looped));
    let f = frame(MAC_BROADCAST, peer, 0x0800, &ipv4(IP_B, [255; 4], b""));
    assert_eq!(send(&mut c, T0, &f), Sent::Dropped(DropReason::Looped));
    assert_eq!(c.counters().tx_dropped(DropReason::Looped), 2);
    assert_eq!((c.guests().count(), c.counters().mac_clashes), (0, 0));
    assert_eq!(teach(&mut c, b(), IP_B), peer);
    // A host that speaks for a peer, as a bridge that suppresses ARP does, makes no guest of it.
    let f = frame(MAC_BROADCAST, G1, 0x0806, &request);
    send(&mut c, T0, &f);
    assert_eq!(c.guests().count(), 0);
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
    // Who still has the guest's address for it reaches the peer.
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
    // Only data, as after a migration that announces itself by RARP: it is checked, and believed.
    guest_data(&mut c, 0, G1, IP1, peer);
    assert_eq!(owner(&c, ip(IP1)), None);
    let question = arp(1, &peer, IP_B, &[0; 6], IP1);
    assert_eq!(
        tap_frames(&mut c, 0),
        [frame(MAC_BROADCAST, peer, 0x0806, &question)]
    );
    guest_answers(&mut c, 1, G1, IP1, peer);
    assert_eq!(owner(&c, ip(IP1)), Some((G1, false)));
    let told = announcement(&c, IP1);
    assert_eq!(sent(&mut c, 1), std::slice::from_ref(&told));
    assert_eq!(sent(&mut c, 1001), [told]);
    let news = Update::Guest {
        ip: ip(IP1),
        mac: G1,
        weak: false,
    };
    assert!(c.drain_updates().any(|u| u == news));
    // The guest's own broadcast needs no other.
    let mut c = a();
    teach(&mut c, b(), IP1);
    guest_asks(&mut c, 0, G1, IP1, IP1);
    assert_eq!(owner(&c, ip(IP1)), Some((G1, false)));
    assert!(sent(&mut c, 0).is_empty());
}

/// Another guest still has the peer's Ethernet address for what is behind the same host now.
#[test]
fn a_guest_that_sends_to_where_an_address_was_is_told_where_it_is() {
    let mut c = a();
    let peer = teach(&mut c, b(), IP1);
    teach(&mut c, b(), IP_B);
    let to_peer = frame(peer, G2, 0x0800, &ipv4(IP2, IP1, b""));
    assert!(matches!(send(&mut c, T0, &to_peer), Sent::Forward(..)));
    guest_asks(&mut c, 10, G1, IP1, IP1);
    tap_frames(&mut c, 10);
    let to_guest = Sent::Dropped(DropReason::ToGuest);
    assert_eq!(send(&mut c, Time(20), &to_peer), to_guest);
    let reply = arp(2, &G1, IP1, &G2, IP2);
    assert_eq!(tap_frames(&mut c, 20), [frame(G2, peer, 0x0806, &reply)]);
    // What is right needs no correction, nor does what goes to the peer itself.
    let right = frame(G1, G2, 0x0800, &ipv4(IP2, IP1, b""));
    assert_eq!(send(&mut c, Time(21), &right), to_guest);
    let other = frame(peer, G2, 0x0800, &ipv4(IP2, IP_B, b""));
    assert!(matches!(send(&mut c, Time(22), &other), Sent::Forward(..)));
    assert!(tap_frames(&mut c, 22).is_empty());
    // Nobody believes the former address for so long.
    assert!(matches!(
        send(&mut c, Time(200_000), &to_peer),
        Sent::Forward(..)
    ));
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
    let mut advertisement = nd(136, "fd00::11", &mac_option(2, G1));
    advertisement[4] = 0x20;
    let correction = icmpv6("fd00::11", "fd00::12", &advertisement);
    for replica in [&mut c, &mut sibling] {
        let fate = send(replica, Time(20), &stale);
        assert_eq!(fate, Sent::Dropped(DropReason::ToGuest));
        let expected = frame(G2, peer, 0x86dd, &correction);
        assert_eq!(tap_frames(replica, 20).pop(), Some(expected));
    }
}

#[test]
fn an_address_that_goes_to_and_fro_is_held_still_and_told_once() {
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

#[test]
fn two_guests_with_one_address_are_told_of_once() {
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
    // An answer a second later is told again: a replica may have missed the first.
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
fn guests_grow_old_and_the_control_side_is_told() {
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
fn neighbours_are_told_of_while_somebody_watches() {
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
fn signed_neighbour_discovery_is_told_of_once() {
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

/// A bridge was taken away; its address is the interface's own now, with another Ethernet address.
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

/// It would be taken back from where it is now.
#[test]
fn an_address_that_has_gone_is_not_announced_again() {
    let mut c = a();
    let ip = IpAddr::from([10, 0, 0, 1]);
    c.announce(ip);
    assert_eq!(sent(&mut c, 0).len(), 1);
    c.withdraw(ip);
    assert!(sent(&mut c, 1000).is_empty());
    // A guest's, which was a peer's and moves back at once.
    let peer = teach(&mut c, b(), IP1);
    guest_answers(&mut c, 2000, G1, IP1, peer);
    assert!(!sent(&mut c, 2000).is_empty());
    peer_asks(&mut c, 2001, b(), IP1);
    assert!(sent(&mut c, 3500).is_empty());
}

#[test]
fn a_hint_does_not_keep_frames_from_a_peer() {
    let mut c = a();
    c.set_stacked(true);
    // Known from data only, as after a restart; the host still knows its Ethernet address.
    let f = arrive(&mut c, 0, 0x0800, &ipv4(IP_B, [224, 0, 0, 5], b"data"));
    let peer: Mac = f.unwrap()[6..12].try_into().unwrap();
    let to_peer = frame(peer, MAC_A, 0x0800, &ipv4([10, 0, 0, 1], IP_B, b"data"));
    assert!(matches!(send(&mut c, T0, &to_peer), Sent::Forward(..)));
    // One packet with a forged or routed source.
    let forged = ipv4(IP_B, [10, 0, 0, 3], b"data");
    send(&mut c, T0, &frame([2, 9, 9, 9, 9, 9], G1, 0x0800, &forged));
    assert!(matches!(send(&mut c, T0, &to_peer), Sent::Forward(..)));
}

#[test]
fn what_comes_back_is_not_reflected_again() {
    let mut c = a();
    let peer = teach(&mut c, b(), IP_B);
    let f = frame(MAC_BROADCAST, peer, 0x0806, &[]);
    assert!(!c.is_reflected(&f));
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
    // Later it is a clash like any other.
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

/// A packet capture makes the interface promiscuous, as a macvlan does: the host's traffic goes on.
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
