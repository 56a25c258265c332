//! The ends of memberships, and what packets to their groups learn of the ends.

use super::*;
use crate::mad::sa::{McMemberRecord, Selected};

fn to_group(gid: Gid) -> Destination {
    let pkey = PKey::DEFAULT;
    Destination { gid, pkey }
}

/// A port in the broadcast group.
fn world() -> World {
    let mut world = World::new(1, 1, Faults::default());
    assert!(is_now(&world.joined(0, broadcast())));
    world
}

fn leave(world: &mut World, mgid: Gid) {
    let now = world.now;
    world.ports[0].leave(now, mgid);
}

/// The network loses the waiting datagrams.
fn lose_datagrams(world: &mut World) {
    while world.ports[0].poll_transmit().is_some() {}
}

/// Whether an event says that the path to a group is not valid any more.
fn path_ended(world: &World, mgid: Gid) -> bool {
    let is_end = |event: &SubnetEvent| {
        matches!(event, SubnetEvent::Path { destination, path: Err(Unreachable::Refused(_)) }
            if destination.gid == mgid)
    };
    world.events[0].iter().any(is_end)
}

#[test]
fn a_repeated_leave_does_not_end_a_membership_that_was_joined_again() {
    let mut world = world();
    leave(&mut world, broadcast());
    lose_datagrams(&mut world);
    assert!(is_now(&world.joined(0, broadcast())));
    assert_eq!(world.sa.member(broadcast(), 0), 1);
    // A request to leave that the join does not contradict is repeated.
    world.path(0, to_group(group(1))).unwrap();
    leave(&mut world, group(1));
    lose_datagrams(&mut world);
    assert!(is_now(&world.joined(0, group(1))));
    assert_eq!(world.sa.member(group(1), 0), 1);
    // The port has the bits of a canceled request still, and ends them later.
    world.path(0, to_group(group(2))).unwrap();
    assert!(is_now(&world.joined(0, group(2))));
    leave(&mut world, group(2));
    lose_datagrams(&mut world);
    assert!(is_now(&world.joined(0, group(2))));
    assert_eq!(world.sa.member(group(2), 0), 8 | 1);
    leave(&mut world, group(2));
    world.run(Duration::from_secs(10));
    assert_eq!(world.sa.member(group(2), 0), 0);
}

/// The administrator refuses a Delete with a bit of JoinState that the port does not have.
#[test]
fn a_leave_ends_the_memberships_also_if_an_open_request_was_lost() {
    let mut world = world();
    world.path(0, to_group(group(1))).unwrap();
    assert_eq!(world.join(0, group(1)), Joined::Pending);
    lose_datagrams(&mut world);
    leave(&mut world, group(1));
    world.run(Duration::from_secs(10));
    assert_eq!(world.sa.member(group(1), 0), 0);
    assert!(world.ports[0].is_idle());
}

#[test]
fn the_end_of_the_broadcast_group_answers_the_joins_that_wait_for_it() {
    let mut world = World::new(1, 1, Faults::default());
    assert_eq!(world.join(0, broadcast()), Joined::Pending);
    let now = world.now;
    assert_eq!(world.ports[0].resolve(now, to_group(group(1))), None);
    assert_eq!(world.join(0, group(2)), Joined::Pending);
    leave(&mut world, broadcast());
    world.run(Duration::from_secs(1));
    assert!(path_ended(&world, group(1)));
    assert!(matches!(world.answer(0, group(2)), Joined::Refused(_)));
}

/// Workers keep a path for minutes, and the port is no member any more.
#[test]
fn the_path_to_a_group_ends_with_the_membership() {
    // The host leaves the group.
    let mut world = world();
    assert!(is_now(&world.joined(0, group(1))));
    world.path(0, to_group(group(1))).unwrap();
    leave(&mut world, group(1));
    world.run(Duration::from_secs(1));
    assert!(path_ended(&world, group(1)));
    // A restarted administrator does not answer for a while, and has other MLIDs then.
    assert!(is_now(&world.joined(0, group(1))));
    world.path(0, to_group(group(1))).unwrap();
    world.events[0].clear();
    world.sa.restart();
    let now = world.now;
    world.ports[0].changed(now, true);
    world.sa.faults.silent = true;
    assert!(!is_now(&world.joined(0, broadcast())));
    assert!(!is_now(&world.joined(0, group(1))));
    world.sa.faults.silent = false;
    for mgid in [broadcast(), group(1)] {
        assert!(is_now(&world.joined(0, mgid)));
        assert!(path_ended(&world, mgid));
    }
}

#[test]
fn an_adopted_membership_with_another_mlid_ends_the_path() {
    let mut world = world();
    world.ports[0].port.kernel_pkeys = vec![PKey::DEFAULT];
    assert!(is_now(&world.joined(0, group(1))));
    world.path(0, to_group(group(1))).unwrap();
    world.sa.restart();
    let now = world.now;
    world.ports[0].changed(now, true);
    world.events[0].clear();
    for mgid in [broadcast(), group(1)] {
        world.ports[0].adopt(now, mgid, PKey::DEFAULT, QKEY);
    }
    world.run(Duration::from_secs(1));
    assert!(is_now(&world.answer(0, group(1))));
    assert!(path_ended(&world, group(1)));
}

