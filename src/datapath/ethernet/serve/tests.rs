//! VNICs in a data thread, with a host behind each TAP and a fabric that records calls.

mod classes;
mod management;
mod switch;

use std::os::fd::OwnedFd;
use std::sync::Arc;

use crossbeam_channel::unbounded;
use fabric::{EndpointId, Gid, PKey, Qpn, UdDestination, UdReceived};
use netdev::tap::TapQueue;
use netdev::vnet::{FLAG_NEEDS_CSUM, GSO_NONE, GSO_TCPV4, VnetHeader};
use rustix::event::epoll;
use vnic::carriage::group_mgid;
use vnic::counters::Counters;
use vnic::directory::{Directory, NodeAddress};
use vnic::packet::{Decoded, FRAME_MAX, Header16B, Profile, Strictness, decode, encode};
use vnic::{Lid, Mac};
use zerocopy::little_endian::U16;
use zerocopy::{FromBytes, IntoBytes};

use super::super::super::command::Command;
use super::super::super::command::EthernetSibling;
use super::super::super::handle::mailbox;
use super::super::super::testing::{Call, Rig};
use super::super::super::thread::now;
use super::super::EthernetSettings;
use super::super::testing::*;
use super::*;

const PLAIN: VnetHeader = VnetHeader {
    flags: 0,
    gso_type: GSO_NONE,
    hdr_len: U16::ZERO,
    gso_size: U16::ZERO,
    csum_start: U16::ZERO,
    csum_offset: U16::ZERO,
    num_buffers: U16::ZERO,
};

/// A thread with VNICs, and a host behind each.
struct Vnics {
    rig: Rig,
    hosts: Vec<OwnedFd>,
    taps: Vec<TapQueue>,
    events: Vec<epoll::Event>,
}

impl Vnics {
    fn new(count: u8, eth_mtu: u16) -> Vnics {
        let rig = Rig::new();
        let (mut hosts, mut taps) = (Vec::new(), Vec::new());
        for n in 0..count {
            let (lane, host) = vnic_lane(n, eth_mtu);
            taps.push(lane.base.tap.share());
            rig.commands.send(Command::AddEthernet(Box::new(lane)));
            hosts.push(host);
        }
        let mut vnics = Vnics {
            rig,
            hosts,
            taps,
            events: Vec::with_capacity(8),
        };
        vnics.round();
        vnics
    }

    /// Two VNICs that are siblings.
    fn siblings(eth_mtu: u16) -> Vnics {
        let mut vnics = Vnics::new(2, eth_mtu);
        let sibling = |n| EthernetSibling {
            link: vnic_id(n),
            lid: vnic_lid(n),
        };
        for (of, other) in [(0, 1), (1, 0)] {
            let siblings = Arc::new([sibling(other)]);
            vnics.command(Command::SetEthernetSiblings(vnic_id(of), siblings));
        }
        vnics
    }

    fn round(&mut self) {
        // Without an event the thread would sleep for ever.
        self.rig.commands.send(Command::Watch(false));
        self.rig.thread.round(&mut self.events).unwrap();
    }

    fn command(&mut self, command: Command) {
        self.rig.commands.send(command);
        self.round();
    }

    /// Changes the settings of the first VNIC.
    fn set(&mut self, settings: EthernetSettings) {
        self.command(Command::Ethernet(vnic_id(0), Box::new(settings)));
    }

    /// The host of the `n`th VNIC sends.
    fn send(&mut self, n: usize, vnet: &VnetHeader, frame: &[u8]) {
        let raw = [vnet.as_bytes(), frame].concat();
        rustix::io::write(&self.hosts[n], &raw).unwrap();
        self.round();
    }

    /// The next frame that a host reads, with its virtio-net header.
    fn read(&self, n: usize) -> Option<(VnetHeader, Vec<u8>)> {
        let mut frame = vec![0; 1 << 17];
        let len = rustix::io::read(&self.hosts[n], &mut frame).ok()?;
        let vnet = VnetHeader::read_from_bytes(&frame[..VNET_HEADER_LEN]).unwrap();
        Some((vnet, frame[VNET_HEADER_LEN..len].to_vec()))
    }

