//! The server: a listener, its clients, and one epoll descriptor for all of them.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::time::Timespec;

use super::connection::{Connection, Waits};
use super::listener::{BindError, Listener};
use super::service::{Program, REPLY_MAX, StreamId};

/// Clients at a time. When one more comes, the one that has been quiet longest makes way; those that
/// are being answered by a stream last.
pub const CLIENTS_MAX: usize = 32;

/// Bytes of replies that may wait for all clients together before further calls are refused.
const OUTPUT_MAX: usize = 2 * REPLY_MAX;

const LISTENER: u64 = u64::MAX;

struct Client {
    connection: Connection,
    waits: Waits,
    /// The turn it last had.
    last_turn: u64,
}

/// Serves the control socket from the daemon's control loop.
///
/// The server is readable ([`AsFd`]: an epoll descriptor) when [`ControlServer::process`] has
/// something to do. Dropping it closes all connections and removes the socket.
pub struct ControlServer {
    listener: Listener,
    epoll: OwnedFd,
    clients: Vec<Option<Client>>,
    turn: u64,
}

impl ControlServer {
    /// Listens at `path`: makes the directory where it is missing, replaces the socket of a dead
    /// daemon, refuses where a live one listens.
    ///
    /// # Errors
    /// [`BindError`], a sentence for the user.
    pub fn bind(path: &Path) -> Result<ControlServer, BindError> {
        let listener = Listener::bind(path)?;
        let epoll = watch(&listener).map_err(|source| BindError::Os {
            path: path.display().to_string(),
            source,
        })?;
        Ok(ControlServer {
            listener,
            epoll,
            clients: std::iter::repeat_with(|| None).take(CLIENTS_MAX).collect(),
            turn: 0,
        })
    }

    /// Where it listens.
    pub fn path(&self) -> &Path {
        self.listener.path()
    }

    /// How many clients are connected.
    pub fn clients(&self) -> usize {
        self.clients.iter().flatten().count()
    }

    /// Accepts, reads, answers and writes as far as that goes without waiting; a client with much
    /// to ask has its turn again in the next call.
    ///
    /// # Errors
    /// Only where the server itself is broken; what clients do is no error.
    pub fn process(&mut self, program: &mut dyn Program) -> io::Result<()> {
        let mut space = [const { MaybeUninit::uninit() }; CLIENTS_MAX + 1];
        let now = Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        let (events, _) = match epoll::wait(&self.epoll, &mut space, Some(&now)) {
            Ok(found) => found,
            Err(rustix::io::Errno::INTR) => return Ok(()),
            Err(error) => return Err(error.into()),
        };
        let mut arrivals = false;
        for event in events.iter() {
            match event.data.u64() {
                LISTENER => arrivals = true,
                slot => self.serve(slot as usize, program)?,
            }
        }
        // Last, so that no newcomer has the slot of a client whose event is still to be looked at.
        if arrivals {
            self.accept(program)?;
        }
        self.serve_streams(program)
    }

    /// Gives those who wait for more what has happened since. The others are called back by their
    /// sockets.
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

    /// Closing the descriptor takes it out of the epoll set.
    fn close(&mut self, slot: usize, program: &mut dyn Program) {
        let client = self.clients[slot].take();
        if let Some(stream) = client.and_then(|c| c.connection.streams()) {
            program.close(stream);
        }
    }

    /// Accepts a limited number: the rest wakes the loop again.
    fn accept(&mut self, program: &mut dyn Program) -> io::Result<()> {
        for _ in 0..CLIENTS_MAX {
            let Some(stream) = self.listener.accept()? else {
                break;
            };
            let slot = self.vacate(program);
            self.turn += 1;
            let connection = Connection::new(StreamId(self.turn), stream);
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

    /// A free slot, or that of the client that has been quiet longest.
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

fn watch(listener: &Listener) -> io::Result<OwnedFd> {
    let epoll = epoll::create(CreateFlags::CLOEXEC)?;
    epoll::add(
        &epoll,
        listener,
        EventData::new_u64(LISTENER),
        EventFlags::IN,
    )?;
    Ok(epoll)
}

/// While a client owes us room to write, nothing more is read from it.
fn interest(waits: Waits) -> EventFlags {
    match waits {
        Waits::ToRead => EventFlags::IN,
        Waits::ToWrite => EventFlags::OUT,
        Waits::Over => EventFlags::empty(),
    }
}

#[cfg(test)]
mod tests;
