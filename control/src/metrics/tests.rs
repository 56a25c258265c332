use std::io::{Read, Write};
use std::os::unix::net::UnixStream;

use super::*;

const OPEN: &str = "# HELP up Whether up.\n# TYPE up gauge\nup 1\n# EOF\n";

/// A server on a unix socket, and the number of texts that it asked for.
struct World {
    server: MetricsServer,
    asked: u32,
    directory: tempfile::TempDir,
}

impl World {
    fn new() -> World {
        let directory = tempfile::tempdir().unwrap();
        let address = MetricsAddress::Unix(directory.path().join("m.sock"));
        World {
            server: MetricsServer::bind(&address).unwrap(),
            asked: 0,
            directory,
        }
    }

    fn connect(&self) -> UnixStream {
        UnixStream::connect(self.directory.path().join("m.sock")).unwrap()
    }

    fn process(&mut self) {
        let asked = &mut self.asked;
        let mut metrics = || {
            *asked += 1;
            Ok(OPEN.to_owned())
        };
        self.server.process(&mut metrics).unwrap();
    }

    fn ask(&mut self, request: &str) -> String {
        let mut client = self.connect();
        client.write_all(request.as_bytes()).unwrap();
        self.process();
        self.process();
        let mut answer = String::new();
        client.read_to_string(&mut answer).unwrap();
        answer
    }
}

#[test]
fn a_collector_gets_the_format_that_it_accepts() {
    let mut world = World::new();
    let classic = world.ask("GET /metrics HTTP/1.1\r\nHost: h\r\n\r\n");
    assert!(classic.starts_with("HTTP/1.1 200 OK\r\nContent-Type: text/plain; version=0.0.4"));
    assert!(classic.ends_with("\r\n\r\n# HELP up Whether up.\n# TYPE up gauge\nup 1\n"));
    let open = world.ask(
        "GET /metrics HTTP/1.1\r\naccept: application/openmetrics-text;version=1.0.0,*/*\r\n\r\n",
    );
    assert!(open.contains("Content-Type: application/openmetrics-text; version=1.0.0"));
    assert!(open.ends_with(OPEN), "{open}");
    assert_eq!(world.asked, 1, "requests of one second share a text");
}

#[test]
fn other_requests_get_an_error_and_no_metrics() {
    let mut world = World::new();
    let long = format!("GET /metrics HTTP/1.1\r\nX: {}\r\n", "x".repeat(5000));
    for (request, status) in [
        ("GET / HTTP/1.1\r\n\r\n", "404"),
        ("POST /metrics HTTP/1.1\r\n\r\n", "405"),
        ("GET /metrics HTTP/2\r\n\r\n", "400"),
        ("\r\n\r\n", "400"),
        ("\u{0}\u{fffd} \r\n\r\n", "400"),
        (&*long, "431"),
    ] {
        let answer = world.ask(request);
        assert!(
            answer.starts_with(&format!("HTTP/1.1 {status} ")),
            "{request:?}: {answer}"
        );
    }
    assert_eq!(world.asked, 0);
}

/// Clients that connect and are silent must not keep a collector out.
#[test]
fn silent_connections_make_room_for_new_ones() {
    let mut world = World::new();
    let silent: Vec<UnixStream> = (0..3 * CONNECTIONS_MAX)
        .map(|_| {
            let client = world.connect();
            world.process();
            client
        })
        .collect();
    let used = world.server.exchanges.iter().flatten().count();
    assert_eq!(used, CONNECTIONS_MAX);
    let answer = world.ask("GET /metrics HTTP/1.1\r\n\r\n");
    assert!(answer.starts_with("HTTP/1.1 200 OK"), "{answer}");
    drop(silent);
}

#[test]
fn a_busy_daemon_is_reported_and_asked_again() {
    let mut world = World::new();
    let mut client = world.connect();
    client.write_all(b"GET /metrics HTTP/1.1\r\n\r\n").unwrap();
    world.server.process(&mut || Err(ApiError::Busy)).unwrap();
    let mut answer = String::new();
    client.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 503 "), "{answer}");
    assert!(answer.ends_with("ibtapd is busy; try again\n"));
    let answer = world.ask("GET /metrics HTTP/1.0\r\n\r\n");
    assert!(answer.starts_with("HTTP/1.1 200 OK"), "{answer}");
}

#[test]
fn an_answer_larger_than_the_socket_is_written_in_turns() {
    let mut world = World::new();
    let large = "x 1\n".repeat(1 << 20);
    let mut client = world.connect();
    client.write_all(b"GET /metrics HTTP/1.1\r\n\r\n").unwrap();
    client.set_nonblocking(true).unwrap();
    let (mut answer, mut turns) = (Vec::new(), 0);
    loop {
        world.server.process(&mut || Ok(large.clone())).unwrap();
        match client.read_to_end(&mut answer) {
            Ok(_) => break,
            Err(e) => assert_eq!(e.kind(), io::ErrorKind::WouldBlock),
        }
        turns += 1;
    }
    assert!(turns > 1, "{turns}");
    assert!(answer.ends_with(large.as_bytes()));
}

#[test]
fn a_taken_address_is_refused_with_advice() {
    let first = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = first.local_addr().unwrap();
    let taken = |address| {
        let error = MetricsServer::bind(&address).err().unwrap();
        assert!(error.is_in_use(), "{error}");
        error.to_string()
    };
    let error = taken(MetricsAddress::Tcp(at));
    let begin = format!("cannot listen on the TCP address {at}: ");
    assert!(error.starts_with(&begin), "{error}");
    let end = "; choose another address with the key metrics";
    assert!(error.ends_with(end), "{error}");
    let world = World::new();
    let path = world.directory.path().join("m.sock");
    let error = taken(MetricsAddress::Unix(path));
    assert!(error.contains("another process already listens"), "{error}");
    let file = world.directory.path().join("file");
    std::fs::write(&file, "").unwrap();
    let error = MetricsServer::bind(&MetricsAddress::Unix(file));
    assert!(!error.err().unwrap().is_in_use());
}

/// A network manager may assign the address after the start of the daemon.
#[test]
fn the_address_may_be_missing() {
    for missing in ["192.0.2.1:9345", "[2001:db8::1]:9345"] {
        let bound = MetricsServer::bind(&missing.parse().unwrap());
        assert!(bound.is_ok(), "{missing}: {:?}", bound.err());
    }
}