    /// Destinations and packets of the trains sent since the previous call.
    fn sent(&mut self) -> Vec<(UdDestination, Vec<Vec<u8>>)> {
        let calls = std::mem::take(&mut self.rig.state.lock().unwrap().calls);
        let sent = |call| match call {
            Call::Send(to, packets) => Some((to, packets)),
            _ => None,
        };
        calls.into_iter().filter_map(sent).collect()
    }

    /// The only train sent since the previous call.
    fn only_train(&mut self) -> (UdDestination, Vec<Vec<u8>>) {
        let mut sent = self.sent();
        assert_eq!(sent.len(), 1, "{sent:x?}");
        sent.remove(0)
    }

    /// Datagrams arrive from the peer; `multicast`: by a group.
    fn arrive(&mut self, endpoint: EndpointId, multicast: bool, payloads: &[Vec<u8>]) {
        let received = UdReceived {
            endpoint,
            src_qpn: peer().qpn,
            src_gid: peer().gid,
            has_src_gid: true,
            dst_gid: Gid([0; 16]),
            multicast,
            pkey: PKey::DEFAULT,
            checksum_ok: false,
            range: 0..0,
        };
        let arrivals = payloads.iter().map(|p| (received.clone(), p.clone()));
        self.rig.state.lock().unwrap().arrivals.extend(arrivals);
        self.round();
    }

    fn snapshots(&mut self, tables: Tables) -> Vec<EthernetSnapshot> {
        let (reply, snapshot) = unbounded();
        self.rig.commands.send(Command::Snapshot { tables, reply });
        self.rig.thread.commands(now());
        snapshot.try_recv().unwrap().ethernet
    }

    fn snapshot(&mut self, n: usize) -> EthernetSnapshot {
        self.snapshots(Tables::All).remove(n)
    }

    fn counters(&mut self, n: usize) -> Counters {
        self.snapshot(n).counters
    }

    /// The GID of an address handle.
    fn gid_of(&self, to: &UdDestination) -> Gid {
        self.rig.state.lock().unwrap().handles[to.ah.0 as usize].dgid
    }
}

fn decoded(packet: &[u8]) -> Decoded<'_> {
    decode(packet, Profile::Wire0, Strictness::Strict).unwrap()
}

/// A packet from the peer to the first VNIC.
fn packet(frame: &[u8]) -> Vec<u8> {
    packet_of(PEER, frame)
}

/// A packet from a LID to the first VNIC.
fn packet_of(slid: Lid, frame: &[u8]) -> Vec<u8> {
    packet_between(slid, vnic_lid(0), frame)
}

fn packet_between(slid: Lid, dlid: Lid, frame: &[u8]) -> Vec<u8> {
    let header = Header16B {
        slid,
        dlid,
        pkey: PKey::new(0x8001),
        vesw_id: VESW,
        ..Header16B::default()
    };
    let mut out = vec![0xee; 1 << 15];
    let len = encode(&header, frame, Profile::Wire0, &mut out).unwrap();
    out.truncate(len);
    out
}

fn vectors() -> serde_json::Value {
    let path = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/tests/data/opa_vnic_vectors.json"
    );
    serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
}

fn bytes(hex: &serde_json::Value) -> Vec<u8> {
    let digits = hex.as_str().unwrap().as_bytes();
    let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
    digits.chunks(2).map(byte).collect()
}

/// The vectors from LID 5 to the peer's LID, with the priority as service class. Compares all bytes except
/// the ICRC, which 16B packets in datagrams do not use, and the entropy, which the sender chooses.
#[test]
fn frames_leave_as_the_packets_of_the_vectors() {
    let vectors = vectors();
    let mut tried = 0;
    for v in vectors["encode_vectors"].as_array().unwrap() {
        let fields = &v["fields"];
        let is = |name: &str, value: u32| fields[name] == value;
        let frame = bytes(&v["eth_hex"]);
        let ours = is("slid", 5) && is("dlid", PEER.get()) && is("vesw", VESW.into());
        if !ours || !is("rc", 0) || v["profile"] == "mem" || frame.len() > 2018 {
            continue;
        }
        let mut expected = bytes(&v["packet_hex"]);
        let n = expected.len();
        expected[n - 5..n - 1].fill(0);
        let mut vnics = Vnics::new(1, 2000);
        vnics.send(0, &PLAIN, &frame);
        let (to, mut packets) = vnics.only_train();
        assert_eq!((to.qpn, to.qkey), (peer().qpn, fabric::QKey::OWN));
        assert_eq!(vnics.gid_of(&to), peer().gid);
        packets[0][12..14].fill(0);
        assert_eq!(packets, [expected], "{}", v["name"]);
        assert_eq!(vnics.counters(0).tx_packets, 1);
        tried += 1;
    }
    assert!(tried > 15, "{tried} vectors fit");
}

