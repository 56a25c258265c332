//! Many ports at once, on a network with faults.

use super::*;

/// How often the owners of the ports look for refused joins.
const STEP: Duration = Duration::from_millis(100);

/// Joins of all ports as the daemon makes them: the refused joins of a port are repeated together, after
/// 750 to 1000 ms.
fn bring_up(world: &mut World, mgids: &[Gid]) -> Duration {
    let begin = world.now;
    let mut due = vec![Some(begin); world.ports.len()];
    let all_joined = |world: &World| {
        let ports = 0..world.ports.len();
        ports.into_iter().all(|port| {
            mgids
                .iter()
                .all(|mgid| world.sa.member(*mgid, port) == 1 && is_now(&world.answer(port, *mgid)))
        })
    };
    for _ in 0..1000 {
        for (port, due) in due.iter_mut().enumerate() {
            let is_refused = |mgid: &Gid| matches!(world.answer(port, *mgid), Joined::Refused(_));
            match *due {
                None if mgids.iter().any(is_refused) => {
                    let pause = Duration::from_millis(750 + world.random.below(250));
                    *due = Some(world.now.after(pause));
                }
                Some(at) if at <= world.now => {
                    *due = None;
                    join_missing(world, port, mgids);
                }
                _ => {}
            }
        }
        let end = world.now.after(STEP);
        world.run(STEP);
        if all_joined(world) {
            return world.now.since(begin);
        }
        world.now = end;
    }
    panic!("not all ports have joined");
}

/// Has a port join the groups that it is not a member of.
fn join_missing(world: &mut World, port: usize, mgids: &[Gid]) {
    let is_refusal = |event: &SubnetEvent| matches!(event, SubnetEvent::Group { joined, .. } if matches!(joined, Joined::Refused(_)));
    world.events[port].retain(|event| !is_refusal(event));
    for &mgid in mgids {
        if is_now(&world.answer(port, mgid)) {
            continue;
        }
        let joined = world.join(port, mgid);
        if joined != Joined::Pending {
            world.events[port].push(SubnetEvent::Group { mgid, joined });
        }
    }
}

#[test]
fn five_hundred_ports_join_at_once() {
    let mut world = World::new(
        500,
        11,
        Faults {
            delay: 40,
            ..Faults::default()
        },
    );
    // As fast as OpenSM on one core: 2,000 requests a second.
    world.sa_time = Duration::from_micros(500);
    let took = bring_up(&mut world, &[broadcast(), group(1), group(2)]);
    let total: usize = world.sa.requests.values().sum();
    let most = world.sa.requests.values().max().copied().unwrap_or(0);
    println!(
        "500 ports, 3 groups: {took:?}, {total} requests, at most {most} for a group and port"
    );
    // Answers come within the first timeout: the administrator gets no request twice.
    assert_eq!(most, 1);
}

#[test]
fn a_reregistration_of_all_needs_at_most_three_requests_for_a_group() {
    for seed in 0..8 {
        println!("seed {seed}");
        let faults = Faults {
            lost: 20,
            doubled: 20,
            delay: 200,
        };
        let mut world = World::new(100, seed, faults);
        let mgids = [broadcast(), group(1)];
        bring_up(&mut world, &mgids);
        world.sa.restart();
        world.sa.requests.clear();
        for port in 0..world.ports.len() {
            let now = world.now;
            world.ports[port].changed(now, true);
            world.events[port].clear();
        }
        let took = bring_up(&mut world, &mgids);
        let total: usize = world.sa.requests.values().sum();
        let most = world.sa.requests.values().max().copied().unwrap_or(0);
        println!(
            "100 ports, 2 groups, again: {took:?}, {total} requests, at most {most} for a group and port"
        );
        // A doubled datagram arrives twice.
        assert!(most <= 4, "{most} requests");
        for port in 0..world.ports.len() {
            for membership in world.ports[port].memberships() {
                let group = &world.sa.groups[&membership.record.mgid];
                assert_eq!(membership.record.mlid, group.record.mlid);
            }
        }
    }
}

#[test]
fn a_bad_network_delays_and_confuses_nothing() {
    for seed in 100..130 {
        println!("seed {seed}");
        let faults = Faults {
            lost: 200,
            doubled: 200,
            delay: 1500,
        };
        let mut world = World::new(10, seed, faults);
        bring_up(&mut world, &[broadcast(), group(1)]);
        for port in 0..10 {
            let found = (0..20).find_map(|_| world.path(port, to(3)).ok());
            assert_eq!(found.map(|path| path.dlid), Some(Lid(4)));
        }
    }
}
