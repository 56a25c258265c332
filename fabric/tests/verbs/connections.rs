//! Reliable connections between two ports of a device.

use std::os::fd::{AsFd, OwnedFd};
use std::process::Command;
use std::sync::Arc;
use std::thread::sleep;
use std::time::{Duration, Instant};

use fabric::port::UdEndpoint;
use fabric::verbs::{VerbsConfig, VerbsPort};
use fabric::{
    CloseReason, ConnectRequest, ConnectionEvent, ConnectionId, FabricError, Gid, PKey, Port,
    PortEvent, Posted, Qpn, RejectReason, Room, ServiceId, UdInit, Worker,
};
use rustix::event::{Timespec, epoll};

use crate::device::{self, Device};
use crate::node::{PATIENCE, QKEY};
use crate::shim::{Fails, Failure, Shim};

/// Both nodes have one address, and rdma_cm permits one listener for a port number.
const A: ServiceId = ServiceId::rdma_cm(24_755);
const B: ServiceId = ServiceId::rdma_cm(24_756);

/// Events of a node's connections.
#[derive(Default)]
struct Log {
    /// If set, requests are rejected.
    refuse: bool,
    accepted: Vec<ConnectionId>,
    /// The peers of requests.
    peers: Vec<Gid>,
    established: Vec<ConnectionId>,
    closed: Vec<(ConnectionId, CloseReason)>,
    messages: Vec<(ConnectionId, Vec<u8>)>,
}

struct Side {
    port: Box<dyn Port>,
    worker: Box<dyn Worker>,
    epoll: OwnedFd,
    me: UdEndpoint,
    log: Log,
}

impl Side {
    fn open(d: &Device, service: ServiceId) -> Side {
        Side::open_as(d, VerbsConfig::new(&d.name, 1), service)
    }

    fn open_as(d: &Device, config: VerbsConfig, service: ServiceId) -> Side {
        let port = VerbsPort::open_with(d.library.clone(), config).unwrap();
        Side::of(Box::new(port), service)
    }

    fn of(port: Box<dyn Port>, service: ServiceId) -> Side {
        Side::try_of(port, service).unwrap()
    }

