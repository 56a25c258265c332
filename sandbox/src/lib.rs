//! What the threads of a daemon may do: capabilities, system calls and files.
//!
//! [`begin`] restricts the process before it makes threads: capabilities (capabilities(7)), `no_new_privs`, no
//! core dumps and no tracing, and a seccomp filter (seccomp(2)) that all later threads inherit. [`enter`] restricts
//! the calling thread further, for good: fewer capabilities, a filter for data threads, and Landlock
//! (landlock(7)). A thread that reads packets calls it before the first packet.
//!
//! The control thread calls [`enter`] after the start. Until then it may look at other processes, to name the
//! process that has a port or an interface; Landlock forbids that.
//!
//! Threads that use RDMA devices keep the rights of the control thread: the kernel accepts commands to a device only
//! with the credentials that opened it (include/rdma/ib.h, `ib_safe_file_access`), and changes of capabilities and
//! Landlock give a thread new credentials. For the same reason, a process with such devices calls [`enter`] for the
//! control thread before it opens the first.
//!
//! A filter refuses a system call with EPERM and a log line. It does not end the process: the call has no effect
//! in either case, and a newer C library may use other calls without stopping the network.

#![deny(unsafe_code)]

mod calls;
mod capabilities;
mod files;
mod filters;
mod refused;

use std::fmt;
use std::sync::OnceLock;

use landlock::RulesetCreated;

pub use files::{Access, Allowed};
use filters::Filters;

/// The kind of a thread.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Thread {
    /// The first thread.
    Control,
    /// A data thread of a port on an underlay.
    Data,
}

/// Filters and files of a process.
pub struct Confinement<'a> {
    /// The files and directories that the process uses after its start.
    pub files: &'a [Allowed],
    /// Writes a log line about a refused call. It runs in a signal handler: it must not allocate memory or lock.
    pub report: fn(fmt::Arguments<'_>),
}

struct Process {
    filters: Option<Filters>,
    files: Option<RulesetCreated>,
}

/// Set by [`begin`]; without it, [`enter`] changes nothing.
static PROCESS: OnceLock<Process> = OnceLock::new();

/// Restricts the process. Call it once, before the first thread is made. Without a confinement, the process has
/// fewer capabilities, and no filter and no Landlock; debuggers and core dumps work. `devices`: the process uses RDMA
/// devices, and keeps the capabilities for them.
///
/// A restriction that the kernel does not support is left out, with a log line.
pub fn begin(devices: bool, confinement: Option<Confinement<'_>>) {
    capabilities::begin(devices);
    let process = confinement.map_or(
        Process {
            filters: None,
            files: None,
        },
        |confinement| {
            capabilities::forbid_tracing();
            refused::report_to(confinement.report);
            Process {
                files: files::ruleset(confinement.files),
                filters: filters::begin(),
            }
        },
    );
    // A second call does not change the first.
    let _ = PROCESS.set(process);
}

/// Restricts the calling thread. Without [`begin`] before, as in tests, this does nothing.
pub fn enter(thread: Thread) {
    let Some(process) = PROCESS.get() else { return };
    capabilities::enter(thread);
    if let Some(files) = &process.files {
        files::enter(files, thread);
    }
    if let Some(filters) = &process.filters {
        filters.enter(thread);
    }
}
