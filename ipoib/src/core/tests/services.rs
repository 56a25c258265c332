//! Membership reports, DHCP, the MTU of router advertisements, echoes.

use super::*;
use crate::event::Event;
use crate::testing::{frames, hex};

const CLIENT: Mac = [2, 0, 0, 0, 0, 0x0a];

fn configured(dhcp: DhcpMode, link_mtu: usize) -> Ipoib {
    let mut c = a();
    c.set_dhcp(dhcp);
    c.set_link_mtu(link_mtu);
    c
}

/// Events, except those of learned guests.
fn events(c: &mut Ipoib) -> Vec<Event> {
    std::iter::from_fn(|| c.pop_event())
        .filter(|e| !matches!(e, Event::GuestLearned { .. }))
        .collect()
}

/// The metadata of a multicast to the group of an IP address.
fn multicast(c: &Ipoib, ip: &str) -> Meta {
    meta(address(0xb, 0x4b), group(c, ip))
}

#[test]
fn reports_from_the_tap_become_events_and_pass_unchanged() {
    let mut c = a();
    for frame in frames("igmpv2-mldv1.pcap") {
        assert!(matches!(send(&mut c, T0, &frame), Sent::Forward(..)));
    }
    let (v4, v6) = ([239, 1, 2, 3].into(), "ff15::1234".parse().unwrap());
    let mac = CLIENT;
    let expected = [
        Event::GroupJoined { mac, group: v6 },
        Event::GroupJoined { mac, group: v4 },
        Event::GroupLeft { mac, group: v4 },
        Event::GroupLeft { mac, group: v6 },
    ];
    assert_eq!(events(&mut c), expected);
    assert_eq!(c.counters().reports_snooped, 4);
}

#[test]
fn a_report_with_a_wrong_checksum_passes_without_an_event() {
    let mut c = a();
    let mut frame = frames("igmpv2-mldv1.pcap").remove(1);
    frame[14 + 24 + 2] ^= 1;
    assert!(matches!(send(&mut c, T0, &frame), Sent::Forward(..)));
    assert_eq!(events(&mut c), []);
    assert_eq!(c.counters().reports_snooped, 0);
}

#[test]
fn a_storm_of_reports_is_bounded_and_counted() {
    let mut c = a();
    let frame = frames("igmpv2-mldv1.pcap").remove(1);
    for n in 0..3000_u16 {
        let mut f = frame.clone();
        f[10..12].copy_from_slice(&n.to_be_bytes());
        send(&mut c, T0, &f);
    }
    // One more event for the guest that sent the reports.
    let reported = events(&mut c).len();
    assert_eq!(reported, 1023);
    assert_eq!(c.counters().events_lost, 3001 - 1024);
    assert_eq!(c.counters().reports_snooped, 3000);
}

#[test]
fn reports_from_the_fabric_are_reported_once_to_a_router() {
    let mut c = a();
    let m = multicast(&c, "239.1.2.3");
    let report = payload(0x0800, &frames("igmpv2-mldv1.pcap")[1][14..]);
    receive(&mut c, &m, &report).unwrap();
    assert_eq!(events(&mut c), [], "nobody routes");
    c.route_multicast(true);
    receive(&mut c, &m, &report).unwrap();
    receive(&mut c, &m, &report).unwrap();
    let group = [239, 1, 2, 3].into();
    assert_eq!(events(&mut c), [Event::GroupSeen { group }]);
}

/// The first packet of the capture with this DHCP message type, as a frame.
fn dhcp_frame(kind: u8) -> Vec<u8> {
    let typed = [53, 1, kind];
    let mut all = frames("dhcp.pcap").into_iter();
    all.find(|f| f.windows(3).any(|w| w == typed)).unwrap()
}

/// The UDP checksum of a packet with a 20-byte header; 0 if its field is valid.
fn udp_sum(l3: &[u8]) -> u16 {
    crate::checksum::udp_v4(l3, &l3[20..])
}

