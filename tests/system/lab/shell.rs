//! A shell on a host that looks like a machine of its own (`private_root.sh`), for the commands of pages.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::{Background, Done, Host, SOON, eventually, ibtap, ibtapd};

/// Dropping it ends all programs that it started.
pub struct Shell {
    machine: Background,
    number: usize,
}

impl Shell {
    /// A shell with its own `/run`, and `N` set to `number`.
    pub fn open(host: &Host, number: usize) -> Shell {
        Shell::with_packages(host, number, &[])
    }

    /// The same on a machine that also has its own `/etc`, `/usr` and `/var` with packages, which `scripts/test` has
    /// unpacked into these folders.
    pub fn with_packages(host: &Host, number: usize, folders: &[&str]) -> Shell {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/system/lab/private_root.sh");
        let layers: Vec<String> = folders
            .iter()
            .map(|folder| unpacked(folder).display().to_string())
            .collect();
        let words = format!(
            "unshare --mount --pid --fork --kill-child --mount-proc sh {} {} {}",
            script.display(),
            host.socket().display(),
            layers.join(" ")
        );
        let log = host.file("shell.log");
        let machine = host.spawn_into(&words, &log);
        let mut shell = Shell { machine, number };
        eventually(SOON, "the shell's machine", || {
            let ended = shell.machine.0.try_wait().expect("a child");
            let said = || std::fs::read_to_string(&log).unwrap_or_default();
            assert_eq!(ended, None, "{}", said());
            (shell.run("test -e /run/ready").code == Some(0)).then_some(())
        });
        shell
    }

    /// Runs a script with `sh -e` and `N` set to this host's number.
    pub fn run(&self, script: &str) -> Done {
        let folder = ibtap().parent().expect("a program is in a folder");
        let path = std::env::var("PATH").unwrap_or_default();
        let id = self.machine.0.id();
        let mut command = Command::new("timeout");
        command
            .args(["--kill-after=2", "60", "nsenter", "--mount", "--net"])
            // unshare has made this namespace for its child, not for itself.
            .arg(format!("--pid=/proc/{id}/ns/pid_for_children"))
            .args(["--target", &id.to_string()])
            .args(["sh", "-e", "-c", script])
            .env("N", self.number.to_string())
            .env("PATH", format!("{}:{path}", folder.display()));
        Done::of(&mut command)
    }

    /// Runs a script that must succeed; returns its output.
    pub fn ok(&self, script: &str) -> String {
        let done = self.run(script);
        assert_eq!(done.code, Some(0), "{script}\n{}{}", done.out, done.err);
        done.out
    }

    /// Starts a program that stays.
    pub fn start(&self, program: &str) {
        self.ok(&format!("{program} </dev/null >>/run/programs.log 2>&1 &"));
    }
}

impl Drop for Shell {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let log = self.run("tail -n 40 /run/programs.log").out;
            eprintln!("--- programs of the shell {}:\n{log}", self.number);
        }
    }
}

/// A folder of unpacked packages.
fn unpacked(folder: &str) -> PathBuf {
    let target = ibtapd().ancestors().nth(2);
    let path = target
        .expect("a target folder")
        .join("unpacked")
        .join(folder);
    assert!(
        path.join("complete").exists(),
        "{} is missing: run scripts/test once, which downloads packages",
        path.display()
    );
    path
}
