//! Command lines and files: their results, and errors with their place.

use super::fixed;
use crate::lab::{Lab, SOON, eventually};

#[test]
fn the_command_line_makes_one() {
    let Some(mut lab) = Lab::pair() else { return };
    let (a, b) = lab.two();
    a.start(&["--vnic", "1"]);
    b.start(&["--vnic", "lan0=1"]);
    assert!(!a.has_link("ib0"), "no IPoIB interface is configured");
    a.configure("vnic0");
    b.configure("lan0");
    a.reaches(b);
    b.reaches(a);
    assert_eq!(a.show("vnic0")["vesw"], 1);
    assert_eq!(b.show("lan0")["vesw"], 1);
}

/// VE04: 12 bits, of which 0 is invalid.
#[test]
fn ve04_switches_have_numbers_of_1_to_4095() {
    let Some(mut lab) = Lab::pair() else { return };
    let a = lab.host(0);
    for (number, right) in [(0, false), (1, true), (4095, true), (4096, false)] {
        let path = a.write_config(&fixed("vnic0", number, ""));
        let done = a.daemon_run(&["--check-config", &path]);
        assert_eq!(done.code == Some(0), right, "{number}: {done:?}");
        if !right {
            assert!(done.err.contains(":4:"), "where: {}", done.err);
            assert!(done.err.contains("4095"), "what is allowed: {}", done.err);
        }
    }
    let done = a.refused(&["--underlay", "eth0", "--vnic", "vnic0=4096"]);
    assert_eq!(done.code, Some(1), "{done:?}");
}

#[test]
fn what_cannot_be_is_refused_with_its_place() {
    let Some(mut lab) = Lab::pair() else { return };
    let a = lab.host(0);
    let peer = |peer: &str| format!("peers = [{peer}]");
    // The keys of `fixed` are in lines 2 to 4.
    let faults: Vec<(String, u32, &str)> = vec![
        ("lid = 0".into(), 5, "lid"),
        ("lid = 0xf00000".into(), 5, "lid"),
        ("mtu = 67".into(), 5, "mtu"),
        ("mtu = 65000".into(), 5, "mtu"),
        ("mac = \"01:00:5e:00:00:01\"".into(), 5, "group"),
        ("mac = \"hello\"".into(), 5, "mac"),
        ("fabric_id = 1024".into(), 5, "fabric_id"),
        ("ageing = 0".into(), 5, "ageing"),
        ("mac_limit = 0".into(), 5, "addresses"),
        ("pkey = 0x8000".into(), 5, "partition"),
        ("colour = \"red\"".into(), 5, "colour"),
        (peer("{ lid = 7 }"), 5, "gid"),
        (
            peer("{ lid = 7, gid = \"fe80::7\", qpn = 0x1000000 }"),
            5,
            "queue pair",
        ),
        (
            peer("{ lid = 7, gid = \"fe80::7\" }, { lid = 7, gid = \"fe80::8\" }"),
            5,
            "7",
        ),
        (fixed("vnic0", 2, ""), 0, "vnic0"),
    ];
    for (keys, line, word) in faults {
        let path = a.write_config(&fixed("vnic0", 1, &keys));
        let done = a.daemon_run(&["--check-config", &path]);
        assert_eq!(done.code, Some(1), "{keys}: {done:?}");
        let output = done.err.to_lowercase();
        assert!(output.contains(word), "{keys}: {}", done.err);
        let place = format!("ibtapd.toml:{line}:");
        assert!(
            line == 0 || done.err.contains(&place),
            "{keys}: {}",
            done.err
        );
    }
    // Two interfaces of one daemon can be on one switch only with different LIDs.
    let same = "lid = 7";
    let text = fixed("vnic0", 1, same) + &fixed("vnic1", 1, same);
    let done = a.daemon_run(&["--check-config", &a.write_config(&text)]);
    assert_eq!(done.code, Some(1), "{done:?}");
}

/// A LID that is in use is logged once, with the remedy.
#[test]
fn a_lid_in_use_is_logged() {
    let Some(mut lab) = Lab::pair() else { return };
    let (a, b) = lab.two();
    for host in [&mut *a, &mut *b] {
        host.start_config(&fixed("vnic0", 1, "lid = 7\n"));
        host.configure("vnic0");
    }
    eventually(SOON, "a word about it", || {
        for (from, to) in [(&*a, &*b), (&*b, &*a)] {
            from.run(&format!("ping -c 1 -W 0.2 {}", to.v4()));
        }
        let log = a.daemon().log() + &b.daemon().log();
        log.contains("0x000007").then_some(())
    });
    for host in [a, b] {
        let log = host.daemon().log();
        let logged = log.lines().filter(|line| line.contains("0x000007"));
        assert!(
            logged.count() <= 2,
            "once, and once with its own LID: {log}"
        );
    }
}
