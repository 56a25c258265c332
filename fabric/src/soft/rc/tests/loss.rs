//! Two queue pairs over a network that drops, duplicates and reorders, from a seed.

use std::time::Duration;

use proto::{IbMtu, WcStatus};

use super::side::{Choices, Side, message, pair};
use crate::soft::rc::Room;

/// A small generator (xorshift64*).
pub struct Random(pub u64);

impl Random {
    fn next(&mut self, below: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) as usize % below
    }
}

/// Drops, duplicates and reorders packets.
pub fn wire(random: &mut Random, percent: usize, mut packets: Vec<Vec<u8>>) -> Vec<Vec<u8>> {
    let mut out: Vec<Vec<u8>> = Vec::new();
    for packet in packets.drain(..) {
        if random.next(100) < percent {
            continue;
        }
        if random.next(100) < percent / 4 {
            out.push(packet.clone());
        }
        let at = out
            .len()
            .saturating_sub(match random.next(100) < percent / 2 {
                true => random.next(5),
                false => 0,
            });
        out.insert(at, packet);
    }
    out
}

fn run(seed: u64, percent: usize, mtu: IbMtu) {
    let choices = Choices {
        mtu,
        psn: 0xff_fff0,
        ..Choices::default()
    };
    let (mut a, mut b) = pair(choices);
    let mut random = Random(seed | 1);
    let sizes = [0, 1, 255, 1024, 4097, 20_000, 65_524];
    let mut sent = [Vec::new(), Vec::new()];
    let mut done = [0, 0];
    const MESSAGES: usize = 200;
    let mut rounds = 0;
    while done != [MESSAGES; 2] || [a.received.len(), b.received.len()] != [MESSAGES; 2] {
        rounds += 1;
        assert!(rounds < 1_000_000, "seed {seed}: no progress: {done:?}");
        for (k, side) in [&mut a, &mut b].into_iter().enumerate() {
            if sent[k].len() < MESSAGES && side.qp.room(side.now) == Room::Open {
                let next = message(sent[k].len() + k, sizes[random.next(sizes.len())]);
                side.post(&next);
                sent[k].push(next);
            }
        }
        let (to_b, to_a) = (a.send(true), b.send(true));
        let quiet = to_a.is_empty() && to_b.is_empty();
        b.take(&wire(&mut random, percent, to_b));
        a.take(&wire(&mut random, percent, to_a));
        for (k, side) in [&mut a, &mut b].into_iter().enumerate() {
            for (id, status) in side.completions() {
                assert_eq!(status, WcStatus::Success, "seed {seed}");
                done[k] += 1;
                assert_eq!(id, done[k] as u64, "seed {seed}");
            }
        }
        pass(&mut a, &mut b, quiet);
    }
    for (side, sent) in [(&b, &sent[0]), (&a, &sent[1])] {
        for (k, (got, sent)) in side.received.iter().zip(sent).enumerate() {
            assert_eq!(&got.payload, sent, "seed {seed}: message {k}");
        }
        assert_eq!(side.shared.srq.available(), choices.buffers);
    }
    if percent > 0 {
        assert!(a.shared.counts.retransmitted > 0, "seed {seed}");
    }
}

/// Advances time by a round trip, or to the next deadline if nothing happens.
fn pass(a: &mut Side, b: &mut Side, quiet: bool) {
    let mut now = a.now.after(Duration::from_micros(50));
    if quiet {
        let deadlines = [a.qp.next_deadline(), b.qp.next_deadline()];
        now = now.max(deadlines.into_iter().flatten().min().unwrap_or(now));
    }
    for side in [a, b] {
        side.now = now;
        if side.qp.next_deadline().is_some_and(|at| at <= now) {
            side.qp.handle_timeout(now, &mut side.shared);
        }
    }
}

#[test]
fn a_clean_wire_loses_nothing() {
    run(1, 0, IbMtu::B4096);
}

#[test]
fn every_message_arrives_once_whole_and_in_order() {
    for seed in 1..12 {
        run(seed, 2, IbMtu::B4096);
        run(seed, 10, IbMtu::B1024);
    }
}

#[test]
fn so_it_does_over_a_very_bad_wire() {
    for seed in 100..104 {
        run(seed, 25, IbMtu::B1024);
    }
}
