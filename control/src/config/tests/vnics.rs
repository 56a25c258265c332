//! `[[vnic]]`.

use proto::OpaLid;
use proto::Qpn;

use super::*;
use crate::config::vnic::{Learning, SwitchConfig, VnicPeer};

const VNIC: &str = "[[vnic]]\nname = \"lan0\"\nunderlay = \"eth0\"\n";

/// The error for a file with `tail` at the end of a VNIC's table.
fn fault(tail: &str) -> String {
    parse(&format!("{VNIC}{tail}")).unwrap_err()
}

#[test]
fn a_vnic_is_enough_and_has_defaults() {
    let config = parse(VNIC).unwrap();
    assert_eq!(config.vnics, [VnicConfig::new("lan0", on("eth0"), 0)]);
    assert!(config.ipoib.is_empty());
    assert_eq!(config.ports[&on("eth0")], PortConfig::default());
    assert_eq!(config.what_is_served(), "1 VNIC(s)");
    let config = parse(&format!("{VNIC}vesw = 7\n{IPOIB}")).unwrap();
    assert_eq!(config.vnics[0].switch, Some(SwitchConfig::new(7)));
    assert_eq!(
        config.what_is_served(),
        "1 IPoIB interface(s) and 1 VNIC(s)"
    );
}

#[test]
fn all_keys_of_a_vnic() {
    let config = parse(&format!(
        "{VNIC}vesw = \"0x7\"\nindex = 3\nlid = 0x12\npkey = 0x8001\nfabric_id = 0x301\n\
         mac = \"02:00:00:00:00:01\"\nmtu = 1500\nqueues = 2\npersist = true\nup = false\n\
         netns = \"blue\"\nlearning = false\nageing = 60\nmac_limit = 1000\n\
         peers = [{{ lid = 8, gid = \"fe80::8\", qpn = 0x123 }}, {{ lid = 9, gid = \"fe80::9\" }}]\n"
    ));
    let peer = |lid, gid: &str, qpn| VnicPeer {
        lid: OpaLid::new(lid),
        gid: gid.parse().unwrap(),
        qpn,
    };
    let expected = VnicConfig {
        interface: InterfaceConfig {
            netns: Some("blue".into()),
            mtu: Some(1500),
            queues: Some(2),
            persist: true,
            up: false,
            ..InterfaceConfig::new("lan0", on("eth0"))
        },
        switch: Some(SwitchConfig {
            vesw: 7,
            fabric_id: 0x301,
            pkey: PKey::new(0x8001),
            lid: Some(OpaLid::new(0x12)),
            mac: Some([2, 0, 0, 0, 0, 1]),
            peers: Some(vec![
                peer(8, "fe80::8", Some(Qpn::new(0x123))),
                peer(9, "fe80::9", None),
            ]),
        }),
        learning: Learning {
            on: false,
            ageing: 60,
            mac_limit: 1000,
        },
        ..VnicConfig::new("lan0", on("eth0"), 3)
    };
    assert_eq!(config.unwrap().vnics, [expected]);
}

#[test]
fn default_numbers_are_the_first_free_ones() {
    let more = "[[vnic]]\nname = \"lan1\"\nunderlay = \"eth0\"\nindex = 0\n\
                [[vnic]]\nname = \"lan2\"\nunderlay = \"eth0\"\n\
                [[vnic]]\nname = \"lan3\"\nunderlay = \"eth1\"\n";
    let config = parse(&format!("{VNIC}{more}")).unwrap();
    let indexes: Vec<u8> = config.vnics.iter().map(|v| v.index).collect();
    assert_eq!(indexes, [1, 0, 2, 0]);
}

