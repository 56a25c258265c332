use std::os::fd::OwnedFd;

use fabric::worker::Part;
use fabric::{Batch, ConnectionEvent, ConnectionId, Qpn, ServiceId};
use ipoib::ConnectionAction;
use netdev::checksum::pseudo_header;
use netdev::mss::MssLimit;
use netdev::vnet::VNET_HEADER_LEN;

use super::super::super::allowed::{AllowList, Allowed};
use super::super::super::ethernet::Ethernet;
use super::super::super::lanes::Lanes;
use super::super::super::testing::{ENDPOINT, address, lane, syn_frame, tcp_sum, udp_frame};
use super::super::super::thread::Receiver;
use super::*;

const NOW: Time = Time(1000);
const CONNECTION: ConnectionId = ConnectionId(7);
const PEER_QPN: u8 = 0x99;
const IPV4: [u8; 4] = [8, 0, 0, 0];

/// Arrivals of one poll, as in a provider's memory.
#[derive(Default)]
struct Arrivals {
    arrived: Vec<u8>,
    kept: Vec<u8>,
    /// Whether the RDMA device verified the checksums of datagrams.
    checked: bool,
    datagrams: Vec<UdReceived>,
    messages: Vec<RcReceived>,
    parts: Vec<Part>,
}

impl Arrivals {
    fn datagram(mut self, payload: &[u8]) -> Arrivals {
        let own = address(0x17);
        let start = self.arrived.len();
        self.arrived.extend(payload);
        self.datagrams.push(UdReceived {
            endpoint: ENDPOINT,
            src_qpn: Qpn::new(PEER_QPN.into()),
            src_gid: address(0).gid(),
            has_src_gid: true,
            dst_gid: own.gid(),
            multicast: false,
            pkey: fabric::PKey::DEFAULT,
            checksum_ok: self.checked,
            range: start..self.arrived.len(),
        });
        self
    }

    /// Adds a message in parts of these lengths, and one for the rest. Every second part is in kept memory.
    fn message_over(mut self, over: ConnectionId, payload: &[u8], cuts: &[usize]) -> Arrivals {
        let first = self.parts.len();
        let mut rest = payload;
        for (i, len) in cuts.iter().chain([&usize::MAX]).enumerate() {
            let (part, behind) = rest.split_at(rest.len().min(*len));
            rest = behind;
            if part.is_empty() {
                continue;
            }
            let memory = [&mut self.arrived, &mut self.kept];
            let memory = memory.into_iter().nth(i % 2).unwrap();
            let range = memory.len()..memory.len() + part.len();
            memory.extend(part);
            self.parts.push(match i % 2 {
                0 => Part::Arrived(range),
                _ => Part::Kept(range),
            });
        }
        self.messages.push(RcReceived {
            endpoint: ENDPOINT,
            connection: over,
            immediate: None,
            len: payload.len(),
            parts: first..self.parts.len(),
        });
        self
    }

    fn message(self, payload: &[u8], cuts: &[usize]) -> Arrivals {
        self.message_over(CONNECTION, payload, cuts)
    }
}

struct Rig {
    lanes: Lanes<IpLane>,
    host: OwnedFd,
    scratch: Scratch,
    unserved: u64,
    allowed: Allowed,
}

impl Rig {
    /// A lane with a connection that the peer requested.
    fn new() -> Rig {
        let (mut lane, host) = lane(16);
        let mut private_data = [0; 92];
        private_data[..8].copy_from_slice(&[0, 0, 0, PEER_QPN, 0, 0, 0xff, 0xf4]);
        let event = ConnectionEvent::Requested {
            connection: CONNECTION,
            endpoint: ENDPOINT,
            service: ServiceId(0x1000_0000_0000_0017),
            peer: address(0).gid(),
            private_data: private_data.into(),
        };
        lane.core.connection_event(NOW, &event);
        let action = lane.core.poll_connection();
        assert!(matches!(action, Some(ConnectionAction::Accept { .. })));
        Rig {
            lanes: lanes_with(lane),
            host,
            scratch: Scratch::default(),
            unserved: 0,
            allowed: Allowed::default(),
        }
    }

