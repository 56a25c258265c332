//! Nodes and managers that start, end and return.

use super::*;

const ONE: &str = "[[vesw]]\nname = \"one\"\nid = 2\nmembers = [\"*\"]\n";

fn names(world: &World) -> Vec<PortCondition> {
    let ports = world.engine.ports(world.now, &Default::default()).unwrap();
    ports.iter().map(|port| port.condition).collect()
}

#[test]
fn nodes_get_what_they_need_and_forward() {
    let mut world = World::new(1, 3, ONE);
    world.run(3_000);
    world.assert_joined(&[0, 1, 2], 2);
    assert_eq!(names(&world), [PortCondition::Forwarding; 3]);
    for n in 0..3 {
        let info = world.info(n).clone();
        assert_eq!(info.eth_mtu, 4053);
        assert_eq!(info.u_mcast_dlid, Lid::new(0xf0_0002));
        // E02: the addresses contain the LIDs; no table is needed.
        assert_eq!(world.nodes[n].host.macs[&0], info.base_mac_addr);
        assert_eq!(
            &info.base_mac_addr[3..],
            &info.encap_slid.get().to_le_bytes()[..3]
        );
        assert_eq!(world.nodes[n].host.tables[&0].len(), 0);
    }
    let numbers: BTreeSet<u32> = (0..3).map(|n| world.info(n).port_num).collect();
    assert_eq!(numbers, [1, 2, 3].into());
}

// E05
#[test]
fn e05_a_manager_that_starts_again_sets_nothing() {
    let mut world = World::new(2, 5, ONE);
    world.run(3_000);
    let extra = vec![[0, 1, 2, 3, 4, 5], [0x52, 0x54, 0, 1, 2, 3]];
    world.nodes[1].agent.set_unicast_macs(world.now, 0, extra);
    world.run(3_000);
    assert_eq!(
        world.lookup(0, [0, 1, 2, 3, 4, 5]),
        Some(world.info(1).encap_slid)
    );
    // A node that misses an answer does not make other members drop its addresses.
    world.nodes[4].down = true;
    world.take_sets();
    for _ in 0..3 {
        world.restart_engine(ONE);
        world.run(60_000);
    }
    assert_eq!(world.take_sets(), 0, "{:?}", world.sets);
    assert_eq!(
        world.lookup(0, [0, 1, 2, 3, 4, 5]),
        Some(world.info(1).encap_slid)
    );
}

#[test]
fn a_manager_without_its_state_takes_what_is_there() {
    let mut world = World::new(3, 4, ONE);
    world.run(3_000);
    let before: Vec<_> = (0..4).map(|n| world.info(n).clone()).collect();
    world.disk = State::default();
    world.take_sets();
    world.restart_engine(ONE);
    world.run(30_000);
    assert_eq!(world.take_sets(), 0, "{:?}", world.sets);
    for (n, before) in before.iter().enumerate() {
        assert_eq!(world.info(n), before);
    }
}

// E06
#[test]
fn who_manages_no_longer_repeats_nothing_that_it_has_set() {
    let mut world = World::new(48, 1, ONE);
    let mut seen = 0;
    while world.done("sets") < 3 {
        world.run(1);
        seen += 1;
        assert!(seen < 5_000, "it sets nothing");
    }
    // The last page was lost and is sent again.
    world.nodes[0].down = true;
    world.run(100);
    world.take_sets();
    world.engine.set_active(world.now, false);
    world.nodes[0].down = false;
    world.run(10_000);
    assert_eq!(world.take_sets(), 0, "{:?}", world.sets);
    world.engine.set_active(world.now, true);
    world.run(10_000);
    world.assert_joined(&[0], 2);
}

#[test]
fn e06_an_agent_that_starts_again_gets_everything() {
    let mut world = World::new(4, 3, ONE);
    world.run(3_000);
    let lid = world.info(1).encap_slid;
    world.take_sets();
    world.restart_node(1, 1, 4096);
    world.run(3_000);
    world.assert_joined(&[0, 1, 2], 2);
    assert_eq!(world.info(1).encap_slid, lid);
}

#[test]
fn who_is_gone_is_kept_for_the_grace_time_and_then_left_out() {
    let config = format!("[em]\npoll_interval = 2\ngrace = 60\n{ONE}");
    let mut world = World::new(5, 3, &config);
    world.run(3_000);
    let lid = world.info(2).encap_slid;
    world.nodes[2].down = true;
    world.run(30_000);
    assert!(world.nodes[0].host.directories[&0].nodes.contains_key(&lid));
    assert_eq!(names(&world)[2], PortCondition::Away);
    assert!(
        world
            .engine
            .log
            .iter()
            .any(|l| l.contains("n2") && l.contains("no longer answers"))
    );
    world.run(60_000);
    world.assert_joined(&[0, 1], 2);
    // It returns; no other port got its LID meanwhile.
    world.nodes[2].down = false;
    world.restart_node(2, 1, 4096);
    world.run(5_000);
    world.assert_joined(&[0, 1, 2], 2);
    assert_eq!(world.info(2).encap_slid, lid);
}

