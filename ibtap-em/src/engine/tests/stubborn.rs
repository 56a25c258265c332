//! Agents that do not do what they confirm, and agents that never answer.

use super::*;

const ONE: &str = "[[vesw]]\nname = \"one\"\nid = 2\nmembers = [\"*\"]\n";

#[test]
fn what_is_not_taken_is_tried_again_ever_less_often() {
    let mut world = World::new(80, 2, ONE);
    world.nodes[1].stubborn = true;
    world.run(60_000);
    assert_eq!(world.info(0).config_state, ConfigState::Forwarding);
    assert_eq!(world.info(1).vesw_id, 0);
    // Retries of the port after 1, 2, 4... seconds, of traps each 10 s; the other node also needs some.
    let sets = world.take_sets();
    assert!(sets < 30, "{sets} in a minute");
    let why = "its agent confirmed the values but reports others";
    let ports = world.engine.ports(world.now, &Default::default()).unwrap();
    assert_eq!(ports[1].condition, PortCondition::Refused);
    assert!(ports[1].problem.as_ref().unwrap().starts_with(why));
    assert_eq!(world.logged("n1:1:0 is not set up"), 1);
    assert_eq!(world.logged("does not send its traps to this manager"), 1);
    // In the end the agent accepts the values.
    world.nodes[1].stubborn = false;
    world.run(61_000);
    world.assert_joined(&[0, 1], 2);
}

/// A request for counters of two nodes; one does not answer.
fn asked(seed: u64) -> (World, crate::seam::Inquiry) {
    let mut world = World::new(seed, 2, ONE);
    world.run(3_000);
    world.nodes[1].down = true;
    let all = Default::default();
    let inquiry = world.engine.ask_counters(world.now, &all).unwrap();
    world.run(100);
    assert!(world.engine.take_counters(inquiry).is_none());
    (world, inquiry)
}

#[test]
fn who_asks_for_counters_is_answered_when_the_way_is_gone() {
    let (mut world, inquiry) = asked(81);
    world.engine.attach(world.now, None);
    let counters = world.engine.take_counters(inquiry).unwrap();
    assert_eq!(counters[0].counters.get("tx_packets"), Some(100));
    assert!(counters[1].problem.is_some());
}

#[test]
fn who_asks_for_counters_is_answered_when_the_agent_is_forgotten() {
    let (mut world, inquiry) = asked(82);
    let agent = AgentKey::of(node_key(1, 0));
    world.engine.drop_agent(agent, "it was forgotten");
    let counters = world.engine.take_counters(inquiry).unwrap();
    assert_eq!(counters[1].problem.as_deref(), Some("it was forgotten"));
}

#[test]
fn too_many_inquiries_are_refused_and_none_is_forgotten() {
    let mut world = World::new(83, 1, ONE);
    world.run(3_000);
    let all = Default::default();
    let mut open = Vec::new();
    let error = loop {
        match world.engine.ask_counters(world.now, &all) {
            Ok(inquiry) => open.push(inquiry),
            Err(error) => break error,
        }
        assert!(open.len() <= 64);
    };
    assert!(error.contains("try again"), "{error}");
    world.run(1_000);
    for inquiry in open {
        assert!(world.engine.take_counters(inquiry).is_some());
    }
}

#[test]
fn a_description_of_two_nodes_is_logged() {
    let config = format!(
        "{ONE}default_ports = [{{ slot = 0, port = \"n0:1:0\" }}]\n\
         static_macs = [{{ mac = \"00:02:c9:00:00:01\", port = \"n0:1:0\" }}]\n"
    );
    let mut world = World::new(85, 2, &config);
    world.run(5_000);
    let problems = |world: &World| world.engine.overview(world.now).problems;
    assert_eq!(problems(&world), [""; 0]);
    let mut info = world.nodes[1].agent.node_info(0);
    info.description = "n0".into();
    let at = world.nodes[1].at;
    world.announce(at, &info);
    world.run(1_000);
    let [first, second] = [0, 1].map(|n| node_key(n, 0));
    let problem = format!(
        "one: n0:1:0 matches two ports, {first} and {second}; the first is used; name the port by its GUID"
    );
    assert_eq!(problems(&world), [problem]);
}

#[test]
fn a_missing_pinned_port_is_logged_once_all_agents_are_found() {
    let config = format!(
        "{ONE}pinned_macs = [{{ mac = \"00:02:c9:00:00:01\", port = \"n0:1:0\" }}, \
         {{ mac = \"00:02:c9:00:00:02\", port = \"ghost:1:0\" }}]\n"
    );
    let mut world = World::new(84, 1, &config);
    world.run(1_500);
    assert_eq!(world.logged("pinned_macs"), 0);
    world.run(30_000);
    let problem =
        "pinned_macs: 00:02:c9:00:00:02 is for ghost:1:0, which is absent or not a member";
    let switches = world.engine.vesws(&Default::default()).unwrap();
    assert_eq!(switches[0].problems, [problem]);
    assert_eq!(world.logged("pinned_macs"), 1);
    let problems = world.engine.overview(world.now).problems;
    assert_eq!(problems, [format!("one: {problem}")]);
}
