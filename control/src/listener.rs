//! A listening unix socket: created unless another process listens, removed when dropped. What a server needs to watch
//! any listening socket and its connections.

use std::fs::{self, DirBuilder, File, Metadata, Permissions};
use std::io;
use std::mem::MaybeUninit;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::fs::{FlockOperation, Mode};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use rustix::time::Timespec;

use super::ControlClient;
use super::connection::Waits;
use crate::api::{Nothing, methods};

/// Time that another daemon has to report its process id.
const PATIENCE: Duration = Duration::from_millis(500);

/// The mode of the socket: owner and group connect.
const MODE: u32 = 0o660;

/// Errors of creating a listening socket, each a sentence for the user.
#[derive(Debug, thiserror::Error)]
pub enum BindError {
    /// Another process listens on the socket.
    #[error(
        "{} already listens on the socket {path}; stop it, or choose another path with {key}",
        pid.map_or("another process".into(), |pid| format!("ibtapd (process {pid})"))
    )]
    Taken {
        /// The path.
        path: String,
        /// The option or key that selects another path.
        key: &'static str,
        /// The process id, if it is an `ibtapd` that answers.
        pid: Option<u32>,
    },
    /// The file is not a socket.
    #[error("{path} exists and is not a socket; remove it, or choose another path with {key}")]
    NotASocket {
        /// The path.
        path: String,
        /// The option or key that selects another path.
        key: &'static str,
    },
    /// The operating system refused.
    #[error(
        "cannot create the socket {path}: {source}; choose another path with {key}, short and in a \
        writable directory"
    )]
    Os {
        /// The path.
        path: String,
        /// The option or key that selects another path.
        key: &'static str,
        /// The error.
        source: io::Error,
    },
    /// The operating system refused a TCP address.
    #[error(
        "cannot listen on the TCP address {address}: {source}; choose another address with {key}"
    )]
    Address {
        /// The address.
        address: SocketAddr,
        /// The option or key that selects another address.
        key: &'static str,
        /// The error.
        source: io::Error,
    },
}

impl BindError {
    /// Whether another process has the address.
    pub fn is_in_use(&self) -> bool {
        match self {
            BindError::Taken { .. } => true,
            BindError::Address { source, .. } => source.kind() == io::ErrorKind::AddrInUse,
            BindError::NotASocket { .. } | BindError::Os { .. } => false,
        }
    }
}

/// A listening Unix socket with its name in the file system.
#[derive(Debug)]
pub(super) struct Listener {
    socket: UnixListener,
    path: PathBuf,
    /// Device and inode of the socket's file. A replaced file is not removed.
    identity: (u64, u64),
    /// The directories that were created for it, innermost first; removed with it if empty.
    made: Vec<PathBuf>,
    /// A spare descriptor, closed to accept and close a connection when descriptors have run out.
    reserve: Option<File>,
}

