//! Tests that cannot run on this machine.
//!
//! `scripts/test` names a list of expected skips in `IBTAP_SKIPS_EXPECTED`: a skip that is not in the list fails
//! its test, so that no test stops running unnoticed. Without that variable, or if it is empty, a skipped test
//! passes.

use std::fmt::Display;
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::{env, fs, thread};

/// The variable with the path of the list.
const EXPECTED: &str = "IBTAP_SKIPS_EXPECTED";

/// Reports that the running test, or a part of it, is left out: `SKIPPED PROGRAM::TEST: WHY`.
///
/// # Panics
/// The list of expected skips does not have this one, or cannot be read.
pub fn skip(why: impl Display) {
    let skipped = format!("{}: {why}", test());
    // libtest captures what `eprintln` writes, and hides it if the test passes.
    let _ = writeln!(std::io::stderr(), "SKIPPED {skipped}");
    let Some(path) = env::var_os(EXPECTED).filter(|path| !path.is_empty()) else {
        return;
    };
    let list = fs::read_to_string(&path);
    let list = list.unwrap_or_else(|error| panic!("{EXPECTED}={}: {error}", path.display()));
    assert!(
        is_expected(&list, &skipped),
        "this skip is not in {}: {skipped}",
        path.display()
    );
}

/// Whether root runs the test. If not, the test is skipped.
///
/// # Panics
/// As [`skip`].
pub fn is_root() -> bool {
    let root = fs::metadata("/proc/self").is_ok_and(|own| own.uid() == 0);
    if !root {
        skip("it makes namespaces, which needs root");
    }
    root
}

/// Names a thread after the test, whose helper it is.
pub fn helper_thread() -> thread::Builder {
    let current = thread::current();
    let name = current.name().unwrap_or("unknown");
    thread::Builder::new().name(name.to_owned())
}

/// `PROGRAM::TEST`: cargo adds a hash to the program's name, and libtest names the thread after the test.
fn test() -> String {
    let program = env::current_exe().unwrap_or_default();
    let program = program.file_name().unwrap_or_default().to_string_lossy();
    let program = program.rsplit_once('-').map_or(&*program, |(name, _)| name);
    let current = thread::current();
    format!("{program}::{}", current.name().unwrap_or("unknown"))
}

/// Whether a line of the list is the beginning of this skip. `*` in a line stands for any characters.
fn is_expected(list: &str, skipped: &str) -> bool {
    let lines = list.lines().map(str::trim);
    let mut lines = lines.filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines.any(|line| begins(skipped, line))
}

fn begins(text: &str, pattern: &str) -> bool {
    let Some((first, more)) = pattern.split_once('*') else {
        return text.starts_with(pattern);
    };
    let Some(text) = text.strip_prefix(first) else {
        return false;
    };
    let mut starts = text.char_indices().map(|(at, _)| at).chain([text.len()]);
    starts.any(|at| begins(&text[at..], more))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_beginnings_with_stars() {
        let list =
            "# comment\n\nsystem::bond::*: this kernel has no bond\nunits::all: no systemd\n";
        for skipped in [
            "system::bond::one: this kernel has no bonding driver: Error",
            "units::all: no systemd-analyze",
        ] {
            assert!(is_expected(list, skipped), "{skipped}");
        }
        for skipped in [
            "system::bond::one: it makes namespaces, which needs root",
            "system::vlan::one: this kernel has no bond",
            "units::all_but_one: no systemd",
            "# comment",
            "",
        ] {
            assert!(!is_expected(list, skipped), "{skipped}");
        }
    }

    #[test]
    fn a_skip_has_the_name_of_program_and_test() {
        let expected = "kit::skip::tests::a_skip_has_the_name_of_program_and_test";
        // With one thread, libtest runs tests on the main thread.
        let name = test();
        assert!(name == expected || name == "kit::main", "{name}");
        let helper = helper_thread().spawn(test).expect("a thread");
        assert_eq!(helper.join().expect("no panic"), name);
    }
}
