//! Network namespaces: identify, enter, list.
//!
//! Keep a [`Namespace`] no longer than necessary: a socket or descriptor of a namespace keeps it alive
//! after `ip netns del`, with its interfaces and addresses.

use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

/// The directory of iproute2's named network namespaces (ip-netns(8)).
const NAMED: &str = "/run/netns";

/// The calling thread's namespace, which may differ from the first thread's.
const CURRENT: &str = "/proc/thread-self/ns/net";

/// A descriptor of a network namespace; it keeps the namespace alive.
#[derive(Debug)]
pub struct Namespace(OwnedFd);

/// The identity of a network namespace. It does not keep the namespace alive; the kernel may reuse it
/// later.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct NamespaceId {
    /// The device number of the kernel's file system of namespaces.
    pub device: u64,
    /// The inode number, as shown by `lsns` and `readlink /proc/PID/ns/net`.
    pub inode: u64,
}

impl Namespace {
    /// The calling thread's namespace.
    ///
    /// # Errors
    /// `/proc` is not mounted.
    pub fn current() -> io::Result<Namespace> {
        Ok(Namespace(File::open(CURRENT)?.into()))
    }

    /// The namespace with this name, made by `ip netns add`.
    ///
    /// # Errors
    /// [`io::ErrorKind::NotFound`] if no namespace has this name.
    pub fn named(name: &str) -> io::Result<Namespace> {
        if name.is_empty() || name == "." || name == ".." || name.contains('/') {
            return Err(io::ErrorKind::NotFound.into());
        }
        Ok(Namespace(File::open(Path::new(NAMED).join(name))?.into()))
    }

    /// Duplicates the descriptor.
    ///
    /// # Errors
    /// Errors of the operating system.
    pub fn try_clone(&self) -> io::Result<Namespace> {
        Ok(Namespace(self.0.try_clone()?))
    }

    /// Wraps a descriptor of a namespace.
    pub fn from_fd(fd: OwnedFd) -> Namespace {
        Namespace(fd)
    }

    /// The identity of the namespace.
    ///
    /// # Errors
    /// Errors of fstat(2).
    pub fn id(&self) -> io::Result<NamespaceId> {
        let stat = rustix::fs::fstat(&self.0)?;
        Ok(NamespaceId {
            device: stat.st_dev,
            inode: stat.st_ino,
        })
    }

    /// Runs `ask` in the namespace: sockets made and files of `/proc/thread-self/net` opened by `ask` are
    /// of that namespace.
    ///
    /// # Errors
    /// The thread may not enter the namespace (CAP_SYS_ADMIN), or cannot return, which only a seccomp
    /// filter can cause; the result of `ask` is lost then.
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

/// The namespaces made by `ip netns add`: names, in order, and identities. None is kept alive. Names
/// without a namespace, left by an interrupted `ip netns`, are skipped.
///
/// # Errors
/// The directory exists and cannot be read.
pub fn named_all() -> io::Result<Vec<(String, NamespaceId)>> {
    let entries = match fs::read_dir(NAMED) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?,
    };
    // A plain file left in place of a namespace is on another device.
    let nsfs = Namespace::current()?.id()?.device;
    let mut found = Vec::new();
    for entry in entries {
        let Ok(name) = entry?.file_name().into_string() else {
            continue;
        };
        if let Ok(id) = Namespace::named(&name).and_then(|namespace| namespace.id())
            && id.device == nsfs
        {
            found.push((name, id));
        }
    }
    found.sort();
    Ok(found)
}

/// The first name of a namespace in `ip netns`.
pub fn name_of(namespace: &Namespace) -> Option<String> {
    let wanted = namespace.id().ok()?;
    let named = named_all().ok()?;
    named
        .into_iter()
        .find(|&(_, id)| id == wanted)
        .map(|(name, _)| name)
}
