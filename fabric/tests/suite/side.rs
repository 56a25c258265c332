//! A node with connections, driven by hand.

use std::thread::sleep;
use std::time::{Duration, Instant};

use fabric::port::UdEndpoint;
use fabric::{
    CloseReason, ConnectRequest, ConnectionEvent, ConnectionId, Gid, Posted, Qpn, RejectReason,
    Room, ServiceId, Worker,
};

use crate::node::{Node, SOON, payloads};

pub const SERVICE: ServiceId = ServiceId(0x1000_0000_0000_0042);

/// A connection and its worker.
pub type Place = (usize, ConnectionId);

/// What happened to a node's connections.
#[derive(Default)]
pub struct Log {
    /// If set, requests are rejected with this reason.
    pub refuse: Option<RejectReason>,
    /// The service of the last request.
    service: Option<ServiceId>,
    pub accepted: Vec<Place>,
    pub established: Vec<Place>,
    pub closed: Vec<(Place, CloseReason)>,
    pub messages: Vec<(Place, Vec<u8>)>,
}

pub struct Side<'n> {
    pub node: Node<'n>,
    pub log: Log,
    /// The service to listen on or to request.
    pub service: ServiceId,
}

impl<'n> Side<'n> {
    /// A node with listeners on every worker.
    pub fn new(mut node: Node<'n>) -> Side<'n> {
        let endpoint = node.endpoint();
        Side::listening(node, &endpoint)
    }

    /// A node with listeners on every worker, for an endpoint.
    pub fn listening(mut node: Node<'n>, endpoint: &UdEndpoint) -> Side<'n> {
        for w in &mut node.workers {
            w.connections().unwrap().listen(endpoint.id, SERVICE);
        }
        Side::of(node, SERVICE)
    }

    /// A node that listens on one service only.
    pub fn answering(mut node: Node<'n>, service: ServiceId) -> Side<'n> {
        let endpoint = node.endpoint();
        for w in &mut node.workers {
            w.connections().unwrap().listen(endpoint.id, service);
        }
        Side::of(node, service)
    }

    /// A node that does not listen, and requests a service.
    pub fn asking(mut node: Node<'n>, service: ServiceId) -> Side<'n> {
        node.endpoint();
        Side::of(node, service)
    }

    fn of(node: Node<'n>, service: ServiceId) -> Side<'n> {
        Side {
            node,
            log: Log {
                service: Some(service),
                ..Log::default()
            },
            service,
        }
    }

    /// The number of its UD queue pair.
    pub fn qpn(&self) -> Qpn {
        let qpn = self.node.port.endpoint_qpn(self.endpoint());
        qpn.expect("a queue pair")
    }

    /// Runs this side alone until a connection has ended.
    pub fn await_closed(&mut self) {
        let deadline = Instant::now() + SOON;
        while self.log.closed.is_empty() {
            assert!(Instant::now() < deadline, "{:?}", counters(self));
            self.turn();
            sleep(Duration::from_millis(1));
        }
    }

    pub fn endpoint(&self) -> fabric::EndpointId {
        let queue_pairs = self.node.port.resources().queue_pairs;
        queue_pairs
            .iter()
            .find(|q| q.kind == "UD")
            .unwrap()
            .endpoint
    }

    pub fn connect(&mut self, worker: usize, peer: Gid, service: ServiceId) -> Place {
        self.connect_to(worker, peer, Qpn::new(0), service)
    }

    /// As `connect`, with the queue pair of the listener, for services with several listeners.
    pub fn connect_to(&mut self, worker: usize, peer: Gid, to: Qpn, service: ServiceId) -> Place {
        let endpoint = self.endpoint();
        let request = ConnectRequest {
            service,
            peer,
            to,
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

    /// Whether a worker takes messages.
    pub fn has_room(&self, worker: usize) -> bool {
        self.node.workers[worker].room() == Room::Messages
    }
}

fn round(i: usize, w: &mut dyn Worker, log: &mut Log) {
    if w.next_deadline().is_some_and(|at| at <= fabric::clock()) {
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
                assert_eq!(Some(service), log.service);
                assert_eq!(private_data[..5], *b"may I");
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

/// Runs both sides until `done`.
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

/// Connects a worker of `a` to `b`; returns the connection's id on both sides.
pub fn connected<'n>(a: &mut Side<'n>, b: &mut Side<'n>, worker: usize) -> (Place, Place) {
    let (before, accepted) = (a.log.established.len(), b.log.accepted.len());
    let place = a.connect_to(worker, b.node.gid(), b.qpn(), b.service);
    until(a, b, |a, b| {
        a.log.established.len() > before && b.log.accepted.len() > accepted
    });
    assert_eq!(a.log.established.last(), Some(&place));
    (place, b.log.accepted[accepted])
}

/// Checks that messages in both directions arrive, whole, once and in order.
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
