//! Dependencies between rooms: the normal dependencies of each Cargo.toml against [`ROOMS`], the table of
//! `docs/architecture.md`.

use std::collections::BTreeMap;

use crate::{Breach, Tree};

/// Each room with the rooms that it may use. A room only uses rooms above it, so there is no cycle.
pub const ROOMS: &[(&str, &[&str])] = &[
    ("edges", &[]),
    ("proto", &[]),
    ("sandbox", &[]),
    ("rtnl", &["proto"]),
    ("control", &["proto"]),
    ("netdev", &["proto", "rtnl"]),
    ("fabric", &["proto", "rtnl"]),
    ("ipoib", &["proto"]),
    ("vnic", &["proto"]),
    // For tests only: no room has it as a normal dependency.
    ("kit", &[]),
    (
        "ibtap",
        &[
            "proto", "sandbox", "rtnl", "control", "netdev", "fabric", "ipoib", "vnic",
        ],
    ),
    ("ibtap-em", &["proto", "control", "vnic"]),
    ("ibtap-fs", &["proto", "control"]),
    ("decode", &["proto", "fabric", "ipoib", "vnic"]),
    (
        "tools",
        &[
            "proto", "rtnl", "control", "netdev", "fabric", "ipoib", "vnic", "ibtap-em", "decode",
        ],
    ),
    (
        "ibtap-fuzz",
        &[
            "proto", "rtnl", "control", "netdev", "fabric", "ipoib", "vnic", "decode",
        ],
    ),
    ("ibtap-libfuzzer", &["ibtap-fuzz"]),
];

/// Violations of the table.
pub fn breaches(tree: &Tree) -> Vec<Breach> {
    let manifests = tree.iter().filter(|(path, _)| path.ends_with("Cargo.toml"));
    let rooms: BTreeMap<String, (&String, Vec<String>)> = manifests
        .map(|(path, text)| (name(text), (path, dependencies(text))))
        .collect();
    let mut found = Vec::new();
    for (room, (path, used)) in &rooms {
        let allowed = ROOMS.iter().find(|(name, _)| name == room);
        let Some((_, allowed)) = allowed else {
            found.push(Breach {
                key: format!("room {room}"),
                number: None,
                slack: 0,
                sentence: format!(
                    "{path}: the room {room} is not in the table of tests/edges/src/rooms.rs."
                ),
            });
            continue;
        };
        for other in used.iter().filter(|name| rooms.contains_key(*name)) {
            if !allowed.contains(&other.as_str()) {
                let edge = format!("room {room} -> {other}");
                let may = match allowed {
                    [] => "no other room".to_owned(),
                    allowed => allowed.join(", "),
                };
                found.push(Breach {
                    sentence: format!("{path}: {room} uses {other}, and may use {may}. [{edge}]"),
                    key: edge,
                    number: None,
                    slack: 0,
                });
            }
        }
    }
    found
}

fn name(manifest: &str) -> String {
    let mut lines = manifest
        .lines()
        .skip_while(|line| line.trim() != "[package]");
    let name = lines.find_map(|line| line.strip_prefix("name = "));
    name.unwrap_or("no package")
        .trim()
        .trim_matches('"')
        .to_owned()
}

/// The names under `[dependencies]` and `[build-dependencies]`, also of targets.
fn dependencies(manifest: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut inside = false;
    for line in manifest.lines().map(str::trim) {
        if let Some(section) = line.strip_prefix('[') {
            let section = section.trim_end_matches(']');
            let section = match section.rsplit_once("dependencies.") {
                Some((before, one)) if !before.ends_with("dev-") && before != "workspace." => {
                    found.push(one.to_owned());
                    before
                }
                _ => section,
            };
            inside = section.ends_with("dependencies")
                && !section.ends_with("dev-dependencies")
                && !section.starts_with("workspace");
        } else if inside && !line.starts_with('#') {
            let end = line.find(['.', ' ', '=']).unwrap_or(0);
            found.extend((end > 0).then(|| line[..end].trim_matches('"').to_owned()));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree(manifests: &[&str]) -> Tree {
        let named = manifests.iter().enumerate();
        named
            .map(|(i, text)| (format!("{i}/Cargo.toml"), (*text).to_owned()))
            .collect()
    }

    const PROTO: &str = "[package]\nname = \"proto\"\n";

    #[test]
    fn the_table_has_no_cycle() {
        for (i, (room, used)) in ROOMS.iter().enumerate() {
            let before: Vec<&str> = ROOMS[..i].iter().map(|(name, _)| *name).collect();
            assert!(used.iter().all(|name| before.contains(name)), "{room}");
            assert!(!used.contains(&"kit"), "{room}");
        }
    }

    /// Rows with "all" and rows of folders that are no crate are for readers only.
    #[test]
    fn the_table_is_that_of_the_architecture() {
        let page = include_str!("../../../docs/architecture.md");
        let (_, table) = page.split_once("| room | contents | uses |\n").unwrap();
        let rows = table.lines().take_while(|line| line.starts_with('|'));
        let mut compared = 0;
        for row in rows {
            let cells: Vec<&str> = row.split(" | ").collect();
            if cells[2].contains("all ") {
                continue;
            }
            let named = |cell: &'static str| cell.split('`').skip(1).step_by(2);
            let room = named(cells[0]).next().unwrap_or("-");
            let room = room.trim_end_matches('/').rsplit('/').next().unwrap();
            let Some((_, used)) = ROOMS.iter().find(|(name, _)| *name == room) else {
                continue;
            };
            assert!(named(cells[2]).eq(used.iter().copied()), "{row}: {used:?}");
            compared += 1;
        }
        assert!(compared > 10, "{compared} rows");
    }

    #[test]
    fn what_the_table_has_not_is_found() {
        let fabric =
            "[package]\nname = \"fabric\"\n[dependencies]\nproto.workspace = true\nlog = \"1\"\n";
        assert_eq!(breaches(&tree(&[PROTO, fabric])), []);
        let vnic =
            "[package]\nname = \"vnic\"\n[dependencies]\nfabric.workspace = true\n# ipoib = 1\n
            [dev-dependencies]\nproto.workspace = true\n";
        let found = breaches(&tree(&[PROTO, fabric, vnic]));
        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!(found[0].key, "room vnic -> fabric");
        assert!(found[0].sentence.contains("2/Cargo.toml: vnic uses fabric"));
        for text in [
            "[target.'cfg(unix)'.dependencies]\nfabric = { path = \"../fabric\" }\n",
            "[dependencies.fabric]\npath = \"../fabric\"\n",
            "[build-dependencies]\nfabric.workspace = true\n",
        ] {
            let vnic = format!("[package]\nname = \"vnic\"\n{text}");
            let keys = breaches(&tree(&[fabric, &vnic]));
            assert_eq!(keys.len(), 1, "{text}");
        }
        let dev = "[package]\nname = \"vnic\"\n[dev-dependencies.fabric]\npath = \"../fabric\"\n";
        assert_eq!(breaches(&tree(&[fabric, dev])), []);
    }

    #[test]
    fn a_room_that_is_not_in_the_table_is_found() {
        let found = breaches(&tree(&["[package]\nname = \"attic\"\n"]));
        assert_eq!(found[0].key, "room attic");
    }
}
