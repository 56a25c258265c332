//! Connections without communication management.

use super::*;

fn remote(of: &LocalQp) -> RemoteQp {
    RemoteQp {
        qpn: of.qpn,
        psn: of.psn,
        gid: of.gid,
        path_mtu: IbMtu::B512,
        ack_timeout: 14,
        retry_count: 7,
        rnr_retry: 7,
    }
}

fn begin(world: &mut World) -> [LocalQp; 2] {
    let now = world.now;
    let begun = |node: &mut Node| {
        let engine = &mut node.engine;
        engine
            .begin_unmanaged(now, ENDPOINT, PKey::DEFAULT)
            .unwrap()
    };
    world.nodes.each_mut().map(begun)
}

fn connected(world: &mut World) -> [ConnectionId; 2] {
    let sides = begin(world);
    for (node, (own, other)) in [(0, (0, 1)), (1, (1, 0))] {
        let engine = &mut world.nodes[node].engine;
        let other = remote(&sides[other]);
        engine
            .connect_unmanaged(world.now, sides[own].connection, &other)
            .unwrap();
    }
    sides.map(|side| side.connection)
}

#[test]
fn messages_go_both_ways_over_a_network_that_loses() {
    let mut world = World::new();
    let connections = connected(&mut world);
    world.lost = 10;
    let sent: Vec<Vec<u8>> = [1, 511, 512, 513, 65524, 4001]
        .map(|len| message(len, len))
        .into();
    for m in &sent {
        for k in [0, 1] {
            while world.nodes[k].post(world.now, connections[k], m).is_none() {
                world.run_for(MILLISECOND);
            }
        }
    }
    world.run_for(1000 * MILLISECOND);
    assert!(world.nodes[0].messages == sent && world.nodes[1].messages == sent);
    let list = world.nodes[0].engine.list();
    assert_eq!((list[0].state, list[0].qp_state), ("UNMANAGED", "RTS"));
    assert_eq!(list[0].path_mtu, 512);
    assert!(list[0].retransmits > 0);
}

#[test]
fn no_management_datagram_is_sent_and_the_number_rests_for_a_while() {
    let mut world = World::new();
    let connections = connected(&mut world);
    let qpn = world.nodes[0].engine.list()[0].local_qpn;
    world.run_for(MILLISECOND);
    world.nodes[0].engine.close(world.now, connections[0]);
    world.transmit();
    assert!(world.network.is_empty(), "the peer is not notified");
    let table = &world.nodes[0].engine.table;
    assert!(table.is_taken(qpn) && table.lingering() == 1);
    world.run_for(Duration::from_secs(1));
    let engine = &world.nodes[0].engine;
    assert!(!engine.table.is_taken(qpn) && engine.table.lingering() == 0);
    assert_eq!(engine.next_deadline(), None);
    // The peer notices when it sends.
    let now = world.now;
    world.nodes[1].post(now, connections[1], b"hello?").unwrap();
    world.run_for(Duration::from_secs(2));
    let reason = CloseReason::Failed(WcStatus::RetryExcErr);
    assert_eq!(world.nodes[1].closed, [(connections[1], reason)]);
}

#[test]
fn bad_parameters_are_refused_and_may_be_corrected() {
    let mut world = World::new();
    let [ours, theirs] = begin(&mut world);
    let engine = &mut world.nodes[0].engine;
    let good = remote(&theirs);
    for bad in [
        RemoteQp {
            path_mtu: IbMtu::B2048,
            ..good
        },
        RemoteQp {
            gid: std::net::Ipv4Addr::LOCALHOST.into(),
            ..good
        },
        RemoteQp {
            gid: Gid::UNSPECIFIED,
            ..good
        },
    ] {
        let refused = engine.connect_unmanaged(world.now, ours.connection, &bad);
        assert!(matches!(refused, Err(ConnectError::Unreachable(_))));
        // The connection is not a request of a peer, either.
        engine.accept(world.now, ours.connection, b"");
        engine.establish(world.now, ours.connection);
        assert!(engine.message(world.now, ours.connection, 10).is_none());
    }
    let connect = |engine: &mut Engine| engine.connect_unmanaged(world.now, ours.connection, &good);
    assert!(connect(engine).is_ok());
    assert!(
        matches!(connect(engine), Err(ConnectError::Os(_))),
        "only once"
    );
    assert!(engine.message(world.now, ours.connection, 10).is_some());
}

/// Messages of communication management that name the connection are ignored.
#[test]
fn it_is_not_managed() {
    let mut world = World::new();
    let connections = connected(&mut world);
    let from = world.nodes[1].gid;
    let name = {
        let engine = &world.nodes[0].engine;
        let place = engine.table.by_id(connections[0]).unwrap();
        engine.table.get(place).unwrap().cm.0
    };
    for attribute in cm::REQ..=cm::APR {
        for local in [0u32, 1] {
            let mut mad = [0; MAD_LEN];
            (mad[0], mad[1], mad[2], mad[3]) = (1, 7, 2, 3);
            mad[16..18].copy_from_slice(&attribute.to_be_bytes());
            mad[24..28].copy_from_slice(&local.to_be_bytes());
            mad[28..32].copy_from_slice(&name.to_be_bytes());
            let engine = &mut world.nodes[0].engine;
            engine.mad(world.now, from, PKey::DEFAULT, &mad);
        }
    }
    world.run_for(MILLISECOND);
    assert_eq!(world.nodes[0].engine.list()[0].qp_state, "RTS");
    let now = world.now;
    world.nodes[0].post(now, connections[0], b"still").unwrap();
    world.run_for(MILLISECOND);
    assert_eq!(world.nodes[1].messages, [b"still"]);
}
