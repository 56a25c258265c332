//! A node: an engine, and a consumer that wants a connection to every other node.

use std::collections::HashMap;

use fabric::cm::SidrId;
use fabric::soft::engine::{Engine, EngineConfig, Partition, PortView};
use fabric::{ConnectionId, EndpointId, Guid, IbMtu, Instant, PKey, Qpn};

use super::{DATAGRAMS, ENDPOINT, MESSAGE_MAX, RDMA_CM, SECOND_ENDPOINT, SERVICE};
use crate::network::{Datagram, Time};
use crate::packets::gid;
use crate::random::Random;

/// Message header: sender, serial number of the connection, number of the message in the connection.
const HEADER: usize = 24;

/// The bytes of a message with this header.
pub(super) fn message(from: usize, serial: u64, number: u64) -> Vec<u8> {
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
pub(super) struct Outgoing {
    pub id: ConnectionId,
    pub open: bool,
    pub serial: u64,
    /// Messages posted.
    pub next: u64,
}

/// A connection that a node receives over.
#[derive(Debug, Default)]
pub(super) struct Incoming {
    /// Sender and serial number, once a message was received.
    pub from: Option<(usize, u64)>,
    pub next: u64,
}

/// The connection state towards a peer.
#[derive(Debug, Default)]
pub(super) struct Wish {
    pub connection: Option<Outgoing>,
    /// When to connect or post again.
    pub next_at: Time,
}

#[derive(Debug)]
pub(super) struct Node {
    pub engine: Engine,
    pub random: Random,
    pub wishes: Vec<Wish>,
    pub incoming: HashMap<ConnectionId, Incoming>,
    /// The peer of each request for a datagram service.
    pub asked: HashMap<SidrId, usize>,
    pub socket: Vec<Datagram>,
    pub memory: Vec<u8>,
    /// The node is dead until this time.
    pub down_until: Time,
    pub wake_at: Option<Time>,
}

pub(super) fn engine(node: usize, random: &mut Random, now: Time) -> Engine {
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
        ..PortView::default()
    };
    engine.set_port(Instant(now), view);
    engine.listen(ENDPOINT, PKey::DEFAULT, SERVICE);
    engine.listen(ENDPOINT, partition(node, ENDPOINT), RDMA_CM);
    engine.listen(SECOND_ENDPOINT, partition(node, SECOND_ENDPOINT), RDMA_CM);
    engine.listen_for_datagrams(SECOND_ENDPOINT, partition(node, SECOND_ENDPOINT), DATAGRAMS);
    engine
}

/// The P_Key table entry of an endpoint of a node.
pub(super) fn partition(node: usize, endpoint: EndpointId) -> Partition {
    Partition {
        qpn: Qpn::new(0x100 * (node as u32 + 1) + endpoint.0),
        ..PKey::DEFAULT.into()
    }
}
