//! Packets on a connection, and packets that wait for it.

use super::*;

#[test]
fn c97_arp_multicast_and_discovery_are_datagrams_though_there_is_a_connection() {
    let mut c = connected();
    let mac = up(&mut c, 0, C1);
    let arp = arp(1, &MAC_A, [10, 0, 0, 1], &[0; 6], IP_B);
    let got = c.from_tap(T0, &NO_OFFLOAD, &frame(mac, MAC_A, 0x0806, &arp));
    assert!(matches!(got, Outgoing::Rewritten { .. }));
    let group = ipv4([10, 0, 0, 1], [239, 1, 2, 3], b"");
    let f = frame([1, 0, 0x5e, 1, 2, 3], MAC_A, 0x0800, &group);
    assert!(matches!(
        c.from_tap(T0, &NO_OFFLOAD, &f),
        Outgoing::Forward {
            to: Target::Group(_),
            ..
        }
    ));
    for options in [vec![], mac_option(1, MAC_A)] {
        let ns = icmpv6("fe80::a", "fe80::b", &nd(135, "fe80::b", &options));
        let got = c.from_tap(T0, &NO_OFFLOAD, &frame(mac, MAC_A, 0x86dd, &ns));
        assert!(!matches!(got, Outgoing::Message { .. }), "{got:?}");
    }
    let echo = icmpv6("fe80::a", "fe80::b", &[128, 0, 0, 0, 0, 0, 0, 0]);
    let got = c.from_tap(T0, &NO_OFFLOAD, &frame(mac, MAC_A, 0x86dd, &echo));
    assert!(matches!(got, Outgoing::Message { .. }));
}

#[test]
fn large_packets_wait_for_the_connection_and_no_more_than_three() {
    let mut c = connected();
    let mac = teach(&mut c, b(), IP_B);
    let large = data(mac, IP_B, 9000);
    for n in 0..5 {
        let got = offer(&mut c, 0, &large);
        let expected = if n < 3 { TooBig::Held } else { TooBig::Dropped };
        assert_eq!(got, expected, "{n}");
    }
    assert_eq!(c.counters().too_big_hold_full, 2);
    assert_eq!(c.pop_released(), None);
    begun(&mut c, 0, C1);
    replied(&mut c, 0, C1, &THEIRS);
    let released: Vec<_> = std::iter::from_fn(|| c.pop_released()).collect();
    assert_eq!(released.len(), 3);
    assert!(released.iter().all(|held| held.frame[..] == large));
    let got = c.from_tap(T0, &NO_OFFLOAD, &large);
    assert!(matches!(got, Outgoing::Message { mtu: 65520, .. }));
}

#[test]
fn large_packets_of_all_peers_wait_in_four_mebibytes() {
    let mut c = connected_with(256);
    let mut held = 0;
    for host in 0..60u8 {
        let ip = [10, 0, 1, host];
        let mac = teach(&mut c, reliable(0x100 + u16::from(host), 0x4b), ip);
        for _ in 0..3 {
            held += u64::from(offer(&mut c, 0, &data(mac, ip, 65_000)) == TooBig::Held);
        }
    }
    let bytes = held * (65_000 + 14);
    assert!(bytes <= 4 << 20 && bytes > (4 << 20) - 66_000, "{bytes}");
    c.set_mode(Mode::Datagram);
    assert_eq!(std::iter::from_fn(|| c.pop_released()).count() as u64, held);
}

#[test]
fn messages_come_from_the_connections_peer() {
    let mut c = connected();
    requested(&mut c, 0, C1, b().gid(), &THEIRS);
    let message = payload(0x0800, &ipv4(IP_B, [10, 0, 0, 1], b"data"));
    let Incoming::Packet { ethernet, l3 } = c.from_connection(T0, C1, &message, message.len())
    else {
        panic!()
    };
    assert_eq!(ethernet[6..12], crate::peer_mac(&b()));
    assert_eq!((&ethernet[..6], l3), (&MAC_A[..], &message[4..]));
    let got = c.from_connection(T0, C2, &message, message.len());
    assert_eq!(got, Incoming::Dropped(DropReason::NotConnected));
    assert_eq!(c.counters().rx_dropped(DropReason::NotConnected), 1);
}

