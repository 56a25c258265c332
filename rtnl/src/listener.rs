//! A socket for notifications of one namespace, or of all namespaces with an nsid.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use netlink_sys::Socket;
use rustix::net::sockopt;

use crate::transport::{DATAGRAM_MAX, Message, messages};
use crate::{Error, Requests, sys};

/// Receive buffer, in bytes. The kernel's default holds a few hundred notifications; a script that makes
/// many interfaces overruns it.
const RECEIVE_BUFFER: usize = 1 << 20;

/// The calling thread's namespace, which may differ from the first thread's.
const CURRENT: &str = "/proc/thread-self/ns/net";

/// The namespaces of a listener.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Reach {
    /// The calling thread's only.
    Own,
    /// Also those with an nsid in it (`ip netns list-id`).
    All,
}

/// A socket that never blocks.
#[derive(Debug)]
pub(crate) struct Listener {
    socket: Socket,
    buffer: Vec<u8>,
    own: Option<Own>,
}

impl Listener {
    /// Opens the socket in the namespace of the calling thread. Without the permission for `Reach::All` it
    /// falls back to `Reach::Own`.
    pub(crate) fn open(protocol: isize, reach: Reach) -> Result<Listener, Error> {
        let failed = |e| Error::socket("subscribe to interface changes", e);
        let mut socket = Socket::new(protocol).map_err(failed)?;
        socket.bind_auto().map_err(failed)?;
        socket.set_non_blocking(true).map_err(failed)?;
        grow_receive_buffer(&socket);
        let own = match reach {
            Reach::Own => None,
            Reach::All => listen_to_all(&socket)?,
        };
        Ok(Listener {
            socket,
            buffer: Vec::with_capacity(DATAGRAM_MAX),
            own,
        })
    }

    /// Whether the socket receives messages of other namespaces.
    pub(crate) fn hears_all(&self) -> bool {
        self.own.is_some()
    }

    pub(crate) fn subscribe(&self, group: u32) -> io::Result<()> {
        self.socket.add_membership(group)
    }

    /// Reads all waiting messages, oldest first. `read` decodes a message; `lost` makes the report of lost
    /// messages. Each result comes with the nsid of its namespace, `None` for the listener's own.
    ///
    /// The report of lost messages is the last result: the kernel drops the newest messages, but reports the loss before
    /// the waiting ones. Whoever reads the true state at the report would else follow older messages after it.
    pub(crate) fn drain<T>(
        &mut self,
        read: impl Fn(&Message<'_>) -> Option<T>,
        lost: impl Fn() -> T,
    ) -> Vec<(Option<i32>, T)> {
        let mut read_all = Vec::new();
        let mut has_lost = false;
        loop {
            match sys::receive(&self.socket, &mut self.buffer) {
                Ok(received) if !received.from_kernel => {}
                Ok(received) if !received.whole => has_lost = true,
                Ok(received) => read_all.extend(
                    messages(&self.buffer)
                        .filter_map(|message| Some((received.nsid, read(&message)?))),
                ),
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => break,
                // The kernel drops messages without room and reports it once; waiting ones stay readable.
                Err(e) if e.raw_os_error() == Some(libc::ENOBUFS) => has_lost = true,
                Err(e) => {
                    log::warn!("cannot receive interface changes: {e}");
                    has_lost = true;
                    break;
                }
            }
        }
        read_all.extend(has_lost.then(|| (None, lost())));
        self.leave_out_own_number(&mut read_all);
        read_all
    }

    fn leave_out_own_number<T>(&mut self, read_all: &mut [(Option<i32>, T)]) {
        let Some(own) = &mut self.own else {
            return;
        };
        let mut numbered = read_all
            .iter_mut()
            .filter(|(nsid, _)| nsid.is_some())
            .peekable();
        if numbered.peek().is_none() {
            return;
        }
        if let Some(number) = own.number() {
            numbered
                .filter(|(nsid, _)| *nsid == Some(number))
                .for_each(|(nsid, _)| *nsid = None);
        }
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// The listener's own namespace. It may get an nsid for itself at any time (`ip netns set`); its messages
/// then carry that nsid.
#[derive(Debug)]
struct Own {
    namespace: File,
    requests: Requests,
    /// Does not change once assigned.
    number: Option<i32>,
}

impl Own {
    fn number(&mut self) -> Option<i32> {
        if self.number.is_none() {
            match self.requests.nsid_of(&self.namespace) {
                Ok(number) => self.number = number,
                Err(e) => log::debug!("{e}"),
            }
        }
        self.number
    }
}

/// Returns `None` if that is not permitted.
fn listen_to_all(socket: &Socket) -> Result<Option<Own>, Error> {
    if let Err(e) = socket.set_listen_all_namespaces(true) {
        log::debug!("netlink: cannot receive from other network namespaces: {e}");
        return Ok(None);
    }
    let failed = |e| Error::socket("open the current network namespace", e);
    Ok(Some(Own {
        namespace: File::open(CURRENT).map_err(failed)?,
        requests: Requests::new()?,
        number: None,
    }))
}

fn grow_receive_buffer(socket: &Socket) {
    let grown = sockopt::set_socket_recv_buffer_size_force(socket, RECEIVE_BUFFER)
        .or_else(|_| sockopt::set_socket_recv_buffer_size(socket, RECEIVE_BUFFER));
    if let Err(e) = grown {
        log::debug!("netlink: cannot enlarge the receive buffer: {e}");
    }
}
