//! Interfaces that are reached without the fabric.

use proto::Mode;

use super::*;
use crate::{Sibling, TooBig};

const IP_B: [u8; 4] = [10, 0, 0, 2];
const MAC_B: Mac = [6, 0, 0, 0, 0, 0xb];

/// Another interface on the port of [`a`].
fn b() -> HardwareAddress {
    address(0xa, 0x4b)
}

fn with_sibling(mode: Mode, mtu: usize) -> (Ipoib, Mac) {
    let mut c = Ipoib::new(Config { mode, ..a().config });
    let mac = teach(&mut c, b(), IP_B);
    let near = |qpn, mtu| Sibling {
        qpn: Qpn::new(qpn),
        mtu,
    };
    c.set_siblings([near(0x99, 500), near(0x4b, mtu), near(0x4a, 9000)]);
    (c, mac)
}

fn data(to: Mac, payload: usize) -> Vec<u8> {
    let packet = ipv4([10, 0, 0, 1], IP_B, &vec![7; payload]);
    frame(to, MAC_A, 0x0800, &packet)
}

#[test]
fn a_sibling_needs_no_datagram_and_no_connection() {
    for (mode, mtu) in [(Mode::Datagram, 2044), (Mode::Connected, 60_000)] {
        let (mut c, mac) = with_sibling(mode, 60_000);
        let out = c.from_tap(T0, &NO_OFFLOAD, &data(mac, 100));
        let expected = Outgoing::Sibling {
            to: Target::Neighbour(0),
            qpn: Qpn::new(0x4b),
            encap: [8, 0, 0, 0],
            mtu,
        };
        assert_eq!(out, expected);
        assert_eq!(c.poll_connection(), None);
        c.set_siblings([]);
        let out = c.from_tap(T0, &NO_OFFLOAD, &data(mac, 100));
        assert!(matches!(out, Outgoing::Forward { .. }));
    }
}

/// The queue pair number means nothing on another port, and the port's GID alone is not enough.
#[test]
fn only_the_port_s_own_queue_pairs_are_siblings() {
    let (mut c, _) = with_sibling(Mode::Datagram, 2044);
    for stranger in [address(0xb, 0x4b), address(0xa, 0x4c)] {
        let mac = teach(&mut c, stranger, [10, 0, 0, 3]);
        let out = c.from_tap(T0, &NO_OFFLOAD, &data(mac, 100));
        assert!(matches!(out, Outgoing::Forward { .. }), "{stranger}");
    }
    let group = frame(
        MAC_BROADCAST,
        MAC_A,
        0x0800,
        &ipv4([10, 0, 0, 1], [255; 4], b"x"),
    );
    let out = c.from_tap(T0, &NO_OFFLOAD, &group);
    assert!(matches!(out, Outgoing::Forward { .. }));
}

#[test]
fn what_a_sibling_does_not_take_is_answered_with_its_mtu() {
    let (mut c, mac) = with_sibling(Mode::Connected, 1500);
    let large = data(mac, 5000);
    let Outgoing::Sibling { to, mtu, .. } = c.from_tap(T0, &NO_OFFLOAD, &large) else {
        panic!("it is a sibling")
    };
    assert_eq!(mtu, 1500);
    let TooBig::Answer(answer) = c.too_big(T0, to, &NO_OFFLOAD, &large, 5020) else {
        panic!("not answered")
    };
    assert_eq!(answer[14 + 20..][..2], [3, 4]);
    assert_eq!(answer[14 + 26..][..2], 1500u16.to_be_bytes());
}

#[test]
fn arp_is_translated_for_a_sibling_too() {
    let (mut c, mac) = with_sibling(Mode::Connected, 60_000);
    let request = frame(
        mac,
        MAC_A,
        0x0806,
        &arp(2, &MAC_A, [10, 0, 0, 1], &mac, IP_B),
    );
    let Outgoing::Rewritten { to, packet } = c.from_tap(T0, &NO_OFFLOAD, &request) else {
        panic!("ARP has addresses of 20 bytes")
    };
    let (sent, to) = (packet.to_vec(), c.sibling(to));
    assert_eq!(to.map(|s| s.qpn), Some(Qpn::new(0x4b)));

    let mut far = core(b(), MAC_B);
    let seen = receive(&mut far, &c.meta_for_siblings(), &sent).unwrap();
    assert_eq!(seen[..6], MAC_B);
    assert_eq!(far.neighbours().next().map(|n| n.address), Some(c.local()));
}

