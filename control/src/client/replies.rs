//! A stream of replies.

use std::io;
use std::marker::PhantomData;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{RecvFlags, recv};
use serde::de::DeserializeOwned;

use super::{ClientError, ControlClient, REPLY_MAX, decode};

/// The next item of a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Next<R> {
    /// A reply; further replies follow.
    Reply(R),
    /// The last reply.
    Last(R),
    /// The descriptor that interrupts the wait is readable.
    Interrupted,
}

/// A stream of replies. Dropping it ends the stream.
#[derive(Debug)]
pub struct Replies<R> {
    client: ControlClient,
    input: Vec<u8>,
    /// Bytes of `input` already searched for a NUL.
    searched: usize,
    _replies: PhantomData<R>,
}

impl<R: DeserializeOwned> Replies<R> {
    pub(super) fn new(client: ControlClient) -> Replies<R> {
        Replies {
            client,
            input: Vec::new(),
            searched: 0,
            _replies: PhantomData,
        }
    }

    /// Waits for the next reply or until `interrupt` is readable, at most for `patience`; `None`: without a limit.
    ///
    /// # Errors
    /// [`ClientError`]; [`ClientError::Ended`] if the daemon closes the connection, [`ClientError::Silent`] if there
    /// is no reply in time.
    pub fn next(
        &mut self,
        interrupt: BorrowedFd<'_>,
        patience: Option<Duration>,
    ) -> Result<Next<R>, ClientError> {
        let deadline = patience.map(|patience| Instant::now() + patience);
        loop {
            if let Some(next) = self.decoded()? {
                return Ok(next);
            }
            match wait(&self.client.stream, interrupt, deadline) {
                Ok(Waited::Readable) => self.read().map_err(|e| self.ended(e))?,
                Ok(Waited::Interrupted) => return Ok(Next::Interrupted),
                Ok(Waited::TooLong) => {
                    return Err(self.client.silent(io::ErrorKind::TimedOut.into()));
                }
                Err(e) => return Err(self.ended(e)),
            };
        }
    }

    /// The next received reply; `None` without one. Does not wait. Call it until `None`: the descriptor does not
    /// report replies that were already read.
    ///
    /// # Errors
    /// See [`Replies::next`].
    pub fn try_next(&mut self) -> Result<Option<Next<R>>, ClientError> {
        loop {
            if let Some(next) = self.decoded()? {
                return Ok(Some(next));
            }
            if !self.read().map_err(|e| self.ended(e))? {
                return Ok(None);
            }
        }
    }

    fn decoded(&mut self) -> Result<Option<Next<R>>, ClientError> {
        let Some(reply) = self.taken() else {
            return Ok(None);
        };
        let (reply, continues) = decode(&reply)?;
        Ok(Some(if continues {
            Next::Reply(reply)
        } else {
            Next::Last(reply)
        }))
    }

    fn ended(&self, source: io::Error) -> ClientError {
        ClientError::Ended {
            path: self.client.path.clone(),
            source,
        }
    }

    /// A whole reply without its NUL, if one was received.
    fn taken(&mut self) -> Option<Vec<u8>> {
        let found = self.input[self.searched..].iter().position(|b| *b == 0);
        let Some(end) = found.map(|at| self.searched + at) else {
            self.searched = self.input.len();
            return None;
        };
        let rest = self.input.split_off(end + 1);
        let mut reply = std::mem::replace(&mut self.input, rest);
        reply.pop();
        self.searched = 0;
        Some(reply)
    }

    /// Reads available bytes; returns whether there were any.
    fn read(&mut self) -> io::Result<bool> {
        let mut chunk = [0; 16 * 1024];
        match recv(&self.client.stream, &mut chunk, RecvFlags::DONTWAIT) {
            Ok((_, 0)) => Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(_) if self.input.len() > REPLY_MAX => Err(io::Error::other("a reply does not end")),
            Ok((_, n)) => {
                self.input.extend_from_slice(&chunk[..n]);
                Ok(true)
            }
            Err(Errno::AGAIN | Errno::INTR) => Ok(false),
            Err(e) => Err(e.into()),
        }
    }
}

impl<R> AsFd for Replies<R> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.client.stream.as_fd()
    }
}

/// The end of a wait.
enum Waited {
    Readable,
    Interrupted,
    /// The deadline has passed.
    TooLong,
}

/// Waits for either descriptor, until the deadline.
fn wait(
    stream: &impl AsFd,
    interrupt: BorrowedFd<'_>,
    deadline: Option<Instant>,
) -> io::Result<Waited> {
    let mut fds = [
        PollFd::new(stream, PollFlags::IN),
        PollFd::from_borrowed_fd(interrupt, PollFlags::IN),
    ];
    loop {
        let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        // A time beyond the range of the kernel is no limit.
        let left = left.and_then(|left| Timespec::try_from(left).ok());
        match poll(&mut fds, left.as_ref()) {
            Ok(0) => return Ok(Waited::TooLong),
            Ok(_) if !fds[1].revents().is_empty() => return Ok(Waited::Interrupted),
            Ok(_) => return Ok(Waited::Readable),
            // A signal; the next poll reports the interrupt.
            Err(Errno::INTR) => {}
            Err(e) => return Err(e.into()),
        }
    }
}
