//! All nodes on one network with a common time. Only the scenario determines the events.

use fabric::soft::qp::{Attributes, State};
use fabric::soft::rc::RcCounts;
use fabric::{Psn, Qpn, WcStatus};

use crate::flow::Flow;
use crate::network::{MICROSECOND, MILLISECOND, Network, SECOND, Time};
use crate::node::Node;
use crate::plain::Plain;
use crate::random::Random;
use crate::scenario::{Failures, Scenario, Trouble};
use crate::side::{Place, Side};

/// Maximum bytes that one queue pair's transport may hold in addition to its buffers: two mebibytes of
/// packets after a gap, a mebibyte for the parts of the smallest ones, and its lists.
const HELD_MAX: usize = (3 << 20) + (64 << 10);
/// Maximum time without an arriving message.
const STANDSTILL: Time = 60 * SECOND;

/// The result of a run.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Outcome {
    pub arrived: u64,
    pub lost: u64,
    pub failures: u64,
    pub packets: u64,
    pub retransmitted: u64,
    pub responses: u64,
    /// Virtual time.
    pub took: Time,
}

impl Outcome {
    pub fn add(&mut self, other: &Outcome) {
        self.arrived += other.arrived;
        self.lost += other.lost;
        self.failures += other.failures;
        self.packets += other.packets;
        self.retransmitted += other.retransmitted;
        self.responses += other.responses;
        self.took += other.took;
    }
}

/// A simulated world.
#[derive(Debug)]
pub struct World {
    pub s: Scenario,
    pub now: Time,
    pub random: Random,
    pub nodes: Vec<Node>,
    /// The flows of connection `c`: 2c from the first end, 2c + 1 from the second.
    flows: Vec<Flow>,
    ends: Vec<[Place; 2]>,
    pub network: Network,
    next_qpn: u32,
    pub trouble_at: Option<Time>,
    /// When the last outage or pause ends.
    pub trouble_over: Time,
    pub vanished: Option<usize>,
    /// When the last message arrived, and the number of messages by then.
    last_arrival: (Time, u64),
    outcome: Outcome,
}

impl World {
    pub fn new(s: &Scenario) -> World {
        let mtu = s.mtu.bytes() as usize;
        let flow = |k: usize| {
            let seed = s.seed.wrapping_mul(0x1_0001).wrapping_add(k as u64);
            Flow::new(seed, s.sizes, mtu, s.messages)
        };
        let mut world = World {
            s: *s,
            now: 0,
            random: Random::new(s.seed),
            nodes: (0..s.nodes).map(|index| Node::new(index, s)).collect(),
            flows: (0..2 * s.connections).map(flow).collect(),
            ends: Vec::new(),
            network: Network::new(s.seed ^ 0xe7, s.nodes, s.impairments),
            next_qpn: 0x11,
            trouble_at: None,
            trouble_over: 0,
            vanished: None,
            last_arrival: (0, 0),
            outcome: Outcome::default(),
        };
        let pairs: Vec<(usize, usize)> = (0..s.nodes)
            .flat_map(|a| (a + 1..s.nodes).map(move |b| (a, b)))
            .collect();
        for connection in 0..s.connections {
            let (a, b) = pairs[connection % pairs.len()];
            let ends = [world.place(a), world.place(b)];
            world.ends.push(ends);
            world.connect(connection);
        }
        if s.trouble != Trouble::None {
            world.plan_trouble();
        }
        world
    }

    /// A new queue pair number and PSN; the PSN often wraps soon.
    fn place(&mut self, node: usize) -> Place {
        self.next_qpn += 1;
        let psn = if self.random.percent(50) {
            0xff_ffff - self.random.below(300)
        } else {
            self.random.word()
        };
        Place {
            node,
            qpn: Qpn::new(self.next_qpn),
            psn: Psn::new(psn as u32),
        }
    }

