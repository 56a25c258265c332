use std::net::IpAddr;

use clap::CommandFactory;

use super::*;

fn eth0() -> PortName {
    PortName::Underlay("eth0".into())
}

fn parse(line: &str) -> Result<Args, clap::Error> {
    Args::try_parse_from(std::iter::once("ibtapd").chain(line.split_whitespace()))
}

fn run(line: &str) -> Config {
    match parse(line).unwrap().action().unwrap() {
        Action::Run(config, _) => config,
        Action::Checked(..) => panic!("{line} checks a file"),
    }
}

/// The error's first paragraph, without "error: ".
fn refusal(line: &str) -> String {
    let text = match parse(line) {
        Err(error) => error.render().to_string(),
        Ok(args) => args.action().unwrap_err().to_string(),
    };
    let text = text.strip_prefix("error: ").unwrap_or(&text);
    text.split("\n\n").next().unwrap().to_owned()
}

#[test]
fn the_command_is_well_formed() {
    Args::command().debug_assert();
}

#[test]
fn an_underlay_alone_is_enough() {
    let config = run("--underlay eth0");
    assert_eq!(config.socket, PathBuf::from(DEFAULT_SOCKET));
    assert_eq!(config.log_level, LogLevel::Info);
    assert_eq!(config.ports, [(eth0(), PortConfig::default())].into());
    assert_eq!(config.ipoib, [IpoibConfig::new("ib0", eth0())]);
}

#[test]
fn options_and_file_describe_the_same_configuration() {
    let config = run(
        "--underlay eth0 --name st0 --mode connected --connections 64 --pkey 0x8001 --qpn random --mtu 2044 --mss 0x578 --queues 2 \
         --gid ipv4 --peers 192.0.2.2,192.0.2.3 --link-mtu exact --busy-poll 20 --rx-usecs 50 --rx-frames 16 --persist --down \
         --dhcp rfc4390 --claims qpn --refuse-requests --inspect warn --trust-checksums --reflect --netns blue --vlan-pkey --child 0x8002,3 --child 0x8004 \
         --socket /tmp/s --log-level debug",
    );
    let file = r#"
        socket = "/tmp/s"
        log_level = "debug"
        [port.eth0]
        gid = "ipv4"
        peers = ["192.0.2.2", "192.0.2.3"]
        link_mtu = "exact"
        busy_poll = 20
        rx_usecs = 50
        rx_frames = "16"
        [[ipoib]]
        name = "st0"
        underlay = "eth0"
        mode = "connected"
        connections = 64
        pkey = "0x8001"
        qpn = "random"
        mtu = 2044
        mss = 1400
        queues = 2
        persist = true
        up = false
        dhcp = "rfc4390"
        claims = "qpn"
        refuse_requests = true
        inspect = "warn"
        trust_checksums = true
        reflect = true
        netns = "blue"
        vlan_pkey = true
        children = [0x8002, 0x8003, 0x8004]
    "#;
    assert_eq!(config, Config::parse(file, "file").unwrap());
}

#[test]
fn an_rdma_device_is_a_port() {
    let config = run(
        "--provider verbs --device mlx5_0 --port 2 --gid 3 --link-mtu 2048 --kernel-peers \
         --cm umad --mode connected",
    );
    let file = r#"
        [port."mlx5_0/2"]
        gid = 3
        link_mtu = 2048
        kernel_peers = true
        cm = "umad"
        [[ipoib]]
        name = "ib0"
        rdma = "mlx5_0/2"
        mode = "connected"
    "#;
    assert_eq!(config, Config::parse(file, "file").unwrap());
    let first = run("--provider verbs --device mlx5_0");
    let name = first.ports.keys().next().unwrap().to_string();
    assert_eq!(name, "mlx5_0/1");
    assert_eq!(
        run("--provider soft --underlay eth0"),
        run("--underlay eth0")
    );
}

