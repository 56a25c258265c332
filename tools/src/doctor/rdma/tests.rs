use fabric::GidChoice;
use fabric::verbs::ibv::{DeviceAttributes, PortInfo};
use fabric::verbs::look::Address;
use fabric::{Gid, Guid, IbMtu, Lid, PKey};

use super::*;

fn entry(index: u32, gid: &str, kind: GidKind) -> GidEntry {
    GidEntry {
        index,
        gid: gid.parse().unwrap(),
        kind,
        netdev: Some(2),
    }
}

fn config() -> VerbsConfig {
    VerbsConfig::new("rxe0", 1)
}

/// A port of a RoCE NIC as it should be.
fn facts() -> Facts {
    let address = |ip: &str| Address {
        ifindex: 2,
        ip: ip.parse().unwrap(),
        usable: true,
    };
    Facts {
        missing: Vec::new(),
        libraries: Ok(()),
        look: Ok(Look {
            device: DeviceAttributes {
                node_guid: Guid([0; 8]),
                ports: 1,
                max_qp: 1000,
                max_qp_wr: 1000,
                max_sge: 16,
                max_cqe: 10_000,
                max_mr_size: 1 << 40,
                max_mcast_grp: 8192,
                max_mcast_qp_attach: 56,
                max_ah: 0,
                max_srq: 100,
                max_srq_wr: 1000,
                max_qp_rd_atom: 16,
                ud_ip_csum: false,
                rc_ip_csum: false,
                moderation: (0, 0),
            },
            seen: Seen {
                info: PortInfo {
                    active: true,
                    state: "ACTIVE",
                    active_mtu: IbMtu::B4096,
                    gids: 256,
                    pkeys: 1,
                    lid: None,
                    max_message: 1 << 30,
                    link_layer: LinkLayer::Ethernet,
                },
                gids: vec![
                    entry(0, "fe80::1", GidKind::RoceV1),
                    entry(1, "fe80::1", GidKind::RoceV2),
                    entry(2, "::ffff:192.0.2.1", GidKind::RoceV2),
                ],
                pkeys: vec![PKey::DEFAULT],
                addresses: vec![address("fe80::1"), address("192.0.2.1")],
                mtus: vec![(2, 9000)],
            },
        }),
    }
}

fn with(change: impl FnOnce(&mut Seen)) -> Facts {
    let mut facts = facts();
    change(&mut facts.look.as_mut().unwrap().seen);
    facts
}

fn worst(facts: &Facts, config: &VerbsConfig, locking: Locking) -> Finding {
    let mut findings = judge(facts, config, locking);
    let level = findings.iter().map(|f| f.level).max().unwrap();
    let at = findings.iter().position(|f| f.level == level).unwrap();
    findings.remove(at)
}

fn said(facts: &Facts) -> (Level, String, String) {
    let finding = worst(facts, &config(), Locking::default());
    (
        finding.level,
        finding.found,
        finding.advice.unwrap_or_default(),
    )
}

#[test]
fn a_device_as_it_should_be() {
    let findings = judge(&facts(), &config(), Locking::default());
    assert!(
        findings.iter().all(|f| f.level == Level::Ok),
        "{findings:?}"
    );
    let found: Vec<&str> = findings.iter().map(|f| &*f.found).collect();
    assert_eq!(
        found,
        [
            "libibverbs and librdmacm load",
            "ACTIVE, Ethernet",
            "1 fe80::1 (RoCE v2) is used",
            "4096 bytes of payload leave 4092 to IP",
        ]
    );
}

#[test]
fn what_is_not_there() {
    let mut without = facts();
    without.missing = vec!["ib_uverbs"];
    let (level, _, advice) = said(&without);
    assert_eq!((level, &*advice), (Level::Fail, "modprobe ib_uverbs"));
    without.missing = vec!["rdma_ucm"];
    assert_eq!(said(&without).0, Level::Warn);
    let none = Facts {
        libraries: Err("libibverbs.so.1 cannot be loaded".into()),
        look: Err("libibverbs.so.1 cannot be loaded".into()),
        ..facts()
    };
    let findings = judge(&none, &config(), Locking::default());
    assert_eq!(findings.len(), 1, "said once: {findings:?}");
    assert!(said(&none).2.contains("apt-get install libibverbs1"));
    let absent = Facts {
        look: Err("there is no RDMA device rxe0, there are none here".into()),
        ..facts()
    };
    assert!(said(&absent).1.starts_with("there is no RDMA device rxe0"));
}

