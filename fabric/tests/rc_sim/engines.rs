//! Whole engines on the simulated network: connections are made, used, closed and lost, nodes are
//! killed and come back, and communication management is in the same weather as the messages.
//!
//! Every node wants a connection to every other one, over which it alone sends, as IP over
//! InfiniBand does. What must hold: the messages of a connection arrive once, whole and in order; no
//! connection ends without a reason that the scenario has; when the trouble is over, every node
//! reaches every other one, and after all is closed nothing is left.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use fabric::soft::engine::{Engine, EngineConfig, PortView};
use fabric::soft::wire::opcode;
use fabric::soft::{Path, train};
use fabric::{
    CloseReason, ConnectError, ConnectRequest, ConnectionEvent, ConnectionId, EndpointId, Guid,
    IbMtu, Instant, PKey, Posted, Qpn, RejectReason, ServiceId, WcStatus,
};

use crate::network::{Datagram, Impairments, MICROSECOND, MILLISECOND, Network, SECOND, Time};
use crate::packets::{gid, open, seal};
use crate::random::Random;

const SERVICE: ServiceId = ServiceId(0x1000_0000_0000_0042);
const ENDPOINT: EndpointId = EndpointId(1);
const MESSAGE_MAX: usize = 65_524;
/// Message header: who sends, the connection's serial number, the message's number in it.
const HEADER: usize = 24;
/// A node tries again this long after a connection ended.
const AGAIN_AFTER: Time = 50 * MILLISECOND;

/// What befalls a world of engines.
#[derive(Clone, Copy, Debug)]
pub struct Weather {
    pub seed: u64,
    pub nodes: usize,
    pub impairments: Impairments,
    /// How long there is trouble.
    pub trouble: Time,
    /// Whether nodes are killed and start again.
    pub restarts: bool,
    /// Whether consumers close connections.
    pub closes: bool,
    /// Whether links are cut for a while.
    pub outages: bool,
    /// Whether connections may fail.
    pub may_fail: bool,
    /// Messages in a row, at most, and the pause after them, at most.
    pub burst: u64,
    pub gap: Time,
}

/// What a run came to.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Tally {
    pub arrived: u64,
    pub connections: u64,
    pub failed: u64,
    pub disconnected: u64,
    pub timed_out: u64,
    pub rejected: u64,
    pub restarts: u64,
    pub packets: u64,
}

impl Tally {
    pub fn add(&mut self, other: &Tally) {
        self.arrived += other.arrived;
        self.connections += other.connections;
        self.failed += other.failed;
        self.disconnected += other.disconnected;
        self.timed_out += other.timed_out;
        self.rejected += other.rejected;
        self.restarts += other.restarts;
        self.packets += other.packets;
    }
}

/// A message's bytes, from what its header says.
fn message(from: usize, serial: u64, number: u64) -> Vec<u8> {
    let mut random = Random::new(serial ^ number.rotate_left(32));
    let len = match random.below(100) {
        0..=69 => random.between(HEADER as u64, 200),
        70..=97 => random.between(HEADER as u64, 4096),
        _ => random.between(4096, MESSAGE_MAX as u64),
    } as usize;
    let mut bytes = Vec::with_capacity(len + 8);
    for word in [from as u64, serial, number] {
        bytes.extend(word.to_be_bytes());
    }
    while bytes.len() < len {
        bytes.extend(random.word().to_le_bytes());
    }
    bytes.truncate(len);
    bytes
}

/// A connection that a node sends over.
#[derive(Debug)]
struct Outgoing {
    id: ConnectionId,
    open: bool,
    serial: u64,
    /// Messages posted.
    next: u64,
}

/// A connection that a node receives over.
#[derive(Debug, Default)]
struct Incoming {
    /// Who sends and the serial number, once there was a message.
    from: Option<(usize, u64)>,
    next: u64,
}

/// What a node wants of a peer.
#[derive(Debug, Default)]
struct Wish {
    connection: Option<Outgoing>,
    /// When it tries to connect, or posts again.
    next_at: Time,
}

