//! Daemons over verbs after something ends, disappears or changes.

use std::time::Duration;

use serde_json::Value;

use crate::lab::{
    Node, SOFT, SOON, Side, VERBS, carrier, eventually, goes_on, on_stage, pair, traffic,
};

/// Both reach each other again, whatever names they knew before.
fn heals(a: &Side, b: &Side) {
    a.reaches(b);
    b.reaches(a);
}

#[test]
fn a_killed_daemon_of_either_side_comes_back_with_datagrams() {
    on_stage(|stage| {
        let (mut a, mut b) = pair((&stage.machine, VERBS), (&stage.host, SOFT), "");
        a.kill_and_restart();
        heals(&a, &b);
        b.kill_and_restart();
        heals(&a, &b);
    });
}

#[test]
fn a_killed_daemon_of_either_side_comes_back_with_connections() {
    on_stage(|stage| {
        let connections = "--mode connected";
        let (mut a, mut b) = pair((&stage.machine, VERBS), (&stage.host, SOFT), connections);
        for of_a in [true, false] {
            a.connects_to(b.node);
            b.connects_to(a.node);
            if of_a { &mut a } else { &mut b }.kill_and_restart();
            heals(&a, &b);
        }
        a.connects_to(b.node);
        b.connects_to(a.node);
    });
}

/// Retries, keepalives and ages are times of the monotonic clock.
#[test]
fn steps_of_the_clock_disturb_no_connection() {
    on_stage(|stage| {
        let (a, b) = pair(
            (&stage.machine, VERBS),
            (&stage.host, SOFT),
            "--mode connected",
        );
        a.connects_to(b.node);
        let before = a.connections();
        // From the host, since the clock of the machine also steps for its ping.
        let ping = traffic(b.node, a.node);
        for step in ["+ 86400", "- 172800", "+ 86400"] {
            let set = format!("date -s @$(( $(date +%s) {step} ))");
            a.node.ok(&set);
            goes_on(&ping);
        }
        let qpns = |connections: &[Value]| -> Vec<Value> {
            connections.iter().map(|c| c["qpn"].clone()).collect()
        };
        assert_eq!(qpns(&a.connections()), qpns(&before));
    });
}

#[test]
fn a_port_goes_down_and_up_with_its_ethernet() {
    on_stage(|stage| {
        let (a, b) = pair((&stage.machine, VERBS), (&stage.host, SOFT), "");
        let ping = traffic(b.node, a.node);
        a.node.ok("ip link set eth0 down");
        carrier(a.node, false);
        let down = &a.node.ask("show ib0")[0];
        assert_eq!(down["carrier"], false, "{down}");
        a.node.ok("ip link set eth0 up");
        carrier(a.node, true);
        goes_on(&ping);
        heals(&a, &b);
    });
}

/// IB MTUs are powers of two: 2300 bytes of Ethernet carry 2048, and IPoIB's header takes 4 of them.
#[test]
fn the_mtu_follows_that_of_the_ethernet() {
    on_stage(|stage| {
        let (a, b) = pair((&stage.machine, VERBS), (&stage.host, SOFT), "");
        for (ethernet, ib0) in [(2300, 2044), (4500, 4092)] {
            a.node.ok(&format!("ip link set eth0 mtu {ethernet}"));
            eventually(SOON, &format!("an MTU of {ib0}"), || {
                (a.node.mtu("ib0") == ib0).then_some(())
            });
            heals(&a, &b);
            let payload = ib0 - 20 - 8;
            let full = format!(
                "ping -q -c 2 -i 0.2 -W 5 -M do -s {payload} {}",
                b.node.v4()
            );
            a.node.ok(&full);
        }
    });
}

#[test]
fn a_device_is_removed_under_traffic_and_comes_back() {
    on_stage(|stage| {
        let machine = &stage.machine;
        for options in ["", "--mode connected"] {
            let (mut a, b) = pair((machine, VERBS), (&stage.host, SOFT), options);
            let pings = [traffic(a.node, b.node), traffic(b.node, a.node)];
            // rdma_rxe waits until the device is closed.
            let removed = machine.run_for("rdma link del rxe0", Duration::from_secs(30));
            assert_eq!(removed.code, Some(0), "{removed:?}\n{}", a.daemon.output());
            carrier(a.node, false);
            assert!(a.daemon.is_running(), "{}", a.daemon.output());
            machine.ok("rdma link add rxe0 type rxe netdev eth0");
            carrier(a.node, true);
            for ping in &pings {
                goes_on(ping);
            }
            heals(&a, &b);
        }
    });
}
