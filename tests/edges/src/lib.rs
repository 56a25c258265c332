//! Holds the repository against its own rules, as text and without building it:
//!
//! * which room (crate) may use which ([`rooms`]),
//! * which module of the daemon may use which ([`modules`]): the order of [`modules::ORDER`], no arrow
//!   up it, so no cycle,
//! * how long a file may be, and how much code may be methods of `Daemon` ([`sizes`]).
//!
//! What does not keep a rule yet stands in `exceptions.txt`, which only gets shorter ([`exceptions`]).

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

/// One place where a rule is not kept.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Breach {
    /// The exception that allows it, without a number.
    pub key: String,
    /// What is counted, where the rule is about a number.
    pub number: Option<usize>,
    /// How far the number may be below the exception's before that has to be lowered.
    pub slack: usize,
    /// What is wrong and where, a sentence.
    pub sentence: String,
}

/// Holds a tree against all rules.
pub fn check(tree: &Tree, exceptions: &Exceptions) -> Verdict {
    let mut breaches = rooms::breaches(tree);
    breaches.extend(modules::breaches(tree, exceptions));
    breaches.extend(sizes::breaches(tree));
    exceptions.judge(&breaches)
}

/// Reads the files below `root` that the rules are about: Rust, Cargo.toml, scripts.
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
