//! Creation, properties and deletion of children.

use serde_json::{Value, json};

use super::*;
use crate::lab::{CONNECTED_MTU, LINK_MTU, Lab};

#[test]
fn c91_a_tap_with_a_childs_name_becomes_one_and_goes_with_it() {
    let Some(mut lab) = Lab::running_pair() else {
        return;
    };
    let (a, b) = lab.two();
    for host in [&*a, &*b] {
        tuntap(host, "ib0.8001");
        let expected = "ibtap: soft/eth0 child of ib0 pkey 0x8001 datagram";
        assert_eq!(alias(host, "ib0.8001"), expected);
        assert_eq!(host.mtu("ib0.8001"), u64::from(LINK_MTU));
        assert!(!host.is_up("ib0.8001"), "that is the user's to do");
        assert_eq!(underlay_groups(host, "8001"), 0);
        configure(host, "ib0.8001", 1);
    }
    reaches(a, b, 1);
    reaches(b, a, 1);
    a.reaches(b);
    let (child, parent) = (a.show("ib0.8001"), a.show("ib0"));
    assert_eq!(
        (&child["parent"], &child["pkey"]),
        (&json!("ib0"), &json!(0x8001))
    );
    assert_eq!(
        (&child["queues"], &child["carrier"]),
        (&json!(1), &json!(true))
    );
    assert_eq!(parent.get("parent"), None);
    for own in ["qpn", "broadcast", "address", "mac"] {
        assert_ne!(child[own], parent[own], "{own}");
    }
    assert!(a.counter("ib0.8001", "tx_packets") > 0);
    assert!(underlay_groups(a, "8001") > 0);

    a.ok("ip link del ib0.8001");
    await_gone(a, "ib0.8001");
    assert!(!a.pings(&address(b, 1)));
    assert_eq!(underlay_groups(a, "8001"), 0);
    assert!(!a.ibtap("res").out.contains("pkey 0x8001"));
    a.reaches(b);
    // Again, from the beginning.
    tuntap(a, "ib0.8001");
    configure(a, "ib0.8001", 1);
    reaches(a, b, 1);
}

#[test]
fn a_child_has_the_queues_that_it_was_made_with() {
    let Some(mut lab) = Lab::pair() else { return };
    let a = lab.host(0);
    a.start(&["--queues", "2"]);
    a.ok("ip tuntap add dev ib0.8001 mode tap multi_queue");
    await_child(a, "ib0.8001");
    assert_eq!(a.show("ib0.8001")["queues"], 2);
    tuntap(a, "ib0.8002");
    assert_eq!(a.show("ib0.8002")["queues"], 1);
    add(a, "ib0 0x8003 --queues 2");
    assert_eq!(a.show("ib0.8003")["queues"], 2);
}

#[test]
fn ibtap_makes_and_removes_children_with_a_mode_of_their_own() {
    let Some(mut lab) = Lab::running_pair() else {
        return;
    };
    let (a, b) = lab.two();
    for host in [&*a, &*b] {
        assert_eq!(add(host, "ib0 0x8001 --mode connected"), "ib0.8001");
        assert_eq!(add(host, "ib0 2 --name storage --mtu 2044"), "storage");
        assert_eq!(host.mtu("ib0.8001"), u64::from(CONNECTED_MTU));
        assert_eq!(host.mtu("storage"), 2044);
        configure(host, "ib0.8001", 1);
        configure(host, "storage", 2);
    }
    reaches(a, b, 1);
    reaches(a, b, 2);
    let whole = format!("ping -c 3 -M do -s 60000 {}", address(b, 1));
    a.ok(&whole);
    assert_eq!(a.ibtap("mode ib0").out, "datagram\n");
    assert_eq!(a.show("ib0.8001")["connections"], 2, "one each way");

    let list = a.ask("child list");
    let names: Vec<&Value> = list.iter().map(|child| &child["name"]).collect();
    assert_eq!(names, ["ib0.8001", "storage"]);
    assert_eq!(
        (&list[1]["pkey"], &list[1]["parent"]),
        (&json!(0x8002), &json!("ib0"))
    );
    assert_eq!(a.ask("child list ib0"), list);

    done(&a.ibtap("child del ib0 0x8001"));
    done(&a.ibtap("child del storage"));
    assert!(!a.has_link("ib0.8001") && !a.has_link("storage"));
    assert!(a.ask("child list").is_empty());
    a.reaches(b);
}

