//! Reliable connections over a network that does its worst, simulated: time is virtual, everything
//! is drawn from a seed, and a seed gives the same world on every machine.
//!
//! Each world holds two or more nodes, each with a shared receive queue and RC queue pairs ([`RcQp`])
//! that are run as a data thread runs them: a batch in, messages out, timers, a socket that may be
//! full. The network between them loses, doubles, delays, reorders and damages datagrams; ICRCs are
//! written and verified, so that damage is seen as on a wire. What must hold is checked at every
//! packet and every message:
//!
//! - every message arrives exactly once, whole, and in the order of posting;
//! - requests complete in the order of posting, and none before its messages have arrived; after a
//!   failure the rest is flushed;
//! - a queue pair fails only where the scenario can make it fail, with the right status, not before
//!   the peer had all the time that it is due, and no later than in a bounded time;
//! - no more packets are in flight than the window allows, none is sent again once it is
//!   acknowledged, and what is sent again is what it was;
//! - one NAK a gap; MSNs count the messages that arrived;
//! - no receive buffer is lost, the transport's memory is bounded, no deadline has passed already.
//!
//! A failing world prints its seed. Every theme below runs a number of messages that `scripts/test`
//! can afford; for more, or for one seed again:
//!
//! ```sh
//! RC_SIM_MESSAGES=10000000 cargo test --release -p fabric --test rc_sim    # in each theme
//! RC_SIM_SEED=77 RC_SIM_MESSAGES=1 cargo test -p fabric --test rc_sim -- THEME
//! ```
//!
//! `RC_SIM_SEED` is the first seed, from 1; the next ones follow until there were enough messages.
//! With `RC_SIM_TRACE=1` every packet that is sent and received is told of.

#[allow(unsafe_code)]
mod memory;

mod engines;
mod flow;
mod network;
mod node;
mod packets;
mod random;
mod scenario;
mod side;
mod watch;
mod world;

use std::env;

use engines::{Tally, Weather};
use fabric::soft::rc::{Inbox, RcCounts, Shared, Srq};
use fabric::soft::wire::{Extended, Repr, opcode};
use fabric::{IbMtu, Instant, PKey};
use memory::Ledger;
use network::{Impairments, MICROSECOND, MILLISECOND};
use packets::forge;
use random::Random;
use scenario::{Failures, Patience, Scenario, Sizes, Trouble};
use side::{Place, Side};
use world::{Outcome, World};

/// Messages of a world, both directions together, roughly.
const WORLD: u64 = 2_000;

/// Says how to see a failure again.
struct Replay {
    theme: &'static str,
    seed: u64,
}

impl Drop for Replay {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let Replay { theme, seed } = self;
            eprintln!(
                "seed {seed}; again: RC_SIM_SEED={seed} RC_SIM_MESSAGES=1 \
                 cargo test -p fabric --test rc_sim -- {theme}"
            );
        }
    }
}

fn setting(name: &str) -> Option<u64> {
    let value = env::var(name).ok()?;
    Some(
        value
            .parse()
            .unwrap_or_else(|_| panic!("{name}={value} is no number")),
    )
}

/// Runs worlds until `messages` have been sent.
fn simulate(theme: &'static str, messages: u64, make: impl Fn(u64) -> Scenario) {
    let messages = setting("RC_SIM_MESSAGES").unwrap_or(messages);
    let first = setting("RC_SIM_SEED").unwrap_or(1);
    let (mut sum, mut worlds) = (Outcome::default(), 0);
    for seed in first.. {
        if sum.arrived + sum.lost >= messages {
            break;
        }
        let replay = Replay { theme, seed };
        let scenario = make(seed);
        let outcome = World::new(&scenario).run();
        drop(replay);
        worlds += 1;
        sum.add(&outcome);
    }
    println!("{theme}: {worlds} worlds from seed {first}: {sum:?}");
}

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
    });
}

/// Messages of 64 KiB, as connected mode has them, and of a megabyte.
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
    });
}

