//! Ethernet over the fabric: VNICs on virtual switches, configured and managed.

mod bridge;
mod config;
mod decode;
mod fabric;
mod failover;
mod groups;
mod hostile;
mod joins;
mod key;
mod life;
mod manager;
mod moving;
mod mtu;
mod node;
mod switches;
mod tags;
mod traffic;
mod wireshark;

use serde_json::Value;

use crate::lab::frame::{Mac, mac};
use crate::lab::{Em, Host, Lab, SOON, Station, eventually};

/// A VNIC on `eth0` with a configured switch and further keys.
fn fixed(name: &str, vesw: u16, more: &str) -> String {
    format!("[[vnic]]\nname = {name:?}\nunderlay = \"eth0\"\nvesw = {vesw}\n{more}\n")
}

/// A VNIC on `eth0` that a manager configures.
fn managed(name: &str) -> String {
    format!("[[vnic]]\nname = {name:?}\nunderlay = \"eth0\"\n")
}

/// Starts all daemons with one configuration, adds addresses to `vnic0`, and waits until all reach the first
/// host.
fn start_all(hosts: &mut [&mut Host], text: &str) {
    for host in hosts.iter_mut() {
        host.start_config(text);
        host.configure("vnic0");
    }
    let (first, rest) = hosts.split_first().expect("a host");
    for host in rest {
        host.reaches(first);
    }
}

/// Two hosts with `vnic0` on switch 1, which reach each other.
fn pair() -> Option<Lab> {
    pair_with("")
}

/// Two hosts with `vnic0` on switch 1 and further keys.
fn pair_with(more: &str) -> Option<Lab> {
    let mut lab = Lab::pair()?;
    let (a, b) = lab.two();
    start_all(&mut [a, b], &fixed("vnic0", 1, more));
    Some(lab)
}

/// The counters of a VNIC in `ibtap stats`.
fn stats(host: &Host, interface: &str) -> Value {
    let mut all = host.ask(&format!("stats {interface}"));
    assert_eq!(all.len(), 1, "{all:?}");
    all.remove(0)
}

/// A counter of the virtual port, the kernel driver's or ibtap's own, not a counter of the fabric's workers
/// with the same name.
fn counter_of(stats: &Value, name: &str) -> u64 {
    let found = ["driver", "port"].map(|kind| stats[kind][name].as_u64());
    let found: Vec<u64> = found.into_iter().flatten().collect();
    assert_eq!(found.len(), 1, "{name} in {stats}");
    found[0]
}

/// The counter of `vnic0` now.
fn count(host: &Host, name: &str) -> u64 {
    counter_of(&stats(host, "vnic0"), name)
}

/// The LID of a VNIC.
fn lid(host: &Host, interface: &str) -> u32 {
    let lid = host.show(interface)["lid"].as_u64();
    u32::try_from(lid.expect("a LID")).expect("24 bits")
}

/// An interface's Ethernet address.
fn mac_of(station: &Station, interface: &str) -> Mac {
    mac(station.link(interface)["address"].as_str().expect("a MAC"))
}

/// The entry of an address in `ibtap vnic mac`, if it exists.
fn known(host: &Host, interface: &str, address: &str) -> Option<Value> {
    let all = host.ask(&format!("vnic mac {interface}"));
    all.into_iter().find(|entry| entry["mac"] == address)
}

/// Waits until an address is known at a LID.
fn await_known(host: &Host, interface: &str, address: &str, lid: u32) -> Value {
    let what = format!("{}: {address} at {lid:#x}", host.name());
    eventually(SOON, &what, || {
        known(host, interface, address).filter(|entry| entry["lid"] == lid)
    })
}

/// A switch in a manager's configuration with all ports as members.
fn vesw(id: u16, more: &str) -> String {
    format!(
        "[[vesw]]\nname = \"switch {id}\"\nid = {id}\npkey = 0xffff\nmembers = [\"*:1:*\"]\n{more}\n"
    )
}

/// Two hosts with a managed `vnic0` each, and a manager on the first, with both on switch 1; they reach each
/// other.
fn managed_pair(em: &str, switch: &str) -> Option<(Lab, Em)> {
    let mut lab = Lab::pair()?;
    let (a, b) = lab.two();
    for host in [&mut *a, &mut *b] {
        host.start_config(&managed("vnic0"));
        host.configure_addresses("vnic0");
    }
    let em = Em::start(a, em, &vesw(1, switch));
    for host in [&*a, &*b] {
        host.await_carrier("vnic0", true);
    }
    a.reaches(b);
    b.reaches(a);
    Some((lab, em))
}
