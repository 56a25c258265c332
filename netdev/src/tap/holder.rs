//! Which process holds a TAP: the driver says so in the file information of each open queue
//! (kernel drivers/net/tun.c, tun_chr_show_fdinfo; proc_pid_fdinfo(5)).

use std::fmt;
use std::fs;
use std::path::Path;

/// Who holds a TAP.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Holder {
    /// This process.
    Process {
        /// Its process id.
        pid: u32,
        /// Its command name.
        command: String,
    },
    /// A process that this one may not look into, or one that let go a moment ago.
    Unknown,
    /// Another process; which one was not looked for, since that takes reading all of `/proc`.
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

/// Looks through the processes of the calling thread's network namespace for one that has the TAP
/// `name` open. The file information does not say which namespace the TAP is in, so a process of
/// another one, which may well hold a TAP of the same name there, is never taken for the holder.
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

/// Whether a thread of the process is in the network namespace that `ns/net` links to.
fn is_in(process: &Path, namespace: &Path) -> bool {
    let threads = fs::read_dir(process.join("task")).into_iter().flatten();
    threads
        .flatten()
        .any(|thread| fs::read_link(thread.path().join("ns/net")).is_ok_and(|ns| ns == namespace))
}

fn holds(process: &Path, wanted: &str) -> bool {
    let descriptors = fs::read_dir(process.join("fd")).into_iter().flatten();
    descriptors.flatten().any(|descriptor| {
        // The link first: reading every file's information would wake every driver.
        fs::read_link(descriptor.path()).is_ok_and(|target| target == Path::new(super::DEVICE))
            && fs::read_to_string(process.join("fdinfo").join(descriptor.file_name()))
                .is_ok_and(|info| info.lines().any(|line| line == wanted))
    })
}
