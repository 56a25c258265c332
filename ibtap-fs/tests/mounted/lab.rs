//! A running `ibtap-fs` on its own directory.

use std::io::{self, ErrorKind};
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

/// Time limit for operations that take a moment.
pub const SOON: Duration = Duration::from_secs(15);

/// Directories of a test.
pub struct Lab {
    scratch: TempDir,
}

impl Lab {
    /// `None`, with a message, if mounting is impossible.
    pub fn new() -> Option<Lab> {
        let is_usable = rustix::process::geteuid().is_root()
            && std::fs::File::options()
                .read(true)
                .write(true)
                .open("/dev/fuse")
                .is_ok();
        if !is_usable {
            kit::skip("mounting needs root and /dev/fuse");
            return None;
        }
        let scratch = tempfile::Builder::new()
            .prefix("ibtap fs ")
            .tempdir()
            .unwrap();
        let lab = Lab { scratch };
        std::fs::create_dir(lab.root()).unwrap();
        // Other users need access.
        let modes = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(lab.scratch.path(), modes).unwrap();
        Some(lab)
    }

    pub fn socket(&self) -> PathBuf {
        self.scratch.path().join("ibtapd.sock")
    }

    /// The mount point. (The table of mounts escapes blanks.)
    pub fn root(&self) -> PathBuf {
        self.scratch.path().join("mount point")
    }

    pub fn command(&self, mountpoint: &Path) -> Command {
        let mut command = self.program("-all,+sys_admin,+sys_ptrace");
        command.arg(mountpoint);
        command
    }

    /// The program with these capabilities, no others.
    fn program(&self, capabilities: &str) -> Command {
        // The process ends with the test, also if the test is killed.
        let mut command = Command::new("setpriv");
        command
            .args(["--pdeathsig", "TERM", "--no-new-privs", "--inh-caps=-all"])
            .arg(format!("--bounding-set={capabilities}"))
            .arg(env!("CARGO_BIN_EXE_ibtap-fs"))
            .arg("--socket")
            .arg(self.socket());
        command
    }

    /// The program in a mount namespace of its own, with the rights of systemd/ibtap-fs.service: it cannot mount.
    pub fn taker(&self) -> Mounted {
        let mut program = self.program("-all,+sys_ptrace");
        program.arg("--take").arg(self.handover());
        let mut command = Command::new("unshare");
        command.args(["--mount", "--propagation", "private"]);
        command.arg(program.get_program()).args(program.get_args());
        self.ready(&mut command)
    }

    /// Mounts and hands the mount to the [`Lab::taker`].
    pub fn give(&self) -> Output {
        let mut command = self.command(&self.root());
        command.arg("--give").arg(self.handover());
        command.output().unwrap()
    }

    pub fn handover(&self) -> PathBuf {
        self.scratch.path().join("handover.sock")
    }

    /// Runs a program that is expected to end by itself.
    pub fn refused(&self, mountpoint: &Path) -> Output {
        self.command(mountpoint).output().unwrap()
    }

    /// Starts the program and waits until it is ready.
    pub fn mount(&self) -> Mounted {
        self.ready(&mut self.command(&self.root()))
    }

    fn ready(&self, command: &mut Command) -> Mounted {
        let notify = self.scratch.path().join("notify.sock");
        // A second instance uses the notification socket of the first.
        let _ = std::fs::remove_file(&notify);
        let ready = UnixDatagram::bind(&notify).unwrap();
        ready
            .set_read_timeout(Some(Duration::from_millis(100)))
            .unwrap();
        let child = command
            .env("NOTIFY_SOCKET", &notify)
            .stderr(Stdio::inherit())
            .spawn()
            .unwrap();
        let mut mounted = Mounted {
            child,
            root: self.root(),
            _notified: ready.try_clone().unwrap(),
        };
        let mut message = [0; 100];
        let n = eventually("readiness", || match ready.recv(&mut message) {
            Ok(n) => Some(n),
            Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                assert!(mounted.ended().is_none(), "it ended");
                None
            }
            Err(e) => panic!("{e}"),
        });
        assert_eq!(message[..n].trim_ascii_end(), b"READY=1");
        mounted
    }
}

/// A running `ibtap-fs`; dropping it ends and unmounts it.
pub struct Mounted {
    child: Child,
    root: PathBuf,
    /// Socket of its notifications.
    _notified: UnixDatagram,
}

impl Mounted {
    /// A file or directory in the mount.
    pub fn path(&self, path: &str) -> PathBuf {
        self.root.join(path)
    }

    /// The whole contents of a file.
    pub fn read(&self, path: &str) -> String {
        self.try_read(path)
            .unwrap_or_else(|e| panic!("{path}: {e}"))
    }

    pub fn try_read(&self, path: &str) -> io::Result<String> {
        std::fs::read_to_string(self.path(path))
    }

    /// The error number of reading a file.
    pub fn read_error(&self, path: &str) -> i32 {
        self.try_read(path).unwrap_err().raw_os_error().unwrap()
    }

    /// Writes in one piece, like `echo`. Returns the error number.
    pub fn write(&self, path: &str, text: &str) -> Result<(), i32> {
        std::fs::write(self.path(path), text).map_err(|e| e.raw_os_error().unwrap())
    }

    /// The names in a directory, in their order.
    pub fn list(&self, path: &str) -> Vec<String> {
        let entries = std::fs::read_dir(self.path(path)).unwrap();
        entries
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect()
    }

    /// Runs a shell command; `$M` is the mount point.
    pub fn shell(&self, user: &[&str], line: &str) -> Output {
        let mut words = user.iter().copied().chain(["sh", "-c", line]);
        Command::new(words.next().unwrap())
            .args(words)
            .env("M", &self.root)
            .output()
            .unwrap()
    }

    pub fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().unwrap()
    }

    pub fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// Waits until the process ends by itself.
    pub fn await_end(&mut self) -> ExitStatus {
        eventually("its end", || self.ended())
    }

    /// Whether an `ibtap-fs` is mounted there, live or dead.
    pub fn is_mounted(&self) -> bool {
        let point = self.root.to_str().unwrap().replace(' ', "\\040");
        let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap();
        mounts
            .lines()
            .any(|line| line.contains(&format!(" {point} fuse.ibtap ")))
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        // Either may fail: the process may have ended, and the mount may be gone.
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = Command::new("umount").arg("-lq").arg(&self.root).output();
    }
}

/// Polls until there is an answer.
pub fn eventually<T>(what: &str, mut ask: impl FnMut() -> Option<T>) -> T {
    let end = Instant::now() + SOON;
    loop {
        if let Some(answer) = ask() {
            return answer;
        }
        assert!(Instant::now() < end, "no {what} after {SOON:?}");
        std::thread::sleep(Duration::from_millis(20));
    }
}