#[test]
fn explicit_addresses_are_gids() {
    let config = run("--underlay eth0 --gid 2001:db8::1 --link-mtu 2048");
    let address: IpAddr = "2001:db8::1".parse().unwrap();
    assert_eq!(config.ports[&eth0()].gid, GidChoice::Address(address));
    assert_eq!(config.ports[&eth0()].link_mtu, LinkMtu::Bytes(2048));
}

#[test]
fn socket_and_level_override_the_file() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("a.toml");
    let text = "log_level = \"warn\"\n[[ipoib]]\nname = \"ib1\"\nunderlay = \"eth1\"\n";
    std::fs::write(&file, text).unwrap();
    let config = run(&format!(
        "--config {} --log-level trace --socket /tmp/x",
        file.display()
    ));
    assert_eq!(config.log_level, LogLevel::Trace);
    assert_eq!(config.socket, PathBuf::from("/tmp/x"));
    assert_eq!(config.ipoib[0].name, "ib1");
    assert!(config.sandbox);
    let config = run(&format!("--config {} --no-sandbox", file.display()));
    assert!(!config.sandbox);
    assert!(!run("--underlay eth0 --no-sandbox").sandbox);

    let args = parse(&format!("--check-config {}", file.display())).unwrap();
    match args.action().unwrap() {
        Action::Checked(checked, config) => {
            assert_eq!((checked, config.log_level), (file, LogLevel::Warn));
        }
        Action::Run(..) => panic!("--check-config must not run"),
    }
}

#[test]
fn refusals_are_sentences() {
    for (line, expected) in [
        (
            "--underlay eth0 --pkey 0",
            "invalid value '0' for '--pkey <P_KEY>': P_Key 0x0000 selects partition 0, which is \
             invalid; use 0x0001 to 0x7fff or 0x8001 to 0xffff",
        ),
        (
            "--underlay eth0 --pkey 0x10000",
            "invalid value '0x10000' for '--pkey <P_KEY>': P_Key 0x10000 is out of range; use \
             0x0001 to 0x7fff or 0x8001 to 0xffff",
        ),
        (
            "--underlay eth0 --name infiniband-number-0",
            "invalid value 'infiniband-number-0' for '--name <NAME>': the interface name \
             \"infiniband-number-0\" has 19 characters; the kernel takes at most 15",
        ),
        (
            "--underlay eth0 --mtu 71",
            "invalid value '71' for '--mtu <BYTES>': an MTU of 71 bytes is out of range; use 72 \
             to 65520",
        ),
        (
            "--underlay eth0 --connections -1",
            "invalid value '-1' for '--connections <N>': \"-1\" is not a number of connections",
        ),
        (
            "--underlay eth0 --connections 99999999",
            "invalid value '99999999' for '--connections <N>': 99999999 connections are out of \
             range; use 0 to 16384",
        ),
        (
            "--underlay eth0 --gid ipv4",
            "an IPv4 GID needs peers, since IPoIB's multicast GIDs are IPv6 addresses; list the \
             other hosts' addresses in peers, or use an IPv6 GID",
        ),
        (
            "--underlay eth0 --child 0x8001,0x8000",
            "invalid value '0x8000' for '--child <P_KEY,...>': P_Key 0x8000 selects partition 0, \
             which is invalid; use 0x0001 to 0x7fff or 0x8001 to 0xffff",
        ),
        (
            "--underlay eth0 --child 0x8001,1",
            "\"ib0.8001\" is a child of \"ib0\" with the P_Key 0x8001 already",
        ),
        (
            "--underlay eth0 --child 0xffff",
            "\"ib0\" has the P_Key 0xffff itself; a child needs another one",
        ),
        (
            "--underlay eth0 --netns a/b",
            "invalid value 'a/b' for '--netns <NAME>': \"a/b\" cannot be the name of a network \
             namespace",
        ),
        (
            "--provider verbs",
            "--provider verbs needs an RDMA device; name it with --device (\"rdma link\" lists them)",
        ),
        (
            "--provider verbs --device mlx5_0 --underlay eth0",
            "an RDMA device needs no --underlay; leave out --underlay or --provider verbs",
        ),
        (
            "--device mlx5_0",
            "--device names an RDMA device and needs --provider verbs; add that, or name an \
             Ethernet interface with --underlay",
        ),
        (
            "--underlay eth0 --device mlx5_0",
            "--underlay selects the software fabric and --device an RDMA device (with --provider \
             verbs); leave one of them out",
        ),
        (
            "--underlay eth0 --port 1",
            "--port is a port of an RDMA device; name the device with --provider verbs --device \
             DEVICE",
        ),
        (
            "--provider soft",
            "the software fabric needs an Ethernet interface; name it with --underlay IF",
        ),
        (
            "--provider verbs --device mlx5_0/1",
            "invalid value 'mlx5_0/1' for '--device <DEVICE>': \"mlx5_0/1\" cannot be the name of an \
             RDMA device; use one that \"rdma link\" lists, such as mlx5_0",
        ),
        (
            "--provider verbs --device mlx5_0 --port 0",
            "invalid value '0' for '--port <N>': \"0\" is not a port of an RDMA device; ports are \
             numbered from 1",
        ),
        (
            "--provider verbs --device mlx5_0 --vnic lan0=1 --queues 2",
            "2 queues: a VNIC on an RDMA device sends from one queue pair, because peers learn its address \
             from packets; leave queues out",
        ),
        (
            "--provider verbs --device mlx5_0 --qpn 0x4a",
            "an RDMA device chooses queue pair numbers itself and cannot use 0x00004a; leave qpn out",
        ),
        (
            "--provider verbs --device mlx5_0 --peers fe80::2",
            "an RDMA device sends multicast to groups, not as copies to peers; leave peers out",
        ),
        (
            "--underlay eth0 --gid 3",
            "GID index 3: only the GID table of an RDMA device has indexes; name an address of the \
             underlay",
        ),
        (
            "--underlay eth0 --kernel-peers",
            "connection requests of the kernel's IPoIB reach ibtapd on an underlay; leave \
             kernel_peers out",
        ),
        (
            "--underlay ib0",
            "the interface \"ib0\" cannot be its own underlay",
        ),
        (
            "--config /nonexistent/ibtapd.toml",
            "cannot read the configuration /nonexistent/ibtapd.toml: No such file or directory \
             (os error 2); name a readable TOML file",
        ),
    ] {
        assert_eq!(refusal(line), expected, "{line}");
    }
}