#[test]
fn every_fault_has_its_place() {
    for (tail, expected) in [
        (
            "vesw = 0",
            "t.toml:4:8: the switch 0 is out of range; use 1 to 4095",
        ),
        (
            "vesw = 4096",
            "t.toml:4:8: the switch 4096 is out of range; use 1 to 4095",
        ),
        (
            "vesw = 1\nlid = 0xf00000",
            "t.toml:5:7: the LID 0xf00000 is out of range; use 0x000001 to 0xefffff",
        ),
        (
            "vesw = 1\nfabric_id = 1024",
            "t.toml:5:13: the fabric_id 1024 is out of range; use 0 to 1023",
        ),
        (
            "vesw = 1\nmac = \"01:00:5e:00:00:01\"",
            "t.toml:5:7: 01:00:5e:00:00:01 is the address of a group; use the MAC of an interface",
        ),
        (
            "mtu = 67",
            "t.toml:4:7: an MTU of 67 bytes is out of range; use 68 to 16333",
        ),
        (
            "index = 255",
            "t.toml:4:9: the index 255 is out of range; use 0 to 254",
        ),
        (
            "ageing = 5",
            "t.toml:4:10: an ageing time of 5 seconds is out of range; use 10 to 1000000",
        ),
        (
            "mac_limit = 0",
            "t.toml:4:13: a limit of 0 addresses is out of range; use 1 to 1048576",
        ),
        (
            "lid = 7",
            "t.toml:4:7: without vesw, an Ethernet Manager assigns lid; leave lid out, or set vesw",
        ),
        (
            "vesw = 1\npeers = [{ lid = 7, gid = \"fe80::7\" }, { lid = 7, gid = \"fe80::8\" }]",
            "t.toml:5:40: the LID 0x000007 is listed twice; remove one",
        ),
        (
            "vesw = 1\npeers = [{ lid = 7, gid = \"ff12::7\" }]",
            "t.toml:5:27: ff12::7 is the GID of a group; use the GID of a port",
        ),
        (
            "vesw = 1\npeers = [{ lid = 7, gid = \"fe80::7\", qpn = 1 }]",
            "t.toml:5:44: the queue pair number 0x1 is out of range; use 0x000002 to 0xfffffe",
        ),
        (
            "rdma = \"mlx5_0\"",
            "t.toml:4:8: the interface has both `underlay` and `rdma`; leave one of them out",
        ),
        (
            "[[vnic]]\nname = \"lan0\"\nunderlay = \"eth1\"",
            "t.toml:5:8: another interface is named \"lan0\" already",
        ),
        (
            "index = 1\n[[vnic]]\nname = \"lan1\"\nunderlay = \"eth0\"\nindex = 1",
            "t.toml:8:9: \"lan0\" has the index 1 on that port already",
        ),
        (
            "vesw = 1\nlid = 5\n[[vnic]]\nname = \"lan1\"\nunderlay = \"eth0\"\nvesw = 1\nlid = 5",
            "t.toml:10:7: \"lan0\" has the LID 0x000005 on the switch 1 already",
        ),
        (
            "[[ipoib]]\nname = \"lan0\"\nunderlay = \"eth1\"",
            "t.toml:2:8: another interface is named \"lan0\" already",
        ),
        (
            "[[vnic]]\nname = \"eth1\"\nunderlay = \"eth1\"",
            "t.toml:6:12: the interface \"eth1\" cannot be its own underlay",
        ),
        (
            "[[vnic]]\nname = \"lan1\"",
            "t.toml:4:1: the interface has no port; add `underlay`, an Ethernet interface, or `rdma`, an \
             RDMA device such as \"mlx5_0\"",
        ),
        (
            "[[vnic]]\nname = \"lan1\"\nrdma = \"mlx5_0\"\nqueues = 2",
            "t.toml:7:10: 2 queues: a VNIC on an RDMA device sends from one queue pair, because peers \
             learn its address from packets; leave queues out",
        ),
    ] {
        assert_eq!(fault(tail), expected, "{tail}");
    }
    let unknown = fault("vlan = 1");
    assert!(unknown.starts_with("t.toml:4:1: unknown key `vlan`, expected one of `name`,"));
}

#[test]
fn management_is_a_setting_of_the_port() {
    let port = "[port.eth0]\nmanagers = [\"fe80::1\"]\nvnic_create = true\n";
    let config = parse(&format!("{port}{VNIC}")).unwrap();
    let settings = config.ports[&on("eth0")].management();
    assert_eq!(settings.managers, ["fe80::1".parse().unwrap()]);
    assert!(settings.vnic_create);
    // Managers may create VNICs, so the file needs no interface.
    assert!(parse(port).is_ok());
    assert_eq!(
        parse("[port.eth0]\nmanagers = [\"eth1\"]\nvnic_create = true").unwrap_err(),
        "t.toml:2:13: \"eth1\" is not a GID; write it as an IPv6 address"
    );
    assert!(parse("[port.eth0]\nmanagers = [\"fe80::1\"]").is_err());
}
