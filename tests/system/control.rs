//! The tool `ibtap` with a running daemon.

use serde_json::Value;

use crate::lab::{Host, LINK_MTU, Lab, SOON, eventually, sent};

/// For interfaces that were down and therefore lost their IPv6 addresses.
fn reaches_over_ipv4(from: &Host, to: &Host) {
    eventually(SOON, "an answer over IPv4", || {
        from.pings(&to.v4()).then_some(())
    });
}

#[test]
fn show_agrees_with_the_kernel() {
    let Some(mut lab) = Lab::running_pair() else {
        return;
    };
    let a = lab.host(0);
    let pid = a.daemon().pid();
    let shown = a.show("ib0");
    let link = a.link("ib0");
    assert_eq!(shown["name"], "ib0");
    assert_eq!(shown["ifindex"], link["ifindex"]);
    assert_eq!(shown["mac"], link["address"]);
    assert_eq!(shown["mtu"], link["mtu"]);
    assert_eq!(shown["underlay"], "eth0");
    assert_eq!(shown["state"], "ACTIVE");
    assert_eq!(shown["carrier"], true);
    assert_eq!(shown["mode"], "datagram");
    assert_eq!(shown["pkey"], 0xffff);
    assert_eq!(shown["qkey"], 0x0b1b);
    assert_eq!(shown["broadcast"], "ff12:401b:ffff::ffff:ffff");
    assert_eq!(shown["pid"], pid);
    assert_eq!(shown["gid"], a.await_link_local("eth0"));
    // Flags, queue pair, GID: the 20 bytes of RFC 4391, 9.1.1.
    let qpn = shown["qpn"].as_u64().expect("a number");
    let gid: std::net::Ipv6Addr = shown["gid"].as_str().expect("a GID").parse().expect("IPv6");
    let mut bytes = u32::try_from(qpn).expect("24 bits").to_be_bytes().to_vec();
    bytes.extend(gid.octets());
    let expected: Vec<_> = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(shown["address"], expected.join(":"));
}

#[test]
fn stats_count_what_went_through() {
    let Some(mut lab) = Lab::running_pair() else {
        return;
    };
    let (a, b) = lab.two();
    let before = a.ask("stats ib0")[0].clone();
    let output = a.answered(100, &format!("-q -i 0.002 -s 1000 {}", b.v4()));
    let sent = sent(&output) as u64;
    let after = a.ask("stats ib0")[0].clone();
    let grown = |name: &str| {
        let of = |stats: &serde_json::Value| {
            stats[name]
                .as_u64()
                .unwrap_or_else(|| panic!("no counter {name} in {stats}"))
        };
        of(&after) - of(&before)
    };
    for name in ["rx_packets", "tx_packets"] {
        let range = 100..sent + 30;
        assert!(range.contains(&grown(name)), "{name}: {}", grown(name));
    }
    for name in ["rx_bytes", "tx_bytes"] {
        let range = 102_800..sent * 1028 + 17_200;
        assert!(range.contains(&grown(name)), "{name}: {}", grown(name));
    }
    for name in ["tx_errors", "rx_dropped", "tx_dropped"] {
        assert_eq!(grown(name), 0, "{name}");
    }
}

#[test]
fn groups_are_printed_as_debugfs_prints_them() {
    let Some(mut lab) = Lab::running_pair() else {
        return;
    };
    let text = lab.host(0).ibtap("mcg ib0").out;
    let records: Vec<Vec<&str>> = text
        .split("\n\n")
        .filter(|record| !record.trim().is_empty())
        .map(|record| record.lines().collect())
        .collect();
    assert!(records.len() >= 3, "{text}");
    for record in &records {
        let [gid, created, queuelen, complete, send_only] = record[..] else {
            panic!("not five lines: {record:?}");
        };
        let groups = gid.strip_prefix("GID: ").expect("a GID").split(':');
        assert_eq!(groups.count(), 8, "{gid}");
        // Widths of ipoib_mcg_seq_show in Linux' ipoib_fs.c.
        assert_eq!(created.len(), "  created: ".len() + 10, "{created:?}");
        assert_eq!(queuelen.len(), "  queuelen: ".len() + 9, "{queuelen:?}");
        assert_eq!(complete.len(), "  complete: ".len() + 9, "{complete:?}");
        assert_eq!(send_only.len(), "  send_only: ".len() + 8, "{send_only:?}");
    }
    let broadcast = "GID: ff12:401b:ffff:0:0:0:ffff:ffff";
    let of_broadcast = records.iter().find(|record| record[0] == broadcast);
    let of_broadcast = of_broadcast.expect("the broadcast group");
    assert!(of_broadcast[3].ends_with("yes") && of_broadcast[4].ends_with("no"));
}

