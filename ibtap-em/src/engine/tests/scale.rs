//! Large numbers of agents, ports and addresses.

use vnic::attribute::WantedPort;

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
fn many_new_members_are_saved_together() {
    let config = "[[vesw]]\nname = \"one\"\nid = 2\nmembers = [\"*\"]\n";
    let mut world = World::new(33, 0, config);
    for n in 0..50 {
        world.add_node(n, 8);
    }
    world.run(5_000);
    for node in &world.nodes {
        let forwarding = |index| node.agent.port(index).unwrap().config_state;
        assert!((0..8).all(|index| forwarding(index) == ConfigState::Forwarding));
    }
    assert_eq!(world.disk.members.len(), 400);
    // Agents announce themselves over half a second, and a switch settles once.
    assert!(world.saves < 30, "{} saves", world.saves);
}

const STRANGERS: &str = "[[vesw]]\nname = \"one\"\nid = 2\nmembers = [\"n*:1:0\"]\n";

/// Announcements of a number of agents, with a number of agents behind each GID.
fn invade(world: &mut World, agents: u64, of_gid: u64) {
    for n in 0..agents {
        let info = vnic::attribute::NodeInfo {
            guid: proto::Guid((n << 8).to_be_bytes()),
            incarnation: n,
            port: 1,
            payload_max: 4096,
            description: "x".repeat(64),
            first: 0,
            next: 0,
            ports: Vec::new(),
        };
        let mut gid = world.nodes[0].at.gid;
        gid.0[8..].copy_from_slice(&(n / of_gid).to_be_bytes());
        let qpn = proto::Qpn::new(n as u32);
        world.announce(Endpoint { gid, qpn }, &info);
    }
}

#[test]
fn a_stranger_that_is_many_agents_fills_no_table() {
    let mut world = World::new(31, 1, STRANGERS);
    world.run(3_000);
    invade(&mut world, 6_000, 6_000);
    assert_eq!(world.engine.agents.len(), 1 + roster::AGENTS_OF_GID);
    assert_eq!(world.engine.state().members.len(), 1);
    assert_eq!(world.logged("announces 64 agents"), 1);
    assert_eq!(world.done("agents_refused"), 6_000 - 64);
    // They do not answer and have no members to remember.
    world.run(120_000);
    assert_eq!(world.engine.agents.len(), 1);
    assert_eq!(world.engine.by_endpoint.len(), 1);
}

#[test]
fn a_stranger_that_has_many_ports_takes_no_place_of_others() {
    let config = "[[vesw]]\nname = \"one\"\nid = 2\nmembers = [\"*\"]\n";
    let mut world = World::new(36, 2, config);
    world.run(3_000);
    let gid = "fe80::bad".parse().unwrap();
    for n in 0..60 {
        let mut info = world.nodes[0].agent.node_info(0);
        info.guid = proto::Guid(u64::to_be_bytes(n));
        let port = info.ports[0].clone();
        info.ports = (0..96)
            .map(|index| WantedPort {
                index,
                ..port.clone()
            })
            .collect();
        let qpn = proto::Qpn::new(n as u32);
        world.announce(Endpoint { gid, qpn }, &info);
    }
    let agents = world.engine.agents.values();
    let theirs = agents.filter(|agent| agent.at.gid == gid);
    let ports: usize = theirs.map(|agent| agent.ports.len()).sum();
    assert_eq!(ports, roster::PORTS_OF_GID);
    assert_eq!(world.logged("more than 512 virtual ports"), 1);
    // An agent with ports on a switch is still accepted.
    world.nodes[1]
        .agent
        .set_qpn(world.now, 0, proto::Qpn::new(77));
    world.run(3_000);
    let member = &world.engine.state().members[&node_key(1, 0)];
    assert_eq!(member.qpn, proto::Qpn::new(77));
}

