//! Traces that a daemon leaves for the next one: aliases, labels in the descriptor store, and the identities
//! from which MACs and queue pair numbers are derived. `tests/data/takeover` has those of version 0.1 at
//! commit 0e7606d, one file for each configuration here. They must not change: a new daemon takes over an old
//! one's interfaces, unnoticed by peers.
//!
//! With `IBTAP_BEFORE=FOLDER`, the programs in that folder, of a version before `[[ipoib]]`, run first, and
//! today's programs take over from them. With `IBTAP_RECORD=FOLDER` as well, the traces are written to that
//! folder.

mod left;

use std::any::Any;
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::fs::FlockOperation;
use rustix::process::Signal;
use serde_json::{Map, Value, json};

use crate::lab::{Done, Em, Host, Lab, SOON, Station, eventually, ibtap, ibtapd, older};

/// The table of an IPoIB interface in the configuration file, today and in older versions.
const TABLE: &str = "ipoib";
const OLDER_TABLE: &str = "device";

/// The network namespace of the configurations with one: the record contains its name.
const NETNS: &str = "ibtap-recorded";

/// Maximum number of descriptors in the store.
const STORE: usize = 64;

/// Processes that must live for a configuration.
type Kept = Option<Box<dyn Any>>;

/// A configuration.
struct Case {
    /// Name of its record.
    name: &'static str,
    /// Last byte of the underlay's MAC, from which the port derives its GID: a daemon finds interfaces left
    /// by another daemon on a port with the same GID, in any namespace.
    mac: u8,
    /// Keys of the port.
    port: &'static str,
    /// IPoIB interfaces with further keys.
    ipoib: &'static [(&'static str, &'static str)],
    /// VNICs with further keys.
    vnics: &'static [(&'static str, &'static str)],
    /// Manual changes, once the daemon is ready.
    then: fn(&Host, Option<&Station>) -> Kept,
    /// The interfaces at the end, and whether each is in the other namespace.
    interfaces: &'static [(&'static str, bool)],
    /// Interfaces with a random MAC from the kernel.
    drawn: &'static [&'static str],
    /// Interfaces whose carrier changes at a restart: their P_Key enters the port's table after them.
    late: &'static [&'static str],
}

fn nothing(_: &Host, _: Option<&Station>) -> Kept {
    None
}

const CASE: Case = Case {
    name: "",
    mac: 0,
    port: "",
    ipoib: &[],
    vnics: &[],
    then: nothing,
    interfaces: &[],
    drawn: &[],
    late: &[],
};

impl Case {
    /// The configuration file.
    fn text(&self, table: &str) -> String {
        let mut text = format!("[port.eth0]\n{}\n", self.port);
        let ipoib = self.ipoib.iter().map(|interface| (table, interface));
        let vnics = self.vnics.iter().map(|interface| ("vnic", interface));
        for (table, (name, keys)) in ipoib.chain(vnics) {
            text += &format!(
                "[[{table}]]\nname = {name:?}\nunderlay = \"eth0\"\npersist = true\n{keys}\n"
            );
            if !keys.contains("queues") {
                text += "queues = 1\n";
            }
        }
        text
    }

    fn write(&self, host: &Host, table: &str) -> String {
        let path = host.file("recorded.toml");
        fs::write(&path, self.text(table)).expect("written");
        path.to_str().expect("an ASCII path").to_owned()
    }

    /// Whether one of its interfaces is, or was, in [`NETNS`].
    fn has_netns(&self) -> bool {
        let keys = self.ipoib.iter().chain(self.vnics);
        self.interfaces.iter().any(|(_, there)| *there)
            || keys.into_iter().any(|(_, keys)| keys.contains(NETNS))
    }

    /// Its record.
    fn record(&self) -> Value {
        let path = records().join(format!("{}.json", self.name));
        let text = fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        serde_json::from_str(&text).expect("JSON")
    }
}

fn records() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/takeover")
}

/// A host for a case: its underlay has the recorded MAC.
struct Stage {
    lab: Lab,
    elsewhere: Option<Station>,
    /// Held while the namespace of the recorded name exists.
    _lock: Option<fs::File>,
}

