//! Reliable connections between two ports.

use std::net::UdpSocket;
use std::os::fd::AsFd;
use std::thread::sleep;
use std::time::{Duration, Instant};

use fabric::port::UdEndpoint;
use fabric::soft::SoftConfig;
use fabric::{
    CloseReason, ConnectRequest, ConnectionEvent, ConnectionId, Gid, Port, Posted, RejectReason,
    ServiceId, WcStatus, Worker,
};

use rustix::event::{Timespec, epoll};

use crate::exchange::ipv4;
use crate::net::Cable;
use crate::node::{Node, payloads};

pub const SERVICE: ServiceId = ServiceId(0x1000_0000_0000_0042);

/// Long enough for anything that happens at all.
const SOON: Duration = Duration::from_secs(10);

/// A connection and the worker that has it.
pub type Place = (usize, ConnectionId);

/// What happened to a node's connections.
#[derive(Default)]
pub struct Log {
    /// Set: requests are rejected so.
    pub refuse: Option<RejectReason>,
    pub accepted: Vec<Place>,
    pub established: Vec<Place>,
    pub closed: Vec<(Place, CloseReason)>,
    pub messages: Vec<(Place, Vec<u8>)>,
}

pub struct Side<'n> {
    pub node: Node<'n>,
    pub log: Log,
}

impl<'n> Side<'n> {
    /// A node of which every worker listens.
    pub fn new(mut node: Node<'n>) -> Side<'n> {
        let endpoint = node.endpoint();
        Side::listening(node, &endpoint)
    }

    /// A node of which every worker listens in the name of an endpoint.
    pub fn listening(mut node: Node<'n>, endpoint: &UdEndpoint) -> Side<'n> {
        for w in &mut node.workers {
            w.connections().unwrap().listen(endpoint.id, SERVICE);
        }
        let log = Log::default();
        Side { node, log }
    }

    fn endpoint(&self) -> fabric::EndpointId {
        let queue_pairs = self.node.port.resources().queue_pairs;
        queue_pairs
            .iter()
            .find(|q| q.kind == "UD")
            .unwrap()
            .endpoint
    }

    pub fn connect(&mut self, worker: usize, peer: Gid, service: ServiceId) -> Place {
        let endpoint = self.endpoint();
        let request = ConnectRequest {
            service,
            peer,
            to: fabric::Qpn::new(0),
            private_data: b"may I",
        };
        let w = &mut self.node.workers[worker];
        let connection = w.connections().unwrap().connect(endpoint, &request);
        w.flush();
        (worker, connection.unwrap())
    }

    /// One round of every data thread.
    pub fn turn(&mut self) {
        for (i, w) in self.node.workers.iter_mut().enumerate() {
            round(i, w.as_mut(), &mut self.log);
        }
    }

    /// Posts a message; false if there was no room.
    pub fn post(&mut self, (worker, connection): Place, message: &[u8]) -> bool {
        let w = &mut self.node.workers[worker];
        let connections = w.connections().unwrap();
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

    fn has_room(&self, worker: usize) -> bool {
        self.node.workers[worker].has_room()
    }
}

fn round(i: usize, w: &mut dyn Worker, log: &mut Log) {
    if w.next_deadline().is_some_and(|at| at <= clock()) {
        w.handle_timeout();
    }
    loop {
        let batch = w.poll(8).unwrap();
        for (m, payload) in batch.messages() {
            let whole = payload.parts().collect::<Vec<_>>().concat();
            assert_eq!(whole.len(), m.len);
            log.messages.push(((i, m.connection), whole));
        }
        if batch.is_empty() {
            break;
        }
    }
    let connections = w.connections().unwrap();
    while let Some(event) = connections.poll_event() {
        match event {
            ConnectionEvent::Requested {
                connection,
                service,
                private_data,
                ..
            } => {
                assert_eq!((service, &private_data[..5]), (SERVICE, &b"may I"[..]));
                if let Some(reason) = log.refuse {
                    connections.reject(connection, reason, &[]);
                } else {
                    connections.accept(connection, b"you may");
                    log.accepted.push((i, connection));
                }
            }
            ConnectionEvent::Replied {
                connection,
                private_data,
            } => {
                assert_eq!(private_data[..7], *b"you may");
                connections.establish(connection);
                log.established.push((i, connection));
            }
            ConnectionEvent::Closed { connection, reason } => {
                log.closed.push(((i, connection), reason));
            }
        }
    }
    w.flush();
}

fn clock() -> fabric::Instant {
    let t = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    fabric::Instant(t.tv_sec.cast_unsigned() * 1_000_000_000 + t.tv_nsec.cast_unsigned())
}

/// Lets both sides go on until `done`.
pub fn until<'n>(
    a: &mut Side<'n>,
    b: &mut Side<'n>,
    mut done: impl FnMut(&mut Side<'n>, &mut Side<'n>) -> bool,
) {
    let deadline = Instant::now() + SOON;
    while !done(a, b) {
        assert!(
            Instant::now() < deadline,
            "a: {:?}\nb: {:?}",
            counters(a),
            counters(b)
        );
        a.turn();
        b.turn();
        sleep(Duration::from_micros(50));
    }
}

pub fn counters(side: &Side<'_>) -> Vec<(&'static str, u64)> {
    let all = side.node.workers.iter().flat_map(|w| w.counters());
    all.filter(|c| c.1 > 0).collect()
}

/// A connection from a worker of `a` to `b`: as `a` and as `b` know it.
pub fn connected<'n>(a: &mut Side<'n>, b: &mut Side<'n>, worker: usize) -> (Place, Place) {
    let (before, accepted) = (a.log.established.len(), b.log.accepted.len());
    let place = a.connect(worker, b.node.gid(), SERVICE);
    until(a, b, |a, b| {
        a.log.established.len() > before && b.log.accepted.len() > accepted
    });
    assert_eq!(a.log.established.last(), Some(&place));
    (place, b.log.accepted[accepted])
}

/// Messages of the two directions arrive, whole, once and in order.
pub fn exchange<'n>(
    a: &mut Side<'n>,
    b: &mut Side<'n>,
    (ab, ba): (Place, Place),
    messages: &[Vec<u8>],
) {
    a.log.messages.clear();
    b.log.messages.clear();
    let (mut sent_a, mut sent_b) = (0, 0);
    until(a, b, |a, b| {
        for (side, place, sent) in [(&mut *a, ab, &mut sent_a), (&mut *b, ba, &mut sent_b)] {
            while *sent < messages.len()
                && side.has_room(place.0)
                && side.post(place, &messages[*sent])
            {
                *sent += 1;
            }
        }
        a.log.messages.len() >= messages.len() && b.log.messages.len() >= messages.len()
    });
    for (side, place) in [(&*a, ab), (&*b, ba)] {
        assert!(side.log.messages.iter().all(|m| m.0 == place));
        assert!(side.log.messages.iter().map(|m| &m.1).eq(messages));
    }
}

