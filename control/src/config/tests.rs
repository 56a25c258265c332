mod children;
mod ports;
mod vnics;

use proto::{ClaimCheck, DhcpMode, Inspect, Mode, MssChoice, PKey, QKey, Qpn};

use super::*;

const IPOIB: &str = "[[ipoib]]\nname = \"ib0\"\nunderlay = \"eth0\"\n";

fn on(underlay: &str) -> PortName {
    PortName::Underlay(underlay.into())
}

fn parse(text: &str) -> Result<Config, String> {
    Config::parse(text, "t.toml").map_err(|error| error.to_string())
}

/// The error for a file with `tail` at the end of an IPoIB interface's table.
fn ipoib_fault(tail: &str) -> String {
    parse(&format!("{IPOIB}{tail}")).unwrap_err()
}

/// The error for a file with this `[port.eth0]`.
fn port_fault(settings: &str) -> String {
    parse(&format!("[port.eth0]\n{settings}\n{IPOIB}")).unwrap_err()
}

#[test]
fn the_packaged_configuration_is_that_of_one_interface() {
    let packaged = parse(include_str!("../../../packaging/ibtapd.toml")).unwrap();
    assert_eq!(packaged, parse(IPOIB).unwrap());
}

#[test]
fn the_example_is_valid_and_shows_every_key() {
    let text = include_str!("../../../docs/ibtapd.example.toml");
    let config = parse(text).unwrap();
    assert!(config.ipoib.len() > 1 && config.vnics.len() > 1);
    // Comments show the keys that the example leaves at their defaults.
    for key in [
        "socket",
        "log_level",
        "sandbox",
        "group_access",
        "metrics",
        "gid",
        "peers",
        "link_mtu",
        "busy_poll",
        "rx_usecs",
        "rx_frames",
        "pkeys",
        "kernel_peers",
        "sa",
        "cm",
        "name",
        "underlay",
        "rdma",
        "mode",
        "pkey",
        "qkey",
        "qpn",
        "mtu",
        "mss",
        "trust_checksums",
        "queues",
        "persist",
        "up",
        "dhcp",
        "claims",
        "refuse_requests",
        "inspect",
        "neighbours",
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
        "management_key",
        "vnic_create",
        "allow",
    ] {
        assert!(text.contains(&format!("{key} = ")), "{key} is not shown");
    }
}

#[test]
fn the_shortest_file_has_the_defaults() {
    let config = parse(IPOIB).unwrap();
    assert_eq!(config.ipoib, [IpoibConfig::new("ib0", on("eth0"))]);
    assert_eq!(config.ports[&on("eth0")], PortConfig::default());
    assert_eq!(config.socket, PathBuf::from("/run/ibtap/ibtapd.sock"));
    assert_eq!(config.log_level, LogLevel::Info);
}

#[test]
fn keys_may_be_numbers_or_strings() {
    for pkey in ["0x8001", "32769", "\"0x8001\"", "\"32769\""] {
        let config = parse(&format!("{IPOIB}pkey = {pkey}")).unwrap();
        assert_eq!(config.ipoib[0].pkey, PKey::new(0x8001));
    }
    let config = parse(&format!("{IPOIB}qkey = 0x1234")).unwrap();
    assert_eq!(config.ipoib[0].qkey, QKey::new(0x1234));
}

