//! Daemons that end, are killed and return.

use std::time::Duration;

use rustix::process::Signal;
use serde_json::Value;

use crate::lab::{HEALED, Host, LINK_MTU, Lab, SOON, eventually, iperf_across};

/// Waits for both families.
fn heals(from: &Host, to: &Host) {
    from.is_answered_again(&to.v4());
    from.is_answered_again(&to.v6());
}

/// Two hosts whose interfaces survive their daemons.
fn persistent_pair(lab: &mut Lab, options: &[&str]) {
    let (a, b) = lab.two();
    for host in [&mut *a, &mut *b] {
        host.start(options);
        host.configure("ib0");
    }
    a.reaches(b);
    b.reaches(a);
}

#[test]
fn a_clean_end_leaves_nothing_behind() {
    let Some(mut lab) = Lab::running_pair() else {
        return;
    };
    let (a, b) = lab.two();
    assert!(a.ok("ip -6 maddr show dev eth0").contains("ff12:401b:"));
    a.stop();
    assert!(!a.has_link("ib0"));
    assert!(!a.socket().exists());
    assert!(!a.ok("ip -6 maddr show dev eth0").contains("inet6 ff12:"));
    assert!(a.ok("ss -Haun sport = :4791").trim().is_empty());
    assert!(b.daemon().is_running());
}

#[test]
fn sigint_is_a_clean_end_too() {
    let Some(mut lab) = Lab::pair() else { return };
    let a = lab.host(0);
    let status = a.start(&[]).end_by(Signal::INT);
    assert_eq!(status.code(), Some(0), "{status}");
    assert!(!a.has_link("ib0"));
    assert!(!a.socket().exists());
}

#[test]
fn a_killed_daemon_comes_back_with_a_new_queue_pair_and_traffic_heals() {
    let Some(mut lab) = Lab::pair() else { return };
    let (a, b) = lab.two();
    for host in [&mut *a, &mut *b] {
        host.start(&["--qpn", "random"]);
        host.configure("ib0");
    }
    a.reaches(b);
    let old = b.show("ib0")["qpn"].clone();
    // Twice, and on both sides, because the first of the two had learned the second.
    for _ in 0..2 {
        b.kill_daemon();
        assert!(!a.pings(&b.v4()));
        eventually(SOON, "the TAP to go with its owner", || {
            (!b.has_link("ib0")).then_some(())
        });
        b.start(&["--qpn", "random"]);
        b.configure("ib0");
        a.reaches(b);
        b.reaches(a);
    }
    assert_ne!(
        b.show("ib0")["qpn"],
        old,
        "a queue pair number is not reused at once"
    );
    a.kill_daemon();
    a.start(&["--qpn", "random"]);
    a.configure("ib0");
    b.reaches(a);
    a.reaches(b);
}

#[test]
fn a_persistent_interface_keeps_its_addresses_over_restart_and_kill() {
    let Some(mut lab) = Lab::pair() else { return };
    let (a, b) = lab.two();
    a.start(&[]);
    b.start(&["--persist"]);
    a.configure("ib0");
    b.configure("ib0");
    a.reaches(b);
    let index = b.link("ib0")["ifindex"].clone();
    let mac = b.link("ib0")["address"].clone();

    b.stop();
    assert!(b.has_link("ib0"));
    b.await_carrier("ib0", false);
    b.start(&["--persist"]);
    a.reaches(b);

    b.kill_daemon();
    b.start(&["--persist"]);
    a.reaches(b);
    assert_eq!(b.link("ib0")["ifindex"], index);
    assert_eq!(b.link("ib0")["address"], mac);
}

#[test]
fn after_a_kill_on_either_side_traffic_heals_in_seconds() {
    for qpn in ["stable", "random"] {
        let Some(mut lab) = Lab::pair() else { return };
        let options = ["--persist", "--qpn", qpn];
        persistent_pair(&mut lab, &options);
        let (a, b) = lab.two();
        // First the far side sends, then the near one: either may have outdated information.
        for near_first in [false, true] {
            for side in 0..2 {
                let (near, far) = if side == 0 {
                    (&mut *a, &mut *b)
                } else {
                    (&mut *b, &mut *a)
                };
                let before = near.show("ib0")["qpn"].clone();
                near.kill_daemon();
                assert!(!far.pings(&near.v4()));
                near.start(&options);
                if near_first {
                    heals(near, far);
                    heals(far, near);
                } else {
                    heals(far, near);
                    heals(near, far);
                }
                assert_eq!(near.show("ib0")["qpn"] == before, qpn == "stable");
            }
        }
    }
}

#[test]
fn a_port_of_a_bridge_heals_in_seconds_too() {
    for qpn in ["stable", "random"] {
        let Some(mut lab) = Lab::pair() else { return };
        let (a, b) = lab.two();
        let options = ["--persist", "--qpn", qpn];
        for host in [&mut *a, &mut *b] {
            host.start(&options);
            host.ok("ip link add br0 type bridge");
            host.ok("ip link set ib0 master br0");
            host.configure("br0");
        }
        // After the restart, either side may send first: both must work.
        for near_first in [false, true] {
            for (from, to) in [(&*a, &*b), (&*b, &*a)] {
                from.reaches(to);
            }
            b.kill_daemon();
            b.start(&options);
            if near_first {
                heals(b, a);
                heals(a, b);
            } else {
                heals(a, b);
                heals(b, a);
            }
        }
    }
}

