//! Properties with arbitrary input.

use std::net::{IpAddr, Ipv6Addr};

use ipoib::{Config, HardwareAddress, Incoming, Ipoib, Limits, Meta, Outgoing, Sibling, peer_mac};
use proptest::prelude::*;
use proto::{Gid, PKey, Qpn, Time};

const MAC: [u8; 6] = [6, 0, 0, 0, 0, 1];

fn gid(n: u32) -> Gid {
    Gid::from(Ipv6Addr::from(0xfe80_u128 << 112 | u128::from(n)))
}

fn core(limits: Limits, host: u32) -> Ipoib {
    Ipoib::new(core_config(limits, host))
}

fn core_config(limits: Limits, host: u32) -> Config {
    Config {
        local: HardwareAddress::new(0, Qpn::new(0x4a), gid(host)),
        mac: MAC,
        pkey: PKey::DEFAULT,
        scope: 2,
        link_mtu: 2044,
        mode: ipoib::Mode::Datagram,
        services: proto::Services::Any,
        dhcp: ipoib::DhcpMode::default(),
        claims: ipoib::ClaimCheck::default(),
        refuse_requests: false,
        limits,
    }
}

fn small() -> Limits {
    Limits {
        neighbours: 128,
        groups: 32,
        guests: 8,
        connections: 16,
        unresolved: 8,
        held_per_neighbour: 3,
    }
}

/// Bytes that pass the first checks: a known EtherType, IP headers with plausible fields.
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
        let meta = Meta { src_qpn: Qpn::new(0x4a), src_gid: gid(src), has_src_gid: true, dst_gid, multicast };
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
        let meta = Meta { src_qpn: Qpn::new(0x4a), src_gid: gid(1), has_src_gid: true, dst_gid: far.broadcast_mgid(), multicast: true };
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
        let meta = Meta { src_qpn: Qpn::new(0x4a), src_gid: gid(1), has_src_gid: true, dst_gid, multicast: true };
        let Incoming::Frame(seen) = far.from_fabric(Time(0), &meta, sent) else { panic!("not translated") };
        let here = peer_mac(&HardwareAddress::new(0, Qpn::new(0x4a), gid(1)));
        let expected = [&group[..], &here, &[0x86, 0xdd], &packet(here)].concat();
        prop_assert_eq!(seen, &expected[..]);
    }
}

/// An input of an interface with guests. Hosts, MACs and IP addresses come from small sets, so that they
/// collide.
#[derive(Clone, Debug)]
enum Happening {
    /// ARP from the TAP: operation, sender, sender's IP address, target, peer or broadcast.
    TapArp(u8, u8, u8, u8, Option<u8>),
    /// Data from the TAP: source, source IP address, destination IP address, peer.
    TapData(u8, u8, u8, u8),
    /// ARP from the fabric: operation, peer, peer's IP address, target, broadcast.
    FabricArp(u8, u8, u8, u8, bool),
    FabricData(u8, u8, u8),
    TapBytes(Vec<u8>, u8, u8),
    Stacked(bool),
    OwnMac(u8),
    Later(u64),
}

fn happenings() -> impl Strategy<Value = Happening> {
    use Happening::*;
    let h = || 0u8..8;
    prop_oneof![
        4 => (1u8..3, h(), h(), h(), prop::option::of(h())).prop_map(|(o, m, s, t, p)| TapArp(o, m, s, t, p)),
        4 => (h(), h(), h(), h()).prop_map(|(m, s, d, p)| TapData(m, s, d, p)),
        4 => (1u8..3, h(), h(), h(), any::<bool>()).prop_map(|(o, m, s, t, b)| FabricArp(o, m, s, t, b)),
        3 => (h(), h(), h()).prop_map(|(p, s, d)| FabricData(p, s, d)),
        1 => (packets(), h(), h()).prop_map(|(p, s, d)| TapBytes(p, s, d)),
        1 => any::<bool>().prop_map(Stacked),
        1 => h().prop_map(OwnMac),
        2 => prop::sample::select(vec![1, 300, 1000, 11_000, 61_000, 1_900_000]).prop_map(Later),
    ]
}

fn fabric_peer(n: u8) -> HardwareAddress {
    HardwareAddress::new(0, Qpn::new(0x100 + u32::from(n)), gid(0x100 + u32::from(n)))
}

