//! Checks of the packets that one queue pair sends.

use std::collections::VecDeque;
use std::hash::{DefaultHasher, Hasher};

use fabric::Psn;
use fabric::soft::rc::RcPacket;
use fabric::soft::wire::{Acknowledgement, Aeth, Packet, opcode};

use crate::network::{MICROSECOND, Time};

/// Maximum payload bytes in flight, with a margin for "about 2 MiB".
const IN_FLIGHT_MAX: u64 = (2 << 20) + (1 << 18);

/// Fewer packets than this may wait for room in the window.
const SCRAP: u64 = 8;

/// Observes the packets of requester and responder.
#[derive(Debug)]
pub struct PacketChecks {
    /// Our first PSN.
    first: Psn,
    /// Number of our PSNs sent, and number acknowledged.
    sent: u64,
    acknowledged: u64,
    /// The contents of each outstanding packet.
    prints: VecDeque<u64>,
    /// When the first outstanding packet was sent, or one was acknowledged, or the peer reported that
    /// it is not ready.
    progress: Time,
    /// Packets sent since then.
    pub tries: u32,
    /// The peer is not ready before this.
    quiet_until: Time,
    /// Number of our PSNs up to the last one sent with AckReq.
    asked: u64,
    /// The PSN of our last NAK for a sequence error.
    nak: Option<Psn>,
    /// Requests sent, retransmissions among them, and responses.
    pub requests: u64,
    pub again: u64,
    pub responses: u64,
}

impl PacketChecks {
    pub fn new(first: Psn, now: Time) -> PacketChecks {
        PacketChecks {
            first,
            sent: 0,
            acknowledged: 0,
            prints: VecDeque::new(),
            progress: now,
            tries: 0,
            quiet_until: 0,
            asked: 0,
            nak: None,
            requests: 0,
            again: 0,
            responses: 0,
        }
    }

    /// Packets in flight.
    pub fn outstanding(&self) -> u64 {
        self.sent - self.acknowledged
    }

    /// Time since the last progress.
    pub fn waited(&self, now: Time) -> Time {
        if self.outstanding() == 0 {
            0
        } else {
            now - self.progress
        }
    }

    /// The number of a PSN since the first; the nearest one to those in use.
    fn number(&self, psn: Psn) -> i64 {
        self.sent as i64 + i64::from(psn.since(self.next()))
    }

    /// Checks a request that we send. `mtu` is the path MTU in bytes, `window` the queue pair's window
    /// in packets.
    pub fn sends_request(&mut self, now: Time, packet: &Packet<'_>, mtu: usize, window: u32) {
        self.requests += 1;
        self.tries += 1;
        assert!(now >= self.quiet_until, "a request in an RNR delay");
        self.check_shape(packet, mtu);
        let number = self.number(packet.bth.psn());
        let print = print(packet);
        assert!(
            number >= self.acknowledged as i64,
            "packet {number} is sent again after it was acknowledged"
        );
        let number = number as u64;
        if packet.bth.ack_req() {
            self.asked = self.asked.max(number + 1);
        }
        if number < self.sent {
            self.again += 1;
            let before = self.prints[(number - self.acknowledged) as usize];
            assert_eq!(print, before, "packet {number} has changed");
            return;
        }
        assert_eq!(number, self.sent, "a PSN was skipped");
        if self.outstanding() == 0 {
            self.progress = now;
            self.tries = 1;
        }
        self.sent += 1;
        self.prints.push_back(print);
        let outstanding = self.outstanding();
        assert!(
            outstanding <= u64::from(window),
            "{outstanding} packets in flight, the window is {window}"
        );
        assert!(outstanding * mtu as u64 <= IN_FLIGHT_MAX);
    }