/// A large TCP send over IPv4 from this host to the peer, with its virtio-net header.
fn large_send(tag: &[u8], payload: usize, size: u16) -> (VnetHeader, Vec<u8>) {
    let builder = etherparse::PacketBuilder::ipv4([10, 0, 0, 1], [10, 0, 0, 2], 64)
        .tcp(1000, 2000, 7, 1000)
        .ack(1);
    let data: Vec<u8> = (0..payload).map(|i| (i % 251) as u8).collect();
    let mut ip = Vec::new();
    builder.write(&mut ip, &data).unwrap();
    let mut frame = [&PEER_MAC[..], &vnic_mac(0), tag, &[8, 0]].concat();
    let start = frame.len() as u16 + 20;
    frame.extend(ip);
    let vnet = VnetHeader {
        flags: FLAG_NEEDS_CSUM,
        gso_type: GSO_TCPV4,
        hdr_len: U16::new(start + 20),
        gso_size: U16::new(size),
        csum_start: U16::new(start),
        csum_offset: U16::new(16),
        ..PLAIN
    };
    (vnet, frame)
}

/// Checks the checksums of a frame; returns the sequence number and the payload of its segment.
fn segment(frame: &[u8], header: usize) -> (u32, Vec<u8>) {
    let ip = etherparse::Ipv4Slice::from_slice(&frame[header..]).unwrap();
    let ip_header = ip.header();
    assert_eq!(
        ip_header.header_checksum(),
        ip_header.to_header().calc_header_checksum()
    );
    let tcp = etherparse::TcpSlice::from_slice(ip.payload().payload).unwrap();
    let sum = tcp.calc_checksum_ipv4(ip_header.source(), ip_header.destination());
    assert_eq!(Ok(tcp.checksum()), sum);
    (tcp.sequence_number(), tcp.payload().to_vec())
}

#[test]
fn a_large_send_leaves_as_packets_of_frames_that_fit() {
    let tags: [&[u8]; 3] = [&[], &[0x81, 0, 0xb0, 0x64], &[0x88, 0xa8, 0xf0, 7]];
    for tag in tags {
        let mut vnics = Vnics::new(1, 1500);
        let header = 14 + tag.len();
        let (vnet, frame) = large_send(tag, 5 * 1448 + 100, 1448);
        vnics.send(0, &vnet, &frame);
        let (to, packets) = vnics.only_train();
        assert_eq!(to.qpn, peer().qpn);
        assert_eq!(packets.len(), 6);
        let mut next = 7;
        for (i, packet) in packets.iter().enumerate() {
            let Decoded {
                header: h,
                frame: f,
            } = decoded(packet);
            assert_eq!((h.slid, h.dlid, h.vesw_id), (vnic_lid(0), PEER, VESW));
            assert_eq!(h.sc, tag.get(2).map_or(0, |tci| tci >> 5));
            assert_eq!(f[..header], frame[..header]);
            let (sequence, payload) = segment(f, header);
            assert_eq!(sequence, next);
            assert_eq!(payload.len(), if i == 5 { 100 } else { 1448 });
            let at = header + 40 + (next as usize - 7);
            assert_eq!(payload, frame[at..at + payload.len()]);
            next += payload.len() as u32;
        }
        let counters = vnics.counters(0);
        assert_eq!((counters.tx_packets, counters.tx_dropped), (6, 0));
        let tagged = if tag.is_empty() { 0 } else { 6 };
        assert_eq!(
            (counters.tx_vlan, counters.tx_untagged),
            (tagged, 6 - tagged)
        );
    }
}

