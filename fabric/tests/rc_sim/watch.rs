//! One queue pair seen from the wire: every packet that it sends is held against the rules.

use std::collections::VecDeque;
use std::hash::{DefaultHasher, Hasher};

use fabric::Psn;
use fabric::soft::rc::RcPacket;
use fabric::soft::wire::{Acknowledgement, Aeth, Packet, opcode};

use crate::network::{MICROSECOND, Time};

/// Payload bytes that may be in flight, with something to spare for what "about 1 MiB" leaves open.
const IN_FLIGHT_MAX: u64 = (1 << 20) + (1 << 18);

/// The requester's and the responder's packets.
#[derive(Debug)]
pub struct Watch {
    /// The first PSN of ours.
    first: Psn,
    /// How many of our PSNs have been sent, and how many of them acknowledged.
    sent: u64,
    acknowledged: u64,
    /// What each packet in between was.
    prints: VecDeque<u64>,
    /// When the first of those in between was sent, or one was acknowledged, or the peer said that it
    /// is not ready.
    progress: Time,
    /// Packets sent since then.
    pub tries: u32,
    /// The peer is not ready before this.
    quiet_until: Time,
    /// Requests that were asked to be acknowledged since the last that was.
    unasked: u32,
    /// The PSN of the last NAK of ours for a sequence error.
    nak: Option<Psn>,
    /// Packets sent, of those again, and responses.
    pub requests: u64,
    pub again: u64,
    pub responses: u64,
}

impl Watch {
    pub fn new(first: Psn, now: Time) -> Watch {
        Watch {
            first,
            sent: 0,
            acknowledged: 0,
            prints: VecDeque::new(),
            progress: now,
            tries: 0,
            quiet_until: 0,
            unasked: 0,
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

    /// How long nothing has been acknowledged.
    pub fn waited(&self, now: Time) -> Time {
        if self.outstanding() == 0 {
            0
        } else {
            now - self.progress
        }
    }

    /// The number of a PSN since the first, as near as can be to those that are sent.
    fn number(&self, psn: Psn) -> i64 {
        self.sent as i64 + i64::from(psn.since(self.next()))
    }

    /// We send a request. `mtu` is the path MTU in bytes, `window` what the queue pair says that it
    /// may have in flight.
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
        if number < self.sent {
            self.again += 1;
            let before = self.prints[(number - self.acknowledged) as usize];
            assert_eq!(print, before, "packet {number} is not what it was");
            return;
        }
        assert_eq!(number, self.sent, "a PSN was left out");
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
        // The responder is asked often enough.
        self.unasked = if packet.bth.ack_req() {
            0
        } else {
            self.unasked + 1
        };
        assert!(self.unasked < 16, "{} packets without AckReq", self.unasked);
    }

    /// Length and AckReq follow from the opcode.
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

    fn begin_wait(&mut self, now: Time) {
        self.progress = now;
        self.tries = 0;
    }

    /// The PSN that is sent next, for the first time.
    pub fn next(&self) -> Psn {
        self.first.advance((self.sent & 0xff_ffff) as u32)
    }

    /// A response has reached us.
    pub fn hears_response(&mut self, now: Time, packet: &RcPacket<'_>) {
        let Some(aeth) = packet.aeth else { return };
        let number = self.number(packet.bth.psn());
        // What was not sent cannot be acknowledged.
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
            // The packet that had no buffer has one, after all.
            self.quiet_until = 0;
            self.prints.drain(..(below - self.acknowledged) as usize);
            self.acknowledged = below;
        }
        if let Acknowledgement::Rnr { timer } = aeth.acknowledgement() {
            // Another one before anything was sent again does not make the delay longer.
            if self.tries > 0 || self.quiet_until == 0 {
                self.quiet_until = now + rnr_delay(timer);
            }
            self.begin_wait(now);
        }
    }

    /// We send a response; `msn` is how many messages have arrived whole over this queue pair.
    pub fn sends_response(&mut self, psn: Psn, aeth: Aeth, msn: u64) {
        self.responses += 1;
        assert_eq!(u64::from(aeth.msn()), msn & 0xff_ffff, "MSN");
        match aeth.acknowledgement() {
            Acknowledgement::Nak { code: 0 } => {
                assert_ne!(self.nak, Some(psn), "a second NAK for one gap");
                self.nak = Some(psn);
            }
            // What was expected came, and no buffer was there: what follows it is another gap.
            Acknowledgement::Rnr { .. } => self.nak = None,
            _ => {}
        }
    }
}

/// The delays of the codes that scenarios use (IBA vol. 1, 9.7.5.2.8).
fn rnr_delay(timer: u8) -> Time {
    match timer {
        1 => 10 * MICROSECOND,
        12 => 640 * MICROSECOND,
        18 => 5_120 * MICROSECOND,
        other => panic!("no scenario has the timer code {other}"),
    }
}

/// What must stay the same when a packet is sent again: all but AckReq.
fn print(packet: &Packet<'_>) -> u64 {
    let mut hasher = DefaultHasher::new();
    hasher.write(&[packet.bth.opcode, packet.bth.flags]);
    hasher.write(&packet.bth.psn);
    hasher.write_usize(packet.payload.len());
    // The receiver compares all bytes; here a look at both ends is enough.
    let len = packet.payload.len().min(16);
    hasher.write(&packet.payload[..len]);
    hasher.write(&packet.payload[packet.payload.len() - len..]);
    hasher.finish()
}
