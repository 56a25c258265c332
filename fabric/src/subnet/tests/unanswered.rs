//! Joins of members that the subnet administrator does not answer.

use super::*;
use crate::mad::sa::{MC_MEMBER_RECORD, status};

fn to_group(n: u8) -> Destination {
    let (gid, pkey) = (group(n), PKey::DEFAULT);
    Destination { gid, pkey }
}

/// A member of the broadcast group and of group 1, whose memberships the administrator has forgotten.
fn forgotten() -> World {
    let mut world = World::new(1, 1, Faults::default());
    for mgid in [broadcast(), group(1)] {
        assert!(is_now(&world.joined(0, mgid)));
    }
    world.path(0, to_group(1)).unwrap();
    world.sa.restart();
    lose(&mut world);
    world
}

/// The administrator asks for all memberships again.
fn lose(world: &mut World) {
    world.events[0].clear();
    let now = world.now;
    world.ports[0].changed(now, true);
}

/// As [`forgotten`], and the administrator is silent for a minute.
fn silent() -> World {
    let mut world = forgotten();
    world.sa.faults.silent = true;
    for mgid in [broadcast(), group(1)] {
        assert_eq!(world.join(0, mgid), Joined::Pending);
    }
    run(&mut world, 60);
    world
}

/// Until this number of seconds is over.
fn run(world: &mut World, seconds: u64) {
    let end = world.now.after(Duration::from_secs(seconds));
    world.run(Duration::from_secs(seconds));
    world.now = end;
}

fn assert_joined(world: &World) {
    for mgid in [broadcast(), group(1)] {
        assert!(is_now(&world.answer(0, mgid)), "{:?}", world.events[0]);
        assert_eq!(world.sa.member(mgid, 0), 1);
    }
}

#[test]
fn a_member_stays_a_member_until_a_silent_administrator_answers() {
    let mut world = silent();
    assert_eq!(world.events[0], []);
    assert_eq!(world.ports[0].memberships().count(), 2);
    world.sa.faults.silent = false;
    run(&mut world, 30);
    assert_joined(&world);
    assert!(world.ports[0].is_idle());
    assert_eq!(world.ports[0].next_deadline(), None);
}

#[test]
fn a_busy_administrator_ends_no_membership() {
    let mut world = forgotten();
    world.sa.faults.busy = 3;
    for mgid in [broadcast(), group(1)] {
        assert_eq!(world.join(0, mgid), Joined::Pending);
    }
    run(&mut world, 30);
    assert_joined(&world);
    let is_refusal =
        |event: &SubnetEvent| matches!(event, SubnetEvent::Group { joined, .. } if !is_now(joined));
    assert!(!world.events[0].iter().any(is_refusal));
}

#[test]
fn the_joins_of_a_member_are_repeated_with_pauses() {
    let mut world = silent();
    let sent = |world: &World| {
        let counts = world.ports[0].counts();
        counts.requests + counts.retries
    };
    let before = sent(&world);
    run(&mut world, 600);
    // Three tries of one group in 6 s, and a pause of 16 s.
    let sent = sent(&world) - before;
    assert!((60..=90).contains(&sent), "{sent}");
}

#[test]
fn another_loss_repeats_the_joins_at_once() {
    let mut world = silent();
    run(&mut world, 600);
    world.sa.faults.silent = false;
    lose(&mut world);
    for mgid in [broadcast(), group(1)] {
        assert_eq!(world.join(0, mgid), Joined::Pending);
    }
    run(&mut world, 1);
    assert_joined(&world);
    run(&mut world, 60);
    assert_eq!(world.sa.requests[&(broadcast(), MC_MEMBER_RECORD, 0)], 2);
}

