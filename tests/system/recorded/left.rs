//! Today's daemon with the recorded traces of an older one: persistent TAPs with their aliases, or queues
//! that a service manager keeps under their labels.

use serde_json::Value;

use super::*;

/// An interface of a record.
struct LeftTap<'a> {
    name: &'a str,
    home: &'a Station,
    station: &'a Station,
    link: &'a Value,
    /// Label and number of its queues.
    label: String,
    queues: u64,
}

impl LeftTap<'_> {
    /// State set up by an older daemon and an administrator, once the TAP exists.
    fn prepare(&self, number: usize) {
        let (name, link) = (self.name, self.link);
        let alias = link["alias"].as_str().expect("text");
        if !std::ptr::eq(self.home, self.station) {
            self.home.ok(&format!("ip link set {name} netns {NETNS}"));
        }
        let there = self.station;
        there.ok(&format!("ip link set {name} mtu {}", link["mtu"]));
        if let Some(mac) = link["mac"].as_str() {
            there.ok(&format!("ip link set {name} address {mac}"));
        }
        let done = there.run_script(&format!("ip link set {name} alias '{alias}'"));
        assert_eq!(done.code, Some(0), "{done:?}");
        there.ok(&format!("ip addr add 10.60.{number}.1/24 dev {name}"));
        there.ok(&format!("ip addr add fd60:{number}::1/64 dev {name} nodad"));
        if link["carrier"] == true {
            there.ok(&format!("ip link set {name} up"));
        }
    }
}

/// The interfaces of a record with their labels: a renamed interface has the label of its first name, from
/// `first`.
fn left<'a>(
    case: &'a Case,
    record: &'a Value,
    host: &'a Host,
    elsewhere: Option<&'a Station>,
    first: &'a [(&str, &str)],
) -> Vec<LeftTap<'a>> {
    let all = placed(case, host, elsewhere).map(|(name, station)| {
        let renamed = first.iter().find(|(now, _)| *now == name);
        let stored = renamed.map_or(name, |(_, first)| first);
        let labels = record["labels"].as_object().expect("labels");
        let ends = |label: &&String| {
            label
                .strip_prefix("ibtap-")
                .is_some_and(|rest| rest == stored || rest.rsplit('/').next() == Some(stored))
        };
        let label = labels.keys().find(ends).expect("a label").clone();
        LeftTap {
            name,
            home: host,
            station,
            link: &record["interfaces"][name],
            queues: labels[&label].as_u64().expect("a number"),
            label,
        }
    });
    all.collect()
}

/// Checks that today's daemon takes over both.
fn check(case: &Case, first: &[(&str, &str)]) {
    persistent(case, first);
    stored(case, first);
}

fn persistent(case: &Case, first: &[(&str, &str)]) {
    let Some(mut stage) = Stage::set(case) else {
        return;
    };
    let elsewhere = stage.elsewhere.as_ref();
    let host = &mut *stage.lab.host(0);
    let record = case.record();
    let path = case.write(host, TABLE);
    let all = left(case, &record, host, elsewhere, first);
    for (i, one) in all.iter().enumerate() {
        let queues = if one.queues > 1 { "multi_queue" } else { "" };
        host.ok(&format!(
            "ip tuntap add dev {} mode tap vnet_hdr {queues}",
            one.name
        ));
        one.prepare(i);
    }
    let states = || -> Value {
        let all = placed(case, host, elsewhere);
        all.map(|(name, station)| state(case, station, name, false))
            .collect()
    };
    let earlier = states();
    let daemon = host.start_other("ibtapd.sock", &["--config", &path]);
    await_same("the interfaces", &earlier, states);
    await_record(case, &record, host, elsewhere);
    drop(daemon);
}

fn stored(case: &Case, first: &[(&str, &str)]) {
    let Some(mut stage) = Stage::set(case) else {
        return;
    };
    let elsewhere = stage.elsewhere.as_ref();
    let host = &*stage.lab.host(0);
    let record = case.record();
    let path = case.write(host, TABLE);
    let all = left(case, &record, host, elsewhere, first);
    let kept: Vec<String> = all
        .iter()
        .map(|one| format!("{}={}={}", one.label, one.name, one.queues))
        .collect();
    let states = || -> Value {
        let all = placed(case, host, elsewhere);
        // A TAP has a carrier until its daemon clears it.
        all.map(|(name, station)| {
            let carrier = record["interfaces"][name]["carrier"] == true;
            state(case, station, name, carrier)
        })
        .collect()
    };
    let mut earlier = Value::Null;
    let prepare = || {
        for (i, one) in all.iter().enumerate() {
            one.prepare(i);
        }
        std::thread::sleep(std::time::Duration::from_millis(300));
        earlier = states();
    };
    let options = ["--config", &path];
    let service = host.start_service_after(STORE, ibtapd(), &kept, prepare, &options);
    await_same("the interfaces", &earlier, states);
    await_record(case, &record, host, elsewhere);
    await_same("the labels", &record["labels after a restart"], || {
        labels(&service.events(""))
    });
}

/// Waits until the interfaces match their records.
fn await_record(case: &Case, record: &Value, host: &Host, elsewhere: Option<&Station>) {
    let mut expected = Map::new();
    for (name, _) in case.interfaces {
        expected.insert((*name).to_owned(), record["interfaces"][name].clone());
    }
    await_same("the daemon", &expected.into(), || {
        described(ibtap(), case, host, elsewhere)["interfaces"].clone()
    });
}

#[test]
fn in_datagram_mode() {
    check(&DATAGRAM, &[]);
}

#[test]
fn in_several_partitions() {
    check(&PARTITIONS, &[]);
}

#[test]
fn in_connected_mode() {
    check(&super::CONNECTED, &[]);
}

#[test]
fn with_an_ipv4_gid() {
    check(&IPV4, &[]);
}

#[test]
fn with_children() {
    check(&CHILDREN, &[]);
}

#[test]
fn in_a_configured_namespace() {
    check(&NETNS_CASE, &[]);
}

/// Only the store identifies a VNIC that was moved or renamed.
#[test]
fn moved_and_renamed_by_hand() {
    let first = [("storage0", "ib1")];
    let ipoib = Case {
        interfaces: &[("ib0", false), ("ib0.8001", true), ("storage0", true)],
        ..MOVED
    };
    persistent(&ipoib, &first);
    stored(&MOVED, &first);
}

#[test]
fn renamed_by_hand() {
    let first = [
        ("fast0", "ib0"),
        ("fast1", "ib0.8001"),
        ("storage0", "ib1"),
        ("lan0", "vnic0"),
    ];
    let ipoib = Case {
        interfaces: &[("fast0", false), ("fast1", false), ("storage0", false)],
        ..RENAMED
    };
    persistent(&ipoib, &first);
    stored(&RENAMED, &first);
}

#[test]
fn vnics_on_their_switches() {
    check(&VNICS, &[]);
}
