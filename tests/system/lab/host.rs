//! A host: a namespace, programs run in it, and at most one daemon.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::process::Signal;
use serde_json::Value;

use super::{Daemon, Follow, Namespace, SOON, Service, eventually, programs};

/// What a program said and how it ended.
#[derive(Debug)]
pub struct Done {
    /// Its exit status; `None` when a signal ended it.
    pub code: Option<i32>,
    /// Its standard output.
    pub out: String,
    /// Its standard error.
    pub err: String,
}

impl Done {
    fn of(command: &mut Command) -> Done {
        let output = command.output().expect("the program is installed");
        Done {
            code: output.status.code(),
            out: String::from_utf8_lossy(&output.stdout).into_owned(),
            err: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }
}

/// A program that runs beside the test and is killed when this value goes.
pub struct Background(pub Child);

impl Drop for Background {
    fn drop(&mut self) {
        // Either may fail because it has ended by itself, which is as good.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// See the module.
pub struct Host {
    // Dropped first: a daemon must be gone before its namespace is.
    daemon: Option<Daemon>,
    namespace: Namespace,
    scratch: PathBuf,
    number: usize,
}

impl Host {
    pub(super) fn create(number: usize, scratch: &Path) -> Host {
        Host {
            daemon: None,
            namespace: Namespace::create(),
            scratch: scratch.to_owned(),
            number,
        }
    }

    /// Its namespace.
    pub fn namespace(&self) -> &Namespace {
        &self.namespace
    }

    /// Its IPv4 address on `ib0`.
    pub fn v4(&self) -> String {
        format!("10.9.0.{}", self.number + 1)
    }

    /// Its IPv6 address on `ib0`.
    pub fn v6(&self) -> String {
        format!("fd09::{}", self.number + 1)
    }

    /// Its IPv4 address on the underlay.
    pub fn underlay_v4(&self) -> String {
        format!("10.8.0.{}", self.number + 1)
    }

    /// A path of this host's own, for a file that the test or the daemon writes.
    pub fn file(&self, name: &str) -> PathBuf {
        self.scratch.join(format!("{}-{name}", self.number))
    }

    /// The control socket.
    pub fn socket(&self) -> PathBuf {
        self.file("ibtapd.sock")
    }

    /// Brings `eth0` up with its IPv4 address and a link-local address that is not tentative.
    pub fn bring_up_underlay(&self) {
        self.ok(&format!("ip addr add {}/24 dev eth0", self.underlay_v4()));
        self.bring_up("eth0");
    }

    /// Brings an interface up whose link-local address is not to be tentative.
    pub fn bring_up(&self, interface: &str) {
        self.ok(&format!(
            "sysctl -qw net.ipv6.conf.{interface}.accept_dad=0"
        ));
        self.ok(&format!("ip link set {interface} up"));
    }

    /// A command that runs in the namespace and does not outlive this test.
    fn command(&self, words: &str) -> Command {
        let mut command = Command::new("setpriv");
        command
            .args(["--pdeathsig", "KILL"])
            .args(self.enter(words));
        command
    }

    /// The same, ended after a minute at the latest.
    fn limited_command(&self, words: &str) -> Command {
        let mut command = Command::new("timeout");
        command
            .args(["--kill-after=2", "60"])
            .args(["setpriv", "--pdeathsig", "KILL"])
            .args(self.enter(words));
        command
    }

    fn enter<'a>(&'a self, words: &'a str) -> impl Iterator<Item = &'a str> {
        ["ip", "netns", "exec", self.namespace.name()]
            .into_iter()
            .chain(words.split_whitespace())
    }

    /// Runs a program; words are separated by spaces.
    pub fn run(&self, words: &str) -> Done {
        Done::of(&mut self.limited_command(words))
    }

    /// Runs a program that must succeed; gives back what it printed.
    pub fn ok(&self, words: &str) -> String {
        let done = self.run(words);
        assert!(
            done.code == Some(0),
            "host {}: {words}: status {:?}\n{}{}",
            self.number,
            done.code,
            done.out,
            done.err
        );
        done.out
    }

    /// The same for a program that prints JSON.
    pub fn json(&self, words: &str) -> Value {
        let text = self.ok(words);
        serde_json::from_str(&text).unwrap_or_else(|e| panic!("{words}: {e}: {text}"))
    }

    /// Runs a line of shell in the namespace.
    pub fn run_script(&self, line: &str) -> Done {
        Done::of(self.limited_command("sh -c").arg(line))
    }

    /// Runs the daemon with exactly these options, which must make it end by itself.
    pub fn daemon_run(&self, options: &[&str]) -> Done {
        Done::of(
            self.limited_command("")
                .arg(programs::ibtapd())
                .args(options),
        )
    }

    /// The same with this host's socket, for options that it must refuse.
    pub fn refused(&self, options: &[&str]) -> Done {
        let socket = self.socket();
        let mut all = vec!["--socket", socket.to_str().expect("an ASCII path")];
        all.extend(options);
        let done = self.daemon_run(&all);
        assert_ne!(done.code, Some(0), "{options:?}: {done:?}");
        done
    }

    /// Starts a program beside the test.
    pub fn spawn(&self, words: &str) -> Background {
        let child = self
            .command(words)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("the program is installed");
        Background(child)
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

    /// Starts another daemon beside it, whose socket is called `socket`.
    pub fn start_other(&self, socket: &str, options: &[&str]) -> Daemon {
        Daemon::start(self, &self.file(socket), options)
    }

    /// Starts the daemon with this host's socket, and waits for nothing.
    pub fn start_unready(&self, options: &[&str]) -> Daemon {
        Daemon::start_until(self, &self.socket(), options, "")
    }

    /// Starts another daemon, and waits only until its log holds `words`.
    pub fn start_other_until(&self, socket: &str, options: &[&str], words: &str) -> Daemon {
        Daemon::start_until(self, &self.file(socket), options, words)
    }

    /// Starts the daemon for `ib0` on `eth0` under a service manager that keeps up to `store` of
    /// its descriptors, and waits until it is ready.
    pub fn start_service(&self, store: usize, options: &[&str]) -> Service {
        let mut words = vec!["--underlay", "eth0"];
        words.extend(options);
        self.start_service_with(store, &words)
    }

    /// The same with these options alone.
    pub fn start_service_with(&self, store: usize, options: &[&str]) -> Service {
        Service::start(self, store, options)
    }

    /// The running daemon.
    pub fn daemon(&mut self) -> &mut Daemon {
        self.daemon.as_mut().expect("the daemon was started")
    }

    /// Ends the daemon as an administrator would, and expects success.
    pub fn stop(&mut self) {
        let mut daemon = self.daemon.take().expect("the daemon was started");
        let status = daemon.end_by(Signal::TERM);
        assert!(status.success(), "ibtapd ended with {status}");
    }

    /// Kills the daemon without a word.
    pub fn kill_daemon(&mut self) {
        let mut daemon = self.daemon.take().expect("the daemon was started");
        daemon.kill();
    }

    /// Gives an interface this host's addresses, brings it up and waits for its carrier.
    pub fn configure(&self, interface: &str) {
        self.configure_addresses(interface);
        self.await_carrier(interface, true);
    }

    /// The same without waiting, for an interface that nobody serves yet.
    pub fn configure_addresses(&self, interface: &str) {
        self.ok(&format!("ip addr add {}/24 dev {interface}", self.v4()));
        self.ok(&format!(
            "ip addr add {}/64 dev {interface} nodad",
            self.v6()
        ));
        self.ok(&format!("ip link set {interface} up"));
    }

    /// What `ip -j link show` says of an interface.
    pub fn link(&self, interface: &str) -> Value {
        self.json(&format!("ip -s -j link show dev {interface}"))[0].clone()
    }

    /// The names of all interfaces.
    pub fn link_names(&self) -> Vec<String> {
        let links = self.json("ip -j link show");
        let links = links.as_array().expect("an array");
        links
            .iter()
            .map(|link| link["ifname"].to_string())
            .collect()
    }

    /// An interface's MTU.
    pub fn mtu(&self, interface: &str) -> u64 {
        self.link(interface)["mtu"].as_u64().expect("an MTU")
    }

    /// Whether the interface is there.
    pub fn has_link(&self, interface: &str) -> bool {
        self.run(&format!("ip link show dev {interface}")).code == Some(0)
    }

    /// Waits until the carrier is on, or off.
    pub fn await_carrier(&self, interface: &str, on: bool) {
        eventually(SOON, &format!("carrier {on} on {interface}"), || {
            let flags = self.link(interface)["flags"].clone();
            let lower_up = flags.as_array()?.iter().any(|flag| flag == "LOWER_UP");
            (lower_up == on).then_some(())
        });
    }

    /// Whether one ping of a few comes back.
    pub fn pings(&self, address: &str) -> bool {
        self.run(&format!("ping -c 1 -W 1 {address}")).code == Some(0)
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

    /// Starts an `ibtap` that goes on until it is ended.
    pub fn follow(&self, words: &str) -> Follow {
        Follow::start(self, words)
    }

    /// Whether the interface is administratively up.
    pub fn is_up(&self, interface: &str) -> bool {
        let flags = self.link(interface)["flags"].clone();
        flags
            .as_array()
            .is_some_and(|flags| flags.iter().any(|flag| flag == "UP"))
    }

    /// Runs `ibtap --json`, which must succeed and print an array; gives back its objects.
    pub fn ask(&self, words: &str) -> Vec<Value> {
        let done = self.ibtap(&format!("--json {words}"));
        assert!(done.code == Some(0), "ibtap {words}: {done:?}");
        match serde_json::from_str(&done.out) {
            Ok(Value::Array(objects)) => objects,
            other => panic!("ibtap --json {words}: not an array: {other:?}"),
        }
    }

    /// What `ibtap show` says of an interface.
    pub fn show(&self, interface: &str) -> Value {
        let mut objects = self.ask(&format!("show {interface}"));
        assert_eq!(objects.len(), 1, "{objects:?}");
        objects.remove(0)
    }

    /// The sum of all counters called `name` that `ibtap stats` shows for an interface, of the
    /// device, the protocol and every worker. There must be one.
    pub fn counter(&self, interface: &str, name: &str) -> u64 {
        self.counters(interface, &[name])
    }

    /// The sum of the counters of all these names, each of which must be there.
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

    /// The link-local address of an interface, as `ip -j addr` describes it; `None` if there is
    /// none yet.
    pub fn link_local(&self, interface: &str) -> Option<Value> {
        let shown = self.json(&format!("ip -6 -j addr show dev {interface} scope link"));
        // ip prints an empty object for each address that the filter leaves out.
        shown[0]["addr_info"]
            .as_array()?
            .iter()
            .find(|address| address["local"].is_string())
            .cloned()
    }

    /// Waits until an interface has a link-local address that may be used.
    pub fn await_link_local(&self, interface: &str) -> String {
        eventually(SOON, "a usable link-local address", || {
            let address = self.link_local(interface)?;
            assert_eq!(address["dadfailed"], Value::Null, "{address}");
            let usable = address["tentative"].is_null();
            usable.then(|| address["local"].as_str().expect("a string").to_owned())
        })
    }

    /// The MGIDs of an interface's groups that satisfy `keep`.
    pub fn groups(&self, interface: &str, keep: impl Fn(&Value) -> bool) -> Vec<String> {
        self.ask(&format!("mcg {interface}"))
            .iter()
            .filter(|group| keep(group))
            .map(|group| group["mgid"].as_str().expect("an MGID").to_owned())
            .collect()
    }

    /// How long a daemon may take to be ready: it waits up to 10 s for a usable GID.
    pub const READY: Duration = Duration::from_secs(20);
}
