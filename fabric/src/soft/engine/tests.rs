mod datagrams;
mod rdma_cm;
mod unmanaged;

use std::collections::VecDeque;

use proptest::prelude::*;
use proto::{ConnectError, EndpointId, RejectReason, ServiceId};
use zerocopy::FromBytes;

use super::super::train::HEAD;
use super::super::ud::{Path, Refusal};
use super::super::wire::opcode;
use super::connection::Stage;
use super::*;
use crate::connection::{ConnectRequest, Posted};
use crate::mad::{Header, MAD_LEN, Mad, cm};

const SERVICE: ServiceId = ServiceId(0x1000_0000_0000_0007);
const ENDPOINT: EndpointId = EndpointId(3);
const MILLISECOND: Duration = Duration::from_millis(1);

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

/// An engine with its GID and what it told its consumer.
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

    /// With the last byte of its GUID as that of its GID.
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

    /// Takes a batch of packets; what they lie in is gone afterwards.
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

/// Two nodes and a network that loses what `loses` says.
struct World {
    now: Instant,
    nodes: [Node; 2],
    network: VecDeque<Packet>,
    random: Random,
    /// Of 100 packets.
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

    /// What both have to send goes onto the network.
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

    /// What is on the network arrives, in batches of a few packets.
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

    /// Goes on until nothing happens any more for `quiet` of time, timers included.
    fn run_for(&mut self, time: Duration) {
        let end = self.now.after(time);
        while self.now < end {
            self.transmit();
            self.deliver();
            self.now = self.now.after(MILLISECOND / 4);
            for node in &mut self.nodes {
                if node.engine.next_deadline().is_some_and(|at| at <= self.now) {
                    node.engine.handle_timeout(self.now);
                }
            }
        }
    }

