//! Daemons that end while their interfaces are in other namespaces, and find them again.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use rustix::process::Signal;
use serde_json::Value;

use super::{await_place, beside, carry, configure, meet};
use crate::lab::{Background, Done, Host, Lab, SOON, Station, eventually};

/// State that a restart must not change.
fn state(station: &Station, interface: &str) -> Value {
    let link = station.json(&format!("ip -d -j link show dev {interface}"))[0].clone();
    let addresses = station.json(&format!("ip -j addr show dev {interface}"));
    let mut routes = station.json(&format!("ip -j route show dev {interface}"));
    for route in routes.as_array_mut().expect("routes") {
        // Whether the link has a carrier now.
        route["flags"].take();
    }
    let mut all = serde_json::Map::new();
    for key in ["address", "mtu", "ifalias", "altnames"] {
        all.insert(key.to_owned(), link[key].clone());
    }
    let global = addresses[0]["addr_info"].as_array().expect("addresses");
    let global = global.iter().filter(|a| a["scope"] == "global");
    all.insert("addresses".to_owned(), global.cloned().collect());
    all.insert("routes".to_owned(), routes);
    Value::Object(all)
}

#[test]
fn a_persistent_interface_is_found_where_it_was_moved_to() {
    let Some(mut lab) = Lab::pair() else { return };
    let blue = beside("blue");
    let (a, b) = lab.two();
    let options = ["--persist", "--queues", "2"];
    a.start(&options);
    b.start(&[]);
    b.configure("ib0");
    carry("ib0", a, &blue);
    blue.ok("ip link set ib0 name storage0 mtu 2000");
    await_place(a, "storage0", Some(&blue));
    configure(&blue, "storage0", a);
    blue.ok("ip route add 10.77.0.0/16 via 10.9.0.2 dev storage0");
    meet(&blue, a, b);
    let before = state(&blue, "storage0");
    let qpn = a.show("storage0")["qpn"].clone();
    for kill in [false, true] {
        if kill {
            a.kill_daemon();
        } else {
            a.stop();
        }
        a.start(&options);
        await_place(a, "storage0", Some(&blue));
        assert!(!a.has_link("ib0"));
        assert_eq!(state(&blue, "storage0"), before);
        assert_eq!(a.show("storage0")["qpn"], qpn);
        meet(&blue, a, b);
    }
}

#[test]
fn a_child_that_was_made_and_moved_by_hand_is_found_too() {
    let Some(mut lab) = Lab::pair() else { return };
    let (blue, green) = (beside("blue"), beside("green"));
    let (a, b) = lab.two();
    for host in [&mut *a, &mut *b] {
        host.start(&["--persist"]);
        host.ok("ip tuntap add dev ib0.8001 mode tap multi_queue");
        await_place(host, "ib0.8001", None);
    }
    b.configure("ib0.8001");
    carry("ib0.8001", a, &blue);
    blue.ok("ip link set ib0.8001 name storage0");
    await_place(a, "storage0", Some(&blue));
    configure(&blue, "storage0", a);
    meet(&blue, a, b);
    // Its parent may also be elsewhere.
    for parent in [None, Some(&green)] {
        if let Some(green) = parent {
            carry("ib0", a, green);
            await_place(a, "ib0", Some(green));
        }
        let before = state(&blue, "storage0");
        a.stop();
        a.start(&["--persist"]);
        await_place(a, "ib0", parent);
        // A parent that is down removes its children's carrier.
        parent.unwrap_or(&**a).ok("ip link set ib0 up");
        await_place(a, "storage0", Some(&blue));
        assert_eq!(a.show("storage0")["parent"], "ib0");
        assert_eq!(state(&blue, "storage0"), before);
        meet(&blue, a, b);
    }
}

#[test]
fn another_hosts_interface_is_left_alone() {
    let Some(mut lab) = Lab::pair() else { return };
    let blue = beside("blue");
    let (a, b) = lab.two();
    a.start(&["--persist"]);
    carry("ib0", a, &blue);
    await_place(a, "ib0", Some(&blue));
    a.stop();
    // The same underlay name, the same partition, the same interface name.
    b.start(&["--persist"]);
    await_place(b, "ib0", None);
    a.start(&["--persist"]);
    await_place(a, "ib0", Some(&blue));
}

