//! `ethtool -k` and `-K` on `ib0`, and an underlay with fewer offloads than usual.

use crate::lab::{Host, Lab, SOON, eventually, iperf, iperf_above};

/// State of a feature in `ethtool -k`: "on" or "off", without "[fixed]".
pub fn feature(host: &Host, interface: &str, name: &str) -> String {
    let shown = host.ok(&format!("ethtool -k {interface}"));
    let line = shown
        .lines()
        .find_map(|line| line.trim().strip_prefix(&format!("{name}: ")))
        .unwrap_or_else(|| panic!("no feature {name} in {shown}"));
    line.split_whitespace().next().expect("a state").to_owned()
}

#[test]
fn the_offloads_that_the_daemon_does_are_shown_as_on() {
    let Some(mut lab) = Lab::running_pair() else {
        return;
    };
    let a = lab.host(0);
    for name in [
        "tx-checksumming",
        "scatter-gather",
        "tcp-segmentation-offload",
        "tx-tcp-segmentation",
        "tx-tcp6-segmentation",
        "generic-segmentation-offload",
        "generic-receive-offload",
    ] {
        assert_eq!(feature(a, "ib0", name), "on", "{name}");
    }
}

/// Mean size in bytes of the packets that a host's `ib0` passes to the kernel in one second of TCP.
fn mean_received_bytes(a: &mut Host, b: &mut Host) -> u64 {
    let count = |host: &Host, what: &str| {
        host.link("ib0")["stats64"]["rx"][what]
            .as_u64()
            .expect("a count")
    };
    let before = (count(b, "bytes"), count(b, "packets"));
    iperf(a, b, &b.v4(), "-t 1");
    (count(b, "bytes") - before.0) / (count(b, "packets") - before.1)
}

#[test]
fn coalescing_follows_gro() {
    let Some(mut lab) = Lab::running_pair() else {
        return;
    };
    let (a, b) = lab.two();
    let mtu = b.mtu("ib0");
    for (gro, expected) in [("on", true), ("off", false), ("on", true)] {
        b.ok(&format!("ethtool -K ib0 gro {gro}"));
        // The kernel notifies the daemon of the change a moment later.
        eventually(
            SOON,
            &format!("coalescing {expected} with gro {gro}"),
            || {
                let mean = mean_received_bytes(a, b);
                let seen = if expected {
                    mean > 2 * mtu
                } else {
                    mean <= mtu + 14
                };
                seen.then_some(())
            },
        );
    }
}

#[test]
fn tcp_works_with_each_offload_of_the_interface_off() {
    let Some(mut lab) = Lab::running_pair() else {
        return;
    };
    let (a, b) = lab.two();
    for name in ["tso", "gso", "gro", "tx", "sg"] {
        for host in [&*a, &*b] {
            host.ok(&format!("ethtool -K ib0 {name} off"));
        }
        iperf_above(a, b, &b.v6(), "-n 8M", 10e6);
        for host in [&*a, &*b] {
            host.ok(&format!("ethtool -K ib0 {name} on"));
        }
    }
    assert_eq!(b.counter("ib0", "rx_icrc_errors"), 0);
}

#[test]
fn tcp_works_over_an_underlay_with_fewer_offloads() {
    let Some(mut lab) = Lab::running_pair() else {
        return;
    };
    let (a, b) = lab.two();
    for name in ["tx-udp-segmentation", "gso", "gro", "sg", "tx"] {
        for host in [&*a, &*b] {
            host.ok(&format!("ethtool -K eth0 {name} off"));
        }
        for options in ["-n 8M", "-n 8M -R"] {
            iperf_above(a, b, &b.v4(), options, 10e6);
        }
    }
    assert_eq!(
        a.counter("ib0", "rx_icrc_errors") + b.counter("ib0", "rx_icrc_errors"),
        0
    );
}

/// The table of docs/ip-link.md.
#[test]
fn ethtool_shows_what_the_table_of_the_documents_says() {
    let Some(mut lab) = Lab::pair() else { return };
    let host = lab.host(0);
    host.start(&["--queues", "2"]);
    let says = |option: &str| {
        let done = host.run(&format!("ethtool {option} ib0"));
        done.out + &done.err
    };
    assert!(says("-S").contains("no stats available"));
    assert!(says("-i").contains("driver: tun\n"));
    assert!(says("-g").contains("not supported"));
    let channels = says("-l");
    assert!(channels.trim_end().ends_with("\t2"), "{channels:?}");
    assert_eq!(host.show("ib0")["queues"], 2);
    let refused = host.run("ethtool -L ib0 combined 1");
    assert_ne!(refused.code, Some(0), "{refused:?}");
    let moderation = says("-c");
    for line in [["rx-frames:", "0"], ["rx-usecs:", "n/a"]] {
        let is_shown = moderation
            .lines()
            .any(|shown| shown.split_whitespace().eq(line));
        assert!(is_shown, "{line:?} {moderation:?}");
    }
    assert!(says("").contains("10000Mb/s"));
}
