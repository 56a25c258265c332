//! Who is an agent, and where: numbers and addresses that change, and names that are taken.

use vnic::attribute::NodeInfo;

use super::*;

const ONE: &str = "[[vesw]]\nname = \"one\"\nid = 2\nmembers = [\"*\"]\n";
/// As many addresses as there are nodes.
const LISTED: &str = "[[vesw]]\nname = \"one\"\nid = 2\nmembers = [\"*\"]\nmac = \"list\"\n\
                      macs = [\"00:02:c9:00:00:01-00:02:c9:00:00:02\"]\n";

fn agent_of(world: &World, n: usize) -> &Agent {
    &world.engine.agents[&AgentKey::of(node_key(n, 0))]
}

fn forger() -> Endpoint {
    Endpoint {
        gid: "fe80::bad".parse().unwrap(),
        qpn: fabric::Qpn::new(9),
    }
}

/// What a forger says in the name of node `n`.
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
    // A poll each 15 s, and what it takes to set up one port.
    let asked = world.requests() - before;
    assert!(asked < 100, "{asked} requests in a minute");
    let second = PortKey { port: 2, ..first };
    let members: Vec<&PortKey> = world.engine.state().members.keys().collect();
    assert_eq!(members, [&node_key(0, 0), &second]);
    assert_eq!(world.engine.agents.len(), world.engine.by_endpoint.len());
    assert_eq!(world.engine.agents.len(), 2);
    // There was no other address left.
    assert_eq!([0, 1].map(|n| world.info(n).base_mac_addr), macs);
    assert_eq!(world.info(0).encap_slid, kept.encap_slid);
}

#[test]
fn an_endpoint_that_answers_with_another_name_is_another_agent() {
    let mut world = World::new(61, 2, ONE);
    world.run(5_000);
    // Nobody hears it announce itself.
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
fn names_that_change_all_the_time_are_not_followed() {
    let mut world = World::new(62, 1, ONE);
    world.run(5_000);
    for n in 0..1_000_u64 {
        let mut info = forged(&world, 0);
        info.guid = fabric::Guid(n.to_be_bytes());
        world.announce(forger(), &info);
        world.run(2);
    }
    assert_eq!(world.engine.agents.len(), 2);
    assert!(world.told("(0x00000000000") < 8, "{:?}", world.engine.log);
    assert!(world.done("agents_refused") > 900);
}
