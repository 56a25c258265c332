//! A program that runs beside the test.

use std::fs::File;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use super::eventually;

/// It is ended when this value goes; what it said is printed when the test has failed.
pub struct Running {
    child: Child,
    said: PathBuf,
    what: String,
}

/// How long the end of a program may take.
const END: Duration = Duration::from_secs(20);

impl Running {
    /// Starts it. Both of its outputs go to a file, `said`.
    pub(super) fn start(mut command: Command, said: PathBuf, what: String) -> Running {
        let out = File::create(&said).expect("a scratch file");
        let err = out.try_clone().expect("a scratch file");
        let child = command
            .stdin(Stdio::null())
            .stdout(out)
            .stderr(err)
            .spawn()
            .unwrap_or_else(|e| panic!("{what}: {e}"));
        Running { child, said, what }
    }

    /// What it has said so far.
    pub fn said(&self) -> String {
        let said = std::fs::read(&self.said).expect("what it said");
        String::from_utf8_lossy(&said).into_owned()
    }

    /// Waits until it has said these words.
    pub fn says(&mut self, words: &str) {
        eventually(END, &format!("{:?} of {}", words, self.what), || {
            let ended = self.child.try_wait().expect("a child");
            let said = self.said();
            let found = said.contains(words);
            assert!(found || ended.is_none(), "{}: {said}", self.what);
            found.then_some(())
        });
    }

    /// Whether it is still there.
    pub fn is_running(&mut self) -> bool {
        self.child.try_wait().expect("a child").is_none()
    }

    /// Waits for its end, which must come by itself in time; gives back what it said.
    pub fn ends(&mut self, limit: Duration) -> (ExitStatus, String) {
        let status = eventually(limit, &format!("the end of {}", self.what), || {
            self.child.try_wait().expect("a child")
        });
        (status, self.said())
    }

    /// Waits for its end, which must be a success; gives back what it said.
    pub fn succeeds(&mut self, limit: Duration) -> String {
        let (status, said) = self.ends(limit);
        assert!(status.success(), "{}: {status}: {said}", self.what);
        said
    }

    /// Ends it.
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
            let said = self.said();
            let lines: Vec<_> = said.lines().collect();
            let tail = &lines[lines.len().saturating_sub(40)..];
            eprintln!("--- {}:\n{}", self.what, tail.join("\n"));
        }
    }
}
