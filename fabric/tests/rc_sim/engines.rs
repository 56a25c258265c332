//! Whole engines on the simulated network: connections are created, used, closed and lost, nodes are
//! killed and restarted, and the network's faults also affect communication management.
//! Each node wants a connection to each other node and sends only over that one, as in IP over
//! InfiniBand. The tests check: the messages of a connection arrive once, whole and in order; no
//! connection ends for a reason outside the scenario; after the trouble every node reaches every other
//! one; and after all is closed nothing is left.

mod consumer;
mod node;

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use fabric::mad::{MAD_LEN, Mad};
use fabric::soft::wire::opcode;
use fabric::soft::{Path, train};
use fabric::{EndpointId, Instant, ServiceId};

use crate::network::{Impairments, MICROSECOND, MILLISECOND, Network, SECOND, Time};
use crate::node::is_traced;
use crate::packets::{gid, open, seal};
use crate::random::Random;

use node::{Node, Wish, engine, message};

const SERVICE: ServiceId = ServiceId(0x1000_0000_0000_0042);
const ENDPOINT: EndpointId = EndpointId(1);
/// For rdma_cm, two endpoints listen on one service, and the second has a datagram service.
const RDMA_CM: ServiceId = ServiceId::rdma_cm(4755);
const SECOND_ENDPOINT: EndpointId = EndpointId(2);
const DATAGRAMS: ServiceId = ServiceId::rdma_cm_datagrams(4755);
const MESSAGE_MAX: usize = 65_524;
/// How long a node waits to reconnect after a connection ended.
const AGAIN_AFTER: Time = 50 * MILLISECOND;

/// The conditions of a world of engines.
#[derive(Clone, Copy, Debug)]
pub struct Weather {
    pub seed: u64,
    pub nodes: usize,
    /// Only pairs with the first node communicate.
    pub star: bool,
    pub impairments: Impairments,
    /// The duration of the trouble.
    pub trouble: Time,
    /// Whether nodes are killed and restarted.
    pub restarts: bool,
    /// Whether services are rdma_cm's, and nodes also request datagram services.
    pub rdma_cm: bool,
    /// Whether consumers close connections.
    pub closes: bool,
    /// Whether links are cut for a while.
    pub outages: bool,
    /// Whether connections may fail.
    pub may_fail: bool,
    /// Maximum number of messages in a row, and maximum pause after them.
    pub burst: u64,
    pub gap: Time,
}

/// The result of a run.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Totals {
    pub arrived: u64,
    pub connections: u64,
    pub failed: u64,
    pub disconnected: u64,
    pub timed_out: u64,
    pub rejected: u64,
    pub restarts: u64,
    pub packets: u64,
    /// Datagram services found.
    pub found: u64,
}

impl Weather {
    /// Whether node `a` sends to node `b`.
    fn talk(&self, a: usize, b: usize) -> bool {
        a != b && (!self.star || a == 0 || b == 0)
    }
}

impl Totals {
    pub fn add(&mut self, other: &Totals) {
        self.arrived += other.arrived;
        self.connections += other.connections;
        self.failed += other.failed;
        self.disconnected += other.disconnected;
        self.timed_out += other.timed_out;
        self.rejected += other.rejected;
        self.restarts += other.restarts;
        self.packets += other.packets;
        self.found += other.found;
    }
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
    /// Messages that have arrived, by the serial number of their connection.
    arrived: HashMap<u64, u64>,
    seen: HashSet<u64>,
    /// Whether nodes post new messages and create connections.
    posting: bool,
    totals: Totals,
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
                asked: HashMap::new(),
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
            totals: Totals::default(),
        }
    }

    /// Runs through the trouble, until all nodes have reached each other after it and all is closed.
    pub fn run(mut self) -> Totals {
        while self.trouble_at.is_some() {
            self.step();
        }
        self.reach_everybody();
        self.posting = false;
        self.quiesce();
        self.close_all();
        self.totals
    }

    /// Sends a new message from every node to every other one, over any connection.
    fn reach_everybody(&mut self) {
        let mut missing: HashSet<(usize, usize)> = (0..self.nodes.len())
            .flat_map(|a| (0..self.nodes.len()).map(move |b| (a, b)))
            .filter(|&(a, b)| self.weather.talk(a, b))
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

    /// Waits until all messages of open connections have arrived.
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

    /// Closes everything; after TIMEWAIT nothing may be left.
    fn close_all(&mut self) {
        for node in &mut self.nodes {
            node.engine.close_all(Instant(self.now), ENDPOINT);
            node.engine.close_all(Instant(self.now), SECOND_ENDPOINT);
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
            assert!(node.asked.is_empty(), "requests without an answer");
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
        self.now = next.expect("an event is pending").max(self.now);
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
        let (network, totals) = (&mut self.network, &mut self.totals);
        for flush in [false, true] {
            node.engine.transmit(now, flush, |run| {
                let to = (0..).find(|&n| gid(n) == run.to).expect("a node's GID");
                for bytes in run.memory.chunks_mut(run.stride) {
                    seal(index, to, bytes);
                    network.send(now.0, index, to, bytes);
                    totals.packets += 1;
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
                .filter(|&(peer, w)| self.weather.talk(index, peer) && w.next_at > now.0)
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
                if is_traced() {
                    let read = Mad::parse(&bytes[train::HEAD..][..MAD_LEN]).map(|m| m.header);
                    let header = read.map_or_else(|e| e.to_string(), |h| h.to_string());
                    eprintln!("{} ns node {index} <- node {from} {header}", now.0);
                }
                let mad = mad.expect("256 bytes");
                node.engine.mad(now, gid(from), packet.bth.pkey(), mad);
                continue;
            }
            let path = Path {
                src: gid(from),
                dst: gid(index),
                src_port: 0xc000,
            };
            // Packets of ended connections are refused; the reason does not matter.
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
            self.totals.arrived += 1;
        }
    }

    fn make_trouble(&mut self) {
        let pause = Duration::from_millis(self.random.between(5, 400)).as_nanos() as Time;
        self.trouble_at = Some(self.now + pause).filter(|&at| at < self.weather.trouble);
        let anybody = self.random.below(self.nodes.len() as u64) as usize;
        let centre = self.weather.star && self.random.percent(50);
        let a = if centre { 0 } else { anybody };
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

    /// Kills a node and restarts it.
    fn restart(&mut self, index: usize) {
        self.totals.restarts += 1;
        let down_until = self.now + self.random.below(3 * SECOND);
        let node = &mut self.nodes[index];
        node.engine = engine(index, &mut self.random, self.now);
        node.wishes.iter_mut().for_each(|w| *w = Wish::default());
        node.incoming.clear();
        node.asked.clear();
        node.socket.clear();
        node.down_until = down_until;
        node.wake_at = Some(down_until);
    }
}