#[test]
fn frames_over_the_mtu_or_with_wrong_headers_are_dropped_and_counted() {
    let mut vnics = Vnics::new(1, 1500);
    let frame = |len: usize| {
        let mut frame = [&PEER_MAC[..], &vnic_mac(0), &[0x88, 0xb5]].concat();
        frame.resize(len, 7);
        frame
    };
    vnics.send(0, &PLAIN, &frame(1518));
    assert_eq!(decoded(&vnics.only_train().1[0]).frame, frame(1518));
    vnics.send(0, &PLAIN, &frame(1519));
    vnics.send(
        0,
        &VnetHeader {
            gso_type: 3,
            ..PLAIN
        },
        &frame(100),
    );
    vnics.send(0, &PLAIN, &frame(13));
    assert!(vnics.sent().is_empty());
    let counters = vnics.counters(0);
    assert_eq!((counters.tx_too_big, counters.tx_bad_frame), (1, 2));
    assert_eq!((counters.tx_packets, counters.tx_dropped), (4, 3));
}

/// The fabric's largest payload is smaller than the switch's MTU.
#[test]
fn a_fabric_with_smaller_packets_limits_frames() {
    let mut vnics = Vnics::new(1, 4053);
    vnics.set(EthernetSettings {
        payload_max: 2048,
        ..vnic_settings(0, 4053)
    });
    let (vnet, frame) = large_send(&[], 6000, 3960);
    vnics.send(0, &vnet, &frame);
    let (_, packets) = vnics.only_train();
    assert!(packets.iter().all(|packet| packet.len() <= 2048));
    let payloads = packets.iter().map(|p| segment(decoded(p).frame, 14).1);
    assert_eq!(payloads.collect::<Vec<_>>().concat(), frame[54..]);
    assert_eq!(vnics.counters(0).tx_too_big, 0);
}

/// The length in a 16B header has 11 bits.
#[test]
fn the_header_s_length_field_limits_frames() {
    let mut vnics = Vnics::new(1, 60_000);
    vnics.set(EthernetSettings {
        payload_max: 60_000,
        ..vnic_settings(0, 60_000)
    });
    let mut frame = [&PEER_MAC[..], &vnic_mac(0), &[0x88, 0xb5]].concat();
    for (len, sent) in [(FRAME_MAX, 1), (FRAME_MAX + 1, 0)] {
        frame.resize(len, 7);
        vnics.send(0, &PLAIN, &frame);
        assert_eq!(vnics.sent().len(), sent, "{len}");
    }
    assert_eq!(vnics.counters(0).tx_too_big, 1);
}

#[test]
fn broadcasts_and_unknown_addresses_go_to_the_group() {
    let mut vnics = Vnics::new(1, 1500);
    let mgid = group_mgid(PKey::new(0x8001), 0, VESW, MULTICAST);
    for (n, destination) in [[0xff; 6], [0x52, 0x54, 0, 1, 2, 3]]
        .into_iter()
        .enumerate()
    {
        let frame = [&destination[..], &vnic_mac(0), &[8, 6], &[0; 46]].concat();
        vnics.send(0, &PLAIN, &frame);
        let (to, packets) = vnics.only_train();
        assert_eq!((to.qpn, vnics.gid_of(&to)), (Qpn::MULTICAST, mgid));
        assert_eq!(decoded(&packets[0]).header.dlid, MULTICAST);
        assert_eq!(vnics.counters(0).tx_flooded, n as u64);
    }
    assert_eq!(
        vnics.rig.state.lock().unwrap().handles.len(),
        1,
        "one handle"
    );
}

/// Only the member with the LID accepts the packet.
#[test]
fn a_member_with_an_unknown_queue_pair_is_reached_by_the_group() {
    let mut vnics = Vnics::new(1, 1500);
    let nowhere = NodeAddress {
        qpn: Qpn::new(0),
        ..peer()
    };
    let (other, other_mac) = (Lid::new(0x01_2346), [6, 0x2c, 0, 0x46, 0x23, 0x01]);
    let directory = Directory {
        nodes: [(other, nowhere)].into(),
        closed: true,
    };
    vnics.command(Command::SetDirectory(vnic_id(0), Arc::new(directory)));
    let frame = [&other_mac[..], &vnic_mac(0), &[8, 6], &[0; 46]].concat();
    vnics.send(0, &PLAIN, &frame);
    let (to, packets) = vnics.only_train();
    assert_eq!(to.qpn, Qpn::MULTICAST);
    assert_eq!(decoded(&packets[0]).header.dlid, other);
    // The answer has the member's address.
    let answer = [&vnic_mac(0)[..], &other_mac, &[8, 6], &[0; 46]].concat();
    vnics.arrive(vnic_endpoint(0), false, &[packet_of(other, &answer)]);
    vnics.send(0, &PLAIN, &frame);
    assert_eq!(vnics.only_train().0.qpn, peer().qpn);
}