#[test]
fn c122_a_clients_discover_asks_for_broadcast_and_the_offer_is_delivered() {
    let mut c = configured(DhcpMode::Broadcast, 2044);
    let discover = dhcp_frame(1);
    let mut expected = payload(0x0800, &discover[14..]);
    let Sent::Rewritten(gid, qpn, sent) = send(&mut c, T0, &discover) else {
        panic!()
    };
    assert_eq!((gid, qpn), (c.broadcast_mgid(), Qpn::MULTICAST));
    // Encapsulation, IPv4, UDP, flags; the checksum decreases by the value of the flag.
    expected[4 + 28 + 10] = 0x80;
    expected[30..32].copy_from_slice(&sent[30..32]);
    assert_eq!(sent, expected);
    assert_eq!(udp_sum(&sent[4..]), 0);
    assert_eq!(c.counters().dhcp_translated, 1);

    let offer = &dhcp_frame(2)[14..];
    let m = multicast(&c, "255.255.255.255");
    let got = receive(&mut c, &m, &payload(0x0800, offer)).unwrap();
    assert_eq!((&got[..6], &got[14..]), (&MAC_BROADCAST[..], offer));
    assert_eq!(c.counters().dhcp_translated, 1);
}

/// The reply of the capture in the form of a server on the link that supports RFC 4390.
fn bare_reply(kind: u8) -> Vec<u8> {
    let mut l3 = dhcp_frame(kind)[14..].to_vec();
    l3[28 + 1] = 32;
    l3[28 + 2] = 0;
    l3[28 + 28..28 + 44].fill(0);
    l3[26..28].fill(0);
    let sum = udp_sum(&l3).to_be_bytes();
    l3[26..28].copy_from_slice(&sum);
    l3
}

#[test]
fn c123_dhcp_leaves_as_rfc_4390_has_it_and_the_reply_gets_chaddr_back() {
    let mut c = configured(DhcpMode::Rfc4390, 2044);
    let mut discover = dhcp_frame(1);
    // udhcpc's identifier becomes an unknown option.
    let identifier = [61, 7, 1, 2, 0, 0, 0, 0, 0x0a];
    let at = discover.windows(9).position(|w| w == identifier).unwrap();
    discover[at] = 250;
    let end = 14
        + 28
        + 240
        + discover[14 + 28 + 240..]
            .iter()
            .position(|b| *b == 255)
            .unwrap();
    discover[14 + 26..14 + 28].fill(0);
    let sum = udp_sum(&discover[14..]).to_be_bytes();
    discover[14 + 26..14 + 28].copy_from_slice(&sum);

    let mut expected = payload(0x0800, &discover[14..]);
    expected[32 + 1..32 + 3].copy_from_slice(&[32, 0]);
    expected[32 + 10] = 0x80;
    expected[32 + 28..32 + 44].fill(0);
    let option = hex("3d 0f ff 0000000a 0003 0001 02000000000a ff");
    expected[end - 10..][..option.len()].copy_from_slice(&option);
    expected[30..32].fill(0);
    let sum = udp_sum(&expected[4..]).to_be_bytes();
    expected[30..32].copy_from_slice(&sum);
    let Sent::Rewritten(.., sent) = send(&mut c, T0, &discover) else {
        panic!()
    };
    assert_eq!(sent, expected);
    assert_eq!(udp_sum(&sent[4..]), 0);

    let m = multicast(&c, "255.255.255.255");
    let got = receive(&mut c, &m, &payload(0x0800, &bare_reply(2))).unwrap();
    assert_eq!(&got[..6], &MAC_BROADCAST);
    assert_eq!(got[14..], dhcp_frame(2)[14..]);
    assert_eq!(c.counters().dhcp_translated, 2);
}

