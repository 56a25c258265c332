//! A core's port: the engine of its connections and its UD queue pair, on a simulated network.

use std::collections::VecDeque;

use fabric::soft::engine::{Engine, EngineConfig, PortView};
use fabric::soft::wire::{Deth, Extended, Repr, opcode};
use fabric::soft::{Path, train};
use fabric::{
    ConnectRequest, ConnectionId, EndpointId, Gid, Guid, IbMtu, Instant, PKey, Posted, Psn, QKey,
    Qpn,
};
use ipoib::{ConnectionAction, Ipoib, Meta};

use crate::network::{Datagram, Network, Time};
use crate::packets::{SOURCE_PORT, forge, gid, open, seal};
use crate::random::Random;

const ENDPOINT: EndpointId = EndpointId(1);
const MESSAGE_MAX: usize = 65_524;
const PATH_MTU: IbMtu = IbMtu::B2048;

/// Received datagrams and whole messages, each in order.
#[derive(Default)]
pub struct Arrived {
    pub datagrams: Vec<(Meta, Vec<u8>)>,
    pub messages: Vec<(ConnectionId, Vec<u8>)>,
}

pub struct Port {
    /// The node's number on the network.
    index: usize,
    pub engine: Engine,
    pub qpn: Qpn,
    psn: Psn,
    /// Datagrams in the socket buffer.
    pub socket: Vec<Datagram>,
    /// Datagrams to be sent.
    leaving: VecDeque<(usize, Vec<u8>)>,
    nodes: usize,
    /// Number of posted messages, and the length of the longest in bytes.
    pub messages: usize,
    pub longest: usize,
    /// Number of messages refused by a connection.
    pub refused: usize,
}

impl Port {
    /// Creates the port of a (re)started node, with new random values.
    pub fn new(now: Time, index: usize, nodes: usize, qpn: Qpn, random: &mut Random) -> Port {
        let mut engine = Engine::new(EngineConfig {
            ca_guid: Guid(random.word().to_be_bytes()),
            worker: 0,
            workers: 1,
            seed: [random.word(), random.word()],
            message_max: MESSAGE_MAX,
            connections_max: 1000,
        });
        let view = PortView {
            gid: gid(index),
            path_mtu: Some(PATH_MTU),
            send_max: 65_000,
            reserved: vec![qpn],
            ..PortView::default()
        };
        engine.set_port(Instant(now), view);
        Port {
            index,
            engine,
            qpn,
            psn: Psn::new(random.word() as u32),
            socket: Vec::new(),
            leaving: VecDeque::new(),
            nodes,
            messages: 0,
            longest: 0,
            refused: 0,
        }
    }

    /// Listens for requests if the interface has connections.
    pub fn listen(&mut self, core: &Ipoib) {
        if core.takes_connections() {
            for service in core.service_ids() {
                self.engine.listen(ENDPOINT, PKey::DEFAULT, service);
            }
        }
    }

    /// Reads all datagrams in the socket as a batch.
    pub fn receive(&mut self, now: Time, network: &mut Network) -> Arrived {
        let now = Instant(now);
        let mut arrived = Arrived::default();
        let (mut memory, mut places) = (Vec::new(), Vec::new());
        for datagram in self.socket.drain(..) {
            let start = memory.len();
            memory.extend_from_slice(&datagram.bytes);
            places.push((datagram.from, start..memory.len()));
            network.recycle(datagram);
        }
        self.engine.begin_batch();
        for (from, range) in places {
            let at = range.start;
            self.packet(now, from, &memory[range], at, &mut arrived);
        }
        self.engine.end_batch(now, &memory);
        for (got, payload) in self.engine.batch(&memory).messages() {
            let bytes = payload.parts().collect::<Vec<_>>().concat();
            assert_eq!(bytes.len(), got.len);
            arrived.messages.push((got.connection, bytes));
        }
        arrived
    }