#[test]
fn queues_that_a_service_manager_keeps_are_taken_over_there() {
    let Some(mut lab) = Lab::pair() else { return };
    let blue = beside("blue");
    let (a, b) = lab.two();
    let service = a.start_service(64, &[]);
    b.start(&[]);
    b.configure("ib0");
    carry("ib0", a, &blue);
    await_place(a, "ib0", Some(&blue));
    configure(&blue, "ib0", a);
    meet(&blue, a, b);
    // A child made by hand is not configured: only its place and its name identify it.
    a.ibtap("child add ib0 0x8002");
    await_place(a, "ib0.8002", Some(&blue));
    blue.ok("ip link set ib0.8002 up");
    blue.await_carrier("ib0.8002", true);
    let links = || ["ib0", "ib0.8002"].map(|name| blue.link(name));
    let before = links();
    for signal in [Signal::TERM, Signal::KILL] {
        service.restart_by(signal);
        await_place(a, "ib0", Some(&blue));
        await_place(a, "ib0.8002", Some(&blue));
        for (now, before) in links().iter().zip(&before) {
            for key in ["ifname", "ifindex", "flags", "address", "mtu"] {
                assert_eq!(now[key], before[key], "{key} after {signal:?}");
            }
        }
        meet(&blue, a, b);
    }
}

/// The configuration file of the interfaces ib0 and ib1.
fn configure_two(host: &Host) -> String {
    let one = |name: &str| format!("[[ipoib]]\nname = {name:?}\nunderlay = \"eth0\"\n");
    host.write_config(&(one("ib0") + &one("ib1")))
}

/// The packaged unit does not grant CAP_SYS_ADMIN.
#[test]
fn queues_in_a_namespace_that_the_daemon_cannot_enter_do_not_end_the_start() {
    let Some(mut lab) = Lab::pair() else { return };
    let blue = beside("blue");
    let a = lab.host(0);
    let path = configure_two(a);
    let daemon = a.file("confined-ibtapd");
    let script = format!(
        "#!/bin/sh\nexec setpriv --bounding-set=-sys_admin,-net_broadcast {} \"$@\"\n",
        env!("CARGO_BIN_EXE_ibtapd")
    );
    fs::write(&daemon, script).expect("written");
    fs::set_permissions(&daemon, Permissions::from_mode(0o755)).expect("changed");
    let service = a.start_service_after(64, &daemon, &[], || {}, &["--config", &path]);
    carry("ib0", a, &blue);
    await_place(a, "ib0", Some(&blue));
    service.restart_by(Signal::TERM);
    for name in ["ib0", "ib1"] {
        await_place(a, name, None);
    }
    let log = service.log();
    let why = "ib0: cannot take over the queues that systemd has kept: cannot enter another network namespace";
    assert!(log.contains(why), "{log}");
}

/// A container may give its interface a name that cannot be read as text.
#[test]
fn queues_that_cannot_be_taken_over_elsewhere_do_not_end_the_start() {
    let Some(mut lab) = Lab::pair() else { return };
    let blue = beside("blue");
    let a = lab.host(0);
    let path = configure_two(a);
    let service = a.start_service_with(64, &["--config", &path]);
    carry("ib0", a, &blue);
    await_place(a, "ib0", Some(&blue));
    blue.ok("ip link set ib0 down");
    let renamed = blue.run_script("ip link set ib0 name $(printf '\\377')");
    assert_eq!(renamed.code, Some(0), "{renamed:?}");
    service.restart_by(Signal::TERM);
    for name in ["ib0", "ib1"] {
        await_place(a, name, None);
    }
    let log = service.log();
    assert!(log.contains("ib0: cannot take over the queues"), "{log}");
}

/// A container, which has a namespace without a name. Returns its process and the id.
fn container(host: &Host) -> (Background, u32) {
    // The program is in the test's namespace first, then in the host's.
    let before = [
        Done::of(Command::new("readlink").arg("/proc/self/ns/net")).out,
        host.ok("readlink /proc/self/ns/net"),
    ];
    let sleeping = host.spawn("unshare --net sleep 600");
    let pid = sleeping.0.id();
    eventually(SOON, "a container", || {
        let theirs = host.run(&format!("readlink /proc/{pid}/ns/net")).out;
        (!theirs.is_empty() && !before.contains(&theirs)).then_some(())
    });
    (sleeping, pid)
}

/// A container, and a new child of `ib0` there, with this name: containers often name their interfaces themselves.
fn contain(host: &Host, pkey: &str, name: &str) -> (Background, u32) {
    let (sleeping, pid) = container(host);
    let child = host.ibtap(&format!("child add ib0 {pkey}")).out;
    let child = child.trim();
    host.ok(&format!("ip link set {child} netns {pid} name {name}"));
    host.ok(&format!("nsenter -n -t {pid} ip link set {name} up"));
    (sleeping, pid)
}

