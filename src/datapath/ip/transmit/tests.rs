use netdev::mss::MssLimit;
use netdev::vnet::GSO_UDP_L4;
use zerocopy::IntoBytes;
use zerocopy::little_endian::U16;

use super::super::super::testing::{Call, FakeFabric, lane, syn_frame, udp_frame};
use super::*;

const CONNECTION: ConnectionId = ConnectionId(3);

/// A connection whose peer accepts packets of `mtu` bytes.
fn over(mtu: usize) -> Way {
    Way {
        to: Target::Neighbour(0),
        encapsulation: [8, 0, 0, 0],
        connection: Some(CONNECTION),
        mtu,
    }
}

struct Rig {
    lane: IpLane,
    fabric: FakeFabric,
    train: OpenTrain,
}

impl Rig {
    fn new() -> Rig {
        Rig {
            lane: lane(16).0,
            fabric: FakeFabric::new(64),
            train: OpenTrain::default(),
        }
    }

    fn send(&mut self, mtu: usize, vnet: &VnetHeader, frame: &[u8]) -> Fate {
        let prefix = vnet.as_bytes().try_into().unwrap();
        let Rig {
            lane,
            fabric,
            train,
        } = self;
        send(lane, fabric, train, Time(0), &over(mtu), prefix, frame)
    }

    fn posted(&mut self) -> Vec<Vec<usize>> {
        self.train.flush(&mut self.fabric);
        self.fabric.sizes()
    }
}

#[test]
fn messages_of_all_sizes_leave_in_order_and_are_counted() {
    let mut rig = Rig::new();
    rig.train.expect_more(true);
    let plain = VnetHeader::default();
    for payload in [100, 100, 5000, 100, 992, 993] {
        assert_eq!(rig.send(65_520, &plain, &udp_frame(payload)), Fate::Sent);
    }
    let expected = [
        vec![132, 132],
        vec![1024, 1024, 1024, 1024, 936],
        vec![132],
        vec![1024],
        vec![1024, 1],
    ];
    assert_eq!(rig.posted(), expected);
    let stats = rig.lane.stats;
    assert_eq!((stats.tx_packets, stats.tx_dropped), (6, 0));
    assert_eq!(stats.tx_bytes, 6 * 32 + 100 + 100 + 5000 + 100 + 992 + 993);
}

#[test]
fn a_large_send_is_cut_as_the_sender_asked() {
    let mut rig = Rig::new();
    let cut = |size| VnetHeader {
        gso_type: GSO_UDP_L4,
        gso_size: U16::new(size),
        ..VnetHeader::default()
    };
    assert_eq!(rig.send(65_520, &cut(500), &udp_frame(1200)), Fate::Sent);
    assert_eq!(rig.send(65_520, &cut(1500), &udp_frame(4500)), Fate::Sent);
    let expected = [
        vec![532, 532, 232],
        vec![1024, 508],
        vec![1024, 508],
        vec![1024, 508],
    ];
    assert_eq!(rig.posted(), expected);
    let stats = rig.lane.stats;
    // Each packet has its own headers.
    assert_eq!((stats.tx_packets, stats.tx_bytes), (6, 1296 + 4596));
    let to_it = |call: &Call| matches!(call, Call::Post(CONNECTION, _));
    assert!(rig.fabric.state().calls.iter().all(to_it));
}

#[test]
fn the_padding_of_a_frame_is_neither_sent_nor_counted() {
    let mut rig = Rig::new();
    let padded = [udp_frame(2), vec![0xee; 16]].concat();
    rig.send(65_520, &VnetHeader::default(), &padded);
    assert_eq!(rig.posted(), [[34]]);
    assert_eq!(rig.lane.stats.tx_bytes, 34);
}

#[test]
fn packets_that_a_connection_refuses_are_dropped_and_counted() {
    let mut rig = Rig::new();
    rig.fabric.state().takes = 0;
    for payload in [100, 5000] {
        let fate = rig.send(65_520, &VnetHeader::default(), &udp_frame(payload));
        assert_eq!(fate, Fate::Dropped);
    }
    let stats = rig.lane.stats;
    assert_eq!((stats.tx_no_room, stats.tx_dropped), (2, 2));
    assert_eq!((stats.tx_packets, stats.tx_bytes), (0, 0));
    assert!(rig.posted().is_empty());
}

#[test]
fn packets_before_the_refusal_are_counted() {
    let mut rig = Rig::new();
    rig.fabric = FakeFabric::new(2);
    rig.fabric.state().takes = 2;
    let cut = VnetHeader {
        gso_type: GSO_UDP_L4,
        gso_size: U16::new(500),
        ..VnetHeader::default()
    };
    assert_eq!(rig.send(65_520, &cut, &udp_frame(1200)), Fate::Dropped);
    assert_eq!(rig.posted(), [[532, 532]]);
    let stats = rig.lane.stats;
    assert_eq!((stats.tx_no_room, stats.tx_dropped), (1, 1));
    assert_eq!((stats.tx_packets, stats.tx_bytes), (2, 2 * 532));
}

/// The core knows the broadcast group from the start. The host receives no ICMP for multicast.
#[test]
fn a_multicast_over_the_mtu_is_dropped_and_counted() {
    let mut rig = Rig::new();
    let way = Way {
        to: Target::Group(0),
        connection: None,
        ..over(2044)
    };
    for (payload, fate) in [(2016, Fate::Sent), (2017, Fate::Dropped)] {
        let Rig {
            lane,
            fabric,
            train,
        } = &mut rig;
        let frame = udp_frame(payload);
        let prefix = [0; VNET_HEADER_LEN];
        let sent = send(lane, fabric, train, Time(0), &way, &prefix, &frame);
        assert_eq!(sent, fate, "{payload}");
    }
    assert_eq!(rig.posted(), [[2048]]);
    let stats = rig.lane.stats;
    assert_eq!(
        (stats.tx_too_big, stats.tx_errors, stats.tx_dropped),
        (1, 1, 1)
    );
}

#[test]
fn a_syn_leaves_with_the_segment_size_of_the_settings() {
    let mut rig = Rig::new();
    let mut copy = Vec::new();
    let frame = syn_frame(65_468);
    let whole = VnetHeader::default();
    let partial = VnetHeader {
        flags: FLAG_NEEDS_CSUM,
        csum_start: U16::new(34),
        csum_offset: U16::new(16),
        ..whole
    };
    let prefix = |vnet| -> [u8; VNET_HEADER_LEN] { zerocopy::transmute!(vnet) };
    let (whole, partial) = (prefix(whole), prefix(partial));
    assert_eq!(with_mss(&rig.lane, &whole, &frame, &mut copy), frame);
    rig.lane.settings.mss = Some(MssLimit::of_packet(61_436));
    let sent = with_mss(&rig.lane, &whole, &frame, &mut copy);
    assert_eq!(sent, syn_frame(61_396));
    let sent = with_mss(&rig.lane, &partial, &frame, &mut copy);
    assert_eq!(sent[56..], syn_frame(61_396)[56..]);
    assert_eq!(
        sent[50..52],
        frame[50..52],
        "the segmenter completes the checksum"
    );
    let small = syn_frame(1460);
    assert_eq!(with_mss(&rig.lane, &whole, &small, &mut copy), small);
    assert_eq!(with_mss(&rig.lane, &whole, &[0; 9], &mut copy), [0; 9]);
}
