//! What all tests share: a bridge, a host and two guests on it. It is made for the first test, and gone
//! when this process is.

use std::fs;
use std::io::Write;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use super::capture::Capture;
use super::guest::rxe_guest;
use super::{Guest, Local, Station, UNDERLAY_MTU, programs};

/// See the module.
pub struct Stage {
    /// A host of this machine, number 1.
    pub host: Local,
    /// Numbers 11 and 12.
    pub guests: [Guest; 2],
    switch: Station,
    scratch: PathBuf,
    // What it is told to remove is removed when this closes.
    _sweeper: Child,
}

/// Status of `scripts/rxe-guest` where guests cannot be had.
const NO_GUESTS: i32 = 77;

/// Runs a test with the guests as they are at first, and judges what it sent. Where guests cannot be
/// had it says so instead.
pub fn on_stage(test: impl FnOnce(&Stage)) {
    let Some(stage) = stage() else { return };
    for guest in &stage.guests {
        guest.reset();
    }
    let capture = Capture::start(&stage.switch, &stage.guests[0].port(), &stage.scratch);
    // The lock is not poisoned by a test that fails: the next one begins anew.
    let ended = catch_unwind(AssertUnwindSafe(|| test(&stage)));
    match ended {
        Ok(()) => capture.judge(),
        Err(panic) => {
            eprintln!("the packets of the test: {}", capture.keep().display());
            drop(stage);
            resume_unwind(panic);
        }
    }
}

fn stage() -> Option<MutexGuard<'static, Stage>> {
    static STAGE: OnceLock<Option<Mutex<Stage>>> = OnceLock::new();
    let stage = STAGE.get_or_init(|| Stage::make().map(Mutex::new)).as_ref();
    if stage.is_none() {
        eprintln!("SKIPPED: this test needs guests, see above");
    }
    Some(stage?.lock().unwrap_or_else(PoisonError::into_inner))
}

impl Stage {
    /// A folder for files of the tests.
    pub fn scratch(&self) -> &Path {
        &self.scratch
    }

    fn make() -> Option<Stage> {
        if !rustix::process::geteuid().is_root() {
            eprintln!("SKIPPED: guests are on a network namespace's bridge, which needs root");
            return None;
        }
        let made = rxe_guest(&["image"]).stdin(Stdio::null()).status();
        let made = made.expect("bash is there");
        if made.code() == Some(NO_GUESTS) {
            eprintln!("SKIPPED: guests cannot be had here, as scripts/rxe-guest says above");
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
        let switch = Station::create("the switch");
        sweep(
            &mut sweeper,
            &format!("ip netns del {}", switch.namespace().name()),
        );
        switch.ok(&format!(
            "ip link add br0 mtu {UNDERLAY_MTU} type bridge mcast_snooping 0"
        ));
        switch.ok("ip link set br0 up");
        let host = Local::at(&switch, 1, &scratch);
        sweep(
            &mut sweeper,
            &format!("ip netns del {}", host.station().namespace().name()),
        );
        sweep(&mut sweeper, &format!("rm -rf {}", scratch.display()));
        let guests = std::thread::scope(|scope| {
            let (switch, share, scratch) = (&switch, &share, &scratch);
            [11, 12]
                .map(|number| scope.spawn(move || Guest::boot(switch, number, share, scratch)))
                .map(|booting| booting.join().expect("no panic"))
        });
        let guests = guests.map(|guest| guest.unwrap_or_else(|e| panic!("rxe-guest boot: {e}")));
        Some(Stage {
            host,
            guests,
            switch,
            scratch,
            _sweeper: sweeper,
        })
    }
}

/// Copies of the programs, without what debuggers need: guests read them through an emulated bus.
fn share_programs(scratch: &Path) -> PathBuf {
    let share = scratch.join("share");
    fs::create_dir(&share).expect("a folder");
    for (name, program) in [
        ("ibtapd", programs::ibtapd()),
        ("ibtap", programs::ibtap()),
        ("suite", programs::suite()),
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
