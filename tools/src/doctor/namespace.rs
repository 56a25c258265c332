//! The network namespaces in which the daemon works and in which its interfaces are.

use std::fs::{self, File};
use std::io;
use std::os::fd::AsFd;

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use control::api::InterfaceInfo;

use super::finding::{Finding, Level};

/// The name of this check.
pub const CHECK: &str = "namespace";

/// Goes where the process is, with the calling thread and the programs that it starts. Says so if
/// that is another namespace than before, and fails if it may not.
pub fn enter(pid: u32) -> Option<Finding> {
    let theirs = format!("/proc/{pid}/ns/net");
    let subject = format!("process {pid}");
    let same = |a: &str, b: &str| Ok::<_, io::Error>(fs::read_link(a)? == fs::read_link(b)?);
    match same(&theirs, "/proc/thread-self/ns/net") {
        Ok(true) => return None,
        Ok(false) => {}
        Err(error) => {
            let found = format!("whether ibtapd works in this one cannot be seen: {error}");
            return Some(
                Finding::new(CHECK, Level::Note, subject, found)
                    .advise("if interfaces seem to be missing below, run this as root"),
            );
        }
    }
    Some(match join(&theirs) {
        Ok(()) => Finding::new(
            CHECK,
            Level::Note,
            subject,
            "ibtapd works in another network namespace; what follows was seen there",
        ),
        Err(error) => Finding::new(
            CHECK,
            Level::Fail,
            subject,
            format!("ibtapd works in another network namespace, which is closed: {error}"),
        )
        .advise("run this as root, outside containers or in that of the daemon"),
    })
}

/// An interface in a network namespace that could not be entered, so that the host's side of it was
/// not seen. One without a name cannot be.
pub fn closed(interface: &InterfaceInfo, netns: &str, error: &io::Error) -> Finding {
    let found = format!("the host's side of it in {netns} was not looked at: {error}");
    let advice = match error.kind() {
        io::ErrorKind::PermissionDenied => "run this as root, outside containers",
        _ => {
            "a namespace has to have a name for this: ip netns attach NAME PID, with a process that \
             is in it"
        }
    };
    Finding::new(CHECK, Level::Note, interface.qualified_name(), found).advise(advice)
}

fn join(path: &str) -> io::Result<()> {
    let file = File::open(path)?;
    move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network))?;
    Ok(())
}