#[test]
fn a_manager_that_is_gone_interrupts_nobody() {
    let mut world = World::new(6, 3, ONE);
    world.run(3_000);
    world.engine.attach(world.now, None);
    world.take_sets();
    world.run(600_000);
    assert_eq!(world.take_sets(), 0);
    // E11
    world.assert_joined(&[0, 1, 2], 2);
    world.engine.attach(world.now, Some(world.own));
    world.run(15_000);
    assert_eq!(world.take_sets(), 0);
}

#[test]
fn a_standby_sets_nothing_and_takes_over_what_there_is() {
    let mut world = World::new(7, 3, ONE);
    world.run(3_000);
    let active = std::mem::replace(
        &mut world.engine,
        Engine::new(Config::parse(ONE, "t").unwrap(), State::default(), 77),
    );
    world.own.qpn = proto::Qpn::new(0x99);
    world.engine.attach(world.now, Some(world.own));
    world.take_sets();
    world.run(60_000);
    assert_eq!(world.take_sets(), 0);
    assert_eq!(world.engine.state().members, active.state().members);
    // E12: it sets the traps; nothing else has to change.
    world.engine.set_active(world.now, true);
    world.run(30_000);
    let traps = world.sets.remove(&vnic::mad::attribute::CLASS_PORT_INFO);
    assert_eq!(traps, Some(3));
    assert_eq!(world.take_sets(), 0);
    world.assert_joined(&[0, 1, 2], 2);
}

#[test]
fn two_switches_have_each_their_own() {
    let config = "[[vesw]]\nname = \"a\"\nid = 2\nmembers = [\"n?:1:0\"]\n\
                  [[vesw]]\nname = \"b\"\nid = 4095\nfabric_id = 0x301\nmembers = [\"n*:1:1\"]\n";
    let mut world = World::new(8, 0, config);
    for n in 0..3 {
        world.add_node(n, 2);
    }
    world.run(3_000);
    world.assert_joined(&[0, 1, 2], 2);
    for n in 0..3 {
        let node = &world.nodes[n];
        assert_eq!(node.agent.port(1).unwrap().vesw_id, 4095);
        let (a, b) = (&node.host.directories[&0], &node.host.directories[&1]);
        assert_eq!((a.nodes.len(), b.nodes.len()), (3, 3));
        assert!(a.nodes.keys().all(|lid| !b.nodes.contains_key(lid)));
    }
}

#[test]
fn a_port_that_leaves_is_deleted_and_its_lid_rests() {
    let config =
        |pattern: &str| format!("[[vesw]]\nname = \"a\"\nid = 2\nmembers = [\"{pattern}\"]\n");
    let parse = |text: &str| Config::parse(text, "t").unwrap();
    let mut world = World::new(9, 3, &config("*"));
    world.run(3_000);
    let lid = world.info(2).encap_slid;
    world
        .engine
        .configure(world.now, parse(&config("n[01]:1:0").replace("[01]", "?")));
    world.run(1_000);
    world.assert_joined(&[0, 1, 2], 2);
    let only = config("n0:1:0").replace("\"n0:1:0\"", "\"n0:1:0\", \"n1:1:0\"");
    world.engine.configure(world.now, parse(&only));
    world.run(1_000);
    world.assert_joined(&[0, 1], 2);
    assert_eq!(world.info(2).vesw_id, 0);
    assert_eq!(world.disk.quarantined.get(&lid), Some(&node_key(2, 0)));
    world.run(61_000);
    assert!(world.disk.quarantined.is_empty());
}

#[test]
fn an_absent_port_that_is_no_member_since_a_restart_is_released() {
    let mut world = World::new(9, 3, ONE);
    world.run(3_000);
    let lid = world.info(2).encap_slid;
    world.nodes[2].down = true;
    world.restart_engine(&ONE.replace("\"*\"", "\"n0:1:0\", \"n1:1:0\""));
    world.run(40_000);
    world.assert_joined(&[0, 1], 2);
    assert!(!world.disk.members.contains_key(&node_key(2, 0)));
    assert_eq!(world.disk.quarantined.get(&lid), Some(&node_key(2, 0)));
}

/// A daemon deletes a VNIC and lives on. The port of the VNIC leaves the file later.
#[test]
fn a_deleted_port_of_a_living_node_is_released_with_its_pattern() {
    for pattern in ["n0:1:*", "n0:1:1"] {
        let config = |others: &str| {
            format!("[[vesw]]\nname = \"a\"\nid = 2\nmembers = [\"n1:1:0\"{others}]\n")
        };
        let mut world = World::new(9, 0, &config(&format!(", \"{pattern}\"")));
        world.add_node(0, 2);
        world.add_node(1, 1);
        world.run(3_000);
        let lid = world.nodes[0].agent.port(1).unwrap().encap_slid;
        let knows = |world: &World| world.nodes[1].host.directories[&0].nodes.contains_key(&lid);
        assert!(knows(&world), "{pattern}");
        let now = world.now;
        world.nodes[0].agent.remove_port(now, 1);
        world.run(20_000);
        let without = Config::parse(&config(""), "t").unwrap();
        world.engine.configure(world.now, without);
        world.run(1_000);
        let members = &world.disk.members;
        assert!(!members.contains_key(&node_key(0, 1)), "{pattern}");
        assert!(!knows(&world), "{pattern}");
        let resting = world.disk.quarantined.get(&lid);
        assert_eq!(resting, Some(&node_key(0, 1)), "{pattern}");
    }
}

