use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use fabric::{AddressHandle, Gid, PKey, Qpn};

use super::*;
use crate::DropReason;
use crate::address::MAC_BROADCAST;
use crate::wire::{fill_icmpv6_checksum, icmpv6_checksum};

const P1: PKey = PKey::new(0x8001);
const NO_OFFLOAD: [u8; 12] = [0; 12];
const T0: Time = Time(0);
const MAC_A: Mac = [6, 0, 0, 0, 0, 0xa];

fn address(host: u16, qpn: u32) -> HardwareAddress {
    let gid = Gid::from(Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, host));
    HardwareAddress::new(0, Qpn::new(qpn), gid)
}

fn core(local: HardwareAddress, mac: Mac) -> Ipoib {
    Ipoib::new(Config {
        local,
        mac,
        pkey: P1,
        scope: 2,
        limits: Limits {
            neighbours: 64,
            groups: 16,
            ..Limits::default()
        },
    })
}

fn a() -> Ipoib {
    core(address(0xa, 0x4a), MAC_A)
}

fn meta(from: HardwareAddress, dst_gid: Gid) -> Meta {
    Meta {
        src_qpn: from.qpn(),
        src_gid: from.gid(),
        dst_gid,
        multicast: dst_gid.is_multicast(),
    }
}

fn frame(dst: Mac, src: Mac, ethertype: u16, l3: &[u8]) -> Vec<u8> {
    [&dst[..], &src, &ethertype.to_be_bytes(), l3].concat()
}

fn ipv4(src: [u8; 4], dst: [u8; 4], payload: &[u8]) -> Vec<u8> {
    let mut p = vec![0x45, 0, 0, 0, 0, 0, 0x40, 0, 64, 17, 0, 0];
    p.extend_from_slice(&src);
    p.extend_from_slice(&dst);
    p.extend_from_slice(payload);
    let len = p.len() as u16;
    p[2..4].copy_from_slice(&len.to_be_bytes());
    p
}

fn icmpv6(src: &str, dst: &str, message: &[u8]) -> Vec<u8> {
    let mut p = vec![0x60, 0, 0, 0, 0, 0, 58, 255];
    p[4..6].copy_from_slice(&(message.len() as u16).to_be_bytes());
    p.extend_from_slice(&src.parse::<Ipv6Addr>().unwrap().octets());
    p.extend_from_slice(&dst.parse::<Ipv6Addr>().unwrap().octets());
    p.extend_from_slice(message);
    fill_icmpv6_checksum(&mut p);
    p
}

/// A neighbour solicitation (135) or advertisement (136) about `target`.
fn nd(icmp_type: u8, target: &str, options: &[u8]) -> Vec<u8> {
    let mut m = vec![icmp_type, 0, 0, 0, 0, 0, 0, 0];
    m.extend_from_slice(&target.parse::<Ipv6Addr>().unwrap().octets());
    m.extend_from_slice(options);
    m
}

fn mac_option(kind: u8, mac: Mac) -> Vec<u8> {
    [&[kind, 1][..], &mac].concat()
}

fn ib_option(kind: u8, a: HardwareAddress) -> Vec<u8> {
    [&[kind, 3, 0, 0][..], &a.0].concat()
}

fn arp(op: u16, sha: &[u8], spa: [u8; 4], tha: &[u8], tpa: [u8; 4]) -> Vec<u8> {
    let hw = if sha.len() == 20 { 32 } else { 1 };
    let mut p = vec![0, hw, 8, 0, sha.len() as u8, 4, 0, op as u8];
    for part in [sha, &spa, tha, &tpa] {
        p.extend_from_slice(part);
    }
    p
}

fn payload(ethertype: u16, l3: &[u8]) -> Vec<u8> {
    [&ethertype.to_be_bytes()[..], &[0, 0], l3].concat()
}

#[derive(PartialEq, Eq, Debug)]
enum Sent {
    Forward(Gid, Qpn, [u8; 4]),
    Rewritten(Gid, Qpn, Vec<u8>),
    Held,
    Dropped(DropReason),
}

fn send(c: &mut Ipoib, now: Time, frame: &[u8]) -> Sent {
    let (to, packet, encap) = match c.from_tap(now, &NO_OFFLOAD, frame) {
        Outgoing::Forward { to, encap } => (to, None, encap),
        Outgoing::Rewritten { to, packet } => (to, Some(packet.to_vec()), [0; 4]),
        Outgoing::Held => return Sent::Held,
        Outgoing::Dropped(r) => return Sent::Dropped(r),
    };
    let (gid, qpn) = c.address(to);
    match packet {
        None => Sent::Forward(gid, qpn, encap),
        Some(p) => Sent::Rewritten(gid, qpn, p),
    }
}

fn receive(c: &mut Ipoib, m: &Meta, payload: &[u8]) -> Result<Vec<u8>, DropReason> {
    match c.from_fabric(T0, m, payload) {
        Incoming::Packet { ethernet, l3 } => Ok([&ethernet[..], l3].concat()),
        Incoming::Frame(f) => Ok(f.to_vec()),
        Incoming::Dropped(r) => Err(r),
    }
}

