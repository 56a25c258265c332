//! Interfaces that are moved while they are in service.

use super::{await_place, await_shown, beside, carry, configure, meet};
use crate::lab::{CONNECTED, Lab, SOON, Station, eventually};

#[test]
fn an_interface_works_on_in_other_namespaces_and_back() {
    for options in [&[][..], &CONNECTED] {
        let Some(lab) = Lab::pair() else { return };
        let mut lab = lab.run_with(options);
        let (blue, green) = (beside("blue"), beside("green"));
        let (a, b) = lab.two();
        a.reaches(b);
        carry("ib0", a, &blue);
        await_place(a, "ib0", Some(&blue));
        configure(&blue, "ib0", a);
        meet(&blue, a, b);
        carry("ib0", &blue, &green);
        await_place(a, "ib0", Some(&green));
        configure(&green, "ib0", a);
        meet(&green, a, b);
        carry("ib0", &green, a);
        await_place(a, "ib0", None);
        configure(a, "ib0", a);
        meet(a, a, b);
        let log = a.daemon().log();
        let moved = log.lines().filter(|line| line.contains("ib0: moved "));
        assert_eq!(moved.count(), 3, "{log}");
        a.stop();
        assert!(!a.has_link("ib0"));
    }
}

#[test]
fn an_interface_is_found_after_moves_in_quick_succession() {
    let Some(mut lab) = Lab::running_pair() else {
        return;
    };
    let (blue, green) = (beside("blue"), beside("green"));
    let (a, b) = lab.two();
    // Each time faster than the daemon notices, and to another final place.
    let names = [a.namespace(), blue.namespace(), green.namespace()].map(|n| n.name());
    for end in [1, 2, 0, 2, 1, 0] {
        let here = (0..3)
            .find(|at| [&**a, &blue, &green][*at].has_link("ib0"))
            .expect("it is somewhere");
        let way: Vec<usize> = (0..24)
            .map(|hop| (here + 1 + hop) % 3)
            .chain([end])
            .collect();
        let mut from = here;
        let mut script = String::new();
        for to in way {
            if to != from {
                script += &format!("ip -n {} link set ib0 netns {} && ", names[from], names[to]);
                from = to;
            }
        }
        assert_eq!(a.run_script(&format!("{script} true")).code, Some(0));
        let places: [&Station; 3] = [a, &blue, &green];
        await_place(a, "ib0", (end != 0).then_some(places[end]));
        configure(places[end], "ib0", a);
        meet(places[end], a, b);
    }
}

#[test]
fn what_ip_link_changes_there_is_followed() {
    let Some(lab) = Lab::pair() else { return };
    let mut lab = lab.run_with(&["--log-level", "debug"]);
    let blue = beside("blue");
    let (a, b) = lab.two();
    carry("ib0", a, &blue);
    configure(&blue, "ib0", a);
    meet(&blue, a, b);

    blue.ok("ip link set ib0 mtu 1500");
    eventually(SOON, "the MTU", || {
        (a.show("ib0")["mtu"] == 1500).then_some(())
    });
    blue.ok("ip link set ib0 mtu 9000");
    eventually(SOON, "the MTU to be put right", || {
        (blue.mtu("ib0") == u64::from(crate::lab::LINK_MTU)).then_some(())
    });
    blue.ok("ip link set ib0 address 02:00:00:00:be:ef");
    await_shown(a, "ib0", "mac", Some("02:00:00:00:be:ef"));
    meet(&blue, a, b);
    blue.ok("ip link set ib0 name storage0");
    await_place(a, "storage0", Some(&blue));
    meet(&blue, a, b);

    // The MGID is the group that the underlay has joined.
    let holds = |mgid: &str| a.ok("ip -6 maddr show dev eth0").contains(mgid);
    let broadcast = "ff12:401b:ffff::ffff:ffff";
    assert!(holds(broadcast), "{}", a.ok("ip -6 maddr show"));
    blue.ok("ip link set storage0 down");
    eventually(SOON, "its groups to be left", || {
        (!holds(broadcast)).then_some(())
    });
    assert!(!b.pings(&a.v4()));
    blue.ok("ip link set storage0 up");
    // The kernel removes IPv6 addresses with the link.
    blue.ok(&format!("ip addr replace {}/64 dev storage0 nodad", a.v6()));
    meet(&blue, a, b);
    assert!(holds(broadcast), "{}", a.ok("ip -6 maddr show"));

    blue.ok("ethtool -C storage0 rx-frames 32");
    eventually(SOON, "the moderation", || {
        a.ibtap("coalesce storage0")
            .out
            .contains("32")
            .then_some(())
    });

    let group = crate::lab::group::join(&blue, "storage0", crate::lab::group::V4.address);
    let mgid = crate::lab::group::V4.mgid;
    eventually(SOON, "the group of a program there", || {
        holds(mgid).then_some(())
    });
    drop(group);
    eventually(SOON, "the group to be left", || {
        (!holds(mgid)).then_some(())
    });

    blue.ok("ethtool -K storage0 gro off");
    eventually(SOON, "the offload to be off", || {
        let log = a.daemon().log();
        log.contains("storage0: coalescing off").then_some(())
    });

    // A bridge in that namespace.
    blue.ok("ip link add br0 type bridge");
    blue.ok("ip link set br0 up");
    blue.ok("ip addr flush dev storage0");
    blue.ok("ip link set storage0 master br0");
    configure(&blue, "br0", a);
    meet(&blue, a, b);
}

