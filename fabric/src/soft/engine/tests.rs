//! Two engines and the network between them.

mod checks;
mod datagrams;
mod delivery;
mod ends;
mod path;
mod rdma_cm;
mod reclaim;
mod unmanaged;

use super::super::train::HEAD;
use super::super::ud::{Path, Refusal};
use super::super::wire::opcode;
use super::connection::Stage;
use super::*;
use crate::connection::{ConnectRequest, Posted, STALLED_AFTER, STALLED_ALONE};
use crate::mad::{Header, MAD_LEN, Mad, cm};
use proptest::prelude::*;
use proto::{ConnectError, EndpointId, RejectReason, ServiceId};
use std::collections::VecDeque;
use std::time::Duration;
use zerocopy::FromBytes;

const SERVICE: ServiceId = ServiceId(0x1000_0000_0000_0007);
const ENDPOINT: EndpointId = EndpointId(3);
const MILLISECOND: Duration = Duration::from_millis(1);
const TICK: Duration = Duration::from_micros(250);

fn gid(last: u8) -> Gid {
    let mut gid = Gid::UNSPECIFIED;
    (gid.0[0], gid.0[1], gid.0[15]) = (0xfe, 0x80, last);
    gid
}

fn view(gid: Gid) -> PortView {
    PortView {
        gid,
        path_mtu: Some(IbMtu::B1024),
        send_max: 65000,
        reserved: Vec::new(),
        pkeys: Arc::default(),
    }
}

fn config(seed: u64, worker: usize, workers: usize) -> EngineConfig {
    EngineConfig {
        ca_guid: Guid(seed.to_be_bytes()),
        worker,
        workers,
        seed: [seed, !seed],
        message_max: 65524,
        connections_max: 2000,
    }
}

/// An engine with its GID and the events of its consumer.
struct Node {
    gid: Gid,
    engine: Engine,
    messages: Vec<Vec<u8>>,
    established: Vec<ConnectionId>,
    accepted: Vec<ConnectionId>,
    closed: Vec<(ConnectionId, CloseReason)>,
    accepts: bool,
}

impl Node {
    fn new(last: u8) -> Node {
        Node::with(config(last.into(), 0, 1))
    }

    /// The last byte of the GUID is the last byte of the GID.
    fn with(config: EngineConfig) -> Node {
        let last = config.ca_guid.0[7];
        let mut engine = Engine::new(config);
        engine.set_port(Instant(0), view(gid(last)));
        engine.listen(ENDPOINT, PKey::DEFAULT, SERVICE);
        Node {
            gid: gid(last),
            engine,
            messages: Vec::new(),
            established: Vec::new(),
            accepted: Vec::new(),
            closed: Vec::new(),
            accepts: true,
        }
    }

    fn connect(&mut self, now: Instant, peer: Gid) -> Result<ConnectionId, ConnectError> {
        let request = ConnectRequest {
            service: SERVICE,
            peer,
            to: Qpn::new(0),
            private_data: &[1, 2, 3],
        };
        self.engine.connect(now, ENDPOINT, PKey::DEFAULT, &request)
    }

    fn post(&mut self, now: Instant, connection: ConnectionId, message: &[u8]) -> Option<Posted> {
        let path_mtu = self.engine.path_mtu(connection);
        let mut places = self.engine.message(now, connection, message.len())?;
        for piece in message.chunks(path_mtu) {
            places.next(piece.len()).unwrap().copy_from_slice(piece);
        }
        let ticket = places.finish();
        Some(self.engine.post(now, connection, ticket))
    }

    /// Receives a batch of packets, then discards the batch's memory.
    fn batch(&mut self, now: Instant, packets: &[Packet]) {
        self.engine.begin_batch();
        let memory: Vec<u8> = packets.iter().flat_map(|p| p.bytes.clone()).collect();
        let mut at = 0;
        for p in packets {
            let _ = self.packet(now, p, at);
            at += p.bytes.len();
        }
        self.engine.end_batch(now, &memory);
        let (messages, kept, parts) = self.engine.received();
        let batch = crate::Batch::new(&memory, &[]).with_messages(kept, messages, parts);
        for (m, payload) in batch.messages() {
            let whole = payload.parts().collect::<Vec<_>>().concat();
            assert_eq!(whole.len(), m.len);
            self.messages.push(whole);
        }
    }

