//! Subscriptions to Reports, and Reports about paths.

use super::*;
use crate::mad::sa;

/// Number of subscriptions that the administrator has seen.
fn subscriptions(world: &World) -> usize {
    let key = (Gid::UNSPECIFIED, sa::INFORM_INFO, 0);
    world.sa.requests.get(&key).copied().unwrap_or(0)
}

#[test]
fn a_failed_subscription_is_repeated_until_it_succeeds() {
    for status in [None, Some(sa::status::NO_RESOURCES)] {
        let mut world = World::new(1, 1, Faults::default());
        world.sa.faults.silent = status.is_none();
        world.sa.faults.status = status.unwrap_or(0);
        let now = world.now;
        world.ports[0].subscribe(now);
        world.run(Duration::from_secs(60));
        world.sa.faults.silent = false;
        world.sa.faults.status = 0;
        let before = subscriptions(&world);
        world.run(Duration::from_secs(600));
        assert_eq!(subscriptions(&world), before + TRAPS.len());
    }
}

#[test]
fn a_subscription_without_room_is_repeated() {
    let mut world = World::new(1, 1, Faults::default());
    let now = world.now;
    let fill = Request::class_port_info();
    while world.ports[0].ask(now, fill, Purpose::Abilities).is_some() {}
    world.ports[0].subscribe(now);
    world.run(Duration::from_secs(600));
    assert_eq!(subscriptions(&world), TRAPS.len());
}

/// Without an answer, workers keep the path.
#[test]
fn a_report_about_a_port_ends_a_path_that_a_silent_administrator_did_not_confirm() {
    let mut world = World::new(3, 1, Faults::default());
    world.path(0, to(2)).unwrap();
    world.now = world.now.after(Duration::from_secs(61));
    world.sa.faults.silent = true;
    assert_eq!(world.path(0, to(2)), Err(Unreachable::NoAnswer));
    world.events[0].clear();
    let notice = sa::Notice::of_gid(sa::trap::GID_IN_SERVICE, port_gid(2), Lid(1), port_gid(0));
    world.ports[0].reported(world.now, &notice);
    world.run(Duration::from_secs(1));
    let [SubnetEvent::Path { destination, path }] = &world.events[0][..] else {
        panic!("{:?}", world.events[0]);
    };
    assert_eq!(*destination, to(2));
    assert!(matches!(path, Err(Unreachable::Refused(_))));
    // The administrator is asked at the next use.
    world.sa.faults.silent = false;
    assert!(world.path(0, to(2)).is_ok());
}

/// A reregistration asks for all paths again, and a subnet administrator with thousands of ports is busy then.
#[test]
fn a_path_stays_known_while_the_administrator_is_busy() {
    let mut world = World::new(3, 1, Faults::default());
    let path = world.path(0, to(2)).unwrap();
    let now = world.now;
    world.ports[0].changed(now, false);
    world.sa.faults.busy = 3;
    assert_eq!(world.path(0, to(2)), Err(Unreachable::NoAnswer));
    assert_eq!(world.ports[0].path(to(2)), Some(path));
    assert_eq!(world.path(0, to(2)), Ok(path));
}

/// The question is older than the Report, and gets no answer.
#[test]
fn a_report_about_a_port_ends_a_path_whose_question_is_open() {
    let mut world = World::new(3, 1, Faults::default());
    world.path(0, to(2)).unwrap();
    world.now = world.now.after(Duration::from_secs(61));
    world.sa.faults.silent = true;
    world.events[0].clear();
    let now = world.now;
    assert_eq!(world.ports[0].resolve(now, to(2)), None);
    let notice = sa::Notice::of_gid(sa::trap::GID_IN_SERVICE, port_gid(2), Lid(1), port_gid(0));
    for _ in 0..2 {
        world.ports[0].reported(now, &notice);
    }
    world.run(Duration::from_secs(30));
    let [
        SubnetEvent::Path { path: ended, .. },
        SubnetEvent::Path { path: answer, .. },
    ] = &world.events[0][..]
    else {
        panic!("{:?}", world.events[0]);
    };
    assert!(matches!(ended, Err(Unreachable::Refused(_))));
    assert_eq!(*answer, Err(Unreachable::NoAnswer));
    assert_eq!(world.ports[0].path(to(2)), None);
}

/// The answer may be from before the Report: the next use asks again.
#[test]
fn a_path_answered_after_a_report_about_the_port_is_old() {
    let mut world = World::new(3, 1, Faults::default());
    let now = world.now;
    assert_eq!(world.ports[0].resolve(now, to(2)), None);
    let notice = sa::Notice::of_gid(sa::trap::GID_IN_SERVICE, port_gid(2), Lid(1), port_gid(0));
    world.ports[0].reported(now, &notice);
    for _ in 0..2 {
        assert_eq!(world.ports[0].resolve(world.now, to(2)), None);
        world.run(Duration::from_secs(1));
        let last = world.events[0].last();
        assert!(matches!(last, Some(SubnetEvent::Path { path: Ok(_), .. })));
    }
    assert!(world.ports[0].resolve(world.now, to(2)).is_some());
}
