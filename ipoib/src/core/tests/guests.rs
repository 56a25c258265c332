//! Guests behind the interface: other ports of a bridge.

mod announcing;
mod anycast;
mod asking;
mod learning;
mod loops;
mod moves;

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

/// A guest sends a broadcast request for `tpa`; with its own address as `tpa` it is gratuitous.
fn guest_asks(c: &mut Ipoib, now: u64, mac: Mac, spa: [u8; 4], tpa: [u8; 4]) -> Sent {
    let request = arp(1, &mac, spa, &[0; 6], tpa);
    send(c, Time(now), &frame(MAC_BROADCAST, mac, 0x0806, &request))
}

/// A guest answers a peer.
fn guest_answers(c: &mut Ipoib, now: u64, mac: Mac, spa: [u8; 4], peer: Mac) -> Sent {
    let reply = arp(2, &mac, spa, &peer, IP_B);
    send(c, Time(now), &frame(peer, mac, 0x0806, &reply))
}

/// The peer sends an advertisement of an IPv6 address.
fn peer_advertises(c: &mut Ipoib, peer: HardwareAddress, ip: &str) {
    let mut message = nd(136, ip, &ib_option(2, peer));
    message[4] = 0x20;
    let packet = payload(0x86dd, &icmpv6(ip, "ff02::1", &message));
    let m = meta(peer, group(c, "ff02::1"));
    receive(c, &m, &packet).unwrap();
}

fn guest_data(c: &mut Ipoib, now: u64, mac: Mac, src: [u8; 4], peer: Mac) -> Sent {
    let f = frame(peer, mac, 0x0800, &ipv4(src, IP_B, b"data"));
    send(c, Time(now), &f)
}

/// The peer sends a broadcast request, which claims `ip`.
fn peer_asks(c: &mut Ipoib, now: u64, peer: HardwareAddress, ip: [u8; 4]) {
    let p = payload(0x0806, &arp(1, &peer.0, ip, &[0; 20], [10, 0, 0, 99]));
    let m = meta(peer, c.broadcast_mgid());
    assert!(matches!(
        c.from_fabric(Time(now), &m, &p),
        Incoming::Frame(_)
    ));
}

/// The frame for a unicast packet from the peer; `None` if it is held.
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

/// The destination MAC of data from the peer to `dst`.
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

/// Packets sent to the fabric by the core itself.
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

fn group_mac_of(group: &str) -> Mac {
    crate::group_mac(group.parse().unwrap())
}
