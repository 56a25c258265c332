//! What senders make of the abilities of the subnet administrator.

use super::administrator::Abilities;
use super::*;
use crate::mad::sa;

/// A port in the broadcast group, whose administrator answers so; another port receives groups 1 to 9.
fn world(abilities: Option<Abilities>) -> World {
    let mut world = World::new(2, 1, Faults::default());
    for port in 0..2 {
        world.joined(port, broadcast());
    }
    for n in 1..10 {
        world.joined(1, group(n));
    }
    world.sa.faults.abilities = abilities;
    world
}

fn to_group(n: u8) -> Destination {
    let (gid, pkey) = (group(n), PKey::DEFAULT);
    Destination { gid, pkey }
}

/// Number of questions so far.
fn questions(world: &World) -> usize {
    let key = (Gid::UNSPECIFIED, sa::CLASS_PORT_INFO, 0);
    world.sa.requests.get(&key).copied().unwrap_or(0)
}

#[test]
fn the_first_senders_wait_for_one_question() {
    let mut world = world(None);
    for n in 1..4 {
        assert_eq!(world.ports[0].resolve(world.now, to_group(n)), None);
    }
    world.run(Duration::from_secs(1));
    for n in 1..4 {
        assert_eq!(world.sa.member(group(n), 0), 8);
    }
    assert_eq!(questions(&world), 1);
}

#[test]
fn without_send_only_full_member_nobody_asks_for_it_until_the_manager_changes() {
    let unsupported = Abilities::Status(0x000c);
    for abilities in [Abilities::None, Abilities::Silence, unsupported] {
        let mut world = world(Some(abilities));
        world.path(0, to_group(1)).unwrap();
        let asked = questions(&world);
        world.path(0, to_group(2)).unwrap();
        // The administrator would have granted SendOnlyFullMember, 8.
        let states = [1, 2].map(|n| world.sa.member(group(n), 0));
        assert_eq!(states, [4, 4], "{abilities:?}");
        assert_eq!(questions(&world), asked, "{abilities:?}");

        world.sa.faults.abilities = None;
        let now = world.now;
        world.ports[0].changed(now, false);
        world.path(0, to_group(3)).unwrap();
        assert_eq!(world.sa.member(group(3), 0), 8, "{abilities:?}");
        assert_eq!(questions(&world), asked + 1, "{abilities:?}");
    }
}

#[test]
fn without_send_only_full_member_a_group_that_does_not_exist_is_created() {
    let mut world = world(Some(Abilities::None));
    world.path(0, to_group(0x77)).unwrap();
    assert_eq!(world.sa.member(group(0x77), 0), 1);
}

#[test]
fn an_open_question_goes_to_the_next_manager() {
    let mut world = world(Some(Abilities::Silence));
    assert_eq!(world.ports[0].resolve(world.now, to_group(1)), None);
    world.run(Duration::from_millis(500));
    world.sa.faults.abilities = None;
    let now = world.now;
    world.ports[0].changed(now, false);
    world.run(Duration::from_secs(1));
    assert_eq!(world.sa.member(group(1), 0), 8);
}

#[test]
fn receivers_do_not_wait_for_the_answer() {
    let mut world = world(Some(Abilities::Silence));
    assert_eq!(world.ports[0].resolve(world.now, to_group(1)), None);
    world.run(Duration::from_millis(100));
    assert_eq!(world.join(0, group(1)), Joined::Pending);
    world.run(Duration::from_millis(100));
    assert!(is_now(&world.answer(0, group(1))));
    assert!(world.path(0, to_group(1)).is_ok());
    world.run(Duration::from_secs(60));
    assert_eq!(world.sa.member(group(1), 0), 1);
}
