//! SIGHUP and `ibtap reload`: supported changes take effect; others are reported.

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::lab::{Host, Lab, Pinging, SOON, eventually};

const ONE: &str = "[[ipoib]]\nname = \"ib0\"\nunderlay = \"eth0\"\n";

const TWO_PARTITIONS: &str = "[[ipoib]]\nname = \"ib0\"\nunderlay = \"eth0\"\n\
                              [[ipoib]]\nname = \"ib1\"\nunderlay = \"eth0\"\npkey = 0x8001\n";

/// The result of `ibtap --json reload`, and its status.
fn reload(host: &Host) -> (Value, Option<i32>) {
    let done = host.ibtap("--json reload");
    let all: Value = serde_json::from_str(&done.out).unwrap_or_else(|e| panic!("{e}: {done:?}"));
    (all[0].clone(), done.code)
}

fn sentences(outcome: &Value) -> Vec<String> {
    let list = outcome.as_array().expect("a list");
    list.iter()
        .map(|s| s.as_str().expect("a sentence").to_owned())
        .collect()
}

#[test]
fn what_can_change_changes_without_a_flap() {
    let Some(mut lab) = Lab::pair() else { return };
    let (a, b) = lab.two();
    a.start_config(ONE);
    b.start(&[]);
    a.configure("ib0");
    b.configure("ib0");
    a.reaches(b);
    let (outcome, status) = reload(a);
    assert_eq!(
        (&outcome["applied"], status),
        (&Value::Array(vec![]), Some(0))
    );
    assert!(a.ibtap("reload").out.contains("nothing has changed"));

    let before = a.show("ib0");
    let text = format!(
        "log_level = \"debug\"\n[port.eth0]\nbusy_poll = 0\nrx_usecs = 50\nrx_frames = 16\n{ONE}mtu = 2044\npersist = true\n\
         dhcp = \"off\"\nclaims = \"off\"\ninspect = \"warn\"\n\
         neighbours = [{{ ip = \"10.9.0.77\", gid = \"fe80::77\" }}]\nreflect = true\n[[ipoib]]\nname = \"ib1\"\nunderlay = \"eth0\"\n\
         pkey = 0x8001\nqueues = 1\n"
    );
    a.write_config(&text);
    let changes = |host: &Host| host.ok("cat /sys/class/net/ib0/carrier_changes");
    let carrier = changes(a);
    let pings = Pinging::start(a, &b.v4());
    pings.goes_on();
    let (outcome, status) = reload(a);
    assert_eq!(status, Some(0), "{outcome}");
    assert_eq!(
        sentences(&outcome["applied"]),
        [
            "log_level debug",
            "eth0: busy_poll 0",
            "eth0: rx_usecs 50, rx_frames 16",
            "ib0: mtu 2044",
            "ib0: persist true",
            "ib0: dhcp off",
            "ib0: claims off",
            "ib0: inspect warn, 1 neighbours",
            "ib0: reflect true",
            "ib1: created",
        ]
    );
    pings.goes_on();
    pings.stop().lost_at_most(2);
    assert_eq!(changes(a), carrier, "the carrier flapped");
    let after = a.show("ib0");
    for key in ["qpn", "gid", "ifindex", "mac"] {
        assert_eq!(before[key], after[key], "{key} flapped");
    }
    assert_eq!(after["mtu"], 2044);
    assert_eq!(a.mtu("ib0"), 2044);
    assert_eq!(
        (&after["persist"], &after["dhcp"]),
        (&true.into(), &"off".into())
    );
    assert_eq!(after["reflect"], true);
    assert_eq!(a.ask("version")[1]["log_level"], "debug");
    let moderated = |host: &Host| {
        let moderation = &host.ask("coalesce ib0")[0];
        assert_eq!(
            (&moderation["rx_usecs"], &moderation["rx_frames"]),
            (&50.into(), &16.into())
        );
    };
    moderated(a);
    assert!(!a.daemon().log().contains("ib0: down"));
    a.reaches(b);

    // The new interface works, too.
    let path = b.write_config(&format!(
        "[port.eth0]\nrx_usecs = 50\nrx_frames = 16\n{TWO_PARTITIONS}"
    ));
    b.stop();
    b.start_with(&["--config", &path]);
    moderated(b);
    for (host, number) in [(&*a, 1), (&*b, 2)] {
        host.ok(&format!("ip addr add 10.10.0.{number}/24 dev ib1"));
        host.await_carrier("ib1", true);
    }
    eventually(SOON, "the other partition", || {
        a.pings("10.10.0.2").then_some(())
    });
}