impl Listener {
    /// Creates the parent directory (0755) if it is missing, replaces the socket of an ended daemon, and
    /// listens. Owner and group may connect (0660): for access by a group, set the group and the set-group-ID
    /// bit of the directory.
    ///
    /// `key` is the option or key that selects another path, for errors.
    pub fn bind(path: &Path, key: &'static str) -> Result<Listener, BindError> {
        let shown = || path.display().to_string();
        let os = |source| BindError::Os {
            path: shown(),
            key,
            source,
        };
        let directory = directory_of(path);
        let made = Made(missing(directory));
        DirBuilder::new()
            .recursive(true)
            .mode(0o755)
            .create(directory)
            .map_err(os)?;
        // Of two daemons that start together, neither may remove the other's socket.
        let _lock = lock(directory).map_err(os)?;
        clear(path, key)?;
        let socket = listen(path).map_err(os)?;
        let identity = identity(&fs::symlink_metadata(path).map_err(os)?);
        Ok(Listener {
            socket,
            path: path.to_owned(),
            identity,
            made: made.keep(),
            reserve: spare(),
        })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The outermost directory that was created for the socket.
    pub fn made(&self) -> Option<&Path> {
        self.made.last().map(PathBuf::as_path)
    }

    /// The next client; see [`accept`].
    pub fn accept(&mut self) -> io::Result<Option<UnixStream>> {
        let Some((stream, _)) = accept(&mut self.reserve, || self.socket.accept())? else {
            return Ok(None);
        };
        stream.set_nonblocking(true)?;
        Ok(Some(stream))
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        let ours =
            fs::symlink_metadata(&self.path).is_ok_and(|found| identity(&found) == self.identity);
        if ours && let Err(error) = fs::remove_file(&self.path) {
            log::warn!("cannot remove {}: {error}", self.path.display());
        }
        drop(Made(std::mem::take(&mut self.made)));
    }
}

/// Created directories. Dropping this removes those that are empty.
struct Made(Vec<PathBuf>);

impl Made {
    fn keep(mut self) -> Vec<PathBuf> {
        std::mem::take(&mut self.0)
    }
}

impl Drop for Made {
    fn drop(&mut self) {
        for directory in &self.0 {
            // A directory with other files stays.
            let _ = fs::remove_dir(directory);
        }
    }
}

/// The missing directories among `directory` and its parents.
fn missing(directory: &Path) -> Vec<PathBuf> {
    directory
        .ancestors()
        .take_while(|d| !d.as_os_str().is_empty() && !d.exists())
        .map(Path::to_owned)
        .collect()
}

/// A descriptor to have in reserve for [`accept`].
pub(super) fn spare() -> Option<File> {
    File::open("/dev/null").ok()
}

/// The next connection of a socket that does not block; `None` if none waits. If descriptors have run out, the
/// connection is closed: a waiting one would keep the control loop busy.
pub(super) fn accept<C>(
    reserve: &mut Option<File>,
    next: impl Fn() -> io::Result<C>,
) -> io::Result<Option<C>> {
    match next() {
        Ok(connection) => Ok(Some(connection)),
        Err(e) if e.kind() == io::ErrorKind::WouldBlock => Ok(None),
        Err(e) if exhausted(&e) => {
            *reserve = None;
            drop(next());
            *reserve = spare();
            Ok(None)
        }
        // The client has disconnected, or a signal interrupted the call.
        Err(e) if is_transient(&e) => Ok(None),
        Err(e) => Err(e),
    }
}

/// The epoll data of a listener in the set of its server; a connection has its slot.
const LISTENER: u64 = u64::MAX;

/// An epoll set with a listener.
pub(super) fn watch(listener: impl AsFd) -> io::Result<OwnedFd> {
    let epoll = epoll::create(CreateFlags::CLOEXEC)?;
    epoll::add(
        &epoll,
        listener,
        EventData::new_u64(LISTENER),
        EventFlags::IN,
    )?;
    Ok(epoll)
}

/// What is ready in such a set: the slots of connections, and whether connections wait to be accepted. The latter come
/// last, so that a new connection does not get the slot of one with an unread event.
pub(super) fn ready<const EVENTS_MAX: usize>(epoll: &OwnedFd) -> io::Result<(Vec<usize>, bool)> {
    let mut space = [const { MaybeUninit::<Event>::uninit() }; EVENTS_MAX];
    let now = Timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    let (events, _) = match epoll::wait(epoll, &mut space, Some(&now)) {
        Ok(found) => found,
        Err(rustix::io::Errno::INTR) => return Ok((Vec::new(), false)),
        Err(error) => return Err(error.into()),
    };
    let data = || events.iter().map(|event| event.data.u64());
    let slots = data().filter(|data| *data != LISTENER);
    let arrivals = data().any(|data| data == LISTENER);
    Ok((slots.map(|slot| slot as usize).collect(), arrivals))
}

/// The epoll events to wait for. A client without room to write is not read.
pub(super) fn interest(waits: Waits) -> EventFlags {
    match waits {
        Waits::ToRead => EventFlags::IN,
        Waits::ToWrite => EventFlags::OUT,
        Waits::Over => EventFlags::empty(),
    }
}

fn exhausted(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(libc::EMFILE | libc::ENFILE | libc::ENOBUFS | libc::ENOMEM)
    )
}

