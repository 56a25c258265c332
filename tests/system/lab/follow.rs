//! An `ibtap` that keeps running: its output so far, and its end.

use std::fs::File;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus};
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use super::{Host, SOON, eventually, programs};

/// Killed when dropped.
pub struct Follow {
    child: Child,
    out: PathBuf,
    err: PathBuf,
}

impl Follow {
    pub(super) fn start(host: &Host, words: &str) -> Follow {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let [out, err] = ["out", "err"].map(|kind| host.file(&format!("follow-{number}.{kind}")));
        let child = Command::new("setpriv")
            .args(["--pdeathsig", "KILL"])
            .arg(programs::ibtap())
            .arg("--socket")
            .arg(host.socket())
            .args(words.split_whitespace())
            .stdout(File::create(&out).expect("a file"))
            .stderr(File::create(&err).expect("a file"))
            .spawn()
            .expect("util-linux is installed");
        Follow { child, out, err }
    }

    /// Output so far.
    pub fn text(&self) -> String {
        std::fs::read_to_string(&self.out).expect("its output")
    }

    /// Errors so far.
    pub fn complaints(&self) -> String {
        std::fs::read_to_string(&self.err).expect("its errors")
    }

    /// The objects printed so far, one in each line.
    pub fn objects(&self) -> Vec<Value> {
        let text = self.text();
        let whole = text.rfind('\n').map_or("", |end| &text[..end]);
        let parse = |line| serde_json::from_str(line).unwrap_or_else(|e| panic!("{line}: {e}"));
        whole.lines().map(parse).collect()
    }

    /// Waits until one of its objects matches, and returns that object.
    pub fn await_object(&self, what: &str, found: impl Fn(&Value) -> bool) -> Value {
        eventually(SOON, what, || self.objects().into_iter().find(&found))
    }

    /// Sends a signal, and waits for the end.
    pub fn end_by(&mut self, signal: Signal) -> ExitStatus {
        kill_process(Pid::from_child(&self.child), signal).expect("a child");
        self.ended()
    }

    /// Waits for the end.
    pub fn ended(&mut self) -> ExitStatus {
        eventually(SOON, "ibtap to end", || {
            self.child.try_wait().expect("a child")
        })
    }
}

impl Drop for Follow {
    fn drop(&mut self) {
        // Either may fail because the process has ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
