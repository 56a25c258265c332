//! Interfaces that stay unchanged while the daemon is absent: a service manager keeps their queues.

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::lab::{Alone, Host, Lab, Pinging, SOON, Service, eventually, iperf_across};

/// Maximum number of descriptors in the store, by default.
const STORE: usize = 64;

/// State that a restart must not change: index, MAC, flags with the carrier, master, addresses, routes.
pub fn state(host: &Host) -> Value {
    let mut link = host.json("ip -d -j link show dev ib0")[0].clone();
    let addresses = host.json("ip -j addr show dev ib0")[0]["addr_info"].clone();
    let routes = host.json("ip -j route show dev ib0");
    let mut all = serde_json::Map::new();
    for key in ["ifindex", "address", "flags", "mtu", "master", "operstate"] {
        all.insert(key.to_owned(), link[key].take());
    }
    all.insert("addresses".to_owned(), addresses);
    all.insert("routes".to_owned(), routes);
    Value::Object(all)
}

/// Two hosts, the first under a service manager.
fn pair_with_service(lab: &mut Lab, store: usize, options: &[&str]) -> Service {
    let (a, b) = lab.two();
    let service = a.start_service(store, options);
    b.start(&[]);
    for host in [&*a, &*b] {
        host.configure("ib0");
    }
    a.ok("ip route add 10.77.0.0/16 via 10.9.0.2 dev ib0");
    a.reaches(b);
    b.reaches(a);
    // An address that is no longer tentative does not change.
    a.await_link_local("ib0");
    service
}

#[test]
fn nothing_of_the_interface_changes_over_a_restart_or_a_kill() {
    let Some(mut lab) = Lab::pair() else { return };
    let service = pair_with_service(&mut lab, STORE, &["--queues", "2"]);
    let (a, b) = lab.two();
    let stored = service.events("stored ibtap-");
    let all = stored.iter().all(|event| event == "stored ibtap-ib0 2");
    assert!(all && !stored.is_empty(), "{stored:?}");
    let before = state(a);
    let qpn = a.show("ib0")["qpn"].clone();
    for signal in [Signal::TERM, Signal::KILL] {
        service.restart_by(signal);
        assert_eq!(state(a), before, "{signal:?}");
        assert_eq!(a.show("ib0")["qpn"], qpn);
        assert_eq!(a.show("ib0")["queues"], 2);
        a.reaches(b);
        b.reaches(a);
    }
    let taken = service
        .log()
        .matches("taken over with the 2 queue(s)")
        .count();
    assert_eq!(taken, 2, "{}", service.log());
    drop(service);
    eventually(SOON, "ib0 to go with the last that keeps it", || {
        (!a.has_link("ib0")).then_some(())
    });
}

#[test]
fn iperf3_across_a_restart_and_a_kill_survives() {
    let Some(mut lab) = Lab::pair() else { return };
    let service = pair_with_service(&mut lab, STORE, &[]);
    let (a, b) = lab.two();
    for (signal, direction) in [(Signal::TERM, ""), (Signal::KILL, "-R")] {
        iperf_across(a, b, direction, |_| service.restart_by(signal));
    }
}

/// The host has the MAC of its router, which the next daemon does not know, and no packet of the router comes. The host's
/// own check of the router would come after 20 seconds or more.
#[test]
fn a_router_is_reached_after_a_restart() {
    let Some(mut lab) = Lab::pair() else { return };
    let service = pair_with_service(&mut lab, STORE, &["--queues", "2"]);
    let (a, b) = lab.two();
    b.ok("ip addr add 10.77.0.1/32 dev lo");
    b.ok("ip addr add fd77::1/128 dev lo nodad");
    a.ok(&format!("ip route add fd77::/64 via {} dev ib0", b.v6()));
    let behind = ["10.77.0.1", "fd77::1"];
    a.reaches_all(&behind);
    for signal in [Signal::TERM, Signal::KILL] {
        service.restart_by(signal);
        a.reaches_all(&behind);
    }
}