    fn connect(&mut self, connection: usize) {
        let [a, b] = self.ends[connection];
        let (there, back) = (2 * connection, 2 * connection + 1);
        for (here, peer, flows) in [(a, b, (there, back)), (b, a, (back, there))] {
            let node = &mut self.nodes[here.node];
            let (now, s, shared) = (self.now, &self.s, &mut node.shared);
            let mut side = node.ledger.within(|| {
                Side::connect(
                    now,
                    shared,
                    connection,
                    flows,
                    here,
                    peer,
                    s.mtu,
                    &s.patience,
                )
            });
            side.plain = self.s.plain_responders.then(|| {
                let every = self.s.acknowledges_all;
                Plain::new(peer.psn, every)
            });
            node.sides.insert(here.qpn.get(), side);
            node.wake_at = Some(self.now);
        }
    }

    /// Runs until all messages have arrived, or their connections have failed.
    pub fn run(mut self) -> Outcome {
        while !self.flows.iter().all(Flow::is_done) {
            self.step();
        }
        self.outcome.took = self.now;
        self.settle();
        self.check_the_end();
        for flow in &self.flows {
            self.outcome.arrived += flow.arrived;
            self.outcome.lost += flow.lost;
        }
        self.outcome
    }

    fn step(&mut self) {
        let wakes = self.nodes.iter().filter_map(|n| {
            let at = n.wake_at?;
            Some(at.max(n.stopped_until))
        });
        let next = wakes
            .chain(self.network.next_arrival())
            .chain(self.trouble_at)
            .min();
        let Some(next) = next else {
            panic!("no event is pending, but messages are outstanding");
        };
        assert!(next >= self.now);
        self.now = next;
        self.take_arrivals();
        if self.trouble_at.is_some_and(|at| at <= self.now) {
            self.make_trouble();
        }
        for index in 0..self.nodes.len() {
            let node = &mut self.nodes[index];
            let due = node.wake_at.is_some_and(|at| at <= self.now);
            if due && node.stopped_until <= self.now {
                node.run(self.now, &self.s, &mut self.flows, &mut self.network);
                self.supervise(index);
            }
        }
        let arrived = self.flows.iter().map(|f| f.arrived).sum();
        if arrived > self.last_arrival.1 {
            self.last_arrival = (self.now, arrived);
        }
        let quiet = self.now - self.last_arrival.0;
        assert!(quiet < STANDSTILL, "nothing has arrived for {quiet} ns");
    }

    fn take_arrivals(&mut self) {
        while let Some(datagram) = self.network.arrive(self.now) {
            let node = &mut self.nodes[datagram.to];
            node.arrive(&mut self.network, datagram);
            // A sleeping thread needs a moment to wake; more datagrams may arrive meanwhile.
            let awake = self.now + self.random.below(10 * MICROSECOND);
            node.wake_at = Some(node.wake_at.map_or(awake, |at| at.min(awake)));
        }
    }

    /// Checks the queue pairs of a node after its round.
    fn supervise(&mut self, index: usize) {
        let node = &mut self.nodes[index];
        let most = HELD_MAX * (1 + node.sides.len());
        assert!(node.ledger.most() < most, "holds {}", node.ledger.most());
        let patience = self.s.patience;
        let limit = 2 * (u64::from(patience.retry_cnt) + 2) * patience.ack_timeout()
            + 200 * MILLISECOND
            + if self.s.trouble == Trouble::Pauses {
                SECOND
            } else {
                0
            };
        let (mut failed, mut restart) = (Vec::new(), Vec::new());
        for (qpn, side) in &mut node.sides {
            if let Some(status) = side.failure() {
                let waited = side.checks.waited(self.now);
                failed.push((side.connection, status, waited, side.checks.tries));
                continue;
            }
            let waited = side.checks.waited(self.now);
            assert!(waited < limit, "no progress and no failure for {waited} ns");
            match side.restart_at {
                Some(0) => {
                    side.restart_at = Some(self.now + self.random.below(5 * MILLISECOND));
                }
                Some(at) if at <= self.now => restart.push(*qpn),
                _ => {}
            }
        }
        for qpn in restart {
            node.drain_or_restart(qpn);
            node.wake_at = Some(self.now + 1);
        }
        for (connection, status, waited, tries) in failed {
            self.check_failure(connection, status, waited, tries);
            self.outcome.failures += 1;
            self.reconnect(connection);
        }
    }

