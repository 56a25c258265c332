//! Answers the control socket while the daemon starts. A port may wait for its underlay or RDMA device, and
//! clients get an error meanwhile instead of no answer.

use std::io;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::thread;

use control::api::{ApiError, Reply, Request};
use control::{ControlServer, Handler, StreamId, Streamed};
use rustix::event::{PollFd, PollFlags, poll};

use crate::status;

/// Runs `start`, and answers the control socket on another thread until `start` returns.
///
/// # Errors
/// Errors of the operating system for that thread. `start` has not run then.
pub fn answer_while<T>(server: &mut ControlServer, start: impl FnOnce() -> T) -> io::Result<T> {
    let (running, done) = UnixStream::pair()?;
    thread::scope(|scope| {
        let answering = thread::Builder::new().name("starting".into());
        answering.spawn_scoped(scope, || answer(server, done))?;
        let started = start();
        // The other end of the pair becomes readable.
        drop(running);
        Ok(started)
    })
}

/// Answers until `done` is readable. Ends at errors, too; the daemon meets the same error later and reports
/// it.
fn answer(server: &mut ControlServer, done: UnixStream) {
    loop {
        let is_done = {
            let mut fds = [
                PollFd::from_borrowed_fd(server.as_fd(), PollFlags::IN),
                PollFd::new(&done, PollFlags::IN),
            ];
            match poll(&mut fds, None) {
                Ok(_) => !fds[1].revents().is_empty(),
                Err(rustix::io::Errno::INTR) => false,
                Err(_) => true,
            }
        };
        if is_done || server.process(&mut Starting).is_err() {
            return;
        }
    }
}

/// The daemon during its start.
struct Starting;

fn refused() -> ApiError {
    ApiError::Errno {
        errno: rustix::io::Errno::BUSY.raw_os_error(),
        message: "ibtapd is starting and waits for its ports; try again, or read its log".into(),
    }
}

impl Handler for Starting {
    fn handle(&mut self, request: Request) -> Result<Reply, ApiError> {
        match request {
            Request::Version => Ok(status::version()),
            _ => Err(refused()),
        }
    }

    fn open(&mut self, _: StreamId, _: Request) -> Result<(), ApiError> {
        Err(refused())
    }

    fn next(&mut self, _: StreamId) -> Streamed {
        Streamed::Last(Err(refused()))
    }

    fn close(&mut self, _: StreamId) {}
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use control::api::{Nothing, Selection, methods};
    use control::{ClientError, ControlClient};

    #[test]
    fn requests_during_the_start_are_refused() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("s");
        let mut server = ControlServer::bind(&path).unwrap();
        let started = answer_while(&mut server, || {
            let mut client = ControlClient::connect(&path, Duration::from_secs(20)).unwrap();
            assert_eq!(
                client.call(methods::VERSION, &Nothing {}).unwrap().pid,
                std::process::id()
            );
            let error = client
                .call(methods::SHOW, &Selection::of(None))
                .unwrap_err();
            let busy = libc::EBUSY;
            assert!(matches!(
                &error,
                ClientError::Errno { errno, message } if *errno == busy && message.contains("is starting")
            ));
            (1, client)
        });
        let (one, mut client) = started.unwrap();
        assert_eq!((one, server.clients()), (1, 1), "the client stays");
        // The next call waits for the daemon that has started.
        let asking =
            thread::spawn(move || client.call(methods::VERSION, &Nothing {}).map(|v| v.pid));
        while !asking.is_finished() {
            server.process(&mut Starting).unwrap();
        }
        assert_eq!(asking.join().unwrap().unwrap(), std::process::id());
    }
}