#[test]
fn a_move_may_change_the_name() {
    let Some(mut lab) = Lab::running_pair() else {
        return;
    };
    let blue = beside("blue");
    let (a, b) = lab.two();
    let name = blue.namespace().name();
    a.ok(&format!("ip link set ib0 netns {name} name fast0"));
    await_place(a, "fast0", Some(&blue));
    configure(&blue, "fast0", a);
    meet(&blue, a, b);
    // Another interface there has the index.
    let index = blue.link("fast0")["ifindex"].clone();
    a.ok(&format!(
        "ip link add other index {index} type veth peer name another"
    ));
    carry("fast0", &blue, a);
    await_place(a, "fast0", None);
    assert_ne!(a.link("fast0")["ifindex"], index);
    configure(a, "fast0", a);
    meet(a, a, b);
}

#[test]
fn an_interface_that_is_deleted_there_is_forgotten() {
    let Some(mut lab) = Lab::running_pair() else {
        return;
    };
    let blue = beside("blue");
    let (a, b) = lab.two();
    carry("ib0", a, &blue);
    await_place(a, "ib0", Some(&blue));
    blue.ok("ip link del ib0");
    eventually(SOON, "the device to go", || {
        a.ask("show").is_empty().then_some(())
    });
    assert!(a.daemon().is_running() && b.daemon().is_running());
}

/// Open descriptors of a process.
fn descriptors(pid: u32) -> usize {
    std::fs::read_dir(format!("/proc/{pid}/fd"))
        .expect("it is alive")
        .count()
}

/// Each namespace numbers the others by itself.
#[test]
fn the_end_of_a_namespace_with_the_same_number_elsewhere_changes_nothing() {
    let Some(mut lab) = Lab::pair() else { return };
    let (blue, far) = (beside("blue"), beside("far"));
    let a = lab.host(0);
    a.start(&[]);
    carry("ib0", a, &blue);
    await_place(a, "ib0", Some(&blue));
    let known = a.json("ip -j netns list-id");
    let known = known.as_array().expect("a list").iter();
    let name = blue.namespace().name();
    let number = known.clone().find(|k| k["name"] == name);
    let number = &number.expect("blue's number")["nsid"];
    blue.ok(&format!("ip netns set {} {number}", far.namespace().name()));
    drop(far);
    eventually(SOON, "the end of the other namespace", || {
        let left = blue.ok("ip netns list-id");
        left.trim().is_empty().then_some(())
    });
    blue.ok("ip link set ib0 name x0");
    await_place(a, "x0", Some(&blue));
}

#[test]
fn a_namespace_that_is_deleted_goes_with_the_interface_in_it() {
    let Some(mut lab) = Lab::pair() else { return };
    let (a, b) = lab.two();
    b.start(&[]);
    let options = |name: &'static str| ["--name", name, "--persist"];
    a.start(&options("ib0"));
    let before = descriptors(a.daemon().pid());
    for again in [false, true, true] {
        let blue = beside("blue");
        let name = blue.namespace().name().to_owned();
        a.ok(&format!(
            "ip link add witness type veth peer name inside netns {name}"
        ));
        if again {
            a.stop();
            a.start(&options("ib0"));
        }
        carry("ib0", a, &blue);
        await_place(a, "ib0", Some(&blue));
        configure(&blue, "ib0", a);
        drop(blue);
        eventually(SOON, "the namespace to go", || {
            (!a.has_link("witness")).then_some(())
        });
        eventually(SOON, "the device to go", || {
            a.ask("show").is_empty().then_some(())
        });
        let now = descriptors(a.daemon().pid());
        assert!(now <= before, "{before} descriptors, then {now}");
        for port in a.ask("res") {
            let mut left = port["queue_pairs"].as_array().expect("a list").iter();
            assert!(left.all(|pair| pair["type"] == "GSI"), "{port}");
        }
    }
}

#[test]
fn packets_are_carried_on_where_the_daemon_may_not_look() {
    let Some(mut lab) = Lab::pair() else { return };
    let blue = beside("blue");
    let (a, b) = lab.two();
    b.start(&[]);
    b.configure("ib0");
    let socket = a.socket();
    let daemon = a.spawn(&format!(
        "setpriv --bounding-set=-sys_admin,-net_broadcast {} --socket {} --underlay eth0",
        env!("CARGO_BIN_EXE_ibtapd"),
        socket.to_str().expect("an ASCII path")
    ));
    await_place(a, "ib0", None);
    carry("ib0", a, &blue);
    await_place(a, "ib0", Some(&blue));
    configure(&blue, "ib0", a);
    blue.reaches_all(&[b.v4()]);
    blue.ok("ip link del ib0");
    eventually(SOON, "the device to go", || {
        a.ask("show").is_empty().then_some(())
    });
    drop(daemon);
}