pub fn sizes(sizes: &[usize]) -> Vec<Vec<u8>> {
    let one = |&n: &usize| payloads(0, 0, n).remove(0);
    sizes.iter().map(one).collect()
}

pub const SIZES: [usize; 12] = [
    1, 65524, 2, 3, 1023, 1024, 1025, 4096, 4097, 65520, 30000, 65524,
];

fn all_sizes(cable: &Cable, of_a: SoftConfig, of_b: SoftConfig, path_mtu: usize) {
    let mut a = Side::new(Node::open(&cable.a, of_a));
    let mut b = Side::new(Node::open(&cable.b, of_b));
    let places = connected(&mut a, &mut b, 0);
    let (worker, connection) = places.0;
    let w = &mut a.node.workers[worker];
    assert_eq!(w.connections().unwrap().path_mtu(connection), path_mtu);
    exchange(&mut a, &mut b, places, &sizes(&SIZES));
    exchange(&mut a, &mut b, places, &sizes(&[65524; 50]));
    assert!(a.log.closed.is_empty() && b.log.closed.is_empty());
    assert_eq!(a.node.counter("rx_icrc_errors"), 0);
}

fn config() -> SoftConfig {
    SoftConfig::new("u0")
}

#[test]
fn messages_of_all_sizes_over_ipv6() {
    all_sizes(&Cable::new(9000), config(), config(), 4096);
}

#[test]
fn messages_of_all_sizes_over_ipv6_with_an_ordinary_mtu() {
    all_sizes(&Cable::new(1500), config(), config(), 1024);
}

#[test]
fn messages_of_all_sizes_over_ipv4() {
    let cable = Cable::new(9000);
    all_sizes(&cable, ipv4("192.0.2.2"), ipv4("192.0.2.1"), 4096);
}

#[test]
fn messages_of_all_sizes_over_ipv4_with_an_ordinary_mtu() {
    let cable = Cable::new(1500);
    all_sizes(&cable, ipv4("192.0.2.2"), ipv4("192.0.2.1"), 1024);
}