/// The service manager keeps the sockets of the underlay, too.
#[test]
fn no_ping_is_lost_in_a_restart() {
    let _alone = Alone::begin();
    let Some(mut lab) = Lab::pair() else { return };
    let service = pair_with_service(&mut lab, STORE, &["--queues", "2"]);
    let (a, b) = lab.two();
    let pings = [
        Pinging::start(a, &b.v4()),
        Pinging::start(a, &b.v6()),
        Pinging::start(b, &a.v4()),
        Pinging::start(b, &a.v6()),
    ];
    for _ in 0..3 {
        Pinging::all_go_on(&pings);
        service.restart_by(Signal::TERM);
    }
    Pinging::all_go_on(&pings);
    for ping in pings {
        ping.stop().lost_at_most(0);
    }
}

/// Sockets of an underlay that was deleted are not those of the next one with its name.
#[test]
fn the_sockets_of_a_new_underlay_are_stored() {
    let Some(mut lab) = Lab::pair() else { return };
    let a = lab.host(0);
    let make = || {
        a.ok("ip link add under0 mtu 4200 type veth peer name over0");
        a.ok("ip link set over0 up");
        a.bring_up("under0");
    };
    make();
    let service = a.start_service_with(STORE, &["--underlay", "under0", "--queues", "1"]);
    service.await_count("stored roce-under0-0 1", 1);
    a.ok("ip link del under0");
    service.await_count("removed roce-under0-0", 1);
    make();
    service.await_count("stored roce-under0-0 1", 2);
    service.restart_by(Signal::TERM);
    service.await_count("stored roce-under0-0 1", 3);
    assert_eq!(a.show("ib0")["carrier"], true);
}

/// As above, and the daemon reads about both changes at once.
#[test]
fn the_sockets_of_an_underlay_that_was_replaced_at_once_are_stored() {
    let Some(mut lab) = Lab::pair() else { return };
    let a = lab.host(0);
    let make = "link add under0 mtu 4200 type veth peer name over0
                link set over0 up
                addr add fe80::77/64 dev under0 nodad
                link set under0 up";
    let batch = |text: String| {
        let file = a.file("batch");
        std::fs::write(&file, text).expect("written");
        a.ok(&format!("ip -batch {}", file.display()));
    };
    batch(make.to_owned());
    let service = a.start_service_with(STORE, &["--underlay", "under0", "--queues", "1"]);
    service.await_count("stored roce-under0-0 1", 1);
    let daemon = Pid::from_raw(service.pid() as i32).expect("a process id");
    kill_process(daemon, Signal::STOP).expect("it is alive");
    batch(format!("link del under0\n{make}"));
    kill_process(daemon, Signal::CONT).expect("it is alive");
    service.await_count("stored roce-under0-0 1", 2);
}

#[test]
fn a_bridge_port_keeps_its_place() {
    let Some(mut lab) = Lab::pair() else { return };
    let service = pair_with_service(&mut lab, STORE, &[]);
    let (a, _) = lab.two();
    a.ok("ip link add br0 type bridge");
    a.ok("ip link set ib0 master br0");
    a.ok("ip link set br0 up");
    eventually(SOON, "the port to forward", || {
        a.ok("bridge link show dev ib0")
            .contains("forwarding")
            .then_some(())
    });
    let before = state(a);
    let changes = || a.ok("cat /sys/class/net/ib0/carrier_changes");
    let carrier = changes();
    for signal in [Signal::TERM, Signal::KILL] {
        service.restart_by(signal);
        assert_eq!(state(a), before, "{signal:?}");
        assert_eq!(changes(), carrier, "{signal:?}: the port would be flushed");
    }
}

#[test]
fn a_renamed_interface_is_found_again_and_an_unused_one_is_removed() {
    let Some(mut lab) = Lab::pair() else { return };
    let a = lab.host(0);
    let service = a.start_service(STORE, &[]);
    let index = a.link("ib0")["ifindex"].clone();
    a.ok("ip link set ib0 down");
    a.ok("ip link set ib0 name fast0");
    a.ok("ip link set fast0 up");
    service.restart_by(Signal::TERM);
    assert_eq!(a.link("fast0")["ifindex"], index);
    assert!(!a.has_link("ib0"));
    assert_eq!(a.ask("show").len(), 1);
    a.ok("ip link del fast0");
    service.await_count("removed ibtap-ib0", 1);
    service.restart_by(Signal::TERM);
    assert!(a.has_link("ib0"), "a new one is made");
    assert_ne!(a.link("ib0")["ifindex"], index);
}

