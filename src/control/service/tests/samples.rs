//! One reply of each kind, with every key that it can have.

use fabric::{Gid, PKey, QKey, Qpn};
use serde_json::{Value, json};

use crate::api::*;

/// Every method with parameters that a daemon serving `ib0` answers.
pub fn calls() -> [(&'static str, Value); 8] {
    [
        ("Version", json!({})),
        ("Show", json!({"interface": "ib0"})),
        ("Stats", json!({})),
        ("Neighbours", json!({"interface": "ib0"})),
        ("Groups", json!({"interface": "ib0"})),
        ("Paths", json!({"interface": "ib0"})),
        ("Resources", json!({})),
        ("LogLevel", json!({"level": "trace"})),
    ]
}

/// What such a daemon answers.
pub fn reply(request: &Request) -> Result<Reply, ApiError> {
    let named = match request {
        Request::Show(Selection { interface }) | Request::Stats(Selection { interface }) => {
            interface.as_ref()
        }
        Request::Neighbours(i) | Request::Groups(i) | Request::Paths(i) => Some(&i.interface),
        Request::Version | Request::Resources | Request::LogLevel(_) => None,
    };
    if let Some(interface) = named.filter(|name| *name != "ib0") {
        return Err(ApiError::NoSuchInterface {
            interface: interface.clone(),
        });
    }
    Ok(match request {
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
        Request::Groups(_) => Reply::Groups {
            groups: vec![group()],
        },
        Request::Paths(_) => Reply::Paths {
            paths: vec![path()],
        },
        Request::Resources => Reply::Resources {
            resources: vec![resources()],
        },
        Request::LogLevel(_) => Reply::LogLevel {},
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
        state: PortState::Down,
        reason: Some("eth0 has no carrier".into()),
        carrier: false,
        mode: Mode::Datagram,
        pkey: PKey::DEFAULT,
        qkey: QKey::IPOIB_DEFAULT,
        qpn: Qpn::new(0x4a),
        gid: gid(),
        address: address(),
        mac: "06:00:00:00:00:01".parse().unwrap(),
        broadcast: broadcast(),
        mtu: 4092,
        link_mtu: 4096,
        queues: 2,
        persist: true,
        pid: 4711,
        version: "0.1.0".into(),
    }
}

fn stats() -> InterfaceStats {
    let mut stats = InterfaceStats {
        name: "ib0".into(),
        protocol: [("no_broadcast", 1)].into_iter().collect(),
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
    }
}

fn path() -> PathInfo {
    PathInfo {
        gid: gid(),
        complete: true,
        dlid: Some(0x12),
        sl: Some(0),
        rate_mbps: Some(10_000),
    }
}

fn resources() -> ResourcesInfo {
    let known = fabric::Resources {
        queue_pairs: vec![],
        completion_queues: vec![],
        groups: vec![],
    };
    ResourcesInfo {
        queue_pairs: vec![QueuePairInfo {
            qpn: Qpn::new(0x4a),
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
            mgid: broadcast(),
            qpn: Qpn::new(0x4a),
        }],
        ..ResourcesInfo::new("soft/eth0", &known, |_| None)
    }
}
