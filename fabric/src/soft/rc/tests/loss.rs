//! Two queue pairs over a network that drops, duplicates and reorders, from a seed.

use std::time::Duration;

use proto::{IbMtu, WcStatus};

use super::side::{A, B, Choices, Side, ack, message, pair};
use crate::soft::wire::Packet;
use crate::soft::wire::opcode::{RC_SEND_FIRST, RC_SEND_LAST, RC_SEND_ONLY};

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
            if sent[k].len() < MESSAGES && side.qp.has_room() {
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

/// A responder that does not delay acknowledgements and keeps nothing after a gap, as `rdma_rxe` and many adapters
/// (IBA vol. 1, 9.7.5.1 and 9.9.2).
struct GoBackN {
    /// Acknowledges each packet, not only those that ask.
    each_packet: bool,
    expected: u32,
    messages: Vec<Vec<u8>>,
    message: Vec<u8>,
    gap_reported: bool,
}

impl GoBackN {
    const ACK: u8 = 0x1f;
    const NAK_SEQUENCE_ERROR: u8 = 0x60;

    fn reply(&self, psn: u32, syndrome: u8) -> Vec<u8> {
        ack(psn & 0xff_ffff, A, syndrome, self.messages.len() as u32)
    }

    /// Receives a packet; returns the reply to it.
    fn take(&mut self, bytes: &[u8]) -> Option<Vec<u8>> {
        let packet = Packet::parse(bytes).unwrap();
        let last = self.expected.wrapping_sub(1);
        let ahead = packet.bth.psn().get().wrapping_sub(self.expected) & 0xff_ffff;
        if ahead >= 1 << 23 {
            return Some(self.reply(last, Self::ACK));
        }
        if ahead > 0 {
            let first = !std::mem::replace(&mut self.gap_reported, true);
            return first.then(|| self.reply(self.expected, Self::NAK_SEQUENCE_ERROR));
        }
        self.gap_reported = false;
        self.expected = (self.expected + 1) & 0xff_ffff;
        let opcode = packet.bth.opcode;
        let starts = matches!(opcode, RC_SEND_FIRST | RC_SEND_ONLY);
        assert!(!starts || self.message.is_empty());
        self.message.extend_from_slice(packet.payload);
        if matches!(opcode, RC_SEND_LAST | RC_SEND_ONLY) {
            self.messages.push(std::mem::take(&mut self.message));
        }
        let asked = self.each_packet || packet.bth.ack_req();
        asked.then(|| self.reply(self.expected.wrapping_sub(1), Self::ACK))
    }
}

/// Messages to a peer that does not delay acknowledgements.
fn run_to_go_back_n(seed: u64, percent: usize, each_packet: bool) {
    const MESSAGES: usize = 200;
    let choices = Choices {
        mtu: IbMtu::B4096,
        psn: 0xff_fff0,
        ..Choices::default()
    };
    let mut a = Side::connected(A, B, choices);
    let mut b = GoBackN {
        each_packet,
        expected: choices.psn,
        messages: Vec::new(),
        message: Vec::new(),
        gap_reported: false,
    };
    let mut random = Random(seed | 1);
    let (mut sent, mut done, mut rounds) = (Vec::new(), 0, 0);
    while done < MESSAGES {
        rounds += 1;
        assert!(rounds < 100_000, "seed {seed}: no progress: {done}");
        while sent.len() < MESSAGES && a.qp.has_room() {
            sent.push(message(sent.len(), random.next(65_524)));
            a.post(&sent[sent.len() - 1]);
        }
        let packets = a.send(true);
        let quiet = packets.is_empty();
        let replies = wire(&mut random, percent, packets);
        let replies = replies.iter().filter_map(|p| b.take(p)).collect();
        a.take(&wire(&mut random, percent, replies));
        for (id, status) in a.completions() {
            done += 1;
            assert_eq!(
                (id, status),
                (done as u64, WcStatus::Success),
                "seed {seed}"
            );
        }
        a.wait(Duration::from_micros(50));
        if quiet && done < MESSAGES {
            a.expire();
        }
    }
    assert_eq!(b.messages, sent, "seed {seed}");
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

#[test]
fn so_it_does_to_a_peer_that_acknowledges_each_message_or_each_packet() {
    for each_packet in [false, true] {
        run_to_go_back_n(1, 0, each_packet);
        for seed in 200..206 {
            run_to_go_back_n(seed, 2, each_packet);
            run_to_go_back_n(seed, 10, each_packet);
        }
    }
}
