//! Paths of the programs under test.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use serde_json::Value;

/// `ibtapd`, built by cargo for these tests.
pub fn ibtapd() -> &'static Path {
    static IBTAPD: OnceLock<PathBuf> = OnceLock::new();
    IBTAPD.get_or_init(|| copied("ibtapd").unwrap_or_else(|| env!("CARGO_BIN_EXE_ibtapd").into()))
}

/// A program in the folder of `IBTAP_PROGRAMS`, on a machine without cargo.
fn copied(program: &str) -> Option<PathBuf> {
    Some(Path::new(&std::env::var_os("IBTAP_PROGRAMS")?).join(program))
}

/// The folder of this project.
pub fn source() -> PathBuf {
    copied("source").unwrap_or_else(|| env!("CARGO_MANIFEST_DIR").into())
}

/// The folder with the programs of an older version, from `IBTAP_BEFORE`.
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

/// A program of another package of the workspace. cargo does not build it for these tests, so they do, with
/// the same profile and target directory. They build the whole workspace, like scripts/test: built alone,
/// each package would have other features and be built again. A no-op if everything is up to date.
fn of_workspace(program: &str) -> PathBuf {
    if let Some(copied) = copied(program) {
        return copied;
    }
    let done = cargo("build", "dev")
        .args(["--quiet", "--workspace", "--bin", program])
        .status()
        .expect("cargo runs");
    assert!(done.success(), "cannot build {program}");
    folder().join(program)
}

/// The program of a test target that also runs in virtual machines: `suite`, `verbs` or `system`.
#[allow(dead_code, reason = "only the tests in guests run them")]
pub fn tests(target: &str) -> &'static Path {
    static BUILT: OnceLock<HashMap<String, PathBuf>> = OnceLock::new();
    let built = BUILT.get_or_init(|| {
        // The whole workspace, like scripts/test: this unites the features of its packages.
        let done = cargo("test", "test")
            .arg("--workspace")
            .args(["suite", "verbs", "system"].map(|target| format!("--test={target}")))
            .args(["--no-run", "--message-format", "json"])
            .stderr(Stdio::inherit())
            .output()
            .expect("cargo runs");
        assert!(done.status.success(), "cannot build the tests");
        let output = String::from_utf8_lossy(&done.stdout);
        let messages = output
            .lines()
            .map(|line| serde_json::from_str::<Value>(line).expect("cargo's messages are JSON"));
        let built = messages.filter_map(|m| {
            let target = m["target"]["name"].as_str()?.to_owned();
            Some((target, PathBuf::from(m["executable"].as_str()?)))
        });
        built.collect()
    });
    built.get(target).expect("cargo reports its path")
}

/// The folder of the programs, named after the profile.
fn folder() -> &'static Path {
    ibtapd().parent().expect("a program is in a folder")
}

/// A cargo command with the profile and the target directory of these tests; `usual` is the default name of
/// the profile.
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