#[test]
fn messages_of_a_mebibyte() {
    let cable = Cable::new(9000);
    let large = || SoftConfig {
        message_max: 1 << 20,
        ..config()
    };
    let mut a = Side::new(Node::open(&cable.a, large()));
    let mut b = Side::new(Node::open(&cable.b, large()));
    assert_eq!(a.node.port.capabilities().message_max, 1 << 20);
    let places = connected(&mut a, &mut b, 0);
    exchange(
        &mut a,
        &mut b,
        places,
        &sizes(&[1 << 20, 1, 1 << 20, 999_999]),
    );
    let connections = a.node.workers[0].connections().unwrap();
    assert!(connections.message(places.0.1, (1 << 20) + 1).is_none());
}

#[test]
fn small_messages_leave_in_one_train() {
    let cable = Cable::new(9000);
    let mut a = Side::new(Node::open(&cable.a, config()));
    let mut b = Side::new(Node::open(&cable.b, config()));
    let ((_, connection), _) = connected(&mut a, &mut b, 0);
    let sent = payloads(20, 100, 33);
    let trains = a.node.counter("tx_trains");
    let connections = a.node.workers[0].connections().unwrap();
    let mut places = connections.messages(connection, 100, sent.len()).unwrap();
    places.next(100).unwrap().copy_from_slice(&sent[0]);
    let ticket = places.finish();
    let mut places = connections.resume(ticket);
    for message in &sent[1..] {
        places.next(message.len()).unwrap().copy_from_slice(message);
    }
    let ticket = places.finish();
    assert_eq!(connections.post(connection, ticket), Posted::Done);
    assert_eq!(a.node.counter("tx_trains") - trains, 1);
    until(&mut a, &mut b, |_, b| b.log.messages.len() == sent.len());
    assert!(b.log.messages.iter().map(|m| &m.1).eq(&sent));
}

#[test]
fn each_worker_has_connections_of_its_own() {
    let cable = Cable::new(9000);
    let two = || SoftConfig {
        workers: 2,
        ..config()
    };
    let mut a = Side::new(Node::open(&cable.a, two()));
    let mut b = Side::new(Node::open(&cable.b, two()));
    for worker in [0, 1, 1, 0] {
        let places = connected(&mut a, &mut b, worker);
        assert_eq!(places.1.0, worker, "both sides count in one way");
        exchange(&mut a, &mut b, places, &sizes(&SIZES));
        let back = connected(&mut b, &mut a, worker);
        exchange(&mut b, &mut a, back, &sizes(&SIZES));
    }
    assert_eq!(a.node.counter("rx_handed_on"), 0, "the kernel steers");
    for side in [&mut a, &mut b] {
        for w in &mut side.node.workers {
            let list = w.connections().unwrap().list();
            assert_eq!(list.len(), 4);
            assert!(list.iter().all(|c| c.state == "ESTABLISHED"), "{list:?}");
        }
    }
}

#[test]
fn more_workers_here_than_there() {
    let cable = Cable::new(9000);
    let three = SoftConfig {
        workers: 3,
        ..config()
    };
    let mut a = Side::new(Node::open(&cable.a, three));
    let mut b = Side::new(Node::open(&cable.b, config()));
    for worker in 0..3 {
        let places = connected(&mut a, &mut b, worker);
        exchange(&mut a, &mut b, places, &sizes(&SIZES));
        let back = connected(&mut b, &mut a, 0);
        exchange(&mut b, &mut a, back, &sizes(&SIZES));
    }
}

#[test]
fn a_closed_connection_ends_on_both_sides() {
    let cable = Cable::new(1500);
    let mut a = Side::new(Node::open(&cable.a, config()));
    let mut b = Side::new(Node::open(&cable.b, config()));
    let (ab, ba) = connected(&mut a, &mut b, 0);
    a.node.workers[0].connections().unwrap().close(ab.1);
    until(&mut a, &mut b, |_, b| !b.log.closed.is_empty());
    assert_eq!(b.log.closed, [(ba, CloseReason::Disconnected)]);
    assert!(!a.post(ab, b"late") && !b.post(ba, b"late"));
    assert!(a.log.closed.is_empty(), "who closes knows");
    let again = connected(&mut a, &mut b, 0);
    exchange(&mut a, &mut b, again, &sizes(&SIZES));
}