impl Stage {
    fn set(case: &Case) -> Option<Stage> {
        let mut lab = Lab::pair()?;
        let lock = case.has_netns().then(|| {
            let path = std::env::temp_dir().join(format!("{NETNS}.lock"));
            let lock = fs::File::create(path).expect("a lock file");
            rustix::fs::flock(&lock, FlockOperation::LockExclusive).expect("a lock");
            lock
        });
        // A killed test may have left it.
        let elsewhere = lock.as_ref().map(|_| {
            let _ = Done::of(Command::new("ip").args(["netns", "del", NETNS]));
            Station::called(NETNS)
        });
        let host = lab.host(0);
        host.ok("ip link set eth0 down");
        let mac = case.mac;
        host.ok(&format!(
            "ip link set eth0 address 02:00:5e:10:00:{mac:02x}"
        ));
        host.ok("ip link set eth0 up");
        Some(Stage {
            lab,
            elsewhere,
            _lock: lock,
        })
    }
}

/// The interfaces of a case by name, each with its place.
fn placed<'a>(
    case: &'a Case,
    host: &'a Host,
    stage: Option<&'a Station>,
) -> impl Iterator<Item = (&'static str, &'a Station)> {
    case.interfaces.iter().map(move |(name, elsewhere)| {
        let station = stage.filter(|_| *elsewhere);
        (*name, station.unwrap_or(host))
    })
}

/// Runs `ibtap --json` of one of the versions; null while it fails.
fn ask(program: &Path, host: &Host, words: &str) -> Value {
    let mut command = Command::new(program);
    command.arg("--socket").arg(host.socket()).arg("--json");
    let done = Done::of(command.args(words.split(' ')));
    serde_json::from_str(&done.out).unwrap_or_default()
}

/// The daemon's report about its interfaces, and the aliases.
fn described(program: &Path, case: &Case, host: &Host, elsewhere: Option<&Station>) -> Value {
    let shown = ask(program, host, "show");
    let shown = shown.as_array().cloned().unwrap_or_default();
    let mut interfaces = Map::new();
    for (name, station) in placed(case, host, elsewhere) {
        let Some(one) = shown.iter().find(|one| one["name"] == *name) else {
            continue;
        };
        if !station.has_link(name) {
            continue;
        }
        let link = station.link(name);
        let mut flags = link["flags"].as_array().into_iter().flatten();
        interfaces.insert(
            name.to_owned(),
            json!({
                "alias": link["ifalias"],
                "carrier": flags.any(|flag| flag == "LOWER_UP"),
                "mac": (!case.drawn.contains(&name)).then_some(&link["address"]),
                "mtu": link["mtu"],
                "netns": one["netns"],
                "parent": one["parent"],
                "qpn": one["qpn"],
            }),
        );
    }
    let resources = ask(program, host, "res");
    let mut queue_pairs = BTreeSet::new();
    for port in resources.as_array().into_iter().flatten() {
        for pair in port["queue_pairs"].as_array().into_iter().flatten() {
            let interface = pair["interface"].as_str().unwrap_or("-");
            let pkey = pair["pkey"].as_u64().unwrap_or_default();
            let qpn = pair["qpn"].as_u64().unwrap_or_default();
            queue_pairs.insert(format!("{interface} {pkey:#06x} {qpn:#08x}"));
        }
    }
    json!({ "interfaces": interfaces, "queue_pairs": queue_pairs })
}

/// The descriptors in the store at the end, from the `stored` and `removed` lines.
fn labels(events: &[String]) -> Value {
    let mut kept = Map::new();
    for event in events {
        let mut words = event.split(' ');
        match (words.next(), words.next(), words.next()) {
            // The recorded daemons stored no sockets.
            (Some("stored"), Some(label), _) if label.starts_with("roce-") => {}
            (Some("stored"), Some(label), Some(count)) => {
                kept.insert(
                    label.to_owned(),
                    count.parse::<u64>().expect("a number").into(),
                );
            }
            (Some("removed"), Some(label), None) => {
                kept.remove(label);
            }
            _ => {}
        }
    }
    Value::Object(kept)
}

