//! A fabric that loses, repeats and delays messages; restarts; a full disk.

use super::world::Weather;
use super::*;

const CONFIG: &str = "[em]\npoll_interval = 3\ngrace = 30\n\
    [[vesw]]\nname = \"one\"\nid = 2\nmembers = [\"*\"]\n";

fn storm(seed: u64) {
    let mut world = World::new(seed, 6, CONFIG);
    world.weather = Weather {
        lost: 100,
        doubled: 100,
        late: 300,
    };
    for round in 0..12_u64 {
        let n = ((seed ^ (round * 5)) % 6) as usize;
        match (seed + round) % 5 {
            0 => world.restart_engine(CONFIG),
            1 => world.restart_node(n, 1, 4096),
            2 => {
                let macs = (0..round as u8 * 20).map(|m| [0, 1, 2, n as u8, 9, m]);
                world.nodes[n]
                    .agent
                    .set_unicast_macs(world.now, 0, macs.collect());
            }
            3 => world.nodes[n].down = true,
            _ => world.nodes.iter_mut().for_each(|node| node.down = false),
        }
        world.run(700 * (1 + round % 4));
    }
    // The faults end, and everything becomes right. An agent whose announcements were all lost is found by
    // the query to all agents, each minute.
    world.weather = Weather::default();
    world.nodes.iter_mut().for_each(|node| node.down = false);
    world.run(75_000);
    world.assert_joined(&[0, 1, 2, 3, 4, 5], 2);
    let tables: Vec<_> = (0..6)
        .map(|n| world.nodes[n].host.tables[&0].clone())
        .collect();
    let expected = world.engine.macs(&Default::default()).unwrap();
    for (n, table) in tables.iter().enumerate() {
        let wanted = expected.iter().filter(|mac| mac.in_table);
        assert_eq!(table.len(), wanted.clone().count(), "seed {seed}: n{n}");
        for mac in wanted {
            assert_eq!(table.lookup(mac.mac.0), Some(mac.lid), "seed {seed}: n{n}");
        }
    }
    let lids: BTreeSet<Lid> = (0..6).map(|n| world.info(n).encap_slid).collect();
    assert_eq!(lids.len(), 6, "seed {seed}");
    // After that the engine is idle.
    world.take_sets();
    world.run(60_000);
    assert_eq!(world.take_sets(), 0, "seed {seed}");
}

#[test]
fn after_any_storm_all_is_as_it_should_be() {
    seeds(40).for_each(storm);
}

#[test]
fn what_was_given_is_kept_over_restarts_in_a_storm() {
    let mut world = World::new(40, 4, CONFIG);
    world.run(5_000);
    let before: Vec<Lid> = (0..4).map(|n| world.info(n).encap_slid).collect();
    world.weather = Weather {
        lost: 200,
        doubled: 200,
        late: 500,
    };
    for n in 0..4 {
        world.restart_engine(CONFIG);
        world.restart_node(n, 1, 4096);
        world.run(2_500);
    }
    world.weather = Weather::default();
    world.run(30_000);
    world.assert_joined(&[0, 1, 2, 3], 2);
    assert_eq!(
        (0..4).map(|n| world.info(n).encap_slid).collect::<Vec<_>>(),
        before
    );
}

#[test]
fn the_same_comes_out_of_the_same() {
    let run = || {
        let mut world = World::new(41, 5, CONFIG);
        world.weather.late = 50;
        world.run(10_000);
        (world.sent, world.disk.clone(), world.engine.log.clone())
    };
    assert_eq!(run(), run());
}

#[test]
fn a_full_disk_is_reported_and_the_manager_continues() {
    let mut world = World::new(42, 2, CONFIG);
    world.disk_full = true;
    world.run(5_000);
    world.assert_joined(&[0, 1], 2);
    let problems = world.engine.overview(world.now).problems;
    assert_eq!(problems, ["cannot write the state: no space left"]);
    assert!(world.disk.members.is_empty());
    world.disk_full = false;
    world.run(15_000);
    assert_eq!(world.engine.overview(world.now).problems, [""; 0]);
    assert_eq!(world.disk.members.len(), 2);
}

#[test]
fn settings_of_another_manager_are_corrected() {
    let mut world = World::new(43, 2, CONFIG);
    world.run(5_000);
    // Simulates a late message with another table and another address.
    let at = Endpoint {
        gid: world.own.gid,
        qpn: world.own.qpn,
    };
    let address = vnic::carriage::Address {
        gid: at.gid,
        qpn: at.qpn,
        by_group: false,
    };
    let entries = vnic::mad::MacEntries {
        offset: 100,
        digest: 0x1234_5678,
        entries: vec![vnic::mac_table::MacEntry {
            mac: [0, 1, 1, 1, 1, 1],
            mask: [0; 6],
            dlid_sd: 0x500,
        }],
    };
    let set = |id| vnic::mad::Header::new(vnic::mad::method::SET, id, 0, 1);
    let table = vnic::mad::write(&set(vnic::mad::attribute::VESW_MAC_ENTRIES), &entries);
    let mut info = world.info(1).clone();
    info.eth_mtu = 1000;
    let info = vnic::mad::write(&set(vnic::mad::attribute::VESW_PORT_INFO), &info);
    let node = &mut world.nodes[1];
    for mad in [table, info] {
        assert!(
            node.agent
                .handle(world.now, address, &mad, &mut node.host)
                .is_some()
        );
    }
    assert_eq!(world.lookup(1, [0, 1, 1, 1, 1, 1]), Some(Lid::new(5)));
    world.run(5_000);
    assert_eq!(world.lookup(1, [0, 1, 1, 1, 1, 1]), None);
    assert_eq!(world.info(1).eth_mtu, 4053);
    world.assert_joined(&[0, 1], 2);
}

