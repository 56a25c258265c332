//! Limits of time, packets and memory, and reproducibility of worlds.

use fabric::soft::rc::{Inbox, RcCounts, Shared, Srq};
use fabric::soft::wire::{Extended, Repr, opcode};
use fabric::{IbMtu, Instant, PKey};
use kit::allocator::Ledger;

use super::{Replay, setting};
use crate::engine_themes::weather;
use crate::engines::{self, Weather};
use crate::network::{Impairments, MICROSECOND};
use crate::packets::{self, forge};
use crate::random::Random;
use crate::scenario::{Failures, Scenario, Sizes};
use crate::side::{Place, Side};
use crate::world::{Outcome, World};

/// Only the seed decides: otherwise a failure could not be repeated.
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

/// Number of worlds of which the sum is compared. See [`one_per_cent_of_loss_costs_less_than_half`].
const FAST_LINKS: u64 = 20;

/// 64 KiB messages over links of ten gigabits a second with a shallow queue.
fn fast_links(loss: u32, plain_responders: bool) -> Outcome {
    let mut sum = Outcome::default();
    let first = setting("RC_SIM_SEED").unwrap_or(1);
    for seed in first..first + FAST_LINKS {
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
            plain_responders,
            failures: Failures::None,
            ..Scenario::fair(seed, 300)
        };
        sum.add(&World::new(&scenario).run());
    }
    sum
}

/// One per cent of loss must not halve the throughput.
///
/// Each direction of a world has about 18,400 packets, which occupy the link for 16 ms. 184 of them are
/// lost. A loss costs a round trip, unless the NAK or the retransmission is lost as well, which happens to
/// 2 % of them: then the requester waits for its timeout, 2 to 5 ms. So a direction waits 3.7 times, for 7
/// to 18 ms. In one world this number varies by half of its value, and a loss among the first packets may
/// cost the 50 ms of the first timeout: one world in ten takes more than twice the time, without a fault.
/// In the sum of 20 worlds, the number of waits varies by an eighth.
#[test]
fn one_per_cent_of_loss_costs_less_than_half() {
    let (clean, lossy) = (fast_links(0, false), fast_links(10_000, false));
    println!("clean {clean:?}, lossy {lossy:?}");
    assert!(lossy.took < 2 * clean.took);
    // Packets lost on the link or in the queue are sent again, and few others.
    assert!(100 * lossy.retransmitted < 8 * lossy.packets);
}

/// The same with peers that discard packets after a gap: the requester sends all of them again.
#[test]
fn one_per_cent_of_loss_at_plain_responders() {
    let (clean, lossy) = (fast_links(0, true), fast_links(10_000, true));
    println!("clean {clean:?}, lossy {lossy:?}");
    assert!(lossy.took < 5 * clean.took);
}

/// Five senders to nodes that are slower than all of them together and have small sockets: lost packets
/// are sent again, and the load stays bounded.
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

/// A peer leaves a gap and continues: the kept packets are bounded, and so are lists. Then the gap is
/// filled, and all kept packets are delivered.
#[test]
fn packets_kept_after_a_gap_are_bounded() {
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
    // More than the maximum number of PSNs in flight, and some of them twice.
    let mut most = 0;
    for number in (1..50_000).chain(1..100).chain((1 << 23) - 100..(1 << 23)) {
        most = receive(number, &mut shared);
    }
    assert!(most < (3 << 20) + (64 << 10), "{most} bytes");
    assert!(shared.counts.held_out_of_order > 1000);
    assert!(shared.inbox.messages.is_empty());
    receive(0, &mut shared);
    let kept = shared.counts.held_out_of_order;
    assert_eq!(shared.inbox.messages.len() as u64, kept + 1);
}