/// The first four are MACs of peers.
fn tap_mac(n: u8) -> [u8; 6] {
    match n {
        0..4 => peer_mac(&fabric_peer(n)),
        7 => MAC,
        _ => [0x52, 0x54, 0, 0, 0, n],
    }
}

fn host_ip(n: u8) -> [u8; 4] {
    if n == 0 { [0; 4] } else { [10, 0, 0, n] }
}

fn udp(src: u8, dst: u8) -> Vec<u8> {
    let head = [0x45, 0, 0, 20, 0, 0, 0, 0, 64, 17, 0, 0];
    [&head[..], &host_ip(src), &host_ip(dst)].concat()
}

fn happen(c: &mut Ipoib, now: Time, what: &Happening) {
    let from_tap = |c: &mut Ipoib, dst: [u8; 6], src: u8, rest: &[u8]| {
        let _ = c.from_tap(now, &[0; 12], &[&dst[..], &tap_mac(src), rest].concat());
    };
    let from_fabric = |c: &mut Ipoib, peer: u8, broadcast: bool, payload: &[u8]| {
        let from = fabric_peer(peer);
        let dst_gid = if broadcast {
            c.broadcast_mgid()
        } else {
            c.local().gid()
        };
        let meta = Meta {
            src_qpn: from.qpn(),
            src_gid: from.gid(),
            has_src_gid: true,
            dst_gid,
            multicast: broadcast,
        };
        let _ = c.from_fabric(now, &meta, payload);
    };
    match what {
        Happening::TapArp(op, mac, spa, tpa, to) => {
            let dst = to.map_or([0xff; 6], |n| peer_mac(&fabric_peer(n)));
            let packet = arp(*op, tap_mac(*mac), host_ip(*spa), [0; 6], host_ip(*tpa));
            from_tap(c, dst, *mac, &[&[8, 6][..], &packet].concat());
        }
        Happening::TapData(mac, src, dst, to) => {
            from_tap(
                c,
                tap_mac(*to),
                *mac,
                &[&[8, 0][..], &udp(*src, *dst)].concat(),
            );
        }
        Happening::FabricArp(op, peer, spa, tpa, broadcast) => {
            let head = [8, 6, 0, 0, 0, 32, 8, 0, 20, 4, 0, *op];
            let target = if *broadcast { [0; 20] } else { c.local().0 };
            let packet = [
                &head[..],
                &fabric_peer(*peer).0,
                &host_ip(*spa),
                &target,
                &host_ip(*tpa),
            ];
            from_fabric(c, *peer, *broadcast, &packet.concat());
        }
        Happening::FabricData(peer, src, dst) => {
            from_fabric(
                c,
                *peer,
                false,
                &[&[8, 0, 0, 0][..], &udp(*src, *dst)].concat(),
            );
        }
        Happening::TapBytes(packet, src, dst) => from_tap(c, tap_mac(*dst), *src, packet),
        Happening::Stacked(_) | Happening::OwnMac(_) | Happening::Later(_) => {}
    }
}

/// The actions of a data thread after each packet; returns the updates.
fn service(c: &mut Ipoib, now: Time) -> Vec<ipoib::Update> {
    if c.next_deadline().is_some_and(|at| at <= now) {
        c.handle_timeout(now);
    }
    while c.poll_transmit(now).is_some() {}
    while let Some(frame) = c.poll_tap(now) {
        assert!(frame.len() >= 34 && frame[6] & 1 == 0);
    }
    // Held frames are decided again, but not for ever.
    let mut released = 0;
    while let Some(held) = c.pop_released() {
        released += 1;
        assert!(released < 1000, "{held:?} goes round");
        let _ = c.from_released(now, &held.prefix, &held.frame);
    }
    while c.pop_event().is_some() {}
    c.drain_updates().collect()
}

fn check(c: &Ipoib, own: [u8; 6], limits: Limits) {
    let peers: Vec<_> = c.neighbours().map(|n| n.mac).collect();
    assert!(peers.len() <= limits.neighbours && c.guests().count() <= limits.guests);
    assert!(!peers.contains(&own));
    for guest in c.guests() {
        assert!(
            !peers.contains(&guest.mac),
            "{guest:?} has a peer's address"
        );
    }
    let mut addresses: Vec<_> = c.guests().map(|g| g.ip).collect();
    addresses.sort_unstable();
    addresses.dedup();
    assert_eq!(addresses.len(), c.guests().count());
}