    /// A connection of the first node to the second: as both know it.
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

#[test]
fn messages_arrive_over_a_network_that_loses() {
    let mut world = World::new();
    let (ours, theirs) = world.connected();
    world.lost = 10;
    let sizes = [1, 65524, 1024, 1025, 30000, 7];
    let sent: Vec<Vec<u8>> = (0..60).map(|k| message(k, sizes[k % 6])).collect();
    for m in &sent {
        for (k, connection) in [(0, ours), (1, theirs)] {
            // While a round of losses has it stall, nothing is taken.
            while !world.nodes[k].engine.has_room()
                || world.nodes[k].post(world.now, connection, m).is_none()
            {
                world.run_for(MILLISECOND);
            }
        }
        world.run_for(MILLISECOND);
    }
    world.run_for(3000 * MILLISECOND);
    assert!(world.nodes[0].messages == sent && world.nodes[1].messages == sent);
    let list = world.nodes[0].engine.list();
    assert_eq!(list.len(), 1);
    assert_eq!((list[0].tx_messages, list[0].rx_messages), (60, 60));
    assert!(list[0].retransmits > 0 && list[0].in_flight == 0);
}

/// All messages of a batch have buffers until the next batch. The longer messages may be, the fewer
/// buffers there are.
#[test]
fn receive_buffers_that_become_few_are_counted_once_each_time() {
    let mut world = World::new();
    let message_max = SRQ_BYTES / SRQ_BUFFERS.start();
    world.nodes[1] = Node::with(EngineConfig {
        message_max,
        ..config(2, 0, 1)
    });
    let (ours, _) = world.connected();
    let buffers = world.nodes[1].engine.shared.srq.available();
    let mut reached = Vec::new();
    for count in [buffers / 2, buffers, buffers] {
        for k in 0..count {
            let now = world.now;
            world.nodes[0].post(now, ours, &[k as u8]).unwrap();
        }
        world.transmit();
        let packets: Vec<Packet> = world.network.drain(..).collect();
        assert_eq!(packets.len(), count);
        world.nodes[1].batch(world.now, &packets);
        world.run_for(10 * MILLISECOND);
        reached.push(world.nodes[1].engine.shared.counts.srq_limit_reached);
    }
    assert_eq!(reached, [0, 1, 2]);
}

#[test]
fn a_closed_connection_ends_on_both_sides_and_leaves_nothing() {
    let mut world = World::new();
    let (ours, theirs) = world.connected();
    let now = world.now;
    world.nodes[0].engine.close(now, ours);
    world.run_for(10 * MILLISECOND);
    let closed = [(theirs, CloseReason::Disconnected)];
    assert_eq!(world.nodes[1].closed, closed);
    assert!(world.nodes[0].closed.is_empty());
    assert!(world.nodes[0].post(world.now, ours, b"late").is_none());
    world.run_for(Duration::from_secs(5));
    for node in &world.nodes {
        assert_eq!(node.engine.table.lingering(), 0, "TIMEWAIT is over");
        assert!(node.engine.list().is_empty());
        assert_eq!(node.engine.next_deadline(), None, "nothing is left to do");
    }
}

/// The P_Keys of the management datagrams that both have sent since they were asked last.
fn management_keys(world: &mut World) -> Vec<(Gid, u16)> {
    let mut keys = Vec::new();
    for _ in 0..8 {
        world.transmit();
        let network = world.network.iter();
        let mads = network.filter(|p| p.bytes.first() == Some(&opcode::UD_SEND_ONLY));
        keys.extend(mads.map(|p| (p.from, u16::from_be_bytes([p.bytes[2], p.bytes[3]]))));
        world.deliver();
    }
    keys
}

fn with_pkeys(gid: Gid, pkeys: &[u16]) -> PortView {
    let pkeys = pkeys.iter().copied().map(PKey::new).collect();
    PortView {
        pkeys: Arc::new(PKeyTable::new(pkeys)),
        ..view(gid)
    }
}

#[test]
fn management_goes_out_in_the_connections_partition_while_the_table_has_it() {
    let mut world = World::new();
    let now = world.now;
    let in_1 = Partition {
        index: 1,
        ..PKey::new(0x8001).into()
    };
    for node in &mut world.nodes {
        let view = with_pkeys(node.gid, &[0xffff, 0x8001]);
        node.engine.set_port(now, view);
        node.engine.listen(ENDPOINT, in_1, SERVICE);
    }
    let (a, b) = (world.nodes[0].gid, world.nodes[1].gid);
    let request = |service| ConnectRequest {
        service,
        peer: b,
        to: Qpn::new(0),
        private_data: &[],
    };
    let engine = &mut world.nodes[0].engine;
    let ours = engine
        .connect(now, ENDPOINT, in_1, &request(SERVICE))
        .unwrap();
    let made = [(a, 0x8001), (b, 0x8001), (a, 0x8001)];
    assert_eq!(management_keys(&mut world), made, "REQ, REP, RTU");
    // A rejection is of no connection.
    let engine = &mut world.nodes[0].engine;
    let unknown = request(ServiceId(1));
    engine.connect(now, ENDPOINT, in_1, &unknown).unwrap();
    assert_eq!(management_keys(&mut world), made[..2], "REQ, REJ");
    // The key goes: so does the connection, and the farewell is not in a partition that is left.
    let theirs = world.nodes[1].accepted[0];
    let engine = &mut world.nodes[1].engine;
    engine.set_port(now, with_pkeys(b, &[0xffff]));
    engine.follow_endpoints(now, |_| Standing::Waiting);
    world.nodes[0].closed.clear();
    assert_eq!(
        management_keys(&mut world),
        [(b, 0xffff), (a, 0x8001)],
        "DREQ, DREP"
    );
    assert_eq!(world.nodes[1].closed, [(theirs, CloseReason::PKeyChange)]);
    assert_eq!(world.nodes[0].closed, [(ours, CloseReason::Disconnected)]);
    // Whoever waits is not there for others, until there is an entry again.
    let reason = CloseReason::Rejected(RejectReason::INVALID_SERVICE_ID);
    for standing in [Standing::Waiting, in_1.into(), Standing::Gone] {
        let engine = &mut world.nodes[1].engine;
        engine.follow_endpoints(now, |_| standing);
        let engine = &mut world.nodes[0].engine;
        let asked = engine
            .connect(now, ENDPOINT, in_1, &request(SERVICE))
            .unwrap();
        management_keys(&mut world);
        let refused = world.nodes[0].closed.contains(&(asked, reason));
        assert_eq!(refused, standing != in_1.into(), "{standing:?}");
    }
    assert!(world.nodes[1].engine.listeners.is_empty());
}

#[test]
fn a_connection_stands_on_one_start_of_its_endpoint() {
    let mut world = World::new();
    let first = Partition::from(PKey::DEFAULT);
    for (other, ends) in [
        (first, false),
        (Partition { index: 1, ..first }, true),
        (Partition { starts: 1, ..first }, true),
        (PKey::new(0x7fff).into(), true),
    ] {
        let (_, theirs) = world.connected();
        let now = world.now;
        let node = &mut world.nodes[1];
        node.engine.follow_endpoints(now, |_| other.into());
        node.events(now);
        let ended = node.closed.contains(&(theirs, CloseReason::PKeyChange));
        assert_eq!(ended, ends, "{other:?}");
        node.engine.follow_endpoints(now, |_| first.into());
        world.run_for(10 * MILLISECOND);
    }
}

#[test]
fn a_rejection_ends_it() {
    let mut world = World::new();
    world.nodes[1].accepts = false;
    let peer = world.nodes[1].gid;
    let ours = world.nodes[0].connect(world.now, peer).unwrap();
    world.run_for(10 * MILLISECOND);
    let reason = CloseReason::Rejected(RejectReason::CONSUMER);
    assert_eq!(world.nodes[0].closed, [(ours, reason)]);
    world.run_for(Duration::from_secs(5));
    for node in &world.nodes {
        assert_eq!(node.engine.table.lingering(), 0);
        assert!(node.engine.list().is_empty());
    }
}

/// A request or a reply as the kernel's IPoIB has it: without retries.
fn without_retries(packet: &mut Packet) {
    const AT: usize = HEAD + size_of::<Header>();
    let Some(mad) = packet.bytes.get(HEAD..HEAD + MAD_LEN) else {
        return;
    };
    let attribute = Mad::parse(mad).unwrap().header.attribute_id.get();
    let data = &mut packet.bytes[AT..][..cm::DATA_LEN];
    match attribute {
        cm::REQ => {
            let req = cm::Req::mut_from_bytes(data).unwrap();
            req.set_retry_count(0);
            req.set_rnr_retry(0);
        }
        cm::REP => cm::Rep::mut_from_bytes(data).unwrap().set_rnr_retry(0),
        _ => {}
    }
}

#[test]
fn a_peer_that_asks_for_no_retries_gets_none() {
    let mut world = World::new();
    let peer = world.nodes[1].gid;
    world.nodes[0].connect(world.now, peer).unwrap();
    for _ in 0..8 {
        world.transmit();
        world.network.iter_mut().for_each(without_retries);
        world.deliver();
    }
    let retries = |node: &Node| {
        let c = node.engine.table.iter().next().unwrap();
        let set = c.qp.attributes();
        (c.stage == Stage::Open, set.retry_cnt, set.rnr_retry)
    };
    // Who asks says how often the other one tries; a reply speaks of RNR NAKs alone.
    assert_eq!(retries(&world.nodes[0]), (true, 7, 0));
    assert_eq!(retries(&world.nodes[1]), (true, 0, 0));
    world.lost = 100;
    let (now, theirs) = (world.now, world.nodes[1].accepted[0]);
    world.nodes[1].post(now, theirs, b"once").unwrap();
    world.run_for(300 * MILLISECOND);
    let reason = CloseReason::Failed(WcStatus::RetryExcErr);
    assert_eq!(world.nodes[1].closed, [(theirs, reason)]);
}

#[test]
fn a_peer_that_is_gone_is_noticed() {
    let mut world = World::new();
    let (ours, _) = world.connected();
    world.lost = 100;
    let now = world.now;
    world.nodes[0].post(now, ours, &[1; 5000]).unwrap();
    world.run_for(Duration::from_secs(3));
    let reason = CloseReason::Failed(WcStatus::RetryExcErr);
    assert_eq!(world.nodes[0].closed, [(ours, reason)]);
    world.run_for(Duration::from_secs(20));
    assert!(world.nodes[0].engine.list().is_empty());
    assert_eq!(world.nodes[0].engine.table.lingering(), 0);
}

#[test]
fn a_full_window_is_told_and_a_stalled_one_holds_nobody_up() {
    let mut world = World::new();
    let (ours, _) = world.connected();
    world.lost = 100;
    let mut posted = 0;
    while world.nodes[0].engine.has_room() {
        let now = world.now;
        world.nodes[0].post(now, ours, &[1; 60000]).unwrap();
        posted += 1;
        assert!(posted < 1000);
    }
    world.run_for(100 * MILLISECOND);
    assert!(world.nodes[0].engine.has_room(), "the others go on");
    let now = world.now;
    assert!(world.nodes[0].post(now, ours, &[1; 10]).is_none());
}

#[test]
fn another_gid_ends_all() {
    let mut world = World::new();
    let (ours, _) = world.connected();
    let now = world.now;
    world.nodes[0].engine.set_port(now, view(gid(9)));
    world.nodes[0].events(now);
    assert_eq!(world.nodes[0].closed, [(ours, CloseReason::PortGone)]);
    assert!(world.nodes[0].engine.list().is_empty());
}

/// Peers that vanish in the middle of a message keep its receive buffer from others for a second.
#[test]
fn unfinished_messages_do_not_keep_all_buffers() {
    let mut world = World::new();
    let few_buffers = EngineConfig {
        message_max: 1 << 20,
        ..config(2, 0, 1)
    };
    let engine = &mut world.nodes[1].engine;
    *engine = Engine::new(few_buffers);
    engine.set_port(world.now, view(gid(2)));
    engine.listen(ENDPOINT, PKey::DEFAULT, SERVICE);
    let buffers = engine.shared.srq.available();
    let begun: Vec<ConnectionId> = (0..buffers).map(|_| world.connected().0).collect();
    for connection in &begun {
        let now = world.now;
        world.nodes[0].post(now, *connection, &[1; 2000]).unwrap();
    }
    world.transmit();
    world
        .network
        .retain(|p| p.bytes[0] == opcode::RC_SEND_FIRST);
    world.deliver();
    assert_eq!(world.nodes[1].engine.shared.srq.available(), 0);
    world.nodes[0] = Node::new(3);
    let (ours, theirs) = world.connected();
    let now = world.now;
    world.nodes[0].post(now, ours, &[7; 3000]).unwrap();
    world.run_for(500 * MILLISECOND);
    assert!(world.nodes[1].messages.is_empty());
    world.run_for(1000 * MILLISECOND);
    assert_eq!(world.nodes[1].messages, [[7; 3000]]);
    let closed = &world.nodes[1].closed;
    let reason = CloseReason::Failed(WcStatus::GeneralErr);
    assert!(closed.iter().all(|(c, why)| *c != theirs && *why == reason));
    assert_eq!(closed.len(), buffers);
    let engine = &mut world.nodes[1].engine;
    engine.begin_batch();
    assert_eq!(engine.shared.srq.available(), buffers);
}

/// A port that takes packets of another size.
fn with_path_mtu(gid: Gid, path_mtu: IbMtu) -> PortView {
    PortView {
        path_mtu: Some(path_mtu),
        ..view(gid)
    }
}

#[test]
fn connections_end_when_their_packets_no_longer_fit() {
    let mut world = World::new();
    let (ours, theirs) = world.connected();
    let now = world.now;
    let mut set = |node: usize, path_mtu| {
        let Node { gid, engine, .. } = &mut world.nodes[node];
        engine.set_port(now, with_path_mtu(*gid, path_mtu));
        engine.list().len()
    };
    assert_eq!(set(0, IbMtu::B2048), 1, "larger ones would fit");
    assert_eq!(set(0, IbMtu::B1024), 1);
    assert_eq!(set(0, IbMtu::B512), 0);
    world.run_for(10 * MILLISECOND);
    assert_eq!(world.nodes[0].closed, [(ours, CloseReason::PathMtu)]);
    let closed = [(theirs, CloseReason::Disconnected)];
    assert_eq!(world.nodes[1].closed, closed);
    world.connected();
    assert_eq!(world.nodes[0].engine.list()[0].path_mtu, 512);
}

/// The larger side asks for less until the smaller one consents; its consumer hears of one
/// connection.
#[test]
fn nodes_of_unequal_path_mtus_connect() {
    for smaller in IbMtu::ALL {
        let mut world = World::new();
        let now = world.now;
        for (node, path_mtu) in [(0, IbMtu::B4096), (1, smaller)] {
            let Node { gid, engine, .. } = &mut world.nodes[node];
            engine.set_port(now, with_path_mtu(*gid, path_mtu));
        }
        let (ours, theirs) = world.connected();
        for (node, connection) in [(0, ours), (1, theirs)] {
            let engine = &world.nodes[node].engine;
            assert_eq!(engine.path_mtu(connection), smaller.bytes() as usize);
            assert_eq!(engine.list().len(), 1);
        }
        let sent = message(1, 30000);
        world.nodes[0].post(world.now, ours, &sent).unwrap();
        world.run_for(10 * MILLISECOND);
        assert_eq!(world.nodes[1].messages, [sent]);
        assert!(world.nodes.iter().all(|n| n.closed.is_empty()));
        world.nodes[0].engine.close(world.now, ours);
        world.run_for(Duration::from_secs(5));
        for node in &world.nodes {
            assert_eq!(node.engine.table.lingering(), 0);
        }
    }
}

/// Whoever refuses whatever is asked for is asked no more.
#[test]
fn asking_for_less_comes_to_an_end() {
    let mut world = World::new();
    let [a, b] = &mut world.nodes;
    let now = world.now;
    b.engine.set_port(
        now,
        PortView {
            path_mtu: None,
            ..view(b.gid)
        },
    );
    let ours = a.connect(now, b.gid).unwrap();
    world.run_for(10 * MILLISECOND);
    let reason = CloseReason::Rejected(RejectReason::INVALID_MTU);
    assert_eq!(world.nodes[0].closed, [(ours, reason)]);
    assert!(world.nodes[0].engine.list().is_empty());
}

#[test]
fn nobody_is_reached_without_an_address_of_the_family() {
    let mut node = Node::new(1);
    let v4 = "192.0.2.1".parse().unwrap();
    let group = "ff12::1".parse().unwrap();
    for peer in [v4, group, Gid::UNSPECIFIED] {
        let e = node.connect(Instant(0), peer).unwrap_err();
        assert!(matches!(e, ConnectError::Unreachable(p) if p == peer));
    }
    node.engine.set_port(Instant(0), PortView::default());
    node.connect(Instant(0), gid(2)).unwrap_err();
}

#[test]
fn queue_pair_numbers_carry_their_worker() {
    for (worker, workers) in [(0, 1), (1, 2), (2, 3), (6, 7), (15, 16)] {
        let mut engine = Engine::new(config(5, worker, workers));
        for _ in 0..1000 {
            let qpn = engine.new_qpn();
            assert_eq!((qpn.get() & 0xff) as usize % workers, worker);
            assert!(!qpn.is_reserved());
        }
    }
}

/// Each check has its reason, and the ICRC is the last of them.
#[test]
fn packets_are_checked_in_order() {
    let mut world = World::new();
    world.connected();
    let qpn = world.nodes[1].engine.list()[0].local_qpn.to_bytes();
    let [from, to] = [world.nodes[0].gid, world.nodes[1].gid];
    let good = {
        let mut bytes = vec![0; 12 + 8 + 4];
        bytes[0] = opcode::RC_SEND_ONLY;
        bytes[2..4].copy_from_slice(&[0xff, 0xff]);
        bytes[5..8].copy_from_slice(&qpn);
        bytes
    };
    let engine = &mut world.nodes[1].engine;
    let mut ask = |change: &dyn Fn(&mut Vec<u8>), src: Gid, dst: Gid| {
        let mut bytes = good.clone();
        change(&mut bytes);
        let path = Path {
            src,
            dst,
            src_port: 1,
        };
        let now = Instant(2_000_000_000);
        let verdict = engine.receive(now, &path, &bytes, 0, || Err(Refusal::Icrc));
        verdict.unwrap_err()
    };
    assert_eq!(ask(&|b| b.truncate(11), from, to), Refusal::Length);
    assert_eq!(ask(&|b| b.truncate(23), from, to), Refusal::Length);
    assert_eq!(ask(&|b| b[0] = 0x1f, from, to), Refusal::Opcode);
    assert_eq!(ask(&|b| b[1] = 1, from, to), Refusal::Version);
    assert_eq!(ask(&|b| b[6] ^= 1, from, to), Refusal::UnknownQpn);
    assert_eq!(ask(&|_| {}, gid(9), to), Refusal::NotPeer);
    assert_eq!(ask(&|_| {}, from, gid(9)), Refusal::NotOurGid);
    assert_eq!(ask(&|b| b[2] = 0x7f, from, to), Refusal::Icrc);
    assert_eq!(ask(&|b| b[3] = 0, from, to), Refusal::PKey);
    assert_eq!(ask(&|_| {}, from, to), Refusal::Icrc);
}

/// What a blocked network did not take is offered again, once.
#[test]
fn a_blocked_network_loses_nothing() {
    let mut world = World::new();
    let (ours, _) = world.connected();
    let now = world.now;
    let sent = message(3, 65524);
    world.nodes[0].post(now, ours, &sent).unwrap();
    let mut packets = Vec::new();
    let [a, b] = &mut world.nodes;
    for _ in 0..200 {
        let mut offers = 0;
        a.engine.transmit(now, true, |run| {
            offers += 1;
            let taken = usize::from(offers == 1);
            for bytes in run.memory.chunks(run.stride).take(taken) {
                packets.push(Packet {
                    from: a.gid,
                    to: run.to,
                    bytes: bytes.to_vec(),
                });
            }
            taken
        });
    }
    assert_eq!(packets.len(), 64);
    assert!(!a.engine.is_blocked());
    b.batch(now, &packets);
    assert_eq!(b.messages, [sent]);
}

/// However many there are, those without anything to do are in no list.
#[test]
fn idle_connections_are_not_looked_at() {
    let mut world = World::new();
    let (busy, _) = world.connected();
    for _ in 0..100 {
        world.connected();
    }
    world.run_for(Duration::from_secs(3));
    let now = world.now;
    let engine = &world.nodes[0].engine;
    assert!(engine.ready.is_empty() && engine.unflushed.is_empty() && engine.timers.len() == 0);
    world.nodes[0].post(now, busy, &[1; 5000]).unwrap();
    world.transmit();
    let engine = &world.nodes[0].engine;
    assert!(engine.ready.is_empty() && engine.unflushed.len() <= 1);
    assert_eq!(engine.timers.len(), 1);
}

/// A busy connection keeps nobody else from sending.
#[test]
fn connections_take_turns() {
    let mut world = World::new();
    let (first, _) = world.connected();
    let (second, _) = world.connected();
    let now = world.now;
    let node = &mut world.nodes[0];
    node.post(now, first, &[1; 65000]).unwrap();
    node.post(now, second, &[2; 5000]).unwrap();
    node.post(now, first, &[1; 65000]);
    let mut order = Vec::new();
    node.engine.transmit(now, false, |run| {
        order.push(run.memory[12]);
        run.count
    });
    let second_at = order.iter().position(|&b| b == 2).unwrap();
    assert!(second_at <= 1, "{order:?}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Whatever arrives: no panic, and an engine that still works.
    #[test]
    fn anything_may_arrive(
        packets in prop::collection::vec(
            (any::<u8>(), any::<u8>(), any::<u32>(), prop::collection::vec(any::<u8>(), 0..300)),
            1..60,
        ),
        mads in prop::collection::vec((0x10u8..0x1b, any::<u64>(), any::<bool>()), 0..20),
    ) {
        let mut world = World::new();
        world.connected();
        let (from, to) = (world.nodes[0].gid, world.nodes[1].gid);
        let info = world.nodes[1].engine.list()[0].clone();
        for (opcode, flags, psn, rest) in packets {
            let mut bytes = vec![opcode & 0x1f, flags & 0xf0, 0xff, 0xff, 0];
            bytes.extend(info.local_qpn.to_bytes());
            bytes.extend(psn.to_be_bytes());
            bytes.extend(rest);
            bytes.resize(bytes.len().next_multiple_of(4), 0);
            world.nodes[1].batch(world.now, &[Packet { from, to, bytes }]);
        }
        for (attribute, seed, ours) in mads {
            let mut random = Random::new([seed, 0]);
            let mut mad = [0; MAD_LEN];
            for word in mad.chunks_mut(8) {
                word.copy_from_slice(&random.next().to_be_bytes());
            }
            mad[..4].copy_from_slice(&[1, 7, 2, 3]);
            mad[16..18].copy_from_slice(&[0, attribute]);
            if ours {
                let id = world.nodes[1].engine.table.iter().next().map(|c| c.cm.0);
                mad[28..32].copy_from_slice(&id.unwrap_or(1).to_be_bytes());
            }
            let engine = &mut world.nodes[1].engine;
            engine.mad(world.now, from, PKey::DEFAULT, &mad);
            world.run_for(MILLISECOND);
        }
        world.run_for(Duration::from_secs(2));
        let (ours, _) = world.connected();
        let now = world.now;
        world.nodes[0].post(now, ours, b"still here").unwrap();
        world.run_for(10 * MILLISECOND);
        prop_assert_eq!(world.nodes[1].messages.last().map(Vec::as_slice), Some(&b"still here"[..]));
    }
}
