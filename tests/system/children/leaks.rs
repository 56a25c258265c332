//! Children that are created and deleted leave nothing behind.

use std::path::Path;
use std::time::Duration;

use super::*;
use crate::lab::{Alone, Lab, Pinging};

/// Number of children that each process creates and deletes.
const CYCLES: usize = 250;
/// Number of concurrent processes.
const PROCESSES: usize = 4;

/// Resources in use: descriptors and threads of the daemon, queue pairs and groups, interfaces, groups of the
/// underlay, entries of the P_Key table.
fn in_use(host: &mut Host) -> Vec<(&'static str, usize)> {
    let pid = host.daemon().pid();
    let count = |what: &str| {
        let path = format!("/proc/{pid}/{what}");
        std::fs::read_dir(Path::new(&path))
            .expect("it is alive")
            .count()
    };
    let pkeys = host.ask("pkey")[0]["pkeys"].as_array().map_or(0, Vec::len);
    vec![
        ("descriptors", count("fd")),
        ("threads", count("task")),
        ("resources", host.ibtap("res").out.lines().count()),
        ("interfaces", host.link_names().len()),
        (
            "groups",
            host.ok("ip -6 maddr show dev eth0").lines().count(),
        ),
        ("P_Keys", pkeys),
    ]
}

#[test]
fn a_thousand_children_from_several_processes_under_traffic_leave_nothing_behind() {
    // Other tests flood the machine, and no packet may be lost here.
    let _alone = Alone::begin();
    let Some(mut lab) = Lab::running_pair() else {
        return;
    };
    let (a, b) = lab.two();
    let socket = a.socket();
    let (before, memory) = (in_use(a), a.daemon().resident_kib());
    let traffic = Pinging::start(a, &b.v4());
    let ibtap = crate::lab::ibtap().display().to_string();
    // Half of them with ip, half with ibtap; some are deleted with the other program.
    let script = |process: usize| {
        let base = 0x8100 + process * 0x100;
        let tool = format!("{ibtap} --socket {}", socket.display());
        format!(
            "i=0; while [ $i -lt {CYCLES} ]; do \
               key=$(printf %04x $(({base} + i % 16))); name=ib0.$key; \
               case $((i % 4)) in \
               0) ip tuntap add dev $name mode tap && ip link set $name up && ip link del $name;; \
               1) {tool} child add ib0 0x$key >/dev/null && {tool} child del $name;; \
               2) {tool} child add ib0 0x$key >/dev/null && ip link set $name up && ip link del $name;; \
               3) ip tuntap add dev $name mode tap && ip link del $name;; \
               esac || exit 1; i=$((i + 1)); done"
        )
    };
    let children: Vec<_> = (0..PROCESSES)
        .map(|process| {
            let file = a.file(&format!("process{process}"));
            std::fs::write(&file, script(process)).expect("a script");
            a.spawn(&format!("sh {}", file.display()))
        })
        .collect();
    for mut child in children {
        let status = eventually(Duration::from_secs(300), "the end of a process", || {
            child.0.try_wait().expect("a child")
        });
        assert!(status.success(), "{status}");
    }
    traffic.goes_on();
    traffic.stop().lost_at_most(0);
    eventually(SOON, "everything as before", || {
        let after = in_use(a);
        if after != before {
            eprintln!("{after:?}, before {before:?}");
        }
        (after == before).then_some(())
    });
    assert!(a.ask("child list").is_empty());
    let grown = a.daemon().resident_kib().saturating_sub(memory);
    assert!(grown < 20_000, "grown by {grown} KiB");
    a.reaches(b);
}
