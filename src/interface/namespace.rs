//! Where interfaces are: they may move to other network namespaces, and work on there.
//!
//! An interface can be in another network namespace than the daemon. All sockets of the daemon are
//! in its own namespace, and so are the TAPs' descriptors: the daemon creates a TAP there and then
//! moves it. A descriptor or socket of another namespace would keep that namespace alive after `ip
//! netns del`.
//!
//! * **Events.** One rtnetlink socket listens to all namespaces that have a number (nsid) in the
//!   daemon's. Events and interfaces carry that number, because indexes and names are unique in one
//!   namespace only. Numbers keep nothing alive.
//! * **Requests.** The TAP reports its namespace (TUNGETDEVNETNS). The control thread enters that
//!   namespace, sends requests over a new socket, over ethtool and `/proc/thread-self/net`, and
//!   returns. Requests for many interfaces enter each namespace once.
//! * **Moves.** The daemon looks for a moved interface through its TAP until namespace and name
//!   stay the same during the read. The namespace has its number before that, so no later change is
//!   missed; late news of namespaces on the way match no interface.
//! * **Ends.** When a namespace goes, the kernel announces only the number (RTM_DELNSID) and closes
//!   the TAPs' queues; the data threads see it.
//! * **The next daemon** finds interfaces by their aliases in the namespaces of `ip netns`. Outside
//!   the daemon's namespace the alias has the port's GID, because other namespaces may have an
//!   `eth0`, too. The daemon moves a TAP home for a moment to attach to it, and restores all its
//!   settings (`netdev/src/tap/adopt.rs`). Queues from a service manager need no move. A TAP
//!   created as a child in another namespace is left alone until it was unchanged for 100 ms: the
//!   next command of a script would not find it during the move.

use std::io;

use netdev::netns::{Namespace, NamespaceId};
use netdev::tap::{Tap, is_gone};
use rtnl::{Link, Requests};

use super::InterfaceError;

/// The network namespace of an interface.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct Place {
    /// What the daemon's own namespace calls it (RTM_NEWNSID); `None`: it is the daemon's own.
    pub nsid: Option<i32>,
}

impl Place {
    /// The daemon's own namespace.
    pub const HOME: Place = Place { nsid: None };

    /// A namespace that is no more; the kernel gives no such number.
    pub const NOWHERE: Place = Place { nsid: Some(-1) };
}

/// How often an interface is looked for that moves on, or gets another name, just then.
const TRIES: usize = 16;

/// What looking for an interface found.
pub enum Found {
    /// It is there, and its namespace's number in ours.
    There(Place, NamespaceId, Box<Link>),
    /// It is there, but the daemon may not go there.
    Closed(Place, NamespaceId, io::Error),
    /// It was deleted, or went where this kernel does not tell.
    Gone,
    /// It cannot be told where it is.
    Unknown(io::Error),
}

/// Looks for the interface of a TAP, wherever it is now; `home` is the daemon's own namespace.
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
            // Another interface may have its former name by now.
            Ok(Ok(link)) if is_still(tap, namespace, &link.name) => {
                return Found::There(place, namespace, Box::new(link));
            }
            Ok(Ok(_)) => {}
            Ok(Err(e)) => last = e,
        }
    }
    Found::Unknown(last)
}

/// For kernels before 5.2, which do not tell where an interface is: it is here, or lost.
fn look_at_home(tap: &Tap, netlink: &mut Requests, home: NamespaceId, why: io::Error) -> Found {
    let link = tap.name().ok().map(|name| netlink.link_by_name(&name));
    match link {
        Some(Ok(link)) if link.tun.is_some() => Found::There(Place::HOME, home, Box::new(link)),
        Some(Err(e)) if !e.is_not_found() => Found::Unknown(io::Error::other(e)),
        _ => {
            log::debug!("where an interface is: {why}");
            Found::Gone
        }
    }
}

/// Whether an interface still is in that namespace and has that name.
fn is_still(tap: &Tap, namespace: NamespaceId, name: &str) -> bool {
    let there = tap.namespace().and_then(|there| there.id());
    there.is_ok_and(|there| there == namespace) && tap.name().is_ok_and(|now| now == name)
}

/// Asks the kernel in another namespace.
///
/// # Errors
/// If it cannot be entered (CAP_SYS_ADMIN), or there is no socket.
pub fn visit<T>(there: &Namespace, ask: impl FnOnce(&mut Requests) -> T) -> io::Result<T> {
    there
        .visit(|| Requests::new().map(|mut netlink| ask(&mut netlink)))?
        .map_err(io::Error::other)
}

/// What [`super::Interface::inside`] means by `None`, for callers that tell of netlink errors.
pub fn unreachable(what: &str) -> rtnl::Error {
    rtnl::Error::Refused {
        what: what.to_owned(),
        errno: io::Error::from_raw_os_error(libc::ENODEV),
        reason: "; the interface is gone, or its network namespace cannot be entered".to_owned(),
    }
}

/// A network namespace could not be entered.
pub fn closed(netns: Option<&str>, e: &std::io::Error) -> InterfaceError {
    let name = netns.unwrap_or_default();
    // What `ip netns` is still making, or has half removed, is an empty file.
    if e.raw_os_error() == Some(libc::EINVAL) {
        return InterfaceError::Netns(format!(
            "{name} is no network namespace (any more); make it: ip netns add {name}"
        ));
    }
    InterfaceError::Netns(format!(
        "the network namespace {name} cannot be entered ({e}); that takes CAP_SYS_ADMIN"
    ))
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    #[test]
    fn a_namespace_that_is_none_is_not_taken_for_a_lack_of_rights() {
        let said = |errno| closed(Some("blue"), &io::Error::from_raw_os_error(errno)).to_string();
        assert!(said(libc::EINVAL).starts_with("blue is no network namespace"));
        assert!(said(libc::EPERM).contains("CAP_SYS_ADMIN"));
    }
}
