//! Identity and location of agents: numbers and addresses that change, and stolen identities.

use vnic::attribute::NodeInfo;

use super::*;

const ONE: &str = "[[vesw]]\nname = \"one\"\nid = 2\nmembers = [\"*\"]\n";
/// As many addresses as nodes.
const LISTED: &str = "[[vesw]]\nname = \"one\"\nid = 2\nmembers = [\"*\"]\nmac = \"list\"\n\
                      macs = [\"00:02:c9:00:00:01-00:02:c9:00:00:02\"]\n";

fn agent_of(world: &World, n: usize) -> &Agent {
    &world.engine.agents[&AgentKey::of(node_key(n, 0))]
}

fn forger() -> Endpoint {
    Endpoint {
        gid: "fe80::bad".parse().unwrap(),
        qpn: proto::Qpn::new(9),
    }
}

/// A forged NodeInfo of node `n`.
fn forged(world: &World, n: usize) -> NodeInfo {
    NodeInfo {
        incarnation: 0xbad,
        description: "evil".into(),
        ..world.nodes[n].agent.node_info(0)
    }
}

#[test]
fn an_endpoint_is_one_agent() {
    let mut world = World::new(60, 2, LISTED);
    world.run(5_000);
    let (first, kept) = (node_key(1, 0), world.info(0).clone());
    let macs = [0, 1].map(|n| world.info(n).base_mac_addr);
    world.renumber_node(1, 2);
    let before = world.requests();
    world.run(60_000);
    world.assert_joined(&[0, 1], 2);
    // A poll each 15 s, and the requests to set up one port.
    let asked = world.requests() - before;
    assert!(asked < 100, "{asked} requests in a minute");
    let second = PortKey { port: 2, ..first };
    let members: Vec<&PortKey> = world.engine.state().members.keys().collect();
    assert_eq!(members, [&node_key(0, 0), &second]);
    assert_eq!(world.engine.agents.len(), world.engine.by_endpoint.len());
    assert_eq!(world.engine.agents.len(), 2);
    // No other address was free.
    assert_eq!([0, 1].map(|n| world.info(n).base_mac_addr), macs);
    assert_eq!(world.info(0).encap_slid, kept.encap_slid);
}

#[test]
fn too_few_listed_addresses_are_logged_once_and_shown() {
    let mut world = World::new(70, 3, ONE);
    world.run(5_000);
    let config = crate::config::Config::parse(LISTED, "t.toml").unwrap();
    world.engine.configure(world.now, config);
    world.run(60_000);
    assert_eq!(world.logged("is not set up"), 1);
    let ports = world.engine.ports(world.now, &Default::default()).unwrap();
    let problems = ports.iter().filter_map(|port| port.problem.as_deref());
    let problems: Vec<&str> = problems.collect();
    assert_eq!(
        problems,
        ["all addresses in macs of the switch \"one\" are in use"]
    );
}

/// The former switch disappears, or stays and has other members.
#[test]
fn a_port_for_which_the_new_switch_has_no_address_leaves_the_former_switch() {
    let moved = |members: &str| {
        LISTED
            .replace("\"one\"", "\"two\"")
            .replace("id = 2", "id = 3")
            .replace("[\"*\"]", members)
    };
    let kept = ONE.replace("[\"*\"]", "[\"n3:1:0\"]");
    let cases = [
        (3, moved("[\"*\"]")),
        (4, kept + &moved("[\"n0:1:0\", \"n1:1:0\", \"n2:1:0\"]")),
    ];
    for (nodes, config) in cases {
        let mut world = World::new(72, nodes, ONE);
        world.run(5_000);
        let all: Vec<usize> = (0..nodes).collect();
        world.assert_joined(&all, 2);
        let config = crate::config::Config::parse(&config, "t.toml").unwrap();
        world.engine.configure(world.now, config);
        world.run(60_000);
        let on = |vesw: u16| -> Vec<usize> {
            let mut on = all.clone();
            on.retain(|n| world.info(*n).vesw_id == vesw);
            on
        };
        assert_eq!((on(3).len(), on(0).len()), (2, 1), "{nodes} nodes");
        world.assert_joined(&on(3), 3);
        world.assert_joined(&on(2), 2);
        let none = node_key(on(0)[0], 0);
        assert!(!world.engine.state().members.contains_key(&none));
        let ports = world.engine.ports(world.now, &Default::default()).unwrap();
        let problems = ports.iter().filter_map(|port| port.problem.as_deref());
        assert_eq!(
            problems.collect::<Vec<&str>>(),
            ["all addresses in macs of the switch \"two\" are in use"]
        );
        assert_eq!(world.logged("is not set up"), 1);
        // The port is left alone from now on.
        world.take_sets();
        world.run(60_000);
        assert_eq!(world.take_sets(), 0, "{nodes} nodes");
    }
}

