//! Replies about ports.

use proto::{PKey, QKey, Qpn};

use super::{broadcast, gid};
use crate::api::*;

fn link() -> LinkInfo {
    LinkInfo {
        state: PortState::Active,
        link_layer: LinkLayer::InfiniBand,
        lid: Some(3),
        sm_lid: Some(1),
        sm_sl: Some(0),
        gid: gid(),
        gid_index: Some(0),
        guid: "0002:c903:00e7:7e12".into(),
        link_mtu: 4096,
        firmware: Some("12.28.2006".into()),
        netdev: Some("eth0".into()),
    }
}

pub fn port() -> PortInfo {
    PortInfo {
        port: "soft/eth0".into(),
        link: link(),
        speed: Some(10_000),
        pkeys: vec![PKey::DEFAULT, PKey::new(0)],
        counters: [("rx_packets", 7), ("tx_packets", 9)].into_iter().collect(),
    }
}

pub fn resources() -> ResourcesInfo {
    ResourcesInfo {
        port: "soft/eth0".into(),
        link: Some(link()),
        queue_pairs: vec![QueuePairInfo {
            qpn: Qpn::new(0x4a),
            kind: "UD".into(),
            state: "RTS".into(),
            pkey: PKey::DEFAULT,
            qkey: Some(QKey::IPOIB_DEFAULT),
            peer_qpn: Some(Qpn::new(0x22)),
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
        pid: 4711,
        shared_receive_queues: vec![SharedReceiveQueueInfo {
            contents: "messages".into(),
            srqe: 1024,
            worker: 0,
        }],
        cm_ids: vec![CmIdInfo {
            qpn: Qpn::new(0x11),
            peer_qpn: Some(Qpn::new(0x22)),
            state: "ESTABLISHED".into(),
            role: ConnectionRole::Active,
            gid: gid(),
            peer_gid: gid(),
            interface: Some("ib0".into()),
            worker: 0,
        }],
        memory_regions: vec![MemoryRegionInfo {
            lkey: 0x1234,
            mrlen: 1 << 20,
            worker: 0,
        }],
        protection_domains: vec![ProtectionDomainInfo { worker: 0 }],
    }
}
