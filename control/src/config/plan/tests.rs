mod vnics;

use super::*;

fn on(underlay: &str) -> PortName {
    PortName::Underlay(underlay.into())
}

fn config(text: &str) -> Config {
    Config::parse(text, "t.toml").unwrap()
}

fn change(key: InterfaceKey, change: Change) -> Step {
    Step::Interface(key, change)
}

/// Makes a plan. If the plan refuses nothing, its steps must produce the new configuration.
fn plan(old: &str, new: &str) -> Plan {
    let (mut made, new) = (config(old), config(new));
    let plan = Plan::new(&made, &new);
    if plan.refused.is_empty() {
        plan.steps.iter().for_each(|step| made.note(step));
        let left = Plan::new(&made, &new);
        assert_eq!(left, Plan::default(), "after {:?}", plan.steps);
    }
    plan
}

fn key(name: &str) -> InterfaceKey {
    InterfaceKey {
        netns: None,
        name: name.into(),
    }
}

const ONE: &str = "[[ipoib]]\nname = \"ib0\"\nunderlay = \"eth0\"\n";
const TWO: &str = "[[ipoib]]\nname = \"ib0\"\nunderlay = \"eth0\"\n\
                   [[ipoib]]\nname = \"ib1\"\nunderlay = \"eth1\"\n";

#[test]
fn nothing_new_is_nothing_to_do() {
    assert_eq!(plan(TWO, TWO), Plan::default());
    let queues = format!("{ONE}queues = {}\n", on("eth0").default_queues());
    assert_eq!(plan(ONE, &queues), Plan::default());
    let port = format!("[port.eth0]\nbusy_poll = 100\n{ONE}");
    assert_eq!(plan(ONE, &port), Plan::default());
}

#[test]
fn what_an_interface_can_change_while_it_runs() {
    let new = format!(
        "log_level = \"debug\"\n{ONE}mtu = 2044\nup = false\npersist = true\n\
         mss = 1400\ntrust_checksums = true\ndhcp = \"off\"\nclaims = \"qpn\"\nrefuse_requests = true\ninspect = \"enforce\"\nreflect = true\nvlan_pkey = true\n"
    );
    let ib0 = || key("ib0");
    assert_eq!(
        plan(ONE, &new).steps,
        [
            Step::LogLevel(LogLevel::Debug),
            change(ib0(), Change::Mtu(Some(2044))),
            change(ib0(), Change::Up(false)),
            change(ib0(), Change::Persist(true)),
            change(ib0(), Change::Mss(MssChoice::Bytes(1400))),
            change(ib0(), Change::TrustChecksums(true)),
            change(ib0(), Change::Dhcp(DhcpMode::Off)),
            change(ib0(), Change::Claims(ClaimCheck::Qpn)),
            change(ib0(), Change::RefuseRequests(true)),
            change(ib0(), Change::Inspect(Inspect::Enforce, Vec::new())),
            change(ib0(), Change::Reflect(true)),
            change(ib0(), Change::VlanPkey(true)),
        ]
    );
    assert_eq!(plan(ONE, &new).refused, [""; 0]);
    let back = plan(&new, ONE).steps;
    assert_eq!(back[1], change(ib0(), Change::Mtu(None)));
}

#[test]
fn what_it_cannot_is_named() {
    let new = "socket = \"/tmp/s\"\n[port.eth0]\ngid = \"fe80::1\"\nlink_mtu = 2048\n\
               [[ipoib]]\nname = \"ib0\"\nunderlay = \"eth0\"\n\
               connections = 7\npkey = 0x8001\nqkey = 1\nqpn = 0x1234\nqueues = 200\n\
               netns = \"blue\"\n";
    let plan = plan(ONE, new);
    assert_eq!(plan.steps, []);
    let restart = "cannot change at run time; restart ibtapd";
    let mut expected = vec!["socket cannot change while ibtapd runs; restart ibtapd".to_owned()];
    for key in ["gid", "link_mtu"] {
        expected.push(format!("eth0: {key} {restart}"));
    }
    expected.push(
        "ib0: netns cannot change at run time; type \"ip link set ib0 netns blue\", or restart ibtapd"
            .to_owned(),
    );
    for key in ["connections", "pkey", "qkey", "qpn", "queues"] {
        expected.push(format!("ib0: {key} {restart}"));
    }
    assert_eq!(plan.refused, expected);
}

