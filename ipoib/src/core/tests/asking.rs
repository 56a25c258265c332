//! In whose name the core queries.

use super::*;

const OURS: [u8; 4] = [10, 0, 0, 1];
const PEER: [u8; 4] = [10, 0, 0, 2];
/// An address that is routed through this host.
const ROUTED: [u8; 4] = [10, 7, 0, 9];

/// The source and the hardware address in the core's query because of a packet to a MAC that no peer has. A new
/// destination for each call.
fn asked(c: &mut Ipoib, from: IpAddr, to: IpAddr) -> IpAddr {
    let (ethertype, packet) = match (from, to) {
        (IpAddr::V4(from), IpAddr::V4(to)) => (0x0800, ipv4(from.octets(), to.octets(), b"")),
        _ => {
            let echo = [128, 0, 0, 0, 0, 0, 0, 0];
            (0x86dd, icmpv6(&from.to_string(), &to.to_string(), &echo))
        }
    };
    let data = frame([2, 9, 9, 9, 9, 9], MAC_A, ethertype, &packet);
    assert_eq!(send(c, T0, &data), Sent::Held);
    let sent = question(c);
    match from {
        IpAddr::V4(_) => {
            assert_eq!((sent[11], &sent[12..32]), (1, &c.local().0[..]));
            <[u8; 4]>::try_from(&sent[32..36]).unwrap().into()
        }
        IpAddr::V6(_) => {
            let packet = &sent[4..];
            assert_eq!((icmpv6_checksum(packet), packet[40]), (0, 135));
            assert_eq!(packet[64..], ib_option(1, c.local()));
            <[u8; 16]>::try_from(&packet[8..24]).unwrap().into()
        }
    }
}

/// The core's query; announcements before it are dropped.
fn question(c: &mut Ipoib) -> Vec<u8> {
    let all = std::iter::from_fn(|| c.poll_transmit(T0).map(|(_, p)| p.to_vec()));
    all.last().expect("a query")
}

/// The same for IPv4, with another destination for each `n`.
fn name(c: &mut Ipoib, n: u8, from: [u8; 4]) -> [u8; 4] {
    match asked(c, from.into(), [10, 0, 0, 100 + n].into()) {
        IpAddr::V4(ip) => ip.octets(),
        IpAddr::V6(_) => unreachable!(),
    }
}

fn updates(from: &mut Ipoib, to: &mut Ipoib) {
    from.drain_updates().for_each(|u| to.apply(T0, &u));
}

/// The host routes the packet, or nothing is known yet, as at once after a restart. The peers must not note this host's
/// address for the source.
#[test]
fn a_query_does_not_claim_the_source_of_a_routed_packet() {
    let mut c = a();
    assert_eq!(name(&mut c, 0, ROUTED), [0; 4]);
    let of_mac = "fe80::400:ff:fe00:a";
    assert_eq!(asked(&mut c, v6("fd07::9"), v6("fd00::2")), v6(of_mac));
    c.announce(OURS.into(), false);
    c.announce([10, 7, 0, 1].into(), false);
    c.announce(v6("fe80::a"), false);
    c.announce(v6("fd00::a"), false);
    assert_eq!(name(&mut c, 1, ROUTED), OURS);
    let ip = |last| [10, 7, 0, last].into();
    assert_eq!(asked(&mut c, [10, 8, 0, 9].into(), ip(50)), ip(1));
    let names = ["fd00::3", "fe80::3"].map(|to| asked(&mut c, v6("fd07::9"), v6(to)));
    assert_eq!(names, [v6("fd00::a"), v6("fe80::a")]);
}

#[test]
fn a_query_has_the_source_of_the_hosts_own_packet() {
    let (mut c, mut sibling) = (a(), a());
    let second = [10, 0, 0, 11];
    for ip in [OURS, second] {
        c.announce(ip.into(), false);
    }
    updates(&mut c, &mut sibling);
    for (n, replica) in [&mut c, &mut sibling].into_iter().enumerate() {
        replica.host_has(T0, v6("fd00::a"));
        let n = n as u8 * 10;
        assert_eq!(name(replica, n, OURS), OURS);
        assert_eq!(name(replica, n + 1, second), second);
        let of_v6 = asked(replica, v6("fd00::a"), v6("fd00::2"));
        assert_eq!(of_v6, v6("fd00::a"));
    }
    // The host loses one address, and a peer takes the other.
    c.withdraw(second.into());
    teach(&mut c, address(0xb, 0x4b), OURS);
    updates(&mut c, &mut sibling);
    for replica in [&mut c, &mut sibling] {
        assert_eq!(name(replica, 50, second), [0; 4]);
        assert_eq!(name(replica, 51, OURS), [0; 4]);
    }
}

