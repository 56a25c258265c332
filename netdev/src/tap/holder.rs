//! Finds the process that holds a TAP. The driver reports the TAP in the file information of each open
//! queue (kernel drivers/net/tun.c, tun_chr_show_fdinfo; proc_pid_fdinfo(5)).

use std::fmt;
use std::fs;
use std::path::Path;

/// The holder of a TAP.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Holder {
    /// A known process.
    Process {
        /// The process id.
        pid: u32,
        /// The command name.
        command: String,
    },
    /// A process that this one may not inspect, or that released the TAP a moment ago.
    Unknown,
    /// Another process. It was not searched, because that means reading all of `/proc`.
    Unsought,
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Holder::Process { pid, command } => write!(f, "process {pid} ({command})"),
            Holder::Unsought => f.write_str("another process"),
            Holder::Unknown => f.write_str(
                "another process, which cannot be seen from here (as root, \
                 `grep -ls ^iff: /proc/[0-9]*/fdinfo/*` lists those that hold TAPs)",
            ),
        }
    }
}

/// Searches the processes of the calling thread's network namespace for the holder of the TAP `name`. The
/// file information does not name the TAP's namespace, and a process of another namespace may hold a TAP of
/// the same name; such processes are never reported.
pub(super) fn holder_of(name: &str) -> Holder {
    let wanted = format!("iff:\t{name}");
    let Ok(here) = fs::read_link("/proc/thread-self/ns/net") else {
        return Holder::Unknown;
    };
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    for process in processes {
        let Some(pid) = process.file_name().to_str().and_then(|n| n.parse().ok()) else {
            continue;
        };
        if is_in(&process.path(), &here) && holds(&process.path(), &wanted) {
            let command = fs::read_to_string(process.path().join("comm")).unwrap_or_default();
            return Holder::Process {
                pid,
                command: command.trim_end().to_owned(),
            };
        }
    }
    Holder::Unknown
}

/// Whether a thread of the process is in the network namespace linked from `ns/net`.
fn is_in(process: &Path, namespace: &Path) -> bool {
    let threads = fs::read_dir(process.join("task")).into_iter().flatten();
    threads
        .flatten()
        .any(|thread| fs::read_link(thread.path().join("ns/net")).is_ok_and(|ns| ns == namespace))
}

fn holds(process: &Path, wanted: &str) -> bool {
    let descriptors = fs::read_dir(process.join("fd")).into_iter().flatten();
    descriptors.flatten().any(|descriptor| {
        // The link first: reading the file information of all files would call every driver.
        fs::read_link(descriptor.path()).is_ok_and(|target| target == Path::new(super::DEVICE))
            && fs::read_to_string(process.join("fdinfo").join(descriptor.file_name()))
                .is_ok_and(|info| info.lines().any(|line| line == wanted))
    })
}
