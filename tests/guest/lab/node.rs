//! Common interface of a host of this machine and a virtual machine.

use std::time::Duration;

use serde_json::Value;

use super::{Done, Running, SOON, eventually};

/// A node in which programs run, with addresses on the Ethernet and above it.
pub trait Node {
    /// Name in messages.
    fn name(&self) -> &str;

    /// Last part of its addresses.
    fn number(&self) -> usize;

    /// Runs a shell script with a time limit.
    fn run_for(&self, script: &str, limit: Duration) -> Done;

    /// Starts a shell script in the background.
    fn spawn(&self, script: &str) -> Running;

    /// A program of this project, as a shell word.
    fn program(&self, name: &str) -> String;

    /// Runs a shell script for a minute at most.
    fn run(&self, script: &str) -> Done {
        self.run_for(script, Duration::from_secs(60))
    }

    /// Runs a script that must succeed; returns its output.
    fn ok(&self, script: &str) -> String {
        let done = self.run(script);
        assert!(done.code == Some(0), "{}: {script}: {done:?}", self.name());
        done.out
    }

    /// The same for a program that prints JSON.
    fn json(&self, script: &str) -> Value {
        let text = self.ok(script);
        serde_json::from_str(&text).unwrap_or_else(|e| panic!("{script}: {e}: {text}"))
    }

    /// Its IPv4 address on the Ethernet.
    fn underlay_v4(&self) -> String {
        format!("10.8.0.{}", self.number())
    }

    /// Its IPv6 address on the Ethernet.
    fn underlay_v6(&self) -> String {
        format!("fd08::{}", self.number())
    }

    /// Its IPv4 address on `ib0`.
    fn v4(&self) -> String {
        format!("10.9.0.{}", self.number())
    }

    /// Its IPv6 address on `ib0`.
    fn v6(&self) -> String {
        format!("fd09::{}", self.number())
    }

    /// `ibtap` for the daemon that [`Node::start_daemon`] starts.
    fn ibtap(&self) -> String {
        format!("{} --socket {}", self.program("ibtap"), self.socket())
    }

    /// The daemon's socket.
    fn socket(&self) -> String;

    /// Starts a daemon, and waits until it answers.
    fn start_daemon(&self, options: &str) -> Running {
        let mut daemon = self.spawn(&format!(
            "rm -f {socket}; echo $BASHPID >{socket}.pid; exec {ibtapd} --socket {socket} {options}",
            socket = self.socket(),
            ibtapd = self.program("ibtapd"),
        ));
        // Each `ibtap` takes time from the daemon that starts.
        let ask = format!(
            "until [ -S {} ] || ((tries++ > 20)); do sleep 0.1; done; {} show",
            self.socket(),
            self.ibtap()
        );
        eventually(SOON, &format!("{}: the daemon", self.name()), || {
            assert!(daemon.is_running(), "it has ended: {}", daemon.output());
            (self.run(&ask).code == Some(0)).then_some(())
        });
        daemon
    }

    /// Kills that daemon.
    fn kill_daemon(&self) {
        self.ok(&format!("kill -KILL $(cat {}.pid)", self.socket()));
    }

    /// Gives an interface this node's addresses and brings it up.
    fn configure(&self, interface: &str) {
        self.ok(&format!(
            "set -e
            ip addr add {}/24 dev {interface}
            ip addr add {}/64 dev {interface} nodad
            ip link set {interface} up",
            self.v4(),
            self.v6()
        ));
    }

    /// Runs `ibtap --json`, which must succeed and print an array; returns its objects.
    fn ask(&self, words: &str) -> Vec<Value> {
        match self.json(&format!("{} --json {words}", self.ibtap())) {
            Value::Array(objects) => objects,
            other => panic!("ibtap --json {words}: not an array: {other}"),
        }
    }

    /// An interface's MTU.
    fn mtu(&self, interface: &str) -> u64 {
        self.ok(&format!("cat /sys/class/net/{interface}/mtu"))
            .trim()
            .parse()
            .expect("a number")
    }

    /// Waits until an address answers.
    fn reaches(&self, address: &str) {
        eventually(
            SOON,
            &format!("{}: an answer from {address}", self.name()),
            || (self.run(&format!("ping -c 1 -W 2 {address}")).code == Some(0)).then_some(()),
        );
    }
}