/// The owner of each guest's IP address, and the MACs of known peers.
type View = (Vec<(IpAddr, [u8; 6])>, Vec<(HardwareAddress, [u8; 6])>);

fn view(c: &Ipoib) -> View {
    let mut guests: Vec<_> = c.guests().map(|g| (g.ip, g.mac)).collect();
    guests.sort_unstable();
    let confirmed = c.neighbours().filter(|n| n.confirmed);
    let mut peers: Vec<_> = confirmed.map(|n| (n.address, n.mac)).collect();
    peers.sort_unstable_by_key(|p| p.0.0);
    (guests, peers)
}

proptest! {
    #[test]
    fn guests_and_peers_never_share_an_address_and_tables_stay_bounded(
        all in prop::collection::vec(happenings(), 0..200)
    ) {
        let limits = Limits { neighbours: 5, guests: 4, ..small() };
        let mut c = core(limits, 1);
        let (mut now, mut own) = (Time(0), MAC);
        for what in &all {
            match what {
                Happening::Stacked(on) => c.set_stacked(*on),
                Happening::OwnMac(n) => {
                    own = tap_mac(*n);
                    c.set_mac(own);
                }
                Happening::Later(ms) => now = now.after(*ms),
                _ => happen(&mut c, now, what),
            }
            check(&c, own, limits);
            service(&mut c, now);
            check(&c, own, limits);
        }
    }

    #[test]
    fn replicas_converge(all in prop::collection::vec((happenings(), any::<bool>()), 0..100)) {
        let mut replicas = [core(small(), 1), core(small(), 1)];
        let mut now = Time(0);
        for (what, first) in &all {
            let at = usize::from(*first);
            match what {
                // Without expiry and losses, all replicas agree.
                Happening::Stacked(on) => replicas.iter_mut().for_each(|c| c.set_stacked(*on)),
                Happening::Later(ms) => now = now.after((*ms).min(1000)),
                Happening::OwnMac(_) => {}
                _ => happen(&mut replicas[at], now, what),
            }
            // A question causes an answer, and this at most a remapping update, which causes none.
            let mut rounds = 0;
            loop {
                let news = [0, 1].map(|i| service(&mut replicas[i], now));
                if news.iter().all(Vec::is_empty) {
                    break;
                }
                rounds += 1;
                prop_assert!(rounds < 10, "{news:?}");
                for (i, updates) in news.iter().enumerate() {
                    updates.iter().for_each(|u| replicas[1 - i].apply(now, u));
                }
            }
            prop_assert_eq!(view(&replicas[0]), view(&replicas[1]));
        }
    }
}

/// Two guests with room for one. Each sends to the other's IP address at the MAC of a removed peer:
/// learning from one frame releases the other.
#[test]
fn frames_that_release_each_other_do_not_go_round() {
    let limits = Limits {
        guests: 4,
        ..small()
    };
    let mut c = core(limits, 1);
    c.set_stacked(true);
    let claims = [2, 3, 4].map(|ip| Happening::TapArp(1, 4, ip, 0, None));
    let data = [(6, 1), (1, 6)].map(|(src, dst)| Happening::TapData(4, src, dst, 1));
    for what in claims.iter().chain(&data) {
        happen(&mut c, Time(0), what);
        service(&mut c, Time(0));
    }
    assert_eq!(c.counters().frames_held, 2);
}