#[test]
fn a_message_of_a_table_that_came_again_is_seen() {
    let (a, b) = ([0, 1, 1, 1, 1, 1], [0, 1, 1, 1, 1, 2]);
    let mut world = World::new(47, 2, CONFIG);
    let reports = |world: &mut World, macs: &[Mac]| {
        let now = world.now;
        world.nodes[0].agent.set_unicast_macs(now, 0, macs.to_vec());
        world.run(8_000);
        world.info(1).mac_tbl_digest
    };
    reports(&mut world, &[a, b]);
    // The first message empties the first place; the address stays in the second.
    let digest = reports(&mut world, &[b]);
    reports(&mut world, &[]);
    // The same table as before, but with the address in the first place.
    reports(&mut world, &[b]);
    let lid = world.info(0).encap_slid;
    assert_eq!(world.lookup(1, b), Some(lid));
    // The first message arrives again.
    empty_first_place(&mut world, digest);
    assert_eq!(world.lookup(1, b), None);
    world.run(8_000);
    assert_eq!(world.lookup(1, b), Some(lid));
}

#[test]
fn a_late_message_between_two_others_is_found() {
    let (a, b) = ([0, 1, 1, 1, 1, 1], [0, 1, 1, 1, 1, 2]);
    let mut world = World::new(48, 2, CONFIG);
    world.run(5_000);
    let now = world.now;
    world.nodes[0].agent.set_unicast_macs(now, 0, vec![a]);
    world.run(8_000);
    let lid = world.info(0).encap_slid;
    assert_eq!(world.lookup(1, a), Some(lid));
    empty_first_place(&mut world, 0x1234_5678);
    // Before the next poll the agent receives another table.
    let now = world.now;
    world.nodes[0].agent.set_unicast_macs(now, 0, vec![a, b]);
    world.run(300);
    assert_eq!((world.lookup(1, a), world.lookup(1, b)), (None, Some(lid)));
    world.run(20_000);
    assert_eq!(
        (world.lookup(1, a), world.lookup(1, b)),
        (Some(lid), Some(lid))
    );
}

/// Simulates an old message of the manager that arrives at node 1.
fn empty_first_place(world: &mut World, digest: u32) {
    let late = vnic::mad::MacEntries {
        offset: 0,
        digest,
        entries: vec![vnic::mac_table::MacEntry::default()],
    };
    let set = vnic::mad::attribute::VESW_MAC_ENTRIES;
    let header = vnic::mad::Header::new(vnic::mad::method::SET, set, 0, 1);
    let from = vnic::carriage::Address {
        gid: world.own.gid,
        qpn: world.own.qpn,
        by_group: false,
    };
    let mad = vnic::mad::write(&header, &late);
    let node = &mut world.nodes[1];
    let answer = node.agent.handle(world.now, from, &mad, &mut node.host);
    assert!(answer.is_some());
}

#[test]
fn answers_of_others_are_none() {
    let mut world = World::new(44, 1, CONFIG);
    world.run(5_000);
    let before = world.engine.show_overview();
    let forged = Endpoint {
        gid: "fe80::bad".parse().unwrap(),
        qpn: proto::Qpn::new(9),
    };
    for tid in 0..2_000_u64 {
        let header = vnic::mad::Header::new(
            vnic::mad::method::GET_RESP,
            vnic::mad::attribute::VESW_PORT_INFO,
            0,
            45 << 32 | tid,
        );
        let mad = vnic::mad::write(&header, &vnic::attribute::VeswPortInfo::default());
        world.engine.receive(world.now, forged, &mad);
    }
    world.take_sets();
    world.run(10_000);
    assert_eq!(world.take_sets(), 0);
    let after = world.engine.show_overview();
    assert_eq!(before.forwarding, after.forwarding);
}

proptest::proptest! {
    #![proptest_config(proptest::test_runner::Config::with_cases(48))]

    #[test]
    fn any_bytes_from_anybody_are_borne(mads in proptest::collection::vec(
        proptest::collection::vec(proptest::num::u8::ANY, 0..300), 0..20), attribute: u16, method: u8,
    ) {
        let mut world = World::new(45, 1, CONFIG);
        world.run(3_000);
        let from = world.nodes[0].at;
        for data in mads {
            let header = vnic::mad::Header::new(method, attribute, 0, 45 << 32 | 3);
            let mut mad = vnic::mad::write_empty(&header);
            mad.extend(&data);
            world.engine.receive(world.now, from, &data);
            world.engine.receive(world.now, from, &mad);
        }
        world.run(20_000);
        world.assert_joined(&[0], 2);
    }
}

#[test]
fn two_nodes_of_one_guid_are_logged_once() {
    let mut world = World::new(46, 2, CONFIG);
    world.run(5_000);
    for n in 0..40 {
        let mut info = world.nodes[0].agent.node_info(0);
        let mut from = world.nodes[0].at;
        if n % 2 == 0 {
            info.incarnation ^= 1;
            from.gid = "fe80::2".parse().unwrap();
        }
        let header = vnic::mad::Header::new(3, vnic::mad::attribute::NODE_INFO, 0, n);
        world
            .engine
            .receive(world.now, from, &vnic::mad::write(&header, &info));
        world.run(100);
    }
    let lines = world
        .engine
        .log
        .iter()
        .filter(|line| line.contains("0x020000fffe000000:1"));
    let (two, moves): (Vec<&String>, Vec<&String>) =
        lines.partition(|l| l.contains("both announce"));
    assert_eq!(two.len(), 1, "{two:?}");
    assert!(moves.len() < 5, "{moves:?}");
    world.run(20_000);
    world.assert_joined(&[0, 1], 2);
}
