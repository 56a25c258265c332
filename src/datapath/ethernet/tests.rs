//! Property tests: arbitrary frames from the host and packets from the fabric.

use fabric::UdReceived;
use ipoib::Time;
use netdev::coalesce::{CoalesceConfig, Coalescer};
use netdev::vnet::{GSO_TCPV4, GSO_TCPV6, GSO_UDP_L4, VNET_HEADER_LEN, VnetHeader};
use proptest::prelude::*;
use vnic::packet::{Profile, Strictness, decode};
use zerocopy::FromBytes;
use zerocopy::little_endian::U16;

use super::super::testing::{FakeFabric, udp_frame};
use super::super::train::OpenTrain;
use super::testing::*;
use super::*;

/// The packets of a lane for a frame from its TAP, and the counters.
fn packets_of(vnet: &VnetHeader, frame: &[u8]) -> (Vec<Vec<u8>>, vnic::counters::Counters) {
    let (mut lane, _host) = vnic_lane(0, 1500);
    let (mut fabric, mut train) = (FakeFabric::new(16), OpenTrain::default());
    let raw = [zerocopy::IntoBytes::as_bytes(vnet), frame].concat();
    super::frame(&mut lane, &mut fabric, &mut train, Time(1000), &raw);
    train.flush(&mut fabric);
    (fabric.trains().concat(), *lane.core.counters())
}

/// The fabric has room for the first two of four frames.
#[test]
fn frames_before_a_full_fabric_are_counted_as_sent_and_the_rest_as_dropped() {
    let (mut lane, _host) = vnic_lane(0, 1500);
    let (mut fabric, mut train) = (FakeFabric::new(2), OpenTrain::default());
    fabric.state().fills = true;
    let vnet = VnetHeader {
        gso_type: GSO_UDP_L4,
        gso_size: U16::new(1000),
        ..VnetHeader::default()
    };
    let frame = [&PEER_MAC[..], &vnic_mac(0), &udp_frame(3100)[12..]].concat();
    let raw = [zerocopy::IntoBytes::as_bytes(&vnet), &frame].concat();
    super::frame(&mut lane, &mut fabric, &mut train, Time(1000), &raw);
    train.flush(&mut fabric);
    let sent = fabric.trains().concat();
    assert_eq!(sent.len(), 2);
    let c = lane.core.counters();
    assert_eq!((c.tx_unicast, c.tx_dropped, c.tx_fifo_errors), (2, 2, 2));
    // Three frames of 1,000 bytes of payload and one of 100, each with its headers and its check sequence.
    assert_eq!((c.tx_packets, c.tx_bytes), (4, 3 * 1046 + 146));
    assert_eq!((c.tx_1024_1518, c.tx_128_255), (3, 1));
}

/// A virtio-net header, valid or invalid.
fn vnet() -> impl Strategy<Value = VnetHeader> {
    let anything = any::<[u8; VNET_HEADER_LEN]>()
        .prop_map(|bytes| VnetHeader::read_from_bytes(&bytes).unwrap_or_default());
    let kind = prop::sample::select(vec![0, GSO_TCPV4, GSO_TCPV6, GSO_UDP_L4]);
    let likely =
        (kind, 0u16..3000, 0u8..2, any::<bool>()).prop_map(|(gso_type, size, flags, tag)| {
            VnetHeader {
                flags,
                gso_type,
                gso_size: U16::new(size),
                csum_start: U16::new(if tag { 38 } else { 34 }),
                csum_offset: U16::new(6),
                ..VnetHeader::default()
            }
        });
    prop_oneof![1 => anything, 4 => likely]
}

fn frame_bytes() -> impl Strategy<Value = Vec<u8>> {
    let anything = prop::collection::vec(any::<u8>(), 0..200);
    let likely =
        (0usize..9000, any::<bool>(), any::<bool>()).prop_map(|(len, tag, of_provider)| {
            let frame = udp_frame(len);
            let kind = if of_provider { [0x88, 0xa8] } else { [0x81, 0] };
            let tag: &[u8] = if tag {
                &[kind[0], kind[1], 0xb0, 7]
            } else {
                &[]
            };
            [&PEER_MAC[..], &vnic_mac(0), tag, &frame[12..]].concat()
        });
    prop_oneof![1 => anything, 4 => likely]
}

proptest! {
    /// A strict receiver accepts each packet, each frame fits, and each frame of the host is counted once, as
    /// sent or as dropped.
    #[test]
    fn everything_sent_is_a_valid_packet(vnet in vnet(), frame in frame_bytes()) {
        let (packets, counters) = packets_of(&vnet, &frame);
        for packet in &packets {
            let decoded = decode(packet, Profile::Wire0, Strictness::Strict).unwrap();
            prop_assert!((60..=1518).contains(&decoded.frame.len()));
            prop_assert_eq!(decoded.header.slid, vnic_lid(0));
        }
        let count = packets.len() as u64;
        prop_assert_eq!(counters.tx_packets - counters.tx_dropped, count);
        prop_assert!(counters.tx_dropped == 0 || count == 0);
        prop_assert!(counters.tx_packets > 0);
    }

    /// No arrival does harm, and every written frame is counted.
    #[test]
    fn every_arrival_is_written_or_counted(
        payloads in prop::collection::vec((frame_bytes(), any::<bool>(), 0usize..300, any::<u8>()), 1..6),
    ) {
        let (mut lane, host) = vnic_lane(0, 1500);
        let mut coalescer = Coalescer::new(CoalesceConfig::default());
        let header = vnic::packet::Header16B {
            slid: PEER,
            dlid: vnic_lid(0),
            pkey: fabric::PKey::new(0x8001),
            vesw_id: VESW,
            ..vnic::packet::Header16B::default()
        };
        let mut all = Vec::new();
        for (frame, damage, at, value) in payloads {
            let mut packet = vec![0; 1 << 14];
            let len = vnic::packet::encode(&header, &frame, Profile::Wire0, &mut packet).unwrap();
            packet.truncate(len);
            if damage {
                packet[at % len] = value;
            }
            all.push(packet);
        }
        let received = UdReceived {
            endpoint: vnic_endpoint(0),
            src_qpn: peer().qpn,
            src_gid: peer().gid,
            has_src_gid: true,
            dst_gid: fabric::Gid([0; 16]),
            multicast: false,
            pkey: fabric::PKey::DEFAULT,
            checksum_ok: false,
            range: 0..0,
        };
        let arrivals = all.iter().map(|packet| (&received, &packet[..]));
        datagrams(&mut lane, &mut coalescer, &[], Time(1000), arrivals);
        let mut written = 0;
        let mut frame = vec![0; 1 << 17];
        while rustix::io::read(&host, &mut frame).is_ok() {
            written += 1;
        }
        prop_assert_eq!(lane.base.stats.tap_writes, written);
        let c = lane.core.counters();
        prop_assert_eq!(lane.base.stats.tap_write_errors, 0);
        let taken = c.rx_unicast + c.rx_mcastbcast;
        prop_assert!(taken >= written && c.rx_packets >= taken && taken <= all.len() as u64);
    }
}
