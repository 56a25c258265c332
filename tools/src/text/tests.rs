use super::*;
use control::api::{
    ChildInfo, ConnectionInfo, ConnectionRole, DhcpMode, EchoAnswer, EchoTimeout, Event,
    GroupRecord, Happening, HardwareAddress, LinkAddress, LinkLayer, Mode, Moderation,
    NeighbourState, PingReply, PingSummary, PkeyTable, PortState, WorkerStats,
};
use fabric::{Gid, PKey, QKey, Qpn};

const PEER: &str = "00:00:00:12:fe:80:00:00:00:00:00:00:00:00:00:ff:fe:00:00:02";

fn address() -> HardwareAddress {
    PEER.parse().unwrap()
}

fn gid() -> Gid {
    "fe80::ff:fe00:2".parse().unwrap()
}

pub fn interface() -> InterfaceInfo {
    InterfaceInfo {
        name: "ib0".into(),
        ifindex: 7,
        port: "soft/eth0".into(),
        underlay: Some("eth0".into()),
        link_layer: LinkLayer::Ethernet,
        lid: None,
        sm_lid: None,
        sm_sl: None,
        sa_gid: None,
        state: PortState::Down,
        reason: Some("eth0 has no carrier".into()),
        up: true,
        carrier: false,
        mode: Mode::Datagram,
        connections: None,
        connections_max: 4096,
        pkey: PKey::DEFAULT,
        parent: None,
        netns: None,
        qkey: QKey::IPOIB_DEFAULT,
        qpn: Qpn::new(0x12),
        gid: gid(),
        address: address(),
        mac: LinkAddress([6, 0, 0, 0, 0, 1]),
        broadcast: "ff12:401b:ffff::ffff:ffff".parse().unwrap(),
        broadcast_record: None,
        mtu: 4092,
        link_mtu: 4096,
        queues: 2,
        persist: false,
        dhcp: DhcpMode::Broadcast,
        reflect: false,
        umcast: false,
        vlan_pkey: false,
        pid: 99,
        version: "0.1.0".into(),
    }
}

pub fn connection() -> ConnectionInfo {
    ConnectionInfo {
        interface: "ib0".into(),
        netns: None,
        worker: 0,
        role: ConnectionRole::Active,
        state: "ESTABLISHED".into(),
        qp_state: "RTS".into(),
        qpn: Qpn::new(0x11),
        gid: gid(),
        peer_qpn: Some(Qpn::new(0x22)),
        peer_gid: gid(),
        peer_ud_qpn: Some(Qpn::new(0x12)),
        ips: vec!["10.9.0.2".parse().unwrap()],
        pkey: PKey::DEFAULT,
        path_mtu: 4096,
        age_ms: 61_000,
        idle_ms: 250,
        tx_messages: 2,
        tx_bytes: 131_048,
        rx_messages: 0,
        rx_bytes: 0,
        retransmits: 3,
        in_flight: 0,
        window: 64,
        srtt_ns: Some(51_200),
        pid: 99,
    }
}

#[test]
fn show_is_a_block_of_aligned_labels() {
    let expected = "\
ib0
    State:      DOWN
    Reason:     eth0 has no carrier
    Interface:  up
    Carrier:    off
    Mode:       datagram
    P_Key:      0xffff
    Q_Key:      0x00000b1b
    QPN:        0x000012
    Port:       soft/eth0 on eth0
    Link layer: Ethernet
    Port GID:   fe80::ff:fe00:2
    Address:    00:00:00:12:fe:80:00:00:00:00:00:00:00:00:00:ff:fe:00:00:02
    Broadcast:  ff12:401b:ffff::ffff:ffff
    MAC:        06:00:00:00:00:01
    Index:      7
    MTU:        4092
    Link MTU:   4096
    Queues:     2
    Persistent: no
    DHCP:       broadcast
    Reflecting: no
    Daemon:     ibtapd 0.1.0 (process 99)
";
    assert_eq!(show(&interface()), expected);
}

#[test]
fn a_port_on_infiniband_shows_its_lid_its_manager_and_its_membership() {
    let on_adapter = InterfaceInfo {
        port: "mlx5_0/1".into(),
        underlay: None,
        link_layer: LinkLayer::InfiniBand,
        lid: Some(0x1a),
        sm_lid: Some(1),
        sm_sl: Some(2),
        broadcast_record: Some(GroupRecord {
            mlid: 0xc000,
            join_state: 1,
            qkey: QKey::IPOIB_DEFAULT,
            mtu: Some(2048),
            sl: 3,
            rate_mbps: Some(10_000),
        }),
        ..interface()
    };
    let text = show(&on_adapter);
    for lines in [
        "    Port:       mlx5_0/1\n    Link layer: InfiniBand\n    Port LID:   0x001a\n    SM:         LID \
         0x0001, SL 2\n",
        "    Membership: FullMember, MLID 0xc000, SL 3, 10 Gbit/s, MTU 2048, Q_Key 0x00000b1b\n    MAC: ",
    ] {
        assert!(text.contains(lines), "{text}");
    }
    let alone = InterfaceInfo {
        sm_lid: None,
        sm_sl: None,
        ..on_adapter
    };
    assert!(show(&alone).contains("    SM:         none\n"));
}