    fn check_failure(&self, connection: usize, status: WcStatus, waited: Time, tries: u32) {
        let with_vanished = self.ends[connection]
            .iter()
            .any(|end| Some(end.node) == self.vanished);
        let right = match status {
            WcStatus::RetryExcErr => self.s.failures != Failures::None || with_vanished,
            WcStatus::RnrRetryExcErr => self.s.failures == Failures::RetryAndRnr,
            _ => false,
        };
        assert!(right, "failed with {status} after {waited} ns");
        let patience = self.s.patience;
        if status == WcStatus::RetryExcErr && patience.retry_cnt == 7 {
            let least = 7 * patience.ack_timeout();
            assert!(waited >= least, "gave up after {waited} ns of {least}");
            assert!(tries > 7, "gave up after {tries} tries");
        }
    }

    /// Replaces both ends of a connection.
    fn reconnect(&mut self, connection: usize) {
        for end in self.ends[connection] {
            let node = &mut self.nodes[end.node];
            let side = node.sides.get_mut(&end.qpn.get()).expect("both ends exist");
            side.draining = false;
            let (qp, shared) = (&mut side.qp, &mut node.shared);
            if qp.state() != State::Err {
                node.ledger
                    .within(|| qp.modify(shared, State::Err, &Attributes::default()))
                    .expect("any state but RESET may go to ERR");
            }
            node.complete(&mut self.flows);
        }
        for end in self.ends[connection] {
            self.retire(end);
            self.flows[2 * connection].break_off();
            self.flows[2 * connection + 1].break_off();
        }
        if self.ends[connection]
            .iter()
            .any(|end| Some(end.node) == self.vanished)
        {
            self.flows[2 * connection].wanted = 0;
            self.flows[2 * connection + 1].wanted = 0;
        }
        let nodes = self.ends[connection].map(|end| end.node);
        self.ends[connection] = nodes.map(|node| self.place(node));
        self.connect(connection);
    }

    /// Removes a queue pair and adds its counters to the outcome.
    fn retire(&mut self, end: Place) {
        let node = &mut self.nodes[end.node];
        let mut side = node.sides.remove(&end.qpn.get()).expect("exists");
        let shared = &mut node.shared;
        node.ledger.within(|| {
            side.qp
                .modify(shared, State::Reset, &Attributes::default())
                .expect("any state may go to RESET");
            drop(side.qp);
        });
        self.outcome.packets += side.checks.requests;
        self.outcome.retransmitted += side.checks.again;
        self.outcome.responses += side.checks.responses;
    }

    /// Delivers everything in transit and waits for all timers.
    fn settle(&mut self) {
        self.trouble_at = None;
        let end = self.now + 20 * SECOND;
        while self.now < end
            && (self.network.next_arrival().is_some()
                || self.nodes.iter().any(|n| n.wake_at.is_some()))
        {
            self.last_arrival.0 = self.now;
            self.step();
        }
        assert!(self.now < end, "timers go on when nothing is outstanding");
    }

    fn check_the_end(&mut self) {
        let sides = self.nodes.iter().flat_map(|n| n.sides.values());
        for side in sides {
            assert_eq!(side.checks.outstanding(), 0, "in flight at the end");
            let stats = side.qp.statistics();
            assert_eq!(stats.in_flight, 0);
            if side.plain.is_none() {
                assert_eq!(stats.rx_messages, side.arrived);
            }
        }
        for connection in 0..self.ends.len() {
            for end in self.ends[connection] {
                self.retire(end);
            }
        }
        let mut counts = RcCounts::default();
        for node in &self.nodes {
            assert_eq!(node.buffers_in_use(&self.s), 0, "lost receive buffers");
            counts.retransmitted += node.shared.counts.retransmitted;
        }
        assert_eq!(counts.retransmitted, self.outcome.retransmitted);
        if let Failures::None = self.s.failures
            && self.vanished.is_none()
        {
            assert!(self.flows.iter().all(|f| f.lost == 0));
        }
    }
}