#[test]
fn the_tap_is_muted_while_the_fabric_has_no_room() {
    let mut vnics = Vnics::new(2, 1500);
    let frame = [&PEER_MAC[..], &vnic_mac(0), &[8, 6], &[0; 46]].concat();
    vnics.rig.state.lock().unwrap().full = true;
    vnics.round();
    vnics.send(0, &PLAIN, &frame);
    assert_eq!(vnics.rig.thread.pace.muted, [At::Ethernet(0)]);
    assert!(vnics.sent().is_empty());
    vnics.rig.state.lock().unwrap().full = false;
    vnics.round();
    assert!(vnics.rig.thread.pace.muted.is_empty());
    vnics.round();
    assert_eq!(vnics.only_train().1.len(), 1, "the frame waited in the TAP");
    assert_eq!(vnics.counters(0).tx_dropped, 0);
}

/// Segments of a stream from the peer, each in a separate frame.
fn segments(tag: &[u8], count: usize) -> (Vec<u8>, Vec<Vec<u8>>) {
    let (_, whole) = large_send(tag, count * 1000, 1000);
    let vnet = large_send(tag, count * 1000, 1000).0;
    let most = whole.len();
    let mut cutter = netdev::segment::Segmenter::ethernet(&vnet, &whole, most).unwrap();
    let mut frames = Vec::new();
    while let Some(len) = cutter.next_len() {
        let mut frame = vec![0; len];
        cutter.write_next(&mut frame);
        frame[..6].copy_from_slice(&vnic_mac(0));
        frame[6..12].copy_from_slice(&PEER_MAC);
        frames.push(frame);
    }
    (whole, frames)
}

#[test]
fn segments_of_the_same_tag_are_merged() {
    let tags: [&[u8]; 3] = [&[], &[0x81, 0, 0xb0, 0x64], &[0x88, 0xa8, 0xf0, 7]];
    for tag in tags {
        let mut vnics = Vnics::new(1, 1500);
        let (whole, frames) = segments(tag, 3);
        let packets: Vec<Vec<u8>> = frames.iter().map(|frame| packet(frame)).collect();
        vnics.arrive(vnic_endpoint(0), false, &packets);
        let (vnet, frame) = vnics.read(0).unwrap();
        let header = 14 + tag.len();
        assert_eq!((vnet.gso_type, vnet.gso_size.get()), (GSO_TCPV4, 1000));
        assert_eq!(usize::from(vnet.csum_start.get()), header + 20);
        assert_eq!(usize::from(vnet.hdr_len.get()), header + 40);
        assert_eq!(frame.len(), whole.len());
        assert_eq!(frame[12..header], whole[12..header]);
        assert_eq!(frame[header + 40..], whole[header + 40..]);
        assert_eq!(vnics.read(0), None);
        let counters = vnics.counters(0);
        assert_eq!((counters.rx_packets, counters.rx_unicast), (3, 3));
    }
    let mut vnics = Vnics::new(1, 1500);
    let ones = segments(&[0x81, 0, 0, 1], 2).1;
    let twos = segments(&[0x81, 0, 0, 2], 2).1;
    let mixed = [&ones[0], &twos[0], &ones[1], &twos[1]].map(|frame| packet(frame));
    vnics.arrive(vnic_endpoint(0), false, &mixed);
    let read: Vec<Vec<u8>> = std::iter::from_fn(|| vnics.read(0))
        .map(|(_, f)| f)
        .collect();
    assert_eq!(
        read,
        [&ones[0], &twos[0], &ones[1], &twos[1]].map(Clone::clone)
    );
}