#[test]
fn a_file_excludes_options_that_describe_interfaces() {
    let options = [
        "--underlay eth0",
        "--provider verbs",
        "--device mlx5_0",
        "--port 1",
        "--name ib0",
        "--vnic 7",
        "--mode connected",
        "--connections 7",
        "--pkey 0x8001",
        "--qpn random",
        "--mtu 2044",
        "--queues 1",
        "--gid ipv4",
        "--peers fe80::1",
        "--link-mtu exact",
        "--kernel-peers",
        "--cm umad",
        "--busy-poll 0",
        "--rx-usecs 0",
        "--rx-frames 0",
        "--down",
        "--persist",
        "--mss train",
        "--dhcp off",
        "--claims off",
        "--refuse-requests",
        "--inspect warn",
        "--trust-checksums",
        "--reflect",
        "--netns blue",
        "--child 0x8001",
        "--vlan-pkey",
    ];
    let flag = |option: &str| option.split(' ').next().unwrap_or_default().to_owned();
    for (option, file) in options
        .iter()
        .flat_map(|o| [(o, "--config"), (o, "--check-config")])
    {
        let text = refusal(&format!("{file} a.toml {option}"));
        assert!(!text.contains('\n'), "{text}");
        assert!(text.contains("cannot be used with"), "{text}");
        assert!(text.contains(&format!("'{file} <FILE>'")), "{text}");
        assert!(text.contains(&format!("'{}", flag(option))), "{text}");
    }
    let all: Vec<_> = Args::command()
        .get_opts()
        .filter_map(|option| option.get_long().map(|long| format!("--{long}")))
        .filter(|long| {
            ![
                "--config",
                "--check-config",
                "--socket",
                "--log-level",
                "--no-sandbox",
            ]
            .contains(&&**long)
        })
        .collect();
    assert_eq!(all, options.map(flag));
    assert!(parse("").is_err());
}

