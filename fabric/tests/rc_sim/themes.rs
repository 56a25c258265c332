//! Queue pairs with one kind of trouble in each test.

use super::{loses_little, simulate};
use crate::network::{MICROSECOND, MILLISECOND};
use crate::random::Random;
use crate::scenario::{Failures, Patience, Scenario, Sizes, Trouble};

/// Approximate number of messages of a world, both directions together.
const WORLD: u64 = 2_000;

#[test]
fn fair_network() {
    simulate("fair_network", 300_000, |seed| {
        Scenario::fair(seed, WORLD / 2)
    });
}

#[test]
fn faults_of_every_kind() {
    simulate("faults_of_every_kind", 500_000, |seed| Scenario {
        failures: Failures::Retry,
        ..Scenario::fair(seed, WORLD / 2).faulty(30)
    })
    .shows(|sum| sum.retransmitted > 0 && loses_little(sum));
}

/// Our requesters with responders that discard packets after a gap. They acknowledge each AckReq, or
/// each packet.
#[test]
fn plain_responders() {
    simulate("plain_responders", 200_000, |seed| Scenario {
        plain_responders: true,
        acknowledges_all: seed % 3 == 0,
        failures: Failures::Retry,
        ..Scenario::fair(seed, WORLD / 2).faulty(30)
    })
    .shows(|sum| sum.retransmitted > 0 && loses_little(sum));
}

/// The network loses acknowledgements of many packets, and packets that request them.
#[test]
fn lost_acknowledgements_and_requests_for_them() {
    let theme = "lost_acknowledgements_and_requests_for_them";
    simulate(theme, 100_000, |seed| {
        let mut random = Random::new(seed);
        let base = Scenario::fair(seed, WORLD / 2);
        Scenario {
            asks_lost: random.one_of(&[0, 10_000, 100_000]),
            answers_lost: random.one_of(&[10_000, 100_000, 300_000]),
            plain_responders: seed % 4 == 0,
            sizes: random.one_of(&[base.sizes, Sizes::Jumbo]),
            messages: base.messages / 4,
            failures: Failures::Retry,
            ..base
        }
    })
    .shows(|sum| sum.retransmitted > 0 && loses_little(sum));
}

/// Messages of 64 KiB, as in connected mode, and of a megabyte.
#[test]
fn long_messages() {
    simulate("long_messages", 2_000, |seed| Scenario {
        sizes: if seed % 4 == 0 {
            Sizes::Huge
        } else {
            Sizes::Jumbo
        },
        buffers: 64,
        ..Scenario::fair(seed, if seed % 4 == 0 { 8 } else { 40 }).faulty(3)
    })
    .shows(|sum| sum.retransmitted > 0);
}

/// Many nodes, all connected to each other, with shared receive buffers.
#[test]
fn meshes() {
    simulate("meshes", 200_000, |seed| {
        let mut random = Random::new(seed);
        let base = Scenario::fair(seed, WORLD / 2).faulty(5);
        base.meshed(random.between(3, 6) as usize)
    })
    .shows(|sum| sum.retransmitted > 0);
}

/// Consumers that keep their receive buffers, so the queue is often empty.
#[test]
fn starved_receivers() {
    simulate("starved_receivers", 100_000, |seed| {
        let mut random = Random::new(seed);
        Scenario {
            buffers: random.between(1, 16) as usize,
            hold: random.one_of(&[100, 1_000, 10_000]) * MICROSECOND,
            patience: Patience {
                min_rnr_timer: random.one_of(&[1, 12, 18]),
                ..Patience::OURS
            },
            ..Scenario::fair(seed, WORLD / 4).faulty(5)
        }
    })
    .shows(|sum| sum.retransmitted > 0);
}

/// The same with requesters that have limited retries.
#[test]
fn starved_receivers_of_the_impatient() {
    simulate("starved_receivers_of_the_impatient", 50_000, |seed| {
        let mut random = Random::new(seed);
        Scenario {
            buffers: random.between(1, 8) as usize,
            hold: 20 * MILLISECOND,
            patience: Patience {
                rnr_retry: random.between(0, 6) as u8,
                min_rnr_timer: random.one_of(&[1, 12, 18]),
                ..Patience::OURS
            },
            failures: Failures::RetryAndRnr,
            ..Scenario::fair(seed, WORLD / 4).faulty(5)
        }
    })
    .shows(|sum| sum.failures > 0 && sum.arrived * 5 > sum.lost);
}

/// Requesters with few or no retries, as the kernel's IP over InfiniBand requests: failures must be
/// right.
#[test]
fn few_retries() {
    simulate("few_retries", 50_000, |seed| {
        let mut random = Random::new(seed);
        Scenario {
            patience: Patience {
                retry_cnt: random.between(0, 3) as u8,
                timeout: random.one_of(&[12, 14, 15]),
                ..Patience::OURS
            },
            failures: Failures::Retry,
            ..Scenario::fair(seed, WORLD / 4).faulty(10)
        }
    })
    .shows(|sum| sum.failures > 0 && sum.lost * 3 < sum.arrived);
}

#[test]
fn outages() {
    simulate("outages", 50_000, |seed| Scenario {
        trouble: Trouble::Outages,
        gap: 2 * MILLISECOND,
        burst: 8,
        ..Scenario::fair(seed, WORLD / 2).faulty(1)
    })
    .shows(|sum| sum.retransmitted > 0);
}

#[test]
fn vanishing_peers() {
    simulate("vanishing_peers", 50_000, |seed| Scenario {
        trouble: Trouble::Vanish,
        ..Scenario::fair(seed, WORLD / 2).faulty(5).meshed(3)
    })
    .shows(|sum| sum.failures > 0 && sum.lost * 10 < sum.arrived);
}

#[test]
fn pauses_and_steps_of_clocks() {
    simulate("pauses_and_steps_of_clocks", 50_000, |seed| Scenario {
        trouble: Trouble::Pauses,
        gap: 2 * MILLISECOND,
        ..Scenario::fair(seed, WORLD / 2).faulty(1)
    })
    .shows(|sum| sum.retransmitted > 0);
}

#[test]
fn drains() {
    simulate("drains", 50_000, |seed| Scenario {
        trouble: Trouble::Drains,
        gap: 500 * MICROSECOND,
        ..Scenario::fair(seed, WORLD / 2).faulty(5)
    })
    .shows(|sum| sum.retransmitted > 0);
}

/// Forged packets from an attacker that knows addresses and queue pairs, and must guess PSNs.
#[test]
fn forgeries() {
    simulate("forgeries", 100_000, |seed| Scenario {
        trouble: Trouble::Forgeries,
        gap: 2 * MILLISECOND,
        ..Scenario::fair(seed, WORLD / 2).faulty(3).meshed(3)
    })
    .shows(|sum| sum.retransmitted > 0);
}