    fn try_of(mut port: Box<dyn Port>, service: ServiceId) -> Result<Side, FabricError> {
        let mut worker = port.take_workers().pop().unwrap();
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).unwrap();
        worker.register(epoll.as_fd(), 7).unwrap();
        let init = UdInit {
            pkey: PKey::DEFAULT,
            qkey: QKEY,
            qpn: None,
        };
        let me = port.create_ud(init)?;
        let mut side = Side {
            port,
            worker,
            epoll,
            me,
            log: Log::default(),
        };
        side.connections().listen(me.id, service);
        Ok(side)
    }

    fn another(&mut self) -> UdEndpoint {
        let init = UdInit {
            pkey: PKey::DEFAULT,
            qkey: QKEY,
            qpn: None,
        };
        self.port.create_ud(init).unwrap()
    }

    fn counter(&self, name: &str) -> u64 {
        let all = self.worker.counters();
        let found = all.iter().find(|(n, _)| *n == name);
        found.unwrap_or_else(|| panic!("no counter {name}")).1
    }

    fn connections(&mut self) -> &mut dyn fabric::Connections {
        self.worker.connections().unwrap()
    }

    fn gid(&self) -> Gid {
        self.port.attributes().gid
    }

    fn connect(&mut self, peer: Gid, service: ServiceId, to: Qpn) -> ConnectionId {
        let request = ConnectRequest {
            service,
            peer,
            to,
            private_data: b"may I",
        };
        let me = self.me.id;
        let id = self.connections().connect(me, &request).unwrap();
        self.worker.flush();
        id
    }

    /// One round of the data thread; waits up to `most` for something to do.
    fn turn(&mut self, most: Duration) {
        let worker = &mut self.worker;
        let timeout = if worker.arm().unwrap() {
            Duration::ZERO
        } else {
            let due = worker.next_deadline().map(|at| at.since(fabric::clock()));
            due.map_or(most, |due| due.min(most))
        };
        let mut events = Vec::with_capacity(8);
        let timeout = Timespec::try_from(timeout).unwrap();
        let space = rustix::buffer::spare_capacity(&mut events);
        epoll::wait(&self.epoll, space, Some(&timeout)).unwrap();
        for event in events {
            worker.woken(event.data.u64());
        }
        if worker
            .next_deadline()
            .is_some_and(|at| at <= fabric::clock())
        {
            worker.handle_timeout();
        }
        loop {
            let batch = worker.poll(8).unwrap();
            for (m, payload) in batch.messages() {
                let whole = payload.parts().collect::<Vec<_>>().concat();
                assert_eq!((whole.len(), m.endpoint), (m.len, self.me.id));
                self.log.messages.push((m.connection, whole));
            }
            if batch.is_empty() {
                break;
            }
        }
        self.events();
        self.worker.flush();
    }

    fn events(&mut self) {
        while let Some(event) = self.connections().poll_event() {
            match event {
                ConnectionEvent::Requested {
                    connection,
                    endpoint,
                    peer,
                    private_data,
                    ..
                } => {
                    assert_eq!((endpoint, private_data.len()), (self.me.id, 56));
                    assert!(private_data.starts_with(b"may I\0"));
                    self.log.peers.push(peer);
                    if self.log.refuse {
                        let reason = RejectReason::NO_QP;
                        self.connections().reject(connection, reason, b"no");
                    } else {
                        self.connections().accept(connection, b"you may");
                        self.log.accepted.push(connection);
                    }
                }
                ConnectionEvent::Replied {
                    connection,
                    private_data,
                } => {
                    assert!(private_data.starts_with(b"you may\0"));
                    self.connections().establish(connection);
                    self.log.established.push(connection);
                }
                ConnectionEvent::Closed { connection, reason } => {
                    self.log.closed.push((connection, reason));
                }
            }
        }
    }

    /// Posts a message; false if there was no room.
    fn post(&mut self, connection: ConnectionId, message: &[u8]) -> bool {
        let connections = self.connections();
        let path_mtu = connections.path_mtu(connection);
        let Some(mut places) = connections.message(connection, message.len()) else {
            return false;
        };
        for piece in message.chunks(path_mtu) {
            places.next(piece.len()).unwrap().copy_from_slice(piece);
        }
        let ticket = places.finish();
        connections.post(connection, ticket) != Posted::Refused
    }

    /// Posts messages of one size as one list; returns how many.
    fn post_list(&mut self, connection: ConnectionId, messages: &[Vec<u8>]) -> usize {
        let len = messages[0].len();
        let connections = self.connections();
        let Some(mut places) = connections.messages(connection, len, messages.len()) else {
            return 0;
        };
        let mut count = 0;
        for message in messages {
            let Some(place) = places.next(len) else { break };
            place.copy_from_slice(message);
            count += 1;
        }
        let ticket = places.finish();
        assert_ne!(connections.post(connection, ticket), Posted::Refused);
        count
    }

    /// The states of connections, including those whose queue pairs drain.
    fn queue_pairs(&mut self) -> Vec<&'static str> {
        self.connections()
            .list()
            .iter()
            .map(|c| c.qp_state)
            .collect()
    }
}

/// Runs both sides until `done`.
fn until(a: &mut Side, b: &mut Side, mut done: impl FnMut(&mut Side, &mut Side) -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !done(a, b) {
        assert!(
            Instant::now() < deadline,
            "a: {:?}\n{:?}\nb: {:?}\n{:?}",
            counters(a),
            a.connections().list(),
            counters(b),
            b.connections().list()
        );
        a.turn(Duration::from_millis(2));
        b.turn(Duration::from_millis(2));
    }
}

fn counters(side: &Side) -> Vec<(&'static str, u64)> {
    let all = side.worker.counters();
    all.into_iter().filter(|c| c.1 > 0).collect()
}