#[test]
fn paths_and_resources_name_the_peer_and_the_queue_pair() {
    let Some(mut lab) = Lab::running_pair() else {
        return;
    };
    let (a, b) = lab.two();
    let there = b.show("ib0")["gid"].clone();
    let path = a
        .ask("path ib0")
        .into_iter()
        .find(|path| path["gid"] == there);
    assert_eq!(path.expect("a path to the peer")["complete"], true);

    let shown = a.show("ib0");
    let resources = a.ask("res");
    let pair = resources[0]["queue_pairs"]
        .as_array()
        .expect("queue pairs")
        .iter()
        .find(|pair| pair["qpn"] == shown["qpn"])
        .expect("the device's queue pair")
        .clone();
    assert_eq!(pair["type"], "UD");
    assert_eq!(pair["state"], "RTS");
    assert_eq!(pair["interface"], "ib0");
    let groups = resources[0]["groups"].as_array().expect("groups");
    assert!(groups.iter().any(|g| g["mgid"] == shown["broadcast"]));

    let pid = a.daemon().pid();
    assert_eq!(resources[0]["pid"], pid);
    let queues = &resources[0]["shared_receive_queues"];
    assert_eq!(queues[0]["contents"], "messages", "{queues}");
    // The software fabric has no such objects.
    for none in ["memory_regions", "protection_domains"] {
        assert_eq!(resources[0][none], Value::Array(vec![]));
    }
    let lines = |words: &str| {
        let done = a.ibtap(words);
        assert_eq!(done.code, Some(0), "{done:?}");
        done.out
    };
    let ud = lines(&format!("res show qp type UD netdev ib0 pid {pid}"));
    assert_eq!(ud.lines().count(), 1, "{ud}");
    assert!(ud.contains(" type UD state RTS "), "{ud}");
    assert_eq!(lines("res mr"), "");
    assert_eq!(lines("res qp pid 1"), "");
    let wrong = a.ibtap("res queues");
    assert_eq!(wrong.code, Some(1));
    assert!(wrong.err.contains("the kinds are qp, cq,"), "{wrong:?}");
}

#[test]
fn the_log_level_changes_while_running() {
    let Some(mut lab) = Lab::pair() else { return };
    let (a, b) = lab.two();
    a.start(&["--log-level", "error"]);
    b.start(&[]);
    a.configure("ib0");
    b.configure("ib0");
    a.reaches(b);
    assert_eq!(a.daemon().log(), "", "no errors, no log");
    for (level, words) in [("info", "INFO"), ("debug", "DEBUG"), ("warn", "")] {
        let done = a.ibtap(&format!("log {level}"));
        assert_eq!(done.code, Some(0), "{done:?}");
        assert_eq!(a.ask("version")[1]["log_level"], level);
        let before = a.daemon().log().len();
        a.ok("ip link set ib0 down");
        a.ok("ip link set ib0 up");
        // An unwanted log line would have arrived by the time that traffic flows again.
        a.await_carrier("ib0", true);
        reaches_over_ipv4(a, b);
        eventually(SOON, &format!("{words:?} in the log"), || {
            let log = a.daemon().log();
            let new = &log[before..];
            (new.contains(words) && new.is_empty() == words.is_empty()).then_some(())
        });
    }
    assert_eq!(a.ibtap("log nonsense").code, Some(1));
}

#[test]
fn every_verb_has_text_and_json_and_may_be_abbreviated() {
    let Some(mut lab) = Lab::running_pair() else {
        return;
    };
    let a = lab.host(0);
    for words in [
        "",
        "show",
        "sh",
        "show ib0",
        "stats",
        "stats ib0",
        "neigh ib0",
        "n ib0",
        "mcg ib0",
        "path ib0",
        "res",
        "version",
    ] {
        let text = a.ibtap(words);
        assert_eq!(text.code, Some(0), "{words}: {text:?}");
        assert!(!text.out.trim().is_empty(), "{words} prints nothing");
        assert!(!a.ask(words).is_empty(), "{words}");
    }
    assert!(a.ibtap("show").out.contains("ib0"));
}

#[test]
fn an_unknown_interface_and_an_unknown_verb_are_usage_errors() {
    let Some(mut lab) = Lab::running_pair() else {
        return;
    };
    let a = lab.host(0);
    for words in [
        "show nosuch0",
        "neigh nosuch0",
        "stats nosuch0",
        "frobnicate",
    ] {
        let done = a.ibtap(words);
        assert_eq!(done.code, Some(1), "{words}: {done:?}");
        assert!(!done.err.is_empty(), "{words}");
    }
}

#[test]
fn the_alias_and_the_carrier_are_in_ip_link() {
    let Some(mut lab) = Lab::running_pair() else {
        return;
    };
    let a = lab.host(0);
    let alias = a.link("ib0")["ifalias"].clone();
    let alias = alias.as_str().expect("an alias");
    assert!(alias.starts_with("ibtap: "), "{alias}");
    assert_eq!(a.link("ib0")["operstate"], "UP");
}

