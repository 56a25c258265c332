//! A shell on a host that looks like a machine of its own (`private_root.sh`), for the commands of pages.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::{Background, Done, Host, SOON, eventually, ibtap, ibtapd};

/// A shell that shares no files, processes and control groups with other hosts: both of two hosts may have
/// namespaces or containers with the same name, and the control socket has its default path. Dropping it ends
/// all programs that it started.
pub struct Shell {
    machine: Option<Background>,
    number: usize,
    group: String,
}

impl Shell {
    /// Opens a shell; `N` in its scripts is `number`.
    pub fn open(host: &Host, number: usize) -> Shell {
        Shell::with_packages(host, number, &[])
    }

    /// The same on a machine with packages, which `scripts/test` has unpacked into these folders.
    pub fn with_packages(host: &Host, number: usize, folders: &[&str]) -> Shell {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/system/lab/private_root.sh");
        let layers: Vec<String> = folders
            .iter()
            .map(|folder| unpacked(folder).display().to_string())
            .collect();
        let group = host.namespace().name().to_owned();
        let words = format!(
            "unshare --mount sh {} {} {group} {}",
            script.display(),
            host.socket().display(),
            layers.join(" ")
        );
        let log = host.file("shell.log");
        let machine = host.spawn_into(&words, &log);
        let mut shell = Shell {
            machine: Some(machine),
            number,
            group,
        };
        // Before that, the files are those of the machine.
        eventually(SOON, "the shell's machine", || {
            let machine = shell.machine.as_mut().expect("it is open");
            let ended = machine.0.try_wait().expect("a child");
            let said = || std::fs::read_to_string(&log).unwrap_or_default();
            assert_eq!(ended, None, "{}", said());
            (shell.enter("cat /proc/1/comm").out == "machine\n").then_some(())
        });
        shell
    }

    /// Runs a script with `sh -e` and `N` set to this host's number. Variables that the script exports are set
    /// in the next one.
    pub fn run(&self, script: &str) -> Done {
        self.enter(&format!(
            "[ ! -e /run/exported ] || . /run/exported\n{script}\nexport -p >/run/exported"
        ))
    }

    fn enter(&self, script: &str) -> Done {
        let folder = ibtap().parent().expect("a program is in a folder");
        let path = std::env::var("PATH").unwrap_or_default();
        let machine = self.machine.as_ref().expect("it is open").0.id();
        let mut command = Command::new("timeout");
        command
            .args(["--kill-after=2", "180", "nsenter"])
            .args(["--mount", "--net", "--cgroup"])
            // unshare has made this namespace for its child, not for itself.
            .arg(format!("--pid=/proc/{machine}/ns/pid_for_children"))
            .args(["--target", &machine.to_string()])
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
            let log = self.enter("tail -n 40 /run/programs.log").out;
            eprintln!("--- programs of the shell {}:\n{log}", self.number);
        }
        self.machine = None;
        // The kernel ends the other processes meanwhile.
        let script = format!(
            "mount -t cgroup2 cgroup2 /sys/fs/cgroup
             for i in $(seq 100); do
                 find /sys/fs/cgroup/{} -depth -type d -exec rmdir {{}} + 2>/dev/null && exit
                 sleep 0.1
             done
             exit 1",
            self.group
        );
        let done = Done::of(Command::new("unshare").args(["--mount", "sh", "-c", &script]));
        if done.code != Some(0) {
            // A panic while a test's panic unwinds would abort the whole run.
            eprintln!("cannot remove the control group {}: {done:?}", self.group);
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