#[test]
fn help_fits_80_columns_and_gives_each_default() {
    let help = Args::command().render_help().to_string();
    for line in help.lines() {
        assert!(line.chars().count() <= 80, "{line:?}");
    }
    for option in Args::command().get_opts() {
        let text = option.get_help().unwrap().to_string();
        let shown = text.contains("[default: ")
            || !option.get_default_values().is_empty()
            // Options without a default: --underlay or --device is required, --check-config is an action.
            || ["underlay", "device", "check_config"].contains(&option.get_id().as_str());
        assert!(shown, "--{} does not show its default", option.get_id());
    }
}

#[test]
fn vnics_by_options() {
    let names = |config: &Config| -> Vec<(String, Option<u16>, u8)> {
        let vnics = config.vnics.iter();
        vnics
            .map(|v| (v.name.clone(), v.switch.as_ref().map(|s| s.vesw), v.index))
            .collect()
    };
    let one = run("--underlay eth0 --vnic 7");
    assert_eq!(names(&one), [("vnic0".into(), Some(7), 0)]);
    assert!(one.ipoib.is_empty(), "only --name adds an IPoIB interface");
    let managed = run("--underlay eth0 --vnic --pkey 0x8001 --down --mtu 1400");
    assert_eq!(names(&managed), [("vnic0".into(), None, 0)]);
    assert_eq!(
        (managed.vnics[0].up, managed.vnics[0].mtu),
        (false, Some(1400))
    );
    let several = run("-u eth0 --name ib0 --vnic vnic0=1 --vnic 2 --vnic lan --pkey 0x8001");
    let expected = [
        ("vnic0".into(), Some(1), 0),
        ("vnic1".into(), Some(2), 1),
        ("lan".into(), None, 2),
    ];
    assert_eq!(names(&several), expected);
    let pkeys: Vec<_> = several.vnics.iter().map(|v| v.pkey().get()).collect();
    assert_eq!(pkeys, [0x8001, 0x8001, 0xffff]);
    assert_eq!(several.ipoib[0].name, "ib0");
    for (options, expected) in [
        ("--child 0x8001", "--child needs"),
        ("--mode connected", "--mode needs"),
        ("--qpn random --reflect", "--reflect and --qpn need"),
        (
            "--mode connected --connections 7 --qpn random --mss mtu --dhcp off --claims off --refuse-requests \
             --inspect warn --trust-checksums --reflect --child 0x8001 --vlan-pkey",
            "--mode and --mss and --trust-checksums and --dhcp and --claims and --refuse-requests and --inspect and \
             --reflect and --vlan-pkey and --connections and --qpn and --child need",
        ),
    ] {
        let expected = format!("{expected} an IPoIB interface; add --name ib0");
        assert_eq!(refusal(&format!("-u eth0 --vnic 1 {options}")), expected);
        run(&format!("-u eth0 --name ib0 --vnic 1 {options}"));
    }
    run("-u eth0 --vnic 1 --pkey 0x8001 --mtu 1400 --queues 2 --netns blue --down --persist");
    run(
        "-u eth0 --vnic 1 --gid ipv4 --peers 192.0.2.2 --link-mtu exact --busy-poll 1 --rx-usecs 1 --rx-frames 1",
    );
    assert_eq!(
        refusal("-u eth0 --vnic lan=1 --vnic lan=2"),
        "another interface is named \"lan\" already"
    );
    let wrong = refusal("-u eth0 --vnic lan=4096");
    assert!(wrong.contains("use 1 to 4095"), "{wrong}");
}