/// A hundred thousand forged guests, one every 0.1 ms, while one guest is active.
#[test]
fn a_flood_of_guests_leaves_tables_bounded_and_the_active_guest_served() {
    let limits = Limits {
        neighbours: 128,
        guests: 64,
        ..small()
    };
    let mut c = core(limits, 1);
    let from = fabric_peer(1);
    let peer = peer_mac(&from);
    let meta = Meta {
        src_qpn: from.qpn(),
        src_gid: from.gid(),
        has_src_gid: true,
        dst_gid: c.local().gid(),
        multicast: false,
    };
    let head = [8, 6, 0, 0, 0, 32, 8, 0, 20, 4, 0, 1];
    let own = c.local().0;
    let spoke = [&head[..], &from.0, &[10, 0, 0, 1], &own, &[10, 0, 0, 5]].concat();
    c.from_fabric(Time(0), &meta, &spoke);
    let guest = tap_mac(5);
    let request = arp(1, guest, host_ip(5), [0; 6], host_ip(1));
    let greet = [&[0xff; 6][..], &guest, &[8, 6], &request].concat();
    let work = [&peer[..], &guest, &[8, 0], &udp(5, 1)].concat();
    let answer = [&[8, 0, 0, 0][..], &udp(1, 5)].concat();
    c.from_tap(Time(0), &[0; 12], &greet);
    c.from_tap(Time(2000), &[0; 12], &work);
    let mut sent = 0;
    for n in 0..100_000u32 {
        let now = Time(2000 + u64::from(n) / 10);
        let [a, b, x, d] = n.to_be_bytes();
        let mac = [0x52, 0x55, a, b, x, d];
        let spa = (0x0b00_0000 + n).to_be_bytes();
        let rest = match n % 3 {
            0 => [&[8, 6][..], &arp(2, mac, spa, peer, [10, 0, 0, 1])].concat(),
            1 => [&[8, 6][..], &arp(1, mac, [0; 4], [0; 6], spa)].concat(),
            _ => {
                let mut packet = udp(5, 1);
                packet[12..16].copy_from_slice(&spa);
                [&[8, 0][..], &packet].concat()
            }
        };
        let _ = c.from_tap(now, &[0; 12], &[&peer[..], &mac, &rest].concat());
        while c.poll_transmit(now).is_some() {
            sent += 1;
        }
        while c.poll_tap(now).is_some() {
            sent += 1;
        }
        c.drain_updates().for_each(drop);
        while c.pop_event().is_some() {}
        if n % 1000 == 0 {
            assert!(matches!(
                c.from_tap(now, &[0; 12], &work),
                Outgoing::Forward { .. }
            ));
            let Incoming::Packet { ethernet, .. } = c.from_fabric(now, &meta, &answer) else {
                panic!("the guest is served")
            };
            assert_eq!(ethernet[..6], guest);
        }
    }
    assert_eq!(c.guests().count(), 64);
    assert_eq!(c.neighbours().count(), 1);
    assert!(c.counters().guests_evicted > 10_000);
    // A hundred announcements and 128 queries a second, for ten seconds.
    assert!(sent <= 2600, "{sent} packets of our own");
}