/// The addresses learned by ARP go into the header of data, also of large sends.
#[test]
fn a_packet_of_a_sibling_gets_the_header_that_it_would_have_from_the_fabric() {
    let mut far = core(b(), MAC_B);
    let from_a = teach(&mut far, a().local(), [10, 0, 0, 1]);
    let meta = a().meta_for_siblings();
    for payload in [100, 40_000] {
        let packet = ipv4([10, 0, 0, 1], IP_B, &vec![7; payload]);
        let header = far.from_sibling(T0, &meta, 0x0800, &packet).unwrap();
        assert_eq!(header[..], frame(MAC_B, from_a, 0x0800, &[])[..]);
    }
    // An unknown sender is learned from data, as from the fabric.
    let mut fresh = core(b(), MAC_B);
    let packet = ipv4([10, 0, 0, 1], IP_B, b"x");
    let header = fresh.from_sibling(T0, &meta, 0x0800, &packet).unwrap();
    assert_eq!(header[6..12], from_a);
    assert_eq!(fresh.neighbours().count(), 1);
}

#[test]
fn what_must_be_read_or_kept_is_taken_as_datagrams_only() {
    let mut far = core(b(), MAC_B);
    let meta = a().meta_for_siblings();
    let solicitation = icmpv6("fe80::a", "fe80::b", &nd(135, "fe80::b", &[]));
    let mut fragment = solicitation.clone();
    fragment[6] = 44;
    let mut reply = ipv4([10, 0, 0, 1], IP_B, &[0; 300]);
    reply[20..24].copy_from_slice(&[0, 67, 0, 68]);
    let mut lie = ipv4([10, 0, 0, 1], IP_B, b"x");
    lie[2..4].copy_from_slice(&[0xff, 0xff]);
    for (ethertype, packet) in [
        (0x86dd, &solicitation),
        (0x86dd, &fragment),
        (0x0800, &reply),
        (0x0800, &lie),
        (0x0806, &arp(2, &MAC_A, [10, 0, 0, 1], &MAC_B, IP_B)),
    ] {
        assert_eq!(far.from_sibling(T0, &meta, ethertype, packet), None);
    }
    let known = ipv4([10, 0, 0, 1], IP_B, b"x");
    far.set_stacked(true);
    assert_eq!(far.from_sibling(T0, &meta, 0x0800, &known), None);
    far.host_has(T0, IP_B.into());
    assert!(far.from_sibling(T0, &meta, 0x0800, &known).is_some());
}

/// An address moves between two interfaces of a port: the first keeps its other addresses.
#[test]
fn an_address_that_moves_between_interfaces_of_one_port_takes_nothing_else_along() {
    let (one, other) = (address(0xb, 0x4b), address(0xb, 0x4c));
    let mut c = a();
    let mac = teach(&mut c, one, IP_B);
    teach(&mut c, one, [10, 0, 0, 9]);
    teach(&mut c, other, [10, 0, 0, 3]);
    let shared = payload(
        0x0806,
        &arp(1, &other.0, [10, 0, 0, 9], &[0; 20], [10, 0, 0, 9]),
    );
    let m = meta(other, c.broadcast_mgid());
    c.from_fabric(Time(60_000), &m, &shared);
    let sent = send(&mut c, Time(60_001), &data(mac, 100));
    assert_eq!(sent, Sent::Forward(one.gid(), one.qpn(), [8, 0, 0, 0]));
    // The new owner is found by the address.
    let packet = ipv4([10, 0, 0, 1], [10, 0, 0, 9], b"x");
    let unknown = frame([2, 9, 9, 9, 9, 9], MAC_A, 0x0800, &packet);
    let sent = send(&mut c, Time(60_002), &unknown);
    assert_eq!(sent, Sent::Forward(other.gid(), other.qpn(), [8, 0, 0, 0]));
}
