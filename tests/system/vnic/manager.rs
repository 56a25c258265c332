//! The Ethernet Manager: it finds agents, configures them, and sends each the addresses of the others.

use rustix::process::Signal;
use serde_json::Value;

use super::{count, lid, managed, managed_pair, vesw};
use crate::lab::{Em, Guest, Host, Lab, SOON, eventually, iperf_above, iperf_across};

/// Origin in `ibtap vnic mac` of an address published by the manager.
fn published(host: &Host, address: &str) -> Option<Value> {
    super::known(host, "vnic0", address).filter(|entry| entry["source"] == "table")
}

/// A manager's members, by `port`.
fn members(em: &Em) -> Vec<Value> {
    let mut all = em.ask("port");
    all.retain(|port| port["condition"] == "forwarding");
    all
}

#[test]
fn ve02_two_nodes_are_configured_and_need_no_table() {
    let Some((mut lab, em)) = managed_pair("", "eth_mtu = 1500") else {
        return;
    };
    let (a, b) = lab.two();
    let (of_a, of_b) = (lid(a, "vnic0"), lid(b, "vnic0"));
    assert_ne!(of_a, of_b);
    for (host, lid) in [(&*a, of_a), (&*b, of_b)] {
        assert_eq!(host.mtu("vnic0"), 1500);
        let shown = host.show("vnic0");
        assert_eq!(
            (&shown["vesw"], &shown["managed"]),
            (&1.into(), &true.into()),
            "{shown}"
        );
        // The address contains switch and LID.
        let mac = super::mac_of(host, "vnic0");
        assert_eq!(mac[3..], lid.to_le_bytes()[..3], "{mac:02x?}");
        assert_eq!(mac[0] & 3, 2, "{mac:02x?}");
    }
    assert_eq!(members(&em).len(), 2, "{:?}", em.ask("port"));
    for host in [&*a, &*b] {
        assert_eq!(count(host, "tx_dlid_zero"), 0);
    }
    iperf_above(a, b, &b.v6(), "-n 16M", 50e6);
    // Output for an administrator, in both forms.
    for words in ["status", "vesw", "port", "mac", "counters"] {
        let done = em.run(words);
        assert_eq!(done.code, Some(0), "{words}: {done:?}");
        assert!(!done.out.is_empty(), "{words} prints nothing");
        em.ask(words);
    }
    let counters = em.ask("counters");
    let sent = counters
        .iter()
        .find_map(|c| c["counters"]["tx_packets"].as_u64());
    assert!(sent > Some(0), "{counters:?}");
    for words in ["port no:such:port --bad", "vesws", "counters 7:7:7"] {
        let done = em.run(words);
        assert!(
            done.code != Some(0) && !done.err.is_empty(),
            "{words}: {done:?}"
        );
    }
}

#[test]
fn ve03_addresses_behind_a_bridge_are_published() {
    let Some((mut lab, em)) = managed_pair("poll_interval = 1", "") else {
        return;
    };
    let (a, b) = lab.two();
    b.bridge_over("vnic0");
    let guest = Guest::attach(b, 2);
    // It sends a packet, so that its new place is learned.
    guest.reaches_all(&[a.v4()]);
    let there = lid(b, "vnic0");
    let entry = eventually(2 * SOON, "the guest in the manager's table", || {
        guest.pings(&a.v4());
        published(a, &guest.mac())
    });
    assert_eq!(entry["lid"], there, "{entry}");
    let macs = em.ask("mac");
    let text = Value::from(macs).to_string();
    assert!(text.contains(&guest.mac()), "{text}");
    a.reaches_all(&[guest.v4(), guest.v6()]);
}

/// Nothing is set without a change: a restarted manager only reads, and traffic continues.
#[test]
fn ve05_ve11_traffic_outlives_kill_and_restart_of_the_manager() {
    let Some((mut lab, mut em)) = managed_pair("poll_interval = 1", "") else {
        return;
    };
    let (a, b) = lab.two();
    let before = [a.show("vnic0"), b.show("vnic0")];
    for (signal, direction) in [(Signal::KILL, ""), (Signal::TERM, "-R")] {
        iperf_across(a, b, direction, |a| {
            em.end_by(signal);
            em.start_again(a);
        });
    }
    let status = eventually(SOON, "the manager to have looked at everything", || {
        let status = em.ask("status").remove(0);
        let is_so = status["role"] == "active"
            && status["forwarding"] == 2
            && status["counters"]["requests"].as_u64() > Some(10);
        is_so.then_some(status)
    });
    for (host, before) in [&*a, &*b].into_iter().zip(&before) {
        let after = host.show("vnic0");
        for key in ["lid", "mac", "vesw", "mtu"] {
            assert_eq!(after[key], before[key], "{key}");
        }
    }
    assert_eq!(
        status["counters"]["sets"], 0,
        "nothing had changed: {status}"
    );
    // Traffic also does not depend on its presence.
    em.end_by(Signal::KILL);
    a.ok(&format!("ping -q -c 3 -i 0.05 -W 5 {}", b.v4()));
    b.bridge_over("vnic0");
    let guest = Guest::attach(b, 2);
    a.reaches_all(&[guest.v4()]);
}