/// The kernel's state of an interface, which a restart must not change.
fn state(case: &Case, station: &Station, interface: &str, with_carrier: bool) -> Value {
    let link = station.link(interface);
    let addresses = station.ok(&format!("ip -o addr show dev {interface} scope global"));
    let carrier = with_carrier.then(|| {
        let changes = format!("cat /sys/class/net/{interface}/carrier_changes");
        let changes = (!case.late.contains(&interface)).then(|| station.ok(&changes));
        json!([link["flags"], changes])
    });
    json!({
        "ifindex": link["ifindex"],
        "address": link["address"],
        "ifalias": link["ifalias"],
        "mtu": link["mtu"],
        "addresses": addresses.lines().collect::<Vec<_>>(),
        "carrier": carrier,
    })
}

/// Adds addresses of separate networks to each interface.
fn number(case: &Case, host: &Host, elsewhere: Option<&Station>) {
    for (i, (name, station)) in placed(case, host, elsewhere).enumerate() {
        station.ok(&format!("ip addr add 10.60.{i}.1/24 dev {name}"));
        station.ok(&format!("ip addr add fd60:{i}::1/64 dev {name} nodad"));
    }
}

/// Waits until the traces are as expected; prints both if they never are.
fn await_same(what: &str, expected: &Value, found: impl Fn() -> Value) {
    let mut last = Value::Null;
    let end = std::time::Instant::now() + SOON;
    while std::time::Instant::now() < end {
        last = found();
        if last == *expected {
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(100));
    }
    panic!("{what}:\n{last:#}\nand not as recorded:\n{expected:#}");
}

/// Compares a daemon's traces with the record, and lets today's daemon take over.
fn check(case: &Case) {
    let Some(mut stage) = Stage::set(case) else {
        return;
    };
    let elsewhere = stage.elsewhere.as_ref();
    let host = &*stage.lab.host(0);
    let before = older();
    let (daemon, tool, table) = match &before {
        Some(folder) => (folder.join("ibtapd"), folder.join("ibtap"), OLDER_TABLE),
        None => (ibtapd().to_owned(), ibtap().to_owned(), TABLE),
    };
    // The manager starts the target of this link.
    let program = host.file("ibtapd");
    std::os::unix::fs::symlink(&daemon, &program).expect("a link");
    let path = case.write(host, table);
    let service = host.start_service_after(STORE, &program, &[], || {}, &["--config", &path]);
    let _kept = (case.then)(host, elsewhere);
    let found = |tool: &Path| {
        let mut found = described(tool, case, host, elsewhere);
        found["labels"] = labels(&service.events(""));
        found
    };
    if let (Some(_), Some(folder)) = (&before, std::env::var_os("IBTAP_RECORD")) {
        // All pending changes have arrived.
        let settle = || std::thread::sleep(std::time::Duration::from_secs(4));
        settle();
        let mut record = found(&tool);
        service.restart_by(Signal::TERM);
        settle();
        record["labels after a restart"] = found(&tool)["labels"].take();
        let text = format!("{record:#}\n");
        fs::create_dir_all(&folder).expect("a folder");
        fs::write(Path::new(&folder).join(format!("{}.json", case.name)), text).expect("written");
        return;
    }
    let mut record = case.record();
    let later = record["labels after a restart"].take();
    record
        .as_object_mut()
        .expect("an object")
        .remove("labels after a restart");
    await_same("before the restart", &record, || found(&tool));
    record["labels"] = later;
    number(case, host, elsewhere);
    let states = || -> Value {
        let all = placed(case, host, elsewhere);
        all.map(|(name, station)| state(case, station, name, true))
            .collect()
    };
    // The interface may still come up.
    std::thread::sleep(std::time::Duration::from_millis(300));
    let earlier = states();
    fs::remove_file(&program).expect("a link");
    std::os::unix::fs::symlink(ibtapd(), &program).expect("a link");
    case.write(host, TABLE);
    for signal in [Signal::TERM, Signal::KILL] {
        service.restart_by(signal);
        let what = format!("after {signal:?}");
        await_same(&what, &record, || found(ibtap()));
        await_same(&what, &earlier, states);
    }
}

/// Waits until the daemon serves an interface there.
fn await_served(host: &Host, interface: &str, elsewhere: Option<&Station>) {
    let netns = elsewhere.map(|station| station.namespace().name());
    eventually(SOON, &format!("{interface} to be served"), || {
        let shown = ask(ibtap(), host, "show");
        let shown = shown
            .as_array()?
            .iter()
            .find(|one| one["name"] == interface)?;
        (shown["netns"].as_str() == netns).then_some(())
    });
}

