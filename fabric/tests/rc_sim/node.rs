//! A node: a socket, a shared receive queue, and queue pairs, run as in a data thread.

use std::collections::{BTreeMap, VecDeque};
use std::env;
use std::sync::LazyLock;

use fabric::Instant;
use fabric::soft::qp::{Attributes, State};
use fabric::soft::rc::{Inbox, RcCounts, RcPacket, ReceivedMessage, Shared, Srq};
use fabric::soft::wire::{Aeth, Bth, opcode};
use kit::allocator::Ledger;

use crate::flow::Flow;
use crate::network::{Datagram, MICROSECOND, Network, Time};
use crate::packets::{acknowledgement, for_queue_pair, forge, open, seal};
use crate::random::Random;
use crate::scenario::Scenario;
use crate::side::Side;

/// Maximum number of datagrams taken from the socket at once.
const BATCH: usize = 64;
/// Maximum number of incomplete requests.
const POSTED_MAX: usize = 64;
/// Maximum number of packets that one queue pair sends at once; more means an endless loop.
const PACKETS_MAX: usize = 100_000;

/// Whether to print packets.
pub fn is_traced() -> bool {
    static WANTED: LazyLock<bool> = LazyLock::new(|| env::var_os("RC_SIM_TRACE").is_some());
    *WANTED
}

/// Prints a packet, if RC_SIM_TRACE is set.
fn trace(now: Time, node: usize, way: &str, bth: &Bth, aeth: Option<Aeth>) {
    if !is_traced() {
        return;
    }
    let (name, psn) = (opcode::name(bth.opcode).unwrap_or("?"), bth.psn().get());
    let ask = if bth.ack_req() { " AckReq" } else { "" };
    let aeth = aeth.map_or(String::new(), |a| {
        format!(" syndrome {:#04x} MSN {}", a.syndrome, a.msn())
    });
    let us = now as f64 / 1000.0;
    eprintln!(
        "{us:14.3} us node {node} {way} {} {name} PSN {psn:#08x}{ask}{aeth}",
        bth.dest_qp()
    );
}

/// Passes a request to the plain responder of a side, and replies at once.
fn plainly(
    now: Time,
    index: usize,
    side: &mut Side,
    packet: &RcPacket<'_>,
    flows: &mut [Flow],
    network: &mut Network,
) {
    let plain = side.plain.as_mut().expect("a plain responder");
    let reaction = plain.receive(packet);
    if let Some(bytes) = reaction.message {
        let got = ReceivedMessage {
            qpn: side.qp.qpn(),
            immediate: packet.immediate,
            solicited: packet.bth.solicited(),
            len: bytes.len(),
            buffer: 0,
            parts: 0..0,
        };
        flows[side.receives].arrive(&got, std::iter::once(&bytes[..]));
        side.arrived += 1;
    }
    if let Some((psn, aeth)) = reaction.answer {
        let answer = acknowledgement(side.peer.qpn, psn, aeth);
        let bytes = forge(index, side.peer.node, &answer);
        side.checks.sends_response(psn, aeth, side.arrived);
        network.send(now, index, side.peer.node, &bytes);
    }
}

/// A node.
#[derive(Debug)]
pub struct Node {
    pub index: usize,
    random: Random,
    pub shared: Shared,
    pub sides: BTreeMap<u32, Side>,
    socket: VecDeque<Datagram>,
    socket_bytes: usize,
    socket_max: usize,
    /// The batch's memory.
    memory: Vec<u8>,
    /// Receive buffers kept by the consumer, and their release times.
    held: VecDeque<(Time, u32)>,
    /// How much the node's clock is ahead of the world's.
    pub clock_ahead: Time,
    /// The node is stopped until this time.
    pub stopped_until: Time,
    /// When to wake the node next.
    pub wake_at: Option<Time>,
    /// Bytes allocated by the transport.
    pub ledger: Ledger,
    pub overflowed: u64,
}

impl Node {
    pub fn new(index: usize, scenario: &Scenario) -> Node {
        let mtu = scenario.mtu.bytes() as usize;
        let buffer_len = scenario.sizes.most(mtu).next_multiple_of(4);
        Node {
            index,
            random: Random::new(scenario.seed ^ (0x0de << 32) ^ index as u64),
            shared: Shared {
                srq: Srq::new(scenario.buffers, buffer_len),
                inbox: Inbox::default(),
                counts: RcCounts::default(),
            },
            sides: BTreeMap::new(),
            socket: VecDeque::new(),
            socket_bytes: 0,
            socket_max: scenario.socket,
            memory: Vec::new(),
            held: VecDeque::new(),
            clock_ahead: 0,
            stopped_until: 0,
            wake_at: None,
            ledger: Ledger::default(),
            overflowed: 0,
        }
    }

    /// The node's clock.
    pub fn local(&self, now: Time) -> Instant {
        Instant(now + self.clock_ahead)
    }

