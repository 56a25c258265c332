//! Peers that begin messages and do not end them.

use std::ops::Range;

use super::*;

/// Buffers of the receiver.
const BUFFERS: usize = 64;

/// Node 1 has few buffers.
fn few_buffers() -> World {
    let mut world = World::new();
    let few = EngineConfig {
        message_max: 1 << 20,
        ..config(2, 0, 1)
    };
    let engine = &mut world.nodes[1].engine;
    *engine = Engine::new(few);
    engine.set_port(world.now, view(gid(2)));
    engine.listen(ENDPOINT, PKey::DEFAULT, SERVICE);
    assert_eq!(engine.shared.srq.available(), BUFFERS);
    world
}

/// A peer with connections to node 1.
struct Peer {
    node: Node,
    /// The ids of the peer and of node 1.
    connections: Vec<(ConnectionId, ConnectionId)>,
}

impl Peer {
    fn connected(world: &mut World, gid: u8, count: usize) -> Peer {
        world.nodes[0] = Node::new(gid);
        let connections = (0..count).map(|_| world.connected()).collect();
        let node = std::mem::replace(&mut world.nodes[0], Node::new(1));
        Peer { node, connections }
    }

    /// Begins a message on some connections, and returns node 1's ids.
    fn begin_messages(&mut self, world: &mut World, on: Range<usize>) -> Vec<ConnectionId> {
        std::mem::swap(&mut self.node, &mut world.nodes[0]);
        for (ours, _) in &self.connections[on.clone()] {
            let now = world.now;
            world.nodes[0].post(now, *ours, &[1; 2000]).unwrap();
        }
        world.transmit();
        let is_first = |p: &Packet| p.bytes[0] == opcode::RC_SEND_FIRST;
        world.network.retain(is_first);
        world.deliver();
        std::mem::swap(&mut self.node, &mut world.nodes[0]);
        self.connections[on].iter().map(|(_, id)| *id).collect()
    }
}

/// A peer that begins `count` messages now.
fn begin_messages(world: &mut World, gid: u8, count: usize) {
    let mut peer = Peer::connected(world, gid, count);
    peer.begin_messages(world, 0..count);
}

/// A live peer sends a message.
fn send_message(world: &mut World, peer: u8) -> ConnectionId {
    world.nodes[0] = Node::new(peer);
    let (ours, theirs) = world.connected();
    let now = world.now;
    world.nodes[0].post(now, ours, &[7; 3000]).unwrap();
    theirs
}

fn available(world: &mut World) -> usize {
    let engine = &mut world.nodes[1].engine;
    engine.begin_batch();
    engine.shared.srq.available()
}

#[test]
fn a_peer_that_takes_all_buffers_gives_half_of_them_back() {
    let mut world = few_buffers();
    begin_messages(&mut world, 3, BUFFERS);
    assert_eq!(available(&mut world), 0);
    let live = send_message(&mut world, 4);
    world.run_for(150 * MILLISECOND);
    assert_eq!(world.nodes[1].messages, [[7; 3000]]);
    let closed = &world.nodes[1].closed;
    let reason = CloseReason::Failed(WcStatus::GeneralErr);
    assert!(closed.iter().all(|(c, why)| *c != live && *why == reason));
    assert_eq!(closed.len(), BUFFERS / 2);
    assert_eq!(available(&mut world), BUFFERS / 2);
}

#[test]
fn the_peer_that_holds_most_gives_first_and_its_oldest_message() {
    let mut world = few_buffers();
    let mut slow = Peer::connected(&mut world, 3, 4);
    let mut most = Peer::connected(&mut world, 5, 32);
    let mut other = Peer::connected(&mut world, 6, 28);
    let slow = slow.begin_messages(&mut world, 0..4);
    let old = most.begin_messages(&mut world, 0..20);
    world.run_for(50 * MILLISECOND);
    let new = most.begin_messages(&mut world, 20..32);
    let other = other.begin_messages(&mut world, 0..28);
    assert_eq!(available(&mut world), 0);
    world.run_for(150 * MILLISECOND);
    send_message(&mut world, 4);
    world.run_for(100 * MILLISECOND);
    assert_eq!(world.nodes[1].messages, [[7; 3000]]);
    let closed: Vec<_> = world.nodes[1].closed.iter().map(|(c, _)| *c).collect();
    let closed_of = |of: &[ConnectionId]| of.iter().filter(|c| closed.contains(c)).count();
    assert_eq!(closed_of(&slow), 0, "within its share");
    assert_eq!(closed_of(&new), 0, "older messages of the peer are left");
    assert_eq!(closed.len(), BUFFERS / 2);
    // 32 and 28 messages, of which 14 stay each.
    assert_eq!((closed_of(&old), closed_of(&other)), (18, 14));
}

/// With many GIDs, nobody holds more than a share.
#[test]
fn if_no_buffer_is_left_a_message_may_be_unfinished_for_a_second() {
    let mut world = few_buffers();
    let peers = (10..26).map(|gid| Peer::connected(&mut world, gid, BUFFERS / 16));
    for mut peer in peers.collect::<Vec<_>>() {
        peer.begin_messages(&mut world, 0..BUFFERS / 16);
    }
    assert_eq!(available(&mut world), 0);
    let live = send_message(&mut world, 4);
    world.run_for(500 * MILLISECOND);
    assert!(world.nodes[1].messages.is_empty());
    world.run_for(1000 * MILLISECOND);
    assert_eq!(world.nodes[1].messages, [[7; 3000]]);
    let closed = &world.nodes[1].closed;
    assert!(closed.iter().all(|(c, _)| *c != live));
    assert_eq!(closed.len(), BUFFERS);
    assert_eq!(available(&mut world), BUFFERS);
}

#[test]
fn unfinished_messages_stay_while_buffers_are_left() {
    let mut world = few_buffers();
    begin_messages(&mut world, 3, BUFFERS / 2);
    world.run_for(Duration::from_secs(3));
    send_message(&mut world, 4);
    world.run_for(100 * MILLISECOND);
    assert_eq!(world.nodes[1].messages, [[7; 3000]]);
    assert!(world.nodes[1].closed.is_empty());
}
