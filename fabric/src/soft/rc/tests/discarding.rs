//! A peer like rdma_rxe: it discards packets after a gap, reports a gap once until it is closed, and
//! acknowledges each packet that requests it (kernel drivers/infiniband/sw/rxe/rxe_resp.c).

use std::time::Duration;

use proto::{Psn, WcStatus};

use super::loss::{Random, wire};
use super::side::{A, B, Choices, Side, ack, message};
use crate::soft::wire::Packet;

struct Discarding {
    expected: Psn,
    named: bool,
    msn: u32,
    messages: Vec<Vec<u8>>,
    open: Vec<u8>,
}

impl Discarding {
    fn take(&mut self, packets: &[Vec<u8>]) -> Vec<Vec<u8>> {
        packets.iter().filter_map(|p| self.answer(p)).collect()
    }

    fn answer(&mut self, bytes: &[u8]) -> Option<Vec<u8>> {
        let packet = Packet::parse(bytes).unwrap();
        let ahead = packet.bth.psn().since(self.expected);
        if ahead > 0 {
            let first = !self.named;
            self.named = true;
            return first.then(|| ack(self.expected.get(), A, 0x60, self.msn));
        }
        if ahead == 0 {
            self.named = false;
            self.expected = self.expected.advance(1);
            self.open.extend_from_slice(packet.payload);
            if matches!(packet.bth.opcode, 2 | 4) {
                self.msn += 1;
                self.messages.push(std::mem::take(&mut self.open));
            }
        }
        let asked = ahead < 0 || packet.bth.ack_req();
        let last = self.expected.advance(0xff_ffff).get();
        asked.then(|| ack(last, A, 0x1f, self.msn))
    }
}

/// Sends 300 messages; returns the retransmissions for each lost packet.
fn run(seed: u64, percent: usize) -> f64 {
    let mut a = Side::connected(A, B, Choices::default());
    let mut peer = Discarding {
        expected: Psn::new(0x1000),
        named: false,
        msn: 0,
        messages: Vec::new(),
        open: Vec::new(),
    };
    let mut random = Random(seed);
    let (mut posted, mut done, mut lost) = (0, 0, 0);
    while done < 300 {
        while posted < 300 && a.qp.has_room() {
            a.post(&message(posted, 10_000));
            posted += 1;
        }
        let sent = a.send(true);
        let count = sent.len();
        let arrived = wire(&mut random, percent, sent);
        lost += count.saturating_sub(arrived.len());
        let answers = wire(&mut random, percent, peer.take(&arrived));
        a.wait(Duration::from_micros(50));
        a.take(&answers);
        for (id, status) in a.completions() {
            assert_eq!((id, status), (done + 1, WcStatus::Success), "seed {seed}");
            done += 1;
        }
        if count == 0 && answers.is_empty() {
            a.expire();
        }
    }
    assert!((0..300).all(|k| peer.messages[k] == message(k, 10_000)));
    a.shared.counts.retransmitted as f64 / lost.max(1) as f64
}

#[test]
fn a_peer_that_discards_gets_every_message() {
    for seed in 1..20 {
        run(seed, 10);
    }
}

#[test]
fn without_loss_nothing_goes_again() {
    assert_eq!(run(1, 0), 0.0);
}
