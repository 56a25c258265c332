//! The kernel's VLAN links above `ib0`, if the kernel has them.

use crate::lab::{Host, Lab, iperf};

use super::config;

/// Two hosts whose `ib0` accepts tags. `None`, with a message, if the kernel has no 802.1Q.
fn pair() -> Option<Lab> {
    let mut lab = Lab::pair()?;
    let (a, b) = lab.two();
    let probe = a.run("ip link add link eth0 name probe type vlan id 1");
    if probe.err.contains("Unknown device type") {
        kit::skip("this kernel has no 8021q");
        return None;
    }
    a.ok("ip link del probe");
    for host in [a, b] {
        host.serve(&config("", ""));
    }
    Some(lab)
}

/// The hosts communicate in a VLAN's network, and no packet reaches the interface's own partition.
fn talk(a: &Host, b: &Host, vid: u16) {
    a.reaches_in(vid, b);
    a.ok(&format!("ping -c 2 -i 0.2 -W 5 -s 4000 {}", b.v4_in(vid)));
    let written = |interface: &str| b.counter(interface, "tap_writes");
    let before = written("ib0");
    iperf(a, b, &b.v4_in(vid), "-t 1");
    let (own, tagged) = (written("ib0") - before, written(&format!("ib0:vlan{vid}")));
    assert!(
        own < 20 && tagged > 20,
        "{own} without the tag, {tagged} with it"
    );
}

#[test]
fn vlan_links_reach_each_other() {
    let Some(mut lab) = pair() else { return };
    let (a, b) = lab.two();
    for host in [&*a, &*b] {
        host.ok("ip link add link ib0 name ib0.5 type vlan id 5");
        host.number_in("ib0.5", 5);
    }
    talk(a, b, 5);
    a.reaches(b);
}

#[test]
fn tagged_ports_of_bridges_that_filter_reach_each_other() {
    let Some(mut lab) = pair() else { return };
    let (a, b) = lab.two();
    for host in [&*a, &*b] {
        host.ok("ip addr flush dev ib0");
        host.ok("ip link add br0 type bridge vlan_filtering 1");
        host.ok("ip link set ib0 master br0");
        host.ok("ip link set br0 up");
        host.ok("bridge vlan add dev ib0 vid 6");
        host.ok("bridge vlan add dev br0 vid 6 self");
        host.ok("ip link add link br0 name br0.6 type vlan id 6");
        host.number_in("br0.6", 6);
    }
    talk(a, b, 6);
}
