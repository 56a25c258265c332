use control::api::{ConnectionRole, LinkLayer, PortState};
use fabric::{Gid, PKey, QKey, Qpn};

use super::*;

fn gid() -> Gid {
    "fe80::ff:fe00:2".parse().unwrap()
}

fn soft() -> ResourcesInfo {
    let ud = QueuePairInfo {
        qpn: Qpn::new(0x12),
        kind: "UD".into(),
        state: "RTS".into(),
        pkey: PKey::DEFAULT,
        qkey: Some(QKey::IPOIB_DEFAULT),
        peer_qpn: None,
        lanes: 2,
        interface: Some("ib0".into()),
    };
    let rc = QueuePairInfo {
        qpn: Qpn::new(0x34),
        kind: "RC".into(),
        qkey: None,
        peer_qpn: Some(Qpn::new(0x56)),
        lanes: 1,
        ..ud.clone()
    };
    ResourcesInfo {
        port: "soft/eth0".into(),
        link: Some(LinkInfo {
            state: PortState::Active,
            link_layer: LinkLayer::Ethernet,
            lid: None,
            sm_lid: None,
            sm_sl: None,
            gid: gid(),
            gid_index: None,
            guid: "0000:00ff:fe00:0002".into(),
            link_mtu: 4096,
            firmware: None,
            netdev: Some("eth0".into()),
        }),
        queue_pairs: vec![ud, rc],
        completion_queues: vec![CompletionQueueInfo {
            cqn: 0,
            cqe: 1024,
            worker: 0,
        }],
        groups: vec![MemberInfo {
            mgid: "ff12::1".parse().unwrap(),
            qpn: Qpn::new(0x12),
        }],
        pid: 4711,
        shared_receive_queues: vec![SharedReceiveQueueInfo {
            contents: "messages".into(),
            srqe: 1024,
            worker: 0,
        }],
        cm_ids: vec![CmIdInfo {
            qpn: Qpn::new(0x34),
            peer_qpn: Some(Qpn::new(0x56)),
            state: "ESTABLISHED".into(),
            role: ConnectionRole::Active,
            gid: gid(),
            peer_gid: "fe80::3".parse().unwrap(),
            interface: Some("ib0".into()),
            worker: 0,
        }],
        ..ResourcesInfo::default()
    }
}

fn verbs() -> ResourcesInfo {
    ResourcesInfo {
        port: "mlx5_0/1".into(),
        link: Some(LinkInfo {
            state: PortState::Down,
            link_layer: LinkLayer::InfiniBand,
            lid: Some(3),
            sm_lid: Some(1),
            sm_sl: Some(2),
            gid: "fe80::2:c903:e7:7e12".parse().unwrap(),
            gid_index: Some(0),
            guid: "0002:c903:00e7:7e12".into(),
            link_mtu: 2048,
            firmware: Some("12.28.2006".into()),
            netdev: None,
        }),
        memory_regions: vec![MemoryRegionInfo {
            lkey: 0x1234,
            mrlen: 1 << 20,
            worker: 1,
        }],
        protection_domains: vec![ProtectionDomainInfo { worker: 1 }],
        ..ResourcesInfo::default()
    }
}

const UD: &str = "link soft/eth0 lqpn 0x000012 type UD state RTS pkey 0xffff qkey 0x00000b1b lanes 2 netdev ib0 pid 4711 comm ibtapd\n";
const RC: &str = "link soft/eth0 lqpn 0x000034 type RC state RTS pkey 0xffff rqpn 0x000056 lanes 1 netdev ib0 pid 4711 comm ibtapd\n";
const CQ_LINE: &str = "link soft/eth0 cqn 0 cqe 1024 worker 0 pid 4711 comm ibtapd\n";
const SRQ_LINE: &str = "link soft/eth0 contents messages srqe 1024 worker 0 pid 4711 comm ibtapd\n";
const CM_ID_LINE: &str = "link soft/eth0 lqpn 0x000034 rqpn 0x000056 state ESTABLISHED role active \
    src-gid fe80::ff:fe00:2 dst-gid fe80::3 netdev ib0 worker 0 pid 4711 comm ibtapd\n";
const GROUP_LINE: &str = "link soft/eth0 mgid ff12::1 lqpn 0x000012 pid 4711 comm ibtapd\n";
const MR_LINE: &str = "link mlx5_0/1 lkey 0x00001234 mrlen 1048576 worker 1\n";

