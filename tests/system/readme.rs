//! The commands that the README tells an administrator to type, typed as they stand there.

use std::path::Path;
use std::process::Command;

use crate::lab::{Background, Done, Host, Lab, SOON, eventually, ibtap};

const SECTION: &str = "## Bridges, virtual machines and containers";

/// The contents of the section's `sh` blocks, in their order.
fn blocks() -> Vec<String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("README.md");
    let readme = std::fs::read_to_string(path).expect("README.md");
    let (_, section) = readme.split_once(SECTION).expect("the section is there");
    let section = section.split("\n## ").next().expect("a first piece");
    section
        .split("```sh\n")
        .skip(1)
        .map(|rest| rest.split("```").next().expect("a first piece").to_owned())
        .collect()
}

/// A shell on a host that has a `/run` of its own, as two machines have: namespaces may have the same
/// name on both, and the control socket is where it is on a machine with one daemon.
struct Shell {
    alive: Background,
    number: usize,
}

impl Shell {
    fn open(host: &Host, number: usize) -> Shell {
        let script = host.file("shell");
        let lines = format!(
            "mount -t tmpfs tmpfs /run && mkdir /run/ibtap && \
             ln -s {} /run/ibtap/ibtapd.sock && exec sleep 600",
            host.socket().display()
        );
        std::fs::write(&script, lines).expect("a script");
        let alive = host.spawn(&format!("unshare --mount sh {}", script.display()));
        let shell = Shell { alive, number };
        eventually(SOON, "a shell with its own /run", || {
            (shell.run("test -L /run/ibtap/ibtapd.sock").code == Some(0)).then_some(())
        });
        shell
    }

    /// Runs a script as `sh -e` does, with `N` set to this host's number.
    fn run(&self, script: &str) -> Done {
        let folder = ibtap().parent().expect("a program is in a folder");
        let path = std::env::var("PATH").unwrap_or_default();
        let mut command = Command::new("timeout");
        command
            .args(["--kill-after=2", "60", "nsenter", "--mount", "--net"])
            .args(["--target", &self.alive.0.id().to_string()])
            .args(["sh", "-e", "-c", script])
            .env("N", self.number.to_string())
            .env("PATH", format!("{}:{path}", folder.display()));
        Done::of(&mut command)
    }

    fn ok(&self, script: &str) {
        let done = self.run(script);
        assert_eq!(done.code, Some(0), "{script}\n{}{}", done.out, done.err);
    }
}

/// Two running hosts, whose `ib0` has no addresses, with a shell each.
fn two_hosts() -> Option<(Lab, [Shell; 2])> {
    let mut lab = Lab::pair()?;
    let (a, b) = lab.two();
    for host in [&mut *a, &mut *b] {
        host.start(&[]);
        host.ok("ip link set ib0 up");
        host.await_carrier("ib0", true);
    }
    let shells = [Shell::open(a, 1), Shell::open(b, 2)];
    Some((lab, shells))
}

/// Both hosts do the first block, then each can do the second.
fn done_on_both(first: usize) {
    let Some((_lab, shells)) = two_hosts() else {
        return;
    };
    let blocks = blocks();
    assert_eq!(blocks.len(), 4, "a block to set up and one to look, twice");
    for shell in &shells {
        shell.ok(&blocks[first]);
    }
    for shell in &shells {
        shell.ok(&blocks[first + 1]);
    }
}

#[test]
fn the_readmes_bridge_works_as_printed() {
    done_on_both(0);
}

#[test]
fn the_readmes_macvlan_works_as_printed() {
    done_on_both(2);
}