#[test]
fn an_endpoint_that_answers_with_another_name_is_another_agent() {
    let mut world = World::new(61, 2, ONE);
    world.run(5_000);
    // Its announcements are lost.
    world.weather.lost = 1000;
    world.renumber_node(1, 2);
    world.run(6_000);
    world.weather.lost = 0;
    let before = world.requests();
    world.run(30_000);
    world.assert_joined(&[0, 1], 2);
    let asked = world.requests() - before;
    assert!(asked < 100, "{asked} requests in half a minute");
    assert_eq!(world.engine.agents.len(), 2);
}

#[test]
fn an_endpoint_that_takes_the_name_of_another_one_is_not_asked_for_ever() {
    let mut world = World::new(69, 3, ONE);
    world.run(5_000);
    let qpn = world.nodes[2].at.qpn;
    world.make_twin_of(0);
    world.nodes[2].at.qpn = qpn;
    let before = world.requests();
    world.run(60_000);
    let asked = world.requests() - before;
    assert!(asked < 100, "{asked} requests in a minute");
    world.assert_joined(&[0, 1], 2);
    assert_eq!(world.engine.agents.len(), 2);
}

#[test]
fn names_that_change_all_the_time_are_not_followed() {
    let mut world = World::new(62, 1, ONE);
    world.run(5_000);
    for n in 0..1_000_u64 {
        let mut info = forged(&world, 0);
        info.guid = proto::Guid(n.to_be_bytes());
        world.announce(forger(), &info);
        world.run(2);
    }
    assert_eq!(world.engine.agents.len(), 2);
    assert!(world.logged("(0x00000000000") < 8, "{:?}", world.engine.log);
    assert!(world.done("agents_refused") > 900);
}

#[test]
fn a_member_that_is_another_all_the_time_is_not_followed_each_time() {
    let mut world = World::new(71, 2, ONE);
    world.run(5_000);
    let (saves, lines) = (world.saves, world.engine.log.len());
    for n in 0..500_u64 {
        let mut info = world.nodes[1].agent.node_info(0);
        info.incarnation = n;
        info.description = format!("n{}", n % 2);
        let at = world.nodes[1].at;
        world.announce(at, &info);
        world.run(2);
    }
    let saves = world.saves - saves;
    assert!(saves < 30, "{saves} times written in a second");
    let lines = world.engine.log.len() - lines;
    assert!(lines < 30, "{lines} lines in a second");
    assert!(world.done("announcements_early") > 450);
    // The last announcement counts.
    world.restart_node(1, 1, 4096);
    world.run(5_000);
    world.assert_joined(&[0, 1], 2);
    assert_eq!(agent_of(&world, 1).description, "n1");
}

#[test]
fn who_takes_anothers_name_gets_nothing() {
    let mut world = World::new(63, 2, ONE);
    world.run(5_000);
    world.take_sets();
    let (at, before) = (world.nodes[0].at, world.requests());
    for _ in 0..200 {
        let info = forged(&world, 0);
        world.announce(forger(), &info);
        world.run(50);
        let agent = agent_of(&world, 0);
        assert_eq!((agent.at, agent.description.as_str()), (at, "n0"));
    }
    world.assert_joined(&[0, 1], 2);
    assert_eq!(world.take_sets(), 0);
    let asked = world.requests() - before;
    assert!(asked < 40, "{asked} requests in 10 s");
    assert!(world.done("moves_refused") > 100);
    let line = format!("the nodes {} and fe80::bad both announce", at.gid);
    assert_eq!((world.logged(&line), world.logged("both announce")), (1, 1));
}

#[test]
fn a_word_from_elsewhere_does_not_keep_alive_who_is_gone() {
    let config = format!("[em]\npoll_interval = 2\ngrace = 30\n{ONE}");
    let mut world = World::new(64, 2, &config);
    world.run(5_000);
    let lid = world.info(1).encap_slid;
    world.nodes[1].down = true;
    for _ in 0..60 {
        let info = forged(&world, 1);
        world.announce(forger(), &info);
        world.run(1_000);
    }
    let directory = &world.nodes[0].host.directories[&0];
    assert!(!directory.nodes.contains_key(&lid), "it never answered");
    assert_eq!(agent_of(&world, 1).description, "n1");
    // The agent returns with its former identity.
    world.nodes[1].down = false;
    world.restart_node(1, 1, 4096);
    world.run(10_000);
    world.assert_joined(&[0, 1], 2);
    assert_eq!(world.info(1).encap_slid, lid);
}

