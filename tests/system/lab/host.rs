//! A host: a namespace with programs and at most one daemon.

use std::ffi::OsStr;
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use rustix::process::Signal;
use serde_json::Value;

use super::{Daemon, Done, Follow, SOON, Service, Station, eventually, programs};

/// A [`Station`] with a daemon.
pub struct Host {
    // Dropped first: the daemon must end before its namespace is removed.
    daemon: Option<Daemon>,
    station: Station,
    scratch: PathBuf,
    number: usize,
}

impl Deref for Host {
    type Target = Station;

    fn deref(&self) -> &Station {
        &self.station
    }
}

impl Host {
    pub(super) fn create(number: usize, scratch: &Path) -> Host {
        Host {
            daemon: None,
            station: Station::create(&format!("host {number}")),
            scratch: scratch.to_owned(),
            number,
        }
    }

    /// IPv4 address on `ib0`.
    pub fn v4(&self) -> String {
        format!("10.9.0.{}", self.number + 1)
    }

    /// IPv6 address on `ib0`.
    pub fn v6(&self) -> String {
        format!("fd09::{}", self.number + 1)
    }

    /// IPv4 address on the underlay.
    pub fn underlay_v4(&self) -> String {
        format!("10.8.0.{}", self.number + 1)
    }

    /// A path of this host, for a file of the test or the daemon.
    pub fn file(&self, name: &str) -> PathBuf {
        self.scratch.join(format!("{}-{name}", self.number))
    }

    /// Control socket.
    pub fn socket(&self) -> PathBuf {
        self.file("ibtapd.sock")
    }

    /// Brings `eth0` up with its IPv4 address and a link-local address that is not tentative.
    pub fn bring_up_underlay(&self) {
        self.ok(&format!("ip addr add {}/24 dev eth0", self.underlay_v4()));
        self.bring_up("eth0");
    }

    /// Runs the daemon with exactly these options, which must make it end by itself.
    pub fn daemon_run(&self, options: &[&str]) -> Done {
        Done::of(
            self.limited_command("")
                .arg(programs::ibtapd())
                .args(options),
        )
    }

    /// The same with this host's socket, for options that the daemon must refuse.
    pub fn refused(&self, options: &[&str]) -> Done {
        let socket = self.socket();
        let mut all = vec!["--socket", socket.to_str().expect("an ASCII path")];
        all.extend(options);
        let done = self.daemon_run(&all);
        assert_ne!(done.code, Some(0), "{options:?}: {done:?}");
        done
    }

    /// Starts the daemon for `ib0` on `eth0` with further options, and waits until it is ready.
    pub fn start(&mut self, options: &[&str]) -> &mut Daemon {
        let mut words = vec!["--underlay", "eth0"];
        words.extend(options);
        self.start_with(&words)
    }

    /// Starts the daemon with these options and this host's socket.
    pub fn start_with(&mut self, options: &[&str]) -> &mut Daemon {
        let daemon = Daemon::start(self, &self.socket(), options);
        self.daemon.insert(daemon)
    }

    /// Writes this host's configuration file; returns the path.
    pub fn write_config(&self, text: &str) -> String {
        let path = self.file("ibtapd.toml");
        std::fs::write(&path, text).expect("written");
        path.to_str().expect("an ASCII path").to_owned()
    }

    /// Starts the daemon with this configuration.
    pub fn start_config(&mut self, text: &str) -> &mut Daemon {
        let path = self.write_config(text);
        self.start_with(&["--config", &path])
    }

    /// Starts the daemon like the packaged unit: as an unprivileged user with one ambient capability.
    pub fn start_unprivileged(&mut self, options: &[&str]) -> &mut Daemon {
        let folder = self.scratch.display();
        let [program, tun] = ["unprivileged", "tun"].map(|name| self.file(name));
        // As udev's rules do, all users may open the device. The mount is in ip-netns's mount namespace.
        let script = format!(
            "set -e; chmod 1777 {folder}; chmod 666 $NOTIFY_SOCKET; cp {} {program}; \
             mknod -m 666 {tun} c 10 200; mount --bind {tun} /dev/net/tun; \
             exec setpriv --reuid 65534 --regid 65534 --clear-groups --bounding-set -all,+net_admin \
             --inh-caps -all,+net_admin --ambient-caps -all,+net_admin {program} --socket {} {}",
            programs::ibtapd().display(),
            self.socket().display(),
            options.join(" "),
            program = program.display(),
            tun = tun.display(),
        );
        let words = ["-c", &script].map(OsStr::new);
        let daemon = Daemon::start_program(self, "ibtapd", Path::new("/bin/sh"), &words);
        self.daemon.insert(daemon)
    }

    /// Starts another daemon on this host, with the socket `socket`.
    pub fn start_other(&self, socket: &str, options: &[&str]) -> Daemon {
        Daemon::start(self, &self.file(socket), options)
    }

    /// Starts the daemon with this host's socket, without waiting.
    pub fn start_unready(&self, options: &[&str]) -> Daemon {
        Daemon::start_until(self, &self.socket(), options, "")
    }

    /// Starts another daemon, and waits only until its log contains `words`.
    pub fn start_other_until(&self, socket: &str, options: &[&str], words: &str) -> Daemon {
        Daemon::start_until(self, &self.file(socket), options, words)
    }

