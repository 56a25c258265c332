mod vnics;

use fabric::Qpn;

use super::*;

const DEVICE: &str = "[[device]]\nname = \"ib0\"\nunderlay = \"eth0\"\n";

fn on(underlay: &str) -> PortName {
    PortName::Underlay(underlay.into())
}

fn parse(text: &str) -> Result<Config, String> {
    Config::parse(text, "t.toml").map_err(|error| error.to_string())
}

/// What a file that ends a device's table with `tail` is refused for.
fn device_fault(tail: &str) -> String {
    parse(&format!("{DEVICE}{tail}")).unwrap_err()
}

/// What a file with this `[port.eth0]` is refused for.
fn port_fault(settings: &str) -> String {
    parse(&format!("[port.eth0]\n{settings}\n{DEVICE}")).unwrap_err()
}

#[test]
fn the_example_is_valid_and_shows_every_key() {
    let text = include_str!("../../../docs/ibtapd.example.toml");
    let config = parse(text).unwrap();
    assert!(config.devices.len() > 1 && config.vnics.len() > 1);
    // Comments show the keys that the example leaves at their defaults.
    for key in [
        "socket",
        "log_level",
        "gid",
        "peers",
        "link_mtu",
        "busy_poll",
        "pkeys",
        "kernel_peers",
        "lids",
        "name",
        "underlay",
        "rdma",
        "mode",
        "pkey",
        "qkey",
        "qpn",
        "mtu",
        "queues",
        "persist",
        "up",
        "dhcp",
        "reflect",
        "netns",
        "vlan_pkey",
        "children",
        "vesw",
        "index",
        "lid",
        "fabric_id",
        "mac",
        "learning",
        "ageing",
        "mac_limit",
        "managers",
        "vnic_create",
    ] {
        assert!(text.contains(&format!("{key} = ")), "{key} is not shown");
    }
}

#[test]
fn the_shortest_file_has_the_defaults() {
    let config = parse(DEVICE).unwrap();
    assert_eq!(config.devices, [DeviceConfig::new("ib0", on("eth0"))]);
    assert_eq!(config.ports[&on("eth0")], PortConfig::default());
    assert_eq!(config.socket, PathBuf::from("/run/ibtap/ibtapd.sock"));
    assert_eq!(config.log_level, LogLevel::Info);
}

#[test]
fn keys_may_be_numbers_or_strings() {
    for pkey in ["0x8001", "32769", "\"0x8001\"", "\"32769\""] {
        let config = parse(&format!("{DEVICE}pkey = {pkey}")).unwrap();
        assert_eq!(config.devices[0].pkey, PKey::new(0x8001));
    }
    let config = parse(&format!("{DEVICE}qkey = 0x1234")).unwrap();
    assert_eq!(config.devices[0].qkey, QKey::new(0x1234));
}

#[test]
fn queue_pair_numbers() {
    let chosen = |qpn: &str| parse(&format!("{DEVICE}qpn = {qpn}")).unwrap().devices[0].qpn;
    assert_eq!(chosen("\"stable\""), QpnChoice::Stable);
    assert_eq!(chosen("\"random\""), QpnChoice::Random);
    for number in ["0xabcdef", "\"0xabcdef\"", "11259375"] {
        assert_eq!(chosen(number), QpnChoice::Number(Qpn::new(0xabcdef)));
    }
    assert_eq!(
        device_fault("qpn = 1"),
        "t.toml:4:7: the queue pair number 0x1 is out of range; use 0x000002 to 0xfffffe"
    );
    assert_eq!(
        device_fault("qpn = 0x1000002"),
        "t.toml:4:7: the queue pair number 0x1000002 is out of range; use 0x000002 to 0xfffffe"
    );
    assert_eq!(
        device_fault("qpn = \"fixed\""),
        "t.toml:4:7: \"fixed\" is not a queue pair number; use \"stable\", \"random\" or a number"
    );
    let second = |underlay: &str| {
        let name = "[[device]]\nname = \"ib1\"\npkey = 0x8001\nqpn = 0x4a";
        parse(&format!(
            "{DEVICE}qpn = 0x4a\n{name}\nunderlay = {underlay:?}"
        ))
    };
    assert_eq!(
        second("eth0").unwrap_err(),
        "t.toml:8:7: \"ib0\" has the queue pair number 0x00004a already"
    );
    assert!(second("eth1").is_ok());
}