#[test]
fn of_two_nodes_with_one_guid_the_first_stays() {
    let mut world = World::new(65, 3, ONE);
    world.nodes[2].down = true;
    world.run(5_000);
    world.take_sets();
    world.nodes[2].down = false;
    world.make_twin_of(0);
    world.run(120_000);
    world.assert_joined(&[0, 1], 2);
    assert_eq!(world.take_sets(), 0, "{:?}", world.sets);
    assert_eq!(world.info(2).vesw_id, 0);
    assert_eq!(world.logged("both announce"), 1);
}

#[test]
fn a_node_that_moved_is_followed() {
    let mut world = World::new(66, 3, ONE);
    world.run(5_000);
    let lid = world.info(1).encap_slid;
    world.readdress_node(1);
    // The known endpoint is queried as often as any other.
    world.run(9_000);
    world.assert_joined(&[0, 1, 2], 2);
    assert_eq!(world.info(1).encap_slid, lid);
    assert_eq!(world.logged("does not answer at its known address"), 1);
}

#[test]
fn a_node_that_moved_without_a_restart_is_followed() {
    for seed in 66..72 {
        let mut world = World::new(seed, 3, ONE);
        world.run(5_000);
        world.move_node(1);
        world.run(9_000);
        world.assert_joined(&[0, 1, 2], 2);
    }
}

#[test]
fn a_node_whose_word_that_it_moved_was_lost_is_looked_for_at_once() {
    let mut world = World::new(67, 3, ONE);
    world.run(5_000);
    world.weather.lost = 1000;
    world.readdress_node(1);
    world.run(5_000);
    world.weather.lost = 0;
    // The next query to all agents would be in a minute; the next poll is within 15 s.
    world.run(25_000);
    world.assert_joined(&[0, 1, 2], 2);
}

#[test]
fn many_that_stop_answering_are_asked_for_together() {
    let mut world = World::new(68, 40, ONE);
    world.run(5_000);
    world.nodes[1..]
        .iter_mut()
        .for_each(|node| node.down = true);
    let before = world.done("announcements");
    world.run(30_000);
    // Node 0 answers each query to all agents.
    let asked = world.done("announcements") - before;
    assert!((1..=6).contains(&asked), "{asked}");
}

/// Numbers, addresses and daemons change while messages are lost, and one node uses another's identity.
fn storm(seed: u64) {
    let config = format!("[em]\npoll_interval = 3\ngrace = 30\n{ONE}");
    let mut world = World::new(seed, 5, &config);
    world.nodes[4].down = true;
    world.run(3_000);
    world.nodes[4].down = false;
    world.make_twin_of(0);
    world.weather = super::world::Weather {
        lost: 100,
        doubled: 100,
        late: 300,
    };
    for round in 0..12_u64 {
        let n = 1 + ((seed ^ (round * 5)) % 3) as usize;
        match (seed + round) % 4 {
            0 => world.renumber_node(n, 1 + (round % 3) as u8),
            1 => world.readdress_node(n),
            2 => world.restart_engine(&config),
            _ => world.restart_node(n, 1, 4096),
        }
        world.run(700 * (1 + round % 4));
    }
    world.weather = Default::default();
    // One of both nodes is gone, and so are unused identities.
    let there = agent_of(&world, 0).at;
    let twin = if world.nodes[0].at == there { 4 } else { 0 };
    world.nodes[twin].down = true;
    world.run(150_000);
    let there: Vec<usize> = (0..5).filter(|n| *n != twin).collect();
    world.assert_joined(&there, 2);
    let engine = &world.engine;
    assert_eq!(engine.agents.len(), engine.by_endpoint.len(), "seed {seed}");
    for (at, key) in &engine.by_endpoint {
        assert_eq!(engine.agents[key].at, *at, "seed {seed}");
    }
    world.take_sets();
    let before = world.requests();
    world.run(60_000);
    assert_eq!(world.take_sets(), 0, "seed {seed}");
    let asked = world.requests() - before;
    assert!(
        asked < 20 * 5 * 8,
        "seed {seed}: {asked} requests in a minute"
    );
}

#[test]
fn after_any_storm_of_names_all_is_as_it_should_be() {
    seeds(24).for_each(storm);
}
