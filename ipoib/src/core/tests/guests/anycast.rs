//! Advertisements without the Override flag: the address is anycast, or the sender is a proxy (RFC 4861, section
//! 7.2.4).

use super::*;

const SHARED: &str = "fd00::77";
const OVERRIDE: u8 = 0x20;

/// A solicited advertisement of a peer.
fn peer_answers(c: &mut Ipoib, peer: HardwareAddress, flags: u8) {
    let mut message = nd(136, SHARED, &ib_option(2, peer));
    message[4] = 0x40 | flags;
    let packet = payload(0x86dd, &icmpv6(SHARED, "fd00::a", &message));
    let m = meta(peer, c.local().gid());
    let got = c.from_fabric(T0, &m, &packet);
    assert!(matches!(got, Incoming::Frame(_) | Incoming::Held));
}

/// The same of a guest, to the peer `b`.
fn guest_answers(c: &mut Ipoib, now: u64, mac: Mac, flags: u8) {
    let mut message = nd(136, SHARED, &mac_option(2, mac));
    message[4] = 0x40 | flags;
    let packet = icmpv6(SHARED, "fd00::b", &message);
    let peer = peer_mac(&b());
    let answer = frame(peer, mac, 0x86dd, &packet);
    assert!(matches!(send(c, Time(now), &answer), Sent::Rewritten(..)));
}

/// The peer to which frames for the address go; `None` if they wait.
fn reached(c: &mut Ipoib) -> Option<HardwareAddress> {
    let echo = icmpv6("fd00::a", SHARED, &[128, 0, 0, 0, 0, 0, 0, 0]);
    match send(c, T0, &frame([2, 9, 9, 9, 9, 9], MAC_A, 0x86dd, &echo)) {
        Sent::Forward(gid, qpn, _) => Some(HardwareAddress::new(0, qpn, gid)),
        Sent::Held => None,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_peer_gets_an_address_that_nobody_has() {
    let mut c = a();
    assert_eq!(reached(&mut c), None);
    peer_answers(&mut c, b(), 0);
    assert!(c.pop_released().is_some());
    assert_eq!(reached(&mut c), Some(b()));
    // Another owner, or a proxy.
    let other = address(0xc, 0x4c);
    peer_answers(&mut c, other, 0);
    assert_eq!(reached(&mut c), Some(b()));
    assert_eq!(c.neighbours().count(), 2, "the other is known, too");
    // The owner restarts. Its advertisement counts, because its claims do.
    let restarted = address(0xb, 0x99);
    peer_advertises(&mut c, restarted, SHARED);
    peer_answers(&mut c, restarted, 0);
    assert_eq!(reached(&mut c), Some(restarted));
    peer_answers(&mut c, other, OVERRIDE);
    assert_eq!(reached(&mut c), Some(other));
}

/// Linux answers a unicast solicitation without an option and without the flag: a host that has moved and announces
/// nothing is found so.
#[test]
fn an_answer_without_an_option_is_that_of_the_owner() {
    let mut c = a();
    let other = address(0xc, 0x4c);
    teach(&mut c, other, IP_B);
    peer_answers(&mut c, b(), OVERRIDE);
    let mut message = nd(136, SHARED, &[]);
    message[4] = 0x40;
    let packet = payload(0x86dd, &icmpv6(SHARED, "fd00::a", &message));
    let m = meta(other, c.local().gid());
    receive(&mut c, &m, &packet).unwrap();
    assert_eq!(reached(&mut c), Some(other));
}

#[test]
fn a_peer_does_not_take_the_address_of_a_guest_or_the_host() {
    let mut c = a();
    teach(&mut c, b(), IP_B);
    guest_answers(&mut c, 0, G1, OVERRIDE);
    peer_answers(&mut c, b(), 0);
    assert_eq!(owner(&c, v6(SHARED)), Some((G1, false)));
    peer_answers(&mut c, b(), OVERRIDE);
    assert_eq!(owner(&c, v6(SHARED)), None);
    let mut c = a();
    host_uses(&mut c, v6(SHARED));
    peer_answers(&mut c, b(), 0);
    assert_eq!(reached(&mut c), None);
}

#[test]
fn a_guest_gets_an_address_that_nobody_has_and_is_not_announced() {
    let mut c = a();
    c.set_stacked(true);
    let peer = teach(&mut c, b(), IP_B);
    sent(&mut c, 0);
    // Known from data, then confirmed.
    let data = icmpv6(SHARED, "fd00::b", &[129, 0, 0, 0, 0, 0, 0, 0]);
    send(&mut c, T0, &frame(peer, G1, 0x86dd, &data));
    guest_answers(&mut c, 1, G1, 0);
    assert_eq!(owner(&c, v6(SHARED)), Some((G1, false)));
    let echo = icmpv6("fd00::b", SHARED, &[128, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(arrive(&mut c, 2, 0x86dd, &echo).unwrap()[..6], G1);
    // Another guest has the same address, or is a proxy.
    guest_answers(&mut c, 3, G2, 0);
    assert_eq!(owner(&c, v6(SHARED)), Some((G1, false)));
    assert!(sent(&mut c, 3).is_empty());
    c.set_local(Time(4), address(0xa, 0x99));
    c.announce_guests(Time(4), T0);
    guest_answers(&mut c, 5, G1, 0);
    assert!(sent(&mut c, 5).is_empty());
    guest_answers(&mut c, 6, G2, OVERRIDE);
    assert_eq!(owner(&c, v6(SHARED)), Some((G2, false)));
}

#[test]
fn a_guest_does_not_take_the_address_of_a_peer() {
    let mut c = a();
    c.set_stacked(true);
    teach(&mut c, b(), IP_B);
    peer_answers(&mut c, b(), OVERRIDE);
    guest_answers(&mut c, 0, G1, 0);
    assert_eq!(owner(&c, v6(SHARED)), None);
    assert!(sent(&mut c, 0).is_empty());
    guest_answers(&mut c, 1, G1, OVERRIDE);
    assert_eq!(owner(&c, v6(SHARED)), Some((G1, false)));
    assert_eq!(sent(&mut c, 1).len(), 1);
}
