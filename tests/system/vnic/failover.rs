//! A standby takes over, and two managers never set values at the same time.

use std::time::Duration;

use rustix::process::Signal;

use super::{managed, vesw};
use crate::lab::{Em, Guest, Host, Lab, SOON, eventually, iperf_across};

/// A lease of two seconds, so that a test need not wait for 15.
const LEASE: &str = "lease = 2\npoll_interval = 1\n";

/// Whether a manager is active.
fn is_active(em: &Em) -> bool {
    em.ask("status")[0]["role"] == "active"
}

fn await_active(em: &Em, active: bool) {
    eventually(SOON, &format!("active: {active}"), || {
        (is_active(em) == active).then_some(())
    });
}

/// Two hosts with a manager each; the first is active.
fn two_managers(a: &mut Host, b: &mut Host) -> (Em, Em) {
    for host in [&mut *a, &mut *b] {
        host.start_config(&managed("vnic0"));
        host.configure_addresses("vnic0");
    }
    let first = Em::start(a, &format!("priority = 6\n{LEASE}"), &vesw(1, ""));
    for host in [&*a, &*b] {
        host.await_carrier("vnic0", true);
    }
    let second = Em::start(b, &format!("priority = 5\n{LEASE}"), &vesw(1, ""));
    a.reaches(b);
    await_active(&first, true);
    await_active(&second, false);
    (first, second)
}

#[test]
fn ve12_a_standby_takes_over_and_no_connection_is_lost() {
    let Some(mut lab) = Lab::pair() else { return };
    let (a, b) = lab.two();
    let (mut first, second) = two_managers(a, b);
    let before = [a.show("vnic0"), b.show("vnic0")];
    assert_eq!(
        second.ask("status")[0]["counters"]["sets"],
        0,
        "a standby is quiet"
    );
    iperf_across(a, b, "", |_| first.end_by(Signal::KILL));
    await_active(&second, true);
    // It manages: changes arrive by trap and are published.
    a.bridge_over("vnic0");
    let guest = Guest::attach(a, 1);
    eventually(2 * SOON, "the guest in the new manager's table", || {
        guest.pings(&b.v4());
        let entry = super::known(b, "vnic0", &guest.mac())?;
        (entry["source"] == "table").then_some(())
    });
    for (host, before) in [&*a, &*b].into_iter().zip(&before) {
        for key in ["lid", "mac", "vesw"] {
            assert_eq!(host.show("vnic0")[key], before[key], "{key}");
        }
    }
    // The first manager returns, and does not take over again.
    first.start_again(a);
    await_active(&first, false);
    std::thread::sleep(Duration::from_secs(3));
    assert!(is_active(&second) && !is_active(&first));
    a.ok(&format!("ping -q -c 3 -i 0.05 -W 5 {}", guest.v4()));
    // An agent may have received a message of the first a moment after one of the second, but no more.
    for host in [a, b] {
        let log = host.daemon().log();
        assert!(log.matches("two active managers").count() < 2, "{log}");
    }
}
