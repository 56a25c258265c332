//! Memberships and paths on a subnet without faults.

use super::*;
use crate::mad::sa::{self, JoinState};

#[test]
fn the_broadcast_group_comes_first_and_its_parameters_rule() {
    let mut world = World::new(2, 1, Faults::default());
    // The host's group is requested before the answer for the broadcast group.
    assert_eq!(world.join(0, broadcast()), Joined::Pending);
    assert_eq!(world.join(0, group(1)), Joined::Pending);
    world.run(Duration::from_secs(1));
    let Joined::Now(parameters) = world.answer(0, broadcast()) else {
        panic!("{:?}", world.answer(0, broadcast()));
    };
    assert_eq!((parameters.mtu, parameters.sl), (Some(2048), 3));
    assert_eq!(parameters.mlid, Some(Lid(0xc000)));
    let Joined::Now(of_group) = world.answer(0, group(1)) else {
        panic!("{:?}", world.answer(0, group(1)));
    };
    assert_eq!((of_group.mtu, of_group.sl), (Some(2048), 3));
    assert_eq!(world.sa.member(group(1), 0), 1);
    // Each group needed one request.
    assert!(world.sa.requests.values().all(|n| *n == 1));
    // Joining again asks nobody.
    assert!(is_now(&world.join(0, group(1))));
}

#[test]
fn without_the_broadcast_group_there_are_no_groups_of_ip() {
    let mut world = World::new(1, 1, Faults::default());
    world.sa.groups.clear();
    assert_eq!(world.join(0, broadcast()), Joined::Pending);
    assert_eq!(world.join(0, group(1)), Joined::Pending);
    world.run(Duration::from_secs(1));
    for mgid in [broadcast(), group(1)] {
        assert!(matches!(world.answer(0, mgid), Joined::Refused(_)));
    }
    // A port creates no broadcast group.
    assert!(world.sa.groups.is_empty());
    assert!(matches!(world.join(0, group(2)), Joined::Refused(_)));
}

#[test]
fn other_groups_are_created_if_they_do_not_exist() {
    let mut world = World::new(2, 1, Faults::default());
    let switch: Gid = "ff15:beef::1".parse().unwrap();
    for port in 0..2 {
        assert!(is_now(&world.joined(port, switch)));
    }
    assert_eq!(world.sa.member(switch, 1), 1);
    world.ports[0].leave(world.now, switch);
    world.run(Duration::from_secs(1));
    assert_eq!(
        (world.sa.member(switch, 0), world.sa.member(switch, 1)),
        (0, 1)
    );
    // A group that a file of partitions made, with its own Q_Key.
    let made: Gid = "ff15:beef::2".parse().unwrap();
    let record = world.sa.groups[&switch].record;
    world.sa.create(sa::McMemberRecord {
        mgid: made,
        qkey: QKey::new(0x77),
        ..record
    });
    let Joined::Now(parameters) = world.joined(0, made) else {
        panic!("{:?}", world.answer(0, made));
    };
    assert_eq!(parameters.qkey, QKey::new(0x77));
}

/// A subnet with one port; the destination that is a group which does not exist yet; and the record of this group.
fn with_another_group() -> (World, Destination, sa::McMemberRecord) {
    let world = World::new(1, 1, Faults::default());
    let destination = Destination {
        gid: "ff15:beef::1".parse().unwrap(),
        pkey: PKey::DEFAULT,
    };
    let group = sa::McMemberRecord {
        mgid: destination.gid,
        ..world.sa.groups[&broadcast()].record
    };
    (world, destination, group)
}

/// The port has no Q_Key for a group that it only sends to.
#[test]
fn a_packet_creates_no_group_without_the_parameters_of_a_broadcast_group() {
    let (mut world, destination, group) = with_another_group();
    let gid = destination.gid;
    world.sa.groups.clear();
    assert!(world.path(0, destination).is_err());
    assert!(world.sa.groups.is_empty());
    // A group that exists is joined, whatever its Q_Key is.
    world.sa.create(group);
    assert!(world.path(0, destination).is_ok());
    assert_eq!(world.sa.member(gid, 0), 8);
}

/// The membership to send has no Q_Key; the receiver, which may create the group, has one.
#[test]
fn a_group_is_created_with_the_receivers_q_key_after_the_port_has_only_sent() {
    let (mut world, destination, group) = with_another_group();
    let gid = destination.gid;
    world.sa.create(group);
    assert!(world.path(0, destination).is_ok());
    world.sa.groups.clear();
    world.ports[0].changed(world.now, true);
    assert!(is_now(&world.joined(0, gid)));
    assert_eq!(world.sa.groups[&gid].record.qkey, QKEY);
}

