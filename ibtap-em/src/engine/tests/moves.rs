//! Changes of addresses and of the MTU.

use super::*;

const ONE: &str = "[[vesw]]\nname = \"one\"\nid = 2\nmembers = [\"*\"]\n";
const VM: Mac = [0x52, 0x54, 0, 0x12, 0x34, 0x56];

// E03
#[test]
fn e03_what_is_behind_a_port_is_published_and_moves_with_it() {
    let mut world = World::new(20, 3, ONE);
    world.run(3_000);
    world.nodes[1]
        .agent
        .set_unicast_macs(world.now, 0, vec![VM]);
    world.run(500);
    for n in 0..3 {
        assert_eq!(world.lookup(n, VM), Some(world.info(1).encap_slid));
    }
    world.take_sets();
    // The virtual machine moves; its new node reports first.
    world.nodes[2]
        .agent
        .set_unicast_macs(world.now, 0, vec![VM]);
    world.run(500);
    for n in 0..3 {
        assert_eq!(world.lookup(n, VM), Some(world.info(2).encap_slid));
    }
    let tables = world.sets[&vnic::mad::attribute::VESW_MAC_ENTRIES];
    assert_eq!(tables, 3, "one message each");
    let lines = world
        .engine
        .log
        .iter()
        .filter(|line| line.contains("52:54:00:12:34:56"));
    assert_eq!(lines.count(), 1);
    world.nodes[1].agent.set_unicast_macs(world.now, 0, vec![]);
    world.run(500);
    assert_eq!(world.lookup(0, VM), Some(world.info(2).encap_slid));
    world.nodes[2].agent.set_unicast_macs(world.now, 0, vec![]);
    world.run(500);
    assert_eq!(world.lookup(0, VM), None);
}

#[test]
fn an_address_of_two_ports_stays_with_one_if_the_other_is_gone() {
    let config = format!("[em]\npoll_interval = 2\ngrace = 60\n{ONE}");
    let mut world = World::new(27, 3, &config);
    world.run(3_000);
    for n in [1, 2] {
        let now = world.now;
        world.nodes[n].agent.set_unicast_macs(now, 0, vec![VM]);
        world.run(1_000);
    }
    let lid = world.info(2).encap_slid;
    assert_eq!(world.lookup(0, VM), Some(lid));
    world.nodes[2].down = true;
    world.run(30_000);
    // The node may return within the grace time.
    assert_eq!(world.lookup(0, VM), Some(lid));
    world.run(60_000);
    for n in 0..2 {
        assert_eq!(world.lookup(n, VM), Some(world.info(1).encap_slid));
    }
    // It is still the newest claimant when it returns.
    world.nodes[2].down = false;
    world.run(150_000);
    assert_eq!(world.lookup(0, VM), Some(lid));
}

#[test]
fn who_has_what_two_say_they_have_does_not_change_with_a_restart() {
    for seed in 100..116 {
        let mut world = World::new(seed, 4, ONE);
        world.run(3_000);
        let (first, last) = if seed % 2 == 0 { (1, 2) } else { (2, 1) };
        for n in [first, last] {
            let now = world.now;
            world.nodes[n].agent.set_unicast_macs(now, 0, vec![VM]);
            world.run(1_000);
        }
        let lid = world.info(last).encap_slid;
        assert_eq!(world.lookup(0, VM), Some(lid));
        world.weather.late = 100;
        world.take_sets();
        for _ in 0..3 {
            world.restart_engine(ONE);
            world.run(20_000);
            assert_eq!(world.lookup(0, VM), Some(lid), "seed {seed}");
        }
        assert_eq!(world.take_sets(), 0, "seed {seed}");
        // From then on the newest claim wins.
        for macs in [vec![], vec![VM]] {
            let now = world.now;
            world.nodes[first].agent.set_unicast_macs(now, 0, macs);
            world.run(1_500);
        }
        let lid = world.info(first).encap_slid;
        assert_eq!(world.lookup(0, VM), Some(lid), "seed {seed}");
        let now = world.now;
        world.nodes[last].agent.set_unicast_macs(now, 0, vec![]);
        world.run(1_500);
        assert!(world.disk.contested.is_empty(), "seed {seed}");
    }
}