#[test]
fn several_devices_share_a_port() {
    let config = parse(
        "[port.eth0]\ngid = \"ipv4\"\npeers = [\"192.0.2.2\"]\npkeys = [\"0xffff\", 0x0001]\n\
         [[device]]\nname = \"ib0\"\nunderlay = \"eth0\"\n\
         [[device]]\nname = \"ib1\"\nunderlay = \"eth0\"\npkey = 0x8001\n\
         [[device]]\nname = \"ib2\"\nunderlay = \"eth1\"\n",
    )
    .unwrap();
    assert_eq!(config.devices.len(), 3);
    assert_eq!(config.ports.len(), 2);
    let port = &config.ports[&on("eth0")];
    assert_eq!(port.pkeys, Some(vec![PKey::new(0xffff), PKey::new(1)]));
    assert_eq!(port.gid, GidChoice::Ipv4);
}

#[test]
fn unknown_keys() {
    assert_eq!(
        device_fault("mtuu = 2044"),
        "t.toml:4:1: unknown key `mtuu`, expected one of `name`, `underlay`, `rdma`, `mode`, \
         `connections`, `pkey`, `qkey`, `qpn`, `mtu`, `queues`, `persist`, `up`, `dhcp`, `reflect`, \
         `netns`, `vlan_pkey`, `children`"
    );
    assert_eq!(
        port_fault("gids = 1"),
        "t.toml:2:1: unknown key `gids`, expected one of `gid`, `peers`, `link_mtu`, `busy_poll`, \
         `pkeys`, `lids`, `kernel_peers`, `managers`, `vnic_create`"
    );
    assert_eq!(
        parse("sockets = 1").unwrap_err(),
        "t.toml:1:1: unknown key `sockets`, expected one of `socket`, `log_level`, `port`, \
         `device`, `vnic`"
    );
}

#[test]
fn wrong_types() {
    assert_eq!(
        device_fault("persist = \"yes\""),
        "t.toml:4:11: invalid type: string \"yes\", expected a boolean"
    );
    assert_eq!(
        device_fault("mtu = true"),
        "t.toml:4:7: invalid type: boolean `true`, expected a number of bytes"
    );
    assert_eq!(
        device_fault("mtu = -1"),
        "t.toml:4:7: -1 is negative; expected a number of bytes"
    );
    assert_eq!(
        device_fault("mode = \"turbo\""),
        "t.toml:4:8: unknown variant `turbo`, expected `datagram` or `connected`"
    );
    assert_eq!(
        port_fault("gid = 4.5"),
        "t.toml:2:7: invalid type: floating point `4.5`, expected \"auto\", \"ipv4\", an address or \
         an index"
    );
    assert_eq!(
        port_fault("peers = \"192.0.2.2\""),
        "t.toml:2:9: invalid type: string \"192.0.2.2\", expected a sequence"
    );
    assert_eq!(
        parse("[[device]]\nname = \"ib0\"").unwrap_err(),
        "t.toml:1:1: the device has neither `underlay`, an Ethernet interface, nor `rdma`, an RDMA \
         device such as \"mlx5_0\"; add one of them"
    );
    assert_eq!(
        parse("[[device]\n").unwrap_err(),
        "t.toml:1:10: unclosed array table, expected `]`"
    );
}