fn is_transient(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionAborted | io::ErrorKind::Interrupted
    )
}

fn identity(metadata: &Metadata) -> (u64, u64) {
    (metadata.dev(), metadata.ino())
}

/// The directory of a file; that of a bare name is `.`.
pub fn directory_of(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if parent != Path::new("") => parent,
        _ => Path::new("."),
    }
}

/// Locks a directory until the file is dropped. Any process that may read the directory may lock it, so a lock
/// that is never released must not prevent the start: after a second, the daemon continues without the lock.
fn lock(directory: &Path) -> io::Result<File> {
    let file = File::open(directory)?;
    for _ in 0..100 {
        match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(file),
            Err(rustix::io::Errno::WOULDBLOCK) => std::thread::sleep(Duration::from_millis(10)),
            Err(error) => return Err(error.into()),
        }
    }
    log::warn!(
        "another process holds the lock of {directory}; the start continues without the lock; find the process: \
         lslocks | grep {directory}",
        directory = directory.display()
    );
    Ok(file)
}

/// Removes the socket of an ended daemon. The kernel refuses connections to such a socket.
fn clear(path: &Path, key: &'static str) -> Result<(), BindError> {
    let shown = path.display().to_string();
    match fs::symlink_metadata(path) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(source) => {
            return Err(BindError::Os {
                path: shown,
                key,
                source,
            });
        }
        Ok(found) if !found.file_type().is_socket() => {
            return Err(BindError::NotASocket { path: shown, key });
        }
        Ok(_) => {}
    }
    match ControlClient::connect(path, PATIENCE) {
        Ok(mut client) => Err(BindError::Taken {
            path: shown,
            key,
            pid: client
                .call(methods::VERSION, &Nothing {})
                .ok()
                .map(|version| version.pid),
        }),
        Err(error) if error.is_refused() => fs::remove_file(path).map_err(|source| BindError::Os {
            path: shown,
            key,
            source,
        }),
        // A process listens, but it is too busy or another program.
        Err(_) => Err(BindError::Taken {
            path: shown,
            key,
            pid: None,
        }),
    }
}

/// Binds and listens. The mode is complete before listening, so it applies to all connections.
fn listen(path: &Path) -> io::Result<UnixListener> {
    let socket = bind(path)?;
    // The umask may have removed rights of the group.
    let listening = fs::set_permissions(path, Permissions::from_mode(MODE))
        .and_then(|()| Ok(rustix::net::listen(&socket, 64)?));
    if let Err(error) = listening {
        let _ = fs::remove_file(path);
        return Err(error);
    }
    Ok(socket.into())
}

/// Binds a socket to the path. The kernel creates the file with the mode of the socket without the bits of
/// the umask (net/unix/af_unix.c, `unix_bind_bsd`), so at no time others than owner and group have rights.
fn bind(path: &Path) -> io::Result<OwnedFd> {
    let address = SocketAddrUnix::new(path).map_err(|error| match error {
        rustix::io::Errno::NAMETOOLONG => io::Error::other("the path has more than 107 bytes"),
        error => error.into(),
    })?;
    let socket = rustix::net::socket_with(
        AddressFamily::UNIX,
        SocketType::STREAM,
        SocketFlags::CLOEXEC | SocketFlags::NONBLOCK,
        None,
    )?;
    rustix::fs::fchmod(&socket, Mode::from_raw_mode(MODE))?;
    rustix::net::bind(&socket, &address)?;
    Ok(socket)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Between the creation of the file and the change of its mode, others had rights.
    #[test]
    fn the_file_gives_others_no_rights_from_its_creation() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("s");
        let _socket = bind(&path).unwrap();
        let mode = fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o7777 & !MODE, 0, "{mode:o}");
    }
}