    fn take(&mut self, arrivals: &Arrivals) -> bool {
        let batch = Batch::new(&arrivals.arrived, &arrivals.datagrams).with_messages(
            &arrivals.kept,
            &arrivals.messages,
            &arrivals.parts,
        );
        Receiver {
            ip: &mut self.lanes,
            ethernet: &mut Ethernet::default(),
            scratch: &mut self.scratch,
            replicas: &[],
            now: NOW,
            unserved: &mut self.unserved,
        }
        .batch(&batch, &mut self.allowed)
    }

    /// The next frame that the host reads, without the virtio-net header.
    fn read(&self) -> Option<Vec<u8>> {
        let mut frame = vec![0; 1 << 17];
        let len = rustix::io::read(&self.host, &mut frame).ok()?;
        Some(frame[VNET_HEADER_LEN..len].to_vec())
    }

    fn stats(&self) -> IpStats {
        self.lanes.get(0).unwrap().stats
    }
}

fn lanes_with(lane: IpLane) -> Lanes<IpLane> {
    let mut lanes = Lanes::default();
    lanes.insert(lane);
    lanes
}

/// An IPv4 packet of `len` bytes, encapsulated.
fn packet(len: usize) -> Vec<u8> {
    [&IPV4[..], &udp_frame(len - 28)[ETHERNET_LEN..]].concat()
}

const ETHERNET_LEN: usize = 14;

#[test]
fn a_message_is_one_frame_however_it_was_cut() {
    let cuts: [&[usize]; 6] = [
        &[],
        &[1024; 60],
        &[4096, 4096],
        &[1, 1, 1],
        &[127, 5000],
        &[128, 1],
    ];
    for len in [28, 100, 4092, 4093, 9000, 65_507] {
        for cut in cuts {
            let mut rig = Rig::new();
            let sent = packet(len);
            rig.take(&Arrivals::default().message(&sent, cut));
            let frame = rig.read().unwrap();
            assert_eq!(frame[12..14], [8, 0], "{len} {cut:?}");
            assert!(frame[14..] == sent[4..], "{len} {cut:?}");
            assert_eq!(rig.read(), None);
            let stats = rig.stats();
            let counted = (stats.rx_packets, stats.rx_bytes, stats.rx_dropped);
            assert_eq!(counted, (1, len as u64, 0), "{len} {cut:?}");
        }
    }
}

#[test]
fn messages_keep_their_order_and_come_behind_datagrams() {
    let mut rig = Rig::new();
    let lengths = [100, 9000, 200, 60_000, 300];
    let arrivals = lengths
        .iter()
        .fold(Arrivals::default(), |all, len| {
            all.message(&packet(*len), &[4096; 15])
        })
        .datagram(&packet(50));
    rig.take(&arrivals);
    let read: Vec<usize> = std::iter::from_fn(|| rig.read()).map(|f| f.len()).collect();
    let expected = [50, 100, 9000, 200, 60_000, 300].map(|len| ETHERNET_LEN + len);
    assert_eq!(read, expected);
    assert_eq!(rig.stats().rx_packets, 6);
}

/// A TCP segment of 100 bytes in IPv4, encapsulated, without checksums.
fn segment(sequence: u32) -> Vec<u8> {
    let ip = [
        &[0x45, 0, 0, 140, 0, 0, 0x40, 0, 64, 6, 0, 0][..],
        &[10, 0, 0, 1, 10, 0, 0, 2],
    ]
    .concat();
    let tcp = [
        &[0x04, 0, 0, 80][..],
        &sequence.to_be_bytes(),
        &[0, 0, 0, 1, 0x50, 0x10, 1, 0, 0, 0, 0, 0],
    ]
    .concat();
    [&IPV4[..], &ip, &tcp, &[0xda; 100]].concat()
}