#[test]
fn keys_out_of_range() {
    let use_these = "use 0x0001 to 0x7fff or 0x8001 to 0xffff";
    assert_eq!(
        device_fault("pkey = 0"),
        format!("t.toml:4:8: P_Key 0x0000 names partition 0, which is invalid; {use_these}")
    );
    assert_eq!(
        device_fault("pkey = \"0x8000\""),
        format!("t.toml:4:8: P_Key 0x8000 names partition 0, which is invalid; {use_these}")
    );
    assert_eq!(
        device_fault("pkey = 65536"),
        format!("t.toml:4:8: P_Key 0x10000 is out of range; {use_these}")
    );
    assert_eq!(
        device_fault("pkey = \"+1\""),
        "t.toml:4:8: \"+1\" is not a P_Key; use a number such as 0xffff"
    );
    assert_eq!(
        device_fault("qkey = 0x80010000"),
        "t.toml:4:8: Q_Key 0x80010000 is out of range; use 0x00000000 to 0x7fffffff"
    );
    assert_eq!(
        port_fault("pkeys = [0xffff, 0]"),
        format!("t.toml:2:18: P_Key 0x0000 names partition 0, which is invalid; {use_these}")
    );
}

#[test]
fn names() {
    let name = |name: &str| {
        let text = format!("[[device]]\nunderlay = \"eth0\"\nname = {name:?}\n");
        parse(&text).unwrap_err()
    };
    assert_eq!(
        name("infiniband-number-0"),
        "t.toml:3:8: the interface name \"infiniband-number-0\" has 19 characters; the kernel \
         takes at most 15"
    );
    assert_eq!(
        name("ib 0"),
        "t.toml:3:8: the interface name \"ib 0\" holds ' '; the kernel takes no \"/\", \":\", \
         \"%\" or space"
    );
    assert_eq!(name(""), "t.toml:3:8: an interface name cannot be empty");
    assert_eq!(
        name(".."),
        "t.toml:3:8: \"..\" cannot be the name of an interface"
    );
    assert_eq!(
        name("eth0"),
        "t.toml:2:12: the device \"eth0\" cannot be its own underlay"
    );
    assert_eq!(
        parse(&format!("[port.\"a/b\"]\n{DEVICE}")).unwrap_err(),
        "t.toml:1:7: \"b\" is not a port of an RDMA device; they are numbered from 1"
    );
}

#[test]
fn sizes() {
    assert_eq!(
        device_fault("mtu = 71"),
        "t.toml:4:7: an MTU of 71 bytes is out of range; use 72 to 65520"
    );
    assert_eq!(
        device_fault("mtu = 65521"),
        "t.toml:4:7: an MTU of 65521 bytes is out of range; use 72 to 65520"
    );
    assert_eq!(
        device_fault("queues = 0"),
        "t.toml:4:10: 0 queues are out of range; use 1 to 256"
    );
    assert_eq!(
        device_fault("connections = 16385"),
        "t.toml:4:15: 16385 connections are out of range; use 0 to 16384"
    );
    assert_eq!(
        device_fault("connections = \"many\""),
        "t.toml:4:15: \"many\" is not a number of connections"
    );
    let connections = |text: &str| {
        let config = parse(&format!("{DEVICE}{text}")).unwrap();
        config.devices[0].connections
    };
    assert_eq!(connections(""), 4096);
    assert_eq!(connections("connections = 0"), 0);
    assert_eq!(connections("connections = \"16384\""), 16_384);
    assert_eq!(
        port_fault("link_mtu = 75"),
        "t.toml:2:12: a link MTU of 75 bytes is out of range; use 76 to 65524"
    );
    assert_eq!(
        port_fault("busy_poll = 1001"),
        "t.toml:2:13: a busy poll of 1001 microseconds is out of range; use 0 to 1000"
    );
    assert_eq!(
        port_fault("link_mtu = \"big\""),
        "t.toml:2:12: \"big\" is not a link MTU; use \"auto\", \"exact\" or a number of bytes"
    );
}

