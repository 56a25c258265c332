//! VNICs that are created, removed and return.

use rustix::process::Signal;
use serde_json::Value;

use super::{fixed, managed, pair, start_all, vesw};
use crate::lab::{Em, Host, Lab, SOON, Station, eventually, iperf_across};

const PERSIST: &str = "persist = true";

/// Maximum number of descriptors in the store.
const STORE: usize = 8;

#[test]
fn a_clean_end_leaves_nothing_behind() {
    let Some(mut lab) = pair() else { return };
    let (a, b) = lab.two();
    let groups = a.ok("ip -6 maddr show dev eth0");
    assert!(groups.contains("ff12:5645:"), "{groups}");
    a.stop();
    assert!(!a.has_link("vnic0"));
    let groups = a.ok("ip -6 maddr show dev eth0");
    assert!(!groups.contains("inet6 ff12:"), "{groups}");
    assert!(b.daemon().is_running());
}

#[test]
fn a_node_that_was_killed_is_reached_again() {
    let Some(mut lab) = pair() else { return };
    let (a, b) = lab.two();
    let lid = super::lid(b, "vnic0");
    for near_first in [true, false] {
        b.kill_daemon();
        assert!(!a.pings(&b.v4()));
        eventually(SOON, "the TAP to go with its owner", || {
            (!b.has_link("vnic0")).then_some(())
        });
        b.start_config(&fixed("vnic0", 1, ""));
        b.configure("vnic0");
        let (first, then) = if near_first { (&*a, &*b) } else { (&*b, &*a) };
        first.reaches(then);
        then.reaches(first);
    }
    assert_eq!(
        super::lid(b, "vnic0"),
        lid,
        "a LID is the same after a restart"
    );
}

#[test]
fn streams_over_a_persistent_vnic_outlive_restart_and_kill() {
    let Some(mut lab) = Lab::pair() else { return };
    let (a, b) = lab.two();
    let text = fixed("vnic0", 1, PERSIST);
    start_all(&mut [&mut *a, &mut *b], &text);
    for (signal, direction) in [(Signal::TERM, ""), (Signal::KILL, "-R")] {
        iperf_across(a, b, direction, |a| {
            a.daemon().end_by(signal);
            a.start_config(&text);
        });
    }
}

#[test]
fn the_carrier_follows_the_underlay() {
    let Some(mut lab) = pair() else { return };
    let (a, b) = lab.two();
    a.ok("ip link set eth0 down");
    a.await_carrier("vnic0", false);
    let reason = a.show("vnic0")["reason"].clone();
    assert!(reason.is_string(), "{}", a.show("vnic0"));
    a.ok("ip link set eth0 up");
    a.await_carrier("vnic0", true);
    a.reaches(b);
    b.reaches(a);
}

/// Queues that a service manager keeps have their former carrier.
#[test]
fn an_inherited_vnic_without_its_partition_loses_its_carrier() {
    let Some(mut lab) = Lab::pair() else { return };
    let a = lab.host(0);
    let vnic = fixed("vnic0", 1, "pkey = 0x8007");
    let path = a.write_config(&vnic);
    let service = a.start_service_with(STORE, &["--config", &path]);
    a.configure("vnic0");
    a.write_config(&format!("[port.eth0]\npkeys = [0xffff]\n{vnic}"));
    service.restart_by(Signal::KILL);
    a.await_carrier("vnic0", false);
    a.write_config(&vnic);
    assert_eq!(a.ibtap("reload").code, Some(0));
    a.await_carrier("vnic0", true);
}

#[test]
fn an_inherited_vnic_keeps_its_carrier_for_its_manager_and_not_for_ever() {
    let Some(mut lab) = Lab::pair() else { return };
    let (a, b) = lab.two();
    a.start_config(&managed("vnic0"));
    let path = b.write_config(&managed("vnic0"));
    let service = b.start_service_with(STORE, &["--config", &path]);
    let mut em = Em::start(a, "", &vesw(1, ""));
    a.configure("vnic0");
    b.configure("vnic0");
    b.reaches(a);
    let changes = || b.ok("cat /sys/class/net/vnic0/carrier_changes");
    let before = changes();
    service.restart_by(Signal::KILL);
    eventually(SOON, "the manager to have configured it again", || {
        (b.show("vnic0")["vesw"] == 1).then_some(())
    });
    b.reaches(a);
    assert_eq!(changes(), before, "the restart did not show");
    em.end_by(Signal::KILL);
    service.restart_by(Signal::KILL);
    eventually(2 * SOON, "the carrier to go", || {
        (changes() != before).then_some(())
    });
    b.await_carrier("vnic0", false);
}

/// No data thread polls the queues of a VNIC that is not on a switch.
#[test]
fn a_vnic_without_a_switch_goes_with_its_namespace() {
    let Some(mut lab) = Lab::pair() else { return };
    let blue = Station::create("blue");
    let a = lab.host(0);
    a.start_config(&managed("vnic0"));
    let there = blue.namespace().name().to_owned();
    a.ok(&format!("ip link set vnic0 netns {there}"));
    eventually(SOON, "the move", || {
        (a.show("vnic0")["netns"] == there).then_some(())
    });
    drop(blue);
    eventually(SOON, "the VNIC to go", || {
        a.ask("vnic show").is_empty().then_some(())
    });
}