/// Teaches `c` a peer by an ARP reply; gives the Ethernet address that stands for it.
fn teach(c: &mut Ipoib, peer: HardwareAddress, ip: [u8; 4]) -> Mac {
    let l = c.local();
    let p = payload(0x0806, &arp(2, &peer.0, ip, &l.0, [10, 0, 0, 1]));
    let f = receive(c, &meta(peer, l.gid()), &p).unwrap();
    f[6..12].try_into().unwrap()
}

fn group(c: &Ipoib, ip: &str) -> Gid {
    c.mgid_for(ip.parse().unwrap()).unwrap()
}

#[test]
fn c01_c02_encapsulation_is_the_ethertype_and_zero() {
    let mut c = a();
    let mac = teach(&mut c, address(0xb, 0x4b), [10, 0, 0, 2]);
    let to = (address(0xb, 0).gid(), Qpn::new(0x4b));
    let v4 = frame(
        mac,
        MAC_A,
        0x0800,
        &ipv4([10, 0, 0, 1], [10, 0, 0, 2], b"x"),
    );
    assert_eq!(
        send(&mut c, T0, &v4),
        Sent::Forward(to.0, to.1, [8, 0, 0, 0])
    );
    let mut v6 = icmpv6("fe80::a", "fe80::b", &[128, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(
        send(&mut c, T0, &frame(mac, MAC_A, 0x86dd, &v6)),
        Sent::Forward(to.0, to.1, [0x86, 0xdd, 0, 0])
    );
    v6[6] = 17;
    assert_eq!(
        send(&mut c, T0, &frame(mac, MAC_A, 0x86dd, &v6)),
        Sent::Forward(to.0, to.1, [0x86, 0xdd, 0, 0])
    );
    for ethertype in [0x0806u16, 0x8035] {
        let f = frame(mac, MAC_A, ethertype, &arp(2, &MAC_A, [1; 4], &mac, [2; 4]));
        let Sent::Rewritten(_, _, p) = send(&mut c, T0, &f) else {
            panic!()
        };
        assert_eq!(
            p[..4],
            [ethertype.to_be_bytes()[0], ethertype.to_be_bytes()[1], 0, 0]
        );
    }
}

#[test]
fn c03_reserved_bytes_are_ignored() {
    let mut c = a();
    let b = address(0xb, 0x4b);
    let mut p = payload(0x0800, &ipv4([10, 0, 0, 2], [10, 0, 0, 1], b"data"));
    p[2..4].copy_from_slice(&[0xde, 0xad]);
    let f = receive(&mut c, &meta(b, c.local().gid()), &p).unwrap();
    assert_eq!((&f[..6], &f[12..14]), (&MAC_A[..], &[8, 0][..]));
    assert_eq!(f[14..], p[4..]);
}

#[test]
fn c04_other_types_are_dropped_and_counted() {
    let mut c = a();
    for t in [0x8100, 0x88cc, 0x88ca, 0x8863, 0x0026, 0x88a8] {
        let f = frame(MAC_BROADCAST, MAC_A, t, &[0; 46]);
        assert_eq!(
            send(&mut c, T0, &f),
            Sent::Dropped(DropReason::UnsupportedType)
        );
    }
    assert_eq!(c.counters().tx_dropped(DropReason::UnsupportedType), 6);
    let p = payload(0x88ca, &[0; 40]);
    let m = meta(address(0xb, 0x4b), c.local().gid());
    assert_eq!(receive(&mut c, &m, &p), Err(DropReason::UnsupportedType));
}

#[test]
fn c06_flags_on_the_wire_are_what_we_were_given() {
    let mut c = a();
    let request = arp(1, &MAC_A, [10, 0, 0, 1], &[0; 6], [10, 0, 0, 2]);
    let f = frame(MAC_BROADCAST, MAC_A, 0x0806, &request);
    let Sent::Rewritten(_, _, p) = send(&mut c, T0, &f) else {
        panic!()
    };
    assert_eq!(p[12..32], c.local().0);
    assert_eq!(p[12], 0);
}

#[test]
fn c07_peers_with_flags_are_the_same_peers() {
    let mut c = a();
    let mut b = address(0xb, 0x4b);
    let plain = teach(&mut c, b, [10, 0, 0, 2]);
    b.0[0] = 0xc1;
    assert_eq!(teach(&mut c, b, [10, 0, 0, 2]), plain);
    assert_eq!(c.neighbours().count(), 1);
}

#[test]
fn c12_ethernet_padding_does_not_leave() {
    let mut c = a();
    let mut f = frame(
        MAC_BROADCAST,
        MAC_A,
        0x0806,
        &arp(1, &MAC_A, [10, 0, 0, 1], &[0; 6], [10, 0, 0, 2]),
    );
    f.resize(60, 0);
    let Sent::Rewritten(_, _, p) = send(&mut c, T0, &f) else {
        panic!()
    };
    assert_eq!(p.len(), 60);
}

#[test]
fn c11_c17_broadcasts_go_to_the_broadcast_group() {
    let mut c = a();
    for dst in [[255; 4], [10, 0, 0, 255]] {
        let f = frame(MAC_BROADCAST, MAC_A, 0x0800, &ipv4([10, 0, 0, 1], dst, b""));
        assert_eq!(
            send(&mut c, T0, &f),
            Sent::Forward(
                "ff12:401b:8001::ffff:ffff".parse().unwrap(),
                Qpn::MULTICAST,
                [8, 0, 0, 0]
            )
        );
    }
    let f = frame(
        [1, 0, 0x5e, 0, 0, 1],
        MAC_A,
        0x0800,
        &ipv4([10, 0, 0, 1], [10, 0, 0, 2], b""),
    );
    assert_eq!(send(&mut c, T0, &f), Sent::Dropped(DropReason::NotAGroup));
}

#[test]
fn c22_the_mgid_comes_from_the_ip_destination() {
    let mut c = a();
    let f = frame(
        [1, 0, 0x5e, 0, 0, 0xfb],
        MAC_A,
        0x0800,
        &ipv4([10, 0, 0, 1], [225, 0, 0, 251], b""),
    );
    let Sent::Forward(gid, qpn, _) = send(&mut c, T0, &f) else {
        panic!()
    };
    assert_eq!(gid, "ff12:401b:8001::100:fb".parse().unwrap());
    assert_eq!(qpn, Qpn::MULTICAST);
}

#[test]
fn c23_reports_go_to_their_groups() {
    let mut c = a();
    // MLDv2 with its hop-by-hop header, no ND inside.
    let mut mld = icmpv6("fe80::a", "ff02::16", &[143, 0, 0, 0, 0, 0, 0, 0]);
    mld[6] = 0;
    let f = frame([0x33, 0x33, 0, 0, 0, 0x16], MAC_A, 0x86dd, &mld);
    let Sent::Forward(gid, ..) = send(&mut c, T0, &f) else {
        panic!()
    };
    assert_eq!(gid, "ff12:601b:8001::16".parse().unwrap());
    let f = frame(
        [1, 0, 0x5e, 0, 0, 0x16],
        MAC_A,
        0x0800,
        &ipv4([10, 0, 0, 1], [224, 0, 0, 22], b""),
    );
    let Sent::Forward(gid, ..) = send(&mut c, T0, &f) else {
        panic!()
    };
    assert_eq!(gid, "ff12:401b:8001::16".parse().unwrap());
}

#[test]
fn c35_c36_destination_follows_from_where_it_came() {
    let mut c = a();
    let b = address(0xb, 0x4b);
    let to = |c: &mut Ipoib, gid: Gid, dst: [u8; 4]| {
        receive(
            c,
            &meta(b, gid),
            &payload(0x0800, &ipv4([10, 0, 0, 2], dst, b"")),
        )
        .map(|f| f[..6].to_vec())
    };
    let (own, broadcast) = (c.local().gid(), c.broadcast_mgid());
    assert_eq!(to(&mut c, own, [10, 0, 0, 1]).unwrap(), MAC_A);
    assert_eq!(
        to(&mut c, broadcast, [10, 0, 0, 255]).unwrap(),
        MAC_BROADCAST
    );
    let g = group(&c, "225.1.2.3");
    assert_eq!(
        to(&mut c, g, [225, 1, 2, 3]).unwrap(),
        [1, 0, 0x5e, 1, 2, 3]
    );
    assert_eq!(to(&mut c, g, [10, 0, 0, 1]), Err(DropReason::NotAGroup));
}

#[test]
fn unicast_copies_take_the_group_from_the_packet() {
    let mut c = a();
    let m = Meta {
        multicast: true,
        ..meta(address(0xb, 0x4b), c.local().gid())
    };
    let mut dst = |ethertype, l3: &[u8]| {
        receive(&mut c, &m, &payload(ethertype, l3)).map(|f| f[..6].to_vec())
    };
    let v4 = |d| ipv4([10, 0, 0, 2], d, b"");
    assert_eq!(
        dst(0x0800, &v4([239, 1, 2, 3])).unwrap(),
        [1, 0, 0x5e, 1, 2, 3]
    );
    assert_eq!(dst(0x0800, &v4([255; 4])).unwrap(), MAC_BROADCAST);
    assert_eq!(dst(0x0800, &v4([10, 0, 0, 255])).unwrap(), MAC_BROADCAST);
    let echo = [128, 0, 0, 0, 0, 0, 0, 0];
    assert_eq!(
        dst(0x86dd, &icmpv6("fe80::b", "ff02::1", &echo)).unwrap(),
        [0x33, 0x33, 0, 0, 0, 1]
    );
    assert_eq!(
        dst(0x86dd, &icmpv6("fe80::b", "fe80::a", &echo)),
        Err(DropReason::NotAGroup)
    );
    let request = arp(
        1,
        &address(0xb, 0x4b).0,
        [10, 0, 0, 2],
        &[0; 20],
        [10, 0, 0, 1],
    );
    assert_eq!(dst(0x0806, &request).unwrap(), MAC_BROADCAST);
}

#[test]
fn c37_c38_only_our_own_echo_is_dropped() {
    let mut c = a();
    let p = payload(0x0800, &ipv4([10, 0, 0, 2], [224, 0, 0, 1], b""));
    let g = group(&c, "224.0.0.1");
    let own = meta(c.local(), g);
    assert_eq!(receive(&mut c, &own, &p), Err(DropReason::SelfEcho));
    assert_eq!(c.counters().rx_dropped(DropReason::SelfEcho), 1);
    assert!(receive(&mut c, &meta(address(0xb, 0x4a), g), &p).is_ok());
    assert!(receive(&mut c, &meta(address(0xa, 0x4b), g), &p).is_ok());
}

#[test]
fn c39_short_or_lying_packets_are_dropped() {
    let mut c = a();
    let m = meta(address(0xb, 0x4b), c.local().gid());
    let good = payload(0x0800, &ipv4([10, 0, 0, 2], [10, 0, 0, 1], b"data"));
    for len in 0..good.len() {
        assert_eq!(
            receive(&mut c, &m, &good[..len]),
            Err(DropReason::Malformed),
            "{len}"
        );
    }
    let long = [&good[..], b"trailer"].concat();
    assert_eq!(receive(&mut c, &m, &long).unwrap()[14..], good[4..]);
    for (at, value) in [(4, 0x65), (4, 0x44), (6, 0xff), (7, 10)] {
        let mut bad = good.clone();
        bad[at] = value;
        assert_eq!(
            receive(&mut c, &m, &bad),
            Err(DropReason::Malformed),
            "byte {at}"
        );
    }
}

#[test]
fn c42_request_has_infiniband_form_and_goes_to_the_broadcast_group() {
    let mut c = core(
        HardwareAddress::new(
            0x80,
            Qpn::new(0x4a),
            "fe80::2:c903:e7:7e12".parse().unwrap(),
        ),
        MAC_A,
    );
    let request = arp(1, &MAC_A, [10, 0, 0, 1], &[0; 6], [10, 0, 0, 2]);
    let mut expected = vec![8, 6, 0, 0, 0, 0x20, 8, 0, 0x14, 4, 0, 1];
    expected.extend_from_slice(&c.local().0);
    expected.extend_from_slice(&[10, 0, 0, 1]);
    expected.extend_from_slice(&[0; 20]);
    expected.extend_from_slice(&[10, 0, 0, 2]);
    let got = send(&mut c, T0, &frame(MAC_BROADCAST, MAC_A, 0x0806, &request));
    assert_eq!(
        got,
        Sent::Rewritten(c.broadcast_mgid(), Qpn::MULTICAST, expected)
    );
}

#[test]
fn c43_reply_is_unicast_to_the_requester() {
    let mut c = a();
    let b = address(0xb, 0x4b);
    let request = payload(
        0x0806,
        &arp(1, &b.0, [10, 0, 0, 2], &[0; 20], [10, 0, 0, 1]),
    );
    let g = c.broadcast_mgid();
    let f = receive(&mut c, &meta(b, g), &request).unwrap();
    let peer: Mac = f[6..12].try_into().unwrap();
    let reply = arp(2, &MAC_A, [10, 0, 0, 1], &peer, [10, 0, 0, 2]);
    let expected = payload(
        0x0806,
        &arp(2, &c.local().0, [10, 0, 0, 1], &b.0, [10, 0, 0, 2]),
    );
    assert_eq!(
        send(&mut c, T0, &frame(peer, MAC_A, 0x0806, &reply)),
        Sent::Rewritten(b.gid(), b.qpn(), expected)
    );
}

#[test]
fn c44_the_tap_sees_ethernet_arp_from_a_synthetic_address() {
    let mut c = a();
    let b = address(0xb, 0x4b);
    let request = payload(
        0x0806,
        &arp(1, &b.0, [10, 0, 0, 2], &[0; 20], [10, 0, 0, 1]),
    );
    let g = c.broadcast_mgid();
    let f = receive(&mut c, &meta(b, g), &request).unwrap();
    let m = peer_mac(&b);
    assert_eq!(m[0] & 3, 2);
    let expected = arp(1, &m, [10, 0, 0, 2], &[0; 6], [10, 0, 0, 1]);
    assert_eq!(f, frame(MAC_BROADCAST, m, 0x0806, &expected));
}

#[test]
fn c45_arp_of_other_lengths_is_dropped() {
    let mut c = a();
    let b = address(0xb, 0x4b);
    let good = payload(
        0x0806,
        &arp(1, &b.0, [10, 0, 0, 2], &[0; 20], [10, 0, 0, 1]),
    );
    let m = meta(b, c.broadcast_mgid());
    for (at, value) in [(5, 1), (6, 9), (8, 6), (9, 16)] {
        let mut bad = good.clone();
        bad[at] = value;
        assert_eq!(receive(&mut c, &m, &bad), Err(DropReason::BadArp));
    }
    assert_eq!(receive(&mut c, &m, &good[..59]), Err(DropReason::BadArp));
    let nobody = payload(
        0x0806,
        &arp(1, &[0; 20], [10, 0, 0, 2], &[0; 20], [10, 0, 0, 1]),
    );
    assert_eq!(receive(&mut c, &m, &nobody), Err(DropReason::BadAddress));
    assert_eq!(c.neighbours().count(), 0);
}

#[test]
fn c47_c49_c51_solicitation_gets_the_long_option_and_a_right_checksum() {
    let mut c = a();
    let ns = icmpv6(
        "fe80::a",
        "ff02::1:ff00:b",
        &nd(135, "fe80::b", &mac_option(1, MAC_A)),
    );
    let got = send(
        &mut c,
        T0,
        &frame([0x33, 0x33, 0xff, 0, 0, 0xb], MAC_A, 0x86dd, &ns),
    );
    let expected = icmpv6(
        "fe80::a",
        "ff02::1:ff00:b",
        &nd(135, "fe80::b", &ib_option(1, c.local())),
    );
    assert_eq!(expected.len(), ns.len() + 16);
    assert_eq!(icmpv6_checksum(&expected), 0);
    assert_eq!(expected[7], 255);
    let g = group(&c, "ff02::1:ff00:b");
    assert_eq!(
        got,
        Sent::Rewritten(g, Qpn::MULTICAST, payload(0x86dd, &expected))
    );
}

#[test]
fn partial_checksums_of_the_host_are_completed() {
    let mut c = a();
    let ns = icmpv6(
        "fe80::a",
        "ff02::1:ff00:b",
        &nd(135, "fe80::b", &mac_option(1, MAC_A)),
    );
    let mut partial = ns.clone();
    partial[42..44].copy_from_slice(&[0x12, 0x34]);
    let f = frame([0x33, 0x33, 0xff, 0, 0, 0xb], MAC_A, 0x86dd, &partial);
    assert_eq!(send(&mut c, T0, &f), Sent::Dropped(DropReason::BadChecksum));
    let mut needs = NO_OFFLOAD;
    needs[0] = 1;
    let Outgoing::Rewritten { packet, .. } = c.from_tap(T0, &needs, &f) else {
        panic!()
    };
    assert_eq!(icmpv6_checksum(&packet[4..]), 0);
}

#[test]
fn c50_c53_advertisement_gets_the_short_option_and_a_right_checksum() {
    let mut c = a();
    let b = address(0xb, 0x4b);
    let na = icmpv6("fe80::b", "ff02::1", &nd(136, "fe80::b", &ib_option(2, b)));
    let g = group(&c, "ff02::1");
    let f = receive(&mut c, &meta(b, g), &payload(0x86dd, &na)).unwrap();
    let m = peer_mac(&b);
    let expected = icmpv6("fe80::b", "ff02::1", &nd(136, "fe80::b", &mac_option(2, m)));
    assert_eq!(expected.len(), na.len() - 16);
    assert_eq!(f, frame([0x33, 0x33, 0, 0, 0, 1], m, 0x86dd, &expected));
    let n = c.neighbours().next().unwrap();
    assert_eq!(n.ips, ["fe80::b".parse::<IpAddr>().unwrap()]);
    assert!(n.confirmed);
}

#[test]
fn c48_options_of_the_other_links_size_are_no_addresses() {
    let mut c = a();
    let b = address(0xb, 0x4b);
    let forged = mac_option(2, [2, 1, 2, 3, 4, 5]);
    let na = icmpv6("fe80::b", "ff02::1", &nd(136, "fe80::b", &forged));
    let g = group(&c, "ff02::1");
    let f = receive(&mut c, &meta(b, g), &payload(0x86dd, &na)).unwrap();
    assert_eq!(
        f[14..],
        icmpv6("fe80::b", "ff02::1", &nd(136, "fe80::b", &[]))
    );
    assert_eq!(c.counters().nd_options_stripped, 1);
}

#[test]
fn c52_duplicate_address_detection_passes_untouched_and_does_not_echo() {
    let mut c = a();
    let nonce = [14, 1, 1, 2, 3, 4, 5, 6];
    let ns = icmpv6("::", "ff02::1:ff00:a", &nd(135, "fe80::a", &nonce));
    let f = frame([0x33, 0x33, 0xff, 0, 0, 0xa], MAC_A, 0x86dd, &ns);
    let g = group(&c, "ff02::1:ff00:a");
    assert_eq!(
        send(&mut c, T0, &f),
        Sent::Forward(g, Qpn::MULTICAST, [0x86, 0xdd, 0, 0])
    );
    let own = meta(c.local(), g);
    assert_eq!(
        receive(&mut c, &own, &payload(0x86dd, &ns)),
        Err(DropReason::SelfEcho)
    );
    let other = meta(address(0xb, 0x4b), g);
    assert_eq!(
        receive(&mut c, &other, &payload(0x86dd, &ns)).unwrap()[14..],
        ns
    );
}

#[test]
fn c54_router_messages_and_redirects_are_translated_both_ways() {
    let mut c = a();
    let b = address(0xb, 0x4b);
    let peer = teach(&mut c, b, [10, 0, 0, 2]);
    let mut redirect = nd(137, "fe80::b", &[]);
    redirect.extend_from_slice(&"2001:db8::9".parse::<Ipv6Addr>().unwrap().octets());
    for (head, kind, near, far) in [
        (vec![133, 0, 0, 0, 0, 0, 0, 0], 1, MAC_A, c.local()),
        ([&[134][..], &[0; 15]].concat(), 1, MAC_A, c.local()),
        (redirect.clone(), 2, peer, b),
    ] {
        let ethernet = icmpv6(
            "fe80::a",
            "fe80::b",
            &[&head[..], &mac_option(kind, near)].concat(),
        );
        let infiniband = icmpv6(
            "fe80::a",
            "fe80::b",
            &[&head[..], &ib_option(kind, far)].concat(),
        );
        assert_eq!(
            send(&mut c, T0, &frame(peer, MAC_A, 0x86dd, &ethernet)),
            Sent::Rewritten(b.gid(), b.qpn(), payload(0x86dd, &infiniband))
        );
        let mut other = core(b, [6; 6]);
        let f = receive(
            &mut other,
            &meta(c.local(), b.gid()),
            &payload(0x86dd, &infiniband),
        )
        .unwrap();
        let seen = other.mac_of(&far);
        assert_eq!(
            f[14..],
            icmpv6(
                "fe80::a",
                "fe80::b",
                &[&head[..], &mac_option(kind, seen)].concat()
            )
        );
    }
}

#[test]
fn redirects_are_trimmed_to_1280_bytes() {
    let mut c = a();
    let b = address(0xb, 0x4b);
    let peer = teach(&mut c, b, [10, 0, 0, 2]);
    let mut m = nd(137, "fe80::b", &[]);
    m.extend_from_slice(&[0x20; 16]);
    m.extend_from_slice(&mac_option(2, peer));
    let quoted = 1280 - 40 - m.len();
    let at = 40 + m.len() + 16;
    m.extend_from_slice(&[4, (quoted / 8) as u8, 0, 0, 0, 0, 0, 0]);
    m.extend((8..quoted).map(|i| i as u8));
    let whole = icmpv6("fe80::a", "fe80::b", &m);
    assert_eq!(whole.len(), 1280);
    let got = send(&mut c, T0, &frame(peer, MAC_A, 0x86dd, &whole));
    let Sent::Rewritten(_, _, p) = got else {
        panic!()
    };
    let p = &p[4..];
    assert_eq!((p.len(), icmpv6_checksum(p)), (1280, 0));
    assert_eq!(usize::from(p[at + 1]), quoted / 8 - 2);
    assert_eq!(p[at + 8..], whole[at - 16 + 8..1264]);
}

#[test]
fn c55_restarted_peer_heals_at_once_and_its_old_address_goes_on_working() {
    let mut c = a();
    let ip = [10, 0, 0, 2];
    let old = teach(&mut c, address(0xb, 0x4b), ip);
    let new = teach(&mut c, address(0xb, 0x99), ip);
    assert_ne!(old, new);
    let to = |c: &mut Ipoib, mac| {
        let f = frame(mac, MAC_A, 0x0800, &ipv4([10, 0, 0, 1], ip, b""));
        match send(c, T0, &f) {
            Sent::Forward(_, qpn, _) => qpn.get(),
            other => panic!("{other:?}"),
        }
    };
    assert_eq!((to(&mut c, old), to(&mut c, new)), (0x99, 0x99));
    // The address moves to another port: another host, whose frames are its own.
    let elsewhere = teach(&mut c, address(0xc, 0x11), ip);
    assert_eq!((to(&mut c, new), to(&mut c, elsewhere)), (0x99, 0x11));
    // The old queue pair speaks again: it was no restart.
    teach(&mut c, address(0xb, 0x4b), [10, 0, 0, 7]);
    assert_eq!((to(&mut c, old), to(&mut c, new)), (0x4b, 0x99));
    assert_eq!(c.counters().neighbours_superseded, 1);
}

#[test]
fn bad_neighbour_discovery_is_dropped() {
    let b = address(0xb, 0x4b);
    let try_it = |change: &dyn Fn(&mut Vec<u8>), refill: bool| {
        let mut c = a();
        let mut na = icmpv6("fe80::b", "fe80::a", &nd(136, "fe80::b", &ib_option(2, b)));
        change(&mut na);
        if refill {
            fill_icmpv6_checksum(&mut na);
        }
        let m = meta(b, c.local().gid());
        let r = receive(&mut c, &m, &payload(0x86dd, &na));
        assert_eq!(c.neighbours().count(), usize::from(r.is_ok()));
        r.err()
    };
    assert_eq!(try_it(&|_| {}, true), None);
    assert_eq!(try_it(&|p| p[7] = 254, true), Some(DropReason::BadHopLimit));
    assert_eq!(
        try_it(&|p| p[50] ^= 1, false),
        Some(DropReason::BadChecksum)
    );
    assert_eq!(try_it(&|p| p[65] = 0, true), Some(DropReason::BadNdOption));
    assert_eq!(try_it(&|p| p[65] = 4, true), Some(DropReason::BadNdOption));
    assert_eq!(try_it(&|p| p[65] = 2, true), Some(DropReason::BadNdOption));
    assert_eq!(try_it(&|p| p[5] = 20, true), Some(DropReason::Malformed));
    assert_eq!(try_it(&|p| p[5] = 200, true), Some(DropReason::Malformed));
    assert_eq!(
        try_it(&|p| p[68..88].fill(0), true),
        Some(DropReason::BadAddress)
    );
    let fragment = |p: &mut Vec<u8>| {
        p.splice(40..40, [58, 0, 0, 1, 0, 0, 0, 1]);
        p[6] = 44;
        p[5] += 8;
    };
    assert_eq!(try_it(&fragment, false), Some(DropReason::FragmentedNd));
}

#[test]
fn signed_messages_pass_untouched() {
    let mut c = a();
    let options = [&mac_option(1, MAC_A)[..], &[11, 1, 0, 0, 0, 0, 0, 0]].concat();
    let ns = icmpv6("fe80::a", "ff02::1:ff00:b", &nd(135, "fe80::b", &options));
    let f = frame([0x33, 0x33, 0xff, 0, 0, 0xb], MAC_A, 0x86dd, &ns);
    assert!(matches!(send(&mut c, T0, &f), Sent::Forward(..)));
    assert_eq!(c.counters().nd_signed, 1);
}

#[test]
fn unknown_destination_is_asked_for_and_frames_wait() {
    let mut c = a();
    let b = address(0xb, 0x4b);
    let stale = [2, 9, 9, 9, 9, 9];
    let f = frame(
        stale,
        MAC_A,
        0x0800,
        &ipv4([10, 0, 0, 1], [10, 0, 0, 2], b"hello"),
    );
    assert_eq!(send(&mut c, T0, &f), Sent::Held);
    assert_eq!(c.next_deadline(), Some(T0));
    let (to, p) = c.poll_transmit(T0).unwrap();
    let request = p.to_vec();
    assert_eq!(c.address(to), (c.broadcast_mgid(), Qpn::MULTICAST));
    let expected = arp(1, &c.local().0, [10, 0, 0, 1], &[0; 20], [10, 0, 0, 2]);
    assert_eq!(request, payload(0x0806, &expected));
    assert!(c.poll_transmit(T0).is_none());
    assert_eq!(c.next_deadline(), Some(Time(1000)));
    assert_eq!(c.pop_released(), None);
    teach(&mut c, b, [10, 0, 0, 2]);
    let held = c.pop_released().unwrap();
    assert_eq!(held.frame[..], f);
    assert_eq!(
        send(&mut c, T0, &held.frame),
        Sent::Forward(b.gid(), b.qpn(), [8, 0, 0, 0])
    );
    assert_eq!(c.next_deadline(), None);
}

#[test]
fn unknown_ipv6_destination_is_solicited() {
    let mut c = a();
    let echo = icmpv6("fe80::a", "fe80::b", &[128, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(
        send(&mut c, T0, &frame([2, 9, 9, 9, 9, 9], MAC_A, 0x86dd, &echo)),
        Sent::Held
    );
    let (to, p) = c.poll_transmit(T0).unwrap();
    let p = p.to_vec();
    assert_eq!(c.address(to).0, group(&c, "ff02::1:ff00:b"));
    let expected = icmpv6(
        "fe80::a",
        "ff02::1:ff00:b",
        &nd(135, "fe80::b", &ib_option(1, c.local())),
    );
    assert_eq!(p, payload(0x86dd, &expected));
}

#[test]
fn unicast_request_to_a_forgotten_peer_asks_everybody() {
    let mut c = a();
    let probe = arp(1, &MAC_A, [10, 0, 0, 1], &[0; 6], [10, 0, 0, 2]);
    let got = send(
        &mut c,
        T0,
        &frame([2, 9, 9, 9, 9, 9], MAC_A, 0x0806, &probe),
    );
    assert!(matches!(got, Sent::Rewritten(g, Qpn::MULTICAST, _) if g == c.broadcast_mgid()));
    let f = frame(MAC_A, MAC_A, 0x0806, &probe);
    assert_eq!(send(&mut c, T0, &f), Sent::Dropped(DropReason::ToSelf));
}

#[test]
fn announcements_are_sent_twice() {
    let mut c = a();
    c.announce(Ipv4Addr::new(10, 0, 0, 1).into());
    c.announce("fe80::a".parse().unwrap());
    c.announce("ff02::1".parse().unwrap());
    let mut all = Vec::new();
    for now in [0, 500, 1000, 5000] {
        while let Some((to, p)) = c.poll_transmit(Time(now)) {
            let p = p.to_vec();
            all.push((now, c.address(to).0, p));
        }
    }
    let garp = payload(
        0x0806,
        &arp(1, &c.local().0, [10, 0, 0, 1], &[0; 20], [10, 0, 0, 1]),
    );
    let mut m = nd(136, "fe80::a", &ib_option(2, c.local()));
    m[4] = 0x20;
    let na = payload(0x86dd, &icmpv6("fe80::a", "ff02::1", &m));
    assert_eq!(all.len(), 4);
    for now in [0, 1000] {
        assert!(all.contains(&(now, c.broadcast_mgid(), garp.clone())));
        assert!(all.contains(&(now, group(&c, "ff02::1"), na.clone())));
    }
    assert_eq!(c.next_deadline(), None);
}

#[test]
fn replicas_agree_and_release_what_others_resolved() {
    let (mut one, mut two) = (a(), a());
    let ip = [10, 0, 0, 2];
    let f = frame(
        [2, 9, 9, 9, 9, 9],
        MAC_A,
        0x0800,
        &ipv4([10, 0, 0, 1], ip, b""),
    );
    assert_eq!(send(&mut two, T0, &f), Sent::Held);
    let old = teach(&mut one, address(0xb, 0x4b), ip);
    teach(&mut one, address(0xb, 0x4b), ip);
    let news: Vec<Update> = one.drain_updates().collect();
    assert_eq!(news.len(), 1);
    news.iter().for_each(|u| two.apply(T0, u));
    assert!(!two.has_updates());
    assert!(two.pop_released().is_some());
    teach(&mut one, address(0xb, 0x99), ip);
    let news: Vec<Update> = one.drain_updates().collect();
    assert_eq!(news.len(), 2);
    news.iter().for_each(|u| two.apply(T0, u));
    let f = frame(old, MAC_A, 0x0800, &ipv4([10, 0, 0, 1], ip, b""));
    assert_eq!(send(&mut one, T0, &f), send(&mut two, T0, &f));
    assert!(matches!(send(&mut two, T0, &f), Sent::Forward(_, q, _) if q.get() == 0x99));
}

#[test]
fn address_handles_come_back() {
    let mut c = a();
    let mac = teach(&mut c, address(0xb, 0x4b), [10, 0, 0, 2]);
    let f = frame(mac, MAC_A, 0x0800, &ipv4([10, 0, 0, 1], [10, 0, 0, 2], b""));
    let Outgoing::Forward { to, .. } = c.from_tap(T0, &NO_OFFLOAD, &f) else {
        panic!()
    };
    assert_eq!(c.ah(to), None);
    c.set_ah(to, AddressHandle(1));
    c.set_ah(to, AddressHandle(2));
    assert_eq!(
        (c.ah(to), c.pop_released_ah()),
        (Some(AddressHandle(2)), Some(AddressHandle(1)))
    );
    for n in 0..100 {
        teach(&mut c, address(0xc, 100 + n), [10, 1, 0, n as u8]);
    }
    assert_eq!(c.pop_released_ah(), Some(AddressHandle(2)));
    assert_eq!(
        (c.neighbours().count(), c.counters().neighbours_evicted),
        (64, 37)
    );
    c.set_ah(Target::Group(0), AddressHandle(3));
    c.release_all();
    assert_eq!(c.pop_released_ah(), Some(AddressHandle(3)));
}

#[test]
fn data_teaches_a_hint_that_never_takes_an_address_away() {
    let mut c = a();
    let ip = [10, 0, 0, 2];
    teach(&mut c, address(0xb, 0x4b), ip);
    c.drain_updates().for_each(drop);
    let m = meta(address(0xd, 0x4d), c.local().gid());
    receive(&mut c, &m, &payload(0x0800, &ipv4(ip, [10, 0, 0, 1], b""))).unwrap();
    assert!(!c.has_updates());
    let f = frame(
        [2, 9, 9, 9, 9, 9],
        MAC_A,
        0x0800,
        &ipv4([10, 0, 0, 1], ip, b""),
    );
    assert!(matches!(send(&mut c, T0, &f), Sent::Forward(_, q, _) if q.get() == 0x4b));
}

#[test]
fn own_address_changes_take_effect() {
    let mut c = a();
    let b = address(0xb, 0x4b);
    let mac = teach(&mut c, b, [10, 0, 0, 2]);
    c.set_mac(mac);
    assert_eq!(c.neighbours().count(), 0);
    let other = teach(&mut c, b, [10, 0, 0, 2]);
    assert_ne!(other, mac);
    c.set_local(b);
    assert_eq!(c.neighbours().count(), 0);
    let p = payload(0x0800, &ipv4([10, 0, 0, 2], [10, 0, 0, 1], b""));
    assert_eq!(
        receive(&mut c, &meta(b, b.gid()), &p),
        Err(DropReason::SelfEcho)
    );
}
