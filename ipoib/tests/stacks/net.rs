//! The fabric between the hosts, and what they do over it.

use std::collections::{HashMap, VecDeque};

use fabric::{
    CloseReason, ConnectionEvent, ConnectionId, EndpointId, Gid, Qpn, RejectReason, WcStatus,
};
use ipoib::{ConnectionAction, Meta, Time};
use smoltcp::socket::tcp;
use smoltcp::wire::IpAddress;

use crate::node::{Host, LINK_MTU, Node, Packet, Sent};

const TCP_PORT: u16 = 5001;
/// After so long a sender notices that nobody is there any more.
const GONE_MS: u64 = 1000;

/// Marsaglia's xorshift: all randomness comes from the seed that a failure prints.
pub struct Random(u64);

impl Random {
    fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % n
    }

    fn percent(&mut self, p: u64) -> bool {
        self.below(100) < p
    }
}

/// What the wire does to packets, in percent and milliseconds.
#[derive(Clone, Copy)]
pub struct Wire {
    loss: u64,
    duplicate: u64,
    delay: u64,
}

pub const CLEAN: Wire = Wire {
    loss: 0,
    duplicate: 0,
    delay: 0,
};
pub const ROUGH: Wire = Wire {
    loss: 5,
    duplicate: 5,
    delay: 8,
};

/// What goes over connections, or makes and ends them: it comes whole and in order, as from the
/// transport whose place this takes.
enum Reliable {
    Event(ConnectionEvent),
    Message(ConnectionId, Vec<u8>),
}

pub struct Net {
    pub nodes: [Node; 2],
    pub now: u64,
    wire: Wire,
    random: Random,
    pub lost: u64,
    /// For whom, when, what.
    reliable: VecDeque<(usize, u64, Reliable)>,
    /// The other end of a connection; ends are named by node and connection.
    ends: HashMap<(usize, ConnectionId), (usize, ConnectionId)>,
    last_name: u32,
    /// Messages, and the bytes of the longest.
    pub messages: usize,
    pub longest: usize,
}

impl Net {
    pub fn new(seed: u64, wire: Wire, hosts: [Host; 2]) -> Net {
        println!("seed {seed:#x}");
        let [one, two] = hosts;
        Net {
            nodes: [Node::new(1, seed, one), Node::new(2, seed, two)],
            now: 1,
            wire,
            random: Random(seed),
            lost: 0,
            reliable: VecDeque::new(),
            ends: HashMap::new(),
            last_name: 0,
            messages: 0,
            longest: 0,
        }
    }

    fn step(&mut self) {
        self.now += 1;
        self.deliver();
        for from in 0..2 {
            self.nodes[from].incoming(self.now);
            self.nodes[from].poll(self.now);
            if from == 1 {
                self.nodes[from].answer_echoes();
                self.nodes[from].poll(self.now);
            }
            let out = self.nodes[from].outgoing(self.now);
            self.connect(from);
            for sent in out {
                match sent {
                    Sent::Datagram(gid, qpn, payload) => {
                        assert!(payload.len() <= LINK_MTU + 4, "{} bytes", payload.len());
                        self.carry(from, gid, qpn, payload);
                    }
                    Sent::Message(connection, payload) => self.message(from, connection, payload),
                }
            }
        }
    }

    fn deliver(&mut self) {
        let now = self.now;
        for (to, at, what) in std::mem::take(&mut self.reliable) {
            let node = &mut self.nodes[to];
            match what {
                _ if at > now => self.reliable.push_back((to, at, what)),
                Reliable::Event(event) => node.core.connection_event(Time(now), &event),
                Reliable::Message(connection, message) => node.message(now, connection, &message),
            }
        }
    }

    fn event(&mut self, to: usize, after: u64, event: ConnectionEvent) {
        let at = self.now + after;
        self.reliable.push_back((to, at, Reliable::Event(event)));
    }

    fn name(&mut self) -> ConnectionId {
        self.last_name += 1;
        ConnectionId(self.last_name)
    }

    fn message(&mut self, from: usize, connection: ConnectionId, payload: Vec<u8>) {
        let Some((to, theirs)) = self.ends.get(&(from, connection)).copied() else {
            return;
        };
        self.messages += 1;
        self.longest = self.longest.max(payload.len());
        let message = Reliable::Message(theirs, payload);
        self.reliable.push_back((to, self.now + 1, message));
    }

    /// Does what a node's core wants done about connections.
    fn connect(&mut self, from: usize) {
        while let Some(action) = self.nodes[from].core.poll_connection(Time(self.now)) {
            match action {
                ConnectionAction::Connect {
                    request,
                    peer,
                    service,
                    private_data,
                } => {
                    let (ours, theirs) = (self.name(), self.name());
                    let now = Time(self.now);
                    self.nodes[from].core.connecting(now, request, Ok(ours));
                    let to = 1 - from;
                    let there = &self.nodes[to];
                    if there.gid != peer || !there.core.service_ids().contains(&service) {
                        let reason = CloseReason::Rejected(RejectReason::INVALID_SERVICE_ID);
                        self.event(from, 1, closed(ours, reason));
                        continue;
                    }
                    self.ends.insert((from, ours), (to, theirs));
                    self.ends.insert((to, theirs), (from, ours));
                    let asked = ConnectionEvent::Requested {
                        connection: theirs,
                        endpoint: EndpointId(0),
                        service,
                        peer: self.nodes[from].gid,
                        private_data: private_data.into(),
                    };
                    self.event(to, 1, asked);
                }
                ConnectionAction::Accept {
                    connection,
                    private_data,
                } => {
                    if let Some(&(to, theirs)) = self.ends.get(&(from, connection)) {
                        let replied = ConnectionEvent::Replied {
                            connection: theirs,
                            private_data: private_data.into(),
                        };
                        self.event(to, 1, replied);
                    }
                }
                ConnectionAction::Establish { .. } => {}
                ConnectionAction::Reject {
                    connection, reason, ..
                } => self.end(from, connection, 1, CloseReason::Rejected(reason)),
                ConnectionAction::Close { connection } => {
                    self.end(from, connection, 1, CloseReason::Disconnected);
                }
            }
        }
    }

