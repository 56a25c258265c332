//! `docs/conformance.md` lists the tests of each statement. This test checks the list: every listed test
//! exists, and every test that is named after a statement is listed there.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// The tables: the prefix of their statements' ids, and the number of the last statement.
const TABLES: [(&str, u32); 7] = [
    ("C", 125),
    ("VC", 30),
    ("VT", 20),
    ("VM", 26),
    ("VS", 19),
    ("VR", 15),
    ("VE", 12),
];

/// Crates in which names of tests may omit the V, because they contain nothing about IP over InfiniBand.
const VNIC_CRATES: [&str; 2] = ["vnic", "ibtap-em"];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).to_owned()
}

/// Calls `visit` with each Rust file below a folder and its contents, except build output.
fn for_each_source(folder: &Path, visit: &mut impl FnMut(&Path, &str)) {
    for entry in fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        let name = path.file_name().and_then(|n| n.to_str()).unwrap_or("");
        if path.is_dir() {
            if name != "target" && !name.starts_with('.') {
                for_each_source(&path, visit);
            }
        } else if name.ends_with(".rs") {
            visit(&path, &fs::read_to_string(&path).expect("text"));
        }
    }
}

/// The functions after a line `#[test]`, with further attributes between them.
fn tests_in(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut lines = text.lines().map(str::trim);
    while lines.by_ref().any(|line| line == "#[test]") {
        let function = lines.by_ref().find_map(|line| line.strip_prefix("fn "));
        let name = function.and_then(|f| f.split(['(', '<']).next());
        found.extend(name.map(str::to_owned));
    }
    found
}

/// All tests with the statements that they are named after. Tests of two crates may have the same name.
fn all_tests() -> BTreeMap<String, BTreeSet<String>> {
    let mut tests: BTreeMap<_, BTreeSet<_>> = BTreeMap::new();
    let vnic = VNIC_CRATES.map(|name| root().join(name));
    for_each_source(&root(), &mut |path, text| {
        let is_vnic = vnic.iter().any(|folder| path.starts_with(folder));
        for test in tests_in(text) {
            let ids = ids(&test, is_vnic);
            tests.entry(test).or_default().extend(ids);
        }
    });
    tests
}

/// The ids of a table's statements, as in documents.
fn ids_of(&(kind, last): &(&str, u32)) -> impl Iterator<Item = String> {
    (1..=last).map(move |number| format!("{kind}{number:02}"))
}

/// The last columns of the statements, by id.
fn statements() -> BTreeMap<String, String> {
    let known: BTreeSet<String> = TABLES.iter().flat_map(ids_of).collect();
    let text = fs::read_to_string(root().join("docs/conformance.md")).expect("the table");
    let mut rows = BTreeMap::new();
    for line in text.lines() {
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        let Some(&id) = cells.get(1).filter(|cell| is_id(cell)) else {
            continue;
        };
        assert!(known.contains(id), "{id} is of no table: {line}");
        assert_eq!(cells.len(), 6, "four columns: {line}");
        let twice = rows.insert(id.to_owned(), cells[4].to_owned());
        assert_eq!(twice, None, "{id} appears twice");
    }
    rows
}

/// Capital letters and digits.
fn is_id(cell: &str) -> bool {
    let number = cell.trim_start_matches(|c: char| c.is_ascii_uppercase());
    let digits = number.bytes().all(|b| b.is_ascii_digit());
    number.len() < cell.len() && !number.is_empty() && digits
}

/// The texts in backticks.
fn names(cell: &str) -> Vec<&str> {
    cell.split('`').skip(1).step_by(2).collect()
}

/// The statements of a test's name: `c01_c02_what` is about C01 and C02; `vc01_vt02_what` is about VC01 and
/// VT02, and so is `c01_t02_what` in a crate for VNICs.
fn ids(test: &str, is_vnic: bool) -> Vec<String> {
    test.split('_')
        .map_while(|part| id_of(part, is_vnic))
        .collect()
}

fn id_of(part: &str, is_vnic: bool) -> Option<String> {
    let digits = part.find(|c: char| c.is_ascii_digit())?;
    let (letters, number) = part.split_at(digits);
    let number: u32 = number.parse().ok()?;
    let letters = letters.to_uppercase();
    let kind = match letters.strip_prefix('V') {
        None if is_vnic => format!("V{letters}"),
        _ => letters,
    };
    let known = TABLES.iter().any(|&(name, _)| name == kind);
    known.then(|| format!("{kind}{number:02}"))
}

#[test]
fn every_statement_has_a_test_or_says_why_not() {
    let rows = statements();
    for id in TABLES.iter().flat_map(ids_of) {
        let cell = rows.get(&id).unwrap_or_else(|| panic!("no {id}"));
        let reason = cell
            .strip_prefix("not yet: ")
            .is_some_and(|why| !why.is_empty());
        assert!(reason == names(cell).is_empty(), "{id}: {cell}");
    }
}

#[test]
fn every_test_in_the_table_exists() {
    let tests = all_tests();
    assert!(tests.len() > 300, "only {} tests found", tests.len());
    for (id, cell) in statements() {
        for name in names(&cell) {
            assert!(tests.contains_key(name), "{id}: no test is called {name}");
        }
    }
}

#[test]
fn every_test_named_after_a_statement_is_in_the_table() {
    let rows = statements();
    for (test, ids) in all_tests() {
        for id in ids {
            let cell = rows.get(&id).unwrap_or_else(|| panic!("{test}: no {id}"));
            assert!(names(cell).contains(&test.as_str()), "{id} lacks {test}");
        }
    }
}

#[test]
fn names_say_what_they_are_about() {
    assert_eq!(ids("c01_c02_encapsulation", false), ["C01", "C02"]);
    assert_eq!(ids("c124_the_end", false), ["C124"]);
    assert_eq!(ids("vc05_vt20_what", false), ["VC05", "VT20"]);
    assert_eq!(ids("c05_t20_what", true), ["VC05", "VT20"]);
    assert_eq!(ids("vr02_what", true), ["VR02"]);
    let none = [
        "columns_count_characters",
        "t33_t34_qkeys",
        "e2e_ping",
        "v6_works",
    ];
    for name in none {
        assert_eq!(ids(name, false), [""; 0], "{name}");
    }
    let text = "#[test]\n#[ignore]\nfn one() {}\nfn two() {}\n#[test]\nfn three<T>() {}";
    assert_eq!(tests_in(text), ["one", "three"]);
}
