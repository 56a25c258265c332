use super::*;
use fabric::{Gid, PKey, QKey, Qpn};
use ibtap::api::{
    CompletionQueueInfo, HardwareAddress, LinkAddress, MemberInfo, Mode, NeighbourState, PortState,
    QueuePairInfo, WorkerStats,
};

const PEER: &str = "00:00:00:12:fe:80:00:00:00:00:00:00:00:00:00:ff:fe:00:00:02";

fn address() -> HardwareAddress {
    PEER.parse().unwrap()
}

fn gid() -> Gid {
    "fe80::ff:fe00:2".parse().unwrap()
}

fn interface() -> InterfaceInfo {
    InterfaceInfo {
        name: "ib0".into(),
        ifindex: 7,
        port: "soft/eth0".into(),
        underlay: Some("eth0".into()),
        state: PortState::Down,
        reason: Some("eth0 has no carrier".into()),
        carrier: false,
        mode: Mode::Datagram,
        pkey: PKey::DEFAULT,
        qkey: QKey::IPOIB_DEFAULT,
        qpn: Qpn::new(0x12),
        gid: gid(),
        address: address(),
        mac: LinkAddress([6, 0, 0, 0, 0, 1]),
        broadcast: "ff12:401b:ffff::ffff:ffff".parse().unwrap(),
        mtu: 4092,
        link_mtu: 4096,
        queues: 2,
        persist: false,
        pid: 99,
        version: "0.1.0".into(),
    }
}

#[test]
fn show_is_a_block_of_aligned_labels() {
    let expected = "\
ib0
    State:      DOWN
    Reason:     eth0 has no carrier
    Carrier:    off
    Mode:       datagram
    P_Key:      0xffff
    Q_Key:      0x00000b1b
    QPN:        0x000012
    Port:       soft/eth0 on eth0
    Port GID:   fe80::ff:fe00:2
    Address:    00:00:00:12:fe:80:00:00:00:00:00:00:00:00:00:ff:fe:00:00:02
    Broadcast:  ff12:401b:ffff::ffff:ffff
    MAC:        06:00:00:00:00:01
    Index:      7
    MTU:        4092
    Link MTU:   4096
    Queues:     2
    Persistent: no
    Daemon:     ibtapd 0.1.0 (process 99)
";
    assert_eq!(show(&[interface()]), expected);
}

#[test]
fn stats_leave_out_zeros_but_for_the_kernels_counters() {
    let mut ib0 = InterfaceStats {
        name: "ib0".into(),
        ..InterfaceStats::default()
    };
    ib0.add([("rx_packets", 3), ("tap_reads", 2), ("tx_no_room", 0)]);
    ib0.workers.push(WorkerStats {
        worker: 1,
        port: "soft/eth0".into(),
        counters: [("bad_icrc", 1)].into_iter().collect(),
    });
    let expected = "\
ib0
    rx_packets: 3
    tx_packets: 0
    rx_bytes:   0
    tx_bytes:   0
    tx_errors:  0
    rx_dropped: 0
    tx_dropped: 0
    multicast:  0
  device
    tap_reads: 2
  soft/eth0 worker 1
    bad_icrc: 1
";
    assert_eq!(stats(std::slice::from_ref(&ib0), false), expected);
    assert!(stats(&[ib0], true).contains("    tx_no_room: 0\n"));
}

#[test]
fn neighbours_are_a_table() {
    let known = NeighbourInfo {
        mac: LinkAddress([2, 0xab, 0, 0, 0, 9]),
        address: address(),
        gid: gid(),
        qpn: Qpn::new(0x12),
        ips: vec!["192.0.2.2".parse().unwrap(), "fe80::9".parse().unwrap()],
        state: NeighbourState::Confirmed,
        idle_ms: 12_345,
        queuelen: None,
    };
    let learned = NeighbourInfo {
        ips: vec![],
        state: NeighbourState::Learned,
        idle_ms: 0,
        ..known.clone()
    };
    let expected = "\
MAC                STATE      IDLE   QPN       GID              IP
02:ab:00:00:00:09  confirmed  12.3s  0x000012  fe80::ff:fe00:2  192.0.2.2,fe80::9
02:ab:00:00:00:09  learned    0.0s   0x000012  fe80::ff:fe00:2  -
";
    assert_eq!(neighbours(&[known, learned]), expected);
    assert_eq!(neighbours(&[]), "");
}

#[test]
fn resources_are_lines_as_rdma_prints_them() {
    let port = ResourcesInfo {
        port: "soft/eth0".into(),
        queue_pairs: vec![QueuePairInfo {
            qpn: Qpn::new(0x12),
            kind: "UD".into(),
            state: "RTS".into(),
            pkey: PKey::DEFAULT,
            qkey: QKey::IPOIB_DEFAULT,
            lanes: 2,
            interface: Some("ib0".into()),
        }],
        completion_queues: vec![CompletionQueueInfo {
            cqn: 0,
            cqe: 1024,
            worker: 0,
        }],
        groups: vec![MemberInfo {
            mgid: "ff12::1".parse().unwrap(),
            qpn: Qpn::new(0x12),
        }],
    };
    let expected = "\
link soft/eth0 qpn 0x000012 type UD state RTS pkey 0xffff qkey 0x00000b1b lanes 2 netdev ib0
link soft/eth0 cqn 0 cqe 1024 worker 0
link soft/eth0 mgid ff12::1 qpn 0x000012
";
    assert_eq!(resources(&[port]), expected);
}
