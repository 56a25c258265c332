//! Many.

use super::*;

#[test]
fn a_hundred_ports_with_full_tables_take_1700_messages() {
    let config = "[[vesw]]\nname = \"one\"\nid = 2\nmembers = [\"*\"]\n";
    let mut world = World::new(30, 100, config);
    world.run(5_000);
    let all: Vec<usize> = (0..100).collect();
    world.assert_joined(&all, 2);
    world.run(30_000);
    // 2048 addresses at once, behind eight of the ports.
    for n in 0..8 {
        let macs = (0..=255).map(|m| [0, 2, 0xc9, n as u8, 0, m]).collect();
        world.nodes[n].agent.set_unicast_macs(world.now, 0, macs);
    }
    world.take_sets();
    let (started, mut most) = (world.now, 0);
    while (0..100).any(|n| world.nodes[n].host.tables[&0].len() < 2048) {
        world.run(10);
        most = most.max(world.engine.open.len());
        assert!(world.now.since(started) < 2_000, "it takes more than 2 s");
    }
    assert!(most <= 64, "{most}");
    let tables = world.sets[&vnic::mad::attribute::VESW_MAC_ENTRIES];
    assert!((1700..=1750).contains(&tables), "{tables}");
}

#[test]
fn strangers_that_announce_themselves_fill_no_memory() {
    let config = "[[vesw]]\nname = \"one\"\nid = 2\nmembers = [\"n*:1:0\"]\n";
    let mut world = World::new(31, 1, config);
    world.run(3_000);
    let from = world.nodes[0].at;
    for n in 0..6000_u64 {
        let info = vnic::attribute::NodeInfo {
            guid: fabric::Guid((n << 8).to_be_bytes()),
            incarnation: n,
            port: 1,
            payload_max: 4096,
            description: "x".repeat(64),
            first: 0,
            next: 0,
            ports: Vec::new(),
        };
        let header = vnic::mad::Header::new(3, vnic::mad::attribute::NODE_INFO, 0, n);
        let from = Endpoint {
            qpn: fabric::Qpn::new(n as u32),
            ..from
        };
        world
            .engine
            .receive(world.now, from, &vnic::mad::write(&header, &info));
    }
    assert_eq!(world.engine.agents.len(), AGENTS_MAX);
    assert_eq!(world.engine.state().members.len(), 1);
    let told = world
        .engine
        .log
        .iter()
        .filter(|line| line.contains("more than 4096 agents"));
    assert_eq!(told.count(), 1);
}

#[test]
fn a_directory_of_many_pages_arrives_whole() {
    let config = "[[vesw]]\nname = \"one\"\nid = 2\nmembers = [\"*\"]\n";
    let mut world = World::new(32, 0, config);
    for n in 0..60 {
        world.add_node(n, 4);
    }
    world.weather = super::world::Weather {
        lost: 20,
        doubled: 20,
        late: 20,
    };
    world.run(30_000);
    world.weather = Default::default();
    world.run(20_000);
    for node in &world.nodes {
        for index in 0..4 {
            assert_eq!(node.host.directories[&index].nodes.len(), 240);
        }
    }
}

/// More virtual ports than one NodeInfo tells of: all are found, and none is lost when the manager starts
/// again and hears of the first ones first, nor when one of the last ones goes.
#[test]
fn a_node_with_255_ports_is_managed_whole() {
    let config = "[[vesw]]\nname = \"one\"\nid = 2\nmembers = [\"*\"]\n";
    let mut world = World::new(33, 1, config);
    world.add_node(1, 255);
    world.run(20_000);
    let known = |world: &World| world.nodes[1].host.directories[&254].nodes.len();
    assert_eq!(known(&world), 256);
    let forwards = |world: &World| {
        let ports = world.nodes[1].agent.ports();
        ports
            .filter(|(_, _, info)| info.oper_state == vnic::attribute::ConfigState::Forwarding)
            .count()
    };
    assert_eq!(forwards(&world), 255);
    world.run(30_000);
    world.take_sets();
    world.restart_engine(config);
    world.run(60_000);
    assert_eq!(world.take_sets(), 0, "{:?}", world.sets);
    assert!(
        !world
            .engine
            .log
            .iter()
            .any(|line| line.contains("left the switch"))
    );
    let now = world.now;
    world.nodes[1].agent.remove_port(now, 200);
    world.run(20_000);
    assert_eq!(known(&world), 255);
}
