//! Partitions: interfaces with a P_Key in the table are served, others wait, and no packet crosses.

use serde_json::{Value, json};

use super::*;
use crate::lab::{Alone, Lab, Pinging, Sniffer};

/// A pair of hosts with these P_Key tables.
fn pair(tables: [&str; 2]) -> Option<Lab> {
    let mut lab = Lab::pair()?;
    for (i, table) in tables.into_iter().enumerate() {
        let host = lab.host(i);
        let file = configuration(host, &format!("pkeys = [{table}]"), "");
        host.start_with(&["--config", &file]);
        host.configure("ib0");
    }
    let (a, b) = lab.two();
    a.reaches(b);
    Some(lab)
}

#[test]
fn c86_c87_c89_a_child_waits_for_its_partition_and_nobody_else_notices() {
    let _alone = Alone::begin();
    let Some(mut lab) = pair(["0xffff", "0xffff, 0x8001"]) else {
        return;
    };
    let (a, b) = lab.two();
    for host in [&*a, &*b] {
        tuntap(host, "ib0.8001");
        configure(host, "ib0.8001", 1);
    }
    b.await_carrier("ib0.8001", true);
    let waits = a.show("ib0.8001");
    assert_eq!(waits["carrier"], false);
    let reason = waits["reason"].as_str().expect("a reason");
    assert!(
        reason.starts_with("the P_Key 0x8001 is not in the P_Key table"),
        "{reason}"
    );
    assert!(a.is_up("ib0.8001"));
    assert!(a.groups("ib0.8001", |g| g["send_only"] == false).is_empty());
    assert!(!b.pings(&address(a, 1)));

    let others = Pinging::start(a, &b.v4());
    let monitor = a.follow("--json monitor ib0.8001");
    monitor.await_object("the first event", |e| e["event"] == "watching");
    let qpn = a.show("ib0.8001")["qpn"].clone();
    for _ in 0..2 {
        done(&a.ibtap("pkey set eth0 0xffff,0x8001"));
        let used = |e: &Value| e["event"] == "pkey-assigned" && e["pkey"] == 0x8001;
        monitor.await_object("the entry", used);
        a.await_carrier("ib0.8001", true);
        reaches(a, b, 1);
        reaches(b, a, 1);
        // C88: with the P_Key at another index, traffic continues after a moment.
        done(&a.ibtap("pkey set eth0 0xffff,0x8007,0x8001"));
        reaches(a, b, 1);
        done(&a.ibtap("pkey set eth0 0xffff"));
        monitor.await_object("that it waits", |e| e["event"] == "pkey-missing");
        a.await_carrier("ib0.8001", false);
        assert!(!b.pings(&address(a, 1)));
    }
    assert_eq!(a.show("ib0.8001")["qpn"], qpn);
    others.goes_on();
    others.stop().lost_at_most(0);

    // The P_Keys that the interfaces request.
    done(&a.ibtap("pkey set eth0 auto"));
    a.await_carrier("ib0.8001", true);
    reaches(a, b, 1);
    let table = a.ask("pkey list eth0");
    assert_eq!(table[0]["pkeys"], json!([0xffff, 0x8001]));
    assert_eq!(table[0]["automatic"], true);
    let wrong = a.ibtap("pkey set eth0 0x8000");
    assert_ne!(wrong.code, Some(0), "{wrong:?}");
    let wrong = a.ibtap("pkey set eth9 0x8001");
    assert_ne!(wrong.code, Some(0), "{wrong:?}");
}

#[test]
fn c84_c90_limited_members_talk_to_full_ones_only() {
    let Some(mut lab) = pair(["0xffff, 0x0001", "0xffff, 0x0001"]) else {
        return;
    };
    let (a, b) = lab.two();
    for host in [&*a, &*b] {
        // In the kernel's form, and as a limited key: it is the same child.
        tuntap(host, "ib0.0001");
        let shown = host.show("ib0.0001");
        assert_eq!(shown["pkey"], 0x0001, "the entry in use");
        assert!(alias(host, "ib0.0001").contains("pkey 0x8001"));
        configure(host, "ib0.0001", 1);
        host.await_carrier("ib0.0001", true);
    }
    let (from, to) = (address(a, 1), address(b, 1));
    for _ in 0..3 {
        assert!(!a.pings(&to) && !b.pings(&from));
    }
    done(&b.ibtap("pkey set eth0 0xffff,0x8001"));
    reaches(a, b, 1);
    reaches(b, a, 1);
    // C85: both forms, in either order.
    for table in ["0x0001,0xffff,0x8001", "0x8001,0xffff,0x0001"] {
        done(&b.ibtap(&format!("pkey set eth0 {table}")));
        assert_eq!(b.show("ib0.0001")["pkey"], 0x8001);
        reaches(a, b, 1);
    }
}

#[test]
fn nothing_crosses_partitions() {
    let Some(mut lab) = Lab::running_pair() else {
        return;
    };
    let (a, b) = lab.two();
    // One subnet, so that only the partition separates them.
    for (host, name) in [(&*a, "ib0.8001"), (&*b, "ib0.8002")] {
        tuntap(host, name);
        configure(host, name, 1);
        host.await_carrier(name, true);
    }
    // Packets received for the host, by the kernel's count: the partitions have no other members.
    let arrived = |host: &Host, name: &str| {
        let packets = host.link(name)["stats64"]["rx"]["packets"].clone();
        packets.as_u64().expect("a count")
    };
    let children = |a: &Host, b: &Host| [arrived(a, "ib0.8001"), arrived(b, "ib0.8002")];
    let quiet = children(a, b);
    // Parents receive each other's packets, so the sender counts here.
    let spoken_by = |host: &Host, name: &str| {
        let link_local = host.await_link_local(name);
        format!("src host {} or src host {link_local}", address(host, 1))
    };
    let (of_a, of_b) = (spoken_by(a, "ib0.8001"), spoken_by(b, "ib0.8002"));
    let heard = [
        Sniffer::start(a, "ib0", &format!("{of_a} or {of_b}")),
        Sniffer::start(b, "any", &of_a),
    ];
    assert!(!a.pings(&address(b, 1)) && !b.pings(&address(a, 1)));
    // Broadcast, all hosts, all nodes; also from a parent.
    for target in [
        "-b 10.91.1.255",
        "-I ib0.8001 224.0.0.1",
        "-I ib0 224.0.0.1",
        "-6 ff02::1%ib0.8001",
        "-6 ff02::1%ib0",
    ] {
        a.run(&format!("ping -c 50 -i 0.01 -W 1 {target}"));
    }
    assert_eq!(children(a, b), quiet);
    assert!(heard.iter().all(Sniffer::is_empty), "something crossed");
    assert!(b.ask("neigh ib0.8002").is_empty());
    // Only the partition separates them: in the same one they reach each other.
    tuntap(b, "ib0.8001");
    b.ok("ip addr flush dev ib0.8002");
    configure(b, "ib0.8001", 1);
    reaches(a, b, 1);
    assert!(!heard[1].is_empty(), "in it, they are heard");
}
