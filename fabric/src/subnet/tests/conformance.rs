//! Requirements of docs/conformance.md, one by one.

use super::*;
use crate::mad::sa::{self, JoinState, PathRecord, Record, Selected, mc_member, status};
use crate::mad::{Header, SaHeader, method};
use zerocopy::FromBytes;

/// Bytes before the record.
const HEAD: usize = 56;

/// The next request: method, component mask and record.
fn next<R: Record>(world: &mut World) -> Option<(u8, u64, R)> {
    let mad = world.ports[0].poll_transmit()?;
    let (header, rest) = Header::read_from_prefix(&mad).unwrap();
    let (head, data) = SaHeader::read_from_prefix(rest).unwrap();
    let record = R::parse(data).unwrap();
    Some((header.method, head.component_mask.get(), record))
}

/// The path that an administrator gives with this change of the record, and the question of the port again.
fn path_with(change: impl FnOnce(&mut PathRecord)) -> (SubnetPath, Option<SubnetPath>) {
    let mut world = World::new(3, 1, Faults::default());
    assert_eq!(world.ports[0].resolve(world.now, to(2)), None);
    let mut mad = world.ports[0].poll_transmit().unwrap();
    let mut record = PathRecord {
        dlid: Lid(3),
        mtu: Selected::exactly(IbMtu::B2048 as u8),
        ..PathRecord::parse(&mad[HEAD..]).unwrap()
    };
    change(&mut record);
    let mut bytes = Vec::new();
    record.append(&mut bytes);
    mad[3] = method::GET_RESP;
    mad[HEAD..HEAD + bytes.len()].copy_from_slice(&bytes);
    world.ports[0].receive(world.now, &mad);
    let Some(SubnetEvent::Path { destination, path }) = world.ports[0].poll_event() else {
        panic!("no path");
    };
    assert_eq!(destination, to(2));
    let again = world.ports[0].resolve(world.now, to(2));
    (path.unwrap(), again.map(Result::unwrap))
}

#[test]
fn c29_packets_to_a_group_have_its_parameters() {
    let mut world = World::new(1, 1, Faults::default());
    let record = &mut world.sa.groups.get_mut(&broadcast()).unwrap().record;
    (record.tclass, record.flow_label, record.hop_limit) = (7, 0x12345, 9);
    world.joined(0, broadcast());
    let all = Destination {
        gid: broadcast(),
        pkey: PKey::DEFAULT,
    };
    let path = world.path(0, all).unwrap();
    assert_eq!((path.dlid, path.sl, path.rate), (Lid(0xc000), 3, 3));
    let global = GlobalRoute {
        flow_label: 0x12345,
        hop_limit: 9,
        traffic_class: 7,
    };
    assert_eq!(path.global, Some(global));
}

#[test]
fn c30_path_queries_carry_the_class_of_the_broadcast_group() {
    let mut world = World::new(3, 1, Faults::default());
    let group = world.sa.groups.get_mut(&broadcast()).unwrap();
    group.record.tclass = 7;
    world.joined(0, broadcast());
    assert_eq!(world.ports[0].resolve(world.now, to(2)), None);
    let (_, _, query) = next::<PathRecord>(&mut world).unwrap();
    assert_eq!((query.tclass, query.dgid), (7, port_gid(2)));
}

#[test]
fn c31_a_group_that_is_joined_again_has_its_new_parameters() {
    let mut world = World::new(1, 1, Faults::default());
    world.joined(0, broadcast());
    let record = &mut world.sa.groups.get_mut(&broadcast()).unwrap().record;
    (record.qkey, record.sl) = (QKey::new(0x77), 5);
    record.mtu = Selected::exactly(IbMtu::B1024 as u8);
    world.ports[0].changed(world.now, true);
    let Joined::Now(now) = world.joined(0, broadcast()) else {
        panic!("{:?}", world.answer(0, broadcast()));
    };
    assert_eq!(
        (now.qkey, now.sl, now.mtu),
        (QKey::new(0x77), 5, Some(1024))
    );
    // The path of before ends, so that address handles are created again.
    let ended = |event: &SubnetEvent| {
        matches!(event, SubnetEvent::Path { destination, path: Err(_) }
            if destination.gid == broadcast())
    };
    assert!(world.events[0].iter().any(ended), "{:?}", world.events[0]);
}

#[test]
fn c62_a_path_has_a_global_route_if_it_has_a_hop_limit() {
    let (path, _) = path_with(|record| record.hop_limit = 0);
    assert_eq!(path.global, None);
    // With one hop, packets have a GRH and stay in the subnet.
    for (hop_limit, leaves) in [(1, false), (64, true)] {
        let (path, _) = path_with(|record| {
            (record.hop_limit, record.flow_label, record.tclass) = (hop_limit, 0x54321, 3);
        });
        let global = GlobalRoute {
            flow_label: 0x54321,
            hop_limit,
            traffic_class: 3,
        };
        assert_eq!(path.global, Some(global));
        assert_eq!(global.leaves_subnet(), leaves);
    }
}

