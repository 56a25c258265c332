//! Interfaces in other network namespaces than the daemon's.

mod config;
mod moves;
mod restart;
mod router;

use crate::lab::{Host, SOON, Station, eventually};

/// A network namespace beside a host, for its interfaces.
fn beside(name: &str) -> Station {
    Station::create(name)
}

/// Moves an interface with `ip link` from one place to another.
fn carry(interface: &str, from: &Station, to: &Station) {
    let name = to.namespace().name();
    from.ok(&format!("ip link set {interface} netns {name}"));
}

/// Adds this host's addresses to an interface at any place.
fn configure(station: &Station, interface: &str, host: &Host) {
    let (v4, v6) = (host.v4(), host.v6());
    station.ok(&format!("ip addr add {v4}/24 dev {interface}"));
    station.ok(&format!("ip addr add {v6}/64 dev {interface} nodad"));
    station.ok(&format!("ip link set {interface} up"));
    station.await_carrier(interface, true);
}

/// Waits until these answer each other over IPv4 and IPv6.
fn meet(here: &Station, host: &Host, there: &Host) {
    here.reaches_all(&[there.v4(), there.v6()]);
    there.reaches_all(&[host.v4(), host.v6()]);
}

/// Waits for a value in `ibtap show` of an interface: `None` for an absent member.
fn await_shown(host: &Host, interface: &str, member: &str, value: Option<&str>) {
    let what = format!("{member} of {interface} to be {value:?}");
    eventually(SOON, &what, || {
        let shown = host.ibtap(&format!("--json show {interface}"));
        let shown: serde_json::Value = serde_json::from_str(&shown.out).ok()?;
        (shown[0]["name"].is_string() && shown[0][member].as_str() == value).then_some(())
    });
}

/// Waits until the daemon serves an interface in that place.
fn await_place(host: &Host, interface: &str, place: Option<&Station>) {
    let netns = place.map(|station| station.namespace().name());
    await_shown(host, interface, "netns", netns);
}