#[test]
fn the_mode_changes_with_its_mtu() {
    let connected = format!("{ONE}mode = \"connected\"\n");
    let ib0 = || key("ib0");
    let to = change(ib0(), Change::Mode(Mode::Connected, None));
    assert_eq!(plan(ONE, &connected).steps, [to]);
    let small = format!("{connected}mtu = 9000\n");
    let both = change(ib0(), Change::Mode(Mode::Connected, Some(9000)));
    assert_eq!(plan(ONE, &small).steps, [both]);
    let back = change(ib0(), Change::Mode(Mode::Datagram, None));
    assert_eq!(plan(&small, ONE).steps, [back]);
    let mtu = change(ib0(), Change::Mtu(Some(9000)));
    assert_eq!(plan(&connected, &small).steps, [mtu]);
}

#[test]
fn ports_change_with_their_devices() {
    let added = plan(ONE, TWO);
    let ib1 = Wanted::Ipoib(IpoibConfig::new("ib1", on("eth1")));
    assert_eq!(
        added.steps,
        [
            Step::AddPort(on("eth1"), PortConfig::default(), vec![ib1.clone()]),
            Step::Add(ib1),
        ]
    );
    assert_eq!(
        plan(TWO, ONE).steps,
        [Step::Remove(key("ib1")), Step::RemovePort(on("eth1"))]
    );
    let peers =
        |list: &str| format!("[port.eth0]\ngid = \"ipv4\"\npeers = [{list}]\nbusy_poll = 5\n{ONE}");
    assert_eq!(
        plan(&peers("\"192.0.2.2\""), &peers("\"192.0.2.3\"")).steps,
        [Step::Port(
            on("eth0"),
            PortChange::Peers(vec!["192.0.2.3".parse().unwrap()])
        )]
    );
    let busy = format!("[port.eth0]\nbusy_poll = 5\n{ONE}");
    let five = BusyPoll::from_micros(5).unwrap();
    assert_eq!(
        plan(ONE, &busy).steps,
        [Step::Port(on("eth0"), PortChange::BusyPoll(five))]
    );
    // Both keys are one change.
    let moderated = format!("[port.eth0]\nrx_usecs = 50\nrx_frames = 16\n{ONE}");
    let moderation = Moderation {
        rx_usecs: 50,
        rx_frames: 16,
    };
    assert_eq!(
        plan(ONE, &moderated).steps,
        [Step::Port(on("eth0"), PortChange::Moderation(moderation))]
    );
}

#[test]
fn a_device_that_cannot_move_keeps_its_port() {
    let moved = "[[ipoib]]\nname = \"ib0\"\nunderlay = \"eth1\"\n";
    let plan = plan(ONE, moved);
    assert_eq!(plan.steps, []);
    assert_eq!(
        plan.refused,
        ["ib0: underlay cannot change at run time; restart ibtapd"]
    );
}

#[test]
fn rdma_ports_come_and_go() {
    let rdma = "[[ipoib]]\nname = \"ib1\"\nrdma = \"mlx5_0\"\n";
    let both = format!("[port.\"mlx5_0/1\"]\nbusy_poll = 5\n{ONE}{rdma}");
    let port = || PortName::parse("mlx5_0/1").unwrap();
    let added = plan(ONE, &both).steps;
    assert!(matches!(&added[0], Step::AddPort(name, _, interfaces)
        if *name == port() && interfaces.len() == 1));
    assert_eq!(
        plan(&both, ONE).steps,
        [Step::Remove(key("ib1")), Step::RemovePort(port())]
    );
    let moved = ONE.replace("underlay = \"eth0\"", "rdma = \"mlx5_0\"");
    for (from, to, key) in [(ONE, &*moved, "rdma"), (&moved, ONE, "underlay")] {
        let plan = plan(from, to);
        assert_eq!(plan.steps, []);
        let expected = format!("ib0: {key} cannot change at run time; restart ibtapd");
        assert!(plan.refused.contains(&expected), "{:?}", plan.refused);
    }
    let others = both.replace(
        "busy_poll = 5",
        "kernel_peers = true\ncm = \"off\"\nsa = \"umad\"",
    );
    assert_eq!(
        plan(&both, &others).refused,
        [
            "mlx5_0/1: sa cannot change at run time; restart ibtapd",
            "mlx5_0/1: kernel_peers cannot change at run time; restart ibtapd",
            "mlx5_0/1: cm cannot change at run time; restart ibtapd",
        ]
    );
}

#[test]
fn a_partition_goes_before_another_device_takes_it() {
    let other = ONE.replace("ib0", "st0");
    assert_eq!(
        plan(ONE, &other).steps,
        [
            Step::Remove(key("ib0")),
            Step::Add(Wanted::Ipoib(IpoibConfig::new("st0", on("eth0"))))
        ]
    );
}