#[test]
fn a_packet_joins_no_broadcast_group() {
    let mut world = World::new(1, 1, Faults::default());
    let destination = Destination {
        gid: broadcast(),
        pkey: PKey::DEFAULT,
    };
    assert!(world.path(0, destination).is_err());
    assert_eq!(world.sa.member(broadcast(), 0), 0);
    world.joined(0, broadcast());
    assert!(world.path(0, destination).is_ok());
    assert_eq!(world.sa.member(broadcast(), 0), 1);
}

#[test]
fn senders_join_with_what_the_administrator_allows() {
    for (refuses, state) in [(0, 8), (8, 4), (12, 1)] {
        let mut world = World::new(2, 1, Faults::default());
        world.joined(0, broadcast());
        world.joined(1, broadcast());
        world.joined(1, group(1));
        world.sa.faults.refuses = refuses;
        let destination = Destination {
            gid: group(1),
            pkey: PKey::DEFAULT,
        };
        let path = world.path(0, destination).unwrap();
        assert_eq!((path.dlid, path.sl), (Lid(0xc001), 3));
        assert!(path.global.is_some());
        assert_eq!(world.sa.member(group(1), 0), state, "{refuses:#x}");
        // No endpoint is to be attached.
        assert_eq!(world.answer(0, group(1)), Joined::Pending);
        // A member that only sent receives, too.
        world.sa.faults.refuses = 0;
        assert!(is_now(&world.joined(0, group(1))));
        assert_eq!(world.sa.member(group(1), 0), state | 1);
        world.ports[0].leave(world.now, group(1));
        world.run(Duration::from_secs(1));
        assert_eq!(world.sa.member(group(1), 0), 0);
    }
}

#[test]
fn paths_are_resolved_once_and_again_after_a_change() {
    let mut world = World::new(3, 1, Faults::default());
    let path = world.path(0, to(2)).unwrap();
    assert_eq!((path.dlid, path.sl, path.mtu), (Lid(3), 2, IbMtu::B2048));
    assert_eq!(path.global, None, "a path within the subnet");
    assert_eq!(world.path(0, to(2)), Ok(path));
    let asked = |world: &World| world.sa.requests[&(port_gid(2), sa::PATH_RECORD, 0)];
    assert_eq!(asked(&world), 1);
    world.ports[0].changed(world.now, false);
    assert_eq!(world.path(0, to(2)), Ok(path));
    assert_eq!(asked(&world), 2);
    assert_eq!(world.ports[0].paths().count(), 1);
    let nobody = world.path(0, to(9)).unwrap_err();
    assert!(nobody.to_string().contains("no records"), "{nobody}");
    assert_eq!(nobody.kind(), std::io::ErrorKind::HostUnreachable);
}

#[test]
fn after_a_restart_of_the_administrator_groups_have_other_mlids() {
    let mut world = World::new(1, 1, Faults::default());
    world.joined(0, broadcast());
    world.joined(0, group(1));
    world.sa.restart();
    world.ports[0].changed(world.now, true);
    for (mgid, mlid) in [(broadcast(), 0xc100), (group(1), 0xc101)] {
        let Joined::Now(parameters) = world.joined(0, mgid) else {
            panic!("{:?}", world.answer(0, mgid));
        };
        assert_eq!(parameters.mlid, Some(Lid(mlid)));
        assert_eq!(world.sa.member(mgid, 0), 1);
    }
}

#[test]
fn reports_end_paths_and_renew_memberships() {
    let mut world = World::new(3, 1, Faults::default());
    world.joined(0, broadcast());
    world.joined(0, group(1));
    world.path(0, to(2)).unwrap();
    let report = |world: &mut World, trap, gid| {
        let notice = sa::Notice::of_gid(trap, gid, Lid(1), port_gid(0));
        world.ports[0].reported(world.now, &notice);
        world.run(Duration::from_secs(1));
    };
    report(&mut world, sa::trap::GID_OUT_OF_SERVICE, port_gid(2));
    assert_eq!(world.ports[0].paths().count(), 0);
    let last = world.events[0].last().cloned();
    assert!(
        matches!(last, Some(SubnetEvent::Path { path: Err(_), .. })),
        "{last:?}"
    );
    world.sa.groups.remove(&group(1));
    report(&mut world, sa::trap::GROUP_DELETED, group(1));
    assert_eq!(world.sa.member(group(1), 0), 1);
    assert!(is_now(&world.answer(0, group(1))));
}