#[test]
fn duplicates() {
    assert_eq!(
        parse(&format!("{DEVICE}{DEVICE}pkey = 0x8001")).unwrap_err(),
        "t.toml:5:8: another device is named \"ib0\" already"
    );
    let in_blue = "netns = \"blue\"\n";
    assert_eq!(
        parse(&format!("{DEVICE}{in_blue}{DEVICE}{in_blue}")).unwrap_err(),
        "t.toml:6:8: another device in the namespace \"blue\" is named \"ib0\" already"
    );
    let config = parse(&format!("{DEVICE}{in_blue}{DEVICE}")).unwrap();
    let keys = config.devices.iter().map(|d| d.key().to_string());
    assert_eq!(keys.collect::<Vec<_>>(), ["blue/ib0", "ib0"]);
}

#[test]
fn interfaces_of_one_partition_share_a_port() {
    let second = "[[device]]\nname = \"ib1\"\nunderlay = \"eth0\"\n";
    let config = parse(&format!("{DEVICE}{second}")).unwrap();
    assert_eq!(config.devices[0].pkey, config.devices[1].pkey);
}

#[test]
fn children_are_devices_behind_their_parent() {
    let config = parse(&format!(
        "{DEVICE}mode = \"connected\"\nconnections = 7\nqkey = 5\npersist = true\nmtu = 9000\n\
         queues = 2\nqpn = 0x4a\nup = false\ndhcp = \"off\"\nreflect = true\nvlan_pkey = true\n\
         children = [1, \"0x8002\", {{ pkey = 3, name = \"storage\", mode = \"datagram\", \
         netns = \"blue\", mtu = 2044, queues = 4, up = true }}]\n\
         [[device]]\nname = \"ib1\"\nunderlay = \"eth1\"\n"
    ))
    .unwrap();
    let names: Vec<_> = config.devices.iter().map(|d| &*d.name).collect();
    assert_eq!(names, ["ib0", "ib0.8001", "ib0.8002", "storage", "ib1"]);
    let plain = &config.devices[1];
    let expected = DeviceConfig {
        parent: Some("ib0".into()),
        mode: Mode::Connected,
        connections: 7,
        // A child is a full member, however its P_Key is written.
        pkey: PKey::new(0x8001),
        qkey: QKey::new(5),
        queues: Some(1),
        persist: true,
        up: false,
        dhcp: DhcpMode::Off,
        reflect: true,
        ..DeviceConfig::new("ib0.8001", on("eth0"))
    };
    assert_eq!(*plain, expected);
    let full = &config.devices[3];
    let expected = DeviceConfig {
        name: "storage".into(),
        netns: Some("blue".into()),
        mode: Mode::Datagram,
        mtu: Some(2044),
        queues: Some(4),
        pkey: PKey::new(0x8003),
        up: true,
        ..expected
    };
    assert_eq!(*full, expected);
    assert!(config.devices[0].vlan_pkey);
}

#[test]
fn children_go_where_their_parent_is() {
    let config = parse(&format!("{DEVICE}netns = \"blue\"\nchildren = [0x8001]")).unwrap();
    assert_eq!(config.devices[1].key().to_string(), "blue/ib0.8001");
}

