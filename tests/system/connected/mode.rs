//! Changes of the mode during traffic.

use std::time::Duration;

use crate::lab::{CONNECTED, CONNECTED_MTU, Host, LINK_MTU, Lab, SOON, eventually, iperf_across};

use super::full_packets_pass;

/// Changes the mode with `ibtap`, and checks the result and its consequences.
fn change(host: &Host, mode: &str) {
    let done = host.ibtap(&format!("mode ib0 {mode}"));
    assert_eq!(done.code, Some(0), "{done:?}");
    let output = host.ibtap("mode ib0");
    assert_eq!(
        (output.code, output.out.trim()),
        (Some(0), mode),
        "{output:?}"
    );
    let mtu = match mode {
        "connected" => CONNECTED_MTU,
        _ => LINK_MTU,
    };
    eventually(SOON, &format!("the MTU of {mode} mode"), || {
        (host.mtu("ib0") == u64::from(mtu)).then_some(())
    });
}

fn sends_over_a_connection(from: &Host, to: &Host) -> bool {
    !from.connections_with(to, true).is_empty()
}

/// Changes one side and back, under load.
fn one_side_changes(options: &str) {
    let Some(mut lab) = Lab::connected_pair() else {
        return;
    };
    let (a, b) = lab.two();
    a.connects_to(b);
    iperf_across(a, b, options, |a| {
        change(a, "datagram");
        eventually(SOON, "connections to end", || {
            let none = !sends_over_a_connection(a, b) && !sends_over_a_connection(b, a);
            none.then_some(())
        });
        change(a, "connected");
    });
    a.connects_to(b);
    b.connects_to(a);
    // Packets too large for datagrams have lowered the path MTU in the peer's kernel.
    for host in [&*a, &*b] {
        host.ok("ip -4 route flush cache");
        host.ok("ip -6 route flush cache");
    }
    full_packets_pass(a, b, CONNECTED_MTU);
    full_packets_pass(b, a, CONNECTED_MTU);
}

#[test]
fn one_side_changes_while_it_sends() {
    one_side_changes("");
}

#[test]
fn one_side_changes_while_it_receives() {
    one_side_changes("-R");
}

#[test]
fn one_side_changes_while_four_streams_run() {
    one_side_changes("-P 4");
}

/// A stream that began with small segments continues over connections, and vice versa.
#[test]
fn both_sides_change_under_load() {
    let Some(mut lab) = Lab::running_pair() else {
        return;
    };
    let (a, b) = lab.two();
    assert_eq!(a.ibtap("mode ib0").out.trim(), "datagram");
    for options in ["", "-R"] {
        iperf_across(a, b, options, |a| {
            for mode in ["connected", "datagram", "connected"] {
                change(a, mode);
                std::thread::sleep(Duration::from_millis(200));
                change(b, mode);
                std::thread::sleep(Duration::from_millis(200));
            }
        });
        a.connects_to(b);
        b.connects_to(a);
        for host in [&*a, &*b] {
            change(host, "datagram");
        }
        a.reaches(b);
    }
}

/// Setting the same mode again disturbs nothing.
#[test]
fn the_same_mode_again_keeps_the_connections() {
    let Some(lab) = Lab::pair() else { return };
    let mut lab = lab.run_with(&CONNECTED);
    let (a, b) = lab.two();
    a.connects_to(b);
    let qpns = |host: &Host| -> Vec<u64> {
        let all = host.connections("ib0");
        all.iter().map(|c| c.number("qpn")).collect()
    };
    let before = qpns(a);
    change(a, "connected");
    // The other data thread may have connected meanwhile.
    let after = qpns(a);
    assert!(
        before.iter().all(|qpn| after.contains(qpn)),
        "{before:?}, then {after:?}"
    );
}
