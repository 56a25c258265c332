//! Interfaces in other network namespaces.
//!
//! An interface can be in another network namespace than the daemon. All sockets of the daemon are in its
//! own namespace, and so are the TAPs' descriptors: the daemon creates a TAP in its own namespace and then
//! moves it. A descriptor or socket of another namespace would keep that namespace alive after `ip netns
//! del`.
//!
//! * **Events.** One rtnetlink socket receives the events of all namespaces that have a number (nsid) in
//!   the daemon's. Events and interfaces carry that number, because indexes and names are unique only
//!   within one namespace. A number does not keep a namespace alive.
//! * **Requests.** The TAP reports its namespace (TUNGETDEVNETNS). The control thread enters that
//!   namespace, sends requests over a new socket, over ethtool and `/proc/thread-self/net`, and returns.
//!   Requests for many interfaces enter each namespace once.
//! * **Moves.** The daemon finds a moved interface through its TAP, and reads it until namespace and name
//!   stay the same during the read. The namespace has its number before that, so no later change is missed.
//!   Late notifications from namespaces on the way match no interface.
//! * **Ends.** When a namespace is deleted, the kernel announces only the number (RTM_DELNSID), before the
//!   deletion of the interfaces. The daemon closes the interfaces that were there.
//! * **The next daemon** finds interfaces by their aliases in the namespaces of `ip netns`. Outside the
//!   daemon's namespace the alias has the port's GID, because other namespaces may have an `eth0`, too. The
//!   daemon writes the alias of a moved interface when the interface is set up, or after a second. The
//!   daemon moves a TAP to its own namespace for a moment to attach to it, and restores all its settings
//!   (`netdev/src/tap/adopt.rs`). Queues from a service manager need no move. A TAP that was created as a
//!   child in another namespace is left alone until it was unchanged for 100 ms: the next command of a
//!   script would not find it during the move.

use std::io;

use netdev::netns::{Namespace, NamespaceId};
use netdev::tap::{Tap, is_gone};
use rtnl::{Link, Requests};

use super::InterfaceError;

/// The network namespace of an interface.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct Place {
    /// The namespace's number in the daemon's (RTM_NEWNSID); `None`: the daemon's own.
    pub nsid: Option<i32>,
}

impl Place {
    /// The daemon's own namespace.
    pub const HOME: Place = Place { nsid: None };

    /// A deleted namespace; the kernel never uses this number.
    pub const NOWHERE: Place = Place { nsid: Some(-1) };
}

/// How often a read is repeated, if the interface moves or is renamed during the read.
const TRIES: usize = 16;

/// The result of [`locate`].
pub enum Found {
    /// Found in this namespace.
    There(Place, NamespaceId, Box<Link>),
    /// Found in this namespace, which the daemon cannot enter.
    Closed(Place, NamespaceId, io::Error),
    /// Deleted, or moved, and this kernel does not report where.
    Gone,
    /// The namespace is not known.
    Unknown(io::Error),
}

/// Finds the interface of a TAP in any namespace; `home` is the daemon's own.
pub fn locate(tap: &Tap, netlink: &mut Requests, home: NamespaceId) -> Found {
    let mut last = io::Error::from(io::ErrorKind::NotFound);
    for _ in 0..TRIES {
        let there = match tap.namespace() {
            Ok(there) => there,
            Err(e) if is_gone(&e) => return Found::Gone,
            Err(e) => return look_at_home(tap, netlink, home, e),
        };
        let namespace = match there.id() {
            Ok(namespace) => namespace,
            Err(e) => return Found::Unknown(e),
        };
        let place = if namespace == home {
            Place::HOME
        } else {
            match netlink.assign_nsid(&there) {
                Ok(number) => Place { nsid: Some(number) },
                Err(e) => return Found::Unknown(io::Error::other(e)),
            }
        };
        let read = |netlink: &mut Requests| {
            let name = tap.name()?;
            netlink.link_by_name(&name).map_err(io::Error::other)
        };
        let seen = match place {
            Place::HOME => Ok(read(netlink)),
            _ => visit(&there, read),
        };
        match seen {
            Err(e) => return Found::Closed(place, namespace, e),
            // Another interface may have its former name now.
            Ok(Ok(link)) if is_still(tap, namespace, &link.name) => {
                return Found::There(place, namespace, Box::new(link));
            }
            Ok(Ok(_)) => {}
            Ok(Err(e)) => last = e,
        }
    }
    Found::Unknown(last)
}

