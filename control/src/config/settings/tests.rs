use std::collections::{BTreeMap, BTreeSet};

use clap::CommandFactory;

use super::*;
use crate::config::args::Args;

/// A setting without its functions.
struct Row {
    key: &'static str,
    when: &'static str,
}

fn rows<C, X>(settings: &[Setting<C, X>]) -> Vec<Row> {
    let when = |setting: &Setting<C, X>| match setting.when {
        When::Live(_) => "live",
        When::Anew => "anew",
        When::Restart => "restart",
    };
    let row = |setting| Row {
        key: Setting::<C, X>::key(setting),
        when: when(setting),
    };
    settings.iter().map(row).collect()
}

impl<C, X> Setting<C, X> {
    fn key(&self) -> &'static str {
        self.key
    }
}

/// Each table of settings: its name in the documents, its head in a file, its rows.
fn tables() -> [(&'static str, &'static str, Vec<Row>); 4] {
    [
        ("the daemon", "", rows(DAEMON)),
        ("a port", "[port.eth0]\n", rows(PORT)),
        ("an IPoIB interface", "[[ipoib]]\n", rows(IPOIB)),
        ("a VNIC", "[[vnic]]\n", rows(VNIC)),
    ]
}

/// The words in backticks.
fn quoted(text: &str) -> BTreeSet<&str> {
    text.split('`').skip(1).step_by(2).collect()
}

#[test]
fn the_table_has_the_keys_that_a_file_can_have() {
    // These keys at the top of a file are tables.
    let tables_of_file = BTreeSet::from(["port", "ipoib", "vnic"]);
    for (what, head, rows) in tables() {
        let text = format!("{head}nonesuch = 1\n");
        let error = Config::parse(&text, "t.toml").unwrap_err().to_string();
        let (_, expected) = error
            .split_once("expected one of ")
            .expect("a list of keys");
        let expected: BTreeSet<_> = quoted(expected)
            .difference(&tables_of_file)
            .copied()
            .collect();
        let known: BTreeSet<_> = rows.iter().map(|row| row.key).collect();
        assert_eq!(known, expected, "{what}");
        assert_eq!(known.len(), rows.len(), "{what}");
    }
}

/// Options that describe an interface have the names of keys of a file.
#[test]
fn an_option_has_the_name_of_its_key() {
    let keys: BTreeSet<_> = tables()
        .into_iter()
        .flat_map(|(_, _, rows)| rows)
        .map(|row| row.key.replace('_', "-"))
        .collect();
    // These options have no key: one port with other names, "down" for up = false, "no-sandbox" for
    // sandbox = false, an option for each VNIC and each child.
    let own = [
        "provider",
        "device",
        "port",
        "vnic",
        "down",
        "no-sandbox",
        "child",
        "config",
        "check-config",
    ];
    for option in Args::command().get_opts() {
        let name = option.get_long().expect("a long name").to_owned();
        assert!(own.contains(&&*name) || keys.contains(&name), "{name}");
    }
}

#[test]
fn the_example_and_the_handbook_have_every_key() {
    let example = include_str!("../../../../docs/ibtapd.example.toml");
    let handbook = include_str!("../../../../docs/restarts.md");
    let section = handbook
        .split("\n## ")
        .find(|section| section.starts_with("Changing the configuration"))
        .expect("a section about changes");
    for (what, _, rows) in tables() {
        let line = format!("| {what} |");
        let line = section.lines().find(|l| l.starts_with(&line)).expect(what);
        let cells: Vec<_> = line.split('|').skip(2).map(quoted).collect();
        let documented = ["live", "anew", "restart"].into_iter().zip(cells);
        let documented: BTreeMap<_, _> = documented.collect();
        for Row { key, when } in rows {
            assert!(example.contains(&format!("{key} = ")), "{key} is not shown");
            for (column, keys) in &documented {
                let is_there = keys.contains(key);
                assert_eq!(
                    is_there,
                    *column == when,
                    "{what}: {key} is {when}, in {column}"
                );
            }
        }
    }
}

#[test]
fn a_child_inherits_the_settings_of_the_table() {
    // No value is a default.
    let text = "[[ipoib]]\nname = \"ib0\"\nunderlay = \"eth0\"\nmode = \"connected\"\nmtu = 9000\n\
                up = false\npersist = true\nmss = 1400\ntrust_checksums = true\ndhcp = \"off\"\nclaims = \"off\"\nrefuse_requests = true\ninspect = \"warn\"\nneighbours = [{ ip = \"10.0.0.2\", gid = \"fe80::2\" }]\nreflect = true\nvlan_pkey = true\n\
                netns = \"blue\"\nconnections = 7\npkey = 0x8005\nqkey = 5\nqpn = \"random\"\n\
                queues = 5\nchildren = [1]\n";
    let config = Config::parse(text, "t.toml").expect("a valid file");
    let [parent, child] = &config.ipoib[..] else {
        panic!("{:?}", config.ipoib);
    };
    let plain = IpoibConfig::new("ib9", crate::config::PortName::Underlay("eth9".into()));
    for setting in IPOIB {
        let key = setting.key;
        // Not compared: settings that children cannot share, the MTU (it depends on the mode), and one of
        // the port's two keys.
        if ["name", "children", "mtu", "rdma"].contains(&key) {
            continue;
        }
        assert!((setting.differs)(&plain, parent), "{key} has its default");
        assert_eq!(
            (setting.differs)(parent, child),
            !setting.inherited,
            "{key}"
        );
    }
    assert_ne!(parent.mtu, child.mtu);
    assert_eq!(parent.port, child.port);
}