#[derive(Debug)]
struct Node {
    engine: Engine,
    random: Random,
    wishes: Vec<Wish>,
    incoming: HashMap<ConnectionId, Incoming>,
    socket: Vec<Datagram>,
    memory: Vec<u8>,
    /// Dead before this.
    down_until: Time,
    wake_at: Option<Time>,
}

fn engine(node: usize, random: &mut Random, now: Time) -> Engine {
    let mut engine = Engine::new(EngineConfig {
        ca_guid: Guid(random.word().to_be_bytes()),
        worker: 0,
        workers: 1,
        seed: [random.word(), random.word()],
        message_max: MESSAGE_MAX,
        connections_max: 1000,
    });
    let view = PortView {
        gid: gid(node),
        path_mtu: Some(IbMtu::B1024),
        send_max: 65_000,
        reserved: Vec::<Qpn>::new(),
        pkey: PKey::DEFAULT,
    };
    engine.set_port(Instant(now), view);
    engine.listen(ENDPOINT, PKey::DEFAULT, SERVICE);
    engine
}

/// Engines on a network.
#[derive(Debug)]
pub struct World {
    weather: Weather,
    now: Time,
    random: Random,
    network: Network,
    nodes: Vec<Node>,
    trouble_at: Option<Time>,
    serial: u64,
    /// Serial numbers that messages have arrived from, and how many were posted and arrived of each.
    arrived: HashMap<u64, u64>,
    seen: HashSet<u64>,
    /// Whether new messages are still posted, and new connections made.
    posting: bool,
    tally: Tally,
}

impl World {
    pub fn new(weather: &Weather) -> World {
        let mut random = Random::new(weather.seed);
        let nodes = (0..weather.nodes)
            .map(|index| Node {
                engine: engine(index, &mut random, 0),
                random: Random::new(random.word()),
                wishes: (0..weather.nodes).map(|_| Wish::default()).collect(),
                incoming: HashMap::new(),
                socket: Vec::new(),
                memory: Vec::new(),
                down_until: 0,
                wake_at: Some(0),
            })
            .collect();
        World {
            weather: *weather,
            now: 0,
            network: Network::new(random.word(), weather.nodes, weather.impairments),
            random,
            nodes,
            trouble_at: Some(10 * MILLISECOND),
            serial: 0,
            arrived: HashMap::new(),
            seen: HashSet::new(),
            posting: true,
            tally: Tally::default(),
        }
    }

    /// Through the trouble, until everybody has reached everybody after it and all is closed.
    pub fn run(mut self) -> Tally {
        while self.trouble_at.is_some() {
            self.step();
        }
        self.reach_everybody();
        self.posting = false;
        self.quiesce();
        self.close_all();
        self.tally
    }

    /// Every node gets a new message to every other one, over whatever connection.
    fn reach_everybody(&mut self) {
        let mut missing: HashSet<(usize, usize)> = (0..self.nodes.len())
            .flat_map(|a| (0..self.nodes.len()).map(move |b| (a, b)))
            .filter(|(a, b)| a != b)
            .collect();
        let before = self.arrived.clone();
        let end = self.now + 120 * SECOND;
        while !missing.is_empty() {
            self.step();
            assert!(self.now < end, "still not reached: {missing:?}");
            for (to, node) in self.nodes.iter().enumerate() {
                for (from, serial) in node.incoming.values().filter_map(|i| i.from) {
                    if self.arrived.get(&serial) > before.get(&serial) {
                        missing.remove(&(from, to));
                    }
                }
            }
        }
    }

    /// What was posted over connections that hold arrives.
    fn quiesce(&mut self) {
        let end = self.now + 30 * SECOND;
        while self.now < end && self.has_something_to_do() {
            self.step();
        }
        for node in &self.nodes {
            for out in node.wishes.iter().filter_map(|w| w.connection.as_ref()) {
                let arrived = self.arrived.get(&out.serial).copied().unwrap_or(0);
                if out.open {
                    assert_eq!(arrived, out.next, "messages of connection {}", out.serial);
                }
            }
            for info in node.engine.list() {
                assert_eq!(info.in_flight, 0, "{info:?}");
            }
        }
    }