fn rename(station: &Station, from: &str, to: &str) {
    station.ok(&format!("ip link set {from} down"));
    station.ok(&format!("ip link set {from} name {to}"));
    station.ok(&format!("ip link set {to} up"));
}

fn carry(host: &Host, interface: &str, elsewhere: Option<&Station>) {
    host.ok(&format!("ip link set {interface} netns {NETNS}"));
    await_served(host, interface, elsewhere);
}

#[test]
fn one_interface_in_datagram_mode() {
    check(&DATAGRAM);
}

#[test]
fn several_partitions_and_a_chosen_queue_pair() {
    check(&PARTITIONS);
}

#[test]
fn connected_mode() {
    check(&CONNECTED);
}

#[test]
fn a_port_with_an_ipv4_gid() {
    check(&IPV4);
}

#[test]
fn children_of_the_file_and_children_made_by_hand() {
    check(&CHILDREN);
}

#[test]
fn tags_that_select_partitions() {
    check(&VLAN);
}

#[test]
fn interfaces_of_a_configured_namespace() {
    check(&NETNS_CASE);
}

#[test]
fn interfaces_moved_to_a_namespace_by_hand() {
    check(&MOVED);
}

#[test]
fn renamed_interfaces() {
    check(&RENAMED);
}

#[test]
fn vnics_with_and_without_a_switch() {
    check(&VNICS);
}

#[test]
fn vnics_that_a_manager_configures() {
    check(&MANAGED);
}

const DATAGRAM: Case = Case {
    name: "datagram",
    mac: 1,
    ipoib: &[("ib0", "queues = 2")],
    interfaces: &[("ib0", false)],
    ..CASE
};

const PARTITIONS: Case = Case {
    name: "partitions",
    mac: 2,
    ipoib: &[
        ("ib0", ""),
        ("ib1", ""),
        ("ib7", "pkey = 0x8007\nmtu = 1500"),
        ("ib9", "pkey = 0x0009"),
        ("ib11", "pkey = 0x800b\nqpn = 0x123456"),
    ],
    interfaces: &[
        ("ib0", false),
        ("ib1", false),
        ("ib7", false),
        ("ib9", false),
        ("ib11", false),
    ],
    ..CASE
};

const CONNECTED: Case = Case {
    name: "connected",
    mac: 3,
    ipoib: &[
        ("ib0", "mode = \"connected\""),
        ("ib1", "mode = \"connected\"\nmtu = 9000"),
    ],
    interfaces: &[("ib0", false), ("ib1", false)],
    ..CASE
};

const IPV4: Case = Case {
    name: "ipv4",
    mac: 4,
    port: "gid = \"ipv4\"\npeers = [\"10.8.0.2\"]",
    ipoib: &[("ib0", "")],
    vnics: &[("vnic0", "vesw = 7")],
    interfaces: &[("ib0", false), ("vnic0", false)],
    ..CASE
};

const CHILDREN: Case = Case {
    name: "children",
    mac: 5,
    ipoib: &[(
        "ib0",
        "children = [0x8001, { pkey = 0x8002, name = \"st0\", mode = \"connected\" }]",
    )],
    then: |host, _| {
        host.ok("ip tuntap add dev ib0.8003 mode tap");
        host.ok("ip tuntap add dev ib0.8004 mode tap multi_queue");
        for child in ["ib0.8003", "ib0.8004"] {
            host.ok(&format!("ip link set {child} up"));
            await_served(host, child, None);
        }
        for words in ["child add ib0 0x8005", "child add ib0 0x8006"] {
            assert_eq!(host.ibtap(words).code, Some(0));
        }
        assert_eq!(host.ibtap("mode ib0.8003 connected").code, Some(0));
        None
    },
    interfaces: &[
        ("ib0", false),
        ("ib0.8001", false),
        ("st0", false),
        ("ib0.8003", false),
        ("ib0.8004", false),
        ("ib0.8005", false),
        ("ib0.8006", false),
    ],
    drawn: &["ib0.8003", "ib0.8004"],
    ..CASE
};

