//! What all tests with virtual machines share: the programs under test, a scratch folder, and the removal of
//! everything when this process ends.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, OnceLock, PoisonError};

use super::machine::script;
use super::programs;

/// Status of the scripts if virtual machines are impossible.
pub(super) const NO_GUESTS: i32 = 77;

/// See the module.
pub(super) struct Shared {
    scratch: PathBuf,
    programs: PathBuf,
    /// At the end of its input, which is the end of this process, it runs what it has read.
    sweeper: Mutex<Child>,
}

impl Shared {
    /// Creates the folders for the first test. `None`, with a message, if the virtual machines of a script are
    /// impossible.
    pub fn with(name: &str) -> Option<&'static Shared> {
        static SHARED: OnceLock<Shared> = OnceLock::new();
        if !kit::is_root() {
            return None;
        }
        let made = script(name).arg("image").stdin(Stdio::null()).status();
        let made = made.expect("bash is there");
        if made.code() == Some(NO_GUESTS) {
            say(&format!(
                "virtual machines are impossible here; scripts/{name} has printed the reason"
            ));
            return None;
        }
        assert!(made.success(), "scripts/{name} image: {made}");
        Some(SHARED.get_or_init(Shared::make))
    }

    fn make() -> Shared {
        let scratch = tempfile::Builder::new()
            .prefix("ibtap-guests-")
            .tempdir()
            .expect("a scratch folder")
            .keep();
        let folder = scratch.join("share");
        fs::create_dir(&folder).expect("a folder");
        share(programs::ibtapd(), &folder.join("ibtapd"));
        share(programs::ibtap(), &folder.join("ibtap"));
        let shared = Shared {
            programs: folder,
            sweeper: Mutex::new(sweeper()),
            scratch,
        };
        shared.sweep(&format!("rm -rf {}", shared.scratch.display()));
        shared
    }

    /// A folder for files of the tests.
    pub fn scratch(&self) -> &Path {
        &self.scratch
    }

    /// The folder with the programs under test, which virtual machines have too.
    pub fn programs(&self) -> &Path {
        &self.programs
    }

    /// Adds the program of a test target to that folder.
    pub fn add_tests(&self, target: &str) {
        static ADDING: Mutex<()> = Mutex::new(());
        let _adding = ADDING.lock().unwrap_or_else(PoisonError::into_inner);
        let copy = self.programs.join(target);
        if !copy.exists() {
            share(programs::tests(target), &copy);
        }
    }

    /// Registers a command to be run after any end of this process; words are separated by spaces.
    pub fn sweep(&self, command: &str) {
        let mut sweeper = self.sweeper.lock().unwrap_or_else(PoisonError::into_inner);
        let stdin = sweeper.stdin.as_mut().expect("it is a pipe");
        writeln!(stdin, "{command}").expect("the sweeper lives");
    }
}

/// Writes past libtest, which hides the output of tests that pass.
fn say(text: &str) {
    let _ = writeln!(std::io::stderr(), "{text}");
}

/// Copies a program without debug information: virtual machines read it through an emulated bus.
fn share(program: &Path, copy: &Path) {
    let done = Command::new("strip")
        .arg("-o")
        .arg(copy)
        .arg(program)
        .status();
    let done = done.expect("binutils are installed");
    assert!(done.success(), "strip {}: {done}", program.display());
}

/// A shell that runs its input after any end of this process.
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
