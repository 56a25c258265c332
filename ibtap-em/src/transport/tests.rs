use std::collections::VecDeque;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;

use control::api::{ApiError, ManagementDatagram, PortState, Reply, Request};
use control::{ControlServer, Handler, StreamId, Streamed};
use proto::{PKey, Qpn};
use tempfile::TempDir;

use super::*;

/// The part of `ibtapd` in these tests: one port, one manager, in the test's thread.
struct Daemon {
    server: ControlServer,
    port: Port,
}

#[derive(Default)]
struct Port {
    stream: Option<StreamId>,
    replies: VecDeque<ManageReply>,
    sent: Vec<SendManagementRequest>,
    refuses: bool,
}

impl Handler for Port {
    fn handle(&mut self, request: Request) -> Result<Reply, ApiError> {
        let Request::SendManagement(request) = request else {
            return Err(ApiError::Busy);
        };
        self.sent.push(request);
        Ok(Reply::SendManagement {})
    }

    fn open(&mut self, stream: StreamId, request: Request) -> Result<(), ApiError> {
        assert!(matches!(request, Request::Manage(_)));
        if self.refuses {
            let message = "there is no fabric port \"eth7\"".into();
            return Err(ApiError::BadArgument { message });
        }
        self.stream = Some(stream);
        self.replies.push_front(ManageReply::Attached(port()));
        Ok(())
    }

    fn next(&mut self, stream: StreamId) -> Streamed {
        if self.stream != Some(stream) {
            return Streamed::Nothing;
        }
        let reply = self.replies.pop_front();
        reply.map_or(Streamed::Nothing, |r| Streamed::Reply(Reply::Manage(r)))
    }

    fn close(&mut self, _: StreamId) {
        self.stream = None;
    }
}

impl Daemon {
    fn start(socket: &Path) -> Daemon {
        Daemon {
            server: ControlServer::bind(socket).unwrap(),
            port: Port::default(),
        }
    }

    fn pass(&mut self) {
        for _ in 0..8 {
            self.server.process(&mut self.port).unwrap();
        }
    }
}

fn port() -> ManagementPort {
    ManagementPort {
        port: "soft/eth0".into(),
        gid: "fe80::1".parse().unwrap(),
        qpn: Qpn::new(0x34),
        guid: "0002:c903:00e7:7e12".into(),
        pkey: PKey::DEFAULT,
        link_mtu: 4096,
        state: PortState::Active,
    }
}

fn agent() -> Endpoint {
    Endpoint {
        gid: "fe80::2".parse().unwrap(),
        qpn: Qpn::new(9),
    }
}

fn datagram(byte: u8, lost: Option<u64>) -> ManageReply {
    ManageReply::Received(ManagementDatagram {
        gid: agent().gid,
        qpn: agent().qpn,
        by_group: false,
        mad: Hex(vec![byte; 2048]),
        lost,
    })
}

fn rig() -> (TempDir, Daemon, Link) {
    let directory = TempDir::new().unwrap();
    let socket = directory.path().join("ibtapd.sock");
    let daemon = Daemon::start(&socket);
    (directory, daemon, Link::new(socket, Some("eth0".into())))
}

/// Connects, and has the port reported.
fn attached(daemon: &mut Daemon, link: &mut Link, now: u64) {
    assert_eq!(link.receive(Time(now)), []);
    daemon.pass();
    assert_eq!(link.receive(Time(now)), [Arrival::Attached(port())]);
}

#[test]
fn messages_come_and_go() {
    let (_directory, mut daemon, mut link) = rig();
    assert!(!link.has_room());
    attached(&mut daemon, &mut link, 0);
    daemon
        .port
        .replies
        .extend([datagram(1, None), datagram(2, Some(5))]);
    daemon.pass();
    let received = |byte| Arrival::Received {
        from: agent(),
        mad: vec![byte; 2048],
    };
    assert_eq!(
        link.receive(Time(1)),
        [received(1), Arrival::Lost(5), received(2)]
    );

    assert!(link.has_room());
    for to in [Destination::Agent(agent()), Destination::Group] {
        link.send(Outgoing {
            to,
            mad: vec![7, 8],
        });
    }
    link.flush();
    daemon.pass();
    let sent = &daemon.port.sent;
    assert_eq!(sent.len(), 2);
    assert!(
        sent.iter()
            .all(|s| s.mad.0 == [7, 8] && s.port.as_deref() == Some("eth0"))
    );
    assert_eq!(
        (sent[0].gid, sent[0].qpn),
        (Some(agent().gid), Some(agent().qpn))
    );
    assert_eq!((sent[1].gid, sent[1].qpn), (None, None));
}

