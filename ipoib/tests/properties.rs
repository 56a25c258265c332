//! Properties over arbitrary input.

use std::net::Ipv6Addr;

use fabric::{Gid, PKey, Qpn};
use ipoib::{Config, HardwareAddress, Incoming, Ipoib, Limits, Meta, Outgoing, Time, peer_mac};
use proptest::prelude::*;

const MAC: [u8; 6] = [6, 0, 0, 0, 0, 1];

fn gid(n: u32) -> Gid {
    Gid::from(Ipv6Addr::from(0xfe80_u128 << 112 | u128::from(n)))
}

fn core(limits: Limits, host: u32) -> Ipoib {
    Ipoib::new(Config {
        local: HardwareAddress::new(0, Qpn::new(0x4a), gid(host)),
        mac: MAC,
        pkey: PKey::DEFAULT,
        scope: 2,
        link_mtu: 2044,
        dhcp: ipoib::DhcpMode::default(),
        limits,
    })
}

fn small() -> Limits {
    Limits {
        neighbours: 128,
        groups: 32,
        guests: 8,
        unresolved: 8,
        held_per_neighbour: 3,
    }
}

/// Bytes that get past the first look: an EtherType that we know, IP headers with plausible fields.
fn packets() -> impl Strategy<Value = Vec<u8>> {
    let types = prop::sample::select(vec![[8, 0], [8, 6], [0x80, 0x35], [0x86, 0xdd]]);
    let icmp = prop::sample::select(vec![133u8, 134, 135, 136, 137, 128]);
    (
        types,
        prop::collection::vec(any::<u8>(), 0..200),
        icmp,
        any::<bool>(),
    )
        .prop_map(|(t, mut rest, icmp, shape)| {
            if shape && t == [0x86, 0xdd] && rest.len() >= 44 {
                let len = (rest.len() - 40) as u16;
                rest[0] = 0x60;
                rest[4..6].copy_from_slice(&len.to_be_bytes());
                rest[6..8].copy_from_slice(&[58, 255]);
                rest[40] = icmp;
            }
            if shape && t == [8, 0] && rest.len() >= 20 {
                let len = rest.len() as u16;
                rest[0] = 0x45;
                rest[2..4].copy_from_slice(&len.to_be_bytes());
            }
            [&t[..], &rest].concat()
        })
}

/// The 28 bytes of an Ethernet ARP packet.
fn arp(op: u8, sha: [u8; 6], spa: [u8; 4], tha: [u8; 6], tpa: [u8; 4]) -> Vec<u8> {
    [&[0, 1, 8, 0, 6, 4, 0, op][..], &sha, &spa, &tha, &tpa].concat()
}

proptest! {
    #[test]
    fn nothing_from_the_fabric_panics(
        p in packets(), reserved in any::<[u8; 2]>(), multicast in any::<bool>(), copy in any::<bool>(), src in 0u32..4
    ) {
        let mut c = core(small(), 1);
        let dst_gid = if multicast && !copy { c.broadcast_mgid() } else { gid(1) };
        let meta = Meta { src_qpn: Qpn::new(0x4a), src_gid: gid(src), dst_gid, multicast };
        let payload = [&p[..2], &reserved, &p[2..]].concat();
        if let Incoming::Packet { l3, .. } = c.from_fabric(Time(0), &meta, &payload) {
            prop_assert!(l3.len() <= payload.len() - 4);
        }
        let _ = c.from_fabric(Time(0), &meta, &p[..p.len().min(3)]);
    }

    #[test]
    fn nothing_from_the_tap_panics(p in packets(), dst in any::<[u8; 6]>(), csum in any::<u8>(), cut in 0usize..16) {
        let mut c = core(small(), 1);
        let frame = [&dst[..], &MAC, &p].concat();
        let mut prefix = [0; 12];
        prefix[0] = csum;
        let _ = c.from_tap(Time(0), &prefix, &frame);
        let _ = c.from_tap(Time(0), &prefix, &frame[..cut.min(frame.len())]);
        while c.poll_transmit(Time(0)).is_some() {}
        c.handle_timeout(Time(10_000));
    }

    #[test]
    fn arp_comes_out_as_it_went_in(spa in any::<[u8; 4]>(), tpa in any::<[u8; 4]>(), op in 1u8..3) {
        let (mut near, mut far) = (core(small(), 1), core(small(), 2));
        let here = peer_mac(&near.local());
        let broadcast = [&[0xff; 6][..], &MAC, &[8, 6], &arp(op, MAC, spa, [0; 6], tpa)].concat();
        let Outgoing::Rewritten { packet, .. } = near.from_tap(Time(0), &[0; 12], &broadcast) else {
            panic!("not rewritten")
        };
        let meta = Meta { src_qpn: Qpn::new(0x4a), src_gid: gid(1), dst_gid: far.broadcast_mgid(), multicast: true };
        let Incoming::Frame(seen) = far.from_fabric(Time(0), &meta, packet) else { panic!("not translated") };
        let expected = [&[0xff; 6][..], &here, &[8, 6], &arp(op, here, spa, [0; 6], tpa)].concat();
        prop_assert_eq!(seen, &expected[..]);
    }

    #[test]
    fn neighbour_discovery_comes_out_as_it_went_in(
        target in any::<[u8; 14]>(), flags in any::<u8>(), nonce in any::<[u8; 6]>(), ns in any::<bool>()
    ) {
        let (mut near, mut far) = (core(small(), 1), core(small(), 2));
        let packet = |mac: [u8; 6]| {
            let target = [&[0xfe, 0x80][..], &target].concat();
            let kind = if ns { [135, 1] } else { [136, 2] };
            let message = [&[kind[0], 0, 0, 0, flags, 0, 0, 0][..], &target, &[14, 1], &nonce, &[kind[1], 1], &mac].concat();
            let dst = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1).octets();
            let mut p = [&[0x60, 0, 0, 0, 0, message.len() as u8, 58, 255][..], &target, &dst, &message].concat();
            let sum = etherparse::checksum::Sum16BitWords::new()
                .add_slice(&p[8..])
                .add_2bytes([0, 58])
                .add_2bytes([0, message.len() as u8])
                .ones_complement();
            p[42..44].copy_from_slice(&sum.to_ne_bytes());
            p
        };
        let group = [0x33, 0x33, 0, 0, 0, 1];
        let frame = [&group[..], &MAC, &[0x86, 0xdd], &packet(MAC)].concat();
        let Outgoing::Rewritten { packet: sent, .. } = near.from_tap(Time(0), &[0; 12], &frame) else {
            panic!("not rewritten")
        };
        let dst_gid = far.mgid_for("ff02::1".parse().unwrap()).unwrap();
        let meta = Meta { src_qpn: Qpn::new(0x4a), src_gid: gid(1), dst_gid, multicast: true };
        let Incoming::Frame(seen) = far.from_fabric(Time(0), &meta, sent) else { panic!("not translated") };
        let here = peer_mac(&HardwareAddress::new(0, Qpn::new(0x4a), gid(1)));
        let expected = [&group[..], &here, &[0x86, 0xdd], &packet(here)].concat();
        prop_assert_eq!(seen, &expected[..]);
    }
}

