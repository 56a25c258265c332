//! What all tests share: stages, each a bridge with a host and a virtual machine on it, and a cable between two of the
//! bridges that is out unless a test wants both. They are made for the first test, and gone when this
//! process is.

use std::fs;
use std::io::Write;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Condvar, Mutex, MutexGuard, OnceLock, PoisonError};

use super::capture::Capture;
use super::machine::rxe_guest;
use super::{Local, Machine, Station, UNDERLAY_MTU, programs};

/// An Ethernet with a host of this machine and a virtual machine.
pub struct Stage {
    /// Number 1 to 3.
    pub host: Local,
    /// Number 11 to 13.
    pub machine: Machine,
    switch: Station,
    scratch: PathBuf,
}

/// Status of `scripts/rxe-guest` where virtual machines cannot be had.
const NO_GUESTS: i32 = 77;

/// Tests wait more than they compute: three virtual machines are done sooner than two, on two processors as well.
const STAGES: usize = 3;

/// The two with the cable between them.
const CABLED: [bool; STAGES] = [true, true, false];

/// Runs a test on a stage that is as it was at first, and judges what its virtual machine sent and got. Where virtual machines
/// cannot be had it says so instead. As many run at a time as there are stages.
pub fn on_stage(test: impl FnOnce(&Stage)) {
    let Some(stages) = Stages::get() else { return };
    let lease = stages.one();
    lease.stages[0].watch(test);
}

/// Runs a test with two stages, on one Ethernet.
pub fn on_both_stages(test: impl FnOnce(&Stage, &Stage)) {
    let Some(stages) = Stages::get() else { return };
    let lease = stages.both();
    lease.stages[1].machine.reset();
    lease.stages[0].watch(|stage| test(stage, lease.stages[1]));
}

impl Stage {
    /// A folder for files of the tests.
    pub fn scratch(&self) -> &Path {
        &self.scratch
    }

    fn watch(&self, test: impl FnOnce(&Stage)) {
        self.machine.reset();
        let capture = Capture::start(&self.switch, &self.machine.port(), &self.scratch);
        match catch_unwind(AssertUnwindSafe(|| test(self))) {
            Ok(()) => capture.judge(),
            Err(panic) => {
                eprintln!("the packets of the test: {}", capture.keep().display());
                resume_unwind(panic);
            }
        }
    }

    /// Its switch, whose port `trunk` is down, and the host; virtual machines are booted later.
    fn make(number: usize, scratch: &Path, sweeper: &mut Child) -> (Station, Local) {
        let switch = Station::create(&format!("switch {number}"));
        sweep(
            sweeper,
            &format!("ip netns del {}", switch.namespace().name()),
        );
        switch.ok(&format!(
            "ip link add br0 mtu {UNDERLAY_MTU} type bridge mcast_snooping 0"
        ));
        switch.ok("ip link set br0 up");
        let host = Local::at(&switch, number, scratch);
        sweep(
            sweeper,
            &format!("ip netns del {}", host.station().namespace().name()),
        );
        (switch, host)
    }
}

/// All stages, and which of them tests have.
struct Stages {
    all: [Stage; STAGES],
    taken: Mutex<Taken>,
    given_back: Condvar,
    // What it is told to remove is removed when this closes.
    _sweeper: Child,
}

#[derive(Default)]
struct Taken {
    stages: [bool; STAGES],
    /// Tests that wait for the two with the cable: others leave those to them, or they would be the last.
    want_both: usize,
}

/// Stages that a test has.
struct Lease<'s> {
    stages: Vec<&'s Stage>,
    of: &'s Stages,
    which: [bool; STAGES],
}

