//! Dependencies between the modules of the daemon: the paths in `src` against [`ORDER`].
//!
//! A module without a place in the order (`module NAME PLACE` in the list) counts as part of PLACE. A module
//! may thus be moved or renamed on its way there without a change of the list.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use crate::exceptions::Exceptions;
use crate::words::{Word, end_of_group, is_at, shipped, test_modules};
use crate::{Breach, Tree};

/// The modules of the daemon from the bottom up. A module may use modules of lower rows only.
pub const ORDER: &[&[&str]] = &[
    &["control"],
    &["fdstore"],
    &["datapath"],
    &["port"],
    &["interface"],
    &["ip", "ethernet"],
    &["interfaces"],
    &["monitor"],
    &["reload", "status"],
    &["daemon"],
    &["run"],
];

/// The order in one line.
fn order() -> String {
    let rows: Vec<String> = ORDER.iter().map(|row| row.join(", ")).collect();
    rows.join(" < ")
}

fn row(place: &str) -> Option<usize> {
    ORDER.iter().position(|row| row.contains(&place))
}

/// One use of a module in a file of another module.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Use {
    from: String,
    to: String,
    path: String,
    line: usize,
}

/// Violations of the order by the daemon's modules.
pub fn breaches(tree: &Tree, exceptions: &Exceptions) -> Vec<Breach> {
    let files = files(tree);
    let modules: BTreeSet<&str> = files
        .keys()
        .filter_map(|module| module.first())
        .copied()
        .collect();
    let mut found = Vec::new();
    let mut places: BTreeMap<&str, &str> = BTreeMap::new();
    for &module in &modules {
        if row(module).is_some() {
            places.insert(module, module);
            continue;
        }
        let place = exceptions
            .place(module)
            .filter(|place| row(place).is_some());
        places.extend(place.map(|place| (module, place)));
        let order = order();
        let breach = Breach {
            key: format!("module {module}"),
            number: None,
            slack: 0,
            sentence: format!(
                "src: the module {module} has no place in the order {order}. [module {module} PLACE]"
            ),
        };
        match (place, exceptions.place(module)) {
            // The exception has an invalid place: no exception allows that.
            (None, Some(_)) => found.push(Breach {
                key: "no place".into(),
                ..breach
            }),
            _ => found.push(breach),
        }
    }
    let mut edges: BTreeMap<(&str, &str), Vec<Use>> = BTreeMap::new();
    let uses: Vec<Use> = files
        .iter()
        .flat_map(|(module, (path, text))| uses(module, path, text, &modules))
        .collect();
    for used in uses {
        let at = |module: &String| places.get(module.as_str()).copied();
        let (Some(from), Some(to)) = (at(&used.from), at(&used.to)) else {
            continue;
        };
        if from != to {
            edges.entry((from, to)).or_default().push(used);
        }
    }
    for (&(from, to), uses) in &edges {
        if row(to) < row(from) {
            continue;
        }
        let edge = format!("use {from} -> {to}");
        let direction = match row(to) == row(from) {
            true => "in the same row",
            false => "in a later row",
        };
        let shown: Vec<String> = uses
            .iter()
            .take(8)
            .map(|used| {
                let Use {
                    from,
                    to,
                    path,
                    line,
                } = used;
                format!("\n    {path}:{line}: {from} uses {to}")
            })
            .collect();
        let more = match uses.len().saturating_sub(shown.len()) {
            0 => String::new(),
            more => format!("\n    and {more} more"),
        };
        let cycle = cycle(&edges, from, to);
        let cycle = cycle.map_or(String::new(), |cycle| {
            format!(", which makes the cycle {cycle}")
        });
        found.push(Breach {
            sentence: format!(
                "src: {from} uses {to}, which is {direction}{cycle}. [{edge}]{}{more}",
                shown.concat()
            ),
            key: edge,
            number: None,
            slack: 0,
        });
    }
    found
}