    /// Everything is closed, and after TIMEWAIT nothing is left.
    fn close_all(&mut self) {
        for node in &mut self.nodes {
            node.engine.close_all(Instant(self.now), ENDPOINT);
            node.wake_at = Some(self.now);
        }
        let end = self.now + 600 * SECOND;
        while self.has_something_to_do() {
            self.step();
            assert!(self.now < end, "timers go on when all is closed");
        }
        for node in &self.nodes {
            assert!(node.engine.list().is_empty());
            assert_eq!(node.engine.next_deadline(), None);
            assert!(!node.engine.wants_to_send());
        }
    }

    fn has_something_to_do(&self) -> bool {
        self.network.next_arrival().is_some() || self.nodes.iter().any(|n| n.wake_at.is_some())
    }

    fn step(&mut self) {
        let wakes = self
            .nodes
            .iter()
            .filter_map(|n| Some(n.wake_at?.max(n.down_until)));
        let next = wakes
            .chain(self.network.next_arrival())
            .chain(self.trouble_at)
            .min();
        self.now = next.expect("something is left to happen").max(self.now);
        while let Some(datagram) = self.network.arrive(self.now) {
            let node = &mut self.nodes[datagram.to];
            if node.down_until > self.now {
                self.network.recycle(datagram);
                continue;
            }
            node.socket.push(datagram);
            let awake = self.now + self.random.below(10 * MICROSECOND);
            node.wake_at = Some(node.wake_at.map_or(awake, |at| at.min(awake)));
        }
        if self.trouble_at.is_some_and(|at| at <= self.now) {
            self.make_trouble();
        }
        for index in 0..self.nodes.len() {
            let node = &self.nodes[index];
            let due = node.wake_at.is_some_and(|at| at <= self.now);
            if due && node.down_until <= self.now {
                self.run_node(index);
            }
        }
    }

    /// One round of a node's data thread.
    fn run_node(&mut self, index: usize) {
        let now = Instant(self.now);
        self.receive(index);
        let node = &mut self.nodes[index];
        if node.engine.next_deadline().is_some_and(|at| at <= now) {
            node.engine.handle_timeout(now);
        }
        self.events(index);
        if self.posting {
            self.pursue(index);
        }
        let node = &mut self.nodes[index];
        let (network, tally) = (&mut self.network, &mut self.tally);
        for flush in [false, true] {
            node.engine.transmit(now, flush, |run| {
                let to = (0..).find(|&n| gid(n) == run.to).expect("a node's GID");
                for bytes in run.memory.chunks_mut(run.stride) {
                    seal(index, to, bytes);
                    network.send(now.0, index, to, bytes);
                    tally.packets += 1;
                }
                run.count
            });
        }
        self.events(index);
        let node = &mut self.nodes[index];
        let deadline = node.engine.next_deadline();
        assert!(deadline.is_none_or(|at| at > now), "a deadline has passed");
        let mut next = deadline.map(|at| at.0);
        if self.posting {
            let wishes = node.wishes.iter().enumerate();
            let wish = wishes
                .filter(|(peer, w)| *peer != index && w.next_at > now.0)
                .map(|(_, w)| w.next_at)
                .min();
            next = next.into_iter().chain(wish).min();
        }
        node.wake_at = next;
    }