impl Stages {
    fn get() -> Option<&'static Stages> {
        static STAGES: OnceLock<Option<Stages>> = OnceLock::new();
        let stages = STAGES.get_or_init(Stages::make).as_ref();
        if stages.is_none() {
            say("SKIPPED: this test needs virtual machines, see above");
        }
        stages
    }

    /// Waits for one that is free.
    fn one(&self) -> Lease<'_> {
        self.lease(|taken| {
            let kept = |stage: usize| taken.want_both > 0 && CABLED[stage];
            let free = (0..STAGES).rfind(|stage| !taken.stages[*stage] && !kept(*stage))?;
            Some(std::array::from_fn(|stage| stage == free))
        })
    }

    /// Waits for the cabled ones, and puts the cable in.
    fn both(&self) -> Lease<'_> {
        self.taken().want_both += 1;
        let lease = self.lease(|taken| {
            let free = (0..STAGES).all(|stage| !(CABLED[stage] && taken.stages[stage]));
            taken.want_both -= usize::from(free);
            free.then_some(CABLED)
        });
        self.all[0].switch.ok("ip link set trunk up");
        lease
    }

    fn taken(&self) -> MutexGuard<'_, Taken> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lease(&self, choose: impl Fn(&mut Taken) -> Option<[bool; STAGES]>) -> Lease<'_> {
        let mut taken = self.taken();
        loop {
            if let Some(which) = choose(&mut taken) {
                for (taken, wanted) in taken.stages.iter_mut().zip(which) {
                    *taken |= wanted;
                }
                let stages = self.all.iter().zip(which);
                return Lease {
                    stages: stages
                        .filter_map(|(s, wanted)| wanted.then_some(s))
                        .collect(),
                    of: self,
                    which,
                };
            }
            let waited = self.given_back.wait(taken);
            taken = waited.unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn make() -> Option<Stages> {
        if !rustix::process::geteuid().is_root() {
            say("SKIPPED: virtual machines are on a network namespace's bridge, which needs root");
            return None;
        }
        let made = rxe_guest(&["image"]).stdin(Stdio::null()).status();
        let made = made.expect("bash is there");
        if made.code() == Some(NO_GUESTS) {
            say("SKIPPED: virtual machines cannot be had here, as scripts/rxe-guest says above");
            return None;
        }
        assert!(made.success(), "scripts/rxe-guest image: {made}");

        let scratch = tempfile::Builder::new()
            .prefix("ibtap-guests-")
            .tempdir()
            .expect("a scratch folder")
            .keep();
        let mut sweeper = sweeper();
        let share = share_programs(&scratch);
        let sides: [_; STAGES] =
            std::array::from_fn(|i| Stage::make(i + 1, &scratch, &mut sweeper));
        sweep(&mut sweeper, &format!("rm -rf {}", scratch.display()));
        let [(switch, _), (other, _), ..] = &sides;
        switch.ok(&format!(
            "ip link add trunk mtu {UNDERLAY_MTU} master br0 type veth \
             peer name trunk mtu {UNDERLAY_MTU} netns {}",
            other.namespace().name()
        ));
        other.ok("ip link set trunk master br0 up");
        let all = std::thread::scope(|scope| {
            let (share, scratch) = (&share, &scratch);
            let mut number = 10;
            sides
                .map(|(switch, host)| {
                    number += 1;
                    scope.spawn(move || {
                        let machine = Machine::boot(&switch, number, share, scratch);
                        Stage {
                            host,
                            machine: machine.unwrap_or_else(|e| panic!("rxe-guest boot: {e}")),
                            switch,
                            scratch: scratch.clone(),
                        }
                    })
                })
                .map(|booting| booting.join().expect("no panic"))
        });
        Some(Stages {
            all,
            taken: Mutex::default(),
            given_back: Condvar::new(),
            _sweeper: sweeper,
        })
    }
}

impl Drop for Lease<'_> {
    fn drop(&mut self) {
        if self.which == CABLED {
            let pulled = self.of.all[0].switch.run("ip link set trunk down");
            assert!(pulled.code == Some(0) || std::thread::panicking());
        }
        let mut taken = self.of.taken();
        for (taken, ours) in taken.stages.iter_mut().zip(self.which) {
            *taken &= !ours;
        }
        self.of.given_back.notify_all();
    }
}

/// Past libtest, which keeps what a test prints to itself if the test passes.
fn say(text: &str) {
    let _ = writeln!(std::io::stderr(), "{text}");
}

/// Copies of the programs, without what debuggers need: virtual machines read them through an emulated bus.
fn share_programs(scratch: &Path) -> PathBuf {
    let share = scratch.join("share");
    fs::create_dir(&share).expect("a folder");
    for (name, program) in [
        ("ibtapd", programs::ibtapd()),
        ("ibtap", programs::ibtap()),
        ("suite", programs::fabric_tests("suite")),
        ("verbs", programs::fabric_tests("verbs")),
    ] {
        let done = Command::new("strip")
            .arg("-o")
            .arg(share.join(name))
            .arg(program)
            .status()
            .expect("binutils are installed");
        assert!(done.success(), "strip {}: {done}", program.display());
    }
    share
}

/// A shell that runs what it is told when this process has ended, however it has.
fn sweeper() -> Child {
    Command::new("setsid")
        .args([
            "bash",
            "-c",
            "mapfile -t lines; for line in \"${lines[@]}\"; do $line; done",
        ])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("util-linux is installed")
}

fn sweep(sweeper: &mut Child, command: &str) {
    let stdin = sweeper.stdin.as_mut().expect("it is a pipe");
    writeln!(stdin, "{command}").expect("the sweeper lives");
}
