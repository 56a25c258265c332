//! A program with another interface, with late replies and one-way calls.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::*;
use crate::api::methods::Method;
use crate::{Answered, Body, Failure, Identity, MethodCall, Program};

const INTERFACE: &str = "org.ibtap.Test";

/// Answers at once or later, and counts calls.
#[derive(Default)]
struct Echo {
    late: BTreeMap<StreamId, Value>,
    ready: bool,
    taken: usize,
}

impl Program for Echo {
    fn identity(&self) -> Identity {
        Identity {
            product: "echo",
            interface: INTERFACE,
            description: "interface org.ibtap.Test",
        }
    }

    fn call(&mut self, call: MethodCall) -> Result<Answered, Failure> {
        let parameters = Value::Object(call.parameters);
        match call.method.as_str() {
            "Now" => Ok(Answered::Reply(Body::of(&parameters))),
            "Late" => {
                self.late.insert(call.stream, parameters);
                Ok(Answered::Later)
            }
            "Take" => {
                self.taken += 1;
                Ok(Answered::Reply(Body::of(&json!({}))))
            }
            "Refuse" => Err(Failure::new(
                INTERFACE,
                "Refused",
                json!({"message": "not today"}),
            )),
            other => Err(Failure::unknown_method(other)),
        }
    }

    fn next(&mut self, stream: StreamId) -> Result<Option<(Body, bool)>, Failure> {
        if !self.ready {
            return Ok(None);
        }
        let body = self.late.remove(&stream).expect("an open stream");
        Ok(Some((Body::of(&body), true)))
    }

    fn close(&mut self, stream: StreamId) {
        assert!(self.late.remove(&stream).is_some(), "closed twice");
    }
}

fn bind() -> (TempDir, ControlServer) {
    let directory = TempDir::new().unwrap();
    let server = ControlServer::bind(&directory.path().join("echo.sock")).unwrap();
    (directory, server)
}

fn pass(server: &mut ControlServer, echo: &mut Echo) {
    for _ in 0..4 {
        server.process(echo).unwrap();
    }
}

fn call(stream: &mut UnixStream, method: &str, more: &str) {
    let call = format!("{{\"method\":\"{method}\",\"parameters\":{{\"z\":1,\"a\":2}}{more}}}\0");
    stream.write_all(call.as_bytes()).unwrap();
}

fn read(stream: &mut UnixStream) -> Option<String> {
    stream.set_nonblocking(true).unwrap();
    let mut chunk = [0; 4096];
    let n = stream.read(&mut chunk).ok()?;
    Some(String::from_utf8(chunk[..n].to_vec()).unwrap())
}

#[test]
fn another_program_answers_at_once_late_and_with_errors_of_its_own() {
    let (directory, mut server) = bind();
    let mut echo = Echo::default();
    let mut client = UnixStream::connect(directory.path().join("echo.sock")).unwrap();
    call(&mut client, "org.ibtap.Test.Now", "");
    pass(&mut server, &mut echo);
    let echoed = "{\"parameters\":{\"a\":2,\"z\":1}}\0";
    assert_eq!(read(&mut client).as_deref(), Some(echoed));

    call(&mut client, "org.ibtap.Test.Late", "");
    pass(&mut server, &mut echo);
    assert_eq!(read(&mut client), None);
    echo.ready = true;
    pass(&mut server, &mut echo);
    // A call without `more` gets one reply, also if it is late.
    assert_eq!(read(&mut client).as_deref(), Some(echoed));

    for (method, error) in [
        ("org.ibtap.Test.Refuse", "org.ibtap.Test.Refused"),
        (
            "org.ibtap.Daemon.Version",
            "org.varlink.service.InterfaceNotFound",
        ),
        (
            "org.ibtap.Test.Nothing",
            "org.varlink.service.MethodNotFound",
        ),
    ] {
        call(&mut client, method, "");
        pass(&mut server, &mut echo);
        let reply = read(&mut client).unwrap();
        assert!(reply.contains(&format!("\"error\":\"{error}\"")), "{reply}");
    }
    client.write_all(b"nonsense\0").unwrap();
    pass(&mut server, &mut echo);
    assert!(
        read(&mut client)
            .unwrap()
            .contains("org.ibtap.Test.BadRequest")
    );
}

