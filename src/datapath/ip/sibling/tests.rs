//! Siblings: a data thread with two IP links of one port, and a host behind each.

use std::net::IpAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use crossbeam_channel::unbounded;
use fabric::{Qpn, Room};
use ipoib::{Update, peer_mac};
use netdev::segment::{LinkHeader, Segmenter};
use netdev::vnet::{FLAG_NEEDS_CSUM, GSO_NONE, GSO_TCPV4, GSO_UDP_L4, VnetHeader};
use rustix::event::epoll;
use zerocopy::little_endian::U16;
use zerocopy::{FromBytes, IntoBytes};

use super::super::super::command::{Command, Sibling};
use super::super::super::lane::LinkId;
use super::super::super::stats::{IpStats, TapStats};
use super::super::super::testing::{Call, Rig, address, lane_of, lengths, settings, udp_frame};
use super::super::super::thread::At;
use super::super::IpSettings;
use super::*;

const A: LinkId = LinkId(100);
const B: LinkId = LinkId(101);
const MAC_A: [u8; 6] = [2, 0, 0, 0, 0, 1];
const MAC_B: [u8; 6] = [2, 0, 0, 0, 0, 2];
const IP_A: [u8; 4] = [10, 0, 0, 1];
const IP_B: [u8; 4] = [10, 0, 0, 2];

struct Two {
    rig: Rig,
    hosts: [OwnedFd; 2],
    events: Vec<epoll::Event>,
}

impl Two {
    /// The links A, B and `others`. A and B know the address of each other's host.
    fn with(others: u32, mtu: u32) -> Two {
        let rig = Rig::new();
        let mut hosts: Vec<OwnedFd> = Vec::new();
        for n in 0..2 + others {
            let (lane, host) = lane_of(n, 16);
            rig.commands.send(Command::AddLane(Box::new(lane)));
            hosts.push(host);
        }
        let near = |n: u32| Sibling {
            link: LinkId(100 + n),
            qpn: Qpn::new(0x17 + n),
            mtu,
        };
        let all: Arc<[Sibling]> = (0..2 + others).map(near).collect();
        for (link, n, ip) in [(A, 1, IP_B), (B, 0, IP_A)] {
            rig.commands.send(Command::SetSiblings(link, all.clone()));
            let address = address(0x17 + n);
            let update = Update::Learned {
                address,
                mac: peer_mac(&address),
                ip: Some(IpAddr::from(ip)),
            };
            rig.commands.send(Command::Update(link, update));
        }
        let rest = hosts.split_off(2);
        let mut two = Two {
            rig,
            hosts: hosts.try_into().unwrap(),
            events: Vec::with_capacity(8),
        };
        two.round();
        two.fabric_calls();
        // Keep the host ends open.
        std::mem::forget(rest);
        two
    }

    fn new(mtu: u32) -> Two {
        Two::with(0, mtu)
    }

    fn round(&mut self) {
        self.rig.thread.round(&mut self.events).unwrap();
    }

    fn fabric_calls(&mut self) -> Vec<Call> {
        let mut calls = std::mem::take(&mut self.rig.state.lock().unwrap().calls);
        calls.retain(|call| !matches!(call, Call::Flush | Call::Listen(..)));
        calls
    }

    /// The host of A sends.
    fn send(&mut self, vnet: &VnetHeader, frame: &[u8]) {
        let raw = [vnet.as_bytes(), frame].concat();
        rustix::io::write(&self.hosts[0], &raw).unwrap();
        self.round();
    }

    /// The next frame that a host reads, with its virtio-net header.
    fn read(&self, host: usize) -> Option<(VnetHeader, Vec<u8>)> {
        let mut frame = vec![0; 1 << 17];
        let len = rustix::io::read(&self.hosts[host], &mut frame).ok()?;
        let vnet = VnetHeader::read_from_bytes(&frame[..VNET_HEADER_LEN]).unwrap();
        Some((vnet, frame[VNET_HEADER_LEN..len].to_vec()))
    }

    fn stats(&mut self, lane: usize) -> IpStats {
        self.rig.thread.ip.lanes.get(lane).unwrap().stats
    }

    fn tap_stats(&self, lane: usize) -> TapStats {
        self.rig.thread.ip.lanes.get(lane).unwrap().base.stats
    }
}