#[test]
fn long_messages_are_decided_on_by_their_beginning() {
    let mut c = connected();
    requested(&mut c, 0, C1, b().gid(), &THEIRS);
    let long = payload(0x0800, &ipv4(IP_B, [10, 0, 0, 1], &[7; 65_500]));
    assert_eq!(long.len(), 65_524);
    let mut take = |head: usize, len: usize| match c.from_connection(T0, C1, &long[..head], len) {
        Incoming::Packet { l3, .. } => Ok(l3.len()),
        Incoming::Dropped(reason) => Err(reason),
        other => panic!("{other:?}"),
    };
    assert_eq!(take(128, 65_524), Ok(124));
    assert_eq!(take(65_524, 65_524), Ok(65_520));
    assert_eq!(take(4096, 65_600), Ok(4092));
    assert_eq!(take(128, 65_523), Err(DropReason::Malformed));
    assert_eq!(take(3, 65_524), Err(DropReason::Malformed));
    let options = vec![0; 8000];
    let nd = payload(
        0x86dd,
        &icmpv6("fe80::b", "fe80::a", &nd(135, "fe80::a", &options)),
    );
    let got = c.from_connection(T0, C1, &nd[..4096], nd.len());
    assert_eq!(got, Incoming::Dropped(DropReason::TooLong));
    let echo = payload(0x88b5, &[0; 8000]);
    let got = c.from_connection(T0, C1, &echo[..128], echo.len());
    assert_eq!(got, Incoming::Dropped(DropReason::TooLong));
}

/// Nothing smaller may follow: TCP repeats a segment as large as it was.
#[test]
fn the_guest_of_a_long_message_is_asked_for_and_gets_the_next_ones() {
    const GUEST: Mac = [0x52, 0x54, 0, 0, 0, 9];
    const GUEST_IP: [u8; 4] = [10, 0, 0, 9];
    let mut c = connected();
    c.set_stacked(true);
    let peer = teach(&mut c, b(), IP_B);
    requested(&mut c, 0, C1, b().gid(), &THEIRS);
    let long = payload(0x0800, &ipv4(IP_B, GUEST_IP, &[7; 9000]));
    let goes_to = |c: &mut Ipoib, now| match c.from_connection(now, C1, &long[..256], long.len()) {
        Incoming::Packet { ethernet, .. } => ethernet[..6].to_vec(),
        other => panic!("{other:?}"),
    };
    let question = arp(1, &peer, IP_B, &[0; 6], GUEST_IP);
    let question = frame(MAC_BROADCAST, peer, 0x0806, &question);
    for (now, asked) in [(0, true), (1999, false), (2000, true)] {
        assert_eq!(goes_to(&mut c, Time(now)), MAC_A);
        let expected = asked.then_some(&question[..]);
        assert_eq!(c.poll_tap(Time(now)), expected, "{now}");
    }
    let answer = arp(2, &GUEST, GUEST_IP, &peer, IP_B);
    c.from_tap(
        Time(2010),
        &NO_OFFLOAD,
        &frame(peer, GUEST, 0x0806, &answer),
    );
    assert_eq!(goes_to(&mut c, Time(2011)), GUEST);
}

#[test]
fn c56_neighbour_discovery_over_a_connection_is_taken() {
    let mut c = connected();
    requested(&mut c, 0, C1, b().gid(), &THEIRS);
    let na = nd(136, "fe80::b", &ib_option(2, b()));
    let na = payload(0x86dd, &icmpv6("fe80::b", "fe80::a", &na));
    let Incoming::Frame(f) = c.from_connection(T0, C1, &na, na.len()) else {
        panic!()
    };
    assert_eq!(f[12..14], [0x86, 0xdd]);
    let n = c.neighbours().next().unwrap();
    assert_eq!((n.address, n.confirmed), (b(), true));
}

#[test]
fn router_advertisements_keep_an_mtu_that_connections_carry() {
    let option = [&[5, 1, 0, 0][..], &9000u32.to_be_bytes()].concat();
    let message = [
        &[134, 0, 0, 0, 64, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0][..],
        &option,
    ]
    .concat();
    let ra = payload(0x86dd, &icmpv6("fe80::b", "ff02::1", &message));
    let mtu = |c: &mut Ipoib| {
        let m = meta(b(), group(c, "ff02::1"));
        let f = receive(c, &m, &ra).unwrap();
        u32::from_be_bytes(f[f.len() - 4..].try_into().unwrap())
    };
    assert_eq!((mtu(&mut a()), mtu(&mut connected())), (2044, 9000));
}