/// For kernels before 5.2, which do not report the namespace of a TAP: the interface is in the daemon's
/// namespace, or lost.
fn look_at_home(tap: &Tap, netlink: &mut Requests, home: NamespaceId, why: io::Error) -> Found {
    let link = tap.name().ok().map(|name| netlink.link_by_name(&name));
    match link {
        Some(Ok(link)) if link.tun.is_some() => Found::There(Place::HOME, home, Box::new(link)),
        Some(Err(e)) if !e.is_not_found() => Found::Unknown(io::Error::other(e)),
        _ => {
            log::debug!("cannot read an interface's network namespace: {why}");
            Found::Gone
        }
    }
}

/// Whether a TAP's namespace was deleted or is being deleted, and with it the TAP. Only for interfaces in another
/// namespace than the daemon's: kernels that do not report namespaces return the same error.
pub fn has_lost_namespace(tap: &Tap) -> bool {
    let is_ending = |e: &io::Error| is_gone(e) || e.raw_os_error() == Some(libc::EINVAL);
    tap.namespace().is_err_and(|e| is_ending(&e))
}

/// Whether an interface still is in that namespace with that name.
fn is_still(tap: &Tap, namespace: NamespaceId, name: &str) -> bool {
    let there = tap.namespace().and_then(|there| there.id());
    there.is_ok_and(|there| there == namespace) && tap.name().is_ok_and(|now| now == name)
}

/// Sends requests to the kernel in another namespace.
///
/// # Errors
/// The namespace cannot be entered (CAP_SYS_ADMIN), or no socket can be opened.
pub fn visit<T>(there: &Namespace, ask: impl FnOnce(&mut Requests) -> T) -> io::Result<T> {
    there
        .visit(|| Requests::new().map(|mut netlink| ask(&mut netlink)))?
        .map_err(io::Error::other)
}

/// The error for a `None` of [`super::Interface::inside`], for callers that return netlink errors.
pub fn unreachable(what: &str) -> rtnl::Error {
    rtnl::Error::Refused {
        what: what.to_owned(),
        errno: io::Error::from_raw_os_error(libc::ENODEV),
        reason: "; the interface is gone, or ibtapd cannot enter its network namespace".to_owned(),
    }
}

/// The error of a network namespace that cannot be entered; `netns` is its name in the configuration, if it has one.
pub fn closed(netns: Option<&str>, e: &std::io::Error) -> InterfaceError {
    InterfaceError::Netns(match netns {
        // While `ip netns` creates or removes a namespace, its file is empty.
        Some(name) if e.raw_os_error() == Some(libc::EINVAL) => {
            format!("{name} is not a network namespace; make it: ip netns add {name}")
        }
        _ => format!(
            "cannot enter {} ({e}); needs CAP_SYS_ADMIN",
            described(netns)
        ),
    })
}

/// Words for another network namespace than the daemon's; `netns` is its name in the configuration, if it has one.
pub(super) fn described(netns: Option<&str>) -> String {
    match netns {
        Some(name) => format!("the network namespace {name}"),
        None => "another network namespace".into(),
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    #[test]
    fn a_namespace_that_is_none_is_not_taken_for_a_lack_of_rights() {
        let text = |errno| closed(Some("blue"), &io::Error::from_raw_os_error(errno)).to_string();
        assert!(text(libc::EINVAL).starts_with("blue is not a network namespace"));
        assert!(text(libc::EPERM).contains("CAP_SYS_ADMIN"));
        let unnamed = closed(None, &io::Error::from_raw_os_error(libc::EPERM)).to_string();
        assert!(unnamed.starts_with("cannot enter another network namespace ("));
    }
}