#[test]
fn beside_an_interface_of_the_kernel_its_memberships_stay() {
    let mut world = World::new(1, 1, Faults::default());
    world.ports[0].port.kernel_pkeys = vec![PKey::DEFAULT];
    world.joined(0, broadcast());
    world.joined(0, group(1));
    world
        .sa
        .groups
        .get_mut(&group(1))
        .unwrap()
        .members
        .insert(port_gid(9), 1);
    // The port sends as the kernel never does, so that this membership can end.
    let second = Destination {
        gid: group(1),
        pkey: PKey::DEFAULT,
    };
    world.ports[0].leave(world.now, group(1));
    world.path(0, second).unwrap();
    assert_eq!(world.sa.member(group(1), 0), 1 | 4);
    for mgid in [group(1), broadcast()] {
        world.ports[0].leave(world.now, mgid);
    }
    world.run(Duration::from_secs(1));
    assert_eq!(world.sa.member(group(1), 0), 1);
    assert_eq!(world.sa.member(broadcast(), 0), 1);
    assert!(world.ports[0].is_idle());
    // A membership that the kernel has requested for this program.
    world.ports[0].adopt(world.now, broadcast(), PKey::DEFAULT, QKEY);
    world.run(Duration::from_secs(1));
    assert!(is_now(&world.answer(0, broadcast())));
    // The kernel joins no groups of other protocols.
    let switch: Gid = "ff15:beef::1".parse().unwrap();
    assert!(is_now(&world.joined(0, switch)));
    world.ports[0].leave(world.now, switch);
    world.run(Duration::from_secs(1));
    assert_eq!(world.sa.member(switch, 0), 0);
}

#[test]
fn a_group_without_packets_is_left_and_all_are_left_at_the_end() {
    let mut world = World::new(2, 1, Faults::default());
    world.joined(0, broadcast());
    for n in [1, 2] {
        let destination = Destination {
            gid: group(n),
            pkey: PKey::DEFAULT,
        };
        world.path(0, destination).unwrap();
    }
    let half = super::super::groups::SENDER_IDLE / 2;
    for _ in 0..3 {
        world.now = world.now.after(half);
        let used = Destination {
            gid: group(1),
            pkey: PKey::DEFAULT,
        };
        world.path(0, used).unwrap();
        let now = world.now;
        world.ports[0].handle_timeout(now);
        world.run(Duration::from_secs(1));
    }
    let members = |world: &World| [1, 2].map(|n| world.sa.member(group(n), 0));
    assert_eq!(members(&world), [8, 0]);
    let now = world.now;
    world.ports[0].leave_all(now);
    world.run(Duration::from_secs(1));
    assert_eq!(members(&world), [0, 0]);
    assert_eq!(world.sa.member(broadcast(), 0), 0);
}

#[test]
fn an_answer_from_before_a_loss_makes_no_member() {
    let mut world = World::new(1, 1, Faults::default());
    world.sa.faults.delay = Duration::from_millis(300);
    assert_eq!(world.join(0, broadcast()), Joined::Pending);
    world.run(Duration::from_millis(100));
    // The answer is on its way.
    world.sa.restart();
    let now = world.now;
    world.ports[0].changed(now, true);
    world.run(Duration::from_secs(5));
    let Joined::Now(parameters) = world.answer(0, broadcast()) else {
        panic!("{:?}", world.answer(0, broadcast()));
    };
    assert_eq!(parameters.mlid, Some(Lid(0xc100)));
    assert_eq!(world.sa.member(broadcast(), 0), 1);
}

/// The port of a subnet administrator without events asks for its memberships. The answer has several
/// segments.
#[test]
fn a_forgotten_membership_is_noticed_and_others_are_not() {
    let forgotten = |world: &mut World| {
        world.events[0].clear();
        let now = world.now;
        world.ports[0].check(now);
        world.run(Duration::from_secs(30));
        world.events[0].contains(&SubnetEvent::Forgotten)
    };
    let faults = Faults {
        lost: 100,
        doubled: 100,
        delay: 50,
    };
    for seed in 0..20 {
        println!("seed {seed}");
        let mut world = World::new(2, seed, faults);
        assert!(!forgotten(&mut world), "no membership, no question");
        let mgids = (1..=20).map(group).chain([broadcast()]);
        for mgid in mgids.clone() {
            world.join(0, mgid);
        }
        for _ in 0..20 {
            world.run(Duration::from_secs(30));
            for mgid in mgids.clone() {
                world.join(0, mgid);
            }
        }
        assert!(!forgotten(&mut world), "the port is a member of all");
        world.sa.groups.get_mut(&group(9)).unwrap().members.clear();
        assert!((0..5).any(|_| forgotten(&mut world)), "one is missing");
        world.sa.restart();
        assert!((0..5).any(|_| forgotten(&mut world)), "all are missing");
    }
}

#[test]
fn a_group_joined_after_the_question_is_not_forgotten() {
    let mut world = World::new(1, 5, Faults::default());
    assert!(is_now(&world.joined(0, broadcast())));
    // The answer is from before the join.
    world.sa.faults.delay = Duration::from_millis(500);
    let now = world.now;
    world.ports[0].check(now);
    world.run(Duration::from_millis(100));
    world.sa.faults.delay = Duration::ZERO;
    assert_eq!(world.join(0, group(1)), Joined::Pending);
    world.run(Duration::from_secs(30));
    assert!(is_now(&world.answer(0, group(1))));
    assert!(!world.events[0].contains(&SubnetEvent::Forgotten));
}