/// Connects `a` to `b`; returns the connection's id on both sides.
fn connected(a: &mut Side, b: &mut Side, service: ServiceId) -> (ConnectionId, ConnectionId) {
    let (before, accepted) = (a.log.established.len(), b.log.accepted.len());
    let id = a.connect(b.gid(), service, b.me.qpn);
    until(a, b, |a, b| {
        assert_eq!(a.log.closed, []);
        a.log.established.len() > before
            && b.log.accepted.len() > accepted
            && b.connections()
                .list()
                .iter()
                .all(|c| c.state == "ESTABLISHED")
    });
    assert_eq!(a.log.established.last(), Some(&id));
    (id, b.log.accepted[accepted])
}

fn message(n: usize, len: usize) -> Vec<u8> {
    (0..len).map(|i| (n * 31 + i * 7 + i / 256) as u8).collect()
}

/// A connection each way, and messages of all sizes on both at once. Returns the id of `a`'s
/// connection.
fn both_ways(a: &mut Side, b: &mut Side) -> ConnectionId {
    let (ab, ab_at_b) = connected(a, b, B);
    let (ba, ba_at_a) = connected(b, a, A);
    let path_mtu = a.connections().path_mtu(ab);
    assert!(path_mtu >= 1024 && path_mtu <= a.port.attributes().ud_payload_max as usize);
    let sizes = [
        1, 65_524, 2, 3, 1023, 1024, 1025, 4096, 4097, 65_520, 30_000, 65_524, 65_524, 65_524,
    ];
    let mut messages: Vec<Vec<u8>> = (0..).zip(sizes).map(|(n, l)| message(n, l)).collect();
    messages.extend((0..40).map(|n| message(n, 65_524)));
    let (mut sent_a, mut sent_b) = (0, 0);
    until(a, b, |a, b| {
        for (side, id, sent) in [(&mut *a, ab, &mut sent_a), (&mut *b, ba, &mut sent_b)] {
            while *sent < messages.len()
                && side.worker.room() == Room::Messages
                && side.post(id, &messages[*sent])
            {
                *sent += 1;
            }
        }
        a.log.messages.len() >= messages.len() && b.log.messages.len() >= messages.len()
    });
    for (side, id) in [(&*a, ba_at_a), (&*b, ab_at_b)] {
        assert!(side.log.messages.iter().all(|m| m.0 == id));
        assert!(side.log.messages.iter().map(|m| &m.1).eq(&messages));
    }
    // All messages are acknowledged.
    let total = messages.len() as u64;
    until(a, b, |a, _| {
        let list = a.connections().list();
        let one = list.iter().find(|c| c.connection == ab).unwrap();
        one.tx_messages == total && one.in_flight == 0
    });
    ab
}

#[test]
fn lists_of_small_messages_arrive_in_order() {
    let Some(d) = device::find() else {
        return;
    };
    let (mut a, mut b) = (Side::open(&d, A), Side::open(&d, B));
    let (ab, _) = connected(&mut a, &mut b, B);
    for len in [1, 60, 129, 1024] {
        b.log.messages.clear();
        let messages: Vec<Vec<u8>> = (0..1000).map(|n| message(n, len)).collect();
        let mut sent = 0;
        until(&mut a, &mut b, |a, b| {
            while sent < messages.len() && a.worker.room() == Room::Messages {
                let end = messages.len().min(sent + 32);
                match a.post_list(ab, &messages[sent..end]) {
                    0 => break,
                    n => sent += n,
                }
            }
            b.log.messages.len() >= messages.len()
        });
        assert!(b.log.messages.iter().map(|m| &m.1).eq(&messages), "{len}");
    }
    let lists = a.counter("rc_post_lists");
    assert!(lists < 4 * 1000 / 16, "{lists} lists for 4000 messages");
}

