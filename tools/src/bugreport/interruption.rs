//! Ctrl-C or the end of the terminal during a report: neither half an archive nor a running program stays.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

use control::signals::{SIGHUP, SIGINT, SIGTERM, Signals};
use rustix::process::{Pid, Signal, kill_process_group};

use crate::follow::catch;
use crate::output::Failure;

/// The signals that interrupt a report.
///
/// # Errors
/// Errors of the operating system.
pub fn signals() -> Result<Signals, Failure> {
    let all = [SIGINT, SIGTERM, SIGHUP];
    // Under nohup(1), a report goes on.
    let ends = if ignores_hang_up() { &all[..2] } else { &all };
    catch(ends)
}

/// Whether SIGHUP, signal 1, is ignored (proc_pid_status(5)).
fn ignores_hang_up() -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    mask.is_some_and(|mask| mask & 1 != 0)
}

/// What an interruption ends.
#[derive(Debug, Default)]
pub struct Unfinished(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    archive: Option<PathBuf>,
    /// The process group of the program that runs.
    group: Option<Pid>,
}

impl Unfinished {
    /// From now on, a signal ends this process.
    pub fn watch(mut signals: Signals) -> Arc<Unfinished> {
        let all = Arc::new(Unfinished::default());
        let watched = Arc::clone(&all);
        thread::spawn(move || {
            if signals.wait().is_err() {
                return;
            }
            // The lock stays until the end: no other program starts.
            let mut state = watched.lock();
            state.kill();
            let what = match state.remove() {
                true => "interrupted; there is no archive",
                false => "interrupted",
            };
            std::process::exit(Failure::System(what.to_owned()).report().into());
        });
        all
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Creates the archive.
    ///
    /// # Errors
    /// The file exists, or cannot be created.
    pub fn create(&self, path: &Path) -> io::Result<File> {
        let mut state = self.lock();
        let file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(path)?;
        state.archive = Some(path.to_owned());
        Ok(file)
    }

    /// The archive is complete and stays.
    pub fn keep(&self) {
        self.lock().archive = None;
    }

    /// Removes half an archive, which is of no use. If that fails, the next run says that the file exists.
    pub fn remove(&self) {
        self.lock().remove();
    }

    /// Starts a program, which leads a process group.
    ///
    /// # Errors
    /// Errors of the operating system.
    pub fn start(&self, program: &mut Command) -> io::Result<Child> {
        let mut state = self.lock();
        let child = program.spawn()?;
        state.group = Some(Pid::from_child(&child));
        Ok(child)
    }

    /// The exit status of the program, if the program has ended.
    ///
    /// # Errors
    /// Errors of the operating system.
    pub fn status(&self, child: &mut Child) -> io::Result<Option<ExitStatus>> {
        let mut state = self.lock();
        let status = child.try_wait()?;
        if status.is_some() {
            // Another process may get the number.
            state.group = None;
        }
        Ok(status)
    }

    /// Kills the program and the programs that it has started. A program that cannot be killed, such as one that
    /// waits for a disk, stays.
    pub fn kill(&self, child: &mut Child) {
        self.lock().kill();
        let _ = self.status(child);
    }
}

impl State {
    fn kill(&mut self) {
        if let Some(group) = self.group.take() {
            // It may have ended just now.
            let _ = kill_process_group(group, Signal::KILL);
        }
    }

    fn remove(&mut self) -> bool {
        let archive = self.archive.take();
        archive.is_some_and(|path| fs::remove_file(path).is_ok())
    }
}
