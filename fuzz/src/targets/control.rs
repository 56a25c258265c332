//! Bytes from clients of the control socket, in pieces of any size: the server answers or closes, and ends
//! every stream that it began.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;

use control::api::{ApiError, Reply, Request};
use control::{ControlServer, Handler, StreamId, Streamed};

/// Accepts every call without output; counts streams.
#[derive(Default)]
struct Daemon {
    streams: BTreeSet<StreamId>,
    turns: u32,
}

impl Handler for Daemon {
    fn handle(&mut self, request: Request) -> Result<Reply, ApiError> {
        assert!(!request.is_stream());
        Ok(Reply::LogLevel {})
    }

    fn open(&mut self, stream: StreamId, request: Request) -> Result<(), ApiError> {
        assert!(request.is_stream());
        assert!(self.streams.insert(stream), "a client has one stream");
        Ok(())
    }

    fn next(&mut self, stream: StreamId) -> Streamed {
        assert!(self.streams.contains(&stream));
        self.turns += 1;
        match self.turns % 3 {
            0 => Streamed::Nothing,
            1 => Streamed::Reply(Reply::LogLevel {}),
            _ => {
                self.streams.remove(&stream);
                Streamed::Last(Ok(Reply::LogLevel {}))
            }
        }
    }

    fn close(&mut self, stream: StreamId) {
        assert!(self.streams.remove(&stream), "closed twice");
    }
}

fn server() -> ControlServer {
    let path = std::env::temp_dir().join(format!("ibtap-fuzz-{}.sock", std::process::id()));
    ControlServer::bind(&path).expect("a socket")
}

thread_local! {
    static SERVER: RefCell<ControlServer> = RefCell::new(server());
}

pub fn run(data: &[u8]) {
    SERVER.with_borrow_mut(|server| {
        let mut daemon = Daemon::default();
        let mut client = UnixStream::connect(server.path()).expect("it listens");
        client.set_nonblocking(true).expect("an option");
        let step = data.first().map_or(1, |b| usize::from(*b) + 1);
        let mut answer = [0; 4096];
        for piece in data.chunks(step) {
            // The server may have closed the connection.
            let _ = client.write(piece);
            server.process(&mut daemon).expect("a server that works");
            let failed = client.read(&mut answer).err();
            assert!(failed.is_none_or(|e| e.kind() != ErrorKind::InvalidInput));
        }
        drop(client);
        while server.clients() > 0 {
            server.process(&mut daemon).expect("a server that works");
        }
        assert!(daemon.streams.is_empty());
    });
}