#[test]
fn closing_notifies_the_peer() {
    let Some(d) = device::find() else {
        return;
    };
    let (mut a, mut b) = (Side::open(&d, A), Side::open(&d, B));
    // The active side closes first, then the passive side.
    for round in 0..2 {
        let (ab, ba) = connected(&mut a, &mut b, B);
        assert!(a.post(ab, b"one") && a.worker.room() == Room::Messages);
        until(&mut a, &mut b, |_, b| b.log.messages.len() > round);
        let (first, other, id) = if round == 0 {
            (&mut a, &mut b, ba)
        } else {
            (&mut b, &mut a, ab)
        };
        let name = if round == 0 { ab } else { ba };
        first.connections().close(name);
        assert!(!first.post(name, b"two"));
        until(first, other, |_, other| !other.log.closed.is_empty());
        assert_eq!(other.log.closed, [(id, CloseReason::Disconnected)]);
        assert_eq!(first.log.closed, []);
        other.log.closed.clear();
        // Nothing is left on either side.
        until(first, other, |f, o| {
            f.queue_pairs().is_empty() && o.queue_pairs().is_empty()
        });
        assert_eq!(first.counter("rc_not_drained"), 0);
    }
}

#[test]
fn unwanted_peers_are_rejected() {
    let Some(d) = device::find() else {
        return;
    };
    let (mut a, mut b) = (Side::open(&d, A), Side::open(&d, B));
    let closed = |a: &mut Side, b: &mut Side| {
        until(a, b, |a, _| !a.log.closed.is_empty());
        a.log.closed.remove(0)
    };
    b.log.refuse = true;
    let id = a.connect(b.gid(), B, b.me.qpn);
    let consumer = CloseReason::Rejected(RejectReason::CONSUMER);
    assert_eq!(closed(&mut a, &mut b), (id, consumer));
    // A queue pair number that no endpoint has.
    let id = a.connect(b.gid(), B, Qpn::new(0xfffff0));
    assert_eq!(closed(&mut a, &mut b), (id, consumer));
    assert_eq!(b.counter("cm_not_served"), 1);
    // No listener.
    let id = a.connect(b.gid(), ServiceId::rdma_cm(24_757), Qpn::new(0));
    let nobody = CloseReason::Rejected(RejectReason::INVALID_SERVICE_ID);
    assert_eq!(closed(&mut a, &mut b), (id, nobody));
    // An unused address.
    let stranger: Gid = match a.gid().ipv4() {
        Some(_) => "::ffff:192.0.2.1".parse().unwrap(),
        None => "fe80::dead:beef".parse().unwrap(),
    };
    let id = a.connect(stranger, B, Qpn::new(0));
    assert_eq!(closed(&mut a, &mut b), (id, CloseReason::TimedOut));
    assert!(a.queue_pairs().is_empty() && b.queue_pairs().is_empty());
}

#[test]
fn a_listener_has_many_connections_and_two_endpoints_share_it() {
    const COUNT: usize = 24;
    let Some(d) = device::find() else {
        return;
    };
    let (mut a, mut b) = (Side::open(&d, A), Side::open(&d, B));
    let second = b.another();
    b.connections().listen(second.id, B);
    let ids: Vec<ConnectionId> = (0..COUNT)
        .map(|_| a.connect(b.gid(), B, b.me.qpn))
        .collect();
    until(&mut a, &mut b, |a, b| {
        assert_eq!(a.log.closed, []);
        a.log.established.len() == COUNT && b.log.accepted.len() == COUNT
    });
    for (n, id) in ids.iter().enumerate() {
        until(&mut a, &mut b, |a, _| a.worker.room() == Room::Messages);
        assert!(a.post(*id, &message(n, 100 + n)));
    }
    until(&mut a, &mut b, |_, b| b.log.messages.len() == COUNT);
    let mut lengths: Vec<usize> = b.log.messages.iter().map(|m| m.1.len()).collect();
    lengths.sort_unstable();
    assert!(lengths.into_iter().eq(100..100 + COUNT));
    // The request must select one of two listeners.
    let id = a.connect(b.gid(), B, Qpn::new(0));
    until(&mut a, &mut b, |a, _| !a.log.closed.is_empty());
    assert_eq!(a.log.closed.remove(0).0, id);
    let me = a.me.id;
    a.connections().close_all(me);
    until(&mut a, &mut b, |a, b| {
        b.log.closed.len() == COUNT && a.queue_pairs().is_empty() && b.queue_pairs().is_empty()
    });
}

