//! The client of this crate with the server.

use super::*;
use crate::api::{Interface, Level, MtuRequest, Nothing, Selection, UmcastRequest, methods};

#[test]
fn the_client_calls_the_server() {
    let rig = Rig::new();
    let path = rig.server.path().to_owned();
    let _running = Running::start(rig);
    let mut client = ControlClient::connect(&path, 5 * SECOND).unwrap();
    assert_eq!(client.call(methods::VERSION, &Nothing {}).unwrap().pid, 42);
    let groups = client
        .call(methods::GROUPS, &Interface::of("40000"))
        .unwrap();
    assert_eq!((groups.len(), &groups[0]), (40_000, &group()));
    let error = client
        .call(methods::GROUPS, &Interface::of("ib7"))
        .unwrap_err();
    assert_eq!(
        error.to_string(),
        "ibtapd serves no interface named \"ib7\"; see \"ibtap show\""
    );
    let error = client
        .call(
            methods::LOG_LEVEL,
            &Level {
                level: LogLevel::Debug,
            },
        )
        .unwrap_err();
    assert!(matches!(error, ClientError::Refused(message) if message == "not today"));
}

#[test]
fn the_client_asks_for_children_and_settings() {
    let rig = Rig::new();
    let path = rig.server.path().to_owned();
    let _running = Running::start(rig);
    let mut client = ControlClient::connect(&path, 5 * SECOND).unwrap();
    let mut add = ChildAddRequest {
        parent: "ib0".into(),
        pkey: 0x8001,
        name: None,
        mode: Some(Mode::Connected),
        mtu: Some(9000),
        queues: Some(2),
        netns: Some("blue".into()),
    };
    assert_eq!(client.call(methods::CHILD_ADD, &add).unwrap(), "ib0.8001");
    add.pkey = 0xffff;
    let error = client.call(methods::CHILD_ADD, &add).unwrap_err();
    assert!(
        matches!(&error, ClientError::Errno { errno: 76, message } if message.contains("itself")),
        "{error}"
    );
    assert_eq!(error.to_string(), "ib0 has this P_Key itself");
    let del = |interface: &str| ChildDelRequest {
        interface: interface.into(),
        pkey: Some(0x8001),
    };
    client.call(methods::CHILD_DEL, &del("ib0")).unwrap();
    let error = client.call(methods::CHILD_DEL, &del("ib7")).unwrap_err();
    assert!(matches!(error, ClientError::NoSuchInterface { .. }));
    let children = client
        .call(methods::CHILDREN, &Selection::of(Some("ib0")))
        .unwrap();
    assert_eq!((children.len(), &*children[0].parent), (1, "ib0"));
    let tables = client
        .call(methods::PKEYS, &PkeysRequest::default())
        .unwrap();
    assert_eq!((tables.len(), tables[0].pkeys.len()), (1, 2));
    assert_eq!(
        client
            .call(
                methods::MTU,
                &MtuRequest {
                    interface: "ib0".into(),
                    mtu: Some(1500)
                }
            )
            .unwrap(),
        1500
    );
    assert!(
        client
            .call(
                methods::UMCAST,
                &UmcastRequest {
                    interface: "ib0".into(),
                    umcast: Some(true)
                }
            )
            .unwrap()
    );
    let request = ModerationRequest {
        interface: "ib0".into(),
        rx_usecs: Some(3),
        rx_frames: None,
    };
    let expected = Moderation {
        rx_usecs: 3,
        rx_frames: 16,
    };
    assert_eq!(
        client.call(methods::MODERATION, &request).unwrap(),
        expected
    );
}

#[test]
fn the_client_reports_faults_of_the_daemon() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("s");
    let error = ControlClient::connect(&path, SECOND).map(drop).unwrap_err();
    let expected = format!(
        "cannot reach ibtapd at {}: No such file or directory (os error 2); start ibtapd \
         (systemctl start ibtapd, or ibtapd --underlay IF), or name the socket of ibtapd with --socket",
        path.display()
    );
    assert_eq!(error.to_string(), expected);

    let listener = UnixListener::bind(&path).unwrap();
    let wait = Duration::from_millis(50);
    let error = ControlClient::connect(&path, wait)
        .and_then(|mut client| client.call(methods::VERSION, &Nothing {}))
        .unwrap_err();
    assert!(matches!(&error, ClientError::Silent { .. }), "{error}");

    // The client before is still in the queue, which has no room for another one.
    rustix::net::listen(&listener, 0).unwrap();
    let error = ControlClient::connect(&path, wait).map(drop).unwrap_err();
    assert!(matches!(&error, ClientError::Silent { .. }), "{error}");

    drop(listener);
    let error = ControlClient::connect(&path, wait).map(drop).unwrap_err();
    assert!(error.is_refused(), "{error}");
}

#[test]
fn the_client_reads_a_stream_until_it_is_interrupted_or_the_daemon_goes() {
    let rig = Rig::new();
    let path = rig.server.path().to_owned();
    let running = Running::start_with_events(rig, 3);
    let client = ControlClient::connect(&path, 5 * SECOND).unwrap();
    let mut events = client
        .stream(methods::MONITOR, &Selection::of(Some("ib0")))
        .unwrap();
    let (interrupt, mut interrupter) = UnixStream::pair().unwrap();
    for _ in 0..3 {
        match events.next(interrupt.as_fd(), None).unwrap() {
            Next::Reply(reply) => assert_eq!(reply.event.what, Happening::Up),
            other => panic!("{other:?}"),
        }
    }
    let error = events
        .next(interrupt.as_fd(), Some(SECOND / 50))
        .unwrap_err();
    assert!(matches!(error, ClientError::Silent { .. }), "{error}");
    interrupter.write_all(b"!").unwrap();
    assert_eq!(
        events.next(interrupt.as_fd(), None).unwrap(),
        Next::Interrupted
    );
    drop(running);
    let (quiet, _other_end) = UnixStream::pair().unwrap();
    let error = events.next(quiet.as_fd(), None).unwrap_err();
    assert!(matches!(error, ClientError::Ended { .. }), "{error}");
}