#[test]
fn refused_packets_are_counted_and_not_written() {
    let mut vnics = Vnics::new(1, 1500);
    let frame = [&vnic_mac(0)[..], &PEER_MAC, &[8, 6], &[0; 46]].concat();
    let good = packet(&frame);
    let with = |at: usize, value: u8| {
        let mut packet = good.clone();
        packet[at] = value;
        packet
    };
    let others = [
        with(18, 3),
        with(8, 0x79),
        with(7, 0xa0),
        with(10, 2),
        good[..80].to_vec(),
        Vec::new(),
    ];
    vnics.arrive(vnic_endpoint(0), false, &others);
    assert_eq!(vnics.read(0), None);
    let c = vnics.counters(0);
    let why = [c.rx_bad_veswid, c.rx_bad_l4, c.rx_bad_l2, c.rx_bad_pkey];
    assert_eq!(why, [1; 4]);
    assert_eq!(
        (c.rx_length_mismatch, c.rx_truncated, c.rx_packets),
        (1, 1, 0)
    );
    vnics.arrive(EndpointId(77), false, std::slice::from_ref(&good));
    assert_eq!(vnics.rig.thread.io.unserved, 1);
    vnics.arrive(vnic_endpoint(0), false, &[good]);
    assert_eq!(vnics.read(0), Some((PLAIN, frame)));
}

/// The host's interface is down. Refused frames are counted, and do not stop later ones.
#[test]
fn frames_that_the_tap_refuses_are_counted() {
    let mut vnics = Vnics::new(1, 1500);
    let frame = [&vnic_mac(0)[..], &PEER_MAC, &[8, 6], &[0; 46]].concat();
    vnics.rig.thread.ethernet.lanes.get_mut(0).unwrap().base.tap = {
        let (near, far) = rustix::pipe::pipe().unwrap();
        drop(near);
        TapQueue::over(far)
    };
    vnics.arrive(vnic_endpoint(0), false, &[packet(&frame), packet(&frame)]);
    let snapshot = vnics.snapshot(0);
    assert_eq!(
        (
            snapshot.tap.tap_write_errors,
            snapshot.counters.rx_fifo_errors
        ),
        (2, 2)
    );
}

#[test]
fn a_sibling_receives_a_large_send_uncut_without_the_fabric() {
    let mut vnics = Vnics::siblings(1500);
    let (vnet, mut frame) = large_send(&[0x81, 0, 0, 9], 30_000, 1448);
    frame[..6].copy_from_slice(&vnic_mac(1));
    vnics.send(
        0,
        &VnetHeader {
            hdr_len: U16::new(9999),
            ..vnet
        },
        &frame,
    );
    assert!(vnics.sent().is_empty());
    assert_eq!(
        vnics.read(1),
        Some((
            VnetHeader {
                hdr_len: U16::new(58),
                ..vnet
            },
            frame
        ))
    );
    let packets = 30_000_u64.div_ceil(1448);
    let sender = vnics.counters(0);
    assert_eq!(
        (sender.tx_packets, sender.tx_to_siblings),
        (packets, packets)
    );
    let receiver = vnics.counters(1);
    assert_eq!((receiver.rx_packets, receiver.rx_vlan), (packets, packets));
    assert_eq!(sender.tx_bytes, receiver.rx_bytes);
}

#[test]
fn a_removed_sibling_receives_nothing_and_too_long_frames_are_dropped() {
    let mut vnics = Vnics::siblings(1500);
    let mut frame = [&vnic_mac(1)[..], &vnic_mac(0), &[0x88, 0xb5]].concat();
    frame.resize(1519, 1);
    vnics.send(0, &PLAIN, &frame);
    assert_eq!(vnics.read(1), None);
    let (done, ended) = unbounded();
    vnics
        .rig
        .commands
        .send(Command::RemoveLane(vnic_id(1), done));
    vnics.round();
    let last = ended.try_recv().unwrap();
    assert_eq!((last.id, last.counters.rx_packets), (vnic_id(1), 0));
    assert_eq!(last.tap.tap_writes, 0);
    assert_eq!(
        ended.try_recv().map(drop),
        Err(crossbeam_channel::TryRecvError::Disconnected)
    );
    vnics.send(0, &PLAIN, &frame[..100]);
    assert!(vnics.sent().is_empty());
    let counters = vnics.counters(0);
    assert_eq!((counters.tx_too_big, counters.tx_carrier_errors), (1, 1));
}