#[test]
fn the_interface_comes_up_by_itself_unless_it_is_to_stay_down() {
    let Some(mut lab) = Lab::pair() else { return };
    let (a, b) = lab.two();
    let log = a.start(&[]).log();
    a.await_carrier("ib0", true);
    assert!(a.is_up("ib0"));
    assert_eq!(a.mtu("ib0"), u64::from(LINK_MTU));
    assert!(log.contains("ib0: up") && !log.contains("down"), "{log}");
    b.start(&["--down"]);
    assert!(!b.is_up("ib0"));
    b.configure("ib0");
    assert!(b.is_up("ib0"));
}

#[test]
fn mtus_names_and_macs_that_the_administrator_changes_are_followed() {
    let Some(mut lab) = Lab::running_pair() else {
        return;
    };
    let (a, b) = lab.two();
    a.ok("ip link set ib0 mtu 9000");
    eventually(SOON, "the link's MTU again", || {
        (a.mtu("ib0") == u64::from(LINK_MTU)).then_some(())
    });
    eventually(SOON, "a line on it", || {
        let line = "ib0: the MTU 9000 is above the link MTU 4092; ibtapd has set 4092";
        a.daemon().log().contains(line).then_some(())
    });
    a.ok("ip link set ib0 mtu 1400");
    eventually(SOON, "the smaller MTU", || {
        (a.show("ib0")["mtu"] == 1400).then_some(())
    });
    a.ok("ip link set ib0 address 02:00:00:00:99:01");
    eventually(SOON, "the new MAC", || {
        (a.show("ib0")["mac"] == "02:00:00:00:99:01").then_some(())
    });
    a.reaches(b);
    b.reaches(a);
    a.ok("ip link set ib0 down");
    a.ok("ip link set ib0 name storage0");
    a.ok("ip link set storage0 up");
    eventually(SOON, "the new name", || {
        (a.ibtap("show storage0").code == Some(0)).then_some(())
    });
    reaches_over_ipv4(b, a);
    a.ok("ip link set storage0 mtu 71");
    eventually(SOON, "the smallest MTU", || {
        (a.mtu("storage0") == 72).then_some(())
    });
}

#[test]
fn an_interface_that_is_deleted_is_let_go() {
    let Some(mut lab) = Lab::running_pair() else {
        return;
    };
    let a = lab.host(0);
    a.ok("ip link del ib0");
    eventually(SOON, "the daemon to let go", || {
        (a.ibtap("show ib0").code == Some(1)).then_some(())
    });
    assert!(a.ask("show").is_empty());
    assert!(!a.ok("ip -6 maddr show dev eth0").contains("inet6 ff12:"));
    a.stop();
}

#[test]
fn a_daemon_that_waits_for_its_underlay_logs_that() {
    let Some(mut lab) = Lab::pair() else { return };
    let a = lab.host(0);
    a.ok("ip link set eth0 down");
    let mut daemon = a.start_unready(&["--underlay", "eth0"]);
    eventually(SOON, "its version", || {
        let version = a.ibtap("version");
        (version.code == Some(0)).then_some(())
    });
    let shown = a.ibtap("show");
    assert_eq!(shown.code, Some(2), "{shown:?}");
    assert!(shown.err.contains("is starting"), "{shown:?}");
    a.bring_up("eth0");
    eventually(SOON, "the interface", || {
        (a.ibtap("show ib0").code == Some(0)).then_some(())
    });
    assert!(daemon.is_running());
}

/// Older notifications than the lost ones wait in the socket of the daemon.
#[test]
fn the_last_state_counts_after_lost_notifications() {
    let Some(mut lab) = Lab::pair() else { return };
    let a = lab.host(0);
    let pid = a.start(&[]).pid();
    let [former, last] = ["02:00:00:00:00:55", "02:00:00:00:00:77"];
    let done = a.run_script(&format!(
        "kill -STOP {pid}
        ip link set ib0 address {former}
        for i in $(seq 3000); do echo \"link set lo alias number-$i\"; done | ip -batch -
        ip link set ib0 address {last}
        ip link add link ib0 name over0 type macvlan
        ip tuntap add ib0.8001 mode tap
        kill -CONT {pid}"
    ));
    assert_eq!(done.code, Some(0), "{done:?}");
    eventually(SOON, "the last address", || {
        (a.show("ib0")["mac"] == last).then_some(())
    });
    eventually(SOON, "the macvlan and the child", || {
        let stacked = a
            .daemon()
            .log()
            .contains("over0 is stacked on the interface");
        (stacked && a.ibtap("show ib0.8001").code == Some(0)).then_some(())
    });
}
