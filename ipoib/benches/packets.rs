//! The cost of a packet: transmit by table size, receive, multicast by number of groups, both directions
//! with guests.

use std::net::Ipv6Addr;

use divan::{Bencher, black_box};
use ipoib::{Config, HardwareAddress, Incoming, Ipoib, Limits, Meta, Outgoing, peer_mac};
use proto::{AddressHandle, Gid, PKey, Qpn, Time};

const MAC: [u8; 6] = [6, 0, 0, 0, 0, 1];

fn main() {
    divan::main();
}

fn peer(n: u32) -> HardwareAddress {
    let gid = Gid::from(Ipv6Addr::from(0xfe80_u128 << 112 | u128::from(n + 100)));
    HardwareAddress::new(0, Qpn::new(n + 2), gid)
}

fn meta(from: HardwareAddress, to: Gid) -> Meta {
    Meta {
        src_qpn: from.qpn(),
        src_gid: from.gid(),
        has_src_gid: true,
        dst_gid: to,
        multicast: false,
    }
}

fn core(neighbours: u32) -> Ipoib {
    let local = HardwareAddress::new(0, Qpn::new(0x4a), "fe80::1".parse().expect("an address"));
    let mut core = Ipoib::new(Config {
        local,
        mac: MAC,
        pkey: PKey::DEFAULT,
        scope: 2,
        link_mtu: 2044,
        mode: ipoib::Mode::Datagram,
        services: proto::Services::Any,
        dhcp: ipoib::DhcpMode::default(),
        claims: ipoib::ClaimCheck::default(),
        refuse_requests: false,
        limits: Limits::default(),
    });
    for n in 0..neighbours {
        let a = peer(n);
        let ip = (0x0a00_0000 + n).to_be_bytes();
        let head = [8, 6, 0, 0, 0, 32, 8, 0, 20, 4, 0, 1];
        let arp = [&head[..], &a.0, &ip, &[0; 20], &[10, 0, 0, 1]].concat();
        core.from_fabric(Time(0), &meta(a, local.gid()), &arp);
        core.drain_updates().for_each(drop);
    }
    core
}

fn ipv4(dst: u32) -> Vec<u8> {
    let head = [0x45, 0, 5, 220, 0, 0, 0, 0, 64, 17, 0, 0, 192, 0, 2, 1];
    let mut p = [&head[..], &dst.to_be_bytes()].concat();
    p.resize(1500, 0);
    p
}

/// A stride that visits all peers in an order that caches cannot predict.
fn scatter(i: &mut u32, n: u32) -> usize {
    *i = i.wrapping_add(7919);
    (*i % n) as usize
}

/// A frame to each peer in turn, in a cached buffer as after a read from the TAP.
#[divan::bench(args = [10, 1000, 10_000])]
fn unicast_scattered(bencher: Bencher<'_, '_>, neighbours: u32) {
    let mut core = core(neighbours);
    let macs: Vec<[u8; 6]> = (0..neighbours).map(|n| peer_mac(&peer(n))).collect();
    let mut frame = [&macs[0][..], &MAC, &[8, 0], &ipv4(0)[..20]].concat();
    let mut i = 0;
    bencher.bench_local(|| {
        frame[..6].copy_from_slice(&macs[scatter(&mut i, neighbours)]);
        lookup(&mut core, &frame)
    });
}

/// A frame to one peer of `neighbours`.
#[divan::bench(args = [10, 1000, 10_000])]
fn unicast_one_of(bencher: Bencher<'_, '_>, neighbours: u32) {
    let mut core = core(neighbours);
    let mac = peer_mac(&peer(neighbours / 2));
    let frame = [&mac[..], &MAC, &[8, 0], &ipv4(0)[..20]].concat();
    bencher.bench_local(|| lookup(&mut core, &frame));
}

fn lookup(core: &mut Ipoib, frame: &[u8]) -> (Gid, Qpn, Option<AddressHandle>) {
    let Outgoing::Forward { to, .. } = core.from_tap(Time(0), &[0; 12], black_box(frame)) else {
        unreachable!("all peers are known")
    };
    let (gid, qpn) = core.address(to);
    black_box((gid, qpn, core.ah(to)))
}