/// The frame, addressed from the host of A to the host of B.
fn to_b(mut frame: Vec<u8>) -> Vec<u8> {
    frame[..6].copy_from_slice(&peer_mac(&address(0x18)));
    frame[6..12].copy_from_slice(&MAC_A);
    frame
}

/// A header that leaves the UDP checksum to the TAP.
fn unfinished(gso_type: u8, gso_size: u16) -> VnetHeader {
    VnetHeader {
        flags: FLAG_NEEDS_CSUM,
        gso_type,
        gso_size: U16::new(gso_size),
        hdr_len: U16::new(9999),
        csum_start: U16::new(34),
        csum_offset: U16::new(if gso_type == GSO_TCPV4 { 16 } else { 6 }),
        ..VnetHeader::default()
    }
}

fn tcp_frame(payload: usize) -> Vec<u8> {
    let mut frame = udp_frame(payload + 12);
    frame[23] = 6;
    frame[34 + 12..34 + 14].copy_from_slice(&[0x50, 0x10]);
    frame
}

#[test]
fn a_frame_crosses_unchanged_except_for_the_ethernet_addresses() {
    let mut two = Two::new(60_000);
    let cases = [
        (VnetHeader::default(), udp_frame(100), 1, 42),
        (unfinished(GSO_NONE, 0), udp_frame(100), 1, 42),
        (unfinished(GSO_TCPV4, 1448), tcp_frame(60_000), 42, 54),
        (unfinished(GSO_UDP_L4, 1400), udp_frame(40_000), 29, 42),
    ];
    let (mut packets, mut bytes) = (0, 0);
    for (n, (vnet, frame, count, headers)) in (1..).zip(cases) {
        two.send(&vnet, &to_b(frame.clone()));
        let (seen_vnet, seen) = two.read(1).unwrap();
        let expected = VnetHeader {
            hdr_len: U16::new(headers),
            ..vnet
        };
        assert_eq!(seen_vnet, expected, "with the length of the headers");
        assert_eq!(seen[..6], MAC_B);
        assert_eq!(seen[6..12], peer_mac(&address(0x17)));
        assert!(seen[12..] == frame[12..]);
        assert_eq!(two.fabric_calls(), []);

        packets += count;
        let repeated = (count - 1) * (u64::from(headers) - 14);
        bytes += (frame.len() - 14) as u64 + repeated;
        let (sent, received) = (two.stats(0), two.stats(1));
        assert_eq!((sent.tx_packets, received.rx_packets), (packets, packets));
        assert_eq!((sent.tx_to_siblings, received.rx_bytes), (n, bytes));
        assert_eq!(sent.tx_bytes, bytes + 4 * packets, "with encapsulation");
    }
    assert_eq!(two.read(0), None);
}

/// A large send contains the packets that the fabric would have carried.
#[test]
fn a_large_send_holds_the_packets_that_the_fabric_would_have_carried() {
    let cases = [
        (unfinished(GSO_TCPV4, 536), tcp_frame(5000)),
        (unfinished(GSO_TCPV4, 2004), tcp_frame(60_000)),
        (unfinished(GSO_UDP_L4, 1000), udp_frame(9999)),
        (unfinished(GSO_NONE, 0), udp_frame(1999)),
    ];
    for (vnet, frame) in cases {
        let frame = to_b(frame);
        let mut near = Two::new(2044);
        near.send(&vnet, &frame);
        let (seen_vnet, seen) = near.read(1).unwrap();
        let header = LinkHeader::new(&[8, 0, 0, 0]);
        let mut cut = Segmenter::new(&seen_vnet, &seen, header, 2044).unwrap();
        let mut packets = Vec::new();
        while let Some(len) = cut.next_len() {
            let mut packet = vec![0; len];
            cut.write_next(&mut packet);
            packets.push(packet);
        }

        let mut far = Two::new(2044);
        far.rig.commands.send(Command::SetSiblings(A, [].into()));
        let settings = IpSettings {
            mode: ipoib::Mode::Datagram,
            ..settings(0)
        };
        far.rig.commands.send(Command::Ip(A, settings));
        far.round();
        far.send(&vnet, &frame);
        let carried: Vec<Vec<u8>> = far
            .fabric_calls()
            .into_iter()
            .flat_map(|call| match call {
                Call::Send(_, packets) => packets,
                other => panic!("{other:?}"),
            })
            .collect();
        assert!(packets == carried);
        assert_eq!(far.read(1), None);
    }
}