#[test]
fn segments_with_checksums_verified_by_the_device_are_merged_unchecked() {
    for (checked, expected) in [(true, vec![340]), (false, vec![140; 3])] {
        let mut rig = Rig::new();
        let arrivals = Arrivals {
            checked,
            ..Arrivals::default()
        };
        let arrivals = [1, 101, 201]
            .into_iter()
            .fold(arrivals, |all, sequence| all.datagram(&segment(sequence)));
        rig.take(&arrivals);
        let read: Vec<usize> = std::iter::from_fn(|| rig.read())
            .map(|f| f.len() - ETHERNET_LEN)
            .collect();
        assert_eq!(read, expected);
    }
}

/// The queue pair identifies the peer, in datagrams and in messages.
#[test]
fn a_peer_is_one_ethernet_address_in_datagrams_and_in_messages() {
    let mut rig = Rig::new();
    let (small, large) = (packet(100), packet(9000));
    let arrivals = Arrivals::default()
        .datagram(&small)
        .message(&small, &[])
        .message(&large, &[4096]);
    rig.take(&arrivals);
    let macs: Vec<Vec<u8>> = std::iter::from_fn(|| rig.read())
        .map(|f| f[..12].to_vec())
        .collect();
    assert_eq!(macs.len(), 3);
    assert!(macs.iter().all(|m| *m == macs[0]), "{macs:x?}");
    assert_eq!(macs[0][..6], [2, 0, 0, 0, 0, 1]);
}

#[test]
fn arrivals_without_a_connection_or_a_lane_are_counted_and_not_written() {
    let mut rig = Rig::new();
    let (small, large) = (packet(100), packet(9000));
    let unknown = ConnectionId(8);
    let arrivals = Arrivals::default()
        .message_over(unknown, &small, &[])
        .message_over(unknown, &large, &[4096])
        .message(&[], &[]);
    assert!(!rig.take(&arrivals));
    assert_eq!((rig.read(), rig.stats().rx_dropped), (None, 3));
    let reason = ipoib::DropReason::NotConnected;
    let core = &rig.lanes.get(0).unwrap().core;
    assert_eq!(core.counters().rx_dropped(reason), 2);

    let _removed = rig.lanes.remove(0);
    let arrivals = Arrivals::default()
        .datagram(&small)
        .message(&small, &[])
        .message(&large, &[4096]);
    rig.take(&arrivals);
    assert_eq!((rig.read(), rig.unserved), (None, 3));
}

/// A header with a length beyond the message, and bytes behind the packet.
#[test]
fn wrong_lengths_write_nothing_beyond_the_message() {
    let mut rig = Rig::new();
    let mut short = packet(9000);
    short.truncate(8000);
    let mut long = packet(9000);
    long.extend([0xee; 500]);
    let arrivals = Arrivals::default()
        .message(&short, &[4096])
        .message(&long, &[4096, 4096, 812]);
    rig.take(&arrivals);
    assert_eq!(rig.read().unwrap()[14..], packet(9000)[4..]);
    assert_eq!(rig.read(), None);
    let stats = rig.stats();
    assert_eq!((stats.rx_packets, stats.rx_dropped), (1, 1));
}

