//! A running `ibtapd`, or another program with a readiness notification.

use std::ffi::OsStr;
use std::fs::File;
use std::io::ErrorKind;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use super::{Host, SOON, eventually, programs};

/// Killed when dropped; the log is printed if the test has failed.
pub struct Daemon {
    child: Child,
    log: PathBuf,
    name: &'static str,
    /// How often the start extended its time limit.
    pub extensions: usize,
}

impl Daemon {
    /// Starts the daemon and waits for its readiness notification (sd_notify(3)).
    pub(super) fn start(host: &Host, socket: &Path, options: &[&str]) -> Daemon {
        let (mut daemon, notify) = Daemon::spawn(host, socket, options);
        daemon.await_ready(&notify);
        daemon
    }

    /// The same for another program with exactly these options.
    pub(super) fn start_program(
        host: &Host,
        name: &'static str,
        program: &Path,
        options: &[&OsStr],
    ) -> Daemon {
        let (mut daemon, notify) = Daemon::spawn_program(host, name, program, options);
        daemon.await_ready(&notify);
        daemon
    }

    /// Starts the program without waiting; also returns the socket of its notifications.
    fn spawn(host: &Host, socket: &Path, options: &[&str]) -> (Daemon, UnixDatagram) {
        let mut all = vec![OsStr::new("--socket"), socket.as_os_str()];
        all.extend(options.iter().map(OsStr::new));
        Daemon::spawn_program(host, "ibtapd", programs::ibtapd(), &all)
    }

    fn spawn_program(
        host: &Host,
        name: &'static str,
        program: &Path,
        options: &[&OsStr],
    ) -> (Daemon, UnixDatagram) {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let notify = host.file(&format!("notify-{number}.sock"));
        let log = host.file(&format!("{name}-{number}.log"));
        let notified = UnixDatagram::bind(&notify).expect("a notification socket");
        notified
            .set_read_timeout(Some(Duration::from_millis(100)))
            .expect("a timeout");
        // setpriv and ip replace themselves with the program: the child is the daemon itself. It ends with
        // this test, also if the test is killed.
        let child = Command::new("setpriv")
            .args(["--pdeathsig", "KILL", "ip", "netns", "exec"])
            .arg(host.namespace().name())
            .arg(program)
            .args(options)
            .env("NOTIFY_SOCKET", &notify)
            .stderr(File::create(&log).expect("a log file"))
            .spawn()
            .expect("util-linux is installed");
        let daemon = Daemon {
            child,
            log,
            name,
            extensions: 0,
        };
        (daemon, notified)
    }

    /// Starts the daemon and waits until its log contains `words`, which may be before it is ready.
    pub(super) fn start_until(host: &Host, socket: &Path, options: &[&str], words: &str) -> Daemon {
        let (mut daemon, _) = Daemon::spawn(host, socket, options);
        eventually(SOON, &format!("{words:?} in the log"), || {
            assert!(daemon.is_running(), "it ended: {}", daemon.log());
            daemon.log().contains(words).then_some(())
        });
        daemon
    }

    fn await_ready(&mut self, socket: &UnixDatagram) {
        let mut end = Instant::now() + Host::READY;
        let mut message = [0; 4096];
        loop {
            match socket.recv(&mut message) {
                Ok(n) => {
                    let text = String::from_utf8_lossy(&message[..n]);
                    for line in text.lines() {
                        match line.split_once('=') {
                            Some(("READY", "1")) => return,
                            // As systemd does.
                            Some(("EXTEND_TIMEOUT_USEC", time)) => {
                                let time = time.parse().expect("a number");
                                end = end.max(Instant::now() + Duration::from_micros(time));
                                self.extensions += 1;
                            }
                            _ => {}
                        }
                    }
                }
                Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
                Err(e) => panic!("the notification socket: {e}"),
            }
            if let Some(status) = self.child.try_wait().expect("a child") {
                panic!("{} ended with {status}", self.name);
            }
            assert!(
                Instant::now() < end,
                "{} did not say that it is ready",
                self.name
            );
        }
    }

    /// Process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The log so far.
    pub fn log(&self) -> String {
        std::fs::read_to_string(&self.log).expect("its log")
    }

    /// Resident memory in KiB.
    pub fn resident_kib(&self) -> u64 {
        let path = format!("/proc/{}/status", self.pid());
        let status = std::fs::read_to_string(path).expect("it is alive");
        let line = status
            .lines()
            .find_map(|line| line.strip_prefix("VmRSS:"))
            .expect("a line of proc_pid_status(5)");
        let number = line.split_whitespace().next().expect("a number");
        number.parse().expect("a number")
    }

    /// Whether the process is running.
    pub fn is_running(&mut self) -> bool {
        self.child.try_wait().expect("a child").is_none()
    }

    /// Sends a signal, and waits for the end.
    pub fn end_by(&mut self, signal: Signal) -> ExitStatus {
        kill_process(Pid::from_child(&self.child), signal).expect("a child");
        eventually(SOON, &format!("{} to end", self.name), || {
            self.child.try_wait().expect("a child")
        })
    }

    /// Sends SIGKILL, and waits for the end.
    pub(super) fn kill(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let log = std::fs::read_to_string(&self.log).unwrap_or_default();
        if std::thread::panicking() {
            let lines: Vec<_> = log.lines().collect();
            let tail = &lines[lines.len().saturating_sub(40)..];
            eprintln!(
                "--- log of {} {}:\n{}",
                self.name,
                self.pid(),
                tail.join("\n")
            );
        }
        self.kill();
        assert_nothing_refused(&log);
    }
}

/// No daemon of any test makes a system call that its filters refuse.
pub(super) fn assert_nothing_refused(log: &str) {
    let refused = log
        .lines()
        .find(|line| line.contains("refused system call"));
    assert!(refused.is_none() || std::thread::panicking(), "{refused:?}");
}