/// The port ends its own memberships, and the kernel ends those that it has requested.
#[test]
fn an_adopted_membership_leaves_the_full_membership_to_the_kernel() {
    let mut world = World::new(2, 1, Faults::default());
    world.ports[0].port.kernel_pkeys = vec![PKey::DEFAULT];
    for port in 0..2 {
        assert!(is_now(&world.joined(port, broadcast())));
    }
    assert!(is_now(&world.joined(1, group(1))));
    world.path(0, to_group(group(1))).unwrap();
    assert_eq!(world.sa.member(group(1), 0), 4);
    // The kernel has joined; its interface disappears afterwards.
    for kernel_pkeys in [vec![PKey::DEFAULT], Vec::new()] {
        assert!(is_now(&world.joined(0, group(1))));
        let now = world.now;
        world.ports[0].adopt(now, group(1), PKey::DEFAULT, QKEY);
        world.run(Duration::from_secs(1));
        world.ports[0].port.kernel_pkeys = kernel_pkeys;
        leave(&mut world, group(1));
        world.run(Duration::from_secs(1));
        assert_eq!(world.sa.member(group(1), 0), 1);
    }
}

#[test]
fn a_group_of_a_partition_without_an_interface_of_the_kernel_is_left() {
    let mut world = world();
    world.ports[0].port.kernel_pkeys = vec![PKey::DEFAULT];
    let pkey = PKey::new(0x8001);
    let broadcast = proto::mgid::broadcast(pkey, proto::mgid::LINK_LOCAL);
    world.sa.create(McMemberRecord {
        mgid: broadcast,
        qkey: QKEY,
        mtu: Selected::exactly(IbMtu::B2048 as u8),
        pkey,
        ..McMemberRecord::default()
    });
    let now = world.now;
    // The endpoint may have a limited entry of the partition.
    world.ports[0].join(now, broadcast, PKey::new(1), QKEY);
    world.run(Duration::from_secs(1));
    assert_eq!(world.sa.member(broadcast, 0), 1);
    leave(&mut world, broadcast);
    world.run(Duration::from_secs(1));
    assert_eq!(world.sa.member(broadcast, 0), 0);
}

/// A question for the memberships finds that one is missing.
#[test]
fn a_sender_whose_membership_is_known_still_leaves_after_the_loss_of_another() {
    let mut world = world();
    assert!(is_now(&world.joined(0, group(1))));
    world.path(0, to_group(group(2))).unwrap();
    assert_eq!(world.sa.member(group(2), 0), 8);
    world.sa.groups.remove(&group(1));
    world.now = world.now.after(Duration::from_secs(1));
    let now = world.now;
    world.ports[0].check(now);
    world.run(Duration::from_secs(5));
    assert!(world.events[0].contains(&SubnetEvent::Forgotten));
    // As the owners do.
    let now = world.now;
    world.ports[0].changed(now, false);
    for mgid in [broadcast(), group(1)] {
        assert!(is_now(&world.joined(0, mgid)));
        assert_eq!(world.sa.member(mgid, 0), 1);
    }
    world.now = world.now.after(super::super::groups::SENDER_IDLE);
    let now = world.now;
    world.ports[0].handle_timeout(now);
    world.run(Duration::from_secs(5));
    assert_eq!(world.sa.member(group(2), 0), 0);
}

/// Nobody repeats the join: the host does not want the group any more.
#[test]
fn a_join_whose_answers_were_lost_is_taken_back() {
    let mut world = world();
    let sweep = |world: &mut World, seconds| {
        world.run(Duration::from_secs(20));
        world.now = world.now.after(Duration::from_secs(seconds));
        let now = world.now;
        world.ports[0].handle_timeout(now);
        world.run(Duration::from_secs(5));
    };
    // What the administrator can do is known.
    world.path(0, to_group(group(4))).unwrap();
    let late = Duration::from_secs(3600);
    world.sa.faults.delay = late;
    assert!(matches!(world.joined(0, group(1)), Joined::Refused(_)));
    assert!(world.path(0, to_group(group(2))).is_err());
    let members = |world: &World| [1, 2].map(|n| world.sa.member(group(n), 0));
    assert_eq!(members(&world), [1, 8]);
    world.sa.faults.delay = Duration::ZERO;
    sweep(&mut world, 60);
    assert_eq!(members(&world), [0, 0]);
    // A repeated join keeps the membership.
    world.sa.faults.delay = late;
    assert!(matches!(world.joined(0, group(1)), Joined::Refused(_)));
    world.sa.faults.delay = Duration::ZERO;
    assert!(is_now(&world.joined(0, group(1))));
    sweep(&mut world, 60);
    assert_eq!(members(&world), [1, 0]);
    // The port closes.
    world.sa.faults.delay = late;
    assert!(matches!(world.joined(0, group(3)), Joined::Refused(_)));
    assert_eq!(world.sa.member(group(3), 0), 1);
    let now = world.now;
    world.ports[0].leave_all(now);
    world.run(Duration::from_secs(10));
    assert_eq!(world.sa.member(group(3), 0), 0);
}