#[test]
fn a_lost_trap_is_made_up_for_by_polling() {
    let mut world = World::new(21, 2, ONE);
    world.run(3_000);
    world.weather.lost = 1000;
    world.nodes[1]
        .agent
        .set_unicast_macs(world.now, 0, vec![VM]);
    world.run(1);
    world.weather.lost = 0;
    world.run(16_000);
    assert_eq!(world.lookup(0, VM), Some(world.info(1).encap_slid));
}

#[test]
fn an_address_that_loops_does_not_keep_the_fabric_busy() {
    let mut world = World::new(22, 3, ONE);
    world.run(3_000);
    world.take_sets();
    for round in 0..100 {
        for n in 1..3 {
            let has = round % 2 == n % 2;
            let macs = if has { vec![VM] } else { vec![] };
            world.nodes[n].agent.set_unicast_macs(world.now, 0, macs);
        }
        world.run(400);
    }
    let sets = world.take_sets();
    assert!(sets < 3 * 20, "{sets} messages in 40 s");
    let damped = world
        .engine
        .log
        .iter()
        .filter(|line| line.contains("moves too often"));
    assert_eq!(damped.count(), 1);
}

// E09
#[test]
fn e09_a_member_that_carries_less_than_the_mtu_is_named_and_left_out() {
    let config = format!("{ONE}eth_mtu = 4000\n");
    let mut world = World::new(23, 2, &config);
    world.add_node(2, 1);
    world.restart_node(2, 1, 2048);
    world.run(3_000);
    world.assert_joined(&[0, 1], 2);
    assert_eq!(world.info(2).vesw_id, 0);
    let switches = world.engine.vesws(&Default::default()).unwrap();
    let problem = &switches[0].problems[0];
    assert!(
        problem.contains("n2:1:0") && problem.contains("4000") && problem.contains("2005"),
        "{problem}"
    );
    // It becomes a member once its limit is large enough.
    world.restart_node(2, 1, 4096);
    world.run(3_000);
    world.assert_joined(&[0, 1, 2], 2);
    assert_eq!(
        world.engine.vesws(&Default::default()).unwrap()[0].problems,
        [""; 0]
    );
}

#[test]
fn a_member_that_carries_less_from_now_on_is_stopped_and_returns() {
    let config = format!("{ONE}eth_mtu = 4000\n");
    let mut world = World::new(23, 3, &config);
    world.run(3_000);
    world.assert_joined(&[0, 1, 2], 2);
    let now = world.now;
    world.nodes[2].agent.set_payload_max(now, 2048);
    world.run(5_000);
    assert_eq!(world.info(2).config_state, ConfigState::DropAll);
    world.assert_joined(&[0, 1], 2);
    world.take_sets();
    world.run(60_000);
    assert_eq!(world.take_sets(), 0, "{:?}", world.sets);
    // The configuration puts the port on another switch, which it cannot carry either.
    let other = config.replace("[\"*\"]", "[\"n0:1:0\", \"n1:1:0\"]");
    let other = format!(
        "{other}[[vesw]]\nname = \"two\"\nid = 3\nmembers = [\"n2:1:0\"]\neth_mtu = 3000\n"
    );
    let now = world.now;
    world.nodes[2].agent.set_payload_max(now, 4096);
    world.run(5_000);
    world.assert_joined(&[0, 1, 2], 2);
    let now = world.now;
    world.nodes[2].agent.set_payload_max(now, 2048);
    let other = Config::parse(&other, "t").unwrap();
    world.engine.configure(world.now, other);
    world.run(5_000);
    assert_eq!(world.info(2).config_state, ConfigState::DropAll);
    world.assert_joined(&[0, 1], 2);
}