    /// Receives a datagram at the socket, which drops it if it is full.
    pub fn arrive(&mut self, network: &mut Network, datagram: Datagram) {
        let len = datagram.bytes.len();
        if self.socket_bytes + len > self.socket_max {
            self.overflowed += 1;
            network.recycle(datagram);
            return;
        }
        self.socket_bytes += len;
        self.socket.push_back(datagram);
    }

    /// Runs one round of the data thread: receive, handle timers, send.
    pub fn run(&mut self, now: Time, s: &Scenario, flows: &mut [Flow], network: &mut Network) {
        self.release(now);
        self.stopped_until = now + s.cost * self.socket.len().min(BATCH) as Time;
        self.receive(now, s, flows, network);
        self.expire(now);
        self.complete(flows);
        self.post(now, s, flows);
        let blocked = self.transmit(now, s, network);
        self.complete(flows);
        if !blocked {
            self.check_deadlines(now);
        }
        self.wake_at = self.next_wake(now, flows, blocked);
    }

    /// Releases buffers that the consumer has kept long enough.
    fn release(&mut self, now: Time) {
        while let Some(&(until, buffer)) = self.held.front()
            && until <= now
        {
            self.shared.srq.post(buffer);
            self.held.pop_front();
        }
    }

    /// Takes up to a batch of datagrams.
    fn receive(&mut self, now: Time, s: &Scenario, flows: &mut [Flow], network: &mut Network) {
        let local = self.local(now);
        self.memory.clear();
        let mut places = Vec::new();
        for datagram in self.socket.drain(..self.socket.len().min(BATCH)) {
            self.socket_bytes -= datagram.bytes.len();
            let start = self.memory.len();
            self.memory.extend_from_slice(&datagram.bytes);
            places.push((datagram.from, start..self.memory.len()));
            network.recycle(datagram);
        }
        for (from, range) in places {
            let Some(packet) = open(from, self.index, &self.memory[range]) else {
                continue;
            };
            let Some(side) = self.sides.get_mut(&packet.bth.dest_qp().get()) else {
                continue;
            };
            if side.peer.node != from {
                continue;
            }
            let packet = for_queue_pair(&packet, &self.memory);
            trace(now, self.index, "<-", &packet.bth, packet.aeth);
            side.checks.hears_response(now, &packet);
            if packet.bth.opcode != opcode::RC_ACKNOWLEDGE && side.plain.is_some() {
                plainly(now, self.index, side, &packet, flows, network);
                continue;
            }
            let (qp, shared) = (&mut side.qp, &mut self.shared);
            self.ledger.within(|| qp.receive(local, shared, &packet));
        }
        for side in self.sides.values_mut() {
            let (qp, shared, memory) = (&mut side.qp, &mut self.shared, &self.memory);
            self.ledger.within(|| qp.end_batch(shared, memory));
        }
        self.hand_on(now, s, flows);
    }

    /// Passes complete messages to the consumer.
    fn hand_on(&mut self, now: Time, s: &Scenario, flows: &mut [Flow]) {
        let Shared { srq, inbox, .. } = &self.shared;
        let mut done = Vec::new();
        for got in &inbox.messages {
            let side = self.sides.get_mut(&got.qpn.get());
            let side = side.expect("a message of a queue pair that is there");
            let message = inbox.message(got, &self.memory, srq.memory());
            flows[side.receives].arrive(got, message.parts());
            side.arrived += 1;
            done.push(got.buffer);
        }
        let inbox = &mut self.shared.inbox;
        self.ledger.within(|| inbox.clear());
        for buffer in done {
            // Buffers are released in order: a slow consumer delays all of them.
            let until = self.held.back().map_or(0, |h| h.0);
            let until = until.max(now + self.random.below(s.hold + 1));
            self.held.push_back((until, buffer));
        }
        self.release(now);
    }

    /// Handles the timers of queue pairs that are due.
    fn expire(&mut self, now: Time) {
        let local = self.local(now);
        for side in self.sides.values_mut() {
            if side.qp.next_deadline().is_some_and(|d| d <= local) {
                let (qp, shared) = (&mut side.qp, &mut self.shared);
                self.ledger.within(|| qp.handle_timeout(local, shared));
            }
        }
    }

    /// Posts requests of the flows, as far as there is room.
    fn post(&mut self, now: Time, s: &Scenario, flows: &mut [Flow]) {
        let local = self.local(now);
        for side in self.sides.values_mut() {
            let flow = &mut flows[side.sends];
            while flow.wanted > 0
                && side.post_at <= now
                && matches!(side.qp.state(), State::Rts | State::Sqd)
                && flow.outstanding() < POSTED_MAX
                && side.qp.has_room()
            {
                let request = flow.request();
                let qp = &mut side.qp;
                let posted = self.ledger.within(|| qp.post_send(local, request));
                posted.expect("a queue pair that is ready to send takes a request");
                side.burst_left = side.burst_left.saturating_sub(1);
                if side.burst_left == 0 {
                    side.burst_left = self.random.between(1, s.burst);
                    side.post_at = now + self.random.below(s.gap + 1);
                }
            }
        }
    }

