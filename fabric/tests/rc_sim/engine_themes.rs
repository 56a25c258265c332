//! Engines with one kind of trouble in each test.

use super::{Replay, setting};
use crate::engines::{Totals, Weather, World};
use crate::network::MILLISECOND;
use crate::random::Random;
use crate::scenario::Scenario;

/// Runs worlds of engines until `messages` have arrived.
fn simulate_engines(
    theme: &'static str,
    messages: u64,
    make: impl Fn(u64, &mut Random) -> Weather,
) -> Totals {
    let messages = setting("RC_SIM_MESSAGES").unwrap_or(messages);
    let first = setting("RC_SIM_SEED").unwrap_or(1);
    let (mut sum, mut worlds) = (Totals::default(), 0);
    for seed in first.. {
        if sum.arrived >= messages {
            break;
        }
        let replay = Replay { theme, seed };
        let totals = World::new(&make(seed, &mut Random::new(seed))).run();
        drop(replay);
        worlds += 1;
        sum.add(&totals);
    }
    println!("{theme}: {worlds} worlds from seed {first}: {sum:?}");
    sum
}

/// A network with some faults, and two seconds of the other trouble of a theme.
pub fn weather(seed: u64, random: &mut Random) -> Weather {
    Weather {
        seed,
        nodes: random.between(2, 5) as usize,
        star: false,
        impairments: Scenario::fair(seed, 0).faulty(5).impairments,
        trouble: 2_000 * MILLISECOND,
        rdma_cm: false,
        restarts: false,
        closes: false,
        outages: false,
        may_fail: false,
        burst: random.one_of(&[1, 4, 16]),
        gap: random.one_of(&[20, 100, 500]) * MILLISECOND,
    }
}

#[test]
fn engines_on_a_bad_network() {
    simulate_engines("engines_on_a_bad_network", 50_000, weather);
}

#[test]
fn engines_whose_consumers_close() {
    simulate_engines("engines_whose_consumers_close", 50_000, |seed, random| {
        Weather {
            closes: true,
            ..weather(seed, random)
        }
    });
}

#[test]
fn engines_that_are_killed_and_return() {
    simulate_engines(
        "engines_that_are_killed_and_return",
        50_000,
        |seed, random| Weather {
            restarts: true,
            trouble: 5_000 * MILLISECOND,
            ..weather(seed, random)
        },
    );
}

#[test]
fn engines_in_all_trouble_at_once() {
    simulate_engines("engines_in_all_trouble_at_once", 50_000, |seed, random| {
        Weather {
            restarts: true,
            closes: true,
            outages: true,
            may_fail: true,
            trouble: 5_000 * MILLISECOND,
            ..weather(seed, random)
        }
    });
}

/// Two endpoints of each node on one service, and SIDR, over the same network.
#[test]
fn engines_that_use_rdma_cms_services() {
    let sum = simulate_engines(
        "engines_that_use_rdma_cms_services",
        30_000,
        |seed, random| Weather {
            rdma_cm: true,
            restarts: seed % 2 == 0,
            closes: true,
            trouble: 5_000 * MILLISECOND,
            ..weather(seed, random)
        },
    );
    assert!(sum.found > 0);
}

/// One node with 200 peers is killed and restarts: all peers connect again at once.
#[test]
fn engines_around_one_that_is_killed() {
    simulate_engines("engines_around_one_that_is_killed", 1, |seed, random| {
        Weather {
            nodes: 201,
            star: true,
            restarts: true,
            impairments: Scenario::fair(seed, 0).faulty(1).impairments,
            burst: 2,
            gap: 500 * MILLISECOND,
            ..weather(seed, random)
        }
    });
}
