use fabric::GidChoice;
use fabric::umad::UmadError;
use fabric::verbs::ibv::{DeviceAttributes, PortInfo};
use fabric::verbs::look::Address;
use fabric::{Guid, IbMtu, Lid, LinkLayer, PKey};

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

/// A healthy port of a RoCE NIC.
fn facts() -> Facts {
    let address = |ip: &str| Address {
        ifindex: 2,
        ip: ip.parse().unwrap(),
        usable: true,
    };
    Facts {
        missing: Vec::new(),
        libraries: Ok(()),
        kernel_cm: false,
        kernel_cm_shut_out: false,
        look: Ok(Look {
            device: DeviceAttributes {
                node_guid: Guid([0; 8]),
                ports: 1,
                max_qp: 1000,
                max_qp_wr: 1000,
                max_sge: 16,
                max_cqe: 10_000,
                max_mcast_grp: 8192,
                max_srq: 100,
                max_srq_wr: 1000,
                ud_ip_csum: false,
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
                    lmc: 0,
                    sm_lid: None,
                    sm_sl: 0,
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
        subnet: None,
    }
}

/// An active port of an InfiniBand adapter, before the first start of ibtapd.
fn on_subnet(change: impl FnOnce(&mut Seen, &mut subnet::Facts)) -> Facts {
    let mut facts = with(|seen| {
        seen.info.link_layer = LinkLayer::InfiniBand;
        (seen.info.lid, seen.info.sm_lid) = (Some(Lid(3)), Some(Lid(1)));
        seen.gids = vec![entry(0, "fe80::2:c903:e7:7e12", GidKind::InfiniBand)];
    });
    let mut subnet = subnet::Facts {
        umad: Ok(()),
        kernel: Vec::new(),
        served: false,
        wanted: vec![("ib0".into(), PKey::DEFAULT)],
    };
    change(&mut facts.look.as_mut().unwrap().seen, &mut subnet);
    facts.subnet = Some(subnet);
    facts
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

fn worst_of(facts: &Facts) -> (Level, String, String) {
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
    let (level, _, advice) = worst_of(&without);
    assert_eq!((level, &*advice), (Level::Fail, "modprobe ib_uverbs"));
    without.missing = vec!["rdma_ucm"];
    assert_eq!(worst_of(&without).0, Level::Warn);
    let none = Facts {
        libraries: Err("cannot load libibverbs.so.1".into()),
        look: Err("cannot load libibverbs.so.1".into()),
        ..facts()
    };
    let findings = judge(&none, &config(), Locking::default());
    assert_eq!(findings.len(), 1, "reported once: {findings:?}");
    assert!(worst_of(&none).2.contains("apt-get install libibverbs1"));
    let absent = Facts {
        look: Err("there is no RDMA device rxe0; no RDMA device is available".into()),
        ..facts()
    };
    assert!(
        worst_of(&absent)
            .1
            .starts_with("there is no RDMA device rxe0")
    );
    // The error has the remedy.
    let refused = Facts {
        look: Err("cannot open mlx5_0: no access to /dev/infiniband/uverbs0".into()),
        ..facts()
    };
    let (level, _, advice) = worst_of(&refused);
    assert_eq!((level, &*advice), (Level::Fail, ""));
}

#[test]
fn a_port_that_is_down_or_without_a_gid() {
    let down = with(|seen| {
        seen.info.active = false;
        seen.info.state = "DOWN";
    });
    let (level, found, advice) = worst_of(&down);
    assert_eq!((level, &*found), (Level::Fail, "DOWN, Ethernet"));
    assert!(advice.starts_with("rxe0/1 is DOWN: "), "{advice}");
    let without = with(|seen| {
        seen.gids.remove(1);
    });
    let (level, found, advice) = worst_of(&without);
    assert_eq!(level, Level::Fail);
    assert_eq!(
        found,
        "none of its GIDs is usable: 0 fe80::1 (RoCE v1), 2 ::ffff:192.0.2.1 (RoCE v2)"
    );
    assert!(advice.contains("IPv6 address"), "{advice}");
    let (_, found, _) = worst_of(&with(|seen| seen.gids.clear()));
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
    let (level, found, advice) = worst_of(&small);
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
fn an_active_infiniband_port_is_fine() {
    let findings = judge(&on_subnet(|_, _| {}), &config(), Locking::default());
    assert!(
        findings.iter().all(|f| f.level == Level::Ok),
        "{findings:?}"
    );
    for found in [
        "ACTIVE, InfiniBand, LID 0x0003",
        "its management datagrams can be used",
        "the subnet manager has LID 0x0001",
    ] {
        assert!(findings.iter().any(|f| f.found == found), "{findings:?}");
    }
}

#[test]
fn an_infiniband_port_that_is_not_active_names_the_next_step() {
    for (state, step) in [
        ("DOWN", "cable"),
        ("INIT", "opensm"),
        ("ARMED", "log of the subnet manager"),
        ("ACTIVE_DEFER", "cable"),
        ("unknown", "driver"),
    ] {
        let port = on_subnet(|seen, _| {
            (seen.info.active, seen.info.state) = (false, state);
            (seen.info.sm_lid, seen.pkeys) = (None, Vec::new());
        });
        let (level, found, advice) = worst_of(&port);
        assert_eq!(level, Level::Fail);
        assert!(found.starts_with(state), "{found}");
        assert!(advice.contains(step), "{advice}");
        // A port without a subnet manager has neither its LID nor P_Keys: one finding is enough.
        let findings = judge(&port, &config(), Locking::default());
        let failed = findings.iter().filter(|f| f.level == Level::Fail);
        assert_eq!(failed.count(), 1, "{findings:?}");
    }
}

#[test]
fn an_active_port_may_have_lost_its_subnet_manager() {
    let (level, found, advice) = worst_of(&on_subnet(|seen, _| seen.info.sm_lid = None));
    assert_eq!(level, Level::Fail);
    assert!(
        found.contains("is 0") && advice.contains("opensm"),
        "{found}"
    );
}

#[test]
fn management_datagrams_need_a_module_a_library_and_a_right() {
    use std::io::{Error, ErrorKind};

    let of = |error: UmadError| on_subnet(|_, subnet| subnet.umad = Err(error));
    let module = of(UmadError::NoModule);
    assert_eq!(worst_of(&module).2, "modprobe ib_umad");
    let library = of(UmadError::Absent {
        reason: "no such file".into(),
    });
    assert_eq!(worst_of(&library).2, "apt-get install libibumad3");
    let node = |kind: ErrorKind| UmadError::Node {
        port: "mlx5_0/1".into(),
        node: "/dev/infiniband/umad0".into(),
        reason: Error::from(kind),
        advice: "run the program as root",
    };
    let mut denied = of(node(ErrorKind::PermissionDenied));
    let (level, found, advice) = worst_of(&denied);
    assert_eq!((level, &*advice), (Level::Fail, "run the program as root"));
    assert!(found.starts_with("cannot open /dev/infiniband/umad0"));
    // This user may not open it, but the daemon has.
    denied.subnet.as_mut().unwrap().served = true;
    assert_eq!(worst_of(&denied).0, Level::Note);
    let mut gone = of(node(ErrorKind::NotFound));
    gone.subnet.as_mut().unwrap().served = true;
    assert_eq!(worst_of(&gone).0, Level::Fail);
    let other = of(UmadError::NoPort {
        port: "mlx5_0/1".into(),
    });
    assert_eq!(worst_of(&other).0, Level::Fail);
}

#[test]
fn each_interface_wants_its_p_key_in_the_table() {
    let table = |pkeys: &[u16], wanted: &[(&str, u16)]| {
        on_subnet(|seen, subnet| {
            seen.pkeys = pkeys.iter().map(|key| PKey::new(*key)).collect();
            let wanted = wanted.iter();
            subnet.wanted = wanted
                .map(|(name, key)| ((*name).into(), PKey::new(*key)))
                .collect();
        })
    };
    let (level, found, advice) = worst_of(&table(&[0xffff], &[("ib0", 0xffff), ("ib1", 0x8001)]));
    assert_eq!(level, Level::Fail);
    assert!(found.contains("lacks 0x8001, which ib1 needs"), "{found}");
    assert!(advice.contains("subnet manager"), "{advice}");
    let (level, found, _) = worst_of(&table(&[0x7fff, 0], &[("ib0", 0xffff)]));
    assert_eq!(level, Level::Note);
    assert!(found.contains("limited member of the partition 0xffff"));
    // A full entry counts, also beside a limited one.
    for pkeys in [[0x7fff, 0xffff], [0xffff, 0x7fff]] {
        assert_eq!(worst_of(&table(&pkeys, &[("ib0", 0x7fff)])).0, Level::Ok);
    }
    // The daemon's own answers say more about its interfaces.
    let mut served = table(&[0x7fff], &[("ib1", 0x8001)]);
    served.subnet.as_mut().unwrap().served = true;
    assert_eq!(worst_of(&served).0, Level::Ok);
}

#[test]
fn the_kernels_interface_on_the_port_needs_an_address() {
    let beside = |has_ipv4| on_subnet(|_, s| s.kernel = vec![("ib0".into(), has_ipv4)]);
    let (level, found, _) = worst_of(&beside(true));
    assert_eq!(level, Level::Note);
    assert!(
        found.contains("the kernel's ib0 is on this port"),
        "{found}"
    );
    let (level, _, advice) = worst_of(&beside(false));
    assert_eq!(level, Level::Warn);
    assert!(advice.contains("ip address add"), "{advice}");
}

#[test]
fn a_device_without_multicast_fails() {
    let mut facts = facts();
    facts.look.as_mut().unwrap().device.max_mcast_grp = 0;
    assert_eq!(worst_of(&facts).0, Level::Fail);
}

#[test]
fn locked_memory_counts_without_cap_ipc_lock() {
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

#[test]
fn each_data_thread_locks_memory() {
    let for_two = Locking {
        limit: Some(2 * LOCKED),
        unlimited: false,
    };
    let level = |workers| {
        let config = VerbsConfig {
            workers,
            ..config()
        };
        worst(&facts(), &config, for_two).level
    };
    assert_eq!((level(2), level(3)), (Level::Ok, Level::Fail));
}

#[test]
fn who_manages_the_connections_of_an_infiniband_port() {
    let infiniband = |kernel_cm, kernel_cm_shut_out| Facts {
        missing: vec!["rdma_ucm"],
        kernel_cm,
        kernel_cm_shut_out,
        ..with(|seen| {
            seen.info.link_layer = LinkLayer::InfiniBand;
            seen.gids = vec![entry(0, "fe80::1", GidKind::InfiniBand)];
        })
    };
    let of = |facts: &Facts| {
        let findings = judge(facts, &config(), Locking::default());
        let found = |part: &str| findings.iter().any(|f| f.found.contains(part));
        (found("connected mode creates no"), found("rdma_cm cannot"))
    };
    assert_eq!(of(&infiniband(false, false)), (false, false), "ibtapd");
    assert_eq!(of(&infiniband(true, false)), (true, false), "the kernel");
    assert_eq!(of(&infiniband(true, true)), (true, true), "both");
}