    fn receive(&mut self, index: usize) {
        let now = Instant(self.now);
        let node = &mut self.nodes[index];
        node.engine.begin_batch();
        node.memory.clear();
        let mut places = Vec::new();
        for datagram in node.socket.drain(..) {
            let start = node.memory.len();
            node.memory.extend_from_slice(&datagram.bytes);
            places.push((datagram.from, start..node.memory.len()));
            self.network.recycle(datagram);
        }
        for (from, range) in places {
            let bytes = &node.memory[range.clone()];
            let Some(packet) = open(from, index, bytes) else {
                continue;
            };
            if packet.bth.opcode == opcode::UD_SEND_ONLY {
                let mad = bytes[train::HEAD..].first_chunk();
                node.engine.mad(now, gid(from), mad.expect("256 bytes"));
                continue;
            }
            let path = Path {
                src: gid(from),
                dst: gid(index),
                src_port: 0xc000,
            };
            // A packet of a connection that is gone is refused; the simulation needs no reason.
            let _ = node
                .engine
                .receive(now, &path, bytes, range.start, || Ok(()));
        }
        node.engine.end_batch(now, &node.memory);
        for (got, payload) in node.engine.batch(&node.memory).messages() {
            let bytes: Vec<u8> = payload.parts().collect::<Vec<_>>().concat();
            assert_eq!(bytes.len(), got.len);
            let word = |k: usize| {
                let bytes = bytes.get(8 * k..8 * k + 8).expect("a whole header");
                u64::from_be_bytes(bytes.try_into().expect("8 bytes"))
            };
            let (from, serial, number) = (word(0) as usize, word(1), word(2));
            let incoming = node
                .incoming
                .get_mut(&got.connection)
                .expect("a connection that was consented to");
            if incoming.from.is_none() {
                assert!(self.seen.insert(serial), "{serial} over two connections");
                incoming.from = Some((from, serial));
            }
            assert_eq!(incoming.from, Some((from, serial)));
            assert_eq!(number, incoming.next, "order in connection {serial}");
            assert!(bytes == message(from, serial, number), "not what was sent");
            incoming.next += 1;
            self.arrived.insert(serial, incoming.next);
            self.tally.arrived += 1;
        }
    }

    fn events(&mut self, index: usize) {
        let now = Instant(self.now);
        while let Some(event) = self.nodes[index].engine.poll_event() {
            let node = &mut self.nodes[index];
            match event {
                ConnectionEvent::Requested {
                    connection,
                    private_data,
                    service,
                    ..
                } => {
                    assert_eq!((service, private_data.len()), (SERVICE, 92));
                    if self.weather.closes && node.random.percent(5) {
                        let reason = RejectReason::CONSUMER;
                        node.engine.reject(now, connection, reason, &[]);
                    } else {
                        node.engine.accept(now, connection, &[7; 8]);
                        node.incoming.insert(connection, Incoming::default());
                    }
                }
                ConnectionEvent::Replied {
                    connection,
                    private_data,
                } => {
                    assert_eq!(private_data[..8], [7; 8]);
                    node.engine.establish(now, connection);
                    for out in node.wishes.iter_mut().filter_map(|w| w.connection.as_mut()) {
                        out.open |= out.id == connection;
                    }
                }
                ConnectionEvent::Closed { connection, reason } => {
                    self.note_closed(index, connection, reason);
                }
            }
        }
    }

    fn note_closed(&mut self, index: usize, connection: ConnectionId, reason: CloseReason) {
        let w = &self.weather;
        let right = match reason {
            CloseReason::Disconnected => w.closes || w.restarts || w.may_fail,
            CloseReason::Rejected(RejectReason::CONSUMER) => w.closes,
            CloseReason::Rejected(_) => w.restarts || w.closes || w.may_fail,
            CloseReason::TimedOut => w.restarts || w.may_fail,
            CloseReason::Failed(WcStatus::RetryExcErr) => w.restarts || w.may_fail || w.closes,
            CloseReason::Failed(_) | CloseReason::PortGone => false,
        };
        assert!(right, "a connection of node {index} ended: {reason:?}");
        match reason {
            CloseReason::Failed(_) => self.tally.failed += 1,
            CloseReason::TimedOut => self.tally.timed_out += 1,
            CloseReason::Rejected(_) => self.tally.rejected += 1,
            _ => self.tally.disconnected += 1,
        }
        let node = &mut self.nodes[index];
        node.incoming.remove(&connection);
        for wish in &mut node.wishes {
            if wish.connection.as_ref().is_some_and(|o| o.id == connection) {
                wish.connection = None;
                wish.next_at = self.now + AGAIN_AFTER;
            }
        }
    }