#[test]
fn configured_children_are_there_from_the_start() {
    let Some(mut lab) = Lab::pair() else { return };
    let (a, b) = lab.two();
    let children =
        "children = [0x8001, { pkey = 0x8002, mode = \"connected\", name = \"storage\" }]";
    for host in [&mut *a, &mut *b] {
        let file = configuration(host, "", children);
        host.start_with(&["--config", &file]);
        for (name, subnet) in [("ib0.8001", 1), ("storage", 2)] {
            assert_eq!(host.show(name)["parent"], "ib0");
            configure(host, name, subnet);
        }
    }
    reaches(a, b, 1);
    reaches(a, b, 2);
    assert_eq!(a.mtu("storage"), u64::from(CONNECTED_MTU));
    a.stop();
    for name in ["ib0", "ib0.8001", "storage"] {
        assert!(!a.has_link(name), "{name} was not to outlive the daemon");
    }
}

#[test]
fn a_parent_takes_its_childrens_carrier_and_at_last_themselves() {
    let Some(mut lab) = Lab::running_pair() else {
        return;
    };
    let (a, b) = lab.two();
    for host in [&*a, &*b] {
        tuntap(host, "ib0.8001");
        configure(host, "ib0.8001", 1);
        assert_eq!(add(host, "ib0 0x8002"), "ib0.8002");
    }
    reaches(a, b, 1);
    a.ok("ip link set ib0 down");
    a.await_carrier("ib0.8001", false);
    let reason = a.show("ib0.8001")["reason"].clone();
    assert_eq!(reason, "its parent ib0 is down");
    assert!(a.is_up("ib0.8001"));
    a.ok("ip link set ib0 up");
    a.await_carrier("ib0.8001", true);
    assert_eq!(a.show("ib0.8001").get("reason"), None);
    reaches(a, b, 1);

    a.ok("ip link del ib0");
    for name in ["ib0", "ib0.8001", "ib0.8002"] {
        await_gone(a, name);
        assert!(!a.has_link(name), "{name}");
    }
    assert_eq!(underlay_groups(a, "8001"), 0);
    assert!(a.ask("child list").is_empty());
    assert!(a.daemon().is_running());
}

#[test]
fn an_interface_that_is_down_is_in_no_group() {
    let Some(mut lab) = Lab::running_pair() else {
        return;
    };
    let (a, b) = lab.two();
    assert!(underlay_groups(a, "ffff") > 1);
    a.ok("ip link set ib0 down");
    eventually(SOON, "the groups to be left", || {
        (underlay_groups(a, "ffff") == 0).then_some(())
    });
    assert!(a.ask("neigh ib0").is_empty(), "neighbours are forgotten");
    assert!(!b.pings(&a.v4()));
    a.ok("ip link set ib0 up");
    a.ok(&format!("ip addr replace {}/64 dev ib0 nodad", a.v6()));
    a.reaches(b);
    b.reaches(a);
    assert!(underlay_groups(a, "ffff") > 1);
}

