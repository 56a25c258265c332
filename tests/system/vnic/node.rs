//! A node's permissions for its manager, and what exists while a manager is active.

use rustix::process::Signal;
use serde_json::Value;

use super::{fixed, lid, managed, vesw};
use crate::lab::{Em, Host, Lab, SOON, eventually};

/// Numbers of the datagram queue pairs of the only port.
fn queue_pairs(host: &Host) -> Vec<Value> {
    let ports = host.ask("res");
    let all = ports[0]["queue_pairs"].as_array().expect("queue pairs");
    let datagrams = all.iter().filter(|qp| qp["type"] == "UD");
    datagrams.map(|qp| qp["qpn"].clone()).collect()
}

/// The endpoint of management exists while it has users.
#[test]
fn management_goes_with_the_last_client() {
    let Some(mut lab) = Lab::pair() else { return };
    let a = lab.host(0);
    a.start_config(&fixed("vnic0", 1, ""));
    let before = queue_pairs(a);
    let mut em = Em::start(a, "", &vesw(2, ""));
    eventually(SOON, "the endpoint of management", || {
        (queue_pairs(a).len() == before.len() + 1).then_some(())
    });
    em.end_by(Signal::KILL);
    eventually(SOON, "it to be closed", || {
        (queue_pairs(a) == before).then_some(())
    });
    // A managed VNIC needs it.
    a.stop();
    a.start_config(&(fixed("vnic0", 1, "") + &managed("vnic1")));
    em.start_again(a);
    a.await_carrier("vnic1", true);
    let with = queue_pairs(a);
    em.end_by(Signal::KILL);
    // Later requests are executed later.
    em.start_again(a);
    assert_eq!(queue_pairs(a), with);
}

/// A VNIC created by a manager is named after its number, unless the name is in use.
#[test]
fn what_a_manager_makes_has_a_name_of_its_own() {
    let Some(mut lab) = Lab::pair() else { return };
    let a = lab.host(0);
    a.ok("ip link add vnic5 type veth peer name veth5");
    a.start_config(&format!(
        "[port.eth0]\nvnic_create = true\n{}",
        fixed("vnic0", 9, "")
    ));
    let switch = vesw(1, "").replace("*:1:*", "*:1:5");
    let _em = Em::start(a, "poll_interval = 1", &switch);
    let made = eventually(SOON, "the VNIC that the manager makes", || {
        let all = a.ask("show");
        all.into_iter().find(|vnic| vnic["index"] == 5)
    });
    assert_eq!(made["name"], "vnic1", "{made}");
    a.ok("ip link set vnic1 up");
    a.await_carrier("vnic1", true);
    assert_eq!(a.show("vnic1")["vesw"], 1);
}

/// A VNIC that a manager made in place of a configured one does not have the settings of the file.
#[test]
fn a_reload_names_what_a_manager_made_in_place_of_a_configured_vnic() {
    let Some(mut lab) = Lab::pair() else { return };
    let a = lab.host(0);
    let text = format!(
        "[port.eth0]\nvnic_create = true\n{}index = 5\nmtu = 1400\n",
        managed("vnic5")
    );
    a.start_config(&text);
    let switch = vesw(1, "").replace("*:1:*", "*:1:5");
    let _em = Em::start(a, "poll_interval = 1", &switch);
    let index = || {
        let mut all = a.ask("show").into_iter();
        all.find_map(|vnic| vnic["ifindex"].as_u64())
    };
    let before = index();
    a.ok("ip link del vnic5");
    eventually(SOON, "the VNIC that the manager makes", || {
        index().filter(|now| Some(*now) != before)
    });
    let done = a.ibtap("reload");
    assert_eq!(done.code, Some(2), "{done:?}");
    let words = "an Ethernet Manager created vnic5";
    assert!((done.out + &done.err).contains(words));
}

/// With one LID, two ports of a node would receive each other's packets.
#[test]
fn a_configured_vnics_lid_is_refused_to_the_manager() {
    let Some(mut lab) = Lab::pair() else { return };
    let a = lab.host(0);
    a.start_config(&managed("vnic0"));
    a.configure_addresses("vnic0");
    let _em = Em::start(a, "poll_interval = 1", &vesw(1, ""));
    a.await_carrier("vnic0", true);
    let given = lid(a, "vnic0");
    a.stop();
    let other = fixed("lan0", 1, &format!("index = 7\nlid = {given}"));
    a.start_config(&(managed("vnic0") + &other));
    a.ok("ip link set vnic0 up");
    eventually(SOON, "a word about the LID", || {
        let log = a.daemon().log();
        let words = format!("the LID {given:#08x} is that of lan0");
        log.contains(&words).then_some(())
    });
    let shown = a.show("vnic0");
    assert_eq!(
        (&shown["vesw"], &shown["carrier"]),
        (&0.into(), &false.into())
    );
    assert_eq!(lid(a, "lan0"), given);
}

/// Both managers share a queue pair; transaction ids distinguish their requests.
#[test]
fn a_standby_on_the_same_node_neither_releases_nor_keeps_the_active_ones_place() {
    let Some(mut lab) = Lab::pair() else { return };
    let (a, b) = lab.two();
    for host in [&mut *a, &mut *b] {
        host.start_config(&managed("vnic0"));
        host.configure_addresses("vnic0");
    }
    let often = "lease = 3\npoll_interval = 1";
    let mut active = Em::start(
        a,
        &format!("priority = 8\n{often}"),
        &vesw(1, "eth_mtu = 1500"),
    );
    let standby = Em::start_second(
        a,
        &format!("priority = 1\n{often}"),
        &vesw(1, "eth_mtu = 1400"),
    );
    for host in [&*a, &*b] {
        host.await_carrier("vnic0", true);
        assert_eq!(host.mtu("vnic0"), 1500);
    }
    let sent = |em: &Em| em.ask("status").remove(0)["counters"]["sent"].as_u64();
    let before = sent(&standby);
    eventually(SOON, "the standby to have spoken often", || {
        (sent(&standby) > before.map(|sent| sent + 12)).then_some(())
    });
    assert_eq!(standby.ask("status")[0]["role"], "standby");
    for host in [&mut *a, &mut *b] {
        let log = host.daemon().log();
        let logged = log.lines().filter(|line| line.contains("VNIC management:"));
        // The active manager, once.
        assert_eq!(logged.count(), 1, "{log}");
    }
    active.end_by(Signal::KILL);
    for host in [&*a, &*b] {
        eventually(3 * SOON, "the standby to have taken over", || {
            (host.mtu("vnic0") == 1400).then_some(())
        });
    }
    a.reaches(b);
}

/// More ports than one message of an agent lists.
#[test]
fn a_hundred_vnics_of_a_port_are_all_managed() {
    let Some(mut lab) = Lab::pair() else { return };
    let a = lab.host(0);
    let text: String = (0..100).map(|n| managed(&format!("vnic{n}"))).collect();
    a.start_config(&text);
    // On a busy machine, the start takes longer than systemd allows by default.
    assert!(a.daemon().extensions >= 100);
    let em = Em::start(a, "", &vesw(1, ""));
    // The manager counts at once. The daemon would show all its interfaces each time.
    eventually(2 * SOON, "a switch for all", || {
        (em.ask("status")[0]["members"] == 100).then_some(())
    });
    let is_on_switch = |vnic: &Value| vnic["vesw"] == 1;
    eventually(SOON, "the last one", || {
        (a.ask("show")
            .iter()
            .filter(|vnic| is_on_switch(vnic))
            .count()
            == 100)
            .then_some(())
    });
    assert_eq!(em.ask("port").len(), 100);
}
