//! Findings about an underlay and about the host side.

use control::api::{GroupRecord, InterfaceInfo};
use control::config::{GidChoice, LinkMtu};
use fabric::soft::{Seen, evaluate};
use rtnl::{Address, Bridge, Link, OperState, Scope};

use super::finding::{Finding, Level};
use super::{gid, host, target, underlay};
use control::config::PortConfig;

fn link(name: &str) -> Link {
    Link {
        index: 7,
        name: name.into(),
        hardware_type: 1,
        mtu: 9000,
        up: true,
        running: true,
        lower_up: true,
        carrier: true,
        multicast: true,
        operstate: OperState::Up,
        address: Some([2, 0, 0, 0, 0, 1]),
        gso_max_size: 65536,
        gso_ipv4_max_size: 65536,
        tx_queue_len: 1000,
        ..Link::default()
    }
}

fn address(ip: &str) -> Address {
    Address {
        ifindex: 7,
        ip: ip.parse().unwrap(),
        prefix_len: 64,
        scope: if ip.starts_with("fe80") {
            Scope::Link
        } else {
            Scope::Global
        },
        tentative: false,
        optimistic: false,
        dadfailed: false,
        deprecated: false,
        temporary: false,
        permanent: true,
        created: 0,
    }
}

fn seen() -> Seen {
    Seen {
        link: Some(link("eth0")),
        addresses: vec![address("fe80::1")],
        ..Seen::default()
    }
}

fn facts(change: impl FnOnce(&mut underlay::Facts)) -> underlay::Facts {
    let names = ["tx-udp-segmentation", "tx-checksum-ip-generic", "rx-gro"];
    let mut facts = underlay::Facts {
        seen: seen(),
        features: names.map(|name| (name.to_owned(), true)).into(),
        ..underlay::Facts::default()
    };
    change(&mut facts);
    facts
}

fn link_with(change: impl FnOnce(&mut Link)) -> underlay::Facts {
    facts(|f| change(f.seen.link.as_mut().unwrap()))
}

fn judged(facts: &underlay::Facts) -> Vec<Finding> {
    underlay::judge("eth0", facts, &PortConfig::default())
}

/// The first of the worst.
fn worst(findings: &[Finding]) -> &Finding {
    let level = findings.iter().map(|f| f.level).max().unwrap();
    findings.iter().find(|f| f.level == level).unwrap()
}

#[test]
fn a_good_underlay() {
    let found = judged(&facts(|_| {}));
    assert_eq!(worst(&found).level, Level::Ok, "{found:?}");
    assert!(
        found
            .iter()
            .any(|f| f.found.contains("9000 bytes leave 4092"))
    );
}

#[test]
fn an_underlay_that_carries_nothing() {
    let cases = [
        (
            facts(|f| f.seen.link = None),
            "no such interface",
            "ip link show",
        ),
        (
            link_with(|l| l.up = false),
            "is down",
            "ip link set eth0 up",
        ),
        (link_with(|l| l.lower_up = false), "has no carrier", "cable"),
        (
            link_with(|l| {
                l.lower_up = false;
                l.operstate = OperState::LowerLayerDown;
            }),
            "the interface below it is down",
            "below it",
        ),
        (
            link_with(|l| {
                l.running = false;
                l.operstate = OperState::Dormant;
            }),
            "has the operational state DORMANT",
            "802.1X",
        ),
    ];
    for (facts, words, advice) in cases {
        let found = judged(&facts);
        let worst = worst(&found);
        assert_eq!(worst.level, Level::Fail, "{found:?}");
        assert!(worst.found.contains(words), "{worst:?}");
        assert!(worst.advice.as_ref().unwrap().contains(advice), "{worst:?}");
    }
}

#[test]
fn a_port_of_a_bridge_or_bond_receives_nothing() {
    let master = |kind: &str| {
        facts(|f| {
            f.master = Some(Link {
                kind: Some(kind.into()),
                bridge: (kind == "bridge").then(Bridge::default),
                ..link("above0")
            });
        })
    };
    for kind in ["bridge", "bond", "team", "openvswitch"] {
        let found = judged(&master(kind));
        let worst = worst(&found);
        assert_eq!(worst.level, Level::Fail, "{kind}");
        assert!(worst.advice.as_ref().unwrap().contains("--underlay above0"));
    }
    assert_eq!(worst(&judged(&master("vrf"))).level, Level::Note);
}

#[test]
fn kinds_of_interfaces_that_hardly_work() {
    for facts in [
        link_with(|l| l.hardware_type = 772),
        link_with(|l| l.hardware_type = 65534),
        link_with(|l| l.multicast = false),
    ] {
        assert_eq!(worst(&judged(&facts)).level, Level::Warn);
    }
}

