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
