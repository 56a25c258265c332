mod client;
mod program;
mod socket;

use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags};
use rustix::time::Timespec;
use tempfile::TempDir;

use super::*;
use crate::Handler;
use crate::api::{
    ApiError, ChildAddRequest, ChildDelRequest, Event, GroupInfo, Happening, Interface, LogLevel,
    Mode, Moderation, ModerationRequest, PkeysRequest, Reply, Request, Selection, VersionInfo,
    methods,
};
use crate::service::tests::samples;
use crate::{ClientError, ControlClient, Next, REQUEST_MAX, Streamed};

const SECOND: Duration = Duration::from_secs(1);
const VERSION: &str = "{\"method\":\"org.ibtap.Daemon.Version\"}\0";

/// A handler with a version, a group table whose size is the interface's name, and the streams of [`STREAMS`].
struct Daemon;

/// The waiting replies of a stream, and whether it ends after them.
#[derive(Default)]
struct Waiting {
    events: std::collections::VecDeque<Event>,
    over: bool,
}

thread_local! {
    /// The streams. Each test has its own thread.
    static STREAMS: std::cell::RefCell<std::collections::BTreeMap<StreamId, Waiting>> =
        const { std::cell::RefCell::new(std::collections::BTreeMap::new()) };
}

/// The number of streams.
fn streams() -> usize {
    STREAMS.with_borrow(|all| all.len())
}

/// Adds this number of events to each stream.
fn happens(times: usize) {
    let event = Event {
        time: "2026-11-21T12:00:00.000Z".into(),
        interface: Some("ib0".into()),
        netns: None,
        port: None,
        what: Happening::Up,
        lost: None,
    };
    STREAMS.with_borrow_mut(|all| {
        for stream in all.values_mut() {
            let more = std::iter::repeat_n(event.clone(), times);
            stream.events.extend(more);
        }
    });
}

/// Ends all streams after their waiting replies.
fn end_streams() {
    STREAMS.with_borrow_mut(|all| all.values_mut().for_each(|s| s.over = true));
}

impl Handler for Daemon {
    fn handle(&mut self, request: Request) -> Result<Reply, ApiError> {
        match request {
            Request::Version => Ok(Reply::Version(VersionInfo {
                product: "ibtapd".into(),
                version: "1".into(),
                pid: 42,
                log_level: LogLevel::Info,
            })),
            Request::Groups(of) => match of.interface.parse() {
                Ok(count) => Ok(Reply::Groups {
                    groups: vec![group(); count],
                }),
                Err(_) => Err(ApiError::NoSuchInterface {
                    interface: of.interface,
                }),
            },
            Request::LogLevel(_) => Err(ApiError::Refused {
                message: "not today".into(),
            }),
            other => samples::reply(&other),
        }
    }

    fn open(&mut self, stream: StreamId, _: Request) -> Result<(), ApiError> {
        STREAMS.with_borrow_mut(|all| all.insert(stream, Waiting::default()));
        Ok(())
    }

    fn next(&mut self, stream: StreamId) -> Streamed {
        STREAMS.with_borrow_mut(|all| {
            let waiting = all.get_mut(&stream).expect("an open stream");
            match waiting.events.pop_front() {
                Some(event) => Streamed::Reply(Reply::Monitor { event }),
                None if waiting.over => {
                    all.remove(&stream);
                    Streamed::Last(Err(ApiError::Busy))
                }
                None => Streamed::Nothing,
            }
        })
    }

    fn close(&mut self, stream: StreamId) {
        let known = STREAMS.with_borrow_mut(|all| all.remove(&stream));
        assert!(known.is_some(), "closed twice");
    }
}

fn group() -> GroupInfo {
    GroupInfo {
        mgid: "ff12:401b:ffff::ffff:ffff".parse().unwrap(),
        created: 1,
        queuelen: 0,
        complete: true,
        send_only: false,
        record: None,
    }
}

struct Rig {
    directory: TempDir,
    server: ControlServer,
}

impl Rig {
    fn new() -> Rig {
        let directory = tempfile::tempdir().unwrap();
        let server = ControlServer::bind(&directory.path().join("run/ibtapd.sock")).unwrap();
        Rig { directory, server }
    }