/// Many nodes, each connected with every other one, that share receive buffers.
#[test]
fn meshes() {
    simulate("meshes", 200_000, |seed| {
        let mut random = Random::new(seed);
        let base = Scenario::fair(seed, WORLD / 2).faulty(5);
        base.meshed(random.between(3, 6) as usize)
    });
}

/// Consumers that keep their receive buffers, so that the queue is often empty.
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
    });
}

/// The same towards requesters that do not wait for ever.
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
    });
}

/// Requesters with little or no patience, as the kernel's IP over InfiniBand asks for: what fails,
/// fails as it should.
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
    });
}

#[test]
fn outages() {
    simulate("outages", 50_000, |seed| Scenario {
        trouble: Trouble::Outages,
        gap: 2 * MILLISECOND,
        burst: 8,
        ..Scenario::fair(seed, WORLD / 2).faulty(1)
    });
}

#[test]
fn vanishing_peers() {
    simulate("vanishing_peers", 50_000, |seed| Scenario {
        trouble: Trouble::Vanish,
        ..Scenario::fair(seed, WORLD / 2).faulty(5).meshed(3)
    });
}

#[test]
fn pauses_and_steps_of_clocks() {
    simulate("pauses_and_steps_of_clocks", 50_000, |seed| Scenario {
        trouble: Trouble::Pauses,
        gap: 2 * MILLISECOND,
        ..Scenario::fair(seed, WORLD / 2).faulty(1)
    });
}

#[test]
fn drains() {
    simulate("drains", 50_000, |seed| Scenario {
        trouble: Trouble::Drains,
        gap: 500 * MICROSECOND,
        ..Scenario::fair(seed, WORLD / 2).faulty(5)
    });
}

/// Packets of somebody who knows the addresses and the queue pairs, and has to guess PSNs.
#[test]
fn forgeries() {
    simulate("forgeries", 100_000, |seed| Scenario {
        trouble: Trouble::Forgeries,
        gap: 2 * MILLISECOND,
        ..Scenario::fair(seed, WORLD / 2).faulty(3).meshed(3)
    });
}

/// Nothing depends on anything but the seed: else a failure could not be seen again.
#[test]
fn a_seed_gives_the_same_world_again() {
    let faulty = Scenario {
        failures: Failures::Retry,
        ..Scenario::fair(8, 500).faulty(30).meshed(3)
    };
    let run = || World::new(&faulty).run();
    assert_eq!(run(), run());
    let stormy = Weather {
        restarts: true,
        closes: true,
        outages: true,
        may_fail: true,
        ..weather(8, &mut Random::new(8))
    };
    let run = || engines::World::new(&stormy).run();
    assert_eq!(run(), run());
}

/// 64 KiB messages over a link of ten gigabits a second with a shallow queue: what is
/// lost costs less than half.
#[test]
fn one_per_cent_of_loss_costs_less_than_half() {
    let took = |loss| {
        let base = Scenario::fair(5, 300);
        let scenario = Scenario {
            impairments: Impairments {
                loss,
                latency: 20 * MICROSECOND,
                rate: 10_000_000_000,
                queue: 256 << 10,
                ..Impairments::default()
            },
            mtu: IbMtu::B1024,
            sizes: Sizes::Jumbo,
            burst: 1000,
            gap: 0,
            blocked: 0,
            failures: Failures::None,
            ..base
        };
        World::new(&scenario).run().took
    };
    let (clean, lossy) = (took(0), took(10_000));
    println!("clean {clean} ns, lossy {lossy} ns");
    assert!(lossy < 2 * clean, "{lossy} ns, {clean} ns without loss");
}

