//! `docs/conformance.md` names the tests that show each statement. It must not rot: every test that
//! it names exists, and every test that is named after a statement is where the statement is.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// The last statement.
const STATEMENTS: u32 = 124;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).to_owned()
}

/// Calls `visit` with each Rust file below a folder, build output left out.
fn for_each_source(folder: &Path, visit: &mut impl FnMut(&str)) {
    for entry in fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        let name = path.file_name().and_then(|n| n.to_str()).unwrap_or("");
        if path.is_dir() {
            if name != "target" && !name.starts_with('.') {
                for_each_source(&path, visit);
            }
        } else if name.ends_with(".rs") {
            visit(&fs::read_to_string(&path).expect("text"));
        }
    }
}

/// The functions that follow a line `#[test]`, further attributes between them left out.
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

fn all_tests() -> BTreeSet<String> {
    let mut tests = BTreeSet::new();
    for_each_source(&root(), &mut |text| tests.extend(tests_in(text)));
    tests
}

/// The statements' last columns by their numbers.
fn statements() -> BTreeMap<u32, String> {
    let text = fs::read_to_string(root().join("docs/conformance.md")).expect("the table");
    let mut rows = BTreeMap::new();
    for line in text.lines() {
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        let Some(id) = cells.get(1).and_then(|cell| cell.strip_prefix('C')) else {
            continue;
        };
        assert_eq!(cells.len(), 6, "four columns: {line}");
        let id = id.parse().unwrap_or_else(|_| panic!("a number: {line}"));
        let twice = rows.insert(id, cells[4].to_owned());
        assert_eq!(twice, None, "C{id:02} stands twice");
    }
    rows
}

/// What stands between backticks.
fn names(cell: &str) -> Vec<&str> {
    cell.split('`').skip(1).step_by(2).collect()
}

/// The statements that a test is named after: `c01_c02_what` is about 1 and 2.
fn numbers(test: &str) -> Vec<u32> {
    test.split('_')
        .map_while(|part| part.strip_prefix('c')?.parse().ok())
        .collect()
}

#[test]
fn every_statement_has_a_test_or_says_why_not() {
    let rows = statements();
    let ids: Vec<u32> = rows.keys().copied().collect();
    assert_eq!(ids, (1..=STATEMENTS).collect::<Vec<_>>());
    for (id, cell) in &rows {
        let reason = cell
            .strip_prefix("not yet: ")
            .is_some_and(|why| !why.is_empty());
        assert!(reason == names(cell).is_empty(), "C{id:02}: {cell}");
    }
}

#[test]
fn every_test_in_the_table_exists() {
    let tests = all_tests();
    assert!(tests.len() > 300, "only {} tests found", tests.len());
    for (id, cell) in statements() {
        for name in names(&cell) {
            assert!(tests.contains(name), "C{id:02}: no test is called {name}");
        }
    }
}

#[test]
fn every_test_named_after_a_statement_is_in_the_table() {
    let rows = statements();
    for test in all_tests() {
        for id in numbers(&test) {
            let cell = rows
                .get(&id)
                .unwrap_or_else(|| panic!("{test}: no C{id:02}"));
            assert!(
                names(cell).contains(&test.as_str()),
                "C{id:02} lacks {test}"
            );
        }
    }
}

#[test]
fn names_say_what_they_are_about() {
    assert_eq!(numbers("c01_c02_encapsulation"), [1, 2]);
    assert_eq!(numbers("c124_the_end"), [124]);
    assert_eq!(numbers("columns_count_characters"), []);
    let text = "#[test]\n#[ignore]\nfn one() {}\nfn two() {}\n#[test]\nfn three<T>() {}";
    assert_eq!(tests_in(text), ["one", "three"]);
}
