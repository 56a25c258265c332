//! The end of connections: closed, rejected, failed, or with their endpoint.

use super::*;

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

#[test]
fn a_restart_of_the_endpoint_ends_its_connections() {
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

/// Removes the retries from a request or reply, as the kernel's IPoIB does.
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
    // A request sets the peer's retry count; a reply sets only RNR retries.
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
fn another_gid_ends_all() {
    let mut world = World::new();
    let (ours, _) = world.connected();
    let now = world.now;
    world.nodes[0].engine.set_port(now, view(gid(9)));
    world.nodes[0].events(now);
    assert_eq!(world.nodes[0].closed, [(ours, CloseReason::PortGone)]);
    assert!(world.nodes[0].engine.list().is_empty());
}

/// The second node restarts without a word. Two workers of the first one have a connection to it; the new start
/// requests a connection from one of them.
#[test]
fn connections_to_a_peer_that_has_restarted_end_after_one_timeout() {
    let starts = Arc::new(Starts::default());
    let mut worlds = [World::new(), World::new()];
    for restarted in [false, true] {
        let old = worlds.each_mut().map(|world| {
            let node = std::mem::replace(&mut world.nodes[0], Node::new(1));
            world.nodes[0] = Node {
                engine: node.engine.with_starts(Arc::clone(&starts)),
                ..node
            };
            world.connected().0
        });
        for world in &mut worlds {
            let mut guid = [u8::from(restarted); 8];
            guid[7] = 2;
            let ca_guid = Guid(guid);
            world.nodes[1] = Node::with(EngineConfig {
                ca_guid,
                ..config(7, 0, 1)
            });
        }
        let world = &mut worlds[0];
        let peer = world.nodes[0].gid;
        world.nodes[1].connect(world.now, peer).unwrap();
        for (world, old) in worlds.iter_mut().zip(old) {
            world.run_for(10 * MILLISECOND);
            let now = world.now;
            world.nodes[0].post(now, old, b"lost").unwrap();
            world.run_for(Duration::from_millis(300));
            let ended: Vec<ConnectionId> = world.nodes[0].closed.iter().map(|(c, _)| *c).collect();
            assert_eq!(ended.contains(&old), restarted);
        }
    }
}

/// Anybody can forge a request from another start.
#[test]
fn a_peer_that_acknowledges_keeps_its_connections_whatever_its_start() {
    let mut world = World::new();
    let (ours, _) = world.connected();
    let peer = world.nodes[1].gid;
    world.nodes[0].engine.starts.note(peer, Guid([9; 8]));
    world.lost = 20;
    for k in 0..200 {
        let now = world.now;
        world.nodes[0].post(now, ours, &message(k, 3000)).unwrap();
        world.run_for(10 * MILLISECOND);
    }
    world.lost = 0;
    world.run_for(Duration::from_secs(1));
    assert!(world.nodes[0].closed.is_empty());
    assert_eq!(world.nodes[1].messages.len(), 200);
}

/// A peer with many child interfaces, after a restart of this node.
#[test]
fn a_peer_that_requests_many_connections_at_once_gets_all_of_them() {
    const MANY: usize = 100;
    let mut world = World::new();
    let (now, peer) = (world.now, world.nodes[1].gid);
    for _ in 0..MANY {
        world.nodes[0].connect(now, peer).unwrap();
    }
    world.transmit();
    let requests: Vec<Packet> = world.network.drain(..).collect();
    assert_eq!(requests.len(), MANY);
    for some in requests.chunks(32) {
        world.nodes[1].batch(now, some);
        // Accepts them.
        world.nodes[1].events(now);
    }
    assert_eq!(world.nodes[1].accepted.len(), MANY);
    // The replies and the confirmations.
    world.run_for(10 * MILLISECOND);
    assert_eq!(world.nodes[0].established.len(), MANY);
    for node in &world.nodes {
        assert!(node.closed.is_empty(), "{:?}", node.closed);
        let states = node.engine.list();
        assert!(states.iter().all(|c| c.state == "ESTABLISHED"));
        assert_eq!(states.len(), MANY);
        let evicted = ("cm_half_open_evicted", 0);
        assert!(node.engine.counters().contains(&evicted));
    }
}
