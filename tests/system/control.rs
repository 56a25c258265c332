//! The control tool against a running daemon.

use crate::lab::{Lab, SOON, eventually};

#[test]
fn show_says_what_the_kernel_says() {
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
    let addresses = a.json("ip -6 -j addr show dev eth0 scope link");
    assert_eq!(shown["gid"], addresses[0]["addr_info"][0]["local"]);
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
    a.ok(&format!("ping -q -c 100 -i 0.002 -W 2 -s 1000 {}", b.v4()));
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
        assert!((100..130).contains(&grown(name)), "{name}: {}", grown(name));
    }
    for name in ["rx_bytes", "tx_bytes"] {
        assert!(
            (102_800..120_000).contains(&grown(name)),
            "{name}: {}",
            grown(name)
        );
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
        // Widths as in ipoib_mcg_seq_show of Linux' ipoib_fs.c.
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
}

#[test]
fn the_log_level_changes_while_running() {
    let Some(mut lab) = Lab::pair() else { return };
    let (a, b) = lab.two();
    a.start(&["--log-level", "error"]);
    b.start(&[]);
    let quiet = a.daemon().log().len();
    let done = a.ibtap("log trace");
    assert_eq!(done.code, Some(0), "{done:?}");
    a.configure("ib0");
    b.configure("ib0");
    a.reaches(b);
    eventually(SOON, "more to read", || {
        (a.daemon().log().len() > quiet).then_some(())
    });
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