#[test]
fn devices_and_ports_come_and_go() {
    let Some(mut lab) = Lab::pair() else { return };
    lab.add_second_underlay();
    let (a, b) = lab.two();
    let two = format!("{ONE}[[ipoib]]\nname = \"ib1\"\nunderlay = \"eth1\"\npersist = true\n");
    for (host, number) in [(&mut *a, 1), (&mut *b, 2)] {
        host.start_config(ONE);
        host.configure("ib0");
        host.write_config(&two);
        let (outcome, status) = reload(host);
        assert_eq!(status, Some(0), "{outcome}");
        assert_eq!(
            sentences(&outcome["applied"]),
            ["eth1: port opened", "ib1: created"]
        );
        host.ok(&format!("ip addr add 10.10.0.{number}/24 dev ib1"));
        host.await_carrier("ib1", true);
    }
    a.reaches(b);
    eventually(SOON, "the other network", || {
        a.pings("10.10.0.2").then_some(())
    });
    // The first port is removed, so that ports change places.
    a.write_config("[[ipoib]]\nname = \"ib1\"\nunderlay = \"eth1\"\n");
    let (outcome, status) = reload(a);
    assert_eq!(status, Some(0), "{outcome}");
    assert_eq!(
        sentences(&outcome["applied"]),
        ["ib0: removed", "eth0: port closed", "ib1: persist false"]
    );
    assert!(!a.has_link("ib0"));
    a.reaches_all(&["10.10.0.2"]);
    assert_eq!(a.show("ib1")["underlay"], "eth1");
    assert_eq!(a.ask("stats").len(), 1);
    // The port is free for another daemon.
    let options = ["--underlay", "eth0", "--name", "ib5"];
    let mut other = a.start_other("other.sock", &options);
    assert!(other.end_by(Signal::TERM).success());
    // An interface that was deleted manually is created again.
    a.ok("ip link del ib1");
    eventually(SOON, "the daemon to let go", || {
        a.ask("show").is_empty().then_some(())
    });
    let (outcome, _) = reload(a);
    assert_eq!(sentences(&outcome["applied"]), ["ib1: created"]);
    assert!(a.has_link("ib1"));
    a.write_config(ONE);
    let (outcome, _) = reload(a);
    assert_eq!(sentences(&outcome["applied"]).len(), 4, "{outcome}");
    assert!(!a.has_link("ib1") && a.has_link("ib0"));
    a.stop();
}

#[test]
fn refused_changes_are_reported_at_each_reload() {
    let Some(mut lab) = Lab::pair() else { return };
    let a = lab.host(0);
    a.start_config(ONE);
    a.write_config(
        "[port.eth0]\nlink_mtu = 1500\n[[ipoib]]\nname = \"ib0\"\nunderlay = \"eth0\"\n\
         pkey = 0x8001\nmtu = 60000\n[[ipoib]]\nname = \"ib7\"\nunderlay = \"nosuch0\"\n",
    );
    for _ in 0..2 {
        let (outcome, status) = reload(a);
        assert_eq!(status, Some(2));
        assert_eq!(outcome["applied"], Value::Array(vec![]));
        let refused = sentences(&outcome["refused"]);
        assert_eq!(
            refused[..2],
            [
                "eth0: link_mtu cannot change at run time; restart ibtapd",
                "ib0: pkey cannot change at run time; restart ibtapd",
            ]
        );
        assert!(refused[2].contains("60000 of ib0"), "{refused:?}");
        assert!(refused[3].starts_with("nosuch0: "), "{refused:?}");
        assert_eq!(refused.len(), 5, "{refused:?}");
    }
    assert_eq!(a.show("ib0")["pkey"], 0xffff);
}

#[test]
fn a_wrong_file_changes_nothing_and_the_daemon_goes_on() {
    let Some(mut lab) = Lab::pair() else { return };
    let a = lab.host(0);
    let path = a.write_config(ONE);
    a.start_with(&["--config", &path]);
    a.write_config(&format!("{ONE}mtu = \"big\"\n"));
    let done = a.ibtap("reload");
    assert_eq!(done.code, Some(2), "{done:?}");
    assert!(done.err.contains(&format!("{path}:4:7: ")), "{done:?}");
    std::fs::remove_file(&path).expect("it was there");
    assert_eq!(a.ibtap("reload").code, Some(2));
    assert_eq!(a.show("ib0")["name"], "ib0");
}

#[test]
fn sighup_does_the_same_and_logs_the_result() {
    let Some(mut lab) = Lab::pair() else { return };
    let (a, b) = lab.two();
    a.start_config(ONE);
    a.write_config(&format!("{ONE}mtu = 1500\nqkey = 7\n"));
    hang_up(a);
    eventually(SOON, "the new MTU", || (a.mtu("ib0") == 1500).then_some(()));
    eventually(SOON, "the log", || {
        let log = a.daemon().log();
        let applied = log.contains("reloaded: ib0: mtu 1500");
        let refused = log.contains("not reloaded: ib0: qkey cannot change at run time");
        (applied && refused).then_some(())
    });
    // Without a file there is nothing to read; the daemon must not end.
    b.start(&[]);
    hang_up(b);
    eventually(SOON, "a sentence about it", || {
        let log = b.daemon().log();
        log.contains("started without --config").then_some(())
    });
    let done = b.ibtap("reload");
    assert_eq!(done.code, Some(2), "{done:?}");
    assert!(b.daemon().is_running());
}

fn hang_up(host: &mut Host) {
    let pid = i32::try_from(host.daemon().pid()).expect("a process id");
    let pid = Pid::from_raw(pid).expect("not zero");
    kill_process(pid, Signal::HUP).expect("it runs");
}
