//! Checks the repository's rules on its text, without a build:
//!
//! * dependencies between rooms (crates) ([`rooms`]),
//! * dependencies between modules of the daemon ([`modules`]): a module uses only lower rows of
//!   [`modules::ORDER`], so there is no cycle,
//! * the length of files, and the amount of code in methods of `Daemon` ([`sizes`]).
//!
//! `exceptions.txt` lists known violations, and only gets shorter ([`exceptions`]).

#![forbid(unsafe_code)]

pub mod exceptions;
pub mod modules;
pub mod rooms;
pub mod sizes;
pub mod words;

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::Path;

use exceptions::{Exceptions, Verdict};

/// The text files of a repository by path, `/` between folders.
pub type Tree = BTreeMap<String, String>;

/// A violation of a rule.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Breach {
    /// The exception that allows it, without a number.
    pub key: String,
    /// The counted number, for rules with a limit.
    pub number: Option<usize>,
    /// How far the number may be below the exception's before the exception must be lowered.
    pub slack: usize,
    /// The violation and its place, one sentence.
    pub sentence: String,
}

/// Checks a tree against all rules.
pub fn check(tree: &Tree, exceptions: &Exceptions) -> Verdict {
    let mut breaches = rooms::breaches(tree);
    breaches.extend(modules::breaches(tree, exceptions));
    breaches.extend(sizes::breaches(tree));
    exceptions.judge(&breaches)
}

/// Reads the files below `root` that have rules: Rust, Cargo.toml, scripts.
pub fn read(root: &Path) -> io::Result<Tree> {
    let mut tree = Tree::new();
    collect(root, "", &mut tree)?;
    Ok(tree)
}

fn collect(folder: &Path, path: &str, tree: &mut Tree) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let Ok(name) = entry.file_name().into_string() else {
            continue;
        };
        let path = format!("{path}{name}");
        let kind = entry.file_type()?;
        if kind.is_dir() {
            if name != "target" && name != "corpus" && (!name.starts_with('.') || name == ".ci") {
                collect(&entry.path(), &format!("{path}/"), tree)?;
            }
        } else if kind.is_file() && is_read(&path) {
            tree.insert(path, fs::read_to_string(entry.path())?);
        }
    }
    Ok(())
}

fn is_read(path: &str) -> bool {
    let script = path.starts_with("scripts/") || path.starts_with(".ci/");
    let ends = [".rs", ".py", ".sh", ".bash"];
    script || path.ends_with("Cargo.toml") || ends.iter().any(|end| path.ends_with(end))
}