#[test]
fn refusals_reach_who_asked() {
    let cable = Cable::new(1500);
    let mut a = Side::new(Node::open(&cable.a, config()));
    let mut b = Side::new(Node::open(&cable.b, config()));
    b.log.refuse = Some(RejectReason::CONSUMER);
    let gid = b.node.gid();
    let first = a.connect(0, gid, SERVICE);
    until(&mut a, &mut b, |a, _| a.log.closed.len() == 1);
    let second = a.connect(0, gid, ServiceId(7));
    until(&mut a, &mut b, |a, _| a.log.closed.len() == 2);
    let why = |place, reason| (place, CloseReason::Rejected(reason));
    let expected = [
        why(first, RejectReason::CONSUMER),
        why(second, RejectReason::INVALID_SERVICE_ID),
    ];
    assert_eq!(a.log.closed, expected);
}

/// Whoever asks, the smaller path MTU is agreed on.
#[test]
fn path_mtus_fit_both_sides() {
    let cable = Cable::new(9000);
    cable.b.ip(&["link", "set", "u0", "mtu", "1500"]);
    let mut a = Side::new(Node::open(&cable.a, config()));
    let mut b = Side::new(Node::open(&cable.b, config()));
    let places = connected(&mut b, &mut a, 0);
    exchange(&mut b, &mut a, places, &sizes(&SIZES));
    let places = connected(&mut a, &mut b, 0);
    exchange(&mut a, &mut b, places, &sizes(&SIZES));
    for side in [&mut a, &mut b] {
        let list = side.node.workers[0].connections().unwrap().list();
        assert_eq!(list.len(), 2);
        assert!(list.iter().all(|c| c.path_mtu == 1024), "{list:?}");
    }
}

/// A worker that waits for packets is woken to end what they no longer fit.
#[test]
fn a_smaller_underlay_ends_connections_of_who_waits() {
    let cable = Cable::new(9000);
    let mut a = Side::new(Node::open(&cable.a, config()));
    let mut b = Side::new(Node::open(&cable.b, config()));
    let (ab, ba) = connected(&mut a, &mut b, 0);
    let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).unwrap();
    a.node.workers[0].register(epoll.as_fd(), 42).unwrap();
    let is_woken = |patience: i64| {
        let patience = Timespec {
            tv_sec: patience,
            tv_nsec: 0,
        };
        let mut events = Vec::with_capacity(4);
        let events = rustix::buffer::spare_capacity(&mut events);
        epoll::wait(&epoll, events, Some(&patience)).unwrap() > 0
    };
    while is_woken(0) {
        a.turn();
    }
    cable.a.ip(&["link", "set", "u0", "mtu", "2400"]);
    assert!(!a.node.process().is_empty());
    assert!(is_woken(SOON.as_secs() as i64));
    a.turn();
    assert_eq!(a.log.closed, [(ab, CloseReason::PathMtu)]);
    until(&mut a, &mut b, |_, b| !b.log.closed.is_empty());
    assert_eq!(b.log.closed, [(ba, CloseReason::Disconnected)]);
}

#[test]
fn a_peer_that_vanishes_is_noticed() {
    let cable = Cable::new(9000);
    let mut a = Side::new(Node::open(&cable.a, config()));
    let mut b = Side::new(Node::open(&cable.b, config()));
    let (ab, _) = connected(&mut a, &mut b, 0);
    drop(b);
    assert!(a.post(ab, &[1; 5000]));
    let deadline = Instant::now() + SOON;
    while a.log.closed.is_empty() {
        assert!(Instant::now() < deadline, "{:?}", counters(&a));
        a.turn();
        sleep(Duration::from_millis(1));
    }
    let reason = CloseReason::Failed(WcStatus::RetryExcErr);
    assert_eq!(a.log.closed, [(ab, reason)]);
    assert!(a.has_room(0), "the others are not held up");
}

/// The workers keep their places in the group of sockets, too.
#[test]
fn a_new_address_ends_what_stood_on_the_old_one() {
    let cable = Cable::new(1500);
    let two = |peer| SoftConfig {
        workers: 2,
        ..ipv4(peer)
    };
    let mut a = Side::new(Node::open(&cable.a, two("192.0.2.2")));
    let mut b = Side::new(Node::open(&cable.b, two("192.0.2.1")));
    let (ab, _) = connected(&mut a, &mut b, 1);
    cable.a.ip(&["address", "del", "192.0.2.1/24", "dev", "u0"]);
    cable.a.ip(&["address", "add", "192.0.2.3/24", "dev", "u0"]);
    until(&mut a, &mut b, |a, _| {
        a.node.process();
        !a.log.closed.is_empty()
    });
    assert_eq!(a.log.closed, [(ab, CloseReason::PortGone)]);
    for worker in [0, 1] {
        let again = connected(&mut a, &mut b, worker);
        exchange(&mut a, &mut b, again, &sizes(&SIZES));
    }
    assert_eq!(a.node.counter("rx_handed_on"), 0);
}