#[test]
fn connections_beyond_the_limit_are_refused() {
    let Some(d) = device::find() else {
        return;
    };
    let mut config = VerbsConfig::new(&d.name, 1);
    config.connections_max = 2;
    let (mut a, mut b) = (Side::open(&d, A), Side::open_as(&d, config, B));
    connected(&mut a, &mut b, B);
    connected(&mut a, &mut b, B);
    let third = a.connect(b.gid(), B, b.me.qpn);
    until(&mut a, &mut b, |a, _| !a.log.closed.is_empty());
    let consumer = CloseReason::Rejected(RejectReason::CONSUMER);
    assert_eq!(a.log.closed, [(third, consumer)]);
    assert_eq!(b.counter("cm_table_full"), 1);
}

/// A live peer whose data thread stops: the window fills and is reported full, and everything arrives
/// when the thread continues.
#[test]
fn a_peer_that_pauses_gets_everything_later() {
    const LEN: usize = 20_000;
    let Some(d) = device::find() else {
        return;
    };
    let (mut a, mut b) = (Side::open(&d, A), Side::open(&d, B));
    let (ab, _) = connected(&mut a, &mut b, B);
    let mut sent = 0;
    // More than the receive places.
    let pause = Instant::now() + Duration::from_secs(3);
    while Instant::now() < pause {
        while sent < 400 && a.worker.room() == Room::Messages && a.post(ab, &message(sent, LEN)) {
            sent += 1;
        }
        a.turn(Duration::from_millis(5));
    }
    assert!(sent > 20, "{sent}");
    assert_eq!(a.log.closed, []);
    until(&mut a, &mut b, |a, b| {
        while sent < 400 && a.worker.room() == Room::Messages && a.post(ab, &message(sent, LEN)) {
            sent += 1;
        }
        b.log.messages.len() == 400
    });
    let expected = (0..400).map(|n| message(n, LEN));
    assert!(b.log.messages.iter().map(|m| m.1.clone()).eq(expected));
    assert_eq!(a.log.closed, []);
}

/// A port connects to itself until a message has arrived. False if none has.
fn live(shim: &Arc<Shim>, d: &Device) -> Result<bool, String> {
    let mut config = VerbsConfig::new(&d.name, 1);
    config.gid_wait = Duration::from_millis(100);
    let port = VerbsPort::open_with(shim.clone(), config).map_err(|e| e.to_string())?;
    let mut side = Side::try_of(Box::new(port), A).map_err(|e| e.to_string())?;
    let end = Instant::now() + PATIENCE;
    let mut ours = None;
    let mut posted = false;
    while side.log.messages.is_empty() && Instant::now() < end {
        side.port.process();
        side.turn(Duration::from_millis(5));
        side.log.closed.drain(..).for_each(|(id, _)| {
            if ours == Some(id) {
                (ours, posted) = (None, false);
            }
        });
        match ours {
            Some(id) if side.log.established.contains(&id) && !posted => {
                posted = side.post(id, b"at last");
            }
            Some(_) => {}
            None => {
                let request = ConnectRequest {
                    service: A,
                    peer: side.gid(),
                    to: side.port.endpoint_qpn(side.me.id).unwrap(),
                    private_data: b"may I",
                };
                let me = side.me.id;
                ours = side.connections().connect(me, &request).ok();
            }
        }
    }
    let came = !side.log.messages.is_empty();
    let me = side.me.id;
    side.connections().close_all(me);
    side.turn(Duration::from_millis(5));
    Ok(came)
}