#[test]
fn interfaces_that_exchanged_their_names_are_both_kept() {
    let Some(mut lab) = Lab::pair() else { return };
    let a = lab.host(0);
    let file = a.file("two.toml");
    let device = |name, pkey| {
        format!("[[ipoib]]\nname = {name:?}\nunderlay = \"eth0\"\npkey = {pkey}\nqueues = 1\n")
    };
    let text = device("ib0", 0x8001) + &device("ib1", 0x8002);
    std::fs::write(&file, text).expect("a configuration");
    let service = a.start_service_with(STORE, &["--config", file.to_str().expect("a path")]);
    let index = |name: &str| a.link(name)["ifindex"].clone();
    let (one, other) = (index("ib0"), index("ib1"));
    for (from, to) in [("ib0", "swap"), ("ib1", "ib0"), ("swap", "ib1")] {
        a.ok(&format!("ip link set {from} down"));
        a.ok(&format!("ip link set {from} name {to}"));
        a.ok(&format!("ip link set {to} up"));
    }
    for signal in [Signal::TERM, Signal::KILL, Signal::TERM] {
        service.restart_by(signal);
        assert_eq!((index("ib1"), index("ib0")), (one.clone(), other.clone()));
        assert_eq!(a.ask("show").len(), 2);
    }
}

#[test]
fn fewer_queues_are_used_than_were_kept_when_fewer_are_asked_for() {
    let Some(mut lab) = Lab::pair() else { return };
    let (a, b) = lab.two();
    let file = a.file("queues.toml");
    let configure = |queues: usize| {
        let text = format!("[[ipoib]]\nname = \"ib0\"\nunderlay = \"eth0\"\nqueues = {queues}\n");
        std::fs::write(&file, text).expect("a configuration");
    };
    configure(3);
    let path = file.to_str().expect("a path").to_owned();
    let service = a.start_service_with(STORE, &["--config", &path]);
    b.start(&[]);
    a.configure("ib0");
    b.configure("ib0");
    a.reaches(b);
    for (asked, used) in [(2, 2), (3, 2)] {
        configure(asked);
        service.restart_by(Signal::TERM);
        assert_eq!(a.show("ib0")["queues"], used);
        b.reaches(a);
        a.reaches(b);
    }
    assert_eq!(
        service.events("stored ibtap-").last().map(String::as_str),
        Some("stored ibtap-ib0 2")
    );
}

#[test]
fn what_a_reload_takes_out_of_service_leaves_the_store_and_goes() {
    let Some(mut lab) = Lab::pair() else { return };
    let a = lab.host(0);
    let device = |name, pkey| {
        format!("[[ipoib]]\nname = {name:?}\nunderlay = \"eth0\"\npkey = {pkey}\nqueues = 1\n")
    };
    let file = a.file("reloaded.toml");
    let write = |text: String| std::fs::write(&file, text).expect("a configuration");
    let (one, two) = (device("ib0", 0x8001), device("ib1", 0x8002));
    a.ok("ip tuntap add dev ib1 mode tap");
    write(one.clone() + &two);
    let service = a.start_service_with(STORE, &["--config", file.to_str().expect("a path")]);
    // Both exist before the daemon starts; one of them was created by the user.
    service.restart_by(Signal::TERM);
    write(device("ib2", 0x8003));
    let reloaded = a.ibtap("--json reload");
    let reloaded: Value = serde_json::from_str(&reloaded.out).expect("JSON");
    assert_eq!(
        reloaded[0]["applied"],
        serde_json::json!([
            "ib1: out of service; the interface existed before ibtapd and stays",
            "ib0: removed",
            "ib2: created"
        ])
    );
    service.await_count("removed ibtap-ib0", 1);
    service.await_count("removed ibtap-ib1", 1);
    eventually(SOON, "ib0 to go", || (!a.has_link("ib0")).then_some(()));
    assert!(a.has_link("ib1"), "it was the user's");
    // A new interface with the name of a removed one is new.
    write(one + &two);
    assert_eq!(a.ibtap("reload").code, Some(0));
    assert_eq!(a.ask("show").len(), 2);
    service.restart_by(Signal::KILL);
    assert_eq!(a.ask("show").len(), 2);
}

#[test]
fn without_a_store_the_interface_goes_and_comes() {
    let Some(mut lab) = Lab::pair() else { return };
    let a = lab.host(0);
    let service = a.start_service(0, &[]);
    let index = a.link("ib0")["ifindex"].clone();
    service.restart_by(Signal::TERM);
    assert_ne!(a.link("ib0")["ifindex"], index);
}