    fn connect(&self) -> UnixStream {
        let stream = UnixStream::connect(self.server.path()).unwrap();
        stream.set_nonblocking(true).unwrap();
        stream
    }

    fn readable(&self, wait: Duration) -> bool {
        let wait = Timespec::try_from(wait).unwrap();
        let mut fds = [PollFd::new(&self.server, PollFlags::IN)];
        rustix::event::poll(&mut fds, Some(&wait)).unwrap() > 0
    }

    /// Runs the server until its descriptor is not readable, as the daemon's loop does. A server that keeps its
    /// descriptor readable without work fails here.
    fn settle(&mut self) {
        let mut turns = 0;
        while self.readable(Duration::ZERO) {
            self.server.process(&mut Daemon).unwrap();
            turns += 1;
            assert!(turns < 100_000, "the server spins");
        }
    }

    /// Serves until the client has received a whole message.
    fn receive(&mut self, stream: &mut UnixStream) -> String {
        let mut text = Vec::new();
        let start = Instant::now();
        while text.last() != Some(&0) {
            self.settle();
            let mut chunk = [0; 1 << 16];
            match stream.read(&mut chunk) {
                Ok(0) => panic!("closed after {} bytes", text.len()),
                Ok(n) => text.extend_from_slice(&chunk[..n]),
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
                Err(e) => panic!("{e}"),
            }
            assert!(start.elapsed() < 20 * SECOND, "no answer");
        }
        text.pop();
        String::from_utf8(text).unwrap()
    }

    fn ask(&mut self, stream: &mut UnixStream, call: &str) -> String {
        stream.write_all(call.as_bytes()).unwrap();
        self.receive(stream)
    }
}

/// Whether the server has closed the connection.
fn closed(stream: &mut UnixStream) -> bool {
    loop {
        match stream.read(&mut [0; 4096]) {
            Ok(0) => return true,
            Ok(_) => {}
            Err(e) => return e.kind() == io::ErrorKind::ConnectionReset,
        }
    }
}

fn groups(count: usize) -> String {
    let call = serde_json::json!({
        "method": "org.ibtap.Daemon.Groups",
        "parameters": {"interface": count.to_string()},
    });
    format!("{call}\0")
}