#[test]
fn connections_come_about_after_any_call_that_fails_once() {
    let Some(d) = device::find() else {
        return;
    };
    let honest = Arc::new(Shim::honest(&d.library));
    assert_eq!(live(&honest, &d), Ok(true));
    assert_eq!(honest.leaks(), [""; 0]);
    let thorough = device::is_thorough();
    // The other functions fail in places from which a port recovers.
    let of_connections = |function: &str| {
        function.starts_with("rdma_")
            || thorough
                && [
                    "create_qp",
                    "modify_qp",
                    "destroy_qp",
                    "post_send",
                    "poll_cq",
                    "srq",
                ]
                .iter()
                .any(|part| function.ends_with(part))
    };
    let functions = honest.functions();
    assert!(functions.keys().filter(|f| f.starts_with("rdma_")).count() > 10);
    for (function, times) in functions.into_iter().filter(|(f, _)| of_connections(f)) {
        // The call of the second queue pair.
        let last = (times.min(12) - 1, Failure::Silent);
        let first = thorough.then_some((0, Failure::Errno(libc::EIO)));
        for (number, failure) in first.into_iter().chain([last]) {
            let fails = Fails::Function(function, number);
            let shim = Arc::new(Shim::failing(&d.library, fails, failure));
            let came = live(&shim, &d);
            assert_ne!(came, Ok(false), "after {fails:?}");
            let end = Instant::now() + PATIENCE;
            while !shim.leaks().is_empty() && Instant::now() < end {
                sleep(Duration::from_millis(10));
            }
            assert_eq!(shim.leaks(), [""; 0], "after {fails:?}");
        }
    }
}

/// Runs both sides until each port has reported `wanted`.
fn until_reported(a: &mut Side, b: &mut Side, wanted: &PortEvent) {
    let mut reported = [false; 2];
    until(a, b, |a, b| {
        for (side, reported) in [a, b].into_iter().zip(&mut reported) {
            *reported |= side.port.process().contains(wanted);
        }
        reported == [true; 2]
    });
}

/// Open files of removed devices.
fn removed_files() -> Vec<String> {
    let all = std::fs::read_dir("/proc/self/fd").unwrap();
    all.flatten()
        .filter_map(|entry| Some(std::fs::read_link(entry.path()).ok()?.display().to_string()))
        .filter(|name| name.contains("uverbs") && name.contains("deleted"))
        .collect()
}

/// rdma_cm keeps the device open once it was used. The removal does not wait for it, and connections
/// work again afterwards.
#[test]
fn a_device_is_removed_whatever_its_connections_and_they_come_back() {
    let Some((d, netdev)) = device::removable() else {
        return;
    };
    let (mut a, mut b) = (Side::open(&d, A), Side::open(&d, B));
    for begun in [true, false, true] {
        let ab = both_ways(&mut a, &mut b);
        if !begun {
            for side in [&mut a, &mut b] {
                let me = side.me.id;
                side.connections().close_all(me);
            }
            until(&mut a, &mut b, |a, b| {
                a.queue_pairs().is_empty() && b.queue_pairs().is_empty()
            });
        }
        let mut removal = Command::new("rdma")
            .args(["link", "del", &d.name])
            .spawn()
            .unwrap();
        until_reported(&mut a, &mut b, &PortEvent::Removed);
        if begun {
            let gone = (ab, CloseReason::PortGone);
            until(&mut a, &mut b, |a, _| a.log.closed.contains(&gone));
        }
        until(&mut a, &mut b, |a, b| {
            a.port.process();
            b.port.process();
            removal.try_wait().unwrap().is_some()
        });
        assert!(removal.wait().unwrap().success());
        assert_eq!(removed_files(), [""; 0]);

        let add = ["link", "add", &d.name, "type", "rxe", "netdev", &netdev];
        assert!(Command::new("rdma").args(add).status().unwrap().success());
        until_reported(&mut a, &mut b, &PortEvent::Active);
        for (side, service) in [(&mut a, A), (&mut b, B)] {
            side.me.qpn = side.port.endpoint_qpn(side.me.id).unwrap();
            side.log = Log::default();
            // Its worker gets the device and listens.
            side.turn(Duration::ZERO);
            if !begun {
                let me = side.me.id;
                side.connections().listen(me, service);
            }
        }
    }
    both_ways(&mut a, &mut b);
}