#[test]
fn an_identifier_makes_a_long_message_no_longer_than_the_link() {
    let discover = dhcp_frame(1);
    let len = discover.len() - 14;
    for (link_mtu, leaves) in [(len, true), (len - 1, false)] {
        let mut c = configured(DhcpMode::Rfc4390, link_mtu);
        let sent = send(&mut c, T0, &discover);
        assert_eq!(matches!(sent, Sent::Rewritten(..)), leaves, "{link_mtu}");
    }
}

#[test]
fn a_reply_that_comes_to_another_replica_is_translated_there() {
    let (mut one, mut two) = (a(), a());
    send(&mut one, T0, &dhcp_frame(1));
    let updates: Vec<Update> = one.drain_updates().collect();
    let published = |u: &Update| matches!(u, Update::Dhcp { client: CLIENT, .. });
    assert!(updates.iter().any(published), "{updates:?}");
    for update in &updates {
        two.apply(T0, update);
    }
    assert!(!two.has_updates());
    // A unicast copy: the client gets it, not the interface.
    let m = meta(address(0xb, 0x4b), two.local().gid());
    let got = receive(&mut two, &m, &payload(0x0800, &bare_reply(5))).unwrap();
    assert_eq!(got[..6], CLIENT);
    // The core has learned the assigned address.
    let leased = two.guests().next().map(|g| (g.mac, g.weak));
    assert_eq!(leased, Some((CLIENT, false)));
    assert!(
        two.drain_updates()
            .any(|u| matches!(u, Update::Guest { mac: CLIENT, .. }))
    );
    assert_eq!(got[14..], dhcp_frame(5)[14..]);
    let named = &dhcp_frame(5)[14..];
    let got = receive(&mut two, &m, &payload(0x0800, named)).unwrap();
    assert_eq!((&got[..6], &got[14..]), (&CLIENT[..], named));
}

#[test]
fn replies_for_others_are_not_touched() {
    let mut c = a();
    let m = meta(address(0xb, 0x4b), c.local().gid());
    let reply = bare_reply(5);
    let got = receive(&mut c, &m, &payload(0x0800, &reply)).unwrap();
    assert_eq!((&got[..6], &got[14..]), (&MAC_A[..], &reply[..]));
    // Another client uses the same transaction id.
    let mut other = dhcp_frame(1);
    other[14 + 28 + 28 + 5] ^= 1;
    other[14 + 26..14 + 28].fill(0);
    send(&mut c, T0, &other);
    let named = &dhcp_frame(5)[14..];
    let got = receive(&mut c, &m, &payload(0x0800, named)).unwrap();
    assert_eq!(
        (&got[..6], &got[14..]),
        (&CLIENT[..], named),
        "it names one"
    );
}

#[test]
fn dhcp_that_is_off_or_malformed_or_relayed_or_cut_up_passes() {
    let discover = dhcp_frame(1);
    let mut off = configured(DhcpMode::Off, 2044);
    assert!(matches!(send(&mut off, T0, &discover), Sent::Forward(..)));
    let refresh = |f: &mut Vec<u8>| {
        for (at, from, to) in [(24, 14, 34), (40, 34, 0)] {
            let to = if to == 0 { f.len() } else { to };
            f[at..at + 2].fill(0);
            let sum = match at {
                24 => crate::checksum::checksum(&[&f[from..to]]),
                _ => udp_sum(&f[14..]),
            };
            f[at..at + 2].copy_from_slice(&sum.to_be_bytes());
        }
    };
    let mut c = a();
    // A wrong checksum; then, with valid ones: a relay's address, a fragment, an invalid option.
    for (at, value, right) in [
        (42 + 100, 1, false),
        (42 + 24, 10, true),
        (14 + 6, 0x20, true),
        (42 + 241, 255, true),
    ] {
        let mut frame = discover.clone();
        frame[at] = value;
        if right {
            refresh(&mut frame);
        }
        let sent = send(&mut c, T0, &frame);
        assert!(matches!(sent, Sent::Forward(..)), "byte {at}: {sent:?}");
    }
    assert_eq!(c.counters().dhcp_translated, 0);
}

