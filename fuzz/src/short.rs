//! Short runs: the kept inputs of a target, and random changes of them.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};

use flate2::read::GzDecoder;
use proptest::prelude::*;
use proptest::sample::{Index, select};
use proptest::test_runner::{Config, TestError, TestRunner};

/// Changed inputs of each target.
const CHANGED: u32 = 10_000;

/// Of targets that take longer for an input: they create engines or ports, or read a capture with a buffer of 8 MB.
const CHANGED_SLOW: u32 = 2000;
const SLOW: &[&str] = &["decode_pcap", "engine_receive", "vnic_port"];

/// A random change of an input. Places are relative to the length of the input.
#[derive(Clone, Debug)]
enum Change {
    Flip(Index, u8),
    Overwrite(Index, Vec<u8>),
    Insert(Index, Vec<u8>),
    /// Removes at most this number of bytes.
    Remove(Index, usize),
    /// Continues with the rest of another input.
    Splice(Index, Vec<u8>, Index),
}

impl Change {
    fn apply(&self, input: &mut Vec<u8>) {
        let place = |index: &Index| index.index(input.len() + 1);
        match self {
            Change::Flip(at, mask) => {
                let at = place(at);
                if let Some(byte) = input.get_mut(at) {
                    *byte ^= mask;
                }
            }
            Change::Overwrite(at, bytes) => {
                let at = place(at);
                for (old, new) in input[at..].iter_mut().zip(bytes) {
                    *old = *new;
                }
            }
            Change::Insert(at, bytes) => {
                let at = place(at);
                input.splice(at..at, bytes.iter().copied());
            }
            Change::Remove(at, count) => {
                let at = place(at);
                let end = input.len().min(at + count);
                input.drain(at..end);
            }
            Change::Splice(at, other, from) => {
                let at = place(at);
                input.truncate(at);
                input.extend(&other[from.index(other.len() + 1)..]);
            }
        }
    }
}

/// Bytes with which decoders are likely to be wrong, or any bytes.
fn bytes() -> impl Strategy<Value = Vec<u8>> {
    let edges = vec![0, 1, 0x7f, 0x80, 0xfe, 0xff];
    prop_oneof![
        prop::collection::vec(select(edges), 1..8),
        prop::collection::vec(any::<u8>(), 1..64),
    ]
}

fn change(inputs: Vec<Vec<u8>>) -> impl Strategy<Value = Change> {
    let at = any::<Index>;
    prop_oneof![
        3 => (at(), 1..=u8::MAX).prop_map(|(at, mask)| Change::Flip(at, mask)),
        3 => (at(), bytes()).prop_map(|(at, bytes)| Change::Overwrite(at, bytes)),
        1 => (at(), bytes()).prop_map(|(at, bytes)| Change::Insert(at, bytes)),
        1 => (at(), 1usize..64).prop_map(|(at, count)| Change::Remove(at, count)),
        1 => (at(), select(inputs), at()).prop_map(|(at, other, from)| Change::Splice(at, other, from)),
    ]
}

/// Runs a target with its kept inputs and changed copies of them. A failure prints the input.
pub fn run(target: &str, run: fn(&[u8])) {
    let inputs = inputs(target);
    assert!(!inputs.is_empty(), "no input for {target}");
    for (name, input) in &inputs {
        let passed = std::panic::catch_unwind(|| run(input));
        assert!(passed.is_ok(), "{target}: {}", name.display());
    }
    let inputs: Vec<Vec<u8>> = inputs.into_iter().map(|(_, input)| input).collect();
    let changes = prop::collection::vec(change(inputs.clone()), 1..6);
    let changed = (select(inputs), changes).prop_map(|(mut input, changes)| {
        for change in &changes {
            change.apply(&mut input);
        }
        input
    });
    let cases = if SLOW.contains(&target) {
        CHANGED_SLOW
    } else {
        CHANGED
    };
    let done = TestRunner::new(Config::with_cases(cases)).run(&changed, |input| {
        run(&input);
        Ok(())
    });
    match done {
        Ok(()) => {}
        Err(TestError::Fail(reason, input)) => panic!("{target}: {reason}; input {input:02x?}"),
        Err(aborted) => panic!("{target}: {aborted}"),
    }
}

/// The inputs of `seeds` and `corpora`, with their names.
fn inputs(target: &str) -> Vec<(PathBuf, Vec<u8>)> {
    let mut inputs = Vec::new();
    for file in fs::read_dir(folder("seeds").join(target)).expect("seeds") {
        let path = file.expect("a seed").path();
        let input = fs::read(&path).expect("a seed");
        inputs.push((path, input));
    }
    let archive = folder("corpora").join(format!("{target}.tar.gz"));
    let archive = File::open(&archive).unwrap_or_else(|e| panic!("{}: {e}", archive.display()));
    let mut archive = tar::Archive::new(GzDecoder::new(archive));
    for entry in archive.entries().expect("an archive") {
        let mut entry = entry.expect("an entry");
        if entry.header().entry_type().is_file() {
            let mut input = Vec::new();
            entry.read_to_end(&mut input).expect("an input");
            inputs.push((entry.path().expect("a name").into_owned(), input));
        }
    }
    inputs
}

fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(name)
}

#[test]
fn every_file_is_a_target() {
    let files = fs::read_dir(folder("src/targets")).expect("a folder");
    let mut files: Vec<OsString> = files
        .map(|file| file.expect("a file").file_name())
        .collect();
    files.sort();
    let names = crate::TARGETS
        .iter()
        .map(|(name, _)| OsString::from(format!("{name}.rs")));
    assert_eq!(files, names.collect::<Vec<_>>());
}