    /// One end is over: the other hears of it.
    fn end(&mut self, from: usize, connection: ConnectionId, after: u64, reason: CloseReason) {
        if let Some((to, theirs)) = self.ends.remove(&(from, connection)) {
            self.ends.remove(&(to, theirs));
            self.event(to, after, closed(theirs, reason));
        }
    }

    /// A node's daemon dies and starts again, with a queue pair. Nobody is told that its connections
    /// are gone.
    pub fn restart(&mut self, node: usize, qpn: Qpn) {
        self.nodes[node].restart(qpn);
        let gone: Vec<_> = self.ends.keys().filter(|e| e.0 == node).copied().collect();
        for (node, connection) in gone {
            let reason = CloseReason::Failed(WcStatus::RetryExcErr);
            self.end(node, connection, GONE_MS, reason);
        }
    }

    /// Multicast also comes back to its sender, as it does from real adapters.
    fn carry(&mut self, from: usize, dst_gid: Gid, qpn: Qpn, payload: Vec<u8>) {
        let sender = &self.nodes[from];
        let meta = Meta {
            src_qpn: sender.qpn,
            src_gid: sender.gid,
            dst_gid,
            multicast: qpn == Qpn::MULTICAST,
        };
        for to in 0..2 {
            if !meta.multicast && self.nodes[to].gid != dst_gid {
                continue;
            }
            let copies = 1 + u64::from(self.random.percent(self.wire.duplicate));
            for _ in 0..copies {
                if self.random.percent(self.wire.loss) {
                    self.lost += 1;
                    continue;
                }
                let at = self.now + self.random.below(self.wire.delay + 1);
                self.nodes[to].arriving.push(Packet {
                    at,
                    meta,
                    qpn,
                    payload: payload.clone(),
                });
            }
        }
    }

    pub fn run_until(&mut self, limit_ms: u64, what: &str, mut done: impl FnMut(&mut Net) -> bool) {
        let end = self.now + limit_ms;
        while !done(self) {
            assert!(self.now < end, "{what}: not within {limit_ms} ms");
            self.step();
        }
    }

    pub fn ping(&mut self, to: IpAddress) {
        self.nodes[0].send_echo(to, true);
    }

    pub fn ponged(&mut self, from: IpAddress) -> bool {
        self.nodes[0].receive_echo() == Some((false, from))
    }

    /// Pings once a second until an answer comes.
    pub fn ping_until_answered(&mut self, to: IpAddress, seconds: u64) {
        let start = self.now;
        let mut asked = None;
        self.run_until(seconds * 1000, "ping", |net| {
            let second = (net.now - start) / 1000;
            if asked != Some(second) {
                asked = Some(second);
                net.ping(to);
            }
            net.ponged(to)
        });
    }

    /// Sends `total` bytes over TCP from the first to the second stack. `meanwhile` is called once,
    /// half way.
    pub fn transfer(&mut self, to: IpAddress, total: usize, meanwhile: impl FnOnce(&mut Net)) {
        let server = &mut self.nodes[1];
        server
            .sockets
            .get_mut::<tcp::Socket<'_>>(server.tcp)
            .listen(TCP_PORT)
            .unwrap();
        let client = &mut self.nodes[0];
        let socket = client.sockets.get_mut::<tcp::Socket<'_>>(client.tcp);
        socket
            .connect(client.stack.context(), (to, TCP_PORT), 40000)
            .unwrap();
        let (mut sent, mut got, mut meanwhile) = (0usize, 0usize, Some(meanwhile));
        self.run_until(600_000, "transfer", |net| {
            let node = &mut net.nodes[0];
            let socket = node.sockets.get_mut::<tcp::Socket<'_>>(node.tcp);
            while socket.can_send() && sent < total {
                let byte = [pattern(sent)];
                sent += socket.send_slice(&byte).unwrap();
            }
            let node = &mut net.nodes[1];
            let socket = node.sockets.get_mut::<tcp::Socket<'_>>(node.tcp);
            while socket.can_recv() {
                got += socket
                    .recv(|bytes| {
                        let right = bytes
                            .iter()
                            .enumerate()
                            .all(|(i, b)| *b == pattern(got + i));
                        assert!(right, "wrong bytes behind {got}");
                        (bytes.len(), bytes.len())
                    })
                    .unwrap();
            }
            if got >= total / 2
                && let Some(f) = meanwhile.take()
            {
                f(net);
            }
            got == total
        });
    }
}

fn pattern(i: usize) -> u8 {
    (i * 7 + i / 251) as u8
}

fn closed(connection: ConnectionId, reason: CloseReason) -> ConnectionEvent {
    ConnectionEvent::Closed { connection, reason }
}