#[test]
fn packets_larger_than_the_sibling_s_mtu_are_answered() {
    let mut two = Two::new(1500);
    let large = [
        (VnetHeader::default(), udp_frame(1473)),
        (unfinished(GSO_UDP_L4, 1473), udp_frame(9000)),
    ];
    for (n, (vnet, frame)) in (1..).zip(large) {
        two.send(&vnet, &to_b(frame));
        let (_, answer) = two.read(0).unwrap();
        let icmp = &answer[14 + 20..];
        assert_eq!(
            (&icmp[..2], &icmp[6..8]),
            (&[3, 4][..], &1500u16.to_be_bytes()[..])
        );
        assert_eq!((two.read(1), two.stats(0).tx_too_big), (None, n));
    }
    // A TCP stream may be cut anywhere.
    two.send(&unfinished(GSO_TCPV4, 2000), &to_b(tcp_frame(9000)));
    let (vnet, frame) = two.read(1).unwrap();
    assert_eq!((vnet.gso_size.get(), frame.len()), (1460, 54 + 9000));
    assert_eq!(two.stats(1).rx_packets, 7);
    two.send(&VnetHeader::default(), &to_b(udp_frame(1472)));
    assert_eq!(two.read(1).unwrap().1.len(), 14 + 1500);
    assert_eq!(two.fabric_calls(), [], "no connection is requested");
}

#[test]
fn a_frame_with_a_wrong_header_is_not_written() {
    let mut two = Two::new(60_000);
    let outside = VnetHeader {
        csum_start: U16::new(5000),
        ..unfinished(GSO_NONE, 0)
    };
    for vnet in [unfinished(GSO_TCPV4, 0), unfinished(0x77, 100), outside] {
        two.send(&vnet, &to_b(udp_frame(100)));
    }
    // The header announces TCP; the packet is UDP.
    two.send(&unfinished(GSO_TCPV4, 500), &to_b(udp_frame(5000)));
    assert_eq!((two.read(1), two.stats(0).tx_bad_frame), (None, 4));
    // One frame of a virtual machine is 9,000 segments.
    two.send(&unfinished(GSO_TCPV4, 1), &to_b(tcp_frame(9000)));
    assert_eq!((two.read(1), two.stats(0).tx_bad_frame), (None, 5));
    // Ethernet padding is removed.
    let mut padded = to_b(udp_frame(2));
    padded.extend([0xee; 16]);
    two.send(&VnetHeader::default(), &padded);
    assert_eq!(two.read(1).unwrap().1.len(), 14 + 30);
    assert_eq!(two.stats(0).tx_bytes, 4 + 30);
}

fn arp(operation: u8, sender: [u8; 6], from: [u8; 4], to: [u8; 4]) -> Vec<u8> {
    let head = [8, 6, 0, 1, 8, 0, 6, 4, 0, operation];
    let target = peer_mac(&address(0x18));
    let packet = [&head[..], &sender, &from, &[0; 6], &to].concat();
    [&target[..], &sender, &packet].concat()
}

#[test]
fn arp_is_translated_and_learned_and_releases_held_frames() {
    let mut two = Two::new(60_000);
    two.rig.commands.send(Command::Flush(B));
    two.round();
    // The host of B sends to A. The core of B has forgotten A and holds the frame.
    let mut waiting = udp_frame(64);
    waiting[..6].copy_from_slice(&peer_mac(&address(0x17)));
    waiting[6..12].copy_from_slice(&MAC_B);
    waiting[26..30].copy_from_slice(&IP_B);
    waiting[30..34].copy_from_slice(&IP_A);
    let raw = [VnetHeader::default().as_bytes(), &waiting].concat();
    rustix::io::write(&two.hosts[1], &raw).unwrap();
    two.round();
    assert_eq!(two.read(0), None);
    two.fabric_calls();

    two.send(&VnetHeader::default(), &arp(1, MAC_A, IP_A, IP_B));
    let (_, request) = two.read(1).unwrap();
    assert_eq!(request[..6], MAC_B);
    assert_eq!(request[22..28], peer_mac(&address(0x17)));
    let (_, late) = two
        .read(0)
        .expect("the held frame is sent in the same round");
    assert_eq!((&late[..6], &late[12..]), (&MAC_A[..], &waiting[12..]));
    assert_eq!(two.fabric_calls(), []);
}