const VLAN: Case = Case {
    name: "vlan",
    mac: 6,
    ipoib: &[("ib0", "vlan_pkey = true")],
    then: |host, _| {
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/system/lab/vlan_link.py");
        let mut kept = Vec::new();
        for vid in [5, 6] {
            kept.push(host.spawn(&format!("python3 {script} ib0 v{vid} {vid}")));
            let link = format!("v{vid}");
            eventually(SOON, &link, || host.has_link(&link).then_some(()));
            host.ok(&format!("ip addr add 10.{vid}.0.1/24 dev {link}"));
            host.ok(&format!("ip link set {link} up"));
            kept.push(host.spawn(&format!("ping -i 0.2 10.{vid}.0.2")));
        }
        Some(Box::new(kept))
    },
    interfaces: &[("ib0", false)],
    ..CASE
};

const NETNS_CASE: Case = Case {
    name: "netns",
    mac: 7,
    ipoib: &[
        ("ib0", "netns = \"ibtap-recorded\"\nchildren = [0x8001]"),
        (
            "ib1",
            "pkey = 0x8003\nchildren = [0x8004, { pkey = 0x8002, name = \"st0\", netns = \"ibtap-recorded\" }]",
        ),
    ],
    vnics: &[("vnic0", "vesw = 7\nnetns = \"ibtap-recorded\"")],
    interfaces: &[
        ("ib0", true),
        ("ib0.8001", true),
        ("ib1", false),
        ("ib1.8004", false),
        ("st0", true),
        ("vnic0", true),
    ],
    ..CASE
};

const MOVED: Case = Case {
    name: "moved",
    mac: 8,
    ipoib: &[("ib0", ""), ("ib1", "")],
    vnics: &[("vnic0", "vesw = 7")],
    then: |host, elsewhere| {
        host.ok("ip tuntap add dev ib0.8001 mode tap multi_queue");
        await_served(host, "ib0.8001", None);
        for interface in ["ib0.8001", "ib1", "vnic0"] {
            carry(host, interface, elsewhere);
        }
        let there = elsewhere.expect("a namespace");
        rename(there, "ib1", "storage0");
        await_served(host, "storage0", elsewhere);
        for interface in ["ib0.8001", "vnic0"] {
            there.ok(&format!("ip link set {interface} up"));
        }
        None
    },
    interfaces: &[
        ("ib0", false),
        ("ib0.8001", true),
        ("storage0", true),
        ("vnic0", true),
    ],
    drawn: &["ib0.8001"],
    ..CASE
};

const RENAMED: Case = Case {
    name: "renamed",
    mac: 9,
    ipoib: &[("ib0", "children = [0x8001]"), ("ib1", "")],
    vnics: &[("vnic0", "vesw = 7")],
    then: |host, _| {
        let names = [
            ("ib0", "fast0"),
            ("ib0.8001", "fast1"),
            ("ib1", "storage0"),
            ("vnic0", "lan0"),
        ];
        for (from, to) in names {
            rename(host, from, to);
            await_served(host, to, None);
        }
        None
    },
    interfaces: &[
        ("fast0", false),
        ("fast1", false),
        ("storage0", false),
        ("lan0", false),
    ],
    ..CASE
};

const VNICS: Case = Case {
    name: "vnics",
    mac: 10,
    ipoib: &[("ib0", "")],
    vnics: &[
        ("vnic0", "vesw = 7"),
        ("vnic1", "vesw = 7\nlid = 0x000105\nqueues = 2"),
        (
            "vnic2",
            "vesw = 8\npkey = 0x8008\nmac = \"02:00:00:00:08:01\"\nindex = 6",
        ),
        ("vnic3", ""),
    ],
    interfaces: &[
        ("ib0", false),
        ("vnic0", false),
        ("vnic1", false),
        ("vnic2", false),
        ("vnic3", false),
    ],
    drawn: &["vnic3"],
    late: &["vnic2"],
    ..CASE
};

const MANAGED: Case = Case {
    name: "managed",
    mac: 11,
    vnics: &[("vnic0", ""), ("vnic1", "")],
    then: |host, _| {
        let member = "[[vesw]]\nname = \"one\"\nid = 9\npkey = 0xffff\nmembers = [\"*:1:0\"]\n";
        let em = Em::start(host, "", member);
        host.await_carrier("vnic0", true);
        Some(Box::new(em))
    },
    interfaces: &[("vnic0", false), ("vnic1", false)],
    drawn: &["vnic1"],
    ..CASE
};
