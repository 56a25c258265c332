//! An InfiniBand subnet without InfiniBand: ibsim has one switch and four hosts, and OpenSM manages them from the
//! first.

use std::fs::{self, File};
use std::io::Write;
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, Stdio};

use super::{Background, Done, Presence, SOON, Scratch, Station, eventually, within};
use rustix::process::{Pid, Signal, kill_process};

/// The hosts `H1` to `H4`. OpenSM gives LIDs in the order of its sweep.
const TOPOLOGY: &str = r#"Switch 8 "S1"
[1] "H1"[1]
[2] "H2"[1]
[3] "H3"[1]
[4] "H4"[1]

Hca 1 "H1"
[1] "S1"[1]

Hca 1 "H2"
[1] "S1"[2]

Hca 1 "H3"
[1] "S1"[3]

Hca 1 "H4"
[1] "S1"[4]
"#;

/// See the module. Programs end before the namespace and the folder.
pub struct Subnet {
    opensm: Option<Background>,
    console: ChildStdin,
    _ibsim: Background,
    station: Station,
    folder: Scratch,
    _presence: Presence,
}

impl Subnet {
    /// A subnet whose manager has not started. `None`, with a message, without root.
    pub fn unmanaged() -> Option<Subnet> {
        if !kit::is_root() {
            return None;
        }
        let presence = Presence::begin();
        let folder = Scratch::create("ibtap-subnet-");
        let station = Station::create("subnet");
        let topology = folder.path().join("topology");
        fs::write(&topology, TOPOLOGY).expect("a scratch file");
        let log = folder.path().join("ibsim.log");
        let out = File::create(&log).expect("a scratch file");
        let mut ibsim = station
            .command(&format!("ibsim -s {}", topology.display()))
            .current_dir(folder.path())
            .stdin(Stdio::piped())
            .stderr(out.try_clone().expect("a scratch file"))
            .stdout(out)
            .spawn()
            .expect("ibsim-utils is installed");
        let console = ibsim.stdin.take().expect("a pipe");
        eventually(SOON, "ibsim", || {
            let text = fs::read_to_string(&log).expect("its output");
            text.contains("simulator ready").then_some(())
        });
        Some(Subnet {
            opensm: None,
            console,
            _ibsim: Background(ibsim),
            station,
            folder,
            _presence: presence,
        })
    }

    /// A managed subnet with these partitions (opensm(8), "PARTITION CONFIGURATION").
    pub fn managed(partitions: &str) -> Option<Subnet> {
        let mut subnet = Subnet::unmanaged()?;
        subnet.manage(partitions);
        Some(subnet)
    }

    /// Starts OpenSM on `H1`, and waits until the subnet is up. On a busy machine, OpenSM may wait forever for a datagram
    /// that ibsim has lost: then another one starts.
    pub fn manage(&mut self, partitions: &str) {
        let is_up = (0..2).any(|_| {
            self.start_opensm(partitions);
            // OpenSM answers when its first sweep is complete.
            let groups = || self.run("H2", "saquery -t 300 -g").out;
            within(SOON, || groups().contains("MGID").then_some(())).is_some()
        });
        assert!(is_up, "the subnet does not come up");
    }

    fn start_opensm(&mut self, partitions: &str) {
        self.abandon();
        let [file, log] = ["partitions", "opensm.log"].map(|name| self.file(name));
        fs::write(&file, partitions).expect("a scratch file");
        let words = format!("opensm -f {} -P {}", log.display(), file.display());
        let mut command = self.station.command(&format!("ibsim-run {words}"));
        let child = self.on(&mut command, "H1").stdout(Stdio::null()).spawn();
        self.opensm = Some(Background(child.expect("opensm is installed")));
    }

    /// Kills OpenSM.
    pub fn abandon(&mut self) {
        self.opensm = None;
    }

    /// A file of this subnet.
    pub fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Sends a line to ibsim's console.
    pub fn console(&mut self, line: &str) {
        writeln!(self.console, "{line}").expect("ibsim runs");
    }

    /// Runs a program on the simulated port of a host.
    pub fn run(&self, host: &str, words: &str) -> Done {
        let mut command = self.station.limited_command(&format!("ibsim-run {words}"));
        Done::of(self.on(&mut command, host))
    }

    /// Runs a program that must succeed; returns its output.
    pub fn ok(&self, host: &str, words: &str) -> String {
        let done = self.run(host, words);
        assert_eq!(done.code, Some(0), "{words}:\n{}{}", done.out, done.err);
        done.out
    }

    /// Starts a program on a host, with its output in a file of this subnet.
    pub fn spawn(&self, host: &str, words: &str, file: &str) -> Running {
        let out = File::create(self.file(file)).expect("a scratch file");
        let mut command = self.station.command(&format!("ibsim-run {words}"));
        let child = self.on(&mut command, host).stdout(out).spawn();
        Running(Background(child.expect("the program is installed")))
    }

    /// The preload makes a folder for its sysfs in the working directory; OpenSM keeps LIDs in its cache.
    fn on<'a>(&self, command: &'a mut Command, host: &str) -> &'a mut Command {
        command
            .current_dir(self.folder.path())
            .stdin(Stdio::null())
            .env("SIM_HOST", host)
            .env("OSM_CACHE_DIR", self.folder.path())
            .env("OSM_TMP_DIR", self.folder.path())
    }
}

/// A program in the background; killed when dropped.
pub struct Running(Background);

impl Running {
    /// Sends SIGINT, and waits for the exit status; `None` if a signal ended the program.
    pub fn interrupt(&mut self) -> Option<i32> {
        let child: &mut Child = &mut self.0.0;
        kill_process(Pid::from_child(child), Signal::INT).expect("a child");
        eventually(SOON, "the program to end", || {
            child.try_wait().expect("a child")
        })
        .code()
    }
}