    /// Sends pending packets, with acknowledgements last as a flush does. True if the socket was full.
    fn transmit(&mut self, now: Time, s: &Scenario, network: &mut Network) -> bool {
        for flush in [false, true] {
            let qpns: Vec<u32> = self.sides.keys().copied().collect();
            for qpn in qpns {
                if self.transmit_one(now, s, network, qpn, flush) {
                    return true;
                }
            }
        }
        false
    }

    fn transmit_one(
        &mut self,
        now: Time,
        s: &Scenario,
        network: &mut Network,
        qpn: u32,
        flush: bool,
    ) -> bool {
        let (local, index) = (self.local(now), self.index);
        let side = self.sides.get_mut(&qpn).expect("its own");
        let mtu = side.mtu.bytes() as usize;
        let mut sent = 0;
        loop {
            let (qp, shared) = (&mut side.qp, &mut self.shared);
            let blocked = self.random.per_million(s.blocked);
            let window = qp.statistics().window;
            let ledger = &mut self.ledger;
            let Some(packets) = ledger.within(|| qp.poll_transmit(flush)) else {
                side.checks.rests(window);
                return false;
            };
            assert!(packets.count > 0, "nothing to send, as packets");
            let taken = if blocked {
                self.random.below(packets.count as u64) as usize
            } else {
                packets.count
            };
            for bytes in packets.memory.chunks_mut(packets.stride).take(taken) {
                seal(index, side.peer.node, bytes);
                let packet = open(index, side.peer.node, bytes).expect("what we send is whole");
                trace(now, index, "->", &packet.bth, packet.extended.aeth);
                assert_eq!(packet.bth.dest_qp(), side.peer.qpn);
                if packet.bth.opcode == opcode::RC_ACKNOWLEDGE {
                    let aeth = packet.extended.aeth.expect("its opcode has one");
                    let psn = packet.bth.psn();
                    side.checks.sends_response(psn, aeth, side.arrived);
                } else {
                    side.checks.sends_request(now, &packet, mtu, window);
                }
                let share = match (packet.extended.aeth, packet.bth.ack_req()) {
                    (Some(_), _) => s.answers_lost,
                    (None, true) => s.asks_lost,
                    (None, false) => 0,
                };
                if !self.random.per_million(share) {
                    network.send(now, index, side.peer.node, bytes);
                }
            }
            self.ledger.within(|| qp.transmitted(local, shared, taken));
            if blocked {
                return true;
            }
            sent += taken;
            assert!(sent < PACKETS_MAX, "sends without end");
        }
    }

    /// Handles completions and events.
    pub fn complete(&mut self, flows: &mut [Flow]) {
        for side in self.sides.values_mut() {
            let qp = &mut side.qp;
            while let Some(done) = self.ledger.within(|| qp.poll_completion()) {
                flows[side.sends].complete(done);
            }
            side.note_events();
        }
    }

    /// Checks that deadlines are in the future, or a data thread would spin.
    fn check_deadlines(&self, now: Time) {
        let local = self.local(now);
        for side in self.sides.values() {
            if let Some(deadline) = side.qp.next_deadline() {
                let state = side.qp.state();
                assert!(deadline > local, "a deadline has passed in {state:?}");
            }
        }
    }

    fn next_wake(&self, now: Time, flows: &[Flow], blocked: bool) -> Option<Time> {
        let mut next = self.held.front().map(|h| h.0);
        let mut sooner = |at: Time| next = Some(next.map_or(at, |n| n.min(at)));
        if blocked {
            sooner(now + 20 * MICROSECOND);
        }
        if !self.socket.is_empty() {
            sooner(self.stopped_until);
        }
        for side in self.sides.values() {
            if let Some(deadline) = side.qp.next_deadline() {
                sooner(deadline.0.saturating_sub(self.clock_ahead));
            }
            if flows[side.sends].wanted > 0 && side.post_at > now {
                sooner(side.post_at);
            }
            if let Some(at) = side.restart_at {
                sooner(at);
            }
        }
        next.map(|n| n.max(now + 1))
    }

    /// Starts to drain a queue pair, or restarts a drained one.
    pub fn drain_or_restart(&mut self, qpn: u32) {
        let Some(side) = self.sides.get_mut(&qpn) else {
            return;
        };
        let (qp, shared) = (&mut side.qp, &mut self.shared);
        match qp.state() {
            State::Rts => {
                side.draining = true;
                let notify = Attributes {
                    sqd_notify: Some(true),
                    ..Attributes::default()
                };
                self.ledger
                    .within(|| qp.modify(shared, State::Sqd, &notify))
                    .expect("from RTS to SQD");
            }
            State::Sqd if !side.draining => {
                self.ledger
                    .within(|| qp.modify(shared, State::Rts, &Attributes::default()))
                    .expect("from SQD to RTS");
                side.restart_at = None;
            }
            _ => {}
        }
    }

    /// Buffers that are neither free nor with the consumer.
    pub fn buffers_in_use(&self, s: &Scenario) -> usize {
        s.buffers - self.shared.srq.available() - self.held.len()
    }
}
