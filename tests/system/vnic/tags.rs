//! VLAN tags are part of the frame: they arrive unchanged, and select the service class.

use super::{count, mac_of, managed_pair, pair};
use crate::lab::frame::{Mac, ethernet};
use crate::lab::packet::{frames, ud_of_frame};
use crate::lab::packet16::{Packet16, VNIC_MTU, data_qkey};
use crate::lab::{Background, Host, SOON, Sniffer, arrives_whole, eventually, iperf_above};

/// A frame with these tags (type and control), and a payload of an experimental type (0x88b5).
fn tagged(to: Mac, from: Mac, tags: &[(u16, u16)], length: usize) -> Vec<u8> {
    let mut frame = to.to_vec();
    frame.extend(from);
    for (kind, control) in tags {
        frame.extend(kind.to_be_bytes());
        frame.extend(control.to_be_bytes());
    }
    frame.extend(0x88b5_u16.to_be_bytes());
    frame.resize(length, 0xa5);
    frame
}

const C_TAG: u16 = 0x8100;
const S_TAG: u16 = 0x88a8;
const BROADCAST: Mac = [0xff; 6];

#[test]
fn tagged_frames_arrive_as_they_left() {
    let Some(mut lab) = pair() else { return };
    let (a, b) = lab.two();
    let ends = [mac_of(b, "vnic0"), mac_of(a, "vnic0")];
    let full = VNIC_MTU as usize + 18;
    let sent = [
        tagged(ends[0], ends[1], &[(C_TAG, 5)], 60),
        tagged(ends[0], ends[1], &[(C_TAG, 0x6000 | 4095)], 64),
        tagged(ends[0], ends[1], &[(C_TAG, 0)], 1514),
        tagged(ends[0], ends[1], &[(S_TAG, 0x9005)], 999),
        tagged(ends[0], ends[1], &[(S_TAG, 7), (C_TAG, 5)], 1500),
        tagged(BROADCAST, ends[1], &[(C_TAG, 0xe005)], 128),
        tagged(ends[0], ends[1], &[(C_TAG, 5)], full),
    ];
    let heard = Sniffer::start(b, "vnic0", "-Q in not ip6 and not arp and not ip");
    let before = count(b, "rx_vlan");
    a.send_frames("vnic0", 100, &sent);
    eventually(SOON, "all of them", || {
        let file = std::fs::read(heard.file()).expect("a capture");
        let got = frames(&file);
        let ours = got.iter().filter(|frame| sent.contains(frame));
        (ours.count() == sent.len()).then_some(())
    });
    assert_eq!(count(b, "rx_vlan") - before, sent.len() as u64);
    assert!(count(a, "tx_vlan") >= sent.len() as u64);
}

/// A VLAN link on `vnic0`: this kernel may have none.
fn vlan_link(host: &Host, vid: u16) -> Background {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/system/lab/vlan_link.py");
    let relay = host.spawn(&format!("python3 {script} vnic0 v{vid} {vid}"));
    let name = format!("v{vid}");
    eventually(SOON, "the VLAN link", || host.has_link(&name).then_some(()));
    host.ok(&format!("ip link set {name} mtu {}", host.mtu("vnic0")));
    let own = host.v4().replace("10.9.0", "10.5.0");
    host.ok(&format!("ip addr add {own}/24 dev {name}"));
    host.ok(&format!("ip link set {name} up"));
    host.await_carrier(&name, true);
    relay
}

/// Large sends with a tag are segmented, and received segments are coalesced.
#[test]
fn streams_run_over_a_vlan() {
    let Some(mut lab) = pair() else { return };
    let (a, b) = lab.two();
    let _links = [vlan_link(a, 5), vlan_link(b, 5)];
    a.reaches_all(&["10.5.0.2"]);
    a.ok(&format!(
        "ping -c 2 -i 0.1 -W 5 -M do -s {} 10.5.0.2",
        VNIC_MTU - 28
    ));
    let (sent, refused) = (count(a, "tx_vlan"), count(b, "rx_errors"));
    iperf_above(a, b, "10.5.0.2", "-n 32M", 50e6);
    iperf_above(a, b, "10.5.0.2", "-n 16M -R", 50e6);
    arrives_whole(a, b, "10.5.0.2");
    let sent = count(a, "tx_vlan") - sent;
    assert!(sent > 64_000_000 / 4071, "{sent} packets");
    assert_eq!(count(b, "rx_errors"), refused);
    a.reaches(b);
}

/// The manager's classes, for untagged frames and by priority: unicast, then multicast.
const CLASSES: &str = "sc = { untagged = [1, 2], pcp_unicast = [3, 4, 5, 6, 7, 8, 9, 10], \
                       pcp_multicast = [11, 12, 13, 14, 16, 17, 30, 31] }";

/// The traffic class of an IPv6 packet in a frame, without its congestion bits.
fn traffic_class(frame: &[u8]) -> u8 {
    (frame[14] << 4 | frame[15] >> 4) & 0xfc
}

/// In the packet it is the manager's class; the Ethernet below has the eight class selectors.
#[test]
fn priorities_choose_the_service_class_and_the_priority_below() {
    let Some((mut lab, _em)) = managed_pair("", CLASSES) else {
        return;
    };
    let (a, b) = lab.two();
    let ends = [mac_of(b, "vnic0"), mac_of(a, "vnic0")];
    let wire = Sniffer::start(b, "eth0", "udp port 4791");
    let mut sent = Vec::new();
    let mut classes = Vec::new();
    for (to, untagged, first) in [
        (ends[0], 1, [3, 4, 5, 6, 7, 8, 9, 10]),
        (BROADCAST, 2, [11, 12, 13, 14, 16, 17, 30, 31]),
    ] {
        let mut plain = ethernet(to, ends[1], 0x88b5);
        plain.resize(60, 0xa5);
        sent.push(plain);
        classes.push(untagged);
        for (priority, class) in (0u16..).zip(first) {
            for kind in [C_TAG, S_TAG] {
                sent.push(tagged(to, ends[1], &[(kind, priority << 13 | 7)], 100));
                classes.push(class);
            }
        }
    }
    a.send_frames("vnic0", 100, &sent);
    let slid = super::lid(a, "vnic0");
    eventually(SOON, "each frame in its class", || {
        let file = std::fs::read(wire.file()).expect("a capture");
        let all: Vec<(Packet16, u8)> = frames(&file)
            .iter()
            .filter_map(|frame| Some((ud_of_frame(frame)?, traffic_class(frame))))
            .filter(|(ud, _)| ud.qkey == data_qkey(1))
            .filter_map(|(ud, below)| Some((Packet16::parse(&ud.payload)?, below)))
            .filter(|(packet, _)| packet.slid == slid)
            .collect();
        let got = sent.iter().map(|frame| {
            let found = all.iter().find(|(packet, _)| packet.frame == *frame);
            found.map(|(packet, below)| (packet.sc, *below))
        });
        let expected = classes.iter().map(|&sc| Some((sc, (sc & 7) << 5)));
        got.eq(expected).then_some(())
    });
}
