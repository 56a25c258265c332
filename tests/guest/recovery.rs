//! What becomes of daemons over verbs when something ends, goes away or changes.

use std::time::Duration;

use crate::lab::{Node, Running, SOFT, SOON, Side, VERBS, eventually, on_stage, pair};

/// Both reach each other again; under what name they knew each other before does not matter.
fn heals(a: &Side, b: &Side) {
    a.reaches(b);
    b.reaches(a);
}

/// Waits until `ib0` has its carrier, or has lost it.
fn carrier(side: &Side, on: bool) {
    let what = format!("{}: carrier {on} on ib0", side.node.name());
    eventually(SOON, &what, || {
        // It cannot be read while the interface is down.
        let read = side.node.run("cat /sys/class/net/ib0/carrier").out;
        ((read.trim() == "1") == on).then_some(())
    });
}

/// A ping from the node of one side to that of the other, five a second until it is ended.
fn traffic(from: &Side, to: &Side) -> Running {
    let mut ping = from
        .node
        .spawn(&format!("exec ping -n -O -i 0.2 {}", to.node.v4()));
    ping.says("bytes from");
    ping
}

/// It has more answers now.
fn goes_on(ping: &Running) {
    let answers = || ping.said().matches("bytes from").count();
    let before = answers();
    eventually(SOON, "answers to a ping that goes on", || {
        (answers() > before + 5).then_some(())
    });
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
            a.connects_to(&b);
            b.connects_to(&a);
            if of_a { &mut a } else { &mut b }.kill_and_restart();
            heals(&a, &b);
        }
        a.connects_to(&b);
        b.connects_to(&a);
    });
}

#[test]
fn a_port_goes_down_and_up_with_its_ethernet() {
    on_stage(|stage| {
        let (a, b) = pair((&stage.machine, VERBS), (&stage.host, SOFT), "");
        let ping = traffic(&b, &a);
        a.node.ok("ip link set eth0 down");
        carrier(&a, false);
        let down = &a.node.ask("show ib0")[0];
        assert_eq!(down["carrier"], false, "{down}");
        a.node.ok("ip link set eth0 up");
        carrier(&a, true);
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
            let pings = [traffic(&a, &b), traffic(&b, &a)];
            // rdma_rxe waits until nobody has the device open.
            let removed = machine.run_for("rdma link del rxe0", Duration::from_secs(30));
            assert_eq!(removed.code, Some(0), "{removed:?}\n{}", a.daemon.said());
            carrier(&a, false);
            assert!(a.daemon.is_running(), "{}", a.daemon.said());
            machine.ok("rdma link add rxe0 type rxe netdev eth0");
            carrier(&a, true);
            for ping in &pings {
                goes_on(ping);
            }
            heals(&a, &b);
        }
    });
}