#[divan::bench(args = [1, 10, 10_000])]
fn receive(bencher: Bencher<'_, '_>, sources: u32) {
    let mut core = core(sources);
    let own = core.local().gid();
    let payload = [&[8, 0, 0, 0][..], &ipv4(0x0a00_0001)].concat();
    let mut i = 0;
    bencher.bench_local(|| {
        let from = meta(peer(scatter(&mut i, sources) as u32), own);
        black_box(core.from_fabric(Time(0), &from, black_box(&payload)));
    });
}

#[divan::bench(args = [1, 1_000])]
fn multicast(bencher: Bencher<'_, '_>, groups: u32) {
    let mut core = core(0);
    let frames: Vec<Vec<u8>> = (0..groups)
        .map(|n| {
            [
                &[1, 0, 0x5e, 0, 0, 1][..],
                &MAC,
                &[8, 0],
                &ipv4(0xef00_0000 + n)[..20],
            ]
            .concat()
        })
        .collect();
    for frame in &frames {
        if let Outgoing::Forward { to, .. } = core.from_tap(Time(0), &[0; 12], frame) {
            core.set_ah(to, AddressHandle(1));
        }
    }
    let mut i = 0;
    bencher.bench_local(|| {
        let frame = &frames[scatter(&mut i, groups)];
        let Outgoing::Forward { to, .. } = core.from_tap(Time(0), &[0; 12], black_box(frame))
        else {
            unreachable!("groups are always known")
        };
        black_box((core.address(to), core.ah(to)))
    });
}

fn guest_mac(n: u32) -> [u8; 6] {
    let [a, b, c, d] = n.to_be_bytes();
    [0x52, 0x54, a, b, c, d]
}

fn guest_ip(n: u32) -> u32 {
    0x0a01_0000 + n
}

/// A core with one peer and `guests` known guests.
fn core_with_guests(guests: u32) -> Ipoib {
    let mut core = core(1);
    for n in 0..guests {
        let head = [0, 1, 8, 0, 6, 4, 0, 1];
        let (mac, ip) = (guest_mac(n), guest_ip(n).to_be_bytes());
        let arp = [&head[..], &mac, &ip, &[0; 6], &[10, 0, 0, 0]].concat();
        let frame = [&[0xff; 6][..], &mac, &[8, 6], &arp].concat();
        core.from_tap(Time(0), &[0; 12], &frame);
        core.drain_updates().for_each(drop);
        while core.pop_event().is_some() {}
    }
    core
}

/// A packet from the fabric to each guest in turn.
#[divan::bench(args = [1, 1000])]
fn guest_in(bencher: Bencher<'_, '_>, guests: u32) {
    let mut core = core_with_guests(guests);
    let from = meta(peer(0), core.local().gid());
    let mut payload = [&[8, 0, 0, 0][..], &ipv4(0)].concat();
    let mut i = 0;
    bencher.bench_local(|| {
        let to = guest_ip(scatter(&mut i, guests) as u32).to_be_bytes();
        payload[20..24].copy_from_slice(&to);
        let got = core.from_fabric(Time(0), &from, black_box(&payload));
        assert!(matches!(black_box(got), Incoming::Packet { .. }));
    });
}

/// A packet from each of `guests` guests in turn to a peer; with one guest the source never changes.
#[divan::bench(args = [1, 1000])]
fn guest_out(bencher: Bencher<'_, '_>, guests: u32) {
    let mut core = core_with_guests(guests);
    let mac = peer_mac(&peer(0));
    let mut frame = [&mac[..], &MAC, &[8, 0], &ipv4(0x0a00_0000)[..20]].concat();
    let mut i = 0;
    bencher.bench_local(|| {
        let n = scatter(&mut i, guests) as u32;
        frame[6..12].copy_from_slice(&guest_mac(n));
        frame[26..30].copy_from_slice(&guest_ip(n).to_be_bytes());
        lookup(&mut core, &frame)
    });
}
