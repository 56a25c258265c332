//! The `children` of an interface.

use super::*;

#[test]
fn children_are_devices_behind_their_parent() {
    let config = parse(&format!(
        "{IPOIB}mode = \"connected\"\nconnections = 7\nqkey = 5\npersist = true\nmtu = 9000\n\
         queues = 2\nqpn = 0x4a\nup = false\nmss = \"mtu\"\ntrust_checksums = true\ndhcp = \"off\"\nclaims = \"qpn\"\nrefuse_requests = true\ninspect = \"warn\"\nneighbours = [{{ ip = \"10.0.0.2\", gid = \"fe80::2\" }}]\nreflect = true\nvlan_pkey = true\n\
         children = [1, \"0x8002\", {{ pkey = 3, name = \"storage\", mode = \"datagram\", \
         netns = \"blue\", mtu = 2044, queues = 4, up = true }}]\n\
         [[ipoib]]\nname = \"ib1\"\nunderlay = \"eth1\"\n"
    ))
    .unwrap();
    let names: Vec<_> = config.ipoib.iter().map(|d| &*d.name).collect();
    assert_eq!(names, ["ib0", "ib0.8001", "ib0.8002", "storage", "ib1"]);
    let plain = &config.ipoib[1];
    let expected = IpoibConfig {
        parent: Some("ib0".into()),
        mode: Mode::Connected,
        connections: 7,
        // A child is a full member, however its P_Key is written.
        pkey: PKey::new(0x8001),
        qkey: QKey::new(5),
        interface: InterfaceConfig {
            queues: Some(1),
            persist: true,
            up: false,
            ..InterfaceConfig::new("ib0.8001", on("eth0"))
        },
        mss: MssChoice::Mtu,
        dhcp: DhcpMode::Off,
        claims: ClaimCheck::Qpn,
        refuse_requests: true,
        inspect: Inspect::Warn,
        trust_checksums: true,
        reflect: true,
        ..IpoibConfig::new("ib0.8001", on("eth0"))
    };
    assert_eq!(*plain, expected);
    let full = &config.ipoib[3];
    let expected = IpoibConfig {
        interface: InterfaceConfig {
            name: "storage".into(),
            netns: Some("blue".into()),
            mtu: Some(2044),
            queues: Some(4),
            up: true,
            ..expected.interface.clone()
        },
        origin: Some("blue".into()),
        mode: Mode::Datagram,
        pkey: PKey::new(0x8003),
        ..expected
    };
    assert_eq!(*full, expected);
    assert!(config.ipoib[0].vlan_pkey);
}

#[test]
fn children_go_where_their_parent_is() {
    let config = parse(&format!("{IPOIB}netns = \"blue\"\nchildren = [0x8001]")).unwrap();
    assert_eq!(config.ipoib[1].key().to_string(), "blue/ib0.8001");
}

#[test]
fn children_that_cannot_be() {
    let use_these = "use 0x0001 to 0x7fff or 0x8001 to 0xffff";
    let fault = |children: &str| ipoib_fault(&format!("children = {children}"));
    assert_eq!(
        fault("[0x8001, 0x8000]"),
        format!("t.toml:4:21: P_Key 0x8000 selects partition 0, which is invalid; {use_these}")
    );
    assert_eq!(
        fault("[{ pkey = 0 }]"),
        format!("t.toml:4:22: P_Key 0x0000 selects partition 0, which is invalid; {use_these}")
    );
    assert_eq!(
        fault("[-1]"),
        "t.toml:4:13: -1 is negative; expected a P_Key such as 0xffff"
    );
    assert_eq!(
        fault("[true]"),
        "t.toml:4:13: invalid type: boolean `true`, expected a P_Key such as 0x8001, or a table \
         with a pkey"
    );
    assert_eq!(
        fault("[0x8001, 1]"),
        "t.toml:4:21: \"ib0.8001\" is a child of \"ib0\" with the P_Key 0x8001 already"
    );
    assert_eq!(
        fault("[0x7fff]"),
        "t.toml:4:13: \"ib0\" has the P_Key 0xffff itself; a child needs another one"
    );
    assert_eq!(
        fault("[0x8001, { pkey = 2, name = \"ib0\" }]"),
        "t.toml:4:40: another interface is named \"ib0\" already"
    );
    assert_eq!(
        fault("[{ pkey = 1, children = [2] }]"),
        "t.toml:4:36: a child cannot have children; list them next to the child"
    );
    assert_eq!(
        fault("[{ name = \"x\" }]"),
        "t.toml:4:13: missing key `pkey`"
    );
    assert_eq!(
        fault("[{ pkey = 1, persist = true }]"),
        "t.toml:4:25: unknown key `persist`, expected one of `pkey`, `name`, `mode`, `netns`, \
         `mtu`, `queues`, `up`, `children`"
    );
    assert_eq!(
        fault("[{ pkey = 1, netns = \"a/b\" }]"),
        "t.toml:4:33: \"a/b\" cannot be the name of a network namespace"
    );
    let twins = format!("{IPOIB}netns = \"blue\"\n{IPOIB}children = [1]\n");
    assert_eq!(
        parse(&twins).unwrap_err(),
        "t.toml:8:13: \"ib0\" has children, but another namespace has an interface of the same name; \
         rename one of them"
    );
}

#[test]
fn c91_a_child_is_named_after_its_parent_and_partition() {
    for (parent, pkey, name) in [
        ("ib0", 0x8001, "ib0.8001"),
        ("ib0", 0x00ff, "ib0.80ff"),
        ("ib0", 0xffff, "ib0.ffff"),
        ("0123456789", 0x8001, "0123456789.8001"),
        ("infiniband-main", 0xfffe, "infiniband.fffe"),
        ("012345678ä", 0x8001, "012345678.8001"),
        ("01234567ä", 0x8001, "01234567ä.8001"),
    ] {
        let made = values::child_name(parent, PKey::new(pkey));
        assert_eq!(made, name);
        assert!(rtnl::name_fault(&made).is_none());
    }
}