/// The daemon does not announce the addresses of a bond.
#[test]
fn a_query_of_the_host_shows_its_address() {
    let (mut c, mut sibling) = (a(), a());
    let request = |op, sender: Mac, ip| {
        let packet = arp(op, &sender, ip, &[0; 6], PEER);
        frame(MAC_BROADCAST, MAC_A, 0x0806, &packet)
    };
    send(&mut c, T0, &request(1, MAC_A, OURS));
    // A reply may be that of a proxy, a probe has no source, and the source of data may be routed.
    send(&mut c, T0, &request(2, MAC_A, ROUTED));
    send(&mut c, T0, &request(1, MAC_A, [0; 4]));
    let group = [0x33, 0x33, 0xff, 0, 0, 0xb];
    let solicitation = nd(135, "fd00::b", &mac_option(1, MAC_A));
    let solicitation = icmpv6("fd00::a", "ff02::1:ff00:b", &solicitation);
    send(&mut c, T0, &frame(group, MAC_A, 0x86dd, &solicitation));
    let news: Vec<Update> = c.drain_updates().collect();
    let noted = [OURS.into(), v6("fd00::a")].map(|ip| Update::HostAddress { ip, present: true });
    assert_eq!(news, noted);
    news.iter().for_each(|u| sibling.apply(T0, u));
    for replica in [&mut c, &mut sibling] {
        assert_eq!(name(replica, 0, OURS), OURS);
        assert_eq!(name(replica, 1, ROUTED), OURS);
        let of_v6 = asked(replica, v6("fd07::9"), v6("fd00::2"));
        assert_eq!(of_v6, v6("fd00::a"));
    }
}

#[test]
fn a_guest_that_claimed_its_address_is_named() {
    const GUEST: Mac = [6, 0, 0, 0, 0, 0x99];
    let mut c = a();
    let mut asked = |n, ip| {
        let packet = ipv4(ip, [10, 0, 0, n], b"");
        let data = frame([2, 9, 9, 9, 9, 9], GUEST, 0x0800, &packet);
        assert_eq!(send(&mut c, T0, &data), Sent::Held);
        let name = question(&mut c)[32..36].to_vec();
        let request = arp(1, &GUEST, ip, &[0; 6], ip);
        send(&mut c, T0, &frame(MAC_BROADCAST, GUEST, 0x0806, &request));
        name
    };
    assert_eq!(asked(100, [10, 0, 0, 9]), [0; 4], "known from data only");
    assert_eq!(asked(101, [10, 0, 0, 9]), [10, 0, 0, 9]);
}

/// Linux answers a query without a source to the hardware address of its sender.
#[test]
fn the_answer_to_a_query_without_a_source_releases_what_waits() {
    let mut c = a();
    let (b, local) = (address(0xb, 0x4b), c.local());
    let data = frame([2, 9, 9, 9, 9, 9], MAC_A, 0x0800, &ipv4(OURS, PEER, b""));
    assert_eq!(send(&mut c, T0, &data), Sent::Held);
    assert_eq!(question(&mut c)[32..36], [0; 4]);
    let answer = arp(2, &b.0, PEER, &local.0, [0; 4]);
    let got = receive(&mut c, &meta(b, local.gid()), &payload(0x0806, &answer)).unwrap();
    let mac = peer_mac(&b);
    let seen = arp(2, &mac, PEER, &MAC_A, [0; 4]);
    assert_eq!(got, frame(MAC_A, mac, 0x0806, &seen));
    let held = c.pop_released().unwrap();
    let sent = send(&mut c, T0, &held.frame);
    assert!(matches!(sent, Sent::Forward(gid, ..) if gid == b.gid()));
}