/// `wg0` of wireguard-go is a TUN interface, that of the kernel has the kind "wireguard".
#[test]
fn a_tunnel_with_a_list_of_peers_is_a_good_underlay() {
    let port = PortConfig {
        peers: vec!["10.88.0.2".parse().unwrap()],
        ..PortConfig::default()
    };
    for (hardware_type, kind) in [(65534, "tun"), (65534, "wireguard"), (1, "macsec")] {
        let tunnel = link_with(|l| {
            (l.hardware_type, l.kind) = (hardware_type, Some(kind.into()));
            (l.mtu, l.multicast) = (1420, false);
        });
        let found = underlay::judge("wg0", &tunnel, &port);
        assert_eq!(worst(&found).level, Level::Note, "{found:?}");
        let of_mtu = found.into_iter().find(|f| f.check == "mtu").unwrap();
        let advice = of_mtu.advice.unwrap();
        assert!(advice.contains("the interface below wg0"), "{advice}");
        assert!(!advice.contains("9000"), "{advice}");
        assert_eq!(worst(&judged(&tunnel)).level, Level::Warn, "no peers");
    }
}

#[test]
fn the_mtu_below_and_what_is_left_of_it() {
    let level = |mtu| {
        let found = judged(&link_with(|l| l.mtu = mtu));
        let of_mtu = found.into_iter().find(|f| f.check == "mtu").unwrap();
        (of_mtu.level, of_mtu.found)
    };
    assert!(
        level(1500).1.contains("leave 1424"),
        "as in docs/network.md"
    );
    assert_eq!(level(1500).0, Level::Note);
    assert_eq!(level(2120).0, Level::Ok);
    assert!(level(2120).1.contains("leave 2044"));
    assert_eq!(level(1300).0, Level::Warn, "IPv6 does not fit");
    let wanted = PortConfig {
        link_mtu: LinkMtu::Bytes(9000),
        ..PortConfig::default()
    };
    let found = underlay::judge("eth0", &facts(|_| {}), &wanted);
    assert_eq!(worst(&found).level, Level::Fail, "{found:?}");
}

#[test]
fn offloads_that_are_off() {
    let found = judged(&facts(|f| {
        f.features.insert("tx-udp-segmentation".into(), false);
    }));
    let worst = worst(&found);
    assert_eq!((worst.level, worst.check), (Level::Note, "offload"));
    assert!(worst.advice.as_ref().unwrap().contains("ethtool -K eth0"));
    let unread = judged(&facts(|f| f.features.clear()));
    assert!(unread.iter().all(|f| f.check != "offload"));
    let short = judged(&link_with(|l| l.tx_queue_len = 10));
    assert!(short.iter().any(|f| f.found.contains("queue of 10")));
}

#[test]
fn every_reason_for_no_gid_has_its_way_out() {
    let case = |change: &dyn Fn(&mut Seen), choice, advice: &str| {
        let mut seen = seen();
        change(&mut seen);
        let found = gid::judge("eth0", &seen, choice);
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].level, Level::Fail, "{found:?}");
        assert!(
            found[0].advice.as_ref().unwrap().contains(advice),
            "{found:?}"
        );
        // The daemon's check agrees.
        let mtu = fabric::LinkMtu::Auto;
        assert!(evaluate("eth0", &seen, choice, mtu, None).is_err());
    };
    let auto = GidChoice::Auto;
    case(&|s| s.addresses.clear(), auto, "--gid");
    case(
        &|s| {
            s.addresses.clear();
            s.ipv6_disabled = true;
        },
        auto,
        // With dots, the name eth0.100 would be two folders.
        "sysctl net/ipv6/conf/eth0/disable_ipv6=0",
    );
    case(
        &|s| {
            s.addresses.clear();
            s.no_link_local = true;
        },
        auto,
        "addrgenmode eui64",
    );
    case(&|s| s.addresses[0].dadfailed = true, auto, "--gid");
    case(
        &|s| {
            s.addresses[0].tentative = true;
            s.link.as_mut().unwrap().up = false;
        },
        auto,
        "ip link set eth0 up",
    );
    case(&|_| {}, GidChoice::Ipv4, "ip address add");
    let missing = GidChoice::Address("2001:db8::1".parse().unwrap());
    case(&|_| {}, missing, "2001:db8::1/LENGTH");
}