    /// Starts the daemon for `ib0` on `eth0` under a service manager that keeps up to `store` of its
    /// descriptors, and waits until it is ready.
    pub fn start_service(&self, store: usize, options: &[&str]) -> Service {
        let mut words = vec!["--underlay", "eth0"];
        words.extend(options);
        self.start_service_with(store, &words)
    }

    /// The same with only these options.
    pub fn start_service_with(&self, store: usize, options: &[&str]) -> Service {
        Service::start(self, store, options)
    }

    /// The same with the daemon at that path. It finds descriptors in the store, `LABEL=INTERFACE=QUEUES`
    /// each, left by a former daemon. `prepare` runs when they are open, before the daemon starts.
    pub fn start_service_after(
        &self,
        store: usize,
        daemon: &Path,
        left: &[String],
        prepare: impl FnOnce(),
        options: &[&str],
    ) -> Service {
        Service::start_after(self, store, daemon, left, prepare, options)
    }

    /// The running daemon.
    pub fn daemon(&mut self) -> &mut Daemon {
        self.daemon.as_mut().expect("the daemon was started")
    }

    /// Ends the daemon with SIGTERM, and expects success.
    pub fn stop(&mut self) {
        let mut daemon = self.daemon.take().expect("the daemon was started");
        let status = daemon.end_by(Signal::TERM);
        assert!(status.success(), "ibtapd ended with {status}");
    }

    /// Kills the daemon.
    pub fn kill_daemon(&mut self) {
        let mut daemon = self.daemon.take().expect("the daemon was started");
        daemon.kill();
    }

    /// Gives an interface this host's addresses, brings it up and waits for its carrier.
    pub fn configure(&self, interface: &str) {
        self.configure_addresses(interface);
        self.await_carrier(interface, true);
    }

    /// The same without waiting, for an interface that is not in service yet.
    pub fn configure_addresses(&self, interface: &str) {
        self.ok(&format!("ip addr add {}/24 dev {interface}", self.v4()));
        self.ok(&format!(
            "ip addr add {}/64 dev {interface} nodad",
            self.v6()
        ));
        self.ok(&format!("ip link set {interface} up"));
    }

    /// Waits until another host's `ib0` answers over IPv4 and IPv6.
    pub fn reaches(&self, other: &Host) {
        for address in [other.v4(), other.v6()] {
            eventually(SOON, &format!("an answer from {address}"), || {
                self.pings(&address).then_some(())
            });
        }
    }

    /// Runs `ibtap` on this host's socket.
    pub fn ibtap(&self, words: &str) -> Done {
        let mut command = Command::new(programs::ibtap());
        command
            .arg("--socket")
            .arg(self.socket())
            .args(words.split_whitespace());
        Done::of(&mut command)
    }

    /// Starts an `ibtap` that keeps running.
    pub fn follow(&self, words: &str) -> Follow {
        Follow::start(self, words)
    }

    /// Runs `ibtap --json`, which must succeed and print an array; returns its objects.
    pub fn ask(&self, words: &str) -> Vec<Value> {
        let done = self.ibtap(&format!("--json {words}"));
        assert!(done.code == Some(0), "ibtap {words}: {done:?}");
        match serde_json::from_str(&done.out) {
            Ok(Value::Array(objects)) => objects,
            other => panic!("ibtap --json {words}: not an array: {other:?}"),
        }
    }

    /// The object of an interface in `ibtap show`.
    pub fn show(&self, interface: &str) -> Value {
        let mut objects = self.ask(&format!("show {interface}"));
        assert_eq!(objects.len(), 1, "{objects:?}");
        objects.remove(0)
    }

    /// The sum of all counters called `name` of an interface in `ibtap stats`: of the interface, the protocol
    /// and every worker. At least one must exist.
    pub fn counter(&self, interface: &str, name: &str) -> u64 {
        self.counters(interface, &[name])
    }

    /// The sum of the counters with these names; each must exist.
    pub fn counters(&self, interface: &str, names: &[&str]) -> u64 {
        fn collect(value: &Value, name: &str, found: &mut Vec<u64>) {
            match value {
                Value::Array(items) => items.iter().for_each(|item| collect(item, name, found)),
                Value::Object(members) => {
                    for (key, item) in members {
                        match item.as_u64() {
                            Some(n) if key == name => found.push(n),
                            _ => collect(item, name, found),
                        }
                    }
                }
                _ => {}
            }
        }
        let stats = Value::Array(self.ask(&format!("stats {interface}")));
        let sum_of = |name: &&str| -> u64 {
            let mut found = Vec::new();
            collect(&stats, name, &mut found);
            assert!(!found.is_empty(), "no counter {name} in {stats}");
            found.iter().sum()
        };
        names.iter().map(sum_of).sum()
    }

    /// The MGIDs of an interface's groups that `keep` accepts.
    pub fn groups(&self, interface: &str, keep: impl Fn(&Value) -> bool) -> Vec<String> {
        self.ask(&format!("mcg {interface}"))
            .iter()
            .filter(|group| keep(group))
            .map(|group| group["mgid"].as_str().expect("an MGID").to_owned())
            .collect()
    }

    /// Time limit for a daemon to be ready: it waits up to 10 s for a usable GID.
    pub const READY: Duration = Duration::from_secs(20);
}