    /// Checks length and AckReq against the opcode.
    fn check_shape(&self, packet: &Packet<'_>, mtu: usize) {
        let len = packet.payload.len();
        match packet.bth.opcode {
            opcode::RC_SEND_FIRST | opcode::RC_SEND_MIDDLE => assert_eq!(len, mtu),
            opcode::RC_SEND_LAST | opcode::RC_SEND_LAST_IMM => {
                assert!((1..=mtu).contains(&len) && packet.bth.ack_req());
            }
            opcode::RC_SEND_ONLY | opcode::RC_SEND_ONLY_IMM => {
                assert!(len <= mtu && packet.bth.ack_req());
            }
            other => panic!("opcode {other:#04x} in a request"),
        }
    }

    /// Checks that a requester with a full window of `window` packets has requested an acknowledgement.
    pub fn rests(&self, window: u32) {
        let outstanding = self.outstanding();
        assert!(
            outstanding + SCRAP <= u64::from(window) || self.asked > self.acknowledged,
            "{outstanding} packets without AckReq"
        );
    }

    fn begin_wait(&mut self, now: Time) {
        self.progress = now;
        self.tries = 0;
    }

    /// The PSN of the next new packet.
    pub fn next(&self) -> Psn {
        self.first.advance((self.sent & 0xff_ffff) as u32)
    }

    /// Checks a response that we receive.
    pub fn hears_response(&mut self, now: Time, packet: &RcPacket<'_>) {
        let Some(aeth) = packet.aeth else { return };
        let number = self.number(packet.bth.psn());
        // Acknowledgements of packets that were not sent are ignored.
        if number >= self.sent as i64 || number < self.acknowledged as i64 {
            return;
        }
        let below = match aeth.acknowledgement() {
            Acknowledgement::Ack { .. } => number + 1,
            Acknowledgement::Rnr { .. } | Acknowledgement::Nak { code: 0 } => number,
            _ => return,
        };
        let below = below as u64;
        if below > self.acknowledged {
            self.begin_wait(now);
            // The packet that had no buffer has one now.
            self.quiet_until = 0;
            self.prints.drain(..(below - self.acknowledged) as usize);
            self.acknowledged = below;
        }
        if let Acknowledgement::Rnr { timer } = aeth.acknowledgement() {
            // A second RNR NAK before a retransmission does not prolong the delay.
            if self.tries > 0 || self.quiet_until == 0 {
                self.quiet_until = now + rnr_delay(timer);
            }
            self.begin_wait(now);
        }
    }

    /// Checks a response that we send; `msn` is the number of complete messages of this queue pair.
    pub fn sends_response(&mut self, psn: Psn, aeth: Aeth, msn: u64) {
        self.responses += 1;
        assert_eq!(u64::from(aeth.msn()), msn & 0xff_ffff, "MSN");
        match aeth.acknowledgement() {
            Acknowledgement::Nak { code: 0 } => {
                assert_ne!(self.nak, Some(psn), "a second NAK for one gap");
                self.nak = Some(psn);
            }
            // The expected packet came and found no buffer: after that is another gap.
            Acknowledgement::Rnr { .. } => self.nak = None,
            _ => {}
        }
    }
}

/// The delays of the codes in scenarios (IBA vol. 1, 9.7.5.2.8).
fn rnr_delay(timer: u8) -> Time {
    match timer {
        1 => 10 * MICROSECOND,
        12 => 640 * MICROSECOND,
        18 => 5_120 * MICROSECOND,
        other => panic!("no scenario has the timer code {other}"),
    }
}

/// A digest of the parts that must not change in a retransmission: all except AckReq.
fn print(packet: &Packet<'_>) -> u64 {
    let mut hasher = DefaultHasher::new();
    hasher.write(&[packet.bth.opcode, packet.bth.flags]);
    hasher.write(&packet.bth.psn);
    hasher.write_usize(packet.payload.len());
    // The receiver compares all bytes; both ends are enough here.
    let len = packet.payload.len().min(16);
    hasher.write(&packet.payload[..len]);
    hasher.write(&packet.payload[packet.payload.len() - len..]);
    hasher.finish()
}