/// Serves on a separate thread until dropped.
struct Running {
    stop: std::sync::Arc<AtomicBool>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Running {
    fn start(rig: Rig) -> Running {
        Running::start_with_events(rig, 0)
    }

    /// Serves with this number of events for the first stream.
    fn start_with_events(mut rig: Rig, mut events: usize) -> Running {
        let stop = std::sync::Arc::new(AtomicBool::new(false));
        let stopped = stop.clone();
        let thread = std::thread::spawn(move || {
            while !stopped.load(Ordering::Relaxed) {
                if rig.readable(Duration::from_millis(20)) {
                    rig.server.process(&mut Daemon).unwrap();
                }
                if streams() > 0 {
                    happens(std::mem::take(&mut events));
                    rig.server.process(&mut Daemon).unwrap();
                }
            }
        });
        Running {
            stop,
            thread: Some(thread),
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

#[test]
fn a_call_is_answered_and_the_connection_stays() {
    let mut rig = Rig::new();
    let mut client = rig.connect();
    for _ in 0..3 {
        assert!(rig.ask(&mut client, VERSION).contains("\"pid\":42"));
    }
    drop(client);
    rig.settle();
    assert_eq!(rig.server.clients(), 0);
}

#[test]
fn calls_may_come_in_pieces_and_in_bunches() {
    let mut rig = Rig::new();
    let mut client = rig.connect();
    for byte in VERSION.bytes() {
        client.write_all(&[byte]).unwrap();
        rig.settle();
    }
    assert!(rig.receive(&mut client).contains("\"pid\":42"));

    // More calls than a turn answers; the last call is incomplete.
    let bunch = VERSION.repeat(50) + &VERSION[..5];
    client.write_all(bunch.as_bytes()).unwrap();
    rig.settle();
    let mut text = [0; 1 << 16];
    let n = client.read(&mut text).unwrap();
    assert_eq!(text[..n].iter().filter(|b| **b == 0).count(), 50);
    assert!(rig.ask(&mut client, &VERSION[5..]).contains("\"pid\":42"));
}

#[test]
fn calls_sent_before_the_peer_stops_writing_are_answered() {
    let mut rig = Rig::new();
    let mut client = rig.connect();
    client.write_all(VERSION.as_bytes()).unwrap();
    client.shutdown(Shutdown::Write).unwrap();
    assert!(rig.receive(&mut client).contains("\"pid\":42"));
    rig.settle();
    assert!(closed(&mut client));
}

#[test]
fn garbage_gets_an_error_and_is_cut_off_while_others_are_served() {
    let mut rig = Rig::new();
    let mut good = rig.connect();
    for garbage in [
        "\0",
        "GET / HTTP/1.1\r\n\r\n\0",
        "{\"method\":}\0",
        "\u{fffd}\0",
    ] {
        let mut bad = rig.connect();
        let answer = rig.ask(&mut bad, garbage);
        assert!(answer.contains("org.ibtap.Daemon.BadRequest"), "{answer}");
        assert!(closed(&mut bad));
        assert!(rig.ask(&mut good, VERSION).contains("\"pid\":42"));
    }
    assert_eq!(rig.server.clients(), 1);
}

#[test]
fn a_call_without_end_is_cut_off() {
    let mut rig = Rig::new();
    let mut client = rig.connect();
    let chunk = [b'x'; 4096];
    let mut sent = 0;
    while sent < 4 * REQUEST_MAX {
        match client.write(&chunk) {
            Ok(n) => sent += n,
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
            Err(e) => {
                assert_eq!(e.kind(), io::ErrorKind::BrokenPipe);
                break;
            }
        }
        rig.settle();
    }
    assert!(sent < 2 * REQUEST_MAX, "the server took {sent} bytes");
    assert_eq!(rig.server.clients(), 0);
    let mut text = vec![0; 4096];
    let n = client.read(&mut text).unwrap();
    let text = String::from_utf8_lossy(&text[..n]);
    assert!(
        text.contains("BadRequest") && text.contains("65536"),
        "{text}"
    );
}

#[test]
fn a_call_of_the_largest_size_is_taken() {
    let mut rig = Rig::new();
    let mut client = rig.connect();
    let body = "{\"method\":\"org.ibtap.Daemon.Version\"";
    let padding = " ".repeat(REQUEST_MAX - body.len() - 1);
    let call = format!("{body}{padding}}}\0");
    assert_eq!(call.len(), REQUEST_MAX + 1);
    let mut rest = call.as_bytes();
    while !rest.is_empty() {
        if let Ok(n) = client.write(rest) {
            rest = &rest[n..];
        }
        rig.settle();
    }
    assert!(rig.receive(&mut client).contains("\"pid\":42"));
}

const MONITOR: &str = "{\"method\":\"org.ibtap.Daemon.Monitor\",\"more\":true}\0";

/// The received replies, each a message.
fn messages(stream: &mut UnixStream) -> Vec<String> {
    let mut bytes = Vec::new();
    let mut chunk = [0; 1 << 16];
    while let Ok(n @ 1..) = stream.read(&mut chunk) {
        bytes.extend_from_slice(&chunk[..n]);
    }
    let text = String::from_utf8(bytes).unwrap();
    text.split_terminator('\0').map(str::to_owned).collect()
}

impl Rig {
    /// Runs the server once after events, as the daemon's loop does.
    fn pass(&mut self) {
        self.server.process(&mut Daemon).unwrap();
        self.settle();
    }
}

#[test]
fn a_stream_gets_events_until_it_ends_and_calls_wait() {
    let mut rig = Rig::new();
    let mut client = rig.connect();
    client.write_all(MONITOR.as_bytes()).unwrap();
    rig.pass();
    assert_eq!((streams(), messages(&mut client).len()), (1, 0));
    for times in [1, 3, 100] {
        happens(times);
        rig.pass();
        let received = messages(&mut client);
        assert_eq!(received.len(), times);
        assert!(received.iter().all(|m| m.ends_with("\"continues\":true}")));
    }
    client.write_all(VERSION.as_bytes()).unwrap();
    rig.pass();
    assert_eq!(messages(&mut client).len(), 0, "a call waits for its turn");
    end_streams();
    rig.pass();
    let received = messages(&mut client);
    assert!(received[0].contains("Busy") && !received[0].contains("continues"));
    assert!(received[1].contains("\"pid\":42"));
    assert_eq!(streams(), 0);
}

#[test]
fn a_client_that_does_not_read_delays_no_other_and_holds_little() {
    let mut rig = Rig::new();
    let mut slow = rig.connect();
    let mut other = rig.connect();
    for client in [&mut slow, &mut other] {
        client.write_all(MONITOR.as_bytes()).unwrap();
        rig.pass();
    }
    let mut received = 0;
    for _ in 0..100 {
        happens(100);
        rig.pass();
        received += messages(&mut other).len();
    }
    assert_eq!(received, 10_000);
    let held: usize = rig.server.connections().map(Connection::pending).sum();
    assert!(held < 32 * 1024, "{held} bytes wait in the server");
    let left = STREAMS.with_borrow(|all| all.values().map(|s| s.events.len()).max());
    assert!(left > Some(1000), "the rest waits with the daemon");
    // The client gets the waiting events as it reads.
    let mut caught_up = 0;
    while caught_up < 10_000 {
        caught_up += messages(&mut slow).len();
        rig.pass();
    }
    assert_eq!(caught_up, 10_000);
}

#[test]
fn a_stream_ends_with_its_client() {
    let mut rig = Rig::new();
    for events in [0, 1, 10_000] {
        let mut client = rig.connect();
        client.write_all(MONITOR.as_bytes()).unwrap();
        rig.pass();
        assert_eq!(streams(), 1);
        happens(events);
        rig.pass();
        drop(client);
        rig.pass();
        assert_eq!((streams(), rig.server.clients()), (0, 0), "{events} events");
    }
}

#[test]
fn endless_calls_during_a_stream_are_cut_off() {
    let mut rig = Rig::new();
    let mut client = rig.connect();
    client.write_all(MONITOR.as_bytes()).unwrap();
    rig.pass();
    let mut sent = 0;
    while let Ok(n) = client.write(VERSION.as_bytes()) {
        sent += n;
        rig.pass();
        assert!(sent < 3 * REQUEST_MAX, "the server took {sent} bytes");
    }
    assert_eq!((streams(), rig.server.clients()), (0, 0));
}

#[test]
fn of_too_many_clients_those_with_a_stream_stay() {
    let mut rig = Rig::new();
    let mut watching = rig.connect();
    watching.write_all(MONITOR.as_bytes()).unwrap();
    rig.pass();
    let mut others: Vec<_> = (0..2 * CLIENTS_MAX)
        .map(|_| {
            let mut client = rig.connect();
            rig.ask(&mut client, VERSION);
            client
        })
        .collect();
    assert_eq!(rig.server.clients(), CLIENTS_MAX);
    happens(1);
    rig.pass();
    assert_eq!(messages(&mut watching).len(), 1);
    // If all clients have streams, the client that has been idle longest is replaced.
    for client in others.iter_mut().rev().take(CLIENTS_MAX - 1) {
        client.write_all(MONITOR.as_bytes()).unwrap();
        rig.pass();
    }
    assert_eq!(streams(), CLIENTS_MAX);
    let mut late = rig.connect();
    assert!(rig.ask(&mut late, VERSION).contains("\"pid\":42"));
    assert_eq!(streams(), CLIENTS_MAX - 1);
}

#[test]
fn a_large_reply_goes_out_as_the_client_reads() {
    let mut rig = Rig::new();
    let mut slow = rig.connect();
    slow.write_all(groups(50_000).as_bytes()).unwrap();
    rig.settle();
    // The server waits for the slow client without spinning (settle returned), and serves the next client.
    let mut other = rig.connect();
    assert!(rig.ask(&mut other, VERSION).contains("\"pid\":42"));
    // The server does not read further calls of the slow client, so its socket fills up.
    let mut unread = 0;
    while let Ok(n) = slow.write(VERSION.as_bytes()) {
        unread += n;
        rig.settle();
    }
    assert!(unread > 0);
    let reply: serde_json::Value = serde_json::from_str(&rig.receive_one(&mut slow)).unwrap();
    let groups = reply["parameters"]["groups"].as_array().unwrap();
    assert_eq!(groups.len(), 50_000);
}

impl Rig {
    /// Like [`Rig::receive`], for a stream with several replies.
    fn receive_one(&mut self, stream: &mut UnixStream) -> String {
        let mut text = Vec::new();
        loop {
            self.settle();
            let mut chunk = [0; 1 << 16];
            let n = stream.read(&mut chunk).unwrap_or(0);
            text.extend_from_slice(&chunk[..n]);
            if let Some(end) = text.iter().position(|b| *b == 0) {
                text.truncate(end);
                return String::from_utf8(text).unwrap();
            }
        }
    }
}

#[test]
fn what_waits_for_slow_clients_is_bounded() {
    let mut rig = Rig::new();
    // Unread replies of about 9 MB each.
    let slow: Vec<_> = (0..6)
        .map(|_| {
            let mut client = rig.connect();
            client.write_all(groups(90_000).as_bytes()).unwrap();
            rig.settle();
            client
        })
        .collect();
    let waiting: usize = rig.server.connections().map(Connection::pending).sum();
    assert!(waiting >= OUTPUT_MAX, "{waiting} bytes wait");
    assert!(waiting <= OUTPUT_MAX + REPLY_MAX, "{waiting} bytes wait");
    let mut late = rig.connect();
    let answer = rig.ask(&mut late, &groups(1));
    assert!(answer.contains("org.ibtap.Daemon.Busy"), "{answer}");
    let path = rig.server.path().to_owned();
    let asked = std::thread::spawn(move || {
        let mut client = ControlClient::connect(&path, 5 * SECOND).unwrap();
        client
            .call(methods::GROUPS, &Interface::of("1"))
            .unwrap_err()
    });
    while !asked.is_finished() {
        rig.settle();
    }
    assert!(matches!(asked.join().unwrap(), ClientError::Busy));
    drop(slow);
    assert!(rig.ask(&mut late, &groups(1)).contains("mgid"));
}

#[test]
fn a_reply_over_the_limit_is_refused() {
    let mut rig = Rig::new();
    let mut client = rig.connect();
    let answer = rig.ask(&mut client, &groups(300_000));
    assert!(answer.contains("org.ibtap.Daemon.Refused"), "{answer}");
}

#[test]
fn of_too_many_clients_the_quietest_makes_way() {
    let mut rig = Rig::new();
    let mut clients: Vec<_> = (0..CLIENTS_MAX).map(|_| rig.connect()).collect();
    rig.settle();
    assert_eq!(rig.server.clients(), CLIENTS_MAX);
    // All clients except the second send calls.
    for (_, client) in clients.iter_mut().enumerate().filter(|(i, _)| *i != 1) {
        rig.ask(client, VERSION);
    }
    let mut late = rig.connect();
    assert!(rig.ask(&mut late, VERSION).contains("\"pid\":42"));
    assert_eq!(rig.server.clients(), CLIENTS_MAX);
    for (i, client) in clients.iter_mut().enumerate() {
        assert_eq!(closed(client), i == 1, "client {i}");
    }
}

#[test]
fn a_flood_of_connections_leaves_the_server_working() {
    let mut rig = Rig::new();
    for _ in 0..10 * CLIENTS_MAX {
        drop(rig.connect());
        if rig.server.clients() > CLIENTS_MAX / 2 {
            rig.settle();
        }
        rig.server.process(&mut Daemon).unwrap();
    }
    rig.settle();
    assert_eq!(rig.server.clients(), 0);
    let mut client = rig.connect();
    assert!(rig.ask(&mut client, VERSION).contains("\"pid\":42"));
}
