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
mod bounds;
mod engine_themes;
mod engines;
mod flow;
mod network;
mod node;
mod packets;
mod plain;
mod random;
mod scenario;
mod side;
mod themes;
mod trouble;
mod watch;
mod world;

use std::env;

use scenario::Scenario;
use world::{Outcome, World};

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