#[test]
fn children_that_cannot_be() {
    let use_these = "use 0x0001 to 0x7fff or 0x8001 to 0xffff";
    let fault = |children: &str| device_fault(&format!("children = {children}"));
    assert_eq!(
        fault("[0x8001, 0x8000]"),
        format!("t.toml:4:21: P_Key 0x8000 names partition 0, which is invalid; {use_these}")
    );
    assert_eq!(
        fault("[{ pkey = 0 }]"),
        format!("t.toml:4:22: P_Key 0x0000 names partition 0, which is invalid; {use_these}")
    );
    assert_eq!(
        fault("[-1]"),
        "t.toml:4:13: -1 is negative; expected a P_Key such as 0xffff"
    );
    assert_eq!(
        fault("[true]"),
        "t.toml:4:13: invalid type: boolean `true`, expected a P_Key such as 0x8001, or a table \
         with one"
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
        "t.toml:4:40: another device is named \"ib0\" already"
    );
    assert_eq!(
        fault("[{ pkey = 1, children = [2] }]"),
        "t.toml:4:36: a child cannot have children; list them beside it"
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
    let twins = format!("{DEVICE}netns = \"blue\"\n{DEVICE}children = [1]\n");
    assert_eq!(
        parse(&twins).unwrap_err(),
        "t.toml:8:13: \"ib0\" has children, and another namespace has a device of that name; \
         give one of them another name"
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

#[test]
fn namespaces_are_named_like_files() {
    let netns = |name: &str| device_fault(&format!("netns = {name:?}"));
    for name in ["", ".", "..", "a/b"] {
        assert!(
            netns(name).starts_with("t.toml:4:9: "),
            "{name}: {}",
            netns(name)
        );
    }
    let long = "n".repeat(256);
    assert_eq!(
        netns(&long),
        "t.toml:4:9: the name of a network namespace has 256 bytes; a file name has at most 255"
    );
}

#[test]
fn ports_fit_their_devices() {
    assert_eq!(
        parse(&format!("{DEVICE}[port.eth1]")).unwrap_err(),
        "t.toml:4:7: no device has the underlay \"eth1\"; add one, or take [port.eth1] out"
    );
    assert_eq!(
        port_fault("pkeys = []"),
        "t.toml:2:9: pkeys is empty; list some, or leave it out to have what the devices ask for"
    );
    // A device whose partition the table lacks waits for it.
    assert!(parse(&format!("[port.eth0]\npkeys = [0x8001]\n{DEVICE}")).is_ok());
    assert_eq!(
        parse("log_level = \"info\"").unwrap_err(),
        "t.toml: there is neither a [[device]] nor a [[vnic]]; describe at least one with a name and an \
         underlay"
    );
}

#[test]
fn gids_and_peers() {
    assert_eq!(
        port_fault("gid = \"ipv4\""),
        "t.toml:2:7: an IPv4 GID needs peers, since IPoIB's multicast GIDs are IPv6 addresses; \
         list the other hosts' addresses in peers, or use an IPv6 GID"
    );
    assert!(port_fault("gid = \"192.0.2.1\"").contains("needs peers"));
    assert!(port_fault("gid = \"::ffff:192.0.2.1\"").contains("needs peers"));
    assert_eq!(
        port_fault("peers = [\"192.0.2.2\"]"),
        "t.toml:2:9: peer 192.0.2.2 is an IPv4 address but the port's GID is an IPv6 one; use \
         gid \"ipv4\", or the peer's IPv6 address"
    );
    assert_eq!(
        port_fault("gid = \"ipv4\"\npeers = [\"fe80::1\"]"),
        "t.toml:3:9: peer fe80::1 is an IPv6 address but the port's GID is an IPv4 one; use gid \
         \"auto\", or the peer's IPv4 address"
    );
    assert_eq!(
        port_fault("peers = [\"ff02::1\"]"),
        "t.toml:2:10: peer ff02::1 is not a unicast address"
    );
    assert_eq!(
        port_fault("peers = [\"host.example\"]"),
        "t.toml:2:10: peer \"host.example\" is not an IPv6 or IPv4 address"
    );
    assert_eq!(
        port_fault("gid = \"ff02::1\""),
        "t.toml:2:7: ff02::1 is not a unicast address of one interface"
    );
    assert_eq!(
        port_fault("gid = \"eui64\""),
        "t.toml:2:7: \"eui64\" is not a GID; use \"auto\", \"ipv4\", an IPv6 or IPv4 address, or an \
         index"
    );
}

const RDMA: &str = "[[device]]\nname = \"ib0\"\nrdma = \"mlx5_0\"\n";

fn rdma(device: &str, port: u8) -> PortName {
    let device = device.into();
    PortName::Rdma { device, port }
}

/// What a file with this `[port."mlx5_0/1"]` is refused for.
fn rdma_fault(settings: &str) -> String {
    parse(&format!("[port.\"mlx5_0/1\"]\n{settings}\n{RDMA}")).unwrap_err()
}

#[test]
fn rdma_devices() {
    let config = parse(&format!(
        "[port.\"mlx5_0/1\"]\ngid = 3\nlink_mtu = 2048\nbusy_poll = 7\nkernel_peers = true\n\
         [port.\"mlx5_0/1\".lids]\n\"fe80::2\" = 7\n\"ff12:401b:ffff::ffff:ffff\" = \"0xc000\"\n\
         {RDMA}[[device]]\nname = \"ib1\"\nrdma = \"mlx5_0/2\"\nqueues = 1\nqpn = \"random\"\n"
    ))
    .unwrap();
    let gid = |text: &str| text.parse::<fabric::Gid>().unwrap();
    let expected = PortConfig {
        gid: GidChoice::Index(3),
        link_mtu: LinkMtu::Bytes(2048),
        busy_poll: BusyPoll::from_micros(7).unwrap(),
        kernel_peers: true,
        lids: [
            (gid("fe80::2"), fabric::Lid(7)),
            (gid("ff12:401b:ffff::ffff:ffff"), fabric::Lid(0xc000)),
        ]
        .into(),
        ..PortConfig::default()
    };
    assert_eq!(config.ports[&rdma("mlx5_0", 1)], expected);
    assert_eq!(config.ports[&rdma("mlx5_0", 2)], PortConfig::default());
    let [ib0, ib1] = &config.devices[..] else {
        panic!("{:?}", config.devices);
    };
    assert_eq!(*ib0, DeviceConfig::new("ib0", rdma("mlx5_0", 1)));
    assert_eq!((ib0.queue_count(), ib1.queue_count()), (1, 1));
    // A device of any name: the interface's own is another's.
    assert!(parse("[[device]]\nname = \"rxe0\"\nrdma = \"rxe0\"").is_ok());
}

#[test]
fn what_an_rdma_device_does_not_have() {
    let fault = |tail: &str| parse(&format!("{RDMA}{tail}")).unwrap_err();
    assert_eq!(
        fault("queues = 2"),
        "t.toml:4:10: 2 queues: an interface on an RDMA device has one queue pair, and so one \
         queue; leave queues out"
    );
    assert_eq!(
        fault("children = [{ pkey = 1, queues = 2 }]"),
        "t.toml:4:34: 2 queues: an interface on an RDMA device has one queue pair, and so one \
         queue; leave queues out"
    );
    assert_eq!(
        fault("qpn = 0x4a"),
        "t.toml:4:7: an RDMA device draws queue pair numbers itself, and cannot be asked for \
         0x00004a; leave qpn out"
    );
    assert_eq!(
        fault("underlay = \"eth0\""),
        "t.toml:3:8: a device is on an underlay or on an RDMA device, not on both; leave one out"
    );
    for (settings, expected) in [
        (
            "gid = \"ipv4\"",
            "t.toml:2:7: an RDMA device cannot have an IPv4 GID here, since IPoIB's multicast GIDs \
             are IPv6 addresses; use \"auto\", an IPv6 address or an index",
        ),
        (
            "peers = [\"fe80::2\"]",
            "t.toml:2:9: an RDMA device sends multicast to groups, and no copies to peers; leave \
             peers out",
        ),
        (
            "pkeys = [0xffff]",
            "t.toml:2:9: the P_Key table of an RDMA device is its subnet manager's, or fixed; leave \
             pkeys out",
        ),
        (
            "link_mtu = \"exact\"",
            "t.toml:2:12: the packets of an RDMA device have IB MTUs: use \"auto\" or a number of \
             bytes",
        ),
        (
            "link_mtu = 4097",
            "t.toml:2:12: a link MTU of 4097 bytes is over the largest IB MTU; use 76 to 4096",
        ),
        (
            "gid = 256",
            "t.toml:2:7: the GID index 256 is out of range; use 0 to 255",
        ),
        (
            "lids = { \"fe80::2\" = 0 }",
            "t.toml:2:22: the LID 0x0 is out of range; use 0x0001 to 0xfffe",
        ),
        (
            "lids = { \"fe80::2\" = 0xc000 }",
            "t.toml:2:10: fe80::2 is the GID of a port, whose LID is 0x0001 to 0xbfff, not 0xc000",
        ),
        (
            "lids = { \"ff12::1\" = 3 }",
            "t.toml:2:10: ff12::1 is a multicast GID, whose LID is 0xc000 to 0xfffe, not 0x0003",
        ),
        (
            "lids = { mlx5_1 = 3 }",
            "t.toml:2:10: \"mlx5_1\" is not a GID, as IPv6 addresses are written",
        ),
    ] {
        assert_eq!(rdma_fault(settings), expected, "{settings}");
    }
}

#[test]
fn what_an_underlay_does_not_have() {
    assert_eq!(
        port_fault("gid = 1"),
        "t.toml:2:7: GID index 1: only the GID table of an RDMA device has indexes; name an address \
         of the underlay"
    );
    assert_eq!(
        port_fault("lids = { \"fe80::2\" = 3 }"),
        "t.toml:2:8: there are LIDs on InfiniBand only; leave lids out for an underlay"
    );
    assert_eq!(
        port_fault("kernel_peers = true"),
        "t.toml:2:16: an underlay takes the kernel's requests for connections as any others; leave \
         kernel_peers out"
    );
}

#[test]
fn names_of_rdma_devices() {
    let fault =
        |name: &str| parse(&format!("[[device]]\nname = \"ib0\"\nrdma = {name:?}\n")).unwrap_err();
    let listed = "rdma link lists them";
    assert_eq!(
        fault(""),
        format!("t.toml:3:8: the name of an RDMA device cannot be empty; {listed}")
    );
    assert_eq!(
        fault("mlx5 0"),
        format!(
            "t.toml:3:8: \"mlx5 0\" cannot be the name of an RDMA device; {listed}, such as mlx5_0"
        )
    );
    for port in ["0", "255", "one", "1/1", ""] {
        assert_eq!(
            fault(&format!("mlx5_0/{port}")),
            format!(
                "t.toml:3:8: {port:?} is not a port of an RDMA device; they are numbered from 1"
            )
        );
    }
    assert_eq!(
        parse(&format!("[port.\"mlx5_0/2\"]\n{RDMA}")).unwrap_err(),
        "t.toml:1:7: no device has the rdma \"mlx5_0/2\"; add one, or take [port.\"mlx5_0/2\"] out"
    );
    assert_eq!(
        parse(&format!("[port.mlx5_0]\n{RDMA}")).unwrap_err(),
        "t.toml:1:7: no device has the underlay \"mlx5_0\"; for the RDMA device of that name write \
         [port.\"mlx5_0/1\"]"
    );
    assert_eq!(
        parse(&format!(
            "[port.\"mlx5_0/1\"]\n[port.\"mlx5_0/0x1\"]\n{RDMA}"
        ))
        .unwrap_err(),
        "t.toml:1:7: [port.\"mlx5_0/1\"] is there twice"
    );
    for name in ["eth0", "mlx5_0/1"] {
        assert_eq!(PortName::parse(name).unwrap().to_string(), name);
    }
    assert_eq!(PortName::of_running("soft/eth0"), Some(on("eth0")));
    assert_eq!(PortName::of_running("rxe0/1"), Some(rdma("rxe0", 1)));
}

#[test]
fn columns_count_characters() {
    assert_eq!(position("a\nä b", 5), (2, 3));
    assert_eq!(position("", 0), (1, 1));
    assert!(device_fault("mode = \"größe\" # é\nmtu = 1").starts_with("t.toml:4:8: "));
}
