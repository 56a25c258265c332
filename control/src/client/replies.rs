//! A stream of replies.

use std::io;
use std::marker::PhantomData;
use std::os::fd::{AsFd, BorrowedFd};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::net::{RecvFlags, recv};
use serde::de::DeserializeOwned;

use super::{ClientError, ControlClient, REPLY_MAX, decode};

/// What comes next in a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Next<R> {
    /// A reply, which others follow.
    Reply(R),
    /// The last reply.
    Last(R),
    /// The descriptor that was to interrupt the wait is readable.
    Interrupted,
}

/// Replies to a call that is answered more than once. Dropping it ends the stream.
#[derive(Debug)]
pub struct Replies<R> {
    client: ControlClient,
    input: Vec<u8>,
    /// Bytes of `input` without a NUL, so that they are looked at once.
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

    /// Waits, without a limit in time, for the next reply or until `interrupt` is readable.
    ///
    /// # Errors
    /// [`ClientError`]; [`ClientError::Ended`] where the daemon goes away.
    pub fn next(&mut self, interrupt: BorrowedFd<'_>) -> Result<Next<R>, ClientError> {
        loop {
            if let Some(next) = self.decoded()? {
                return Ok(next);
            }
            let waited = wait(&self.client.stream, interrupt);
            if waited.map_err(|e| self.ended(e))? {
                return Ok(Next::Interrupted);
            }
            self.read().map_err(|e| self.ended(e))?;
        }
    }

    /// The next reply if it is there, without waiting; `None` if not. One that came may be followed by
    /// others that the descriptor does not tell of: ask until there is none.
    ///
    /// # Errors
    /// As [`Replies::next`].
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

    /// A whole reply without its NUL, if one has come.
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

    /// Reads what is there. Whether that is something.
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

/// Waits for either. Whether it is the interrupt.
fn wait(stream: &impl AsFd, interrupt: BorrowedFd<'_>) -> io::Result<bool> {
    let mut fds = [
        PollFd::new(stream, PollFlags::IN),
        PollFd::from_borrowed_fd(interrupt, PollFlags::IN),
    ];
    loop {
        match poll(&mut fds, None) {
            Ok(_) => return Ok(!fds[1].revents().is_empty()),
            // A signal, which the interrupt tells of when poll looks again.
            Err(Errno::INTR) => {}
            Err(e) => return Err(e.into()),
        }
    }
}
