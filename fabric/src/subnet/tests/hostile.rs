//! Wrong, late and missing answers.

use super::*;
use crate::mad::sa::status;

/// The answer for the broadcast group with these faults.
fn with(change: impl FnOnce(&mut administrator::Misbehaviour)) -> (World, Joined) {
    let mut world = World::new(2, 3, Faults::default());
    change(&mut world.sa.faults);
    let joined = world.joined(0, broadcast());
    (world, joined)
}

fn reason(joined: &Joined) -> &str {
    match joined {
        Joined::Refused(why) => why,
        other => panic!("{other:?}"),
    }
}

#[test]
fn wrong_answers_are_refused_with_the_reason() {
    for mlid in [0, 1, 0xbfff, 0xffff] {
        let (mut world, joined) = with(|faults| faults.mlid = Some(mlid));
        assert!(reason(&joined).contains("multicast"), "{joined:?}");
        world.sa.faults.mlid = None;
        assert!(is_now(&world.joined(0, broadcast())));
    }
    for (code, part) in [(0, "MTU 0"), (6, "MTU 0"), (63, "MTU 0")] {
        let (_, joined) = with(|faults| faults.mtu = Some(code));
        assert!(reason(&joined).contains(part), "{joined:?}");
    }
    let (_, joined) = with(|faults| faults.other_group = true);
    assert!(reason(&joined).contains("for the group"), "{joined:?}");
    let mut world = World::new(1, 3, Faults::default());
    world.ports[0].port.mtu = IbMtu::B1024;
    let joined = world.joined(0, broadcast());
    assert!(
        reason(&joined).contains("2048; the port's is 1024"),
        "{joined:?}"
    );
}

#[test]
fn each_status_is_a_reason() {
    for (status, part) in [
        (status::NO_RESOURCES, "no resources"),
        (status::REQ_INVALID, "does not exist"),
        (status::NO_RECORDS, "no records"),
        (status::INVALID_GID, "invalid GID"),
        (status::INSUF_COMPS, "does not exist"),
        (status::DENIED, "denied"),
        (0x000c, "unsupported"),
        (0x7f00, "0x7f00"),
    ] {
        let (_, joined) = with(|faults| faults.status = status);
        assert!(reason(&joined).contains(part), "{joined:?}");
    }
}

#[test]
fn a_unicast_path_needs_a_unicast_lid() {
    for lid in [0, 0xc000, 0xffff] {
        let mut world = World::new(2, 3, Faults::default());
        world.sa.faults.mlid = Some(lid);
        let why = world.path(0, to(1)).unwrap_err();
        assert!(why.to_string().contains(&format!("{lid:#06x}")), "{why}");
    }
}

#[test]
fn silence_ends_after_a_few_requests_and_nothing_waits_forever() {
    let (mut world, joined) = with(|faults| faults.silent = true);
    assert!(reason(&joined).contains("does not answer"), "{joined:?}");
    assert!(world.sa.requests.values().all(|n| *n <= 3));
    assert_eq!(world.path(0, to(1)), Err(Unreachable::NoAnswer));
    assert!(world.ports[0].is_idle());
    world.sa.faults.silent = false;
    assert!(is_now(&world.joined(0, broadcast())));
    assert!(world.path(0, to(1)).is_ok());
}

#[test]
fn late_double_and_busy_answers_are_good_answers() {
    let late = Duration::from_millis(2000);
    let (world, joined) = with(|faults| (faults.delay, faults.copies) = (late, 3));
    assert!(is_now(&joined), "{joined:?}");
    let answers = world.events[0].len();
    assert_eq!(answers, 1, "{:?}", world.events[0]);
    let (_, joined) = with(|faults| faults.busy = 2);
    assert!(is_now(&joined), "{joined:?}");
}

#[test]
fn a_late_answer_after_leaving_changes_nothing() {
    let mut world = World::new(1, 3, Faults::default());
    assert_eq!(world.join(0, broadcast()), Joined::Pending);
    while world.ports[0].poll_transmit().is_some() {}
    world.ports[0].leave(world.now, broadcast());
    world.run(Duration::from_secs(5));
    assert_eq!(world.events[0], []);
    assert_eq!(world.ports[0].memberships().count(), 0);
}

#[test]
fn ten_thousand_groups_are_bounded_requests() {
    let mut world = World::new(1, 3, Faults::default());
    world.joined(0, broadcast());
    for n in 0..10_000u32 {
        let mut mgid = group(0);
        mgid.0[12..].copy_from_slice(&(n + 1).to_be_bytes());
        assert_eq!(world.join(0, mgid), Joined::Pending);
    }
    let mut in_flight = 0;
    while world.ports[0].poll_transmit().is_some() {
        in_flight += 1;
    }
    assert_eq!(in_flight, IN_FLIGHT_MAX);
    world.run(Duration::from_secs(60));
    assert_eq!(world.ports[0].memberships().count(), 10_001);
    assert!(world.sa.requests.values().all(|n| *n <= 3));
}

#[test]
fn datagrams_of_any_bytes_change_nothing() {
    let mut random = Random::new([5, 6]);
    let mut world = World::new(1, 3, Faults::default());
    world.join(0, broadcast());
    for _ in 0..20_000 {
        let len = random.next() as usize % 300;
        let mut mad: Vec<u8> = (0..len).map(|_| random.next() as u8).collect();
        if let Some(head) = mad.get_mut(..4) {
            head.copy_from_slice(&[1, 3, 2, 0x81]);
        }
        world.ports[0].receive(world.now, &mad);
    }
    world.run(Duration::from_secs(5));
    assert!(is_now(&world.answer(0, broadcast())));
}