/// A thread sends learned addresses to the other threads before the end of its round.
#[test]
fn learned_addresses_are_sent_to_the_other_threads() {
    let mut vnics = Vnics::new(1, 1500);
    let (mailbox, inbox) = mailbox().unwrap();
    vnics.rig.thread.control.replicas = vec![mailbox];
    let guest = [0x52, 0x54, 0, 1, 2, 3];
    let frame = [&vnic_mac(0)[..], &guest, &[8, 6], &[0; 46]].concat();
    vnics.arrive(vnic_endpoint(0), false, &[packet(&frame)]);
    let updates: Vec<Command> = inbox.receiver.try_iter().collect();
    assert!(!updates.is_empty());
    let mut other = Vnics::new(1, 1500);
    // The host's answer is in the TAP before the update arrives.
    let back = [&guest[..], &vnic_mac(0), &[8, 6], &[0; 46]].concat();
    let raw = [PLAIN.as_bytes(), &back].concat();
    rustix::io::write(&other.hosts[0], &raw).unwrap();
    for update in updates {
        assert!(matches!(update, Command::EthernetUpdate(..)));
        other.rig.commands.send(update);
    }
    other.round();
    assert_eq!(other.only_train().0.qpn, peer().qpn);
}

#[test]
fn the_tables_of_one_vnic_are_copied_without_those_of_the_others() {
    let mut vnics = Vnics::new(2, 1500);
    for n in 0..2 {
        let guest = [0x52, 0x54, 0, 1, 2, n];
        let frame = [&vnic_mac(n)[..], &guest, &[8, 6], &[0; 46]].concat();
        let packet = packet_between(PEER, vnic_lid(n), &frame);
        vnics.arrive(vnic_endpoint(n), false, &[packet]);
    }
    let sizes = |all: Vec<EthernetSnapshot>| -> Vec<(usize, usize)> {
        all.iter().map(|s| (s.macs.len(), s.nodes.len())).collect()
    };
    let whole = sizes(vnics.snapshots(Tables::All));
    assert!(
        whole.iter().all(|(macs, nodes)| *macs > 0 && *nodes > 0),
        "{whole:?}"
    );
    assert_eq!(sizes(vnics.snapshots(Tables::None)), [(0, 0); 2]);
    let of_one = sizes(vnics.snapshots(Tables::Of(vnic_id(1))));
    assert_eq!(of_one, [(0, 0), whole[1]]);
}

#[test]
fn handles_are_destroyed_with_their_vnic() {
    let mut vnics = Vnics::new(1, 1500);
    for destination in [PEER_MAC, [0xff; 6]] {
        let frame = [&destination[..], &vnic_mac(0), &[8, 6], &[0; 46]].concat();
        vnics.send(0, &PLAIN, &frame);
    }
    let (done, _ended) = unbounded();
    vnics
        .rig
        .commands
        .send(Command::RemoveLane(vnic_id(0), done));
    vnics.round();
    let state = vnics.rig.state.lock().unwrap();
    let mut destroyed: Vec<u32> = state.destroyed.iter().map(|ah| ah.0).collect();
    destroyed.sort_unstable();
    assert_eq!((state.handles.len(), destroyed), (2, vec![0, 1]));
}

/// The control thread receives addresses behind the interface after the core's delay.
#[test]
fn addresses_behind_the_interface_are_reported_after_a_delay() {
    let mut vnics = Vnics::new(2, 1500);
    assert_eq!(
        vnics.rig.thread.timeout(),
        None,
        "idle VNICs have no deadline"
    );
    let guest = [0x52, 0x54, 0, 1, 2, 3];
    let frame = [&[0xff; 6][..], &guest, &[8, 6], &[0; 46]].concat();
    vnics.send(1, &PLAIN, &frame);
    let wait = vnics.rig.thread.timeout().unwrap();
    assert!(wait.tv_sec <= 1, "{wait:?}");
    let later = Time(now().0 + 2000);
    vnics.rig.thread.ethernet_timers(later);
    let reports: Vec<Report> = vnics.rig.reports.try_iter().collect();
    let [Report::Ethernet(id, endpoint, vnic::port::Event::LocalMacs(macs))] = &reports[..] else {
        panic!("{reports:?}");
    };
    assert_eq!((*id, &macs[..]), (vnic_id(1), &[guest][..]));
    assert_eq!(*endpoint, vnic_endpoint(1));
}
