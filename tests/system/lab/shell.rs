//! A shell on a host, as on a machine of its own.

use std::process::Command;

use super::{Background, Done, Host, SOON, eventually, programs};

/// A shell that shares no files, processes and control groups with other hosts: both of two hosts may have
/// namespaces or containers with the same name, and the control socket has its default path. `/etc` is a copy,
/// `/run` and `/var/lib` are empty. All processes end with the shell.
pub struct Shell {
    alive: Option<Background>,
    number: usize,
    group: String,
}

impl Shell {
    /// Opens a shell; `N` in its scripts is `number`.
    pub fn open(host: &Host, number: usize) -> Shell {
        let group = host.namespace().name().to_owned();
        let script = host.file("shell");
        // "ip netns exec" has mounted another /sys, without the control groups. A control group with members of
        // its own cannot have limited groups below it, so the shell does not stay in its first one.
        let lines = format!(
            "set -e
             mount -t tmpfs tmpfs /run
             cp -a /etc /run/etc
             mount --bind /run/etc /etc
             mount -t tmpfs tmpfs /var/lib
             mkdir /run/ibtap /run/lock
             ln -s {socket} /run/ibtap/ibtapd.sock
             mount -t cgroup2 cgroup2 /sys/fs/cgroup
             mkdir /sys/fs/cgroup/{group}
             echo $$ >/sys/fs/cgroup/{group}/cgroup.procs
             exec unshare --cgroup sh -ec '
                 umount /sys/fs/cgroup
                 mount -t cgroup2 cgroup2 /sys/fs/cgroup
                 mkdir /sys/fs/cgroup/shell
                 echo $$ >/sys/fs/cgroup/shell/cgroup.procs
                 exec unshare --pid --fork --kill-child --mount-proc sleep 900'",
            socket = host.socket().display()
        );
        std::fs::write(&script, lines).expect("a script");
        let alive = host.spawn(&format!("unshare --mount sh {}", script.display()));
        let shell = Shell {
            alive: Some(alive),
            number,
            group,
        };
        // Before that, the files are those of the machine.
        eventually(SOON, "a shell with processes of its own", || {
            (shell.enter("cat /proc/1/comm").out == "sleep\n").then_some(())
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
        let folder = programs::ibtap()
            .parent()
            .expect("a program is in a folder");
        let path = std::env::var("PATH").unwrap_or_default();
        let process = self.alive.as_ref().expect("it is open").0.id();
        let mut command = Command::new("timeout");
        command
            .args([
                "--kill-after=2",
                "180",
                "nsenter",
                "--mount",
                "--net",
                "--cgroup",
            ])
            .arg(format!("--pid=/proc/{process}/ns/pid_for_children"))
            .args(["--target", &process.to_string()])
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
}

impl Drop for Shell {
    fn drop(&mut self) {
        self.alive = None;
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