#[test]
fn resources_are_lines_as_rdma_prints_them() {
    let link = "link soft/eth0 state ACTIVE link_layer Ethernet guid 0000:00ff:fe00:0002 gid fe80::ff:fe00:2 \
                mtu 4096 netdev eth0 pid 4711 comm ibtapd\n";
    let all = [link, UD, RC, CQ_LINE, SRQ_LINE, CM_ID_LINE, GROUP_LINE];
    assert_eq!(text(&[soft()]), all.concat());
    let link = "link mlx5_0/1 state DOWN link_layer InfiniBand lid 0x0003 sm_lid 0x0001 sm_sl 2 guid \
                0002:c903:00e7:7e12 gid fe80::2:c903:e7:7e12 gid_index 0 mtu 2048 fw 12.28.2006\n";
    let expected = [link, MR_LINE, "link mlx5_0/1 worker 1\n"];
    assert_eq!(text(&[verbs()]), expected.concat());
}

fn query(words: &str) -> Result<Query, String> {
    let words: Vec<String> = words.split_whitespace().map(str::to_owned).collect();
    Query::parse(&words)
}

#[test]
fn a_query_selects_by_kind_and_values() {
    for (words, lines) in [
        ("show qp", vec![UD, RC]),
        ("qp type ud", vec![UD]),
        ("qp type UD state RTR", vec![]),
        ("qp lqpn 0-18", vec![UD]),
        ("qp lqpn 0x34,9", vec![RC]),
        ("qp link mlx5_0/1", vec![]),
        ("qp rqpn 0x56 link soft/eth0 pid 4711", vec![RC]),
        ("qp pid 4712", vec![]),
        ("cq cqn 0", vec![CQ_LINE]),
        ("srq", vec![SRQ_LINE]),
        ("cm_id dst-gid fe80::3", vec![CM_ID_LINE]),
        ("mr", vec![MR_LINE]),
        ("group mgid ff12::1", vec![GROUP_LINE]),
        // Without a kind, every line with the key.
        ("lqpn 0x12", vec![UD, GROUP_LINE]),
        ("lqpn 0x34", vec![RC, CM_ID_LINE]),
    ] {
        let mut ports = vec![soft(), verbs()];
        query(words).unwrap().select(&mut ports);
        assert_eq!(text(&ports), lines.concat(), "{words}");
        assert_eq!(ports.is_empty(), lines.is_empty(), "{words}");
    }
    let mut ports = vec![soft(), verbs()];
    query("show").unwrap().select(&mut ports);
    assert_eq!(ports, [soft(), verbs()]);
}

#[test]
fn a_wrong_word_has_a_sentence() {
    for (words, sentence) in [
        (
            "qpn 1",
            "\"qpn\" is neither a kind of resource nor a filter; the kinds are qp, cq, srq, cm_id, mr, pd, group",
        ),
        (
            "cq lqpn 1",
            "\"lqpn\" is not a filter of cq; use link, pid, cqn, cqe, worker",
        ),
        ("qp lqpn", "lqpn needs a value"),
    ] {
        assert_eq!(query(words), Err(sentence.to_owned()), "{words}");
    }
}

/// Each key of a line is a filter, and the other way round.
#[test]
fn every_key_is_a_filter() {
    let (soft, verbs) = (soft(), verbs());
    let lines: [(&Kind, Vec<Words>); 7] = [
        (&QP, soft.queue_pairs.iter().map(queue_pair).collect()),
        (
            &CQ,
            soft.completion_queues
                .iter()
                .map(completion_queue)
                .collect(),
        ),
        (
            &SRQ,
            soft.shared_receive_queues
                .iter()
                .map(shared_receive_queue)
                .collect(),
        ),
        (&CM_ID, soft.cm_ids.iter().map(cm_id).collect()),
        (
            &MR,
            verbs.memory_regions.iter().map(memory_region).collect(),
        ),
        (
            &PD,
            verbs
                .protection_domains
                .iter()
                .map(protection_domain)
                .collect(),
        ),
        (&GROUP, soft.groups.iter().map(group).collect()),
    ];
    let links = [soft.link.iter(), verbs.link.iter()].into_iter().flatten();
    let of_port = ("port", LINK_KEYS, links.map(link).collect());
    let lines = lines.map(|(kind, lines)| (kind.name, kind.keys, lines));
    for (name, keys, lines) in lines.into_iter().chain([of_port]) {
        let mut used: Vec<&str> = lines.iter().flatten().map(|(key, _)| *key).collect();
        used.sort_unstable();
        used.dedup();
        let mut keys = keys.to_vec();
        keys.sort_unstable();
        assert_eq!(used, keys, "{name}");
    }
}

#[test]
fn the_line_of_a_port_has_filters() {
    let port = soft();
    let words = link(port.link.as_ref().unwrap());
    assert!(words.len() > 5, "{words:?}");
    for (key, value) in words {
        let mut ports = vec![soft()];
        query(&format!("{key} {value}")).unwrap().select(&mut ports);
        assert_eq!(ports[0].link, port.link, "{key} {value}");
        let mut ports = vec![soft()];
        query(&format!("{key} other")).unwrap().select(&mut ports);
        assert!(ports.is_empty(), "{key} other");
    }
}