/// Five senders towards nodes that are slower than all of them together and whose sockets are small:
/// what overflows is sent again, and that does not make it worse and worse.
#[test]
fn overflowing_sockets() {
    let mut worst = 0;
    for seed in 1..=4 {
        let replay = Replay {
            theme: "overflowing_sockets",
            seed,
        };
        let scenario = Scenario {
            impairments: Impairments {
                latency: 20 * MICROSECOND,
                ..Impairments::default()
            },
            mtu: IbMtu::B1024,
            sizes: Sizes::Jumbo,
            socket: 212_992,
            cost: MICROSECOND,
            burst: 1000,
            gap: 0,
            ..Scenario::fair(seed, 600).meshed(6)
        };
        let outcome = World::new(&scenario).run();
        drop(replay);
        worst = worst.max(100 * outcome.retransmitted / outcome.packets);
    }
    println!("sent again: at most {worst} per cent");
    assert!(
        worst < 30,
        "{worst} per cent of all packets were sent again"
    );
}

/// A peer that leaves a gap and goes on: what is kept of it has a bound, and so has what is kept of
/// lists. Then the gap is filled, and everything that was kept is there.
#[test]
fn what_comes_behind_a_gap_is_bounded() {
    let scenario = Scenario {
        mtu: IbMtu::B256,
        ..Scenario::fair(1, 0)
    };
    let (here, peer) = (Place::of(0, 0x11), Place::of(1, 0x12));
    let mut shared = Shared {
        srq: Srq::new(8192, 256),
        inbox: Inbox::default(),
        counts: RcCounts::default(),
    };
    let now = Instant(1);
    let patience = &scenario.patience;
    let mut side = Side::connect(
        0,
        now,
        &mut shared,
        0,
        (0, 1),
        here,
        peer,
        scenario.mtu,
        patience,
    );
    let mut ledger = Ledger::default();
    let mut receive = |number: u32, shared: &mut Shared| {
        let repr = Repr {
            opcode: opcode::RC_SEND_ONLY,
            solicited: false,
            mig_req: false,
            pkey: PKey::DEFAULT,
            fecn: false,
            becn: false,
            dest_qp: here.qpn,
            ack_req: true,
            psn: peer.psn.advance(number),
            extended: Extended::default(),
            payload: &[number as u8; 256],
        };
        let bytes = forge(1, 0, &repr);
        let packet = packets::open(1, 0, &bytes).unwrap();
        let packet = packets::for_queue_pair(&packet, &bytes);
        ledger.within(|| side.qp.receive(now, shared, &packet));
        ledger.within(|| side.qp.end_batch(shared, &bytes));
        ledger.most()
    };
    // More than the number of PSNs that may be in flight, and some of them twice.
    let mut most = 0;
    for number in (1..50_000).chain(1..100).chain((1 << 23) - 100..(1 << 23)) {
        most = receive(number, &mut shared);
    }
    assert!(most < (1 << 20) + (64 << 10), "{most} bytes");
    assert!(shared.counts.held_out_of_order > 1000);
    assert!(shared.inbox.messages.is_empty());
    receive(0, &mut shared);
    let kept = shared.counts.held_out_of_order;
    assert_eq!(shared.inbox.messages.len() as u64, kept + 1);
}

/// Runs worlds of engines until `messages` have arrived.
fn simulate_engines(
    theme: &'static str,
    messages: u64,
    make: impl Fn(u64, &mut Random) -> Weather,
) {
    let messages = setting("RC_SIM_MESSAGES").unwrap_or(messages);
    let first = setting("RC_SIM_SEED").unwrap_or(1);
    let (mut sum, mut worlds) = (Tally::default(), 0);
    for seed in first.. {
        if sum.arrived >= messages {
            break;
        }
        let replay = Replay { theme, seed };
        let tally = engines::World::new(&make(seed, &mut Random::new(seed))).run();
        drop(replay);
        worlds += 1;
        sum.add(&tally);
    }
    println!("{theme}: {worlds} worlds from seed {first}: {sum:?}");
}

/// A network with some faults, and two seconds of whatever else a theme has.
fn weather(seed: u64, random: &mut Random) -> Weather {
    Weather {
        seed,
        nodes: random.between(2, 5) as usize,
        impairments: Scenario::fair(seed, 0).faulty(5).impairments,
        trouble: 2_000 * MILLISECOND,
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
