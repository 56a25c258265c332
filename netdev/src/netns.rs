//! Network namespaces: where an interface is, and asking there.
//!
//! Nothing here is kept for longer than a question takes: whoever holds a socket or a descriptor of a
//! namespace keeps it alive after `ip netns del`, with its interfaces and addresses.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

/// Where iproute2 keeps named network namespaces (ip-netns(8)).
const NAMED: &str = "/run/netns";

/// The calling thread's, also in a process whose first thread is elsewhere.
const CURRENT: &str = "/proc/thread-self/ns/net";

/// A network namespace, kept alive by this.
#[derive(Debug)]
pub struct Namespace(OwnedFd);

impl Namespace {
    /// The calling thread's.
    ///
    /// # Errors
    /// Without `/proc`.
    pub fn current() -> io::Result<Namespace> {
        Ok(Namespace(File::open(CURRENT)?.into()))
    }

    /// The one that `ip netns add` made.
    ///
    /// # Errors
    /// [`io::ErrorKind::NotFound`] if there is none of that name.
    pub fn named(name: &str) -> io::Result<Namespace> {
        if name.is_empty() || name == "." || name == ".." || name.contains('/') {
            return Err(io::ErrorKind::NotFound.into());
        }
        Ok(Namespace(File::open(Path::new(NAMED).join(name))?.into()))
    }

    /// The one that a descriptor stands for.
    pub fn from_fd(fd: OwnedFd) -> Namespace {
        Namespace(fd)
    }

    /// Does something there: sockets that are made and files of `/proc/thread-self/net` that are
    /// opened meanwhile are of that namespace.
    ///
    /// # Errors
    /// If the thread may not enter it (CAP_SYS_ADMIN). What `ask` gives is lost if there is no way
    /// back, which cannot be but by a seccomp filter.
    pub fn visit<T>(&self, ask: impl FnOnce() -> T) -> io::Result<T> {
        let home = Namespace::current()?;
        self.enter()?;
        let answer = ask();
        home.enter()?;
        Ok(answer)
    }

    fn enter(&self) -> io::Result<()> {
        Ok(move_into_link_name_space(
            self.as_fd(),
            Some(LinkNameSpaceType::Network),
        )?)
    }
}

impl AsFd for Namespace {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