#[test]
fn a_gid_that_can_be_used_and_one_that_soon_can() {
    let ok = gid::judge("eth0", &seen(), GidChoice::Auto);
    assert_eq!(ok[0].level, Level::Ok);
    let mut tentative = seen();
    tentative.addresses[0].tentative = true;
    let soon = gid::judge("eth0", &tentative, GidChoice::Auto);
    assert_eq!(soon[0].level, Level::Warn);
    assert_eq!(gid::judge("eth0", &Seen::default(), GidChoice::Auto), []);
}

#[test]
fn the_hosts_side_of_an_interface() {
    let interface = super::daemon::tests::interface();
    let healthy = || host::Facts {
        link: Some(Link {
            mtu: 4092,
            ..link("ib0")
        }),
        addresses: vec![address("fe80::2"), address("fd00::1")],
        ..host::Facts::default()
    };
    let worst_of = |change: &dyn Fn(&mut host::Facts)| {
        let mut facts = healthy();
        change(&mut facts);
        let found = host::judge(&interface, &facts);
        let worst = worst(&found).clone();
        (worst.level, worst.advice.unwrap_or_default())
    };
    let expect = |change: &dyn Fn(&mut host::Facts), level, advice: &str| {
        let found = worst_of(change);
        assert_eq!(found.0, level, "{found:?}");
        assert!(found.1.contains(advice), "{found:?}");
    };
    let bridge = |f: &mut host::Facts| {
        f.master = Some(Link {
            kind: Some("bridge".into()),
            ..link("br0")
        });
    };
    expect(&|_| {}, Level::Ok, "");
    expect(&|f| f.link = None, Level::Fail, "restart ibtapd");
    expect(
        &|f| f.link.as_mut().unwrap().up = false,
        Level::Fail,
        "ip link set ib0 up",
    );
    expect(&|f| f.addresses.truncate(1), Level::Warn, "ip address add");
    // With macvlans above it, the interface needs no address.
    expect(
        &|f| {
            f.addresses.truncate(1);
            f.guests = 1;
        },
        Level::Ok,
        "",
    );
    expect(&bridge, Level::Warn, "dev br0");
    expect(
        &|f| {
            bridge(f);
            f.addresses.truncate(1);
        },
        Level::Ok,
        "",
    );
    expect(
        &|f| f.addresses[1].dadfailed = true,
        Level::Fail,
        "ip address del fd00::1",
    );
    expect(
        &|f| f.link.as_mut().unwrap().mtu = 2044,
        Level::Note,
        "mtu 4092",
    );
    expect(
        &|f| {
            f.neighbours = 900;
            f.gc_thresh3 = vec![("ipv4", 1024)];
        },
        Level::Warn,
        "gc_thresh3",
    );
}

#[test]
fn the_broadcast_group_bounds_the_advised_mtu() {
    let on_subnet = InterfaceInfo {
        broadcast_record: Some(GroupRecord {
            mlid: 0xc000,
            join_state: 1,
            qkey: fabric::QKey::IPOIB_DEFAULT,
            mtu: Some(2048),
            sl: 0,
            rate_mbps: None,
        }),
        ..super::daemon::tests::interface()
    };
    let advice = |mtu| {
        let facts = host::Facts {
            link: Some(Link { mtu, ..link("ib0") }),
            ..host::Facts::default()
        };
        let found = host::judge(&on_subnet, &facts);
        let notes = found.into_iter().filter(|f| f.level == Level::Note);
        notes.filter_map(|f| f.advice).collect::<String>()
    };
    assert_eq!(advice(2044), "");
    assert!(advice(1500).contains("mtu 2044"), "{}", advice(1500));
}

#[test]
fn the_likely_underlay_is_plain_ethernet_with_carrier() {
    let kind = |name: &str, index, kind: Option<&str>| Link {
        index,
        kind: kind.map(str::to_owned),
        ..link(name)
    };
    let down = Link {
        up: false,
        running: false,
        lower_up: false,
        ..kind("eth0", 2, None)
    };
    let port = Link {
        master: Some(9),
        ..kind("eth1", 3, None)
    };
    let loopback = Link {
        hardware_type: 772,
        ..kind("lo", 1, None)
    };
    let links = [
        loopback,
        down.clone(),
        port,
        kind("ib0", 4, Some("tun")),
        kind("br0", 5, Some("bridge")),
        kind("eth2", 6, None),
    ];
    let guessed = |links: &[Link]| target::guess(links).map(|l| l.name.clone());
    assert_eq!(guessed(&links).as_deref(), Some("eth2"));
    assert_eq!(
        guessed(&links[..5]).as_deref(),
        Some("eth0"),
        "better than none"
    );
    assert_eq!(guessed(&links[3..5]), None);
}
