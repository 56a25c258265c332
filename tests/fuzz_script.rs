//! `scripts/fuzz` with programs that only pretend to build and to fuzz: its exit status, and what it keeps.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use tempfile::TempDir;

/// A copy of the scripts with one fuzz target.
struct Copy(TempDir);

impl Copy {
    /// `fuzzer` is the shell script in place of the fuzz target.
    fn new(fuzzer: &str) -> Copy {
        let copy = Copy(tempfile::tempdir().expect("a folder"));
        let source = Path::new(env!("CARGO_MANIFEST_DIR"));
        for folder in ["bin", "scripts", "tmp", "fuzz/src/targets", "fuzz/corpora"] {
            fs::create_dir_all(copy.path(folder)).expect("a folder");
        }
        for file in ["Cargo.toml", "scripts/fuzz", "scripts/lib.sh"] {
            fs::copy(source.join(file), copy.path(file)).expect("a copy");
        }
        fs::write(copy.path("fuzz/src/targets/mad.rs"), "").expect("a target");
        // setpriv starts the target.
        for (name, script) in [("cargo", ""), ("c++", ""), ("setpriv", fuzzer)] {
            let program = copy.path("bin").join(name);
            fs::write(&program, format!("#!/bin/sh\n{script}\n")).expect("a program");
            fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).expect("a program");
        }
        copy
    }

    fn path(&self, below: &str) -> PathBuf {
        self.0.path().join(below)
    }

    fn run(&self, options: &[&str]) -> Output {
        let path = std::env::var("PATH").expect("a PATH");
        let done = Command::new(self.path("scripts/fuzz"))
            .args(options)
            .args(["--runs", "1", "mad"])
            .env("PATH", format!("{}:{path}", self.path("bin").display()))
            .env("TMPDIR", self.path("tmp"))
            .env("CARGO_TARGET_DIR", self.path("target"))
            .output()
            .expect("bash is installed");
        let left = fs::read_dir(self.path("tmp")).expect("a folder").count();
        assert_eq!(left, 0, "{done:?}");
        done
    }
}

#[test]
fn the_status_is_that_of_the_targets() {
    for (fuzzer, status) in [("echo Done 1 runs in 0 s", 0), ("exit 1", 1)] {
        let done = Copy::new(fuzzer).run(&[]);
        assert_eq!(done.status.code(), Some(status), "{fuzzer}: {done:?}");
    }
}

#[test]
fn inputs_that_cannot_be_read_are_not_replaced() {
    let copy = Copy::new("echo Done 1 runs in 0 s");
    let archive = copy.path("fuzz/corpora/mad.tar.gz");
    let done = copy.run(&["--keep"]);
    assert_eq!(done.status.code(), Some(0), "{done:?}");
    let mut kept = fs::read(&archive).expect("an archive");
    kept.truncate(kept.len() / 2);
    fs::write(&archive, &kept).expect("half an archive");
    let totals = fs::read(copy.path("fuzz/corpora/totals.tsv")).expect("totals");
    let done = copy.run(&["--keep"]);
    assert_eq!(done.status.code(), Some(1), "{done:?}");
    let said = String::from_utf8_lossy(&done.stderr);
    assert!(
        said.contains("cannot unpack fuzz/corpora/mad.tar.gz"),
        "{said}"
    );
    assert_eq!(fs::read(&archive).expect("the archive"), kept);
    let after = fs::read(copy.path("fuzz/corpora/totals.tsv")).expect("totals");
    assert_eq!(after, totals);
}