    fn packet(&mut self, now: Instant, from: usize, bytes: &[u8], at: usize, out: &mut Arrived) {
        let Some(packet) = open(from, self.index, bytes) else {
            return;
        };
        if packet.bth.opcode != opcode::UD_SEND_ONLY {
            let path = Path {
                src: gid(from),
                dst: gid(self.index),
                src_port: SOURCE_PORT,
            };
            // Packets of a connection that ended are refused.
            let _ = self.engine.receive(now, &path, bytes, at, || Ok(()));
            return;
        }
        let to = packet.bth.dest_qp();
        if to == Qpn::GSI {
            let mad = bytes[train::HEAD..].first_chunk();
            let mad = mad.expect("256 bytes");
            self.engine.mad(now, gid(from), packet.bth.pkey(), mad);
        } else if to == self.qpn || to == Qpn::MULTICAST {
            let meta = Meta {
                src_qpn: packet.extended.deth.expect("the opcode has it").src_qp(),
                src_gid: gid(from),
                has_src_gid: true,
                dst_gid: gid(self.index),
                multicast: to == Qpn::MULTICAST,
            };
            out.datagrams.push((meta, packet.payload.to_vec()));
        }
    }

    /// Sends a datagram. A multicast goes to all nodes, the sender included, as with real adapters.
    pub fn datagram(&mut self, to: Gid, qpn: Qpn, payload: &[u8]) {
        assert!(payload.len() <= PATH_MTU.bytes() as usize);
        self.psn = self.psn.advance(1);
        let repr = Repr {
            opcode: opcode::UD_SEND_ONLY,
            solicited: false,
            mig_req: false,
            pkey: PKey::DEFAULT,
            fecn: false,
            becn: false,
            dest_qp: qpn,
            ack_req: false,
            psn: self.psn,
            extended: Extended {
                deth: Some(Deth::new(QKey::IPOIB_DEFAULT, self.qpn)),
                ..Extended::default()
            },
            payload,
        };
        for node in (0..self.nodes).filter(|&n| qpn == Qpn::MULTICAST || gid(n) == to) {
            self.leaving
                .push_back((node, forge(self.index, node, &repr)));
        }
    }

    /// Posts a message.
    pub fn message(&mut self, now: Time, connection: ConnectionId, payload: &[u8]) {
        let now = Instant(now);
        let path_mtu = self.engine.path_mtu(connection);
        let Some(mut places) = self.engine.message(now, connection, payload.len()) else {
            self.refused += 1;
            return;
        };
        for piece in payload.chunks(path_mtu) {
            let place = places.next(piece.len()).expect("as many as pieces");
            place.copy_from_slice(piece);
        }
        let ticket = places.finish();
        if self.engine.post(now, connection, ticket) == Posted::Refused {
            self.refused += 1;
            return;
        }
        self.messages += 1;
        self.longest = self.longest.max(payload.len());
    }

    /// Carries out the core's actions for connections; returns whether there were any.
    pub fn act(&mut self, now: Time, core: &mut Ipoib) -> bool {
        let (at, ms) = (Instant(now), crate::node::core_time(now));
        let mut acted = false;
        while let Some(action) = core.poll_connection() {
            acted = true;
            match action {
                ConnectionAction::Connect {
                    request,
                    peer,
                    to,
                    service,
                    private_data,
                } => {
                    let asked = ConnectRequest {
                        service,
                        peer,
                        to,
                        private_data: &private_data,
                    };
                    let begun = self.engine.connect(at, ENDPOINT, PKey::DEFAULT, &asked);
                    core.connecting(ms, request, begun);
                }
                ConnectionAction::Accept {
                    connection,
                    private_data,
                } => self.engine.accept(at, connection, &private_data),
                ConnectionAction::Establish { connection } => {
                    self.engine.establish(at, connection);
                }
                ConnectionAction::Reject {
                    connection,
                    reason,
                    private_data,
                } => self.engine.reject(at, connection, reason, &private_data),
                ConnectionAction::Close { connection } => self.engine.close(at, connection),
            }
        }
        acted
    }

    /// Passes all packets that may be sent now to the network.
    pub fn transmit(&mut self, now: Time, network: &mut Network) {
        for (to, bytes) in self.leaving.drain(..) {
            network.send(now, self.index, to, &bytes);
        }
        for flush in [false, true] {
            self.engine.transmit(Instant(now), flush, |run| {
                let to = (0..self.nodes).find(|&n| gid(n) == run.to);
                let to = to.expect("a node's GID");
                for bytes in run.memory.chunks_mut(run.stride) {
                    seal(self.index, to, bytes);
                    network.send(now, self.index, to, bytes);
                }
                run.count
            });
        }
    }
}
