//! A client's connection to the server.

use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;

use super::service::{self, Answer, Caller, Program, REQUEST_MAX, StreamId};

/// Bytes to read with one system call.
const READ_SIZE: usize = 4096;

/// Bytes of a stream's replies to collect for one write.
const WRITE_SIZE: usize = 16 * 1024;

/// Maximum number of calls in a turn.
const CALLS_PER_TURN: usize = 8;

/// The event that a connection waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Waits {
    /// Bytes to read.
    ToRead,
    /// Room to write, or another turn: the writable socket wakes the server.
    ToWrite,
    /// None: the connection has ended.
    Over,
}

/// A client's socket with its input and output. It holds at most one call and one reply (of a stream, a few): it
/// reads no call while a reply waits, and answers no call during a stream.
#[derive(Debug)]
pub(super) struct Connection {
    id: StreamId,
    caller: Caller,
    /// Whether a stream of replies is active.
    streaming: bool,
    stream: UnixStream,
    input: Vec<u8>,
    output: Vec<u8>,
    /// Written bytes of `output`.
    written: usize,
    closing: bool,
}

impl Connection {
    pub fn new(id: StreamId, caller: Caller, stream: UnixStream) -> Connection {
        Connection {
            id,
            caller,
            streaming: false,
            stream,
            input: Vec::new(),
            output: Vec::new(),
            written: 0,
            closing: false,
        }
    }

    /// The active stream of replies.
    pub fn streams(&self) -> Option<StreamId> {
        self.streaming.then_some(self.id)
    }

    /// Bytes to write.
    pub fn pending(&self) -> usize {
        self.output.len() - self.written
    }

    /// Reads, answers and writes without waiting. `room` is the number of bytes that all clients together may
    /// add to their outputs; without room, calls are refused.
    pub fn turn(&mut self, program: &mut dyn Program, room: usize) -> Waits {
        self.try_turn(program, room).unwrap_or(Waits::Over)
    }

    /// An error means that the client has disconnected.
    fn try_turn(&mut self, program: &mut dyn Program, room: usize) -> io::Result<Waits> {
        for _ in 0..CALLS_PER_TURN {
            if !self.flush()? {
                return Ok(Waits::ToWrite);
            }
            if self.closing {
                return Ok(Waits::Over);
            }
            let answer = if self.streaming {
                self.next_of_stream(program)
            } else {
                self.next_answer(program, room)
            };
            match answer {
                Some(answer) => self.take(answer),
                None => match self.read()? {
                    None => return Ok(Waits::ToRead),
                    Some(0) => return Ok(Waits::Over),
                    Some(_) => {}
                },
            }
        }
        Ok(Waits::ToWrite)
    }

    /// The stream's replies for one write. Calls wait for the end of the stream, up to a limit.
    fn next_of_stream(&mut self, program: &mut dyn Program) -> Option<Answer> {
        if self.input.len() > REQUEST_MAX {
            return Some(too_long(program));
        }
        let mut replies = Vec::new();
        while self.streaming && replies.len() < WRITE_SIZE {
            let Some((reply, last)) = service::next(self.id, program) else {
                break;
            };
            replies.extend(reply);
            self.streaming = !last;
        }
        (!replies.is_empty()).then_some(Answer::Reply(replies))
    }

    fn take(&mut self, answer: Answer) {
        match answer {
            Answer::Nothing => {}
            Answer::Stream => self.streaming = true,
            Answer::Reply(bytes) => self.output = bytes,
            Answer::Last(bytes) => {
                self.output = bytes;
                self.closing = true;
            }
        }
        self.written = 0;
    }

    /// The answer to the next whole call in the input, if any.
    fn next_answer(&mut self, program: &mut dyn Program, room: usize) -> Option<Answer> {
        let Some(end) = self.input.iter().position(|&byte| byte == 0) else {
            return (self.input.len() > REQUEST_MAX).then(|| too_long(program));
        };
        let answer = if end > REQUEST_MAX {
            too_long(program)
        } else if room == 0 {
            service::busy(program)
        } else {
            service::answer(&self.input[..end], (self.id, self.caller), program)
        };
        self.input.drain(..=end);
        Some(answer)
    }

    /// Reads once. `None`: no bytes are available.
    fn read(&mut self) -> io::Result<Option<usize>> {
        let mut chunk = [0; READ_SIZE];
        match retry(|| self.stream.read(&mut chunk))? {
            None => Ok(None),
            Some(n) => {
                self.input.extend_from_slice(&chunk[..n]);
                Ok(Some(n))
            }
        }
    }

    /// Writes the output; returns whether all of it is written.
    fn flush(&mut self) -> io::Result<bool> {
        while self.pending() > 0 {
            let rest = &self.output[self.written..];
            match retry(|| (&self.stream).write(rest))? {
                None => return Ok(false),
                Some(n) => self.written += n,
            }
        }
        // An idle client does not keep the memory of a large reply.
        self.output = Vec::new();
        self.written = 0;
        Ok(true)
    }
}

impl AsFd for Connection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}

fn too_long(program: &dyn Program) -> Answer {
    let message = format!("the call is longer than {REQUEST_MAX} bytes, the maximum");
    service::bad_request(program, &message)
}

/// `None` if the call would block.
fn retry(mut call: impl FnMut() -> io::Result<usize>) -> io::Result<Option<usize>> {
    loop {
        match call() {
            Ok(n) => return Ok(Some(n)),
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Ok(None),
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
}