#[test]
fn ve06_a_node_that_comes_back_gets_everything_again() {
    let Some((mut lab, em)) = managed_pair("", "") else {
        return;
    };
    let (a, b) = lab.two();
    let before = lid(b, "vnic0");
    b.kill_daemon();
    eventually(SOON, "the TAP to go", || {
        (!b.has_link("vnic0")).then_some(())
    });
    b.start_config(&managed("vnic0"));
    b.configure("vnic0");
    assert_eq!(lid(b, "vnic0"), before, "a node keeps its LID");
    a.reaches(b);
    b.reaches(a);
    // Also the node of the manager, which is a client of that daemon.
    a.kill_daemon();
    eventually(SOON, "the TAP to go", || {
        (!a.has_link("vnic0")).then_some(())
    });
    a.start_config(&managed("vnic0"));
    a.configure("vnic0");
    a.reaches(b);
    assert_eq!(members(&em).len(), 2);
}

/// Without the agent's announcement, the manager notices at a later poll only.
#[test]
fn a_managed_vnic_follows_a_new_gid_of_its_port() {
    let Some((mut lab, _em)) = managed_pair("", "") else {
        return;
    };
    let (a, b) = lab.two();
    b.ok("ip link set eth0 down");
    b.ok("ip link set eth0 address 02:00:00:00:77:01");
    b.ok("ip link set eth0 up");
    b.reaches(a);
    a.reaches(b);
}

/// Adding a switch, removing a switch and draining a port, by a reload and by command.
#[test]
fn a_manager_reloads_and_drains() {
    let Some(mut lab) = Lab::pair() else { return };
    let (a, b) = lab.two();
    for host in [&mut *a, &mut *b] {
        host.start_config(&(managed("vnic0") + &managed("vnic1")));
        host.configure_addresses("vnic0");
        host.ok("ip link set vnic1 up");
    }
    let only = |id: u16, index: u8| vesw(id, "").replace("*:1:*", &format!("*:1:{index}"));
    let em = Em::start(a, "", &only(1, 0));
    for host in [&*a, &*b] {
        host.await_carrier("vnic0", true);
    }
    a.reaches(b);
    assert_eq!(a.show("vnic1")["carrier"], false);
    em.reconfigure(|text| text.to_owned() + &only(2, 1));
    em.reload();
    for host in [&*a, &*b] {
        host.await_carrier("vnic1", true);
        assert_eq!(host.show("vnic1")["vesw"], 2);
    }
    // A wrong configuration changes nothing.
    em.reconfigure(|text| text.replace("id = 2", "id = 4096"));
    em.reload();
    eventually(SOON, "a word about it", || {
        em.log().contains("4096").then_some(())
    });
    a.reaches(b);
    assert_eq!(a.show("vnic1")["vesw"], 2);
    // Without its switch an interface stays, but carries nothing.
    em.reconfigure(|text| {
        let (kept, _) = text
            .split_once("[[vesw]]\nname = \"switch 2\"")
            .expect("it is there");
        kept.to_owned()
    });
    em.reload();
    for host in [&*a, &*b] {
        host.await_carrier("vnic1", false);
        assert!(host.has_link("vnic1"));
    }
    a.reaches(b);
}