/// A hundred thousand forged sources of data, then of ARP; the same number of groups and destinations.
#[test]
fn floods_leave_tables_bounded_and_data_never_evicts_confirmed_neighbours() {
    let mut c = core(small(), 1);
    let l = c.local();
    let arp_from = |n: u32| {
        let a = HardwareAddress::new(0, Qpn::new(n + 2), gid(n + 100));
        let ip = (0x0a00_0000 + n).to_be_bytes();
        let head = [8, 6, 0, 0, 0, 32, 8, 0, 20, 4, 0, 1];
        let meta = Meta {
            src_qpn: a.qpn(),
            src_gid: a.gid(),
            has_src_gid: true,
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
            has_src_gid: true,
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

/// Two interfaces of a port, `near` and `far`, with the frames that their hosts receive.
struct Neighbours {
    near: Ipoib,
    far: Ipoib,
    seen: Vec<Vec<u8>>,
    /// Number of frames that bypassed the fabric.
    handed: u32,
}

impl Neighbours {
    fn new(siblings: bool, stacked: bool) -> Neighbours {
        let on_port = |qpn: u32, mac: u8| {
            let mut config = core_config(small(), 1);
            config.local = HardwareAddress::new(0, Qpn::new(qpn), gid(1));
            config.mac[5] = mac;
            Ipoib::new(config)
        };
        let (mut near, mut far) = (on_port(0x4a, 1), on_port(0x4b, 2));
        if siblings {
            for (core, qpn) in [(&mut near, 0x4b), (&mut far, 0x4a)] {
                let (qpn, mtu) = (Qpn::new(qpn), 2044);
                core.set_siblings([Sibling { qpn, mtu }]);
            }
        }
        far.set_stacked(stacked);
        Neighbours {
            near,
            far,
            seen: Vec::new(),
            handed: 0,
        }
    }

    /// The host of `near` sends; the link loses nothing.
    fn send(&mut self, now: Time, frame: &[u8]) {
        let meta = self.near.meta_for_siblings();
        let (to, payload) = match self.near.from_tap(now, &[0; 12], frame) {
            Outgoing::Sibling { to, encap, mtu, .. } => {
                assert_eq!(mtu, 2044);
                self.handed += 1;
                let ethertype = u16::from_be_bytes([encap[0], encap[1]]);
                if let Some(header) = self.far.from_sibling(now, &meta, ethertype, &frame[14..]) {
                    return self
                        .seen
                        .push([&header[..], packet_of(&frame[14..])].concat());
                }
                (to, [&encap[..], &frame[14..]].concat())
            }
            Outgoing::Forward { to, encap } => (to, [&encap[..], &frame[14..]].concat()),
            Outgoing::Rewritten { to, packet } => (to, packet.to_vec()),
            _ => return,
        };
        let (dst_gid, _) = self.near.address(to);
        let multicast = dst_gid.is_multicast();
        let meta = Meta {
            dst_gid,
            multicast,
            ..meta
        };
        match self.far.from_fabric(now, &meta, &payload) {
            Incoming::Packet { ethernet, l3 } => self.seen.push([&ethernet[..], l3].concat()),
            Incoming::Frame(frame) => self.seen.push(frame.to_vec()),
            _ => {}
        }
        self.far.handle_timeout(now);
        while let Some(frame) = self.far.poll_tap(now) {
            self.seen.push(frame.to_vec());
        }
    }
}

/// An IP packet without Ethernet padding.
fn packet_of(l3: &[u8]) -> &[u8] {
    let len = match l3[0] >> 4 {
        4 => usize::from(u16::from_be_bytes([l3[2], l3[3]])),
        _ => 40 + usize::from(u16::from_be_bytes([l3[4], l3[5]])),
    };
    &l3[..len]
}

proptest! {
    /// For any frame to a sibling, the other host receives the same as over the fabric: data, ARP,
    /// neighbour discovery, DHCP, and invalid packets.
    #[test]
    fn siblings_see_what_neighbours_see(
        packets in prop::collection::vec((packets(), any::<bool>(), 0u8..4, any::<bool>()), 1..20),
        stacked in any::<bool>(),
    ) {
        let (mut siblings, mut neighbours) = (Neighbours::new(true, stacked), Neighbours::new(false, stacked));
        let far = siblings.far.local();
        let hello = [&[8, 6, 0, 0, 0, 32, 8, 0, 20, 4, 0, 1][..], &far.0, &[10, 0, 0, 2], &[0; 20], &[10, 0, 0, 1]].concat();
        let meta = siblings.far.meta_for_siblings();
        for link in [&mut siblings, &mut neighbours] {
            link.near.from_fabric(Time(0), &meta, &hello);
            for (packet, to_peer, last, reply) in &packets {
                let mut packet = packet.clone();
                if packet[..2] == [8, 0] && packet.len() >= 26 {
                    packet[14..22].copy_from_slice(&[10, 0, 0, 1, 10, 0, 0, *last]);
                    if *reply {
                        packet[11] = 17;
                        packet[22..26].copy_from_slice(&[0, 67, 0, 68]);
                    }
                }
                let to = if *to_peer { peer_mac(&far) } else { [0xff; 6] };
                let mut own = MAC;
                own[5] = 1;
                let frame = [&to[..], &own, &packet].concat();
                link.send(Time(5), &frame);
            }
        }
        prop_assert_eq!(&siblings.seen, &neighbours.seen);
        let learned = |c: &Ipoib| c.neighbours().map(|n| (n.mac, n.address, n.ips)).collect::<Vec<_>>();
        prop_assert_eq!(learned(&siblings.far), learned(&neighbours.far));
        let to_peer = packets.iter().any(|(p, to, ..)| *to && p[..2] == [8, 0] && p.len() >= 22);
        prop_assert_eq!(neighbours.handed, 0);
        prop_assert!(siblings.handed > 0 || !to_peer, "the way without the fabric was taken");
    }
}