    fn packet(&mut self, now: Instant, p: &Packet, at: usize) -> Result<(), Refusal> {
        if p.bytes.first() == Some(&opcode::UD_SEND_ONLY) {
            let mad: [u8; MAD_LEN] = p.bytes[HEAD..][..MAD_LEN].try_into().unwrap();
            let pkey = PKey::new(u16::from_be_bytes([p.bytes[2], p.bytes[3]]));
            self.engine.mad(now, p.from, pkey, &mad);
            return Ok(());
        }
        let path = Path {
            src: p.from,
            dst: p.to,
            src_port: 50000,
        };
        self.engine.receive(now, &path, &p.bytes, at, || Ok(()))
    }

    fn events(&mut self, now: Instant) {
        while let Some(event) = self.engine.poll_event() {
            match event {
                ConnectionEvent::Requested { connection, .. } if self.accepts => {
                    self.engine.accept(now, connection, &[4, 5, 6]);
                    self.accepted.push(connection);
                }
                ConnectionEvent::Requested { connection, .. } => {
                    let reason = RejectReason::CONSUMER;
                    self.engine.reject(now, connection, reason, &[]);
                }
                ConnectionEvent::Replied { connection, .. } => {
                    self.engine.establish(now, connection);
                    self.established.push(connection);
                }
                ConnectionEvent::Closed { connection, reason } => {
                    self.closed.push((connection, reason));
                }
            }
        }
    }
}

#[derive(Clone)]
struct Packet {
    from: Gid,
    to: Gid,
    bytes: Vec<u8>,
}

/// Two nodes and a network that drops the packets selected by `loses`.
struct World {
    now: Instant,
    nodes: [Node; 2],
    network: VecDeque<Packet>,
    random: Random,
    /// Percentage of packets to drop.
    lost: u64,
}

impl World {
    fn new() -> World {
        World {
            now: Instant(1_000_000_000),
            nodes: [Node::new(1), Node::new(2)],
            network: VecDeque::new(),
            random: Random::new([9, 9]),
            lost: 0,
        }
    }

    /// Puts the pending packets of both nodes on the network.
    fn transmit(&mut self) {
        let World {
            now,
            nodes,
            network,
            random,
            lost,
        } = self;
        for node in nodes {
            node.events(*now);
            let from = node.gid;
            node.engine.transmit(*now, true, |run| {
                for bytes in run.memory.chunks(run.stride) {
                    if random.next() % 100 >= *lost {
                        let bytes = bytes.to_vec();
                        let to = run.to;
                        network.push_back(Packet { from, to, bytes });
                    }
                }
                run.count
            });
        }
    }

    /// Delivers the packets on the network, in batches of a few packets.
    fn deliver(&mut self) {
        for k in 0..2 {
            let to = self.nodes[k].gid;
            let all: Vec<Packet> = self
                .network
                .iter()
                .filter(|p| p.to == to)
                .cloned()
                .collect();
            for batch in all.chunks(7) {
                self.nodes[k].batch(self.now, batch);
            }
        }
        self.network.clear();
    }

    /// Runs, timers included, for `time`.
    fn run_for(&mut self, time: Duration) {
        let end = self.now.after(time);
        while self.now < end {
            self.transmit();
            self.deliver();
            self.tick();
        }
    }

    fn tick(&mut self) {
        self.now = self.now.after(TICK);
        for node in &mut self.nodes {
            if node.engine.next_deadline().is_some_and(|at| at <= self.now) {
                node.engine.handle_timeout(self.now);
            }
        }
    }

    /// Connects the first node to the second; returns the connection's id of each.
    fn connected(&mut self) -> (ConnectionId, ConnectionId) {
        let peer = self.nodes[1].gid;
        let ours = self.nodes[0].connect(self.now, peer).unwrap();
        let before = self.nodes[1].accepted.len();
        self.run_for(10 * MILLISECOND);
        assert_eq!(self.nodes[0].established.last(), Some(&ours));
        (ours, self.nodes[1].accepted[before])
    }
}

fn message(k: usize, len: usize) -> Vec<u8> {
    (0..len).map(|i| (i * 7 + i / 251 + k) as u8).collect()
}