/// The manager's MTU and switch apply at once, within the administrator's limits.
#[test]
fn vs12_vs14_vs15_another_mtu_and_another_switch_take_effect_at_once() {
    let Some(mut lab) = Lab::pair() else { return };
    let (a, b) = lab.two();
    for host in [&mut *a, &mut *b] {
        host.start_config(&managed("vnic0"));
        host.configure_addresses("vnic0");
        assert_eq!(host.show("vnic0")["carrier"], false, "it is on no switch");
        let shown = host.show("vnic0");
        assert_eq!(
            (&shown["vesw"], &shown["managed"]),
            (&0.into(), &true.into())
        );
        let reason = shown["reason"].as_str().unwrap_or_default();
        assert!(
            reason.contains("Ethernet Manager"),
            "what it waits for: {shown}"
        );
    }
    let em = Em::start(a, "poll_interval = 1", &vesw(1, "eth_mtu = 1500"));
    for host in [&*a, &*b] {
        host.await_carrier("vnic0", true);
        assert_eq!(host.mtu("vnic0"), 1500);
    }
    a.reaches(b);
    em.reconfigure(|text| text.replace("eth_mtu = 1500", "eth_mtu = 1400"));
    em.reload();
    for host in [&*a, &*b] {
        eventually(SOON, "the smaller MTU", || {
            (host.mtu("vnic0") == 1400).then_some(())
        });
    }
    em.reconfigure(|text| text.replace("eth_mtu = 1400", "eth_mtu = 2000"));
    em.reload();
    for host in [&*a, &*b] {
        eventually(SOON, "the larger limit", || {
            (host.show("vnic0")["mtu_max"] == 2000).then_some(())
        });
        assert_eq!(host.mtu("vnic0"), 1400, "a larger limit changes no MTU");
        host.ok("ip link set vnic0 mtu 2000");
    }
    a.ok(&format!("ping -c 2 -i 0.1 -W 5 -M do -s 1972 {}", b.v4()));
    em.reconfigure(|text| text.replace("id = 1", "id = 258"));
    em.reload();
    for host in [&*a, &*b] {
        eventually(SOON, "the other switch", || {
            (host.show("vnic0")["vesw"] == 258).then_some(())
        });
    }
    a.reaches(b);
    b.reaches(a);
}

/// A member whose underlay is too small is named, and the others are served.
#[test]
fn ve09_an_mtu_that_a_member_cannot_carry_is_refused_by_name() {
    let Some(mut lab) = Lab::pair() else { return };
    let (a, b) = lab.two();
    b.ok("ip link set eth0 mtu 2200");
    for host in [&mut *a, &mut *b] {
        host.start_config(&managed("vnic0"));
        host.configure_addresses("vnic0");
    }
    let em = Em::start(a, "poll_interval = 1", &vesw(1, "eth_mtu = 4000"));
    a.await_carrier("vnic0", true);
    let refused = eventually(SOON, "a word about the member", || {
        let all = em.ask("port");
        all.into_iter().find(|port| port["condition"] == "refused")
    });
    let problem = refused["problem"].as_str().expect("a sentence");
    assert!(
        problem.contains("4000") && problem.contains("2005"),
        "{problem}"
    );
    assert_eq!(b.show("vnic0")["carrier"], false);
}

/// A manager without permission is refused, and the permitted one is obeyed.
#[test]
fn a_stranger_manages_nothing() {
    let Some(mut lab) = Lab::segment(3) else {
        return;
    };
    let (a, b, c) = lab.three();
    let allowed = a.await_link_local("eth0");
    let text = format!(
        "[port.eth0]\nmanagers = [{allowed:?}]\n{}",
        managed("vnic0")
    );
    for host in [&mut *a, &mut *b] {
        host.start_config(&text);
        host.configure_addresses("vnic0");
    }
    c.start_config(&managed("vnic0"));
    let em = Em::start(a, "priority = 1", &vesw(1, ""));
    for host in [&*a, &*b] {
        host.await_carrier("vnic0", true);
    }
    a.reaches(b);
    let before = b.show("vnic0");
    // By its priority it would be the active one.
    let stranger = Em::start(c, "priority = 15", &vesw(9, ""));
    eventually(SOON, "the stranger to have its own node", || {
        (c.show("vnic0")["vesw"] == 9).then_some(())
    });
    b.ok(&format!("ping -q -c 20 -i 0.05 -W 5 {}", a.v4()));
    eventually(
        SOON,
        "a log line about the manager without permission",
        || {
            let log = b.daemon().log();
            let logged = log
                .lines()
                .filter(|line| line.contains("refused management from"));
            (logged.count() == 1).then_some(())
        },
    );
    for key in ["vesw", "lid", "mac", "carrier"] {
        assert_eq!(b.show("vnic0")[key], before[key], "{key}");
    }
    drop((em, stranger));
}