#[test]
fn stored_queues_of_renamed_children_in_containers_are_taken_over() {
    let Some(mut lab) = Lab::pair() else { return };
    let a = lab.host(0);
    let service = a.start_service(64, &[]);
    let containers = ["0x8001", "0x8002"].map(|pkey| contain(a, pkey, "eth1"));
    let link = |pid: u32| {
        let link = a.json(&format!("nsenter -n -t {pid} ip -j link show eth1"))[0].clone();
        (link["ifindex"].clone(), link["address"].clone())
    };
    let links = || containers.each_ref().map(|(_, pid)| link(*pid));
    let pkeys = || {
        let shown = a.ask("show");
        let children = shown.iter().filter(|i| i["name"] == "eth1");
        let mut pkeys: Vec<_> = children.map(|i| i["pkey"].as_u64()).collect();
        pkeys.sort_unstable();
        pkeys
    };
    let both = [Some(0x8001), Some(0x8002)];
    eventually(SOON, "both moves", || (pkeys() == both).then_some(()));
    let before = links();
    for signal in [Signal::TERM, Signal::KILL, Signal::TERM] {
        service.restart_by(signal);
        eventually(SOON, "both children", || (pkeys() == both).then_some(()));
        assert_eq!(links(), before, "after {signal:?}");
    }

    // Both are stored with one label by now. The end of one container leaves the queues of the other child there.
    let [(first, _), (_second, pid)] = containers;
    drop(first);
    let rest = [Some(0x8002)];
    eventually(SOON, "one to go", || (pkeys() == rest).then_some(()));
    service.restart_by(Signal::TERM);
    eventually(SOON, "the other child", || (pkeys() == rest).then_some(()));
    assert_eq!(link(pid), before[1]);
}

#[test]
fn a_child_in_a_container_is_not_the_configured_interface_of_its_name() {
    let Some(mut lab) = Lab::pair() else { return };
    let a = lab.host(0);
    let path = configure_two(a);
    let service = a.start_service_with(64, &["--config", &path]);
    let _container = contain(a, "0x8001", "ib1");
    let called_ib1 = || {
        let all = a.ask("show").into_iter();
        let all = all.filter(|i| i["name"] == "ib1");
        all.map(|i| i["parent"].clone()).collect::<Vec<_>>()
    };
    let await_called = |count: usize| {
        eventually(SOON, "the interfaces ib1", || {
            (called_ib1().len() == count).then_some(())
        });
    };
    await_called(2);
    service.restart_by(Signal::TERM);
    await_called(2);
    a.ok("ip link del ib1");
    await_called(1);
    assert_eq!(called_ib1(), ["ib0"], "the child");
    let done = a.ibtap("reload");
    assert!(done.out.contains("ib1: created"), "{done:?}");
    assert!(a.has_link("ib1"));
}

#[test]
fn a_child_beside_its_parent_in_a_named_namespace_is_the_configured_one() {
    let Some(mut lab) = Lab::pair() else { return };
    let blue = beside("blue");
    let a = lab.host(0);
    let ib0 = "[[ipoib]]\nname = \"ib0\"\nunderlay = \"eth0\"\n";
    a.start_config(ib0);
    carry("ib0", a, &blue);
    await_place(a, "ib0", Some(&blue));
    blue.ok("ip tuntap add dev ib0.8001 mode tap");
    a.ibtap("child add ib0 0x8002");
    for name in ["ib0.8001", "ib0.8002"] {
        await_place(a, name, Some(&blue));
    }
    a.write_config(&format!("{ib0}children = [0x8001, 0x8002]\n"));
    let done = a.ibtap("reload");
    for name in ["ib0.8001", "ib0.8002"] {
        let configured = format!("{name}: existed already and is configured now");
        assert!(done.out.contains(&configured), "{done:?}");
    }
    assert_eq!(done.code, Some(0), "{done:?}");
}

#[test]
fn a_child_beside_its_parent_in_a_container_is_the_configured_one() {
    let Some(mut lab) = Lab::pair() else { return };
    let a = lab.host(0);
    let ib0 = "[[ipoib]]\nname = \"ib0\"\nunderlay = \"eth0\"\n";
    a.start_config(ib0);
    let (_container, pid) = container(a);
    a.ok(&format!("ip link set ib0 netns {pid}"));
    let add = "ip tuntap add dev ib0.8001 mode tap";
    a.ok(&format!("nsenter -n -t {pid} {add}"));
    eventually(SOON, "the child", || {
        let shown = a.ask("show").into_iter();
        shown.map(|i| i["name"].clone()).find(|n| n == "ib0.8001")
    });
    a.write_config(&format!("{ib0}children = [0x8001]\n"));
    let done = a.ibtap("reload");
    let configured = "ib0.8001: existed already and is configured now";
    assert!(done.out.contains(configured), "{done:?}");
    assert_eq!(done.code, Some(0), "{done:?}");
}