/// A hundred thousand forged sources of data, then of ARP, and as many groups and destinations.
#[test]
fn floods_leave_tables_bounded_and_data_never_pushes_out_who_spoke() {
    let mut c = core(small(), 1);
    let l = c.local();
    let arp_from = |n: u32| {
        let a = HardwareAddress::new(0, Qpn::new(n + 2), gid(n + 100));
        let ip = (0x0a00_0000 + n).to_be_bytes();
        let head = [8, 6, 0, 0, 0, 32, 8, 0, 20, 4, 0, 1];
        let meta = Meta {
            src_qpn: a.qpn(),
            src_gid: a.gid(),
            dst_gid: l.gid(),
            multicast: false,
        };
        (
            meta,
            [&head[..], &a.0, &ip, &[0; 20], &[10, 0, 0, 1]].concat(),
        )
    };
    let ipv4 = |dst: u32| {
        let dst = dst.to_be_bytes();
        [
            &[0x45, 0, 0, 20, 0, 0, 0, 0, 64, 17, 0, 0, 192, 0, 2, 1][..],
            &dst,
        ]
        .concat()
    };
    for n in 0..64 {
        let (meta, p) = arp_from(n);
        c.from_fabric(Time(0), &meta, &p);
    }
    for n in 0..100_000u32 {
        let now = Time(u64::from(n));
        let meta = Meta {
            src_qpn: Qpn::new(n + 5000),
            src_gid: gid(n * 7 + 1000),
            dst_gid: l.gid(),
            multicast: false,
        };
        c.from_fabric(
            now,
            &meta,
            &[&[8, 0, 0, 0][..], &ipv4(0x0a00_0001)].concat(),
        );
        let group = [
            &[1, 0, 0x5e, 0, 0, 1][..],
            &MAC,
            &[8, 0],
            &ipv4(0xe000_0000 + n),
        ]
        .concat();
        assert!(matches!(
            c.from_tap(now, &[0; 12], &group),
            Outgoing::Forward { .. }
        ));
        let unknown = [
            &[2, 0, 0, 0, 0, 1][..],
            &MAC,
            &[8, 0],
            &ipv4(0x0b00_0000 + n),
        ]
        .concat();
        c.from_tap(now, &[0; 12], &unknown);
    }
    assert_eq!(c.neighbours().count(), 128);
    assert_eq!(c.neighbours().filter(|n| n.confirmed).count(), 64);
    assert_eq!(c.groups().count(), 32);
    assert!(c.counters().frames_held <= 8);
    for n in 0..100_000 {
        let (meta, p) = arp_from(n);
        c.from_fabric(Time(200_000), &meta, &p);
    }
    assert_eq!(c.neighbours().count(), 128);
    assert!(c.drain_updates().count() <= 4096);
}
