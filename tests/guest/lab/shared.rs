//! What all tests with virtual machines share: the programs under test, and a scratch folder.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Mutex, OnceLock, PoisonError};

use super::machine::script;
use super::programs;
use super::sweep::Scratch;

/// Status of the scripts if virtual machines are impossible.
pub(super) const NO_GUESTS: i32 = 77;

/// See the module.
pub(super) struct Shared {
    scratch: Scratch,
    programs: PathBuf,
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
        let scratch = Scratch::create("ibtap-guests-");
        let folder = scratch.path().join("share");
        fs::create_dir(&folder).expect("a folder");
        share(programs::ibtapd(), &folder.join("ibtapd"));
        share(programs::ibtap(), &folder.join("ibtap"));
        Shared {
            programs: folder,
            scratch,
        }
    }

    /// A folder for files of the tests.
    pub fn scratch(&self) -> &Path {
        self.scratch.path()
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
}

/// Writes past libtest, which hides the output of tests that pass.
pub(super) fn say(text: &str) {
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
