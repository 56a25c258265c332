//! Network namespaces: where an interface is, and asking there.
//!
//! Nothing here is kept for longer than a question takes: whoever holds a socket or a descriptor of a
//! namespace keeps it alive after `ip netns del`, with its interfaces and addresses.

use std::fs::{self, File};
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

/// Which network namespace it is: the same while it lives, and maybe another one's afterwards. It
/// keeps none alive.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct NamespaceId {
    /// The device number of the kernel's file system of namespaces.
    pub device: u64,
    /// The number that `lsns` and `readlink /proc/PID/ns/net` show.
    pub inode: u64,
}

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

    /// Which one it is.
    ///
    /// # Errors
    /// Those of fstat(2).
    pub fn id(&self) -> io::Result<NamespaceId> {
        let stat = rustix::fs::fstat(&self.0)?;
        Ok(NamespaceId {
            device: stat.st_dev,
            inode: stat.st_ino,
        })
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

/// The namespaces that `ip netns add` made: their names, in order, and which they are. None of them
/// is kept alive. Names without a namespace, which an interrupted `ip netns` leaves, are left out.
///
/// # Errors
/// If the directory cannot be read; that there is none is no error.
pub fn named_all() -> io::Result<Vec<(String, NamespaceId)>> {
    let entries = match fs::read_dir(NAMED) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?,
    };
    // A plain file where a namespace was mounted is on another device.
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

/// The first name that `ip netns` has for a namespace.
pub fn name_of(namespace: &Namespace) -> Option<String> {
    let wanted = namespace.id().ok()?;
    let named = named_all().ok()?;
    named
        .into_iter()
        .find(|&(_, id)| id == wanted)
        .map(|(name, _)| name)
}