fn to_group(n: u8) -> Destination {
    let (gid, pkey) = (group(n), PKey::DEFAULT);
    Destination { gid, pkey }
}

/// A port in the broadcast group, and an administrator that answers later.
fn slow() -> World {
    let mut world = World::new(2, 1, Faults::default());
    world.joined(0, broadcast());
    // The group exists.
    world.joined(1, broadcast());
    world.joined(1, group(1));
    world.sa.faults.delay = Duration::from_millis(300);
    world
}

/// The answers to a question for a path.
fn answers(world: &World, to: Destination) -> Vec<Result<SubnetPath, Unreachable>> {
    let answers = world.events[0].iter().filter_map(|event| match event {
        SubnetEvent::Path { destination, path } if *destination == to => Some(path.clone()),
        _ => None,
    });
    answers.collect()
}

/// A worker keeps packets until it gets an answer.
#[test]
fn who_waits_for_the_path_of_a_group_gets_an_answer_whatever_becomes_of_the_membership() {
    let asks = |world: &mut World, n| {
        let now = world.now;
        assert_eq!(world.ports[0].resolve(now, to_group(n)), None);
    };
    // The host joins the group beside the kernel's interface.
    let mut world = slow();
    asks(&mut world, 1);
    let now = world.now;
    world.ports[0].adopt(now, group(1), PKey::DEFAULT, QKEY);
    world.run(Duration::from_secs(30));
    assert_eq!(answers(&world, to_group(1)).len(), 1);
    assert!(answers(&world, to_group(1))[0].is_ok());
    // The host leaves the group before the answer.
    let mut world = slow();
    assert_eq!(world.join(0, group(1)), Joined::Pending);
    asks(&mut world, 1);
    let now = world.now;
    world.ports[0].leave(now, group(1));
    world.run(Duration::from_secs(30));
    assert_eq!(answers(&world, to_group(1)).len(), 1);
    assert!(answers(&world, to_group(1))[0].is_err());
    assert_eq!(world.sa.member(group(1), 0), 0);
    // The broadcast group is gone after a restart of the administrator.
    let mut world = slow();
    world.path(0, to_group(1)).unwrap();
    world.sa.groups.clear();
    let now = world.now;
    world.ports[0].changed(now, true);
    assert!(!is_now(&world.joined(0, broadcast())));
    world.events[0].clear();
    asks(&mut world, 1);
    world.run(Duration::from_secs(30));
    assert_eq!(answers(&world, to_group(1)).len(), 1);
    assert!(answers(&world, to_group(1))[0].is_err());
    // The interface is a limited member of its partition. Workers ask with the full P_Key.
    let mut world = slow();
    let (now, limited) = (world.now, PKey::new(0x7fff));
    let joined = world.ports[0].join(now, group(1), limited, QKEY);
    assert_eq!(joined, Joined::Pending);
    asks(&mut world, 1);
    world.run(Duration::from_secs(30));
    assert_eq!(answers(&world, to_group(1)).len(), 1);
}

#[test]
fn the_answer_to_a_sender_is_not_the_answer_to_a_later_join() {
    for refuses in [0, JoinState::FULL.0] {
        let mut world = slow();
        let now = world.now;
        assert_eq!(world.ports[0].resolve(now, to_group(1)), None);
        // What the administrator can do is known by then.
        world.run(Duration::from_millis(400));
        world.sa.faults.refuses = refuses;
        assert_eq!(is_now(&world.joined(0, group(1))), refuses == 0);
        assert!(!answers(&world, to_group(1)).is_empty());
        let now = world.now;
        world.ports[0].leave(now, group(1));
        world.run(Duration::from_secs(30));
        let sends = JoinState::SEND_ONLY_FULL_MEMBER.0;
        let left = if refuses == 0 { 0 } else { sends };
        assert_eq!(world.sa.member(group(1), 0), left);
    }
}

#[test]
fn groups_that_were_lost_and_get_no_packets_are_forgotten() {
    let mut world = World::new(1, 1, Faults::default());
    world.joined(0, broadcast());
    world.path(0, to_group(1)).unwrap();
    world.sa.restart();
    let now = world.now;
    world.ports[0].changed(now, true);
    world.run(Duration::from_secs(1));
    assert_eq!(world.ports[0].memberships().count(), 2);
    world.now = world.now.after(super::super::groups::SENDER_IDLE);
    let now = world.now;
    world.ports[0].handle_timeout(now);
    assert_eq!(world.ports[0].memberships().count(), 1);
}