#[test]
fn a_renumbered_switch_is_never_two_at_once() {
    let mut world = World::new(10, 3, ONE);
    world.run(3_000);
    let lids: Vec<Lid> = (0..3).map(|n| world.info(n).encap_slid).collect();
    world.engine.configure(
        world.now,
        Config::parse(&ONE.replace("id = 2", "id = 77"), "t").unwrap(),
    );
    // Stopped first, with the new number; the old port never forwards with the new address.
    for _ in 0..200 {
        world.run(5);
        for n in 0..3 {
            let info = world.info(n);
            if info.config_state == ConfigState::Forwarding && info.vesw_id == 77 {
                assert!(!world.nodes[n].host.directories[&0].nodes.is_empty());
            }
        }
    }
    world.run(2_000);
    world.assert_joined(&[0, 1, 2], 77);
    let now: Vec<Lid> = (0..3).map(|n| world.info(n).encap_slid).collect();
    assert_eq!(now, lids);
}

#[test]
fn draining_holds_and_lets_go_again() {
    let mut world = World::new(11, 2, ONE);
    world.run(3_000);
    let drain = |target: &str, undo| DrainRequest {
        target: target.into(),
        undo,
    };
    world
        .engine
        .drain(world.now, &drain("n1:1:0", false))
        .unwrap();
    world.run(1_000);
    assert_eq!(world.info(1).config_state, ConfigState::DropAll);
    assert_eq!(world.info(0).config_state, ConfigState::Forwarding);
    assert_eq!(names(&world)[1], PortCondition::Drained);
    world.engine.drain(world.now, &drain("one", false)).unwrap();
    world.run(1_000);
    // The drain survives a restart.
    world.restart_engine(ONE);
    world.run(15_000);
    assert_eq!(world.info(0).config_state, ConfigState::DropAll);
    // One drain remains, of the port or of the switch.
    let still = |port: &str, by: &str| StillDrained {
        port: port.into(),
        by: by.into(),
    };
    let undone = world.engine.drain(world.now, &drain("2", true)).unwrap();
    assert_eq!(undone.still_drained, [still("n1:1:0", "n1:1:0")]);
    let again = world.engine.drain(world.now, &drain("one", false)).unwrap();
    assert_eq!(again.still_drained, []);
    let undone = world.engine.drain(world.now, &drain("*", true)).unwrap();
    let both = [still("n0:1:0", "one"), still("n1:1:0", "one")];
    assert_eq!(undone.still_drained, both);
    world.engine.drain(world.now, &drain("one", true)).unwrap();
    world.run(1_000);
    world.assert_joined(&[0, 1], 2);
    let error = world
        .engine
        .drain(world.now, &drain("two", false))
        .unwrap_err();
    assert!(error.contains("no switch \"two\""), "{error}");
}

#[test]
fn a_port_that_the_file_names_is_made() {
    let config = "[[vesw]]\nname = \"a\"\nid = 2\nmembers = [\"n0:1:5\", \"n1:1:5\"]\n";
    let mut world = World::new(12, 2, config);
    world.may_create(0);
    world.run(5_000);
    assert_eq!(
        world.nodes[0].agent.port(5).unwrap().config_state,
        ConfigState::Forwarding
    );
    // The other node does not let managers create ports.
    assert!(world.nodes[1].agent.port(5).is_none());
    let ports = world.engine.ports(world.now, &Default::default()).unwrap();
    let refused = ports
        .iter()
        .find(|p| p.port == node_key(1, 5).to_string())
        .unwrap();
    assert_eq!(refused.condition, PortCondition::Refused);
    assert!(
        refused.problem.as_ref().unwrap().contains("0x001c"),
        "{refused:?}"
    );
}

#[test]
fn counters_come_from_the_agents() {
    let mut world = World::new(13, 3, ONE);
    world.run(3_000);
    world.nodes[2].down = true;
    let inquiry = world
        .engine
        .ask_counters(world.now, &Default::default())
        .unwrap();
    assert!(world.engine.take_counters(inquiry).is_none());
    world.run(20_000);
    let counters = world.engine.take_counters(inquiry).unwrap();
    assert_eq!(counters.len(), 3);
    assert_eq!(counters[0].counters.get("tx_packets"), Some(100));
    assert_eq!(counters[1].counters.get("rx_runt"), Some(7));
    assert_eq!(
        counters[2].problem.as_deref(),
        Some("its agent does not answer")
    );
    let nobody = crate::api::PortSelection {
        port: Some("x:1:0".into()),
    };
    assert!(world.engine.ask_counters(world.now, &nobody).is_err());
}
