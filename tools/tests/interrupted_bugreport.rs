//! Ctrl-C during `ibtap bugreport`.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

fn await_that(what: &str, mut is_true: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(120);
    while !is_true() {
        assert!(Instant::now() < end, "{what}");
        thread::sleep(Duration::from_millis(10));
    }
}

/// A program of this name that the report runs, and that hangs.
fn hanging(folder: &Path, name: &str) {
    let program = folder.join(name);
    let pid = folder.join("pid");
    let script = format!(
        "#!/bin/sh\necho $$ >{0}.new; mv {0}.new {0}; sleep 1000\n",
        pid.display()
    );
    fs::write(&program, script).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
}

#[test]
fn an_interrupted_report_leaves_nothing() {
    // Of nohup(1), SIGHUP is ignored. The tests may run under nohup, too.
    let (by_default, ignored) = ("--default-signal=HUP", "--ignore-signal=HUP");
    for (signal, of_hang_up) in [
        (Signal::INT, by_default),
        (Signal::TERM, ignored),
        (Signal::HUP, by_default),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let archive = folder.path().join("report.tar.gz");
        hanging(folder.path(), "ibtapd");
        let path = std::env::var("PATH").unwrap();
        let report = Command::new("env")
            .arg(of_hang_up)
            .arg(env!("CARGO_BIN_EXE_ibtap"))
            .arg("--socket")
            .arg(folder.path().join("none"))
            .args(["bugreport", "--output"])
            .arg(&archive)
            .env("PATH", format!("{}:{path}", folder.path().display()))
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let file = folder.path().join("pid");
        await_that("no program runs", || file.exists());
        assert!(archive.exists());
        let status = fs::read_to_string(format!("/proc/{}/status", report.id())).unwrap();
        let mask = status
            .lines()
            .find_map(|l| l.strip_prefix("SigIgn:\t"))
            .unwrap();
        let mask = u64::from_str_radix(mask, 16).unwrap();
        assert_eq!(mask & 1 != 0, of_hang_up == ignored, "{status}");
        kill_process(Pid::from_child(&report), signal).unwrap();
        let done = report.wait_with_output().unwrap();
        assert_eq!(done.status.code(), Some(2), "{done:?}");
        let said = String::from_utf8_lossy(&done.stderr);
        assert!(said.contains("interrupted; there is no archive"), "{said}");
        assert!(!archive.exists());
        let pid = fs::read_to_string(file).unwrap();
        let stat = format!("/proc/{}/stat", pid.trim());
        // Killed: gone, or a zombie until its new parent looks.
        let is_alive = || fs::read_to_string(&stat).is_ok_and(|stat| !stat.contains(") Z "));
        await_that("the program is alive", || !is_alive());
    }
}
