//! Where the programs under test are.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// `ibtapd`, which cargo has built for these tests.
pub fn ibtapd() -> &'static Path {
    Path::new(env!("CARGO_BIN_EXE_ibtapd"))
}

/// `ibtap`.
pub fn ibtap() -> &'static Path {
    static IBTAP: OnceLock<PathBuf> = OnceLock::new();
    IBTAP.get_or_init(|| of_package("tools", "ibtap"))
}

/// `ibtap-fs`.
pub fn ibtap_fs() -> &'static Path {
    static IBTAP_FS: OnceLock<PathBuf> = OnceLock::new();
    IBTAP_FS.get_or_init(|| of_package("ibtap-fs", "ibtap-fs"))
}

/// `ibtap-peer`.
pub fn ibtap_peer() -> &'static Path {
    static IBTAP_PEER: OnceLock<PathBuf> = OnceLock::new();
    IBTAP_PEER.get_or_init(|| of_package("tools", "ibtap-peer"))
}

/// A program of another package of the workspace: cargo does not build it for these tests, so they
/// ask for it, with the same profile and target directory. A no-op where it is up to date.
fn of_package(package: &str, program: &str) -> PathBuf {
    let folder = ibtapd().parent().expect("a program is in a folder");
    let target = folder
        .parent()
        .expect("a profile's folder is in the target's");
    let profile = match folder.file_name().and_then(|name| name.to_str()) {
        Some("debug") | None => "dev",
        Some(profile) => profile,
    };
    let done = Command::new(env!("CARGO"))
        .args(["build", "--quiet", "--package", package, "--bin", program])
        .args(["--profile", profile, "--manifest-path"])
        .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("Cargo.toml"))
        .arg("--target-dir")
        .arg(target)
        .status()
        .expect("cargo runs");
    assert!(done.success(), "cannot build {program}");
    folder.join(program)
}