/// The shortest way back from `to` to `from`, with the edge between them.
fn cycle(edges: &BTreeMap<(&str, &str), Vec<Use>>, from: &str, to: &str) -> Option<String> {
    let mut before: BTreeMap<&str, &str> = BTreeMap::new();
    let mut next = VecDeque::from([to]);
    while let Some(at) = next.pop_front() {
        if at == from {
            let mut way = vec![at];
            while way.last() != Some(&to) {
                way.extend(way.last().and_then(|at| before.get(at)).copied());
            }
            way.push(from);
            way.reverse();
            return Some(way.join(" -> "));
        }
        for &(_, reached) in edges.keys().filter(|(user, _)| *user == at) {
            if reached != to && !before.contains_key(reached) {
                before.insert(reached, at);
                next.push_back(reached);
            }
        }
    }
    None
}

/// The files of the daemon's library by module path, without tests.
fn files(tree: &Tree) -> BTreeMap<Vec<&str>, (&str, &str)> {
    let sources = tree.iter().filter_map(|(path, text)| {
        let module = path.strip_prefix("src/")?.strip_suffix(".rs")?;
        let module = module.strip_suffix("/mod").unwrap_or(module);
        let module: Vec<&str> = module.split('/').collect();
        let root = module == ["lib"] || module == ["main"] || module[0] == "bin";
        (!root).then_some((module, (path.as_str(), text.as_str())))
    });
    let mut sources: BTreeMap<Vec<&str>, (&str, &str)> = sources.collect();
    let tests: Vec<Vec<String>> = sources
        .iter()
        .flat_map(|(module, (_, text))| {
            let tests = test_modules(text).into_iter();
            tests.map(|test| {
                module
                    .iter()
                    .map(|name| (*name).to_owned())
                    .chain([test])
                    .collect()
            })
        })
        .collect();
    let lib = tree
        .get("src/lib.rs")
        .map_or(Vec::new(), |text| test_modules(text));
    sources.retain(|module, _| {
        let named = module.last().is_some_and(|name| name.ends_with("_tests"));
        let under = tests
            .iter()
            .any(|test| test.len() <= module.len() && test.iter().zip(module).all(|(a, b)| a == b));
        !named && !under && !lib.iter().any(|test| test == module[0])
    });
    sources
}

/// The uses of other modules in one file.
fn uses(module: &[&str], path: &str, text: &str, modules: &BTreeSet<&str>) -> Vec<Use> {
    let words = shipped(text);
    let mut found = Vec::new();
    // Inner modules of the file, with their ends.
    let mut inner: Vec<usize> = Vec::new();
    let mut at = 0;
    while at < words.len() {
        inner.retain(|end| at < *end);
        let word = words[at].text.as_str();
        if word == "mod" && words.get(at + 2).is_some_and(|word| word.text == "{") {
            inner.push(end_of_group(&words, at + 2));
            at += 3;
            continue;
        }
        let mut next = at;
        let mut up = 0;
        while is_at(&words, next, &["super", "::"]) {
            (next, up) = (next + 2, up + 1);
        }
        let root = match is_at(&words, at, &["crate", "::"]) {
            true => {
                next = at + 2;
                true
            }
            false => up > 0 && up == module.len() + inner.len(),
        };
        if root {
            for name in first_names(&words, next) {
                if modules.contains(name.text.as_str()) && name.text != module[0] {
                    found.push(Use {
                        from: module[0].to_owned(),
                        to: name.text.clone(),
                        path: path.to_owned(),
                        line: name.line,
                    });
                }
            }
        }
        at = next.max(at + 1);
    }
    found
}

