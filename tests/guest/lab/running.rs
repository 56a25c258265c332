//! A program in the background.

use std::fs::File;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use super::{SOON, eventually};

/// Dropping it ends the program; the output is printed if the test has failed.
pub struct Running {
    child: Child,
    output: PathBuf,
    what: String,
}

impl Running {
    /// Starts the program. Both outputs go to the file `output`.
    pub(super) fn start(mut command: Command, output: PathBuf, what: String) -> Running {
        let out = File::create(&output).expect("a scratch file");
        let err = out.try_clone().expect("a scratch file");
        let child = command
            .stdin(Stdio::null())
            .stdout(out)
            .stderr(err)
            .spawn()
            .unwrap_or_else(|e| panic!("{what}: {e}"));
        Running {
            child,
            output,
            what,
        }
    }

    /// Output so far.
    pub fn output(&self) -> String {
        let output = std::fs::read(&self.output).expect("what it output");
        String::from_utf8_lossy(&output).into_owned()
    }

    /// Waits until the output contains `words`.
    pub fn await_output(&mut self, words: &str) {
        eventually(SOON, &format!("{:?} of {}", words, self.what), || {
            let ended = self.child.try_wait().expect("a child");
            let output = self.output();
            let found = output.contains(words);
            assert!(found || ended.is_none(), "{}: {output}", self.what);
            found.then_some(())
        });
    }

    /// Whether the program is running.
    pub fn is_running(&mut self) -> bool {
        self.child.try_wait().expect("a child").is_none()
    }

    /// Waits until the program ends by itself; returns its status and output.
    pub fn ends(&mut self, limit: Duration) -> (ExitStatus, String) {
        let status = eventually(limit, &format!("the end of {}", self.what), || {
            self.child.try_wait().expect("a child")
        });
        (status, self.output())
    }

    /// Waits until the program ends with success; returns its output.
    pub fn succeeds(&mut self, limit: Duration) -> String {
        let (status, output) = self.ends(limit);
        assert!(status.success(), "{}: {status}: {output}", self.what);
        output
    }

    /// Ends the program.
    pub fn end(&mut self) {
        // It may have ended by itself.
        let _ = kill_process(Pid::from_child(&self.child), Signal::TERM);
        let _ = self.child.wait();
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.end();
        if std::thread::panicking() {
            let output = self.output();
            let lines: Vec<_> = output.lines().collect();
            let tail = &lines[lines.len().saturating_sub(40)..];
            eprintln!("--- {}:\n{}", self.what, tail.join("\n"));
        }
    }
}
