//! Groups with separate multicast LIDs.

use super::*;

const GROUP: Mac = [0x01, 0x00, 0x5e, 0, 0, 0xfb];
const LID: Lid = Lid::new(0xf0_0100);
const PLAIN: &str = "[[vesw]]\nname = \"one\"\nid = 2\nmembers = [\"*\"]\n";

fn config() -> String {
    format!("{PLAIN}groups = [{{ mac = \"01:00:5e:00:00:fb\", lid = 0xf00100 }}]\n")
}

#[test]
fn a_group_goes_to_its_lid_from_everywhere_until_the_configuration_changes() {
    let mut world = World::new(90, 3, &config());
    world.run(3_000);
    world.assert_joined(&[0, 1, 2], 2);
    for n in 0..3 {
        assert_eq!(world.lookup(n, GROUP), Some(LID));
        assert_eq!(world.lookup(n, [0x01, 0, 0x5e, 0, 0, 0xfc]), None);
    }
    let plain = Config::parse(PLAIN, "t").unwrap();
    world.engine.configure(world.now, plain);
    world.run(500);
    assert_eq!(world.lookup(0, GROUP), None);
    let again = Config::parse(&config(), "t").unwrap();
    world.engine.configure(world.now, again);
    world.run(500);
    assert_eq!(world.lookup(0, GROUP), Some(LID));
}

#[test]
fn a_full_table_has_the_groups_and_not_all_that_was_reported() {
    let mut world = World::new(91, 8, &config());
    world.run(3_000);
    for n in 0..8 {
        let macs = (0..=255).map(|m| [0, 2, 0xc9, n as u8, 0, m]).collect();
        world.nodes[n].agent.set_unicast_macs(world.now, 0, macs);
    }
    world.run(5_000);
    for n in 0..8 {
        assert_eq!(world.nodes[n].host.tables[&0].len(), 2048);
        assert_eq!(world.lookup(n, GROUP), Some(LID));
    }
    let switches = world.engine.vesws(&Default::default()).unwrap();
    assert!(switches[0].problems[0].contains("; 1 addresses are left out"));
}

#[test]
fn groups_are_shown_with_who_listens() {
    let mut world = World::new(92, 3, &config());
    world.run(3_000);
    let now = world.now;
    world.nodes[1]
        .agent
        .set_multicast_macs(now, 0, vec![GROUP, [0x33, 0x33, 0, 0, 0, 1]]);
    world.run(1_000);
    let shown = &world.engine.vesws(&Default::default()).unwrap()[0].groups;
    assert_eq!((shown[0].mac.0, shown[0].lid), (GROUP, LID));
    assert_eq!((shown.len(), shown[0].listeners), (1, 1));
    let macs = world.engine.macs(&Default::default()).unwrap();
    let shown = macs.iter().find(|mac| mac.mac.0 == GROUP).unwrap();
    assert_eq!(
        (shown.lid, shown.origin),
        (LID, crate::api::MacOrigin::Group)
    );
    assert_eq!(
        (&shown.port, &shown.name, shown.in_table),
        (&None, &None, true)
    );
    let explain = |mac: Mac| {
        let request = ExplainRequest {
            vesw: "one".into(),
            dst: control::api::LinkAddress(mac),
            vid: None,
            pcp: 0,
        };
        world.engine.explain(&request).unwrap()
    };
    let explained = explain(GROUP);
    assert_eq!(
        (explained.dlid, explained.listeners_only, explained.port),
        (LID, true, None)
    );
    assert_eq!(explained.why, "in the MAC table: from groups");
    let explained = explain([0x33, 0x33, 0, 0, 0, 1]);
    assert_eq!(
        (explained.dlid, explained.listeners_only),
        (Lid::new(0xf0_0002), false)
    );
}