#[test]
fn a_checksum_left_to_us_is_finished() {
    let mut c = a();
    let mut discover = dhcp_frame(1);
    discover[40..42].fill(0x55);
    let mut prefix = NO_OFFLOAD;
    prefix[0] = 1;
    let Outgoing::Rewritten { packet, .. } = c.from_tap(T0, &prefix, &discover) else {
        panic!()
    };
    assert_eq!(udp_sum(&packet[4..]), 0);
}

/// A router advertisement from fe80::b with these options.
fn advertisement(options: &[u8]) -> Vec<u8> {
    let mut m = vec![134, 0, 0, 0, 64, 0, 7, 8, 0, 0, 0, 0, 0, 0, 0, 0];
    m.extend_from_slice(options);
    icmpv6("fe80::b", "ff02::1", &m)
}

fn mtu_option(mtu: u32) -> Vec<u8> {
    [&[5, 1, 0, 0][..], &mtu.to_be_bytes()].concat()
}

#[test]
fn a_routers_mtu_is_lowered_to_the_links_both_ways() {
    for (mtu, link, lowered) in [
        (9000, 2044, Some(2044)),
        (2044, 2044, None),
        (1280, 2044, None),
        (1500, 1280, Some(1280)),
        (1500, 1020, None),
    ] {
        let before = advertisement(&mtu_option(mtu));
        let after = advertisement(&mtu_option(lowered.unwrap_or(mtu)));
        let mut c = configured(DhcpMode::Broadcast, link);
        let m = multicast(&c, "ff02::1");
        let got = receive(&mut c, &m, &payload(0x86dd, &before)).unwrap();
        assert_eq!(got[14..], after, "{mtu} over {link}");
        let f = frame([0x33, 0x33, 0, 0, 0, 1], MAC_A, 0x86dd, &before);
        match send(&mut c, T0, &f) {
            Sent::Rewritten(.., packet) if lowered.is_some() => assert_eq!(packet[4..], after),
            Sent::Forward(..) if lowered.is_none() => {}
            other => panic!("{mtu} over {link}: {other:?}"),
        }
        let clamped = 2 * u64::from(lowered.is_some());
        assert_eq!(c.counters().ra_mtu_clamped, clamped);
    }
}

#[test]
fn a_signed_advertisement_keeps_its_mtu() {
    let mut c = a();
    let signature = [12, 1, 0, 0, 0, 0, 0, 0];
    let before = advertisement(&[&mtu_option(9000)[..], &signature].concat());
    let m = multicast(&c, "ff02::1");
    let got = receive(&mut c, &m, &payload(0x86dd, &before)).unwrap();
    assert_eq!(got[14..], before);
    assert_eq!(c.counters().ra_mtu_clamped, 0);
}

/// Two interfaces; the packets of each go to the other until none is left.
struct Pair(Ipoib, Ipoib);

impl Pair {
    fn new() -> Pair {
        Pair(a(), core(address(0xb, 0x4b), [6, 0, 0, 0, 0, 0xb]))
    }

    /// Number of delivered payloads: from the first, from the second.
    fn run(&mut self, now: Time) -> (usize, usize) {
        (
            deliver(&mut self.0, &mut self.1, now),
            deliver(&mut self.1, &mut self.0, now),
        )
    }
}

fn deliver(from: &mut Ipoib, to: &mut Ipoib, now: Time) -> usize {
    let mut n = 0;
    while let Some((target, packet)) = from.poll_transmit(now) {
        let packet = packet.to_vec();
        let m = meta(from.local(), from.address(target).0);
        assert_eq!(to.from_fabric(now, &m, &packet), Incoming::Consumed);
        n += 1;
    }
    n
}

fn request(target: EchoTarget, len: usize) -> EchoRequest {
    EchoRequest {
        target,
        id: 7,
        sequence: 8,
        stamp: 9,
        len,
    }
}