/// The kernel renames interfaces that are up, too.
#[test]
fn the_manager_learns_the_new_name_of_a_vnic_that_is_up() {
    let Some(mut lab) = Lab::pair() else { return };
    let a = lab.host(0);
    a.start_config(&managed("vnic0"));
    let em = Em::start(a, "poll_interval = 1", &vesw(1, ""));
    a.ok("ip link set vnic0 up");
    let await_known = |name: &str| {
        eventually(SOON, "the manager to know the interface", || {
            let all = em.ask("port");
            let is_it =
                |port: &Value| port["interface"] == name && port["condition"] == "forwarding";
            all.iter().any(is_it).then_some(())
        });
    };
    await_known("vnic0");
    a.ok("ip link set vnic0 name lan0");
    await_known("lan0");
}

#[test]
fn ip_link_manages_it() {
    let Some(mut lab) = pair() else { return };
    let (a, b) = lab.two();
    a.ok("ip link set vnic0 down");
    assert!(!b.pings(&a.v4()));
    a.ok("ip link set vnic0 up");
    a.configure_ipv6_again();
    a.reaches(b);
    a.ok("ip link set vnic0 down");
    a.ok("ip link set vnic0 name lan0");
    a.ok("ip link set lan0 up");
    eventually(SOON, "the new name", || {
        (a.ibtap("show lan0").code == Some(0)).then_some(())
    });
    b.reaches_all(&[a.v4()]);
    // Neighbours see another address from then on.
    a.ok("ip link set lan0 address 02:00:00:00:77:01");
    b.ok("ip neigh flush dev vnic0");
    b.reaches_all(&[a.v4()]);
    let neighbours = b.ok(&format!("ip neigh show {}", a.v4()));
    assert!(neighbours.contains("02:00:00:00:77:01"), "{neighbours}");
    a.ok("ip link del lan0");
    eventually(SOON, "the daemon to let go", || {
        a.ask("show").is_empty().then_some(())
    });
    assert!(a.daemon().is_running());
}

impl Host {
    /// An interface that was down has lost its IPv6 address.
    fn configure_ipv6_again(&self) {
        self.ok(&format!("ip addr add {}/64 dev vnic0 nodad", self.v6()));
    }
}

#[test]
fn reload_adds_changes_and_removes() {
    let Some(mut lab) = pair() else { return };
    let (a, b) = lab.two();
    let before = a.show("vnic0");
    a.write_config(&(fixed("vnic0", 1, "mtu = 1500") + &fixed("vnic1", 2, "")));
    let done = a.ibtap("reload");
    assert_eq!(done.code, Some(0), "{done:?}");
    for word in ["vnic0", "1500", "vnic1"] {
        assert!(done.out.contains(word), "{word}: {}", done.out);
    }
    assert_eq!(a.mtu("vnic0"), 1500);
    assert_eq!(a.show("vnic0")["qpn"], before["qpn"], "it is the same one");
    a.reaches(b);
    a.ok("ip link set vnic1 up");
    a.await_carrier("vnic1", true);
    a.write_config(&fixed("vnic1", 2, ""));
    assert_eq!(a.ibtap("reload").code, Some(0));
    assert!(!a.has_link("vnic0") && a.has_link("vnic1"));
    assert_eq!(a.ibtap("reload").out, "nothing has changed\n");
}

/// The MTU of a managed VNIC never grows by itself.
#[test]
fn a_managed_vnic_without_an_mtu_in_the_file_has_the_usual_one() {
    let Some(mut lab) = Lab::pair() else { return };
    let a = lab.host(0);
    a.start_config(&(managed("vnic0") + "mtu = 1400\n"));
    assert_eq!(a.mtu("vnic0"), 1400);
    a.write_config(&managed("vnic0"));
    assert_eq!(a.ibtap("reload").out, "applied  vnic0: mtu 1500\n");
    assert_eq!(a.mtu("vnic0"), 1500);
}

/// An IPoIB interface and a VNIC of one daemon share the port and nothing else.
#[test]
fn a_vnic_stands_beside_ipoib() {
    let Some(mut lab) = Lab::pair() else { return };
    let (a, b) = lab.two();
    let device = "[[ipoib]]\nname = \"ib0\"\nunderlay = \"eth0\"\n";
    let text = format!("{device}{}", fixed("vnic0", 1, ""));
    for (host, number) in [(&mut *a, 1), (&mut *b, 2)] {
        host.start_config(&text);
        host.configure("ib0");
        host.ok(&format!("ip addr add 10.7.0.{number}/24 dev vnic0"));
        host.ok("ip link set vnic0 up");
        host.await_carrier("vnic0", true);
    }
    a.reaches(b);
    a.reaches_all(&["10.7.0.2"]);
    assert_eq!(a.ask("show").len(), 2);
    let names: Vec<_> = a.ask("show").iter().map(|i| i["name"].clone()).collect();
    assert!(
        names.contains(&"ib0".into()) && names.contains(&"vnic0".into()),
        "{names:?}"
    );
    let received = || a.link("ib0")["stats64"]["rx"]["packets"].as_u64();
    let before = received().expect("a number");
    a.ok("ping -q -c 50 -i 0.02 -W 5 10.7.0.2");
    assert!(received() < Some(before + 25), "ib0 has what vnic0 should");
}