#[test]
fn what_ip_link_does_to_a_child_is_followed() {
    let Some(mut lab) = Lab::running_pair() else {
        return;
    };
    let (a, b) = lab.two();
    for host in [&*a, &*b] {
        tuntap(host, "ib0.8001");
        configure(host, "ib0.8001", 1);
    }
    reaches(a, b, 1);
    a.ok("ip link set ib0.8001 mtu 1500");
    a.ok("ip link set ib0.8001 address 02:00:00:00:00:42");
    a.ok("ip link property add dev ib0.8001 altname ib-of-the-storage-network");
    a.ok("ip link set ib0.8001 name storage0");
    await_child(a, "storage0");
    let shown = eventually(SOON, "MTU and MAC", || {
        let shown = a.show("storage0");
        (shown["mtu"] == 1500 && shown["mac"] == "02:00:00:00:00:42").then_some(shown)
    });
    assert_eq!(shown["pkey"], 0x8001);
    assert_eq!(shown["parent"], "ib0");
    reaches(b, a, 1);
    reaches(a, b, 1);
    a.ok("ip link set ib-of-the-storage-network down");
    assert!(!b.pings(&address(a, 1)));
    a.ok("ip link set storage0 up");
    reaches(a, b, 1);

    // The parent's new name is shown, and names of new children are derived from it.
    a.ok("ip link set ib0 name fab0");
    eventually(SOON, "the alias", || {
        (alias(a, "storage0") == "ibtap: soft/eth0 child of fab0 pkey 0x8001 datagram")
            .then_some(())
    });
    assert_eq!(a.show("storage0")["parent"], "fab0");
    tuntap(a, "fab0.8002");
    reaches(a, b, 1);

    // The administrator's alias stays.
    a.run_script("ip link set storage0 alias 'the storage network'");
    a.ok("ip link set fab0 name ib0");
    eventually(SOON, "the name", || {
        (a.show("storage0")["parent"] == "ib0").then_some(())
    });
    assert_eq!(alias(a, "storage0"), "the storage network");
}

#[test]
fn a_rename_before_the_parent_does_not_matter() {
    let Some(mut lab) = Lab::pair() else { return };
    let a = lab.host(0);
    a.start(&[]);
    // A TAP that gets a child's name later, and a TAP whose parent gets the name later.
    a.ok("ip tuntap add dev spare mode tap");
    a.ok("ip tuntap add dev fab0.8002 mode tap");
    a.ok("ip link set spare name ib0.8001");
    await_child(a, "ib0.8001");
    assert!(!is_served(a, "fab0.8002"));
    a.ok("ip link set ib0 name fab0");
    await_child(a, "fab0.8002");
    assert_eq!(a.show("fab0.8002")["parent"], "fab0");
}

#[test]
fn watchers_get_events_of_children() {
    let Some(mut lab) = Lab::pair() else { return };
    let a = lab.host(0);
    a.start(&[]);
    let monitor = a.follow("--json monitor ib0");
    monitor.await_object("the first event", |e| e["event"] == "watching");
    tuntap(a, "ib0.8001");
    let is = |e: &Value, event: &str| {
        e["event"] == event && e["child"] == "ib0.8001" && e["pkey"] == 0x8001
    };
    monitor.await_object("the child", |e| is(e, "child-added"));
    a.ok("ip link del ib0.8001");
    monitor.await_object("its end", |e| is(e, "child-removed"));
}

#[test]
fn many_children_are_made_at_once() {
    let Some(mut lab) = Lab::pair() else { return };
    let a = lab.host(0);
    a.start(&[]);
    // Each has some six entries in the kernel's table of IPv6 neighbours. All tests share the table, which holds 1024.
    let names: Vec<String> = (0x8100..0x8140)
        .map(|key| format!("ib0.{key:04x}"))
        .collect();
    let batch = |verb: &str, rest: &str| {
        let line = |name: &String| format!("{verb} {name}{rest}\n");
        let path = a.file("batch");
        std::fs::write(&path, names.iter().map(line).collect::<String>()).expect("written");
        a.ok(&format!("ip -batch {}", path.display()));
    };
    batch("tuntap add dev", " mode tap");
    eventually(SOON, "all children", || {
        (a.ask("child list").len() == names.len()).then_some(())
    });
    batch("link set", " up");
    for name in &names {
        a.await_carrier(name, true);
    }
    assert_eq!(a.ask("pkey")[0]["pkeys"].as_array().map(Vec::len), Some(65));
    batch("link del", "");
    eventually(SOON, "no child", || {
        a.ask("child list").is_empty().then_some(())
    });
    assert_eq!(a.ask("pkey")[0]["pkeys"], json!([0xffff]));
}
