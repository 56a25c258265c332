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
