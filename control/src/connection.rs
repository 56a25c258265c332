//! One client of the server.

use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;

use super::service::{self, Answer, Program, REQUEST_MAX, StreamId};

/// Bytes read by one system call.
const READ_SIZE: usize = 4096;

/// Bytes of a stream's replies after which they are written.
const WRITE_SIZE: usize = 16 * 1024;

/// Calls answered before the next client has its turn.
const CALLS_PER_TURN: usize = 8;

/// What a connection waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Waits {
    /// For bytes of a call.
    ToRead,
    /// For room to write; or it has more to do, and the socket's room is what calls it back.
    ToWrite,
    /// For nothing: it has ended.
    Over,
}

/// A client's socket with what came in and what is to go out. At most one call and one reply (of a
/// stream, a few) are held: no call is read while a reply waits, none is answered while a stream
/// goes on.
#[derive(Debug)]
pub(super) struct Connection {
    id: StreamId,
    /// It is being answered by a stream of replies.
    streaming: bool,
    stream: UnixStream,
    input: Vec<u8>,
    output: Vec<u8>,
    /// Bytes of `output` that are out.
    written: usize,
    closing: bool,
}

impl Connection {
    pub fn new(id: StreamId, stream: UnixStream) -> Connection {
        Connection {
            id,
            streaming: false,
            stream,
            input: Vec::new(),
            output: Vec::new(),
            written: 0,
            closing: false,
        }
    }

    /// The stream of replies that it is being answered by.
    pub fn streams(&self) -> Option<StreamId> {
        self.streaming.then_some(self.id)
    }

    /// Bytes that wait to be written.
    pub fn pending(&self) -> usize {
        self.output.len() - self.written
    }

    /// Does what can be done without waiting. `room` is how many bytes of output may be added by
    /// all clients together; beyond that, calls are refused.
    pub fn turn(&mut self, program: &mut dyn Program, room: usize) -> Waits {
        self.try_turn(program, room).unwrap_or(Waits::Over)
    }

    /// An error means that the peer is gone, and is of no further interest.
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

    /// What the stream has now, as much as one write should carry. Calls that come meanwhile wait
    /// for its end, up to a limit.
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

    /// The answer to the next whole call in the input, if there is one.
    fn next_answer(&mut self, program: &mut dyn Program, room: usize) -> Option<Answer> {
        let Some(end) = self.input.iter().position(|&byte| byte == 0) else {
            return (self.input.len() > REQUEST_MAX).then(|| too_long(program));
        };
        let answer = if end > REQUEST_MAX {
            too_long(program)
        } else if room == 0 {
            service::busy(program)
        } else {
            service::answer(&self.input[..end], self.id, program)
        };
        self.input.drain(..=end);
        Some(answer)
    }

    /// Reads once. `None`: there is nothing to read now.
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

    /// Writes what is to go out. Whether all of it is out.
    fn flush(&mut self) -> io::Result<bool> {
        while self.pending() > 0 {
            let rest = &self.output[self.written..];
            match retry(|| (&self.stream).write(rest))? {
                None => return Ok(false),
                Some(n) => self.written += n,
            }
        }
        // A large reply's memory does not stay with an idle client.
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
    let message = format!("a call may have {REQUEST_MAX} bytes, this one is longer");
    service::bad_request(program, &message)
}

/// `None` where the call would block.
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
