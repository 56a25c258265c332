//! `[port.…]`, and the ports of interfaces.

use proto::{CmChoice, SaChoice};

use super::*;

#[test]
fn ports_fit_their_devices() {
    assert_eq!(
        parse(&format!("{IPOIB}[port.eth1]")).unwrap_err(),
        "t.toml:4:7: no interface has the underlay \"eth1\"; add one, or remove [port.eth1]"
    );
    assert_eq!(
        port_fault("pkeys = []"),
        "t.toml:2:9: pkeys is empty; list P_Keys, or leave pkeys out to use those of the interfaces"
    );
    // An interface waits until the table has its partition.
    assert!(parse(&format!("[port.eth0]\npkeys = [0x8001]\n{IPOIB}")).is_ok());
    assert_eq!(
        parse("log_level = \"info\"").unwrap_err(),
        "t.toml: the file has no [[ipoib]] and no [[vnic]]; add at least one with a name and an underlay"
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

const RDMA: &str = "[[ipoib]]\nname = \"ib0\"\nrdma = \"mlx5_0\"\n";

fn rdma(device: &str, port: u8) -> PortName {
    let device = device.into();
    PortName::Rdma { device, port }
}

/// The error for a file with this `[port."mlx5_0/1"]`.
fn rdma_fault(settings: &str) -> String {
    parse(&format!("[port.\"mlx5_0/1\"]\n{settings}\n{RDMA}")).unwrap_err()
}

#[test]
fn rdma_devices() {
    let config = parse(&format!(
        "[port.\"mlx5_0/1\"]\ngid = 3\nlink_mtu = 2048\nbusy_poll = 7\nkernel_peers = true\n\
         sa = \"umad\"\ncm = \"rdma_cm\"\n\
         {RDMA}[[ipoib]]\nname = \"ib1\"\nrdma = \"mlx5_0/2\"\nqueues = 3\nqpn = \"random\"\n"
    ))
    .unwrap();
    let expected = PortConfig {
        gid: GidChoice::Index(3),
        link_mtu: LinkMtu::Bytes(2048),
        busy_poll: BusyPoll::from_micros(7).unwrap(),
        kernel_peers: true,
        sa: Some(SaChoice::Umad),
        cm: CmChoice::RdmaCm,
        ..PortConfig::default()
    };
    assert_eq!(config.ports[&rdma("mlx5_0", 1)], expected);
    assert_eq!(config.ports[&rdma("mlx5_0", 2)], PortConfig::default());
    let [ib0, ib1] = &config.ipoib[..] else {
        panic!("{:?}", config.ipoib);
    };
    assert_eq!(*ib0, IpoibConfig::new("ib0", rdma("mlx5_0", 1)));
    assert_eq!((ib0.queue_count(), ib1.queue_count()), (1, 3));
    // The interface and the RDMA device may have the same name.
    assert!(parse("[[ipoib]]\nname = \"rxe0\"\nrdma = \"rxe0\"").is_ok());
}

#[test]
fn what_an_rdma_device_does_not_have() {
    let fault = |tail: &str| parse(&format!("{RDMA}{tail}")).unwrap_err();
    assert_eq!(
        fault("qpn = 0x4a"),
        "t.toml:4:7: an RDMA device chooses queue pair numbers itself and cannot use 0x00004a; leave \
         qpn out"
    );
    assert_eq!(
        fault("underlay = \"eth0\""),
        "t.toml:3:8: the interface has both `underlay` and `rdma`; leave one of them out"
    );
    for (settings, expected) in [
        (
            "gid = \"ipv4\"",
            "t.toml:2:7: an RDMA device cannot have an IPv4 GID here, since IPoIB's multicast GIDs \
             are IPv6 addresses; use \"auto\", an IPv6 address or an index",
        ),
        (
            "peers = [\"fe80::2\"]",
            "t.toml:2:9: an RDMA device sends multicast to groups, not as copies to peers; leave \
             peers out",
        ),
        (
            "pkeys = [0xffff]",
            "t.toml:2:9: ibtapd cannot set the P_Key table of an RDMA device; leave pkeys out",
        ),
        (
            "link_mtu = \"exact\"",
            "t.toml:2:12: \"exact\" is for the software fabric only; use \"auto\" or a number of bytes",
        ),
        (
            "link_mtu = 4097",
            "t.toml:2:12: a link MTU of 4097 bytes exceeds the largest IB MTU; use 76 to 4096",
        ),
        (
            "gid = 256",
            "t.toml:2:7: the GID index 256 is out of range; use 0 to 255",
        ),
        (
            "sa = \"none\"",
            "t.toml:2:6: an InfiniBand port needs the subnet administrator, and a RoCE port has none; leave \
             sa out",
        ),
        (
            "sa = \"opensm\"",
            "t.toml:2:6: \"opensm\" is no way to a subnet administrator; use \"none\", \"umad\", or the \
             address of the administrator's port",
        ),
        (
            "sa = \"fe80::1\"",
            "t.toml:2:6: an RDMA device reaches the subnet administrator by umad, at the LID of the subnet \
             manager; leave sa out",
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
        port_fault("kernel_peers = true"),
        "t.toml:2:16: connection requests of the kernel's IPoIB reach ibtapd on an underlay; leave \
         kernel_peers out"
    );
    assert_eq!(
        port_fault("cm = \"off\""),
        "t.toml:2:6: connections on an underlay are always managed by ibtapd; leave cm out"
    );
}

#[test]
fn the_subnet_administrator_of_an_underlay() {
    let sa_of = |settings: &str| {
        let config = parse(&format!("[port.eth0]\n{settings}\n{IPOIB}")).unwrap();
        config.ports[&PortName::Underlay("eth0".into())].sa
    };
    let at = |gid: &str| Some(SaChoice::Port(gid.parse().unwrap()));
    assert_eq!(sa_of("sa = \"fe80::1\""), at("fe80::1"));
    let ipv4 = "gid = \"ipv4\"\npeers = [\"192.0.2.2\"]\nsa = \"192.0.2.1\"";
    assert_eq!(sa_of(ipv4), at("::ffff:192.0.2.1"));
    assert_eq!(sa_of("sa = \"none\""), Some(SaChoice::None));
    assert_eq!(
        port_fault("sa = \"192.0.2.1\""),
        "t.toml:2:6: the subnet administrator 192.0.2.1 and the port's GID have different address families; \
         use IPv6 for both, or IPv4 for both"
    );
    assert_eq!(
        port_fault("sa = \"ff02::1\""),
        "t.toml:2:6: ff02::1 is not the address of one port"
    );
    assert_eq!(
        port_fault("sa = 1"),
        "t.toml:2:6: invalid type: number 1, expected \"none\", \"umad\" or an address"
    );
}

#[test]
fn names_of_rdma_devices() {
    let fault =
        |name: &str| parse(&format!("[[ipoib]]\nname = \"ib0\"\nrdma = {name:?}\n")).unwrap_err();
    assert_eq!(
        fault(""),
        "t.toml:3:8: the name of an RDMA device cannot be empty; \"rdma link\" lists the devices"
    );
    assert_eq!(
        fault("mlx5 0"),
        "t.toml:3:8: \"mlx5 0\" cannot be the name of an RDMA device; use one that \"rdma link\" lists, \
         such as mlx5_0"
    );
    for port in ["0", "255", "one", "1/1", ""] {
        assert_eq!(
            fault(&format!("mlx5_0/{port}")),
            format!(
                "t.toml:3:8: {port:?} is not a port of an RDMA device; ports are numbered from 1"
            )
        );
    }
    assert_eq!(
        parse(&format!("[port.\"mlx5_0/2\"]\n{RDMA}")).unwrap_err(),
        "t.toml:1:7: no interface has the rdma \"mlx5_0/2\"; add one, or remove [port.\"mlx5_0/2\"]"
    );
    assert_eq!(
        parse(&format!("[port.mlx5_0]\n{RDMA}")).unwrap_err(),
        "t.toml:1:7: no interface has the underlay \"mlx5_0\"; for the RDMA device of that name use \
         [port.\"mlx5_0/1\"]"
    );
    assert_eq!(
        parse(&format!(
            "[port.\"mlx5_0/1\"]\n[port.\"mlx5_0/0x1\"]\n{RDMA}"
        ))
        .unwrap_err(),
        "t.toml:1:7: [port.\"mlx5_0/1\"] occurs twice; remove one"
    );
    for name in ["eth0", "mlx5_0/1"] {
        assert_eq!(PortName::parse(name).unwrap().to_string(), name);
    }
    assert_eq!(PortName::of_running("soft/eth0"), Some(on("eth0")));
    assert_eq!(PortName::of_running("rxe0/1"), Some(rdma("rxe0", 1)));
}

#[test]
fn who_may_send() {
    let text = format!("[port.eth0]\nallow = [\"fe80::2\", \"192.0.2.0/24\"]\n{IPOIB}");
    let config = parse(&text).unwrap();
    let allow = config.ports[&on("eth0")].allow.as_ref().unwrap();
    let allow: Vec<_> = allow.iter().map(|prefix| prefix.to_string()).collect();
    assert_eq!(allow, ["fe80::2", "192.0.2.0/24"]);
    assert_eq!(
        port_fault("allow = []"),
        "t.toml:2:9: allow is empty; list addresses or prefixes, or leave allow out to allow all hosts"
    );
    assert_eq!(
        port_fault("allow = [\"eth0\"]"),
        "t.toml:2:10: \"eth0\" is not an address or a prefix; use for example \"fe80::2\" or \
         \"192.0.2.0/24\""
    );
    assert_eq!(
        port_fault("allow = [\"fe80::2/64\"]"),
        "t.toml:2:10: \"fe80::2/64\" has bits after the prefix; set these bits to 0, or make the prefix \
         longer"
    );
    assert_eq!(
        port_fault("allow = [\"192.0.2.0/33\"]"),
        "t.toml:2:10: the length of the prefix \"192.0.2.0/33\" is wrong; use 0 to 32 for IPv4, 0 to 128 \
         for IPv6"
    );
}
