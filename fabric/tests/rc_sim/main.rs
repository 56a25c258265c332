//! Simulation of reliable connections over a bad network: time is virtual, a seed determines all
//! events, and gives the same world on every machine.
//!
//! Each world has two or more nodes, each with a shared receive queue and RC queue pairs ([`RcQp`]).
//! They run as in a data thread: receive a batch, deliver messages, handle timers, send to a socket
//! that may be full. The network drops, duplicates, delays, reorders and damages datagrams; ICRCs are
//! written and verified, so damage is detected as on a real network. Each packet and each message is
//! checked:
//!
//! - every message arrives exactly once, whole, and in the order of posting;
//! - requests complete in the order of posting, and none before its messages have arrived; after a
//!   failure all further requests are flushed;
//! - a queue pair fails only if the scenario permits it, with the right status, not before the peer had
//!   all the time it is entitled to, and within a bounded time;
//! - no more packets are in flight than the window allows, no acknowledged packet is sent again, and
//!   retransmissions are identical;
//! - there is one NAK for each gap; MSNs count the messages that arrived;
//! - no receive buffer is lost, the transport's memory is bounded, and no deadline is in the past.
//!
//! A failing world prints its seed. Each theme below runs few enough messages for `scripts/test`. To
//! run more, or to repeat a seed:
//!
//! ```sh
//! RC_SIM_MESSAGES=10000000 cargo test --release -p fabric --test rc_sim    # in each theme
//! RC_SIM_SEED=77 RC_SIM_MESSAGES=1 cargo test -p fabric --test rc_sim -- THEME
//! ```
//!
//! `RC_SIM_SEED` is the first seed, from 1; the next ones follow until enough messages were sent.
//! `RC_SIM_TRACE=1` prints every packet sent and received, and every outage.

#[allow(unsafe_code)]
mod bounds;
mod engine_themes;
mod engines;
mod flow;
mod network;
mod node;
mod packet_checks;
mod packets;
mod plain;
mod random;
mod scenario;
mod side;
mod themes;
mod trouble;
mod world;

use std::env;

use scenario::Scenario;
use world::{Outcome, World};

/// Prints how to repeat a failure.
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

/// The sum over all worlds of a theme.
struct Sum {
    outcome: Outcome,
    /// Whether as many messages were sent as the theme has by default.
    is_whole: bool,
}

impl Sum {
    /// Checks a property that only many worlds have.
    fn shows(&self, is_right: fn(&Outcome) -> bool) {
        assert!(!self.is_whole || is_right(&self.outcome));
    }
}

/// Whether requesters gave up almost no message. `retry_cnt` 7 outlives nearly every fault.
fn loses_little(sum: &Outcome) -> bool {
    sum.lost * 500 < sum.arrived
}

/// Runs worlds until `messages` have been sent.
fn simulate(theme: &'static str, messages: u64, make: impl Fn(u64) -> Scenario) -> Sum {
    let by_default = messages;
    let messages = setting("RC_SIM_MESSAGES").unwrap_or(by_default);
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
    Sum {
        outcome: sum,
        is_whole: messages >= by_default,
    }
}