#[test]
fn c63_a_path_to_another_gid_counts_for_the_requested_one() {
    let (path, again) = path_with(|record| (record.dgid, record.dlid) = (port_gid(9), Lid(0x90)));
    assert_eq!(path.dlid, Lid(0x90));
    assert_eq!(again, Some(path));
}

#[test]
fn c69_c70_groups_are_joined_after_the_broadcast_group_with_its_parameters() {
    let mut world = World::new(1, 1, Faults::default());
    assert_eq!(
        world.join(0, group(1)),
        Joined::Refused("the port is no member of the broadcast group".into())
    );
    assert_eq!(world.join(0, broadcast()), Joined::Pending);
    assert_eq!(world.join(0, group(1)), Joined::Pending);
    let (_, mask, first) = next::<sa::McMemberRecord>(&mut world).unwrap();
    assert_eq!((mask, first.mgid), (0x10083, broadcast()));
    assert!(world.ports[0].poll_transmit().is_none());
    // The first request was not delivered: the port repeats it.
    world.run(Duration::from_secs(5));
    assert!(is_now(&world.answer(0, group(1))));
    assert_eq!(world.join(0, group(2)), Joined::Pending);
    let (what, mask, join) = next::<sa::McMemberRecord>(&mut world).unwrap();
    assert_eq!((what, mask), (method::SET, 0x173f7));
    let of_broadcast = world.sa.groups[&broadcast()].record;
    assert_eq!(join.mtu, Selected::exactly(IbMtu::B2048 as u8));
    assert_eq!((join.rate, join.sl), (of_broadcast.rate, of_broadcast.sl));
    assert_eq!(
        (join.qkey, join.join_state),
        (of_broadcast.qkey, JoinState::FULL)
    );
}

#[test]
fn c75_after_a_failed_send_only_join_a_later_packet_asks_again() {
    let mut world = World::new(1, 1, Faults::default());
    world.joined(0, broadcast());
    let destination = Destination {
        gid: group(1),
        pkey: PKey::DEFAULT,
    };
    world.sa.faults.status = status::NO_RESOURCES;
    assert!(world.path(0, destination).is_err());
    assert!(world.ports[0].is_idle());
    world.sa.faults.status = 0;
    assert!(world.path(0, destination).is_ok());
}

#[test]
fn c76_a_leave_returns_the_held_join_states() {
    let mut world = World::new(1, 1, Faults::default());
    world.joined(0, broadcast());
    let destination = Destination {
        gid: group(1),
        pkey: PKey::DEFAULT,
    };
    world.path(0, destination).unwrap();
    world.joined(0, group(1));
    for (mgid, held) in [(group(1), 1 | 8), (broadcast(), 1)] {
        world.ports[0].leave(world.now, mgid);
        let (what, mask, leave) = next::<sa::McMemberRecord>(&mut world).unwrap();
        assert_eq!((what, mask), (method::DELETE, mc_member::LEAVE));
        assert_eq!((leave.mgid, leave.join_state), (mgid, JoinState(held)));
        assert_eq!(leave.port_gid, port_gid(0));
    }
}

#[test]
fn c80_without_the_broadcast_group_the_reason_says_that_it_is_missing() {
    let mut world = World::new(1, 1, Faults::default());
    world.sa.groups.clear();
    let Joined::Refused(why) = world.joined(0, broadcast()) else {
        panic!("joined");
    };
    assert!(why.contains("the group does not exist"), "{why}");
}

#[test]
fn c82_two_groups_may_share_an_mlid() {
    let mut world = World::new(1, 1, Faults::default());
    world.sa.faults.mlid = Some(0xc007);
    for mgid in [broadcast(), group(1)] {
        let Joined::Now(parameters) = world.joined(0, mgid) else {
            panic!("{:?}", world.answer(0, mgid));
        };
        assert_eq!(parameters.mlid, Some(Lid(0xc007)));
    }
    // The end of one changes nothing for the other.
    world.ports[0].leave(world.now, group(1));
    world.run(Duration::from_secs(1));
    assert!(is_now(&world.join(0, broadcast())));
}

#[test]
fn c117_after_a_change_of_lids_groups_are_joined_and_paths_asked_for_again() {
    let mut world = World::new(3, 1, Faults::default());
    world.joined(0, broadcast());
    let before = world.path(0, to(2)).unwrap();
    // The subnet manager gives all ports other LIDs, and knows no members.
    world.sa.restart();
    world.sa.first_lid = 0x41;
    world.ports[0].changed(world.now, true);
    assert_eq!(world.sa.member(broadcast(), 0), 0);
    assert!(is_now(&world.joined(0, broadcast())));
    assert_eq!(world.sa.member(broadcast(), 0), 1);
    let after = world.path(0, to(2)).unwrap();
    assert_eq!((before.slid, before.dlid), (Lid(1), Lid(3)));
    assert_eq!((after.slid, after.dlid), (Lid(0x41), Lid(0x43)));
}