fn answered(from: HardwareAddress, len: usize) -> Event {
    Event::Echo {
        from,
        id: 7,
        sequence: 8,
        stamp: 9,
        len,
    }
}

#[test]
fn an_unknown_gid_answers_by_multicast_and_a_known_one_by_unicast() {
    let mut p = Pair::new();
    let b = p.1.local();
    assert!(p.0.echo(&request(EchoTarget::Gid(b.gid()), 100)));
    let (to, _) = p.0.poll_transmit(T0).unwrap();
    assert_eq!(to, Target::Group(BROADCAST));

    assert!(p.0.echo(&request(EchoTarget::Gid(b.gid()), 100)));
    assert_eq!(p.run(T0), (1, 1));
    assert_eq!(events(&mut p.0), [answered(b, 100)]);
    assert_eq!(p.1.counters().echo_answered, 1);

    teach(&mut p.0, b, [10, 0, 0, 2]);
    for target in [
        EchoTarget::Gid(b.gid()),
        EchoTarget::Ip([10, 0, 0, 2].into()),
    ] {
        assert!(p.0.echo(&request(target, 2048)));
        let (to, packet) = p.0.poll_transmit(T0).unwrap();
        assert!(matches!(to, Target::Neighbour(_)));
        assert_eq!(packet.len(), 2048);
        assert!(p.0.echo(&request(target, 2048)));
        assert_eq!(p.run(T0), (1, 1));
        assert_eq!(events(&mut p.0), [answered(b, 2048)]);
    }
}

#[test]
fn everybody_answers_short_requests_and_only_the_named_answer_theirs() {
    let mut p = Pair::new();
    let b = p.1.local();
    for (target, len, answers) in [
        (EchoTarget::All, 128, 1),
        (EchoTarget::All, 129, 0),
        (EchoTarget::Gid(address(0xc, 1).gid()), 64, 0),
        (EchoTarget::Gid(b.gid()), 40, 1),
    ] {
        assert!(p.0.echo(&request(target, len)));
        assert_eq!(p.run(T0), (1, answers), "{target:?} {len}");
    }
    assert_eq!(p.1.counters().echo_refused, 1);
}

#[test]
fn what_cannot_be_asked_is_refused() {
    let mut c = a();
    assert!(!c.echo(&request(EchoTarget::Ip([10, 0, 0, 9].into()), 64)));
    assert!(!c.echo(&request(EchoTarget::All, 39)));
    assert!(!c.echo(&request(EchoTarget::All, 2049)));
    let queued = (0..100).filter(|_| c.echo(&request(EchoTarget::All, 40)));
    assert_eq!(queued.count(), 64);
}

#[test]
fn a_storm_of_echoes_is_answered_in_part_and_counted() {
    let mut c = a();
    let mut asker = core(address(0xb, 0x4b), [6, 0, 0, 0, 0, 0xb]);
    let mut answers = 0;
    for _ in 0..1500 {
        asker.echo(&request(EchoTarget::All, 64));
        deliver(&mut asker, &mut c, T0);
        answers += usize::from(c.poll_transmit(T0).is_some());
    }
    assert_eq!(answers, 1000);
    assert_eq!(c.counters().echo_answered, 1000);
    assert_eq!(c.counters().echo_refused, 500);
    assert_eq!(c.neighbours().count(), 1);
}

#[test]
fn malformed_echoes_and_echoes_from_the_host_are_dropped_and_counted() {
    let mut c = a();
    let m = meta(address(0xb, 0x4b), c.local().gid());
    let p = payload(0x88b5, b"ibt1");
    assert_eq!(c.from_fabric(T0, &m, &p), Incoming::Consumed);
    assert_eq!(c.counters().echo_refused, 1);
    assert_eq!(c.neighbours().count(), 0);
    let f = frame(MAC_BROADCAST, MAC_A, 0x88b5, &[0; 40]);
    assert_eq!(
        send(&mut c, T0, &f),
        Sent::Dropped(DropReason::UnsupportedType)
    );
}
