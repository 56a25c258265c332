//! Where the programs under test are.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use serde_json::Value;

/// `ibtapd`, which cargo has built for these tests.
pub fn ibtapd() -> &'static Path {
    Path::new(env!("CARGO_BIN_EXE_ibtapd"))
}

/// The folder with the programs of an older version, where `IBTAP_BEFORE` names one.
pub fn older() -> Option<PathBuf> {
    std::env::var_os("IBTAP_BEFORE").map(PathBuf::from)
}

/// `ibtap`.
pub fn ibtap() -> &'static Path {
    static IBTAP: OnceLock<PathBuf> = OnceLock::new();
    IBTAP.get_or_init(|| of_workspace("ibtap"))
}

/// `ibtap-fs`.
pub fn ibtap_fs() -> &'static Path {
    static IBTAP_FS: OnceLock<PathBuf> = OnceLock::new();
    IBTAP_FS.get_or_init(|| of_workspace("ibtap-fs"))
}

/// `ibtap-em`.
pub fn ibtap_em() -> &'static Path {
    static IBTAP_EM: OnceLock<PathBuf> = OnceLock::new();
    IBTAP_EM.get_or_init(|| of_workspace("ibtap-em"))
}

/// `ibtap-peer`.
pub fn ibtap_peer() -> &'static Path {
    static IBTAP_PEER: OnceLock<PathBuf> = OnceLock::new();
    IBTAP_PEER.get_or_init(|| of_workspace("ibtap-peer"))
}

/// A program of another package of the workspace: cargo does not build it for these tests, so they
/// ask for it, with the same profile and target directory, and for the whole workspace as scripts/test has
/// built it: its packages' features are united, alone each would be built again. A no-op where it is up to
/// date.
fn of_workspace(program: &str) -> PathBuf {
    let done = cargo("build", "dev")
        .args(["--quiet", "--workspace", "--bin", program])
        .status()
        .expect("cargo runs");
    assert!(done.success(), "cannot build {program}");
    folder().join(program)
}

/// Tests of `fabric` that want an RDMA device: the program of a target, `suite` or `verbs`.
#[allow(dead_code, reason = "only the tests in guests run them")]
pub fn fabric_tests(target: &str) -> &'static Path {
    static BUILT: OnceLock<HashMap<String, PathBuf>> = OnceLock::new();
    let built = BUILT.get_or_init(|| {
        // For the whole workspace, as scripts/test has built it: its packages' features are united.
        let done = cargo("test", "test")
            .args(["--workspace", "--test", "suite", "--test", "verbs"])
            .args(["--no-run", "--message-format", "json"])
            .stderr(Stdio::inherit())
            .output()
            .expect("cargo runs");
        assert!(done.status.success(), "cannot build the tests of fabric");
        let said = String::from_utf8_lossy(&done.stdout);
        let messages = said
            .lines()
            .map(|line| serde_json::from_str::<Value>(line).expect("cargo's messages are JSON"));
        let built = messages.filter_map(|m| {
            let target = m["target"]["name"].as_str()?.to_owned();
            Some((target, PathBuf::from(m["executable"].as_str()?)))
        });
        built.collect()
    });
    built.get(target).expect("cargo says where it is")
}

/// The folder of the programs, which is named after the profile.
fn folder() -> &'static Path {
    ibtapd().parent().expect("a program is in a folder")
}

/// A command of cargo's with the profile and the target directory of these tests, whose profile is
/// called `usual` where it is not another one on purpose.
fn cargo(verb: &str, usual: &str) -> Command {
    let target = folder()
        .parent()
        .expect("a profile's folder is in the target's");
    let profile = match folder().file_name().and_then(|name| name.to_str()) {
        Some("debug") | None => usual,
        Some(profile) => profile,
    };
    let mut command = Command::new(env!("CARGO"));
    command
        .args([verb, "--profile", profile, "--manifest-path"])
        .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("Cargo.toml"))
        .arg("--target-dir")
        .arg(target);
    command
}
