//! A daemon under a service manager that keeps its descriptors (`service_manager.py`).

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};

use rustix::process::{Pid, Signal, kill_process};

use super::daemon::assert_nothing_refused;
use super::{Host, SOON, eventually, programs};

/// Dropping it ends the manager, the daemon and the descriptors.
pub struct Service {
    manager: Child,
    events: PathBuf,
    log: PathBuf,
}

impl Service {
    /// Starts a manager that keeps up to `store` descriptors, with a daemon; waits until the daemon is ready.
    pub(super) fn start(host: &Host, store: usize, options: &[&str]) -> Service {
        Service::start_after(host, store, programs::ibtapd(), &[], || {}, options)
    }

    /// See [`Host::start_service_after`].
    pub(super) fn start_after(
        host: &Host,
        store: usize,
        daemon: &Path,
        left: &[String],
        prepare: impl FnOnce(),
        options: &[&str],
    ) -> Service {
        let events = host.file("service.events");
        let log = host.file("service.log");
        let script =
            Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/system/lab/service_manager.py");
        let go = host.file("service.go");
        let manager = Command::new("setpriv")
            .args(["--pdeathsig", "KILL", "ip", "netns", "exec"])
            .arg(host.namespace().name())
            .args(["env".to_owned(), format!("LEFT={}", left.join(":"))])
            .arg(format!("GO={}", go.display()))
            .args(["python3".as_ref(), script.as_os_str()])
            .arg(host.file("service.notify"))
            .args([store.to_string().as_str(), "0.1"])
            // It ends with its manager in any case.
            .args(["setpriv", "--pdeathsig", "KILL"])
            .arg(daemon)
            .arg("--socket")
            .arg(host.socket())
            .args(options)
            .stdout(File::create(&events).expect("a file"))
            .stderr(File::create(&log).expect("a file"))
            .spawn()
            .expect("python3 and util-linux are installed");
        let service = Service {
            manager,
            events,
            log,
        };
        service.await_count("left", left.len());
        prepare();
        File::create(&go).expect("a file");
        service.await_count("ready", 1);
        service
    }

    /// The manager's lines that start with `what`.
    pub fn events(&self, what: &str) -> Vec<String> {
        let text = std::fs::read_to_string(&self.events).expect("its events");
        let lines = text.lines().filter(|line| line.starts_with(what));
        lines.map(str::to_owned).collect()
    }

    /// The log of all daemons so far.
    pub fn log(&self) -> String {
        std::fs::read_to_string(&self.log).expect("its log")
    }

    /// Process id of the last daemon.
    pub fn pid(&self) -> u32 {
        let started = self.events("started");
        let last = started.last().and_then(|line| line.split(' ').nth(1));
        last.and_then(|pid| pid.parse().ok()).expect("a process id")
    }

    /// Ends the daemon by a signal, and waits until the next one is ready.
    pub fn restart_by(&self, signal: Signal) {
        let starts = self.events("started").len();
        let pid = Pid::from_raw(self.pid() as i32).expect("a process id");
        kill_process(pid, signal).expect("it is alive");
        self.await_count("started", starts + 1);
        // A reload also notifies readiness.
        eventually(SOON, "the next daemon to be ready", || {
            let all = self.events("");
            let started = all.iter().rposition(|line| line.starts_with("started"))?;
            let ready = |line: &String| line.starts_with("ready");
            all[started..].iter().any(ready).then_some(())
        });
    }

    /// Waits for the `count`th line that starts with `what`.
    pub fn await_count(&self, what: &str, count: usize) {
        eventually(SOON, &format!("{count} times {what:?}"), || {
            (self.events(what).len() >= count).then_some(())
        });
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let read = |path| std::fs::read_to_string(path).unwrap_or_default();
            eprintln!("--- the service manager:\n{}", read(&self.events));
            eprintln!("--- its daemons:\n{}", read(&self.log));
        }
        // The daemon ends with it.
        let _ = self.manager.kill();
        let _ = self.manager.wait();
        assert_nothing_refused(&std::fs::read_to_string(&self.log).unwrap_or_default());
    }
}