#[test]
fn a_port_that_is_down_or_without_a_gid() {
    let down = with(|seen| {
        seen.info.active = false;
        seen.info.state = "DOWN";
    });
    let (level, found, advice) = said(&down);
    assert_eq!((level, &*found), (Level::Fail, "DOWN, Ethernet"));
    assert!(advice.starts_with("rxe0/1 is DOWN: "), "{advice}");
    let without = with(|seen| {
        seen.gids.remove(1);
    });
    let (level, found, advice) = said(&without);
    assert_eq!(level, Level::Fail);
    assert_eq!(
        found,
        "none of its GIDs can be used: 0 fe80::1 (RoCE v1), 2 ::ffff:192.0.2.1 (RoCE v2)"
    );
    assert!(advice.contains("IPv6 address"), "{advice}");
    let (_, found, _) = said(&with(|seen| seen.gids.clear()));
    assert_eq!(found, "its GID table is empty");
    for (choice, level) in [
        (GidChoice::Index(1), Level::Ok),
        (GidChoice::Index(0), Level::Fail),
        (GidChoice::Index(9), Level::Fail),
        (GidChoice::Address("fe80::1".parse().unwrap()), Level::Ok),
        (GidChoice::Address("fe80::2".parse().unwrap()), Level::Fail),
    ] {
        let config = VerbsConfig {
            gid: choice,
            ..config()
        };
        let found = worst(&facts(), &config, Locking::default());
        assert_eq!(found.level, level, "{choice:?}: {found:?}");
    }
}

#[test]
fn an_mtu_below_what_ipv6_needs() {
    let small = with(|seen| seen.info.active_mtu = IbMtu::B1024);
    let (level, found, advice) = said(&small);
    assert_eq!(level, Level::Warn);
    assert_eq!(found, "1024 bytes of payload leave 1020 to IP");
    assert!(advice.contains("1280"), "{advice}");
    let asked = VerbsConfig {
        link_mtu: fabric::LinkMtu::Bytes(1024),
        ..config()
    };
    let level = worst(&facts(), &asked, Locking::default()).level;
    assert_eq!(level, Level::Warn);
}

#[test]
fn infiniband_knows_nobody_by_itself() {
    let port = with(|seen| {
        seen.info.link_layer = LinkLayer::InfiniBand;
        seen.info.lid = Some(Lid(3));
        seen.gids = vec![entry(0, "fe80::2:c903:e7:7e12", GidKind::InfiniBand)];
    });
    let (level, found, _) = said(&port);
    assert_eq!(level, Level::Warn);
    assert!(found.contains("subnet administration"), "{found}");
    let peer: Gid = "fe80::2".parse().unwrap();
    let listed = VerbsConfig {
        lids: [(peer, Lid(7))].into(),
        ..config()
    };
    let findings = judge(&port, &listed, Locking::default());
    assert!(findings.iter().all(|f| f.level == Level::Ok));
    assert!(
        findings
            .iter()
            .any(|f| f.found == "ACTIVE, InfiniBand, LID 0x0003")
    );
}

#[test]
fn a_device_without_multicast_is_of_no_use() {
    let mut facts = facts();
    facts.look.as_mut().unwrap().device.max_mcast_grp = 0;
    assert_eq!(said(&facts).0, Level::Fail);
}

#[test]
fn locked_memory_counts_for_who_is_limited() {
    let limited = Locking {
        limit: Some(8 << 20),
        unlimited: false,
    };
    let found = worst(&facts(), &config(), limited);
    assert_eq!((found.level, &*found.subject), (Level::Fail, "memlock"));
    let privileged = Locking {
        unlimited: true,
        ..limited
    };
    assert_eq!(worst(&facts(), &config(), privileged).level, Level::Ok);
}