    /// Connects to whom there is no connection, and posts over those that are open.
    fn pursue(&mut self, index: usize) {
        for peer in (0..self.nodes.len()).filter(|&p| p != index) {
            if self.nodes[index].wishes[peer].next_at > self.now {
                continue;
            }
            match &self.nodes[index].wishes[peer].connection {
                None => self.connect(index, peer),
                Some(out) if out.open => self.post(index, peer),
                Some(_) => {}
            }
        }
    }

    fn connect(&mut self, index: usize, peer: usize) {
        let node = &mut self.nodes[index];
        let request = ConnectRequest {
            service: SERVICE,
            peer: gid(peer),
            private_data: &[1; 8],
        };
        let now = Instant(self.now);
        match node.engine.connect(now, ENDPOINT, PKey::DEFAULT, &request) {
            Ok(id) => {
                self.serial += 1;
                self.tally.connections += 1;
                node.wishes[peer].connection = Some(Outgoing {
                    id,
                    open: false,
                    serial: self.serial,
                    next: 0,
                });
            }
            Err(ConnectError::Full) => node.wishes[peer].next_at = self.now + AGAIN_AFTER,
            Err(e) => panic!("{e}"),
        }
    }

    fn post(&mut self, index: usize, peer: usize) {
        let now = Instant(self.now);
        let node = &mut self.nodes[index];
        let wish = &mut node.wishes[peer];
        let out = wish.connection.as_mut().expect("an open one");
        for _ in 0..node.random.between(1, self.weather.burst) {
            let bytes = message(index, out.serial, out.next);
            let path_mtu = node.engine.path_mtu(out.id);
            let Some(mut places) = node.engine.message(now, out.id, bytes.len()) else {
                break;
            };
            for piece in bytes.chunks(path_mtu) {
                let place = places.next(piece.len()).expect("as many as pieces");
                place.copy_from_slice(piece);
            }
            let ticket = places.finish();
            match node.engine.post(now, out.id, ticket) {
                Posted::Done => out.next += 1,
                Posted::Full => {
                    out.next += 1;
                    break;
                }
                Posted::Refused => break,
            }
        }
        wish.next_at = self.now + 1 + node.random.below(self.weather.gap);
    }

    fn make_trouble(&mut self) {
        let pause = Duration::from_millis(self.random.between(5, 400)).as_nanos() as Time;
        self.trouble_at = Some(self.now + pause).filter(|&at| at < self.weather.trouble);
        let a = self.random.below(self.nodes.len() as u64) as usize;
        let b = (a + 1) % self.nodes.len();
        match self.random.below(3) {
            0 if self.weather.restarts => self.restart(a),
            1 if self.weather.closes => self.close_one(a),
            2 if self.weather.outages => {
                let longest = if self.weather.may_fail { 3000 } else { 500 };
                let until = self.now + self.random.below(longest) * MILLISECOND;
                self.network.cut(a, b, until);
                if self.random.percent(50) {
                    self.network.cut(b, a, until);
                }
            }
            _ => {}
        }
    }

    /// Kills a node; it comes back as another start of the same.
    fn restart(&mut self, index: usize) {
        self.tally.restarts += 1;
        let down_until = self.now + self.random.below(3 * SECOND);
        let node = &mut self.nodes[index];
        node.engine = engine(index, &mut self.random, self.now);
        node.wishes.iter_mut().for_each(|w| *w = Wish::default());
        node.incoming.clear();
        node.socket.clear();
        node.down_until = down_until;
        node.wake_at = Some(down_until);
    }

    /// A consumer closes one of its connections, whichever side it is.
    fn close_one(&mut self, index: usize) {
        let node = &mut self.nodes[index];
        let all = node.engine.list();
        let nth = node.random.below(all.len() as u64) as usize;
        let Some(info) = all.get(nth) else { return };
        node.engine.close(Instant(self.now), info.connection);
        node.incoming.remove(&info.connection);
        for wish in &mut node.wishes {
            let is_it = |o: &Outgoing| o.id == info.connection;
            if wish.connection.as_ref().is_some_and(is_it) {
                wish.connection = None;
                wish.next_at = self.now + AGAIN_AFTER;
            }
        }
        node.wake_at = Some(self.now);
    }
}
