//! `ib0` and an ordinary Ethernet as two paths to another host, one of them active: an active-backup bond,
//! and the same steps by hand.

use std::time::Duration;

use crate::lab::{Host, Lab, Pinging, SOON, Station, eventually, patient};

/// Maximum gap in the traffic after a fail-over.
const FAILED_OVER: Duration = Duration::from_secs(3);

/// Host `b` has `ib0` and a cable to host `a` on one bridge.
fn second_way(a: &Host, b: &Host) {
    let peer = b.namespace().name();
    a.ok(&format!(
        "ip link add wire0 mtu 4092 type veth peer name wire0 mtu 4092 netns {peer}"
    ));
    b.bridge();
    b.ok("ip link set wire0 up master br0");
}

/// Prints what both hosts know if the test fails.
struct ShownOnFailure<'a>([&'a Host; 2]);

impl Drop for ShownOnFailure<'_> {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            return;
        }
        for host in self.0 {
            let kernel = host.run_script(
                "date +%T; ip -br link; ip neigh; ip -s link show ib0
                bridge fdb show | grep -v permanent; cat /proc/net/bonding/bond0",
            );
            let daemon = ["show ib0", "neigh ib0", "stats ib0"].map(|words| host.ibtap(words).out);
            eprintln!("--- a host:\n{}{}", kernel.out, daemon.concat());
        }
    }
}

fn mac(station: &Station, interface: &str) -> String {
    let address = station.link(interface)["address"].clone();
    address.as_str().expect("an address").to_owned()
}

/// Checks that pings both ways over both families continue while `fail_over` is repeated.
fn goes_on(a: &Host, b: &Host, mut fail_over: impl FnMut(usize)) {
    let _shown = ShownOnFailure([a, b]);
    b.reaches_all(&[a.v4(), a.v6()]);
    a.reaches_all(&[b.v4(), b.v6()]);
    let pings = [
        Pinging::start(a, &b.v4()),
        Pinging::start(a, &b.v6()),
        Pinging::start(b, &a.v4()),
        Pinging::start(b, &a.v6()),
    ];
    for turn in 0..4 {
        std::thread::sleep(Duration::from_millis(500));
        fail_over(turn);
        pings.iter().for_each(Pinging::goes_on);
    }
    for ping in pings {
        ping.stop().gap_below(patient(FAILED_OVER));
    }
    b.reaches_all(&[a.v4(), a.v6()]);
    a.reaches_all(&[b.v4(), b.v6()]);
}

/// Whether this kernel has bonds.
fn has_bonds(host: &Host) -> bool {
    let made = host.run("ip link add bond0 type bond mode active-backup miimon 50");
    if made.code != Some(0) {
        kit::skip(format_args!(
            "this kernel has no bonding driver: {}",
            made.err.trim()
        ));
    }
    made.code == Some(0)
}

fn active_backup(fail_over_mac: &str) {
    let Some(mut lab) = Lab::running_pair() else {
        return;
    };
    let (a, b) = lab.two();
    if !has_bonds(a) {
        return;
    }
    second_way(a, b);
    a.ok(&format!(
        "ip link set bond0 type bond fail_over_mac {fail_over_mac} num_grat_arp 3"
    ));
    a.ok("ip addr flush dev ib0 scope global");
    for slave in ["ib0", "wire0"] {
        a.ok(&format!("ip link set {slave} down"));
        a.ok(&format!("ip link set {slave} master bond0"));
    }
    a.ok("ip link set bond0 mtu 4092 type bond primary ib0");
    a.configure_addresses("bond0");
    a.await_carrier("bond0", true);
    if fail_over_mac == "none" {
        assert_eq!(mac(a, "ib0"), mac(a, "bond0"), "slaves share the address");
    }
    eventually(SOON, "the daemon to follow the address", || {
        (a.show("ib0")["mac"] == a.link("ib0")["address"]).then_some(())
    });
    goes_on(a, b, |turn| {
        let fail_over = [
            "bond0 type bond active_slave wire0",
            "bond0 type bond active_slave ib0",
            "ib0 down",
            "ib0 up",
        ][turn];
        a.ok(&format!("ip link set {fail_over}"));
    });
}

#[test]
fn an_active_backup_bond_with_one_ethernet_address() {
    active_backup("none");
}

#[test]
fn an_active_backup_bond_with_the_active_interfaces_address() {
    active_backup("active");
}

/// The steps of the bond by hand, for kernels without bonds: both interfaces have one Ethernet address; the
/// IP addresses move between them and are announced by gratuitous ARP and unsolicited advertisements.
#[test]
fn addresses_move_between_the_interface_and_an_ethernet_beside_it() {
    let Some(mut lab) = Lab::running_pair() else {
        return;
    };
    let (a, b) = lab.two();
    second_way(a, b);
    let shared = mac(a, "wire0");
    a.ok(&format!("ip link set ib0 address {shared}"));
    eventually(SOON, "the daemon to follow the address", || {
        (a.show("ib0")["mac"] == shared.as_str()).then_some(())
    });
    a.ok("ip link set wire0 up");
    for interface in ["ib0", "wire0"] {
        a.ok(&format!(
            "sysctl -qw net.ipv6.conf.{interface}.ndisc_notify=1"
        ));
    }
    goes_on(a, b, |turn| {
        let (from, to) = [("ib0", "wire0"), ("wire0", "ib0")][turn % 2];
        a.ok(&format!("ip addr flush dev {from} scope global"));
        a.ok(&format!("ip addr add {}/24 dev {to}", a.v4()));
        a.ok(&format!("ip addr add {}/64 dev {to} nodad", a.v6()));
        // The kernel announces IPv6 addresses when the Ethernet address is set. arping waits for a second.
        a.ok(&format!("ip link set {to} address {shared}"));
        a.ok(&format!("arping -A -c 1 -I {to} {}", a.v4()));
    });
}

/// A bond or an administrator may give `ib0` the Ethernet address that represents a peer.
#[test]
fn the_interface_may_take_the_ethernet_address_that_stood_for_a_peer() {
    let Some(mut lab) = Lab::running_pair() else {
        return;
    };
    let (a, b) = lab.two();
    a.reaches(b);
    let taken = crate::lab::neighbour(a, "ib0", &b.v4());
    a.ok(&format!("ip link set ib0 address {taken}"));
    a.reaches_all(&[b.v4(), b.v6()]);
    b.reaches_all(&[a.v4(), a.v6()]);
    assert_ne!(crate::lab::neighbour(a, "ib0", &b.v4()), taken);
}
