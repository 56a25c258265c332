//! The partition and the path MTU of a connection.

use super::*;

/// The P_Keys of management datagrams that both nodes have sent since the last call.
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
    // A rejection belongs to no connection.
    let engine = &mut world.nodes[0].engine;
    let unknown = request(ServiceId(1));
    engine.connect(now, ENDPOINT, in_1, &unknown).unwrap();
    assert_eq!(management_keys(&mut world), made[..2], "REQ, REJ");
    // The P_Key is removed: the connection ends, and its last message uses another partition.
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
    // An endpoint that waits for its P_Key rejects requests.
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

/// A port with another path MTU.
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
    assert_eq!(set(0, IbMtu::B512), 0);
    world.run_for(10 * MILLISECOND);
    assert_eq!(world.nodes[0].closed, [(ours, CloseReason::PathMtu)]);
    let closed = [(theirs, CloseReason::Disconnected)];
    assert_eq!(world.nodes[1].closed, closed);
    world.connected();
    assert_eq!(world.nodes[0].engine.list()[0].path_mtu, 512);
}

/// The underlay's MTU falls and rises, first at one node, then at the other.
#[test]
fn connections_with_the_former_limit_end_when_larger_packets_fit() {
    let mut world = World::new();
    let now = world.now;
    let set = |world: &mut World, node: usize, path_mtu| {
        let Node { gid, engine, .. } = &mut world.nodes[node];
        engine.set_port(now, with_path_mtu(*gid, path_mtu));
        world.nodes[node].engine.list().len()
    };
    let path_mtu = |world: &World| world.nodes[0].engine.list()[0].path_mtu;
    for node in [0, 1] {
        set(&mut world, node, IbMtu::B1024);
    }
    world.connected();
    assert_eq!(set(&mut world, 0, IbMtu::B4096), 0);
    world.run_for(10 * MILLISECOND);
    world.connected();
    assert_eq!(path_mtu(&world), 1024, "the peer's limit");
    assert_eq!(
        set(&mut world, 0, IbMtu::B2048),
        1,
        "it was not limited by this node"
    );
    assert_eq!(set(&mut world, 0, IbMtu::B4096), 1);
    assert_eq!(set(&mut world, 1, IbMtu::B4096), 0);
    world.run_for(10 * MILLISECOND);
    world.connected();
    assert_eq!(path_mtu(&world), 4096);
}

/// The node with the larger path MTU requests smaller ones until the other accepts; its consumer sees
/// one connection.
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

/// A node that rejects every path MTU receives no further requests.
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
fn peers_are_unreachable_without_an_address_of_their_family() {
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