#[test]
fn the_mtu_is_lowered_at_once_and_raised_when_all_can() {
    let mut world = World::new(24, 2, ONE);
    world.run(3_000);
    assert_eq!(world.info(0).eth_mtu, 4053);
    world.add_node(2, 1);
    world.restart_node(2, 1, 2048);
    world.run(2_000);
    assert_eq!([0, 1, 2].map(|n| world.info(n).eth_mtu), [2005; 3]);
    world.assert_joined(&[0, 1, 2], 2);
    // The node is away: its new limit is unknown.
    world.nodes[2].down = true;
    world.run(100_000);
    assert_eq!(world.info(0).eth_mtu, 2005);
    world.nodes[2].down = false;
    world.restart_node(2, 1, 4096);
    world.run(3_000);
    assert_eq!([0, 1, 2].map(|n| world.info(n).eth_mtu), [4053; 3]);
}

#[test]
fn pinned_listed_and_static_addresses() {
    let config = "[[vesw]]\nname = \"one\"\nid = 2\nmembers = [\"*\"]\nmac = \"list\"\n\
        macs = [\"00:02:c9:00:00:01-00:02:c9:00:00:02\"]\n\
        pinned_macs = [{ mac = \"00:02:c9:00:00:01\", port = \"n1:1:0\" }]\n\
        static_macs = [{ mac = \"00:aa:00:00:00:01\", port = \"n0:1:0\" }]\n\
        default_ports = [{ slot = 3, port = \"n1:1:0\" }]\n";
    let mut world = World::new(25, 3, config);
    world.run(3_000);
    assert_eq!(world.info(1).base_mac_addr, [0, 2, 0xc9, 0, 0, 1]);
    let listed: Vec<usize> = [0, 2]
        .into_iter()
        .filter(|n| world.info(*n).base_mac_addr == [0, 2, 0xc9, 0, 0, 2])
        .collect();
    assert_eq!(listed.len(), 1, "there was one address left");
    let refused = 2 - listed[0];
    assert_eq!(world.info(refused).vesw_id, 0);
    // These addresses contain no LID, so they are in the tables.
    let lid = world.info(1).encap_slid;
    assert_eq!(world.lookup(listed[0], [0, 2, 0xc9, 0, 0, 1]), Some(lid));
    assert_eq!(world.info(1).def_port_mask, 1 << 3);
    assert_eq!(world.info(1).u_ucast_dlid[3], lid);
    let macs = world.engine.macs(&Default::default()).unwrap();
    assert!(macs.iter().all(|mac| mac.in_table));
}

#[test]
fn a_frame_is_explained_as_agents_decide() {
    let config = format!("{ONE}sc = {{ untagged = [1, 4], pcp_unicast = [0,0,0,0,0,7,0,0] }}\n");
    let mut world = World::new(26, 2, &config);
    world.run(3_000);
    world.nodes[1]
        .agent
        .set_unicast_macs(world.now, 0, vec![VM]);
    world.run(500);
    let explain = |mac: Mac, vid, pcp| {
        world
            .engine
            .explain(&ExplainRequest {
                vesw: "one".into(),
                dst: control::api::LinkAddress(mac),
                vid,
                pcp,
            })
            .unwrap()
    };
    let lid = world.info(1).encap_slid;
    let explained = explain(VM, None, 0);
    assert_eq!(
        (explained.dlid, explained.sc, explained.port.as_deref()),
        (lid, 1, Some("n1:1:0"))
    );
    assert!(explained.why.contains("reported by"), "{explained:?}");
    let explained = explain(world.info(1).base_mac_addr, Some(9), 5);
    assert_eq!((explained.dlid, explained.sc), (lid, 7));
    assert_eq!(explain([0xff; 6], None, 0).dlid, Lid::new(0xf0_0002));
    assert_eq!(explain([0xff; 6], None, 0).sc, 4);
    assert_eq!(explain([0x00, 0xaa, 0, 0, 0, 1], None, 0).dlid, Lid::NONE);
    assert_eq!(explain([0x02, 0x42, 0, 0, 0, 1], None, 0).dlid, Lid::NONE);
}