#[test]
fn children_come_and_go_like_devices() {
    let with = |children: &str| format!("{ONE}children = [{children}]\n");
    let child = |pkey| Wanted::Ipoib(IpoibConfig::new("ib0", on("eth0")).child(PKey::new(pkey)));
    assert_eq!(
        plan(ONE, &with("1, 2")).steps,
        [Step::Add(child(1)), Step::Add(child(2))]
    );
    assert_eq!(
        plan(&with("1, 2"), &with("2")).steps,
        [Step::Remove(key("ib0.8001"))]
    );
    let connected = with("{ pkey = 1, mode = \"connected\" }");
    assert_eq!(
        plan(&with("1"), &connected).steps,
        [change(key("ib0.8001"), Change::Mode(Mode::Connected, None))]
    );
    // Removing a parent removes its children, so the children go first and return with the new parent.
    let other = with("1").replace("ib0", "ib7");
    let removed = [Step::Remove(key("ib0.8001")), Step::Remove(key("ib0"))];
    assert_eq!(plan(&with("1"), &other).steps[..2], removed);
    let moved = TWO.replacen(
        "[[ipoib]]\nname = \"ib1\"",
        "children = [{ pkey = 1, name = \"a\" }]\n[[ipoib]]\nname = \"ib1\"",
        1,
    );
    let back = format!("{TWO}children = [{{ pkey = 1, name = \"a\" }}]\n");
    assert_eq!(
        plan(&moved, &back).refused,
        [
            "a: parent cannot change at run time; restart ibtapd",
            "a: underlay cannot change at run time; restart ibtapd"
        ]
    );
}

#[test]
fn a_child_does_not_outlive_its_parent_because_of_its_name() {
    let child = "children = [{ pkey = 1, name = \"a\" }]\n";
    let (old, new) = (
        format!("{ONE}{child}"),
        format!("{ONE}{child}").replace("ib0", "ib7"),
    );
    let parent = IpoibConfig::new("ib7", on("eth0"));
    let mut renewed = parent.child(PKey::new(1));
    renewed.name = "a".into();
    let made = plan(&old, &new);
    assert_eq!(made.refused, [""; 0]);
    assert_eq!(
        made.steps,
        [
            Step::Remove(key("a")),
            Step::Remove(key("ib0")),
            Step::Add(Wanted::Ipoib(parent)),
            Step::Add(Wanted::Ipoib(renewed)),
        ]
    );
    // The new parent was there before, or the new interface has no parent.
    let other = "[[ipoib]]\nname = \"ib1\"\nunderlay = \"eth0\"\n";
    for new in [
        format!("{other}{child}"),
        format!("{other}{}", ONE.replace("ib0", "a")),
    ] {
        let made = plan(&format!("{old}{other}"), &new);
        assert_eq!(made.refused, [""; 0]);
        let gone = [Step::Remove(key("a")), Step::Remove(key("ib0"))];
        assert_eq!(made.steps[..2], gone, "{new}");
        assert!(matches!(&made.steps[2..], [Step::Add(_)]), "{made:?}");
    }
}

#[test]
fn a_name_means_one_device_in_each_namespace() {
    let blue = ONE.to_owned() + "netns = \"blue\"\n";
    let both = ONE.to_owned() + &blue;
    let in_blue = InterfaceKey {
        netns: Some("blue".into()),
        name: "ib0".into(),
    };
    let gone = plan(&both, ONE);
    assert_eq!(gone.steps, [Step::Remove(in_blue.clone())]);
    let gone = plan(&both, &blue);
    assert_eq!(gone.steps, [Step::Remove(key("ib0"))]);
    let up = format!("{ONE}{blue}up = false\n");
    assert_eq!(plan(&both, &up).steps, [change(in_blue, Change::Up(false))]);
    let home = plan(&blue, ONE);
    assert_eq!(home.steps, []);
    assert_eq!(
        home.refused,
        [
            "blue/ib0: netns cannot change at run time; move ib0 to the network namespace of ibtapd, or restart ibtapd"
        ]
    );
}

#[test]
fn a_pkey_table_is_replaced() {
    let table = |keys: &str| format!("[port.eth0]\npkeys = [{keys}]\n{ONE}");
    let to = |keys: Option<&[u16]>| {
        let keys = keys.map(|keys| keys.iter().map(|k| PKey::new(*k)).collect());
        Step::Port(on("eth0"), PortChange::Pkeys(keys))
    };
    assert_eq!(
        plan(&table("0xffff"), &table("0x8001, 0xffff")).steps,
        [to(Some(&[0x8001, 0xffff]))]
    );
    assert_eq!(plan(&table("0xffff"), ONE).steps, [to(None)]);
    assert_eq!(plan(ONE, &table("0xffff")).steps, [to(Some(&[0xffff]))]);
}