/// The socket may be empty by then: it does not report the rest.
#[test]
fn more_messages_than_one_turn_receives_are_due_at_once() {
    let (_directory, mut daemon, mut link) = rig();
    attached(&mut daemon, &mut link, 0);
    let small = |byte| {
        ManageReply::Received(ManagementDatagram {
            gid: agent().gid,
            qpn: agent().qpn,
            by_group: false,
            mad: Hex(vec![byte]),
            lost: None,
        })
    };
    let most = TURN + 44;
    daemon
        .port
        .replies
        .extend((0..most).map(|n| small(n as u8)));
    while !daemon.port.replies.is_empty() {
        daemon.pass();
    }
    daemon.pass();
    assert_eq!(link.receive(Time(1)).len(), TURN);
    assert!(link.next_deadline().is_some_and(|due| due <= Time(1)));
    assert_eq!(link.receive(Time(1)).len(), most - TURN);
    assert_eq!(link.next_deadline(), None);
}

#[test]
fn a_daemon_that_does_not_take_stops_the_sender_and_loses_nothing() {
    let (_directory, mut daemon, mut link) = rig();
    attached(&mut daemon, &mut link, 0);
    let mut sent = 0;
    while link.has_room() {
        link.send(Outgoing {
            to: Destination::Agent(agent()),
            mad: vec![7; 2048],
        });
        link.flush();
        sent += 1;
        assert!(sent < 100_000);
    }
    assert!(link.outgoing().is_some());
    while link.outgoing().is_some() {
        daemon.pass();
        link.flush();
    }
    daemon.pass();
    daemon.pass();
    while daemon.port.sent.len() < sent {
        daemon.pass();
    }
    assert!(link.has_room());
}

#[test]
fn a_daemon_that_goes_is_missed_once_and_found_again() {
    let (directory, mut daemon, mut link) = rig();
    attached(&mut daemon, &mut link, 0);
    drop(daemon);
    let gone = link.receive(Time(1000));
    assert!(
        matches!(&gone[..], [Arrival::Detached(why)] if why.contains("closed the connection")),
        "{gone:?}"
    );
    assert!(!link.has_room() && link.incoming().is_none());
    // Messages sent meanwhile are lost, as datagrams may be.
    link.send(Outgoing {
        to: Destination::Group,
        mad: vec![7],
    });
    link.flush();
    let mut now = 1000;
    let mut arrivals = Vec::new();
    for _ in 0..10 {
        let again = link.next_deadline().expect("another attempt").0;
        assert!((now..=now + RETRY_MS.1).contains(&again), "{again}");
        now = again.max(now + 1);
        arrivals.extend(link.receive(Time(now)));
    }
    assert!(
        matches!(&arrivals[..], [Arrival::Detached(why)] if why.contains("cannot reach ibtapd")),
        "{arrivals:?}"
    );
    let mut daemon = Daemon::start(&directory.path().join("ibtapd.sock"));
    now = link.next_deadline().unwrap().0;
    attached(&mut daemon, &mut link, now);
    assert_eq!(link.next_deadline(), None);
}

#[test]
fn a_port_that_is_not_there_is_asked_for_again() {
    let (_directory, mut daemon, mut link) = rig();
    daemon.port.refuses = true;
    assert_eq!(link.receive(Time(0)), []);
    daemon.pass();
    let why = "there is no fabric port \"eth7\"".to_owned();
    assert_eq!(link.receive(Time(0)), [Arrival::Detached(why)]);
    let again = link.next_deadline().unwrap();
    assert_eq!(link.receive(again), []);
    daemon.port.refuses = false;
    daemon.pass();
    assert_eq!(link.receive(again), [Arrival::Attached(port())]);
}

#[test]
fn a_connection_for_sending_that_made_way_is_made_anew() {
    let (_directory, mut daemon, mut link) = rig();
    attached(&mut daemon, &mut link, 0);
    // So many clients connect that ibtapd closes connections without a stream.
    let others: Vec<_> = (0..64)
        .map(|_| {
            let other = UnixStream::connect(link.socket()).unwrap();
            daemon.pass();
            other
        })
        .collect();
    drop(others);
    daemon.pass();
    for byte in 0..3 {
        link.send(Outgoing {
            to: Destination::Agent(agent()),
            mad: vec![byte],
        });
        link.flush();
        daemon.pass();
    }
    let sent: Vec<u8> = daemon.port.sent.iter().map(|s| s.mad.0[0]).collect();
    assert!(sent.ends_with(&[2]), "{sent:?}");
    assert!(daemon.port.stream.is_some());
}

#[test]
fn without_a_connection_for_sending_the_link_is_down() {
    let directory = TempDir::new().unwrap();
    let socket = directory.path().join("ibtapd.sock");
    let listener = UnixListener::bind(&socket).unwrap();
    let mut link = Link::new(socket.clone(), None);
    assert_eq!(link.receive(Time(0)), []);
    let [_stream, for_sending] = [(); 2].map(|()| listener.accept().unwrap().0);
    // ibtapd closes the connection for another client, and its socket cannot be reached.
    drop(for_sending);
    std::fs::remove_file(&socket).unwrap();
    link.send(Outgoing {
        to: Destination::Group,
        mad: vec![7],
    });
    link.flush();
    assert!(link.outgoing().is_none());
    let gone = link.receive(Time(1));
    assert!(
        matches!(&gone[..], [Arrival::Detached(why)] if why.contains("cannot reach ibtapd")),
        "{gone:?}"
    );
    assert!(link.next_deadline().is_some_and(|again| again > Time(1)));
}
