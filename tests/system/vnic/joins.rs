//! Groups that cannot be joined because the port has reached its maximum.

use std::time::Duration;

use super::{fixed, managed};
use crate::lab::group::fill_port;
use crate::lab::{Host, Lab, SOON, eventually};

/// Time limit for thousands of groups, and for retries after up to half a minute.
const LONG: Duration = Duration::from_secs(60);

fn lines(host: &mut Host, words: &str) -> usize {
    let log = host.daemon().log();
    log.lines().filter(|line| line.contains(words)).count()
}

#[test]
fn a_vnic_without_its_switchs_group_has_no_carrier_and_tries_again() {
    let Some(mut lab) = Lab::pair() else { return };
    let (a, b) = lab.two();
    b.start_config(&fixed("vnic0", 1, ""));
    b.configure("vnic0");
    let ib0 = "[[ipoib]]\nname = \"ib0\"\nunderlay = \"eth0\"\n";
    let text = format!("{ib0}{}", fixed("vnic0", 1, "up = false"));
    a.start_config(&text);
    a.await_carrier("ib0", true);
    let sockets = fill_port(a, "ib0");
    a.configure_addresses("vnic0");
    let reason = eventually(SOON, "a word about the switch's group", || {
        let shown = a.show("vnic0");
        let reason = shown["reason"].as_str().unwrap_or_default().to_owned();
        reason.contains("group of its switch").then_some(reason)
    });
    assert!(reason.contains("8192"), "the reason of the port: {reason}");
    a.await_carrier("vnic0", false);
    assert_eq!(a.show("vnic0")["oper_state"], "drop_all");
    // The group of management is like any other: without it, the node cannot be found.
    let more = format!("{text}{}", managed("vnic1"));
    a.write_config(&more);
    assert_eq!(a.ibtap("reload").code, Some(0));
    let shown = a.show("vnic1");
    let reason = shown["reason"].as_str().unwrap_or_default();
    assert!(reason.contains("group of management"), "{reason}");
    drop(sockets);
    eventually(LONG, "the carrier", || {
        (a.show("vnic0")["carrier"] == true).then_some(())
    });
    eventually(LONG, "the management's group", || {
        (lines(
            a,
            "VNIC management: joined the multicast groups that had failed",
        ) == 1)
            .then_some(())
    });
    a.reaches(b);
    b.reaches(a);
    // In spite of many attempts.
    for what in [
        "vnic0: multicast join failed",
        "VNIC management: multicast join failed",
    ] {
        assert_eq!(lines(a, what), 1, "{what}");
    }
}