#[test]
fn a_client_that_leaves_before_a_late_answer_is_forgotten() {
    let (directory, mut server) = bind();
    let mut echo = Echo::default();
    let mut client = UnixStream::connect(directory.path().join("echo.sock")).unwrap();
    call(&mut client, "org.ibtap.Test.Late", ",\"oneway\":true");
    pass(&mut server, &mut echo);
    assert!(echo.late.is_empty());
    call(&mut client, "org.ibtap.Test.Late", "");
    pass(&mut server, &mut echo);
    assert_eq!(echo.late.len(), 1);
    drop(client);
    pass(&mut server, &mut echo);
    assert!(echo.late.is_empty());
}

#[test]
fn a_client_reads_errors_of_any_interface_of_ours() {
    let (directory, mut server) = bind();
    let path = directory.path().join("echo.sock");
    let asking = std::thread::spawn(move || {
        let mut client = ControlClient::connect(&path, 5 * SECOND).unwrap();
        let refused = client.ask::<_, Value>("org.ibtap.Test.Refuse", json!({}));
        let unknown = client.ask::<_, Value>("org.ibtap.Test.Nothing", json!({}));
        (
            refused.unwrap_err().to_string(),
            unknown.unwrap_err().to_string(),
        )
    });
    let mut echo = Echo::default();
    while !asking.is_finished() {
        server.process(&mut echo).unwrap();
    }
    let (refused, unknown) = asking.join().unwrap();
    assert_eq!(refused, "not today");
    assert!(unknown.contains("it has no method"), "{unknown}");
}

#[test]
fn posts_are_written_as_far_as_they_are_taken_and_none_is_lost() {
    let mut rig = Rig::new();
    let client = ControlClient::connect(rig.server.path(), 5 * SECOND).unwrap();
    let mut posts = client.posts();
    let level = json!({"level": "info", "pad": "x".repeat(4000)});
    const LOG_LEVEL: Method<Value, Value> = methods::whole("LogLevel");
    let mut pushed = 0;
    // The server does not read: the socket fills up, and writing does not wait.
    while posts.pending() == 0 {
        posts.push(LOG_LEVEL, &level).unwrap();
        posts.flush().unwrap();
        pushed += 1;
        assert!(pushed < 10_000);
    }
    while posts.pending() > 0 {
        rig.pass();
        posts.flush().unwrap();
    }
    drop(rig);
    let error = at_last(|| {
        posts.push(LOG_LEVEL, &level).unwrap();
        posts.flush()
    });
    assert!(matches!(error, ClientError::Ended { .. }), "{error}");
}

#[test]
fn replies_are_taken_without_waiting() {
    let mut rig = Rig::new();
    let path = rig.server.path().to_owned();
    let mut events = ControlClient::connect(&path, 5 * SECOND)
        .unwrap()
        .stream(methods::MONITOR, &Selection::default())
        .unwrap();
    assert_eq!(events.try_next().unwrap(), None);
    rig.settle();
    happens(2);
    rig.pass();
    for _ in 0..2 {
        assert!(matches!(events.try_next().unwrap(), Some(Next::Reply(_))));
    }
    assert_eq!(events.try_next().unwrap(), None);
    drop(rig);
    let error = at_last(|| events.try_next());
    assert!(matches!(error, ClientError::Ended { .. }), "{error}");
}

/// The error of a client whose server has gone. A program that another test starts holds the server's descriptors for a
/// moment, between fork and exec.
fn at_last<T>(mut attempt: impl FnMut() -> Result<T, ClientError>) -> ClientError {
    let end = Instant::now() + 5 * SECOND;
    loop {
        match attempt() {
            Err(error) => return error,
            Ok(_) => assert!(Instant::now() < end, "the connection never ends"),
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}