/// The sum of an Internet checksum (RFC 1071).
fn sum(words: &[u8]) -> u16 {
    let sum = words
        .chunks(2)
        .map(|w| u32::from(w[0]) << 8 | u32::from(w[1]))
        .sum::<u32>();
    ((sum & 0xffff) + (sum >> 16)) as u16
}

/// The core restores the client's hardware address in a reply, and needs a complete checksum for that.
#[test]
fn dhcp_for_the_core_is_completed_first() {
    let mut two = Two::new(60_000);
    let mut reply = udp_frame(240);
    reply[34..38].copy_from_slice(&[0, 67, 0, 68]);
    // The host leaves the sum of the pseudo header in the field.
    let pseudo = sum(&[&reply[26..34], &[0, 17], &reply[38..40]].concat());
    reply[40..42].copy_from_slice(&pseudo.to_be_bytes());
    two.send(&unfinished(GSO_NONE, 0), &to_b(reply));
    let (vnet, seen) = two.read(1).unwrap();
    assert_eq!(vnet.flags, 0);
    let pseudo = [&seen[26..34], &[0, 17], &seen[38..40]].concat();
    assert_eq!(sum(&[&pseudo, &seen[34..]].concat()), 0xffff);
    assert_eq!(two.stats(1).rx_packets, 1);
}

#[test]
fn a_sibling_whose_tap_refuses_a_frame_counts_it() {
    let mut two = Two::new(60_000);
    let [_, host] = &two.hosts;
    rustix::net::shutdown(host, rustix::net::Shutdown::Read).unwrap();
    two.send(&unfinished(GSO_TCPV4, 1000), &to_b(tcp_frame(4000)));
    let (stats, tap) = (two.stats(1), two.tap_stats(1));
    let counted = (stats.rx_packets, stats.rx_dropped, tap.tap_write_errors);
    assert_eq!(counted, (0, 4, 1));
    assert_eq!(two.stats(0).tx_packets, 4);
}

#[test]
fn without_its_lane_a_sibling_is_reached_by_datagrams() {
    let mut two = Two::new(60_000);
    let (done, _) = unbounded();
    two.rig.commands.send(Command::RemoveLane(B, done));
    two.round();
    two.fabric_calls();
    two.send(&VnetHeader::default(), &to_b(udp_frame(100)));
    two.send(&VnetHeader::default(), &arp(2, MAC_A, IP_A, IP_B));
    assert_eq!(lengths(&two.fabric_calls()), [(false, 132), (false, 60)]);
}

#[test]
fn a_flush_forgets_the_sibling_until_it_sends() {
    let mut two = Two::new(60_000);
    two.rig.commands.send(Command::Flush(A));
    two.round();
    two.send(&VnetHeader::default(), &to_b(udp_frame(100)));
    assert_eq!(two.read(1), None);
    let question = two.fabric_calls();
    assert_eq!(lengths(&question), [(false, 60)], "a query to the link");
}

/// A round with one busy link does not touch a hundred idle links.
#[test]
fn a_round_serves_only_the_lanes_that_it_used() {
    let mut two = Two::with(126, 60_000);
    two.rig.thread.timeout();
    two.send(&VnetHeader::default(), &to_b(udp_frame(100)));
    let used: Vec<usize> = (0..)
        .map_while(|n| two.rig.thread.ip.lanes.used(n))
        .collect();
    assert_eq!(used, [0, 1]);
    assert_eq!(two.rig.thread.timeout(), None);
}

/// While the fabric has no room, only the TAPs with frames are muted. The end of the pause unmutes all.
#[test]
fn a_pause_mutes_only_the_taps_with_frames() {
    let mut two = Two::with(126, 60_000);
    two.rig.thread.timeout();
    two.rig.thread.pause(Room::Nothing).unwrap();
    let raw = [VnetHeader::default().as_bytes(), &to_b(udp_frame(100))].concat();
    rustix::io::write(&two.hosts[0], &raw).unwrap();
    two.rig.state.lock().unwrap().full = true;
    two.round();
    assert_eq!(two.rig.thread.pace.muted, [At::Ip(0)]);
    assert_eq!(two.read(1), None);
    two.rig.state.lock().unwrap().full = false;
    two.rig.thread.pause(Room::Messages).unwrap();
    assert!(two.rig.thread.pace.muted.is_empty());
    two.round();
    assert!(two.read(1).is_some());
}
