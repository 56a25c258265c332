//! A network with hosts, and its operations.

use std::collections::HashSet;

use ipoib::{Mode, Time as CoreTime};
use proto::Qpn;
use smoltcp::wire::IpAddress;

use crate::network::{Impairments, MICROSECOND, MILLISECOND, Network, Time};
use crate::node::{Host, Node, core_time};
use crate::random::Random;

const PORT: u16 = 5001;

/// A fast network without faults.
pub const CLEAN: Impairments = Impairments {
    loss: 0,
    loss_goes_on: 0,
    duplicate: 0,
    corrupt: 0,
    reorder: 0,
    spike: 0,
    latency: 50 * MICROSECOND,
    jitter: 10 * MICROSECOND,
    rate: 0,
    queue: 0,
};

/// A network with all kinds of faults.
pub const ROUGH: Impairments = Impairments {
    loss: 50_000,
    loss_goes_on: 200_000,
    duplicate: 50_000,
    corrupt: 10_000,
    reorder: 50_000,
    spike: 8 * MILLISECOND,
    jitter: 100 * MICROSECOND,
    rate: 1_000_000_000,
    queue: 512 << 10,
    ..CLEAN
};

/// Prints how to repeat a failure.
struct Seed(u64);

impl Drop for Seed {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("the seed was {:#x}", self.0);
        }
    }
}

pub struct Net {
    pub nodes: Vec<Node>,
    now: Time,
    pub network: Network,
    pub random: Random,
    /// Started receivers: node, flow, total bytes.
    flows: Vec<(usize, usize, usize)>,
    _seed: Seed,
}

impl Net {
    /// Hosts 10.0.0.1, 10.0.0.2 and so on. A seed always gives the same world.
    pub fn new(seed: u64, impairments: Impairments, hosts: impl AsRef<[Host]>) -> Net {
        let (mut random, hosts) = (Random::new(seed), hosts.as_ref());
        let new = |(index, host): (usize, &Host)| Node::new(index, hosts.len(), &mut random, *host);
        let nodes: Vec<Node> = hosts.iter().enumerate().map(new).collect();
        Net {
            network: Network::new(random.word(), nodes.len(), impairments),
            nodes,
            now: 0,
            random,
            flows: Vec::new(),
            _seed: Seed(seed),
        }
    }

    /// The present time in the core's type.
    pub fn now(&self) -> CoreTime {
        core_time(self.now)
    }

    /// Advances to the next event, or by a short time.
    pub fn step(&mut self) {
        let wakes = self.nodes.iter().filter_map(|n| n.wake_at);
        let events = wakes.chain(self.network.next_arrival());
        let next = events.chain([self.now + 100 * MILLISECOND]).min();
        self.now = next.expect("the last is there").max(self.now);
        while let Some(datagram) = self.network.arrive(self.now) {
            let node = &mut self.nodes[datagram.to];
            if node.down_until > self.now {
                self.network.recycle(datagram);
                continue;
            }
            node.port.socket.push(datagram);
            let awake = self.now + self.random.below(20 * MICROSECOND);
            node.wake_at = Some(node.wake_at.map_or(awake, |at| at.min(awake)));
        }
        for node in &mut self.nodes {
            if node.wake_at.is_some_and(|at| at <= self.now) {
                node.run(self.now, &mut self.network);
            }
        }
    }

    /// Wakes a node after a change from outside.
    fn wake(&mut self, node: usize) {
        self.nodes[node].wake_at = Some(self.now);
    }

    /// Kills a node's daemon and starts it again `after` milliseconds later, with another queue pair. Peers
    /// are not informed.
    pub fn restart(&mut self, node: usize, qpn: Qpn, after: u64) {
        let (from, nodes) = (self.now + after * MILLISECOND, self.nodes.len());
        self.nodes[node].restart(from, nodes, qpn, &mut self.random);
        self.wake(node);
    }

    pub fn run_until(&mut self, limit_ms: u64, what: &str, mut done: impl FnMut(&mut Net) -> bool) {
        let end = self.now + limit_ms * MILLISECOND;
        while !done(self) {
            assert!(self.now < end, "{what}: not within {limit_ms} ms");
            self.step();
        }
    }

    /// Pings from the first host once a second until an answer arrives.
    pub fn ping_until_answered(&mut self, to: IpAddress, seconds: u64) {
        let start = self.now;
        let mut asked = None;
        self.run_until(seconds * 1000, "ping", |net| {
            let second = (net.now - start) / (1000 * MILLISECOND);
            if asked != Some(second) {
                asked = Some(second);
                net.nodes[0].send_echo(to, true);
                net.wake(0);
            }
            net.nodes[0].receive_echo() == Some((false, to))
        });
    }

    /// Starts to send `total` bytes over TCP from one host to another, at `address`.
    pub fn begin(&mut self, from: usize, to: usize, address: IpAddress, total: usize) {
        let port = PORT + from as u16;
        self.flows.push((to, self.nodes[to].flows.len(), total));
        self.nodes[to].receive_on(port);
        self.nodes[from].send_to((address, port), total);
        self.wake(from);
        self.wake(to);
    }

    /// Whether all data has arrived.
    pub fn all_arrived(&self) -> bool {
        let arrived = |&(node, flow, total): &(usize, usize, usize)| {
            self.nodes[node].flows[flow].done == total
        };
        self.flows.iter().all(arrived)
    }

    /// Aborts all TCP connections of the hosts.
    pub fn abort_all(&mut self) {
        for index in 0..self.nodes.len() {
            self.nodes[index].abort_all();
            self.wake(index);
        }
    }

    /// Advances by this time.
    pub fn pass(&mut self, seconds: u64) {
        let end = self.now + seconds * 1000 * MILLISECOND;
        while self.now < end {
            self.step();
        }
    }

    /// Changes a host's mode as the daemon does: the MTU is large only while large packets can be sent.
    pub fn set_mode(&mut self, node: usize, mode: Mode) {
        self.nodes[node].set_mode(self.now, mode);
        self.wake(node);
    }

    /// Cuts the network between two nodes for some milliseconds.
    pub fn cut(&mut self, from: usize, to: usize, ms: u64) {
        self.network.cut(from, to, self.now + ms * MILLISECOND);
    }

    /// Checks that every connection of a core is one of its engine's, and vice versa.
    pub fn check_connections(&self) {
        for node in self.nodes.iter().filter(|n| n.down_until <= self.now) {
            let core: HashSet<_> = node.core.connections().map(|(id, _)| id).collect();
            let engine = node.port.engine.list().into_iter().map(|c| c.connection);
            assert_eq!(core, engine.collect());
        }
    }

    /// Sends `total` bytes over TCP from the first to the second host. Calls `meanwhile` once, half way.
    pub fn transfer(&mut self, to: IpAddress, total: usize, meanwhile: impl FnOnce(&mut Net)) {
        self.begin(0, 1, to, total);
        let mut meanwhile = Some(meanwhile);
        self.run_until(600_000, "transfer", |net| {
            let got = net.nodes[1].flows[0].done;
            if got >= total / 2
                && let Some(f) = meanwhile.take()
            {
                f(net);
                (0..net.nodes.len()).for_each(|node| net.wake(node));
            }
            got == total
        });
    }
}
