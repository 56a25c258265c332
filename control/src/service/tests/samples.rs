//! A reply of each kind, with all possible keys.

mod ports;

use proto::{Gid, PKey, QKey, Qpn};
use serde_json::{Value, json};

use crate::api::*;

/// Every method with one reply, with parameters for a daemon that serves `ib0`.
pub fn calls() -> [(&'static str, Value); 26] {
    [
        ("Version", json!({})),
        ("Show", json!({"interface": "ib0"})),
        ("Stats", json!({})),
        ("Neighbours", json!({"interface": "ib0"})),
        ("Guests", json!({"interface": "ib0"})),
        ("Groups", json!({"interface": "ib0"})),
        ("Paths", json!({"interface": "ib0"})),
        ("Connections", json!({"interface": "ib0"})),
        ("Mode", json!({"interface": "ib0", "mode": "connected"})),
        ("ChildAdd", child_add()),
        ("ChildDel", json!({"interface": "ib0", "pkey": 0x8001})),
        ("Children", json!({"interface": "ib0"})),
        (
            "Pkeys",
            json!({"port": "soft/eth0", "pkeys": [0xffff, 0x8001]}),
        ),
        ("Mtu", json!({"interface": "ib0", "mtu": 2044})),
        ("Umcast", json!({"interface": "ib0", "umcast": true})),
        (
            "Moderation",
            json!({"interface": "ib0", "rx_usecs": 10, "rx_frames": 16}),
        ),
        ("Resources", json!({})),
        ("Ports", json!({})),
        ("Metrics", json!({})),
        ("LogLevel", json!({"level": "trace"})),
        ("Reload", json!({})),
        ("Vnics", json!({})),
        ("VnicStats", json!({})),
        ("VnicMacs", json!({"interface": "vnic0"})),
        ("VnicMembers", json!({"interface": "vnic0"})),
        (
            "SendManagement",
            json!({"port": "soft/eth0", "gid": "fe80::7", "qpn": 0x123, "mad": "8034800b"}),
        ),
    ]
}

fn child_add() -> Value {
    json!({
        "parent": "ib0", "pkey": 0x8001, "name": "storage", "mode": "connected", "mtu": 9000,
        "queues": 2, "netns": "blue"
    })
}

/// Every method with a stream of replies.
pub fn stream_calls() -> [(&'static str, Value); 3] {
    let ping = json!({
        "interface": "ib0", "target": "10.9.0.2", "count": 1, "size": 64, "interval_ms": 100,
        "timeout_ms": 1000
    });
    [
        ("Monitor", json!({"interface": "ib0"})),
        ("Ping", ping),
        ("Manage", json!({"port": "soft/eth0"})),
    ]
}

/// The daemon's streams: every kind of reply, ending with the last one.
pub fn stream(request: &Request) -> Vec<Reply> {
    match request {
        Request::Monitor(_) => events(),
        Request::Ping(_) => pings().map(Reply::Ping).into(),
        Request::Manage(_) => managed().map(Reply::Manage).into(),
        _ => panic!("{request:?} is not answered by a stream"),
    }
}

fn pings() -> [PingReply; 3] {
    [
        PingReply::Answer(EchoAnswer {
            sequence: 1,
            gid: gid(),
            qpn: Qpn::new(0x4a),
            ips: vec!["192.0.2.2".parse().unwrap()],
            bytes: 64,
            round_trip_ns: 123_456,
        }),
        PingReply::Timeout(EchoTimeout { sequence: 2 }),
        PingReply::Summary(PingSummary {
            sent: 2,
            answered: 1,
            answers: 1,
            min_ns: 123_456,
            mean_ns: 123_456,
            max_ns: 123_456,
        }),
    ]
}

fn managed() -> [ManageReply; 2] {
    [
        ManageReply::Attached(ManagementPort {
            port: "soft/eth0".into(),
            gid: gid(),
            qpn: Qpn::new(0x4b),
            guid: "0002:c903:00e7:7e12".into(),
            pkey: PKey::DEFAULT,
            link_mtu: 4096,
            state: PortState::Active,
        }),
        ManageReply::Received(ManagementDatagram {
            gid: gid(),
            qpn: Qpn::new(0x4c),
            by_group: true,
            mad: Hex(vec![0x80, 0x34, 0x80, 0x03]),
            lost: Some(1),
        }),
    ]
}

fn events() -> Vec<Reply> {
    let mac: MacAddress = "02:12:34:56:78:9a".parse().unwrap();
    let ip = "192.0.2.2".parse().unwrap();
    let (gid, qpn) = (gid(), Qpn::new(0x4a));
    let event = |interface: Option<&str>, port: Option<&str>, what| Event {
        time: "2026-11-21T12:03:04.123Z".into(),
        interface: interface.map(str::to_owned),
        netns: None,
        port: port.map(str::to_owned),
        what,
        lost: None,
    };
    let daemon = [
        Happening::Watching {
            version: "0.1.0".into(),
            pid: 4711,
        },
        Happening::Reloaded {
            applied: vec!["ib0: mtu 2044".into()],
            refused: vec![],
        },
    ];
    let port = [
        Happening::PortActive,
        Happening::PortDown {
            reason: "eth0 has no carrier".into(),
        },
        Happening::PortGone {
            reason: Some("there is no interface eth0".into()),
        },
        Happening::GidChanged { gid },
        Happening::LinkMtuChanged { link_mtu: 4096 },
        Happening::PkeysChanged,
        Happening::QpnsChanged,
    ];
    let interface = [
        Happening::Created { qpn, gid },
        Happening::Gone,
        Happening::Up,
        Happening::Down,
        Happening::Renamed { was: "ib9".into() },
        Happening::Moved {
            was: Some("red".into()),
        },
        Happening::MtuChanged { mtu: 2044 },
        Happening::ModeChanged {
            mode: Mode::Connected,
        },
        Happening::MacChanged { mac },
        Happening::ChildAdded {
            child: "ib0.8001".into(),
            pkey: proto::PKey::new(0x8001),
        },
        Happening::ChildRemoved {
            child: "ib0.8001".into(),
            pkey: proto::PKey::new(0x8001),
        },
        Happening::PkeyMissing {
            pkey: proto::PKey::new(0x8001),
        },
        Happening::PkeyAssigned {
            pkey: proto::PKey::new(0x0001),
        },
        Happening::CarrierOn,
        Happening::CarrierOff,
        Happening::NeighbourLearned {
            mac,
            gid,
            qpn,
            ip: Some(ip),
        },
        Happening::NeighbourReplaced {
            gid,
            qpn,
            old_gid: gid,
            old_qpn: qpn,
        },
        Happening::NeighbourForgotten { gid, qpn },
        Happening::GuestLearned { mac, ip },
        Happening::GuestForgotten { ip },
        Happening::GroupJoined { mgid: broadcast() },
        Happening::GroupLeft { mgid: broadcast() },
        Happening::AddressConflict {
            ip,
            mac,
            other_mac: mac,
        },
        Happening::SuspiciousClaim {
            ip,
            gid,
            qpn,
            pinned: true,
            dropped: true,
        },
        Happening::MacClash { mac, peer_mac: mac },
        Happening::SignedNd,
        Happening::ConnectionUp {
            gid,
            qpn,
            active: true,
        },
        Happening::ConnectionDown {
            gid,
            qpn,
            active: false,
            reason: "idle".into(),
        },
        Happening::ConnectionRefused {
            gid,
            qpn,
            reason: "the peer did not answer".into(),
        },
    ];
    let mut all: Vec<Event> = daemon.map(|what| event(None, None, what)).into();
    all.extend(port.map(|what| event(None, Some("soft/eth0"), what)));
    all.extend(interface.map(|what| event(Some("ib0"), None, what)));
    if let Some(last) = all.last_mut() {
        last.netns = Some("blue".into());
        last.lost = Some(3);
    }
    all.into_iter()
        .map(|event| Reply::Monitor { event })
        .collect()
}

fn child() -> ChildInfo {
    ChildInfo {
        name: "ib0.8001".into(),
        parent: "ib0".into(),
        pkey: proto::PKey::new(0x8001),
        entry: Some(proto::PKey::new(0x0001)),
        mode: Mode::Datagram,
        mtu: 2044,
        netns: Some("blue".into()),
        carrier: false,
        reason: Some("ib0 is down".into()),
    }
}

/// The replies about VNICs of a daemon that also serves `vnic0`.
fn vnic_reply(request: &Request) -> Result<Reply, ApiError> {
    let named = match request {
        Request::Vnics(s) | Request::VnicStats(s) => s.interface.as_ref(),
        Request::VnicMacs(i) | Request::VnicMembers(i) => Some(&i.interface),
        _ => None,
    };
    if let Some(interface) = named.filter(|name| *name != "vnic0") {
        return Err(ApiError::NoSuchInterface {
            interface: interface.clone(),
        });
    }
    Ok(match request {
        Request::Vnics(_) => Reply::Vnics {
            vnics: vec![vnic()],
        },
        Request::VnicStats(_) => Reply::VnicStats {
            stats: vec![vnic_stats()],
        },
        Request::VnicMembers(_) => Reply::VnicMembers {
            members: vec![VnicMember {
                lid: proto::OpaLid::new(7),
                gid: gid(),
                qpn: Some(Qpn::new(0x123)),
                listed: true,
            }],
        },
        _ => Reply::VnicMacs {
            macs: vec![vnic_mac()],
        },
    })
}

fn vnic() -> VnicInfo {
    VnicInfo {
        name: "vnic0".into(),
        kind: InterfaceKind::Vnic,
        ifindex: 9,
        port: "soft/eth0".into(),
        underlay: Some("eth0".into()),
        link_layer: LinkLayer::Ethernet,
        state: PortState::Active,
        reason: Some("it is down".into()),
        up: false,
        carrier: false,
        managed: true,
        manager: Some(FabricAddress {
            gid: gid(),
            qpn: Qpn::new(0x4c),
        }),
        index: 0,
        vesw: 2,
        fabric_id: 0x301,
        lid: proto::OpaLid::new(5),
        config_state: ConfigState::Forwarding,
        oper_state: ConfigState::DropAll,
        pkey: PKey::new(0x8001),
        qkey: QKey::new(0x0b1b_0002),
        qpn: Qpn::new(0x4d),
        gid: gid(),
        mac: "06:2c:00:05:00:00".parse().unwrap(),
        base_mac: "06:2c:00:05:00:00".parse().unwrap(),
        multicast_lid: proto::OpaLid::new(0xf0_0002),
        group: Some("ff12:5645:8001:301:2::2".parse().unwrap()),
        default_lids: vec![proto::OpaLid::new(7)],
        mtu: 1500,
        mtu_max: 4053,
        link_mtu: 4096,
        learning: true,
        ageing: 300,
        mac_limit: 131_072,
        table_entries: 3,
        table_digest: 0x1234_5678,
        peers: 2,
        closed: true,
        netns: Some("blue".into()),
        queues: 2,
        persist: false,
        pid: 4711,
        version: "0.1.0".into(),
    }
}

fn vnic_stats() -> VnicStats {
    VnicStats {
        name: "vnic0".into(),
        netns: Some("blue".into()),
        driver: [("rx_packets", 10), ("tx_packets", 4)]
            .into_iter()
            .collect(),
        port: [("rx_bad_veswid", 1)].into_iter().collect(),
        device: [("tap_reads", 3)].into_iter().collect(),
        management: [("requests", 5)].into_iter().collect(),
        workers: vec![WorkerStats {
            worker: 0,
            port: "soft/eth0".into(),
            counters: [("bad_icrc", 2)].into_iter().collect(),
        }],
    }
}

fn vnic_mac() -> VnicMac {
    VnicMac {
        mac: "52:54:00:12:34:56".parse().unwrap(),
        lid: proto::OpaLid::new(7),
        source: MacSource::Table,
        index: Some(12),
        idle_ms: Some(1500),
        gid: Some(gid()),
        qpn: Some(Qpn::new(0x123)),
    }
}

/// The daemon's replies.
pub fn reply(request: &Request) -> Result<Reply, ApiError> {
    let named = match request {
        Request::Show(s) | Request::Stats(s) | Request::Connections(s) => s.interface.as_ref(),
        Request::Mode(request) => Some(&request.interface),
        Request::Mtu(request) => Some(&request.interface),
        Request::Umcast(request) => Some(&request.interface),
        Request::Moderation(request) => Some(&request.interface),
        Request::ChildAdd(request) => Some(&request.parent),
        Request::ChildDel(request) => Some(&request.interface),
        Request::Children(s) => s.interface.as_ref(),
        Request::Neighbours(i) | Request::Guests(i) | Request::Groups(i) | Request::Paths(i) => {
            Some(&i.interface)
        }
        Request::Version
        | Request::Pkeys(_)
        | Request::Resources
        | Request::Ports
        | Request::Metrics
        | Request::LogLevel(_)
        | Request::Reload
        | Request::Monitor(_)
        | Request::Ping(_)
        | Request::Vnics(_)
        | Request::VnicStats(_)
        | Request::VnicMacs(_)
        | Request::VnicMembers(_)
        | Request::Manage(_)
        | Request::SendManagement(_) => None,
    };
    if let Some(interface) = named.filter(|name| *name != "ib0") {
        return Err(ApiError::NoSuchInterface {
            interface: interface.clone(),
        });
    }
    if matches!(request, Request::ChildAdd(add) if add.pkey == 0xffff) {
        return Err(ApiError::Errno {
            errno: 76, // ENOTUNIQ
            message: "ib0 has this P_Key itself".into(),
        });
    }
    Ok(match request {
        Request::SendManagement(_) => Reply::SendManagement {},
        Request::Version => Reply::Version(version()),
        Request::Show(_) => Reply::Show {
            interfaces: vec![interface()],
        },
        Request::Stats(_) => Reply::Stats {
            stats: vec![stats()],
        },
        Request::Neighbours(_) => Reply::Neighbours {
            neighbours: vec![neighbour()],
        },
        Request::Guests(_) => Reply::Guests {
            guests: vec![GuestInfo {
                ip: "192.0.2.9".parse().unwrap(),
                mac: "52:54:00:12:34:56".parse().unwrap(),
                state: NeighbourState::Confirmed,
                idle_ms: 1500,
            }],
        },
        Request::Groups(_) => Reply::Groups {
            groups: vec![group()],
        },
        Request::Paths(_) => Reply::Paths {
            paths: vec![path()],
        },
        Request::Connections(_) => Reply::Connections {
            connections: vec![connection()],
        },
        Request::Mode(request) => Reply::Mode {
            mode: request.mode.unwrap_or_default(),
        },
        Request::ChildAdd(_) => Reply::ChildAdd {
            interface: "ib0.8001".into(),
        },
        Request::ChildDel(_) => Reply::ChildDel {},
        Request::Children(_) => Reply::Children {
            children: vec![child()],
        },
        Request::Pkeys(_) => Reply::Pkeys {
            tables: vec![PkeyTable {
                port: "soft/eth0".into(),
                pkeys: vec![proto::PKey::DEFAULT, proto::PKey::new(0x8001)],
                automatic: true,
                settable: true,
            }],
        },
        Request::Mtu(request) => Reply::Mtu {
            mtu: request.mtu.unwrap_or(2044),
        },
        Request::Umcast(request) => Reply::Umcast {
            umcast: request.umcast.unwrap_or_default(),
        },
        Request::Moderation(request) => Reply::Moderation(Moderation {
            rx_usecs: request.rx_usecs.unwrap_or(10),
            rx_frames: request.rx_frames.unwrap_or(16),
        }),
        Request::Resources => Reply::Resources {
            resources: vec![ports::resources()],
        },
        Request::Ports => Reply::Ports {
            ports: vec![ports::port()],
        },
        Request::Metrics => Reply::Metrics {
            text: "# TYPE up gauge\nup 1\n# EOF\n".into(),
        },
        Request::LogLevel(_) => Reply::LogLevel {},
        Request::Reload => Reply::Reload(Reloaded {
            applied: vec!["ib0: mtu 2044".into()],
            refused: vec!["ib0: pkey cannot change at run time; restart ibtapd".into()],
        }),
        Request::Vnics(_)
        | Request::VnicStats(_)
        | Request::VnicMacs(_)
        | Request::VnicMembers(_) => {
            return vnic_reply(request);
        }
        Request::Monitor(_) | Request::Ping(_) | Request::Manage(_) => {
            panic!("these are answered by streams")
        }
    })
}

fn gid() -> Gid {
    "fe80::2:c903:e7:7e12".parse().unwrap()
}

fn address() -> HardwareAddress {
    "00:00:00:4a:fe:80:00:00:00:00:00:00:00:02:c9:03:00:e7:7e:12"
        .parse()
        .unwrap()
}

fn broadcast() -> Gid {
    "ff12:401b:ffff::ffff:ffff".parse().unwrap()
}

fn version() -> VersionInfo {
    VersionInfo {
        product: "ibtapd".into(),
        version: "0.1.0".into(),
        pid: 4711,
        log_level: LogLevel::Info,
    }
}

fn interface() -> InterfaceInfo {
    InterfaceInfo {
        name: "ib0".into(),
        ifindex: 7,
        port: "soft/eth0".into(),
        underlay: Some("eth0".into()),
        link_layer: LinkLayer::InfiniBand,
        lid: Some(3),
        sm_lid: Some(1),
        sm_sl: Some(0),
        sa_gid: Some(gid()),
        state: PortState::Down,
        reason: Some("eth0 has no carrier".into()),
        up: true,
        carrier: false,
        mode: Mode::Connected,
        connections: Some(2),
        connections_max: 4096,
        pkey: PKey::DEFAULT,
        parent: Some("ib9".into()),
        netns: Some("blue".into()),
        qkey: QKey::IPOIB_DEFAULT,
        qpn: Qpn::new(0x4a),
        gid: gid(),
        address: address(),
        mac: "06:00:00:00:00:01".parse().unwrap(),
        broadcast: broadcast(),
        broadcast_record: Some(record()),
        mtu: 4092,
        link_mtu: 4096,
        queues: 2,
        persist: true,
        dhcp: DhcpMode::Broadcast,
        reflect: false,
        umcast: false,
        vlan_pkey: true,
        pid: 4711,
        version: "0.1.0".into(),
    }
}

fn stats() -> InterfaceStats {
    let mut stats = InterfaceStats {
        name: "ib0".into(),
        netns: Some("blue".into()),
        protocol: [("no_broadcast", 1)].into_iter().collect(),
        subnet: [("sa_requests", 3)].into_iter().collect(),
        workers: vec![WorkerStats {
            worker: 0,
            port: "soft/eth0".into(),
            counters: [("bad_icrc", 2)].into_iter().collect(),
        }],
        ..InterfaceStats::default()
    };
    stats.add([("rx_packets", 10), ("tx_bytes", 4096), ("tap_reads", 3)]);
    stats
}

fn neighbour() -> NeighbourInfo {
    NeighbourInfo {
        mac: "02:12:34:56:78:9a".parse().unwrap(),
        address: address(),
        gid: gid(),
        qpn: Qpn::new(0x4a),
        ips: vec!["192.0.2.2".parse().unwrap(), gid().to_ip()],
        state: NeighbourState::Confirmed,
        idle_ms: 1500,
        queuelen: Some(1),
    }
}

fn group() -> GroupInfo {
    GroupInfo {
        mgid: broadcast(),
        created: 12345,
        queuelen: 0,
        complete: true,
        send_only: false,
        record: Some(record()),
    }
}

fn record() -> GroupRecord {
    GroupRecord {
        mlid: 0xc000,
        join_state: 1,
        qkey: QKey::IPOIB_DEFAULT,
        mtu: Some(2048),
        sl: 3,
        rate_mbps: Some(10_000),
    }
}

fn path() -> PathInfo {
    PathInfo {
        gid: gid(),
        complete: true,
        dlid: Some(0x12),
        sl: Some(0),
        rate_mbps: Some(10_000),
        mtu: Some(2048),
        hop_limit: Some(64),
    }
}

fn connection() -> ConnectionInfo {
    ConnectionInfo {
        interface: "ib0".into(),
        netns: Some("blue".into()),
        worker: 1,
        role: ConnectionRole::Active,
        state: "ESTABLISHED".into(),
        qp_state: "RTS".into(),
        qpn: Qpn::new(0x11),
        gid: gid(),
        peer_qpn: Some(Qpn::new(0x22)),
        peer_gid: gid(),
        peer_ud_qpn: Some(Qpn::new(0x4a)),
        ips: vec!["192.0.2.2".parse().unwrap()],
        pkey: PKey::DEFAULT,
        path_mtu: 4096,
        age_ms: 60_000,
        idle_ms: 1500,
        tx_messages: 2,
        tx_bytes: 131_048,
        rx_messages: 1,
        rx_bytes: 84,
        retransmits: 3,
        in_flight: 4,
        window: 64,
        srtt_ns: Some(50_000),
        pid: 4711,
    }
}