#[test]
fn a_peer_that_came_back_answers_unicast_probes_and_is_known_by_its_new_number() {
    let Some(mut lab) = Lab::pair() else { return };
    let options = ["--persist", "--qpn", "random"];
    persistent_pair(&mut lab, &options);
    let (a, b) = lab.two();
    // Linux probes from its link-local address.
    a.await_link_local("ib0");
    b.kill_daemon();
    b.start(&options);
    // A probe goes to the kernel's MAC, not to broadcast (RFC 1122, 2.3.2.1).
    for address in [b.v4(), b.v6()] {
        eventually(HEALED, &format!("{address} to be confirmed"), || {
            // Repeated, because the announcement of its new number makes the entry stale.
            a.ok(&format!("ip neigh change {address} dev ib0 nud probe"));
            std::thread::sleep(Duration::from_millis(100));
            let entries = a.json(&format!("ip -j neigh show to {address} dev ib0"));
            (entries[0]["state"] == Value::from(vec!["REACHABLE"])).then_some(())
        });
    }
    let number = b.show("ib0")["qpn"].clone();
    let known = a.ask("neigh ib0");
    assert!(
        known.iter().any(|entry| entry["qpn"] == number),
        "{known:?}"
    );
}

#[test]
fn iperf3_over_a_persistent_interface_survives_a_restart_and_a_kill() {
    let Some(mut lab) = Lab::pair() else { return };
    persistent_pair(&mut lab, &["--persist"]);
    let (a, b) = lab.two();
    a.ok("ip route add 10.77.0.0/16 via 10.9.0.2 dev ib0");
    for (signal, direction) in [(Signal::TERM, ""), (Signal::KILL, "-R")] {
        iperf_across(a, b, direction, |a| {
            a.daemon().end_by(signal);
            a.start(&["--persist"]);
        });
    }
    assert!(a.ok("ip route show dev ib0").contains("10.77.0.0/16"));
}

#[test]
fn an_interface_that_was_there_before_stays() {
    let Some(mut lab) = Lab::pair() else { return };
    let (a, b) = lab.two();
    a.start(&[]);
    a.configure("ib0");
    b.ok("ip tuntap add dev ib0 mode tap multi_queue vnet_hdr");
    b.configure_addresses("ib0");
    b.start(&[]);
    b.await_carrier("ib0", true);
    a.reaches(b);
    b.stop();
    assert!(b.has_link("ib0"), "it was the user's");
}

#[test]
fn a_signal_ends_the_wait_for_an_address() {
    let Some(mut lab) = Lab::pair() else { return };
    let a = lab.host(0);
    a.ok("ip link set eth0 down");
    for signal in [Signal::TERM, Signal::INT] {
        let options = ["--underlay", "eth0"];
        let mut daemon = a.start_other_until("waiting.sock", &options, "waiting: eth0 is down");
        let status = daemon.end_by(signal);
        assert_eq!(status.code(), Some(0), "{status}");
        assert!(!a.has_link("ib0") && !a.file("waiting.sock").exists());
        let log = daemon.log();
        assert_eq!(log.lines().count(), 1, "a signal is no error: {log}");
    }
}

#[test]
fn a_fresh_interface_is_adopted_with_the_links_mtu_and_an_old_one_keeps_its_own() {
    let Some(mut lab) = Lab::pair() else { return };
    let a = lab.host(0);
    a.ok("ip tuntap add dev ib0 mode tap multi_queue vnet_hdr");
    let mac = a.link("ib0")["address"].clone();
    a.start(&[]);
    assert_eq!(a.mtu("ib0"), u64::from(LINK_MTU));
    assert_eq!(a.link("ib0")["address"], mac);
    assert_eq!(a.show("ib0")["mac"], mac);
    a.ok("ip link set ib0 mtu 1500");
    a.stop();
    a.start(&[]);
    assert_eq!(a.mtu("ib0"), 1500);
    a.stop();
    a.start(&["--mtu", "2044"]);
    assert_eq!(a.mtu("ib0"), 2044);
}

#[test]
fn an_interface_with_one_queue_is_adopted_with_one_queue() {
    let Some(mut lab) = Lab::pair() else { return };
    let (a, b) = lab.two();
    a.ok("ip tuntap add dev ib0 mode tap");
    a.start(&["--queues", "2"]);
    assert_eq!(a.show("ib0")["queues"], 1);
    b.start(&["--queues", "2"]);
    a.configure("ib0");
    b.configure("ib0");
    a.reaches(b);
    b.reaches(a);
}

#[test]
fn an_interface_that_is_still_held_is_waited_for() {
    let Some(mut lab) = Lab::pair() else { return };
    lab.add_second_underlay();
    let a = lab.host(0);
    let first = a.start(&["--persist"]).pid();
    let options = ["--underlay", "eth1", "--persist"];
    let held = format!("process {first} (ibtapd)");
    let second = a.start_other_until("second.sock", &options, &held);
    a.stop();
    eventually(SOON, "the second daemon to take over", || {
        a.run_script(&format!(
            "exec {} --socket {} show ib0",
            crate::lab::ibtap().display(),
            a.file("second.sock").display()
        ))
        .out
        .contains("soft/eth1")
        .then_some(())
    });
    drop(second);
}

#[test]
fn the_socket_of_a_killed_daemon_is_replaced() {
    let Some(mut lab) = Lab::pair() else { return };
    let a = lab.host(0);
    a.start(&[]);
    a.kill_daemon();
    assert!(a.socket().exists());
    a.start(&[]);
    assert_eq!(a.ask("show").len(), 1);
}