#[test]
fn a_child_elsewhere_shows_its_parent_and_its_namespace() {
    let child = InterfaceInfo {
        name: "ib0.8001".into(),
        parent: Some("ib0".into()),
        netns: Some("blue".into()),
        vlan_pkey: true,
        pkey: PKey::new(0x8001),
        ..interface()
    };
    let text = show(&child);
    for line in [
        "blue/ib0.8001\n    State: ",
        "    Parent:     ib0\n    P_Key:      0x8001\n",
        "    Index:      7\n    Namespace:  blue\n    MTU:        4092\n",
        "    Reflecting: no\n    VLANs:      select partitions\n    Daemon: ",
    ] {
        assert!(text.contains(line), "{text}");
    }
}

#[test]
fn children_are_a_table() {
    let child = ChildInfo {
        name: "ib0.8001".into(),
        parent: "ib0".into(),
        pkey: PKey::new(0x8001),
        entry: Some(PKey::new(0x8001)),
        mode: Mode::Datagram,
        mtu: 4092,
        netns: None,
        carrier: true,
        reason: None,
    };
    let limited = ChildInfo {
        name: "storage".into(),
        pkey: PKey::new(0x8002),
        entry: Some(PKey::new(2)),
        netns: Some("blue".into()),
        ..child.clone()
    };
    let waits = ChildInfo {
        name: "ib0.8003".into(),
        pkey: PKey::new(0x8003),
        entry: None,
        mode: Mode::Connected,
        mtu: 65_520,
        carrier: false,
        reason: Some("P_Key 0x8003 is not in the table of soft/eth0".into()),
        ..child.clone()
    };
    let expected = "\
NAME      PARENT  P_KEY            MODE       MTU    NETNS  CARRIER
ib0.8001  ib0     0x8001           datagram   4092   -      on
storage   ib0     0x8002 (0x0002)  datagram   4092   blue   on
ib0.8003  ib0     0x8003           connected  65520  -      off: P_Key 0x8003 is not in the table of soft/eth0
";
    assert_eq!(children(&[child, limited, waits]), expected);
    assert_eq!(children(&[]), "");
}

#[test]
fn pkey_tables_and_moderation() {
    let table = PkeyTable {
        port: "soft/eth0".into(),
        pkeys: vec![PKey::DEFAULT, PKey::new(0), PKey::new(1)],
        automatic: true,
        settable: true,
    };
    let set = PkeyTable {
        port: "soft/eth1".into(),
        pkeys: vec![PKey::new(0x8002)],
        automatic: false,
        settable: true,
    };
    let expected = "\
PORT       INDEX  P_KEY   MEMBER   TABLE
soft/eth0  0      0xffff  full     auto
soft/eth0  2      0x0001  limited  auto
soft/eth1  0      0x8002  full     set
";
    assert_eq!(pkeys(&[table, set]), expected);
    let values = Moderation {
        rx_usecs: 10,
        rx_frames: 16,
    };
    assert_eq!(moderation(values), "rx-usecs: 10\nrx-frames: 16\n");
}

#[test]
fn connected_mode_shows_how_many_connections_there_are() {
    let ib0 = InterfaceInfo {
        mode: Mode::Connected,
        connections: Some(3),
        mtu: 65_520,
        ..interface()
    };
    let text = show(&ib0);
    for line in [
        "    Mode:        connected\n    Connections: 3 of 4096\n",
        "    MTU:         65520\n    Link MTU:    4096\n",
    ] {
        assert!(text.contains(line), "{text}");
    }
}

#[test]
fn connections_are_a_table() {
    let active = connection();
    let passive = ConnectionInfo {
        role: ConnectionRole::Passive,
        state: "REP_SENT".into(),
        peer_qpn: None,
        ips: vec![],
        srtt_ns: None,
        ..active.clone()
    };
    let expected = "\
IF   ROLE     STATE        QPN       GID              PEER-QPN  PEER-GID         P_KEY   MTU   \
AGE    IDLE  TX-MSGS  TX-BYTES  RX-MSGS  RX-BYTES  RETRANS  SRTT     PID  IP
ib0  active   ESTABLISHED  0x000011  fe80::ff:fe00:2  0x000022  fe80::ff:fe00:2  0xffff  4096  \
61.0s  0.2s  2        131048    0        0         3        0.051ms  99   10.9.0.2
ib0  passive  REP_SENT     0x000011  fe80::ff:fe00:2  -         fe80::ff:fe00:2  0xffff  4096  \
61.0s  0.2s  2        131048    0        0         3        -        99   -
";
    assert_eq!(connections(&[active, passive]), expected);
    assert_eq!(connections(&[]), "");
}