/// The name at `at`, or the first name of each path in the braces there.
fn first_names(words: &[Word], at: usize) -> Vec<&Word> {
    if !is_at(words, at, &["{"]) {
        return words.get(at).into_iter().collect();
    }
    let end = end_of_group(words, at);
    let mut names = Vec::new();
    let mut i = at + 1;
    while i < end {
        let before = words[i - 1].text.as_str();
        if before == "," || i == at + 1 {
            names.push(&words[i]);
        }
        i = match words[i].text.as_str() {
            "{" => end_of_group(words, i),
            _ => i + 1,
        };
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree(files: &[(&str, &str)]) -> Tree {
        let files = files.iter();
        files
            .map(|(path, text)| ((*path).to_owned(), (*text).to_owned()))
            .collect()
    }

    fn keys(files: &[(&str, &str)], list: &str) -> Vec<String> {
        let found = breaches(&tree(files), &Exceptions::parse(list).unwrap());
        found.into_iter().map(|breach| breach.key).collect()
    }

    #[test]
    fn an_arrow_that_runs_down_is_allowed() {
        let daemon = "use crate::{datapath::Handle, port}; use crate::status::Status;";
        let files = [
            ("src/daemon.rs", daemon),
            (
                "src/datapath.rs",
                "// crate::daemon\nconst A: &str = \"crate::daemon\";",
            ),
            (
                "src/port.rs",
                "#[cfg(test)] mod tests { use crate::daemon::Daemon; }",
            ),
            (
                "src/status.rs",
                "use crate::datapath; #[cfg(test)] mod tests;",
            ),
            ("src/status/tests.rs", "use crate::daemon::Daemon;"),
            ("src/status/tests/more.rs", "use crate::daemon::Daemon;"),
            ("src/port/port_tests.rs", "use crate::daemon::Daemon;"),
        ];
        assert_eq!(keys(&files, ""), Vec::<String>::new());
    }

    #[test]
    fn an_arrow_that_runs_up_is_found_however_it_is_written() {
        for text in [
            "use crate::daemon::Daemon;",
            "use crate::{port, daemon::{self, Daemon}};",
            "fn a() { crate::daemon::b(); }",
            "use super::super::daemon;",
            "mod inner { use super::super::super::{port::A, daemon}; }",
            "pub(in crate::daemon) fn a() {}",
        ] {
            let files = [("src/datapath/lane.rs", text), ("src/daemon.rs", "")];
            assert_eq!(keys(&files, ""), ["use datapath -> daemon"], "{text}");
        }
        let files = [
            ("src/datapath.rs", "use super::daemon;"),
            ("src/daemon.rs", ""),
        ];
        assert_eq!(keys(&files, ""), ["use datapath -> daemon"]);
        let own = [
            ("src/datapath/lane.rs", "use super::daemon;"),
            ("src/daemon.rs", ""),
        ];
        assert_eq!(keys(&own, ""), Vec::<String>::new());
    }

    #[test]
    fn an_arrow_between_neighbours_is_found() {
        let files = [
            ("src/ip.rs", "use crate::ethernet;"),
            ("src/ethernet/mod.rs", ""),
        ];
        assert_eq!(keys(&files, ""), ["use ip -> ethernet"]);
    }

    #[test]
    fn the_cycle_is_shown() {
        let files = tree(&[
            ("src/daemon.rs", "use crate::monitor;"),
            ("src/monitor.rs", "use crate::port;"),
            ("src/port.rs", "fn a(_: &crate::daemon::Daemon) {}"),
        ]);
        let found = breaches(&files, &Exceptions::default());
        assert_eq!(found.len(), 1);
        let sentence = &found[0].sentence;
        assert!(
            sentence.contains("the cycle port -> daemon -> monitor -> port."),
            "{sentence}"
        );
        assert!(
            sentence.contains("src/port.rs:1: port uses daemon"),
            "{sentence}"
        );
    }

    #[test]
    fn a_module_without_a_place_has_that_of_the_list() {
        let files = [
            ("src/device.rs", "use crate::{interface, daemon, watch};"),
            ("src/interface.rs", "use crate::device;"),
            ("src/daemon.rs", "use crate::device;"),
            ("src/watch.rs", ""),
        ];
        assert_eq!(keys(&files, ""), ["module device", "module watch"]);
        let list = "module device interface\nmodule watch monitor\n";
        let edges = [
            "module device",
            "module watch",
            "use interface -> daemon",
            "use interface -> monitor",
        ];
        assert_eq!(keys(&files, list), edges);
        let nowhere = "module device attic\nmodule watch monitor\n";
        assert_eq!(keys(&files, nowhere), ["no place", "module watch"]);
    }
}
