//! A run of `scripts/chaos`. Longer runs are for a person, see `docs/reliability.md`.

use std::path::Path;
use std::process::Command;

use crate::lab::{Done, Load, Presence, ibtapd};

#[test]
fn daemons_survive_faults_in_a_random_order() {
    if !kit::is_root() {
        return;
    }
    // Its hosts are no lab, but they disturb tests that run alone.
    let _presence = Presence::begin();
    let _load = Load::begin();
    let folder = ibtapd().parent().expect("a program is in a folder");
    let mut command = Command::new("timeout");
    command
        .args(["--kill-after=10", "900"])
        .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("scripts/chaos"))
        // How long a busy machine needs is not the daemons' affair.
        .args(["--seconds", "60", "--recovery", "120", "--bin"])
        .arg(folder)
        .stdin(std::process::Stdio::null());
    let Done { code, out, err } = Done::of(&mut command);
    let passed = code == Some(0) && out.contains("blocks of 64 KiB arrived whole");
    // The error is at the end, where it is found in a long log.
    assert!(passed, "{out}\nstatus {code:?}: {err}");
}