#[test]
fn a_refusal_ends_the_memberships() {
    let mut world = silent();
    world.sa.faults.silent = false;
    world.sa.faults.status = status::NO_RESOURCES;
    run(&mut world, 30);
    for mgid in [broadcast(), group(1)] {
        assert!(matches!(world.answer(0, mgid), Joined::Refused(_)));
    }
    assert_eq!(world.ports[0].memberships().count(), 0);
    assert_eq!(world.ports[0].next_deadline(), None);
}

/// The administrator may have received the joins.
#[test]
fn a_leave_ends_the_repeats_and_the_membership() {
    let mut world = forgotten();
    world.sa.faults.delay = Duration::from_secs(3600);
    assert_eq!(world.join(0, broadcast()), Joined::Pending);
    world.run(Duration::from_secs(10));
    assert_eq!(world.sa.member(broadcast(), 0), 1);
    for mgid in [group(1), broadcast()] {
        let now = world.now;
        world.ports[0].leave(now, mgid);
    }
    world.run(Duration::from_secs(60));
    assert_eq!(world.sa.member(broadcast(), 0), 0);
    assert_eq!(world.ports[0].memberships().count(), 0);
    assert!(world.ports[0].is_idle());
    let late = world.ports[0].next_deadline();
    assert!(late.is_none_or(|at| at <= world.now.after(LONGEST_SUBSCRIPTION)));
}

#[test]
fn packets_do_not_wait_while_the_administrator_is_silent() {
    let mut world = silent();
    assert!(world.path(0, to_group(1)).is_ok());
    // The port has only sent to this one, and its join waits for the broadcast group.
    assert_eq!(world.path(0, to_group(2)), Err(Unreachable::NoAnswer));
    world.sa.faults.silent = false;
    run(&mut world, 30);
    assert!(world.path(0, to_group(1)).is_ok());
    assert!(world.path(0, to_group(2)).is_ok());
}

/// A worker asks again for as long as it has packets.
#[test]
fn a_senders_join_is_repeated_for_its_packets() {
    let mut world = World::new(1, 1, Faults::default());
    assert!(is_now(&world.joined(0, broadcast())));
    world.path(0, to_group(1)).unwrap();
    // Only the group is lost, and the answers are.
    world.sa.groups.remove(&group(1));
    let now = world.now;
    world.ports[0].group_changed(now, group(1));
    world.sa.faults.delay = Duration::from_secs(3600);
    run(&mut world, 60);
    assert_eq!(world.ports[0].next_deadline(), None);
    assert_eq!(world.path(0, to_group(1)), Err(Unreachable::NoAnswer));
    assert_eq!(world.sa.member(group(1), 0), 8);
    world.sa.faults.delay = Duration::ZERO;
    assert!(world.path(0, to_group(1)).is_ok());
    // The group is left, also if the last join got no answer.
    let now = world.now;
    world.ports[0].group_changed(now, group(1));
    world.sa.faults.silent = true;
    run(&mut world, 600);
    world.sa.faults.silent = false;
    let now = world.now;
    world.ports[0].handle_timeout(now);
    run(&mut world, 60);
    assert_eq!(world.sa.member(group(1), 0), 0);
}

#[test]
fn the_question_for_an_adopted_group_is_repeated() {
    let mut world = World::new(1, 1, Faults::default());
    world.ports[0].port.kernel_pkeys = vec![PKey::DEFAULT];
    let adopt = |world: &mut World| {
        let now = world.now;
        world.ports[0].adopt(now, broadcast(), PKey::DEFAULT, QKEY);
    };
    adopt(&mut world);
    world.run(Duration::from_secs(1));
    assert!(is_now(&world.answer(0, broadcast())));
    lose(&mut world);
    world.sa.faults.silent = true;
    adopt(&mut world);
    run(&mut world, 60);
    assert_eq!(world.events[0], []);
    world.sa.faults.silent = false;
    run(&mut world, 30);
    assert!(is_now(&world.answer(0, broadcast())));
    assert_eq!(world.sa.member(broadcast(), 0), 0, "no join");
}