#[test]
fn connections_of_an_endpoint_end_with_it() {
    let cable = Cable::new(1500);
    let mut a = Side::new(Node::open(&cable.a, config()));
    let mut b = Side::new(Node::open(&cable.b, config()));
    let (ab, ba) = connected(&mut a, &mut b, 0);
    let endpoint = a.endpoint();
    a.node.port.destroy_ud(endpoint).unwrap();
    until(&mut a, &mut b, |a, b| {
        !a.log.closed.is_empty() && !b.log.closed.is_empty()
    });
    assert_eq!(a.log.closed, [(ab, CloseReason::PortGone)]);
    assert_eq!(b.log.closed, [(ba, CloseReason::Disconnected)]);
    let request = ConnectRequest {
        service: SERVICE,
        peer: b.node.gid(),
        to: fabric::Qpn::new(0),
        private_data: &[],
    };
    let connections = a.node.workers[0].connections().unwrap();
    connections.connect(endpoint, &request).unwrap_err();
}

/// What any program can send to the port harms nothing.
#[test]
fn garbage_does_not_disturb_a_connection() {
    let cable = Cable::new(1500);
    let mut a = Side::new(Node::open(&cable.a, ipv4("192.0.2.2")));
    let mut b = Side::new(Node::open(&cable.b, ipv4("192.0.2.1")));
    let places = connected(&mut a, &mut b, 0);
    let list = b.node.workers[0].connections().unwrap().list();
    let qpn = list[0].local_qpn.to_bytes();
    let socket = cable.a.run(|| UdpSocket::bind("192.0.2.1:0").unwrap());
    for k in 0..600u32 {
        let mut packet: Vec<u8> = (0..k % 97).map(|i| (i * 31 + k * 7) as u8).collect();
        for (at, byte) in [(0, (k % 0x20) as u8), (1, 0), (2, 0xff), (3, 0xff)] {
            if k % 3 > 0
                && let Some(b) = packet.get_mut(at)
            {
                *b = byte;
            }
        }
        if k % 3 > 1
            && let Some(dest_qp) = packet.get_mut(5..8)
        {
            dest_qp.copy_from_slice(&qpn);
        }
        socket.send_to(&packet, "192.0.2.2:4791").unwrap();
    }
    exchange(&mut a, &mut b, places, &sizes(&SIZES));
    assert!(b.node.counter("rx_icrc_errors") > 10);
    assert!(b.node.counter("rx_length_errors") > 10);
    assert!(b.log.closed.is_empty());
}

/// The receiver oversleeps, and its socket overflows with what many connections have in flight: all
/// of it arrives in the end, no connection fails, and afterwards hardly anything is sent twice.
#[test]
fn an_overflowing_socket_heals() {
    const CONNECTIONS: usize = 128;
    const EACH: usize = 4;
    let cable = Cable::new(9000);
    let mut a = Side::new(Node::open(&cable.a, config()));
    let mut b = Side::new(Node::open(&cable.b, config()));
    let places: Vec<Place> = (0..CONNECTIONS)
        .map(|_| connected(&mut a, &mut b, 0).0)
        .collect();
    let message = payloads(0, 0, 65524).remove(0);
    for place in &places {
        for _ in 0..EACH {
            assert!(a.post(*place, &message));
        }
    }
    let asleep = Instant::now() + Duration::from_millis(300);
    while Instant::now() < asleep {
        a.turn();
        sleep(Duration::from_millis(1));
    }
    until(&mut a, &mut b, |_, b| {
        b.log.messages.len() == CONNECTIONS * EACH
    });
    assert!(b.node.counter("rx_socket_drops") > 0, "{:?}", counters(&b));
    assert!(b.log.messages.iter().all(|(_, m)| *m == message));
    // Everything is acknowledged.
    until(&mut a, &mut b, |a, _| {
        let list = a.node.workers[0].connections().unwrap().list();
        list.iter().all(|c| c.in_flight == 0)
    });
    let before = a.node.counter("retransmitted");
    b.log.messages.clear();
    for _ in 0..50 {
        let sent = b.log.messages.len() + 1;
        assert!(a.post(places[0], &message));
        until(&mut a, &mut b, |_, b| b.log.messages.len() == sent);
    }
    // A test that is kept from running asks early for a packet, once a message.
    let again = a.node.counter("retransmitted") - before;
    assert!(again <= 50, "{again} of 800 packets");
    assert!(a.log.closed.is_empty() && b.log.closed.is_empty());
}
