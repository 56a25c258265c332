//! The server: a listener, its clients, and one epoll descriptor for all of them.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;

use nix::sys::socket::getsockopt;
use nix::sys::socket::sockopt::PeerCredentials;
use rustix::event::epoll::{self, EventData};
use rustix::process::geteuid;

use super::connection::{Connection, Waits};
use super::listener::{BindError, Listener, interest, ready, watch};
use super::service::{Caller, Program, REPLY_MAX, StreamId};
use crate::config::GroupAccess;

/// Maximum number of clients. A further client replaces the client that has been idle longest; clients with a
/// stream are replaced last.
pub const CLIENTS_MAX: usize = 32;

/// Maximum number of bytes of waiting replies of all clients; beyond that, calls are refused.
const OUTPUT_MAX: usize = 2 * REPLY_MAX;

/// The option that selects another path.
const KEY: &str = "--socket";

struct Client {
    connection: Connection,
    waits: Waits,
    /// Number of its last turn.
    last_turn: u64,
}

/// The server of the control socket, for the daemon's control loop.
///
/// Its epoll descriptor ([`AsFd`]) is readable when [`ControlServer::process`] must be called. Dropping it closes
/// all connections and removes the socket.
pub struct ControlServer {
    listener: Listener,
    epoll: OwnedFd,
    clients: Vec<Option<Client>>,
    turn: u64,
    group_access: GroupAccess,
}

impl ControlServer {
    /// Listens at `path`. Creates a missing directory, and replaces the socket of an ended daemon.
    ///
    /// # Errors
    /// [`BindError`], a sentence for the user; also if another daemon listens.
    pub fn bind(path: &Path) -> Result<ControlServer, BindError> {
        let listener = Listener::bind(path, KEY)?;
        let epoll = watch(&listener).map_err(|source| BindError::Os {
            path: path.display().to_string(),
            key: KEY,
            source,
        })?;
        Ok(ControlServer {
            listener,
            epoll,
            clients: std::iter::repeat_with(|| None).take(CLIENTS_MAX).collect(),
            turn: 0,
            group_access: GroupAccess::default(),
        })
    }

    /// Sets the rights of clients that are neither root nor the user of this process.
    pub fn set_group_access(&mut self, access: GroupAccess) {
        self.group_access = access;
    }

    /// The path of the socket.
    pub fn path(&self) -> &Path {
        self.listener.path()
    }

    /// The outermost directory that was created for the socket; it is removed with the socket.
    pub fn made(&self) -> Option<&Path> {
        self.listener.made()
    }

    /// The number of connected clients.
    pub fn clients(&self) -> usize {
        self.clients.iter().flatten().count()
    }

    /// Accepts, reads, answers and writes without waiting. A client with many calls continues in the next call
    /// of this function.
    ///
    /// # Errors
    /// Faults of the server; faults of clients are no errors.
    pub fn process(&mut self, program: &mut dyn Program) -> io::Result<()> {
        let (slots, arrivals) = ready::<{ CLIENTS_MAX + 1 }>(&self.epoll)?;
        for slot in slots {
            self.serve(slot, program)?;
        }
        if arrivals {
            self.accept(program)?;
        }
        self.serve_streams(program)
    }

    /// Serves clients whose streams may have new replies. The sockets of other clients wake the server.
    fn serve_streams(&mut self, program: &mut dyn Program) -> io::Result<()> {
        for slot in 0..CLIENTS_MAX {
            let waits = self.clients[slot]
                .as_ref()
                .is_some_and(|c| c.waits == Waits::ToRead && c.connection.streams().is_some());
            if waits {
                self.serve(slot, program)?;
            }
        }
        Ok(())
    }

    fn serve(&mut self, slot: usize, program: &mut dyn Program) -> io::Result<()> {
        let waiting: usize = self.connections().map(Connection::pending).sum();
        let Some(client) = &mut self.clients[slot] else {
            return Ok(());
        };
        self.turn += 1;
        client.last_turn = self.turn;
        let room = OUTPUT_MAX.saturating_sub(waiting);
        let waits = client.connection.turn(program, room);
        if waits == Waits::Over {
            self.close(slot, program);
        } else if waits != client.waits {
            client.waits = waits;
            epoll::modify(
                &self.epoll,
                &client.connection,
                EventData::new_u64(slot as u64),
                interest(waits),
            )?;
        }
        Ok(())
    }

    fn connections(&self) -> impl Iterator<Item = &Connection> {
        self.clients.iter().flatten().map(|c| &c.connection)
    }

    /// Ends a connection. Closing the descriptor removes it from the epoll set.
    fn close(&mut self, slot: usize, program: &mut dyn Program) {
        let client = self.clients[slot].take();
        if let Some(stream) = client.and_then(|c| c.connection.streams()) {
            program.close(stream);
        }
    }

    /// Accepts a limited number of clients; further clients wake the loop again.
    fn accept(&mut self, program: &mut dyn Program) -> io::Result<()> {
        for _ in 0..CLIENTS_MAX {
            let Some(stream) = self.listener.accept()? else {
                break;
            };
            // A client without an identity is disconnected.
            let Ok(caller) = caller(&stream, self.group_access) else {
                continue;
            };
            let slot = self.vacate(program);
            self.turn += 1;
            let connection = Connection::new(StreamId(self.turn), caller, stream);
            let waits = Waits::ToRead;
            epoll::add(
                &self.epoll,
                &connection,
                EventData::new_u64(slot as u64),
                interest(waits),
            )?;
            self.clients[slot] = Some(Client {
                connection,
                waits,
                last_turn: self.turn,
            });
        }
        Ok(())
    }

    /// A free slot, or that of the client that has been idle longest.
    fn vacate(&mut self, program: &mut dyn Program) -> usize {
        let quietest = |slot: &usize| {
            let client = self.clients[*slot].as_ref();
            client.map(|c| (c.connection.streams().is_some(), c.last_turn))
        };
        let slot = (0..CLIENTS_MAX).min_by_key(quietest).unwrap_or(0);
        self.close(slot, program);
        slot
    }
}

impl AsFd for ControlServer {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }
}

/// The client at the other end, from the kernel (unix(7), SO_PEERCRED).
fn caller(stream: &UnixStream, group: GroupAccess) -> io::Result<Caller> {
    let peer = getsockopt(stream, PeerCredentials)?;
    let is_owner = [0, geteuid().as_raw()].contains(&peer.uid());
    Ok(Caller {
        uid: peer.uid(),
        pid: peer.pid(),
        may_change: is_owner || group == GroupAccess::Change,
    })
}

#[cfg(test)]
mod tests;