#[test]
fn stats_leave_out_zeros_but_for_the_kernels_counters() {
    let mut ib0 = InterfaceStats {
        name: "ib0".into(),
        ..InterfaceStats::default()
    };
    ib0.add([("rx_packets", 3), ("tap_reads", 2), ("tx_no_room", 0)]);
    ib0.subnet.add([("sa_requests", 4), ("sa_busy", 0)]);
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
  subnet
    sa_requests: 4
  soft/eth0 worker 1
    bad_icrc: 1
";
    assert_eq!(stats(&ib0, false), expected);
    assert!(stats(&ib0, true).contains("    tx_no_room: 0\n"));
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
fn guests_are_a_table() {
    let guest = GuestInfo {
        ip: "10.9.0.7".parse().unwrap(),
        mac: LinkAddress([0x52, 0x54, 0, 0, 0, 9]),
        state: NeighbourState::Confirmed,
        idle_ms: 1500,
    };
    let expected = "\
MAC                STATE      IDLE  IP
52:54:00:00:00:09  confirmed  1.5s  10.9.0.7
";
    assert_eq!(guests(&[guest]), expected);
    assert_eq!(guests(&[]), "");
}

#[test]
fn events_are_a_line_each() {
    let mut shown = Event {
        time: "2026-11-21T12:03:04.123Z".into(),
        interface: Some("ib0".into()),
        netns: None,
        port: None,
        what: Happening::NeighbourLearned {
            mac: LinkAddress([2, 0xab, 0, 0, 0, 9]),
            gid: gid(),
            qpn: Qpn::new(0x12),
            ip: Some("10.9.0.2".parse().unwrap()),
        },
        lost: None,
    };
    assert_eq!(
        event(&shown),
        "12:03:04.123 ib0 neighbour 02:ab:00:00:00:09 10.9.0.2 learned, qpn 0x000012 gid \
         fe80::ff:fe00:2\n"
    );
    for (netns, was, line) in [
        (
            Some("blue"),
            None,
            "blue/ib0 moved, was in the daemon's network namespace",
        ),
        (
            None,
            Some("blue"),
            "ib0 moved, was in the network namespace blue",
        ),
    ] {
        shown.netns = netns.map(str::to_owned);
        let was = was.map(str::to_owned);
        shown.what = Happening::Moved { was };
        assert_eq!(event(&shown), format!("12:03:04.123 {line}\n"));
    }
    shown.interface = None;
    shown.port = Some("soft/eth0".into());
    shown.what = Happening::PortDown {
        reason: "eth0 has no carrier".into(),
    };
    shown.lost = Some(7);
    assert_eq!(
        event(&shown),
        "12:03:04.123 soft/eth0 port down: eth0 has no carrier (after 7 lost events)\n"
    );
    shown = Event {
        port: None,
        lost: None,
        what: Happening::Reloaded {
            applied: vec!["ib0: mtu 2044".into()],
            refused: vec![],
        },
        ..shown
    };
    assert_eq!(
        event(&shown),
        "12:03:04.123 configuration reloaded: 1 applied, 0 refused; ib0: mtu 2044\n"
    );
}

#[test]
fn echoes_are_lines_as_ping_prints_them() {
    let answer = EchoAnswer {
        sequence: 1,
        gid: gid(),
        qpn: Qpn::new(0x12),
        ips: vec!["10.9.0.2".parse().unwrap()],
        bytes: 64,
        round_trip_ns: 123_400,
    };
    assert_eq!(
        ping_reply(&PingReply::Answer(answer.clone())),
        "64 bytes from fe80::ff:fe00:2 qpn 0x000012 (10.9.0.2): seq=1 time=0.123 ms\n"
    );
    let nameless = EchoAnswer {
        ips: vec![],
        round_trip_ns: 12_345_678,
        ..answer
    };
    assert_eq!(
        ping_reply(&PingReply::Answer(nameless)),
        "64 bytes from fe80::ff:fe00:2 qpn 0x000012: seq=1 time=12.346 ms\n"
    );
    let timeout = PingReply::Timeout(EchoTimeout { sequence: 2 });
    assert_eq!(ping_reply(&timeout), "no answer: seq=2\n");
    let summary = PingSummary {
        sent: 3,
        answered: 2,
        answers: 4,
        min_ns: 100_000,
        mean_ns: 200_000,
        max_ns: 1_000_000,
    };
    assert_eq!(
        ping_summary("all", &summary),
        "\n--- all echo statistics ---\n3 sent, 2 answered, 33% loss, 4 answers\n\
         rtt min/avg/max = 0.100/0.200/1.000 ms\n"
    );
    assert_eq!(
        ping_summary("10.9.0.2", &PingSummary::default()),
        "\n--- 10.9.0.2 echo statistics ---\n0 sent, 0 answered, 0% loss\n"
    );
}

#[test]
fn a_reload_lists_applied_and_refused_changes() {
    let outcome = Reloaded {
        applied: vec!["ib0: mtu 2044".into()],
        refused: vec!["ib0: pkey cannot change at run time; restart ibtapd".into()],
    };
    assert_eq!(
        reloaded(&[outcome]),
        "applied  ib0: mtu 2044\n\
         refused  ib0: pkey cannot change at run time; restart ibtapd\n"
    );
    assert_eq!(reloaded(&[Reloaded::default()]), "nothing has changed\n");
}
