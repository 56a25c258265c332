//! VNICs on a fabric that changes: partitions, a port's GID, an Ethernet link that goes down and up.

use super::{fixed, managed_pair, pair, start_all};
use crate::lab::{Host, Lab, SOON, UNDERLAY_MTU, eventually};

fn pkeys(host: &Host, table: &str) {
    let done = host.ibtap(&format!("pkey set eth0 {table}"));
    assert_eq!(done.code, Some(0), "{done:?}");
}

/// Sets the MAC of `eth0`, from which the GID is derived.
fn change_gid(host: &Host) {
    host.ok("ip link set eth0 down");
    host.ok("ip link set eth0 address 02:00:00:00:77:01");
    host.ok("ip link set eth0 up");
    eventually(SOON, "the new GID", || {
        (host.show("vnic0")["gid"] == "fe80::ff:fe00:7701").then_some(())
    });
}

#[test]
fn a_vnic_waits_for_its_partition() {
    let Some(mut lab) = Lab::pair() else { return };
    let (a, b) = lab.two();
    start_all(&mut [&mut *a, &mut *b], &fixed("vnic0", 1, "pkey = 0x8001"));
    let qpn = a.show("vnic0")["qpn"].clone();
    for _ in 0..2 {
        pkeys(a, "0xffff");
        a.await_carrier("vnic0", false);
        let shown = a.show("vnic0");
        let reason = shown["reason"].as_str().expect("a reason");
        assert!(reason.contains("0x8001"), "{reason}");
        assert!(!b.pings(&a.v4()));
        // At another index of the table than before.
        pkeys(a, "0xffff,0x8007,0x8001");
        a.await_carrier("vnic0", true);
        b.reaches(a);
        a.reaches(b);
    }
    assert_eq!(a.show("vnic0")["qpn"], qpn);
    pkeys(a, "auto");
    a.reaches(b);
}

#[test]
fn a_vnic_follows_the_gid_of_its_port() {
    let Some(mut lab) = pair() else { return };
    let (a, b) = lab.two();
    change_gid(a);
    b.reaches(a);
    a.reaches(b);
}

/// Its manager finds it at the new place, and informs the others.
#[test]
fn a_managed_vnic_follows_the_gid_of_its_port() {
    let Some((mut lab, _em)) = managed_pair("", "") else {
        return;
    };
    let (a, b) = lab.two();
    change_gid(b);
    b.await_carrier("vnic0", true);
    a.reaches(b);
    b.reaches(a);
}

#[test]
fn an_underlay_that_vanishes_is_waited_for() {
    let Some(mut lab) = pair() else { return };
    let (a, b) = lab.two();
    a.ok("ip link del eth0");
    for host in [&*a, &*b] {
        host.await_carrier("vnic0", false);
        assert!(!host.show("vnic0")["reason"].is_null());
    }
    let peer = b.namespace().name().to_owned();
    a.ok(&format!(
        "ip link add eth0 mtu {UNDERLAY_MTU} type veth peer name eth0 mtu {UNDERLAY_MTU} netns {peer}"
    ));
    for host in [&*a, &*b] {
        host.bring_up_underlay();
    }
    for host in [&*a, &*b] {
        host.await_carrier("vnic0", true);
    }
    a.reaches(b);
    b.reaches(a);
    assert!(a.daemon().is_running() && b.daemon().is_running());
}
