//! Delivery of messages over networks that drop or block, and fairness between queue pairs.

use super::*;

#[test]
fn messages_arrive_over_a_network_that_loses() {
    let mut world = World::new();
    let (ours, theirs) = world.connected();
    world.lost = 10;
    let sizes = [1, 65524, 1024, 1025, 30000, 7];
    let sent: Vec<Vec<u8>> = (0..60).map(|k| message(k, sizes[k % 6])).collect();
    for m in &sent {
        for (k, connection) in [(0, ours), (1, theirs)] {
            // After several losses the connection may stall; then it accepts no messages.
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

/// All messages of a batch keep their buffers until the next batch. Longer messages leave fewer
/// buffers.
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

/// Posts messages until the window is full. No packet arrives any more.
fn fill(world: &mut World, connection: ConnectionId) {
    world.lost = 100;
    for _ in 0..1000 {
        let now = world.now;
        let posted = world.nodes[0].post(now, connection, &[1; 60000]);
        if posted == Some(Posted::Full) {
            assert!(!world.nodes[0].engine.has_room());
            return;
        }
    }
    panic!("the window never becomes full");
}

#[test]
fn a_stalled_window_blocks_no_other_peers() {
    let mut world = World::new();
    let (ours, _) = world.connected();
    fill(&mut world, ours);
    let now = world.now;
    world.nodes[0].connect(now, gid(9)).unwrap();
    world.run_for(STALLED_AFTER + LOOK_AT_FULL * 2);
    assert!(world.nodes[0].engine.has_room());
    // A few messages are sent nevertheless.
    let mut taken = 0;
    for _ in 0..300 {
        let now = world.now;
        let posted = world.nodes[0].post(now, ours, &[1; 10]);
        taken += usize::from(posted.is_some());
        assert!(world.nodes[0].engine.has_room());
        assert!(world.nodes[0].post(now, ours, &[1; 10]).is_none());
        world.run_for(MILLISECOND);
    }
    assert!((25..=32).contains(&taken), "{taken}");
    world.lost = 0;
    world.run_for(STALLED_ALONE);
    let now = world.now;
    for _ in 0..3 {
        assert_eq!(world.nodes[0].post(now, ours, &[1; 10]), Some(Posted::Done));
    }
}

#[test]
fn the_only_peer_in_use_is_waited_for() {
    let mut world = World::new();
    let (ours, _) = world.connected();
    fill(&mut world, ours);
    world.run_for(STALLED_ALONE / 2);
    assert!(!world.nodes[0].engine.has_room());
    world.run_for(STALLED_ALONE / 2 + LOOK_AT_FULL * 2);
    assert!(world.nodes[0].engine.has_room());
}

/// A peer that acknowledges a message now and then blocks others no longer than a dead peer.
#[test]
fn a_slow_peer_blocks_no_others() {
    let mut world = World::new();
    let (ours, _) = world.connected();
    let now = world.now;
    world.nodes[0].connect(now, gid(9)).unwrap();
    let (mut waited, mut acknowledged) = (Duration::ZERO, 0);
    let mut underway = VecDeque::new();
    for k in 0..3600 {
        match world.nodes[0].engine.has_room() {
            true => waited = Duration::ZERO,
            false => waited += TICK,
        }
        let now = world.now;
        while world.nodes[0].engine.has_room()
            && world.nodes[0].post(now, ours, &[1; 60000]).is_some()
        {}
        assert!(waited <= STALLED_AFTER + LOOK_AT_FULL * 2);
        world.transmit();
        let peer = world.nodes[1].gid;
        let (packets, answers): (VecDeque<_>, _) =
            world.network.drain(..).partition(|p| p.to == peer);
        underway.extend(packets);
        acknowledged += answers.len();
        world.network = answers;
        // A message arrives in 240 ms.
        if k % 160 == 0 {
            let arrive = 10.min(underway.len());
            world.network.extend(underway.drain(..arrive));
        }
        world.deliver();
        world.tick();
    }
    assert!(acknowledged > 3, "{acknowledged}");
}

/// Packets that a blocked network did not take are offered again, once.
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

/// Idle connections are in no list.
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

/// A busy connection does not block others.
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

/// With a shorter last packet, an acknowledgement needs no send of its own.
#[test]
fn an_acknowledgement_leaves_with_packets_for_the_same_peer() {
    let mut world = World::new();
    let (there, _) = world.connected();
    let peer = world.nodes[0].gid;
    let back = world.nodes[1].connect(world.now, peer).unwrap();
    world.run_for(10 * MILLISECOND);
    let now = world.now;
    for (len, together) in [(100, true), (3000, false), (4096, true)] {
        world.nodes[0].post(now, there, &message(1, 100)).unwrap();
        world.transmit();
        world.deliver();
        world.nodes[1].post(now, back, &message(2, len)).unwrap();
        let mut runs = Vec::new();
        world.nodes[1].engine.transmit(now, true, |run| {
            let opcodes = run.memory.chunks(run.stride).map(|p| p[0]);
            runs.push(opcodes.collect::<Vec<_>>());
            run.count
        });
        let acks = |run: &Vec<u8>| run.last() == Some(&opcode::RC_ACKNOWLEDGE);
        assert_eq!(runs.iter().any(acks), together, "{len}: {runs:?}");
        assert_eq!(runs.len(), 1, "{len}: {runs:?}");
        assert_eq!(world.nodes[1].engine.owing.is_empty(), together);
        // Restores what was not delivered.
        world.run_for(100 * MILLISECOND);
    }
}