#[test]
fn the_host_gets_a_syn_with_the_segment_size_of_the_settings() {
    let syn = [&IPV4[..], &syn_frame(65_468)[ETHERNET_LEN..]].concat();
    let arrivals = Arrivals::default()
        .datagram(&packet(100))
        .datagram(&syn)
        .message(&packet(200), &[])
        .message(&syn, &[]);
    for (limit, mss) in [(None, 65_468), (Some(MssLimit::of_packet(61_436)), 61_396)] {
        let mut rig = Rig::new();
        rig.lanes.get_mut(0).unwrap().settings.mss = limit;
        rig.take(&arrivals);
        let frames: Vec<_> = std::iter::from_fn(|| rig.read()).collect();
        let lengths: Vec<_> = frames
            .iter()
            .map(|frame| frame.len() - ETHERNET_LEN)
            .collect();
        assert_eq!(lengths, [100, 44, 200, 44]);
        for syn in [&frames[1], &frames[3]] {
            assert_eq!(u16::from_be_bytes([syn[56], syn[57]]), mss);
            assert!(tcp_sum(syn).is_valid());
        }
        assert_eq!(rig.stats().rx_packets, 4);
    }
}

/// A SYN with data (TCP Fast Open) arrives in parts if it is larger than the path MTU.
#[test]
fn the_host_gets_a_syn_of_several_parts_with_the_segment_size_of_the_settings() {
    for data in [2000, 9000u16] {
        let mut frame = syn_frame(65_468);
        frame.resize(frame.len() + usize::from(data), 0xda);
        frame[16..18].copy_from_slice(&(44 + data).to_be_bytes());
        frame[50..52].fill(0);
        let sum = tcp_sum(&frame).finish();
        frame[50..52].copy_from_slice(&sum.to_be_bytes());
        let syn = [&IPV4[..], &frame[ETHERNET_LEN..]].concat();
        let arrivals = Arrivals::default()
            .message(&packet(200), &[])
            .message(&syn, &[1024]);
        for (limit, mss) in [(None, 65_468), (Some(MssLimit::of_packet(61_436)), 61_396)] {
            let mut rig = Rig::new();
            rig.lanes.get_mut(0).unwrap().settings.mss = limit;
            rig.take(&arrivals);
            assert_eq!(rig.read().unwrap().len(), ETHERNET_LEN + 200);
            let seen = rig.read().unwrap();
            assert_eq!(u16::from_be_bytes([seen[56], seen[57]]), mss);
            assert!(tcp_sum(&seen).is_valid());
            assert!(seen[58..] == frame[58..], "the data");
            let stats = rig.stats();
            let bytes = 200 + 44 + u64::from(data);
            assert_eq!((stats.rx_packets, stats.rx_bytes), (2, bytes));
        }
    }
}

/// A frame with an incomplete checksum is not verified by the host.
#[test]
fn checksums_of_messages_are_left_to_the_host_or_trusted() {
    let mut sent = packet(9000);
    let field = 26..28;
    sent[4..][field.clone()].copy_from_slice(&[0x12, 0x34]);
    let pseudo = pseudo_header(&sent[16..20], &sent[20..24], 17, 8980).fold();
    for (trust, checksum) in [(false, 0x1234), (true, pseudo)] {
        let mut rig = Rig::new();
        rig.lanes.get_mut(0).unwrap().settings.trust_checksums = trust;
        rig.take(&Arrivals::default().message(&sent, &[4096, 4096]));
        let mut frame = rig.read().unwrap();
        let found = &mut frame[ETHERNET_LEN..][field.clone()];
        assert_eq!(found, checksum.to_be_bytes());
        found.copy_from_slice(&[0x12, 0x34]);
        assert_eq!(frame[ETHERNET_LEN..], sent[4..]);
    }
}

/// The attack first: a datagram of any host reaches the host.
#[test]
fn datagrams_of_hosts_that_are_not_allowed_are_dropped() {
    let mut rig = Rig::new();
    let arrivals = Arrivals::default().datagram(&packet(100));
    rig.take(&arrivals);
    assert!(rig.read().is_some());
    for (list, admitted) in [("fe80::99", false), ("::/0", true), ("fe80::/64", true)] {
        let list = AllowList::new([list.parse().unwrap()]);
        rig.allowed.set(Some(list.into()));
        rig.take(&arrivals);
        assert_eq!(rig.read().is_some(), admitted);
    }
    assert_eq!(rig.allowed.refused, 1);
}
