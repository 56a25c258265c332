//! A namespace in which programs run, with common queries of administrators.

use std::fs::File;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use super::patience::HEALED;
use super::{Namespace, SOON, eventually};

/// A program that opens a queue of a TAP.
const OPEN_QUEUE: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/tests/system/lab/open_queue.py"
);

/// Output and end of a program.
#[derive(Debug)]
pub struct Done {
    /// Exit status; `None` if a signal ended the program.
    pub code: Option<i32>,
    /// Standard output.
    pub out: String,
    /// Standard error.
    pub err: String,
}

impl Done {
    /// Runs a program to its end.
    pub fn of(command: &mut Command) -> Done {
        let output = command.output().expect("the program is installed");
        Done {
            code: output.status.code(),
            out: String::from_utf8_lossy(&output.stdout).into_owned(),
            err: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }
}

/// A program in the background; dropping this value kills it.
pub struct Background(pub Child);

impl Background {
    /// Ends the program with SIGINT, and waits until it has finished its work.
    pub fn interrupt(mut self) {
        kill_process(Pid::from_child(&self.0), Signal::INT).expect("a child");
        self.0.wait().expect("a child");
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        // Either may fail because the program has ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// See the module.
pub struct Station {
    namespace: Namespace,
    name: String,
}

impl Station {
    /// Creates a station called `name` in messages.
    pub fn create(name: &str) -> Station {
        Station {
            namespace: Namespace::create(),
            name: name.to_owned(),
        }
    }

    /// Creates a station in a namespace with that name, which no other test uses meanwhile.
    pub fn called(namespace: &str) -> Station {
        Station {
            namespace: Namespace::called(namespace),
            name: namespace.to_owned(),
        }
    }

    /// Name in messages.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its namespace.
    pub fn namespace(&self) -> &Namespace {
        &self.namespace
    }

    /// Brings an interface up without a tentative link-local address.
    pub fn bring_up(&self, interface: &str) {
        self.ok(&format!(
            "sysctl -qw net.ipv6.conf.{interface}.accept_dad=0"
        ));
        self.ok(&format!("ip link set {interface} up"));
    }

    /// A command that runs in the namespace and ends with this test.
    pub(super) fn command(&self, words: &str) -> Command {
        let mut command = Command::new("setpriv");
        command
            .args(["--pdeathsig", "KILL"])
            .args(self.enter(words));
        command
    }

    /// The same with an end after one minute.
    pub(super) fn limited_command(&self, words: &str) -> Command {
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

    /// Runs a program; spaces separate the words.
    pub fn run(&self, words: &str) -> Done {
        Done::of(&mut self.limited_command(words))
    }

    /// Runs a program that must succeed; returns its output.
    pub fn ok(&self, words: &str) -> String {
        let done = self.run(words);
        assert!(
            done.code == Some(0),
            "{}: {words}: status {:?}\n{}{}",
            self.name,
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

    /// Runs a shell command in the namespace.
    pub fn run_script(&self, line: &str) -> Done {
        Done::of(self.limited_command("sh -c").arg(line))
    }

    /// Starts a program in the background.
    pub fn spawn(&self, words: &str) -> Background {
        self.spawn_to(words, Stdio::null())
    }

    /// The same, with its standard output.
    pub fn spawn_to(&self, words: &str, out: Stdio) -> Background {
        let child = self
            .command(words)
            .stdout(out)
            .stderr(Stdio::null())
            .spawn()
            .expect("the program is installed");
        Background(child)
    }

    /// The same, with both outputs in a file.
    pub fn spawn_into(&self, words: &str, file: &Path) -> Background {
        let out = File::create(file).expect("a scratch file");
        let err = out.try_clone().expect("a scratch file");
        let mut command = self.command(words);
        command.stdout(out).stderr(err);
        Background(command.spawn().expect("the program is installed"))
    }

    /// Opens a queue of a TAP with several queues, as a user without any rights: "opened", or the reason of a refusal.
    pub fn open_queue_as_nobody(&self, interface: &str) -> String {
        let answer = self.ok(&format!("python3 {OPEN_QUEUE} {interface} 65534 0"));
        answer.trim().to_owned()
    }

    /// Starts a program of root that opens a queue of a TAP with several queues.
    pub fn hold_queue(&self, interface: &str) -> Background {
        let queues = || {
            let link = self.json(&format!("ip -d -j link show dev {interface}"));
            link[0]["linkinfo"]["info_data"]["numqueues"].as_u64()
        };
        let before = queues();
        let holder = self.spawn(&format!("python3 {OPEN_QUEUE} {interface} 0 600"));
        eventually(SOON, "the program to open a queue", || {
            (queues() > before).then_some(())
        });
        holder
    }

    /// The interface's object in `ip -j link show`.
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

    /// Whether the interface exists.
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

    /// Sends echo requests with these further words for ping(8) until it has this many answers; returns the output.
    /// [`sent`] is greater if some were lost or late. Without a deadline, ping hardly waits for the last answers.
    pub fn answered(&self, count: usize, words: &str) -> String {
        self.ok(&format!("ping -n -c {count} -w 30 {words}"))
    }

    /// The same; the first `count` must all be answered.
    pub fn all_answered(&self, count: usize, words: &str) -> String {
        let output = self.answered(count, words);
        assert_eq!(unanswered(&output, " ", count), None, "{output}");
        output
    }

    /// Sends ten requests a second with these further words for ping(8) until one is answered, during the time of
    /// [`HEALED`]. An answer may be late. An ICMP error, such as that of a smaller path MTU, ends ping, so that another
    /// one starts.
    pub fn is_answered_again(&self, words: &str) {
        let ping = format!("ping -c 1 -i 0.1 -w 2 {words}");
        eventually(HEALED, &format!("{}: {ping}", self.name), || {
            (self.run(&ping).code == Some(0)).then_some(())
        });
    }

    /// Whether one ping of a few is answered.
    pub fn pings(&self, address: &str) -> bool {
        self.run(&format!("ping -c 1 -W 1 {address}")).code == Some(0)
    }

    /// Waits until each of these addresses answers.
    pub fn reaches_all<S: AsRef<str>>(&self, addresses: &[S]) {
        for address in addresses {
            let address = address.as_ref();
            let what = format!("{}: an answer from {address}", self.name);
            eventually(SOON, &what, || self.pings(address).then_some(()));
        }
    }

    /// Whether the interface is administratively up.
    pub fn is_up(&self, interface: &str) -> bool {
        let flags = self.link(interface)["flags"].clone();
        flags
            .as_array()
            .is_some_and(|flags| flags.iter().any(|flag| flag == "UP"))
    }

    /// The link-local address of an interface, as in `ip -j addr`; `None` if it has none yet.
    pub fn link_local(&self, interface: &str) -> Option<Value> {
        let shown = self.json(&format!("ip -6 -j addr show dev {interface} scope link"));
        // ip prints an empty object for each address that the filter omits.
        shown[0]["addr_info"]
            .as_array()?
            .iter()
            .find(|address| address["local"].is_string())
            .cloned()
    }

    /// Waits until an interface has a usable link-local address.
    pub fn await_link_local(&self, interface: &str) -> String {
        eventually(SOON, "a usable link-local address", || {
            let address = self.link_local(interface)?;
            assert_eq!(address["dadfailed"], Value::Null, "{address}");
            let usable = address["tentative"].is_null();
            usable.then(|| address["local"].as_str().expect("a string").to_owned())
        })
    }
}

/// Number of requests in the last line of the output of ping(8), "120 packets transmitted, 118 received, …".
pub fn sent(output: &str) -> usize {
    let number = |line: &str| line.split(" packets transmitted").next()?.parse().ok();
    let number = output.lines().find_map(number);
    number.unwrap_or_else(|| panic!("no summary: {output}"))
}

/// The first of `count` requests that has no answer in the output of ping(8). `from` is before the numbers there.
pub fn unanswered(output: &str, from: &str, count: usize) -> Option<usize> {
    (1..=count).find(|n| !output.contains(&format!("{from}icmp_seq={n} ")))
}