#[test]
fn queue_pair_numbers() {
    let chosen = |qpn: &str| parse(&format!("{IPOIB}qpn = {qpn}")).unwrap().ipoib[0].qpn;
    assert_eq!(chosen("\"stable\""), QpnChoice::Stable);
    assert_eq!(chosen("\"random\""), QpnChoice::Random);
    for number in ["0xabcdef", "\"0xabcdef\"", "11259375"] {
        assert_eq!(chosen(number), QpnChoice::Number(Qpn::new(0xabcdef)));
    }
    assert_eq!(
        ipoib_fault("qpn = 1"),
        "t.toml:4:7: the queue pair number 0x1 is out of range; use 0x000002 to 0xfffffe"
    );
    assert_eq!(
        ipoib_fault("qpn = 0x1000002"),
        "t.toml:4:7: the queue pair number 0x1000002 is out of range; use 0x000002 to 0xfffffe"
    );
    assert_eq!(
        ipoib_fault("qpn = \"fixed\""),
        "t.toml:4:7: \"fixed\" is not a queue pair number; use \"stable\", \"random\" or a number"
    );
    let second = |underlay: &str| {
        let name = "[[ipoib]]\nname = \"ib1\"\npkey = 0x8001\nqpn = 0x4a";
        parse(&format!(
            "{IPOIB}qpn = 0x4a\n{name}\nunderlay = {underlay:?}"
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
         [[ipoib]]\nname = \"ib0\"\nunderlay = \"eth0\"\n\
         [[ipoib]]\nname = \"ib1\"\nunderlay = \"eth0\"\npkey = 0x8001\n\
         [[ipoib]]\nname = \"ib2\"\nunderlay = \"eth1\"\n",
    )
    .unwrap();
    assert_eq!(config.ipoib.len(), 3);
    assert_eq!(config.ports.len(), 2);
    let port = &config.ports[&on("eth0")];
    assert_eq!(port.pkeys, Some(vec![PKey::new(0xffff), PKey::new(1)]));
    assert_eq!(port.gid, GidChoice::Ipv4);
}

#[test]
fn unknown_keys() {
    assert_eq!(
        ipoib_fault("mtuu = 2044"),
        "t.toml:4:1: unknown key `mtuu`, expected one of `name`, `underlay`, `rdma`, `mode`, \
         `connections`, `pkey`, `qkey`, `qpn`, `mtu`, `mss`, `trust_checksums`, `queues`, \
         `persist`, `up`, `dhcp`, `claims`, `refuse_requests`, `inspect`, `neighbours`, `reflect`, `netns`, `vlan_pkey`, `children`"
    );
    assert_eq!(
        port_fault("gids = 1"),
        "t.toml:2:1: unknown key `gids`, expected one of `gid`, `peers`, `link_mtu`, `busy_poll`, \
         `rx_usecs`, `rx_frames`, \
         `pkeys`, `sa`, `kernel_peers`, `cm`, `managers`, `management_key`, `vnic_create`, `allow`"
    );
    assert_eq!(
        parse("sockets = 1").unwrap_err(),
        "t.toml:1:1: unknown key `sockets`, expected one of `socket`, `log_level`, `sandbox`, \
         `group_access`, `metrics`, `port`, `ipoib`, `vnic`"
    );
}

#[test]
fn the_error_for_an_old_file_has_the_new_name() {
    assert_eq!(
        parse("log_level = \"info\"\n\n[[device]]\nname = \"ib0\"\nunderlay = \"eth0\"\n")
            .unwrap_err(),
        "t.toml:3:3: [[device]] is named [[ipoib]] now; rename the table"
    );
    assert!(ipoib_fault("device = 1").starts_with("t.toml:4:1: unknown key `device`, expected"));
}

#[test]
fn wrong_types() {
    assert_eq!(
        ipoib_fault("persist = \"yes\""),
        "t.toml:4:11: invalid type: string \"yes\", expected a boolean"
    );
    assert_eq!(
        ipoib_fault("mtu = true"),
        "t.toml:4:7: invalid type: boolean `true`, expected a number of bytes"
    );
    assert_eq!(
        ipoib_fault("mtu = -1"),
        "t.toml:4:7: -1 is negative; expected a number of bytes"
    );
    assert_eq!(
        ipoib_fault("mode = \"turbo\""),
        "t.toml:4:8: unknown value `turbo`, expected `datagram` or `connected`"
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
        parse("[[ipoib]]\nname = \"ib0\"").unwrap_err(),
        "t.toml:1:1: the interface has no port; add `underlay`, an Ethernet interface, or `rdma`, an RDMA \
         device such as \"mlx5_0\""
    );
    assert_eq!(
        parse("[[ipoib]\n").unwrap_err(),
        "t.toml:1:9: unclosed array table, expected `]`"
    );
}

#[test]
fn keys_out_of_range() {
    let use_these = "use 0x0001 to 0x7fff or 0x8001 to 0xffff";
    assert_eq!(
        ipoib_fault("pkey = 0"),
        format!("t.toml:4:8: P_Key 0x0000 selects partition 0, which is invalid; {use_these}")
    );
    assert_eq!(
        ipoib_fault("pkey = \"0x8000\""),
        format!("t.toml:4:8: P_Key 0x8000 selects partition 0, which is invalid; {use_these}")
    );
    assert_eq!(
        ipoib_fault("pkey = 65536"),
        format!("t.toml:4:8: P_Key 0x10000 is out of range; {use_these}")
    );
    assert_eq!(
        ipoib_fault("pkey = \"+1\""),
        "t.toml:4:8: \"+1\" is not a P_Key; use a number such as 0xffff"
    );
    assert_eq!(
        ipoib_fault("qkey = 0x80010000"),
        "t.toml:4:8: Q_Key 0x80010000 is out of range; use 0x00000000 to 0x7fffffff"
    );
    assert_eq!(
        port_fault("pkeys = [0xffff, 0]"),
        format!("t.toml:2:18: P_Key 0x0000 selects partition 0, which is invalid; {use_these}")
    );
}

proptest::proptest! {
    #[test]
    fn a_name_in_the_file_is_one_for_the_kernel(name in "\\PC{1,6}") {
        if values::parse_interface(&name).is_ok() {
            assert_eq!(rtnl::name_fault(&name), None);
        }
    }
}

#[test]
fn names() {
    let name = |name: &str| {
        let text = format!("[[ipoib]]\nunderlay = \"eth0\"\nname = {name:?}\n");
        parse(&text).unwrap_err()
    };
    assert_eq!(
        name("infiniband-number-0"),
        "t.toml:3:8: the interface name \"infiniband-number-0\" has 19 characters; the kernel \
         takes at most 15"
    );
    assert_eq!(
        name("ib 0"),
        "t.toml:3:8: the interface name \"ib 0\" contains ' '; use no \"/\", \":\", \"%\" or space"
    );
    assert_eq!(
        name("ib\u{e0}"),
        "t.toml:3:8: the interface name \"ib\u{e0}\" contains '\u{e0}', whose byte 0xa0 is a space for the kernel; \
         use no \"/\", \":\", \"%\" or space"
    );
    assert_eq!(name(""), "t.toml:3:8: an interface name cannot be empty");
    assert_eq!(
        name(".."),
        "t.toml:3:8: \"..\" cannot be the name of an interface"
    );
    assert_eq!(
        name("eth0"),
        "t.toml:2:12: the interface \"eth0\" cannot be its own underlay"
    );
    assert_eq!(
        parse(&format!("[port.\"a/b\"]\n{IPOIB}")).unwrap_err(),
        "t.toml:1:7: \"b\" is not a port of an RDMA device; ports are numbered from 1"
    );
}

#[test]
fn sizes() {
    assert_eq!(
        ipoib_fault("mtu = 71"),
        "t.toml:4:7: an MTU of 71 bytes is out of range; use 72 to 65520"
    );
    assert_eq!(
        ipoib_fault("mtu = 65521"),
        "t.toml:4:7: an MTU of 65521 bytes is out of range; use 72 to 65520"
    );
    assert_eq!(
        ipoib_fault("queues = 0"),
        "t.toml:4:10: 0 queues are out of range; use 1 to 256"
    );
    assert_eq!(
        ipoib_fault("connections = 16385"),
        "t.toml:4:15: 16385 connections are out of range; use 0 to 16384"
    );
    assert_eq!(
        ipoib_fault("connections = \"many\""),
        "t.toml:4:15: \"many\" is not a number of connections"
    );
    let connections = |text: &str| {
        let config = parse(&format!("{IPOIB}{text}")).unwrap();
        config.ipoib[0].connections
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
        port_fault("rx_usecs = 65536"),
        "t.toml:2:12: 65536 is out of range; use 0 to 65535"
    );
    assert_eq!(
        port_fault("rx_frames = \"few\""),
        "t.toml:2:13: \"few\" is not a number"
    );
    assert_eq!(
        port_fault("link_mtu = \"big\""),
        "t.toml:2:12: \"big\" is not a link MTU; use \"auto\", \"exact\" or a number of bytes"
    );
}

#[test]
fn duplicates() {
    assert_eq!(
        parse(&format!("{IPOIB}{IPOIB}pkey = 0x8001")).unwrap_err(),
        "t.toml:5:8: another interface is named \"ib0\" already"
    );
    let in_blue = "netns = \"blue\"\n";
    assert_eq!(
        parse(&format!("{IPOIB}{in_blue}{IPOIB}{in_blue}")).unwrap_err(),
        "t.toml:6:8: another interface in the namespace \"blue\" is named \"ib0\" already"
    );
    let config = parse(&format!("{IPOIB}{in_blue}{IPOIB}")).unwrap();
    let keys = config.ipoib.iter().map(|d| d.key().to_string());
    assert_eq!(keys.collect::<Vec<_>>(), ["blue/ib0", "ib0"]);
}

#[test]
fn interfaces_of_one_partition_share_a_port() {
    let second = "[[ipoib]]\nname = \"ib1\"\nunderlay = \"eth0\"\n";
    let config = parse(&format!("{IPOIB}{second}")).unwrap();
    assert_eq!(config.ipoib[0].pkey, config.ipoib[1].pkey);
}

#[test]
fn namespaces_are_named_like_files() {
    let netns = |name: &str| ipoib_fault(&format!("netns = {name:?}"));
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
fn columns_count_characters() {
    assert!(ipoib_fault("mode = \"größe\" # é\nmtu = 1").starts_with("t.toml:4:8: "));
}

#[test]
fn neighbours_with_certain_addresses() {
    let keys = "inspect = \"enforce\"\nneighbours = [{ ip = \"10.0.0.2\", gid = \"fe80::2\" }, \
                { ip = \"fd00::3\", gid = \"fe80::3\", qpn = \"0x1234\" }]";
    let config = parse(&format!("{IPOIB}{keys}")).unwrap();
    let neighbours = &config.ipoib[0].neighbours;
    let shown = neighbours
        .iter()
        .map(|n| (n.ip.to_string(), n.gid.to_string(), n.qpn));
    let expected = [
        ("10.0.0.2".to_owned(), "fe80::2".to_owned(), None),
        (
            "fd00::3".to_owned(),
            "fe80::3".to_owned(),
            Some(Qpn::new(0x1234)),
        ),
    ];
    assert_eq!(shown.collect::<Vec<_>>(), expected);
    let fault =
        |neighbours: &str| ipoib_fault(&format!("inspect = \"warn\"\nneighbours = [{neighbours}]"));
    let one = "{ ip = \"10.0.0.2\", gid = \"fe80::2\" }";
    assert_eq!(
        fault(&format!("{one}, {one}")),
        "t.toml:5:53: 10.0.0.2 occurs twice in neighbours; remove one"
    );
    assert_eq!(
        fault("{ ip = \"239.0.0.1\", gid = \"fe80::2\" }"),
        "t.toml:5:22: 239.0.0.1 cannot be the address of a neighbour"
    );
    assert_eq!(
        fault("{ ip = \"ib1\", gid = \"fe80::2\" }"),
        "t.toml:5:22: \"ib1\" is not an IPv4 or IPv6 address"
    );
    assert!(ipoib_fault(&format!("neighbours = [{one}]")).ends_with(
        "inspect is \"off\", so neighbours has no effect; set inspect to \"warn\" or \"enforce\""
    ));
}
