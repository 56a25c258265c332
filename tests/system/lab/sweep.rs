//! Removal of namespaces and folders after any end of this process, also by SIGKILL.

use std::io::{Result, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};

use tempfile::TempDir;

/// Reads lines until the end of its input, which is the end of this process; then runs the commands that are left. A line
/// is a number and a command, or only the number of a command that is not needed any more.
const SWEEPER: &str = r#"
while read -r number command; do
    if [ "$command" ]; then commands[number]=$command; else unset "commands[number]"; fi
done
for command in "${commands[@]}"; do $command; done
"#;

/// A command that is run after any end of this process, unless this value is dropped before.
pub struct Sweep {
    number: u32,
}

impl Sweep {
    /// Registers a command; words are separated by spaces.
    pub fn register(command: &str) -> Sweep {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        tell(&format!("{number} {command}")).expect("the sweeper lives");
        Sweep { number }
    }
}

impl Drop for Sweep {
    fn drop(&mut self) {
        // A panic while a test's panic unwinds would abort the whole run.
        let _ = tell(&self.number.to_string());
    }
}

/// Writes a line to the sweeper, which starts with the first line, in a session that Ctrl-C does not end.
fn tell(line: &str) -> Result<()> {
    static RUNNING: OnceLock<Mutex<Child>> = OnceLock::new();
    let sweeper = RUNNING.get_or_init(|| {
        let sweeper = Command::new("setsid")
            .args(["bash", "-c", SWEEPER])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        Mutex::new(sweeper.expect("util-linux is installed"))
    });
    let mut sweeper = sweeper.lock().unwrap_or_else(PoisonError::into_inner);
    let input = sweeper.stdin.as_mut().expect("it is a pipe");
    writeln!(input, "{line}")
}

/// A folder for files of tests; dropping it removes it.
pub struct Scratch {
    folder: TempDir,
    _sweep: Sweep,
}

impl Scratch {
    /// Creates a folder; its name begins with `prefix`.
    pub fn create(prefix: &str) -> Scratch {
        let folder = tempfile::Builder::new()
            .prefix(prefix)
            .tempdir()
            .expect("a scratch folder");
        let sweep = Sweep::register(&format!("rm -rf {}", folder.path().display()));
        Scratch {
            folder,
            _sweep: sweep,
        }
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        self.folder.path()
    }
}
