//! Network namespaces of the daemon and of its interfaces.

use std::fs::{self, File};
use std::io;
use std::os::fd::AsFd;

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use control::api::InterfaceInfo;

use super::finding::{Finding, Level};

/// The name of this check.
pub const CHECK: &str = "namespace";

/// Moves the calling thread, and the programs that it starts, to the network namespace of a process. The
/// finding reports a change of the namespace, or an error.
pub fn enter(pid: u32) -> Option<Finding> {
    let theirs = format!("/proc/{pid}/ns/net");
    let subject = format!("process {pid}");
    let same = |a: &str, b: &str| Ok::<_, io::Error>(fs::read_link(a)? == fs::read_link(b)?);
    match same(&theirs, "/proc/thread-self/ns/net") {
        Ok(true) => return None,
        Ok(false) => {}
        Err(error) => {
            let found = format!("cannot read the namespace of ibtapd: {error}");
            return Some(
                Finding::new(CHECK, Level::Note, subject, found)
                    .advise("if interfaces are missing below, run this as root"),
            );
        }
    }
    Some(match join(&theirs) {
        Ok(()) => Finding::new(
            CHECK,
            Level::Note,
            subject,
            "ibtapd runs in another network namespace; the checks below are made there",
        ),
        Err(error) => Finding::new(
            CHECK,
            Level::Fail,
            subject,
            format!("cannot enter the network namespace of ibtapd: {error}"),
        )
        .advise("run this as root, outside containers or in the container of the daemon"),
    })
}

/// The finding for an interface in a network namespace that cannot be entered, such as a namespace without a
/// name.
pub fn closed(interface: &InterfaceInfo, netns: &str, error: &io::Error) -> Finding {
    let found =
        format!("its host side was not checked, cannot enter the namespace {netns}: {error}");
    let advice = match error.kind() {
        io::ErrorKind::PermissionDenied => "run this as root, outside containers",
        _ => "give the namespace a name: ip netns attach NAME PID, with a process of the namespace",
    };
    Finding::new(CHECK, Level::Note, interface.qualified_name(), found).advise(advice)
}

fn join(path: &str) -> io::Result<()> {
    let file = File::open(path)?;
    move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network))?;
    Ok(())
}
