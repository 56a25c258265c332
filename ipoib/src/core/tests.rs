//! Helpers of the core's tests.

mod asking;
mod claims;
mod connections;
mod data;
mod flush;
mod guests;
mod inspection;
mod replicas;
mod services;
mod siblings;
mod tables;
mod too_big;
mod translation;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use proto::{AddressHandle, Gid, PKey, Qpn};

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
        link_mtu: 2044,
        mode: crate::Mode::Datagram,
        services: proto::Services::Any,
        dhcp: crate::DhcpMode::default(),
        claims: crate::ClaimCheck::default(),
        refuse_requests: false,
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
        has_src_gid: true,
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
    Tagged,
    Dropped(DropReason),
}

fn send(c: &mut Ipoib, now: Time, frame: &[u8]) -> Sent {
    let (to, packet, encap) = match c.from_tap(now, &NO_OFFLOAD, frame) {
        Outgoing::Forward { to, encap }
        | Outgoing::Message { to, encap, .. }
        | Outgoing::Sibling { to, encap, .. } => (to, None, encap),
        Outgoing::Rewritten { to, packet } => (to, Some(packet.to_vec()), [0; 4]),
        Outgoing::Held => return Sent::Held,
        Outgoing::Tagged => return Sent::Tagged,
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
        Incoming::Held | Incoming::Consumed => panic!("nothing for the host"),
        Incoming::Dropped(r) => Err(r),
    }
}

/// Teaches `c` a peer by an ARP reply; returns the peer's MAC on the TAP.
fn teach(c: &mut Ipoib, peer: HardwareAddress, ip: [u8; 4]) -> Mac {
    let l = c.local();
    let p = payload(0x0806, &arp(2, &peer.0, ip, &l.0, [10, 0, 0, 1]));
    let f = receive(c, &meta(peer, l.gid()), &p).unwrap();
    f[6..12].try_into().unwrap()
}

fn v6(text: &str) -> IpAddr {
    text.parse().unwrap()
}

/// Another replica knows that the host has an IP address.
fn host_uses(c: &mut Ipoib, ip: IpAddr) {
    c.apply(T0, &Update::HostAddress { ip, present: true });
}

fn group(c: &Ipoib, ip: &str) -> Gid {
    c.mgid_for(ip.parse().unwrap()).unwrap()
}