#[test]
fn lists_of_a_port_on_no_switch_are_not_read() {
    let mut world = World::new(
        37,
        2,
        "[[vesw]]\nname = \"one\"\nid = 2\nmembers = [\"n0:1:0\"]\n",
    );
    let macs: Vec<Mac> = (0..200).map(|m| [0, 2, 0xc9, 0, 0, m]).collect();
    for n in 0..2 {
        world.nodes[n]
            .agent
            .set_unicast_macs(world.now, 0, macs.clone());
    }
    world.run(5_000);
    let known = |world: &World, n| {
        let agent = &world.engine.agents[&AgentKey::of(node_key(n, 0))];
        agent.ports[&0].unicast.macs.len()
    };
    assert_eq!((known(&world, 0), known(&world, 1)), (200, 0));
    // The lists are dropped with the switch, and read again with another switch.
    for (members, expected) in [("n1:1:0", (0, 200)), ("*", (200, 200))] {
        let config = format!("[[vesw]]\nname = \"one\"\nid = 2\nmembers = [\"{members}\"]\n");
        let config = Config::parse(&config, "t.toml").unwrap();
        world.engine.configure(world.now, config);
        world.run(5_000);
        assert_eq!((known(&world, 0), known(&world, 1)), expected);
    }
}

#[test]
fn who_answers_does_not_wait_for_those_that_do_not() {
    let mut world = World::new(35, 2, STRANGERS);
    world.run(3_000);
    world.assert_joined(&[0, 1], 2);
    invade(&mut world, 4_000, 60);
    world.run(20_000);
    let (now, vm) = (world.now, [0x52, 0x54, 0, 0, 0, 7]);
    world.nodes[1].agent.set_unicast_macs(now, 0, vec![vm]);
    world.run(1_000);
    let lid = world.info(1).encap_slid;
    assert_eq!(world.lookup(0, vm), Some(lid));
}

/// 200 agents that announce themselves at an interval in seconds and never answer.
fn speak_without_answers(pause: u64) {
    let mut world = World::new(38, 2, STRANGERS);
    world.run(3_000);
    let speak = |world: &mut World, seconds: u64| {
        for _ in 0..seconds / pause {
            invade(world, 200, 1);
            world.run(pause * 1000);
        }
    };
    speak(&mut world, 600);
    let before = world.requests();
    speak(&mut world, 300);
    // About one request for each of them, and polls of two nodes each 15 s.
    let asked = world.requests() - before;
    assert!(asked < 700, "{asked} requests in 5 minutes");
    // A restarted agent does not wait for them.
    world.restart_node(1, 1, 4096);
    world.run(1_500);
    world.assert_joined(&[0, 1], 2);
}

#[test]
fn those_that_speak_and_do_not_answer_are_asked_ever_less_often() {
    [5, 60].into_iter().for_each(speak_without_answers);
}

#[test]
fn of_too_many_agents_those_go_first_that_do_not_answer() {
    let mut world = World::new(34, 1, STRANGERS);
    world.run(3_000);
    invade(&mut world, 6_000, 60);
    assert_eq!(world.engine.agents.len(), AGENTS_MAX);
    assert_eq!(world.logged("more than 4096 agents"), 1);
    world.add_node(1, 1);
    world.run(600);
    let new = AgentKey::of(node_key(1, 0));
    assert!(!world.engine.agents.contains_key(&new));
    // The first of them were removed; it announces itself three times.
    world.run(8_000);
    world.restart_node(1, 1, 4096);
    world.run(6_000);
    assert!(world.engine.agents.contains_key(&new));
    assert_eq!(world.engine.agents.len(), AGENTS_MAX);
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

/// More virtual ports than one NodeInfo lists: all are found. None is lost when the manager restarts and
/// receives the first ones first, or when one of the last ports is removed.
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

/// A port has a queue pair when it comes to the switch, and that changes the directories of the ports that are there: so all
/// ports come first.
#[test]
fn fifty_ports_of_a_slow_node_get_one_directory_each() {
    let config = "[[vesw]]\nname = \"one\"\nid = 2\nmembers = [\"*\"]\n";
    let mut world = World::new(39, 0, config);
    world.weather.late = 20;
    world.add_node(0, 50);
    for _ in 0..4_000 {
        world.run(5);
        let (now, node) = (world.now, &mut world.nodes[0]);
        for index in 0..50 {
            if node.agent.port(index).unwrap().vesw_id != 0 {
                node.agent
                    .set_qpn(now, index, proto::Qpn::new(0x100 + u32::from(index)));
            }
        }
    }
    let node = &world.nodes[0];
    assert!((0..50).all(|index| node.host.directories[&index].nodes.len() == 50));
    let directories = world.sets[&vnic::mad::attribute::LID_DIRECTORY];
    assert!((50..=100).contains(&directories), "{directories}");
}
