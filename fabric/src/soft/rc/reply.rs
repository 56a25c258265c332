//! What a responder owes its peer: acknowledgements, which may wait a little, and NAKs, which may
//! not (IBA vol. 1, 9.7.5.1 and 9.7.5.2).

use std::time::Duration;

use proto::{Instant, Psn};
use zerocopy::IntoBytes;
use zerocopy::big_endian::U16;

use super::credits;
use super::send_queue::Path;
use super::types::Packets;
use crate::soft::wire::{Aeth, Bth, ICRC_LEN, opcode};

/// Bytes on the UDP level of an acknowledgement.
const ACK_LEN: usize = size_of::<Bth>() + size_of::<Aeth>() + ICRC_LEN;

/// An acknowledgement of so many packets does not wait: the peer's window may be no larger.
const PACKETS_WAITING_MAX: u32 = 16;

/// So many do not even wait for the end of a round.
const PACKETS_WAITING_IN_ROUND_MAX: u32 = 64;

/// How long an acknowledgement waits for others: a request and its response need none in between.
const DELAY: Duration = Duration::from_millis(1);

/// AETH syndromes of NAKs (IBA vol. 1, 9.7.5.2).
const RNR_NAK: u8 = 0x20;
const NAK_SEQUENCE_ERROR: u8 = 0x60;
const NAK_INVALID_REQUEST: u8 = 0x61;

/// One kind of reply.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    Ack,
    Gap,
    NotReady,
    Invalid(Psn),
}

/// The replies that one queue pair owes.
#[derive(Debug, Default)]
pub struct Reply {
    /// The peer asked for an acknowledgement that it has not had.
    asked: bool,
    /// It waits for the end of the round and no longer.
    urgent: bool,
    /// It waits no longer.
    overdue: bool,
    /// Packets received since the last acknowledgement.
    packets: u32,
    deadline: Option<Instant>,
    /// Packets are missing.
    gap: bool,
    /// The peer has been told so, and may be going back.
    gap_told: bool,
    /// There was no receive buffer.
    not_ready: bool,
    /// The last reply that this queue pair gives: to the request with this PSN.
    invalid: Option<Psn>,
    pending: Option<Kind>,
    scratch: [u8; ACK_LEN],
}

impl Reply {
    /// The expected packet came.
    pub fn received(&mut self, now: Instant, ack_req: bool) {
        self.packets = self.packets.saturating_add(1);
        self.gap = false;
        self.not_ready = false;
        if ack_req {
            self.asked = true;
            self.deadline.get_or_insert(now.after(DELAY));
        }
    }

    /// A packet came again: its acknowledgement was lost, or is late.
    pub fn duplicate(&mut self) {
        self.asked = true;
        self.urgent = true;
    }

    /// What is owed waits for the end of the round only.
    pub fn hurry(&mut self) {
        self.urgent = true;
    }

    /// Packets are missing.
    pub fn gap(&mut self) {
        self.gap = true;
    }

    /// Whether the peer has been told that packets are missing.
    pub const fn gap_was_told(&self) -> bool {
        self.gap_told
    }

    /// What the peer was told is over.
    pub fn gap_is_over(&mut self) {
        self.gap_told = false;
    }

    /// There was no receive buffer for the expected packet.
    pub fn not_ready(&mut self) {
        self.not_ready = true;
        self.gap = false;
    }

    /// The request with this PSN is invalid.
    pub fn invalid(&mut self, psn: Psn) {
        *self = Reply {
            invalid: Some(psn),
            ..Reply::default()
        };
    }

    /// Nothing is owed any more but the reply to an invalid request.
    pub fn only_last(&mut self) {
        *self = Reply {
            invalid: self.invalid,
            ..Reply::default()
        };
    }

    /// When [`Reply::handle_timeout`] wants to be called next.
    pub const fn deadline(&self) -> Option<Instant> {
        self.deadline
    }

    /// Lets time pass.
    pub fn handle_timeout(&mut self, now: Instant) {
        if self.deadline.is_some_and(|at| at <= now) {
            self.deadline = None;
            self.overdue = true;
        }
    }

    fn kind(&self, flush: bool, hold: bool) -> Option<Kind> {
        if let Some(psn) = self.invalid {
            return Some(Kind::Invalid(psn));
        }
        if self.gap {
            return Some(Kind::Gap);
        }
        let waits = match flush {
            true => !self.urgent && self.packets < PACKETS_WAITING_MAX,
            false => self.packets < PACKETS_WAITING_IN_ROUND_MAX,
        };
        // What came before a packet without a buffer is acknowledged by itself: not every peer
        // takes an RNR NAK for that.
        if self.asked && !hold && (self.overdue || self.not_ready || !waits) {
            return Some(Kind::Ack);
        }
        self.not_ready.then_some(Kind::NotReady)
    }

    /// The reply to send now, if one is due: with the packet that is `expected` next, the number of
    /// messages received, and the code of the time to wait for a receive buffer. Acknowledgements are
    /// not due while there is reason to `hold` them.
    pub fn poll(
        &mut self,
        flush: bool,
        hold: bool,
        expected: Psn,
        msn: u32,
        rnr_timer: u8,
        path: &Path,
    ) -> Option<Packets<'_>> {
        self.pending = self.kind(flush, hold);
        let kind = self.pending?;
        let (syndrome, psn) = match kind {
            Kind::Ack => (credits::UNLIMITED, expected.advance(0xff_ffff)),
            Kind::Gap => (NAK_SEQUENCE_ERROR, expected),
            Kind::NotReady => (RNR_NAK | rnr_timer & 0x1f, expected),
            Kind::Invalid(psn) => (NAK_INVALID_REQUEST, psn),
        };
        let [_, p0, p1, p2] = psn.get().to_be_bytes();
        let [_, m0, m1, m2] = msn.to_be_bytes();
        let bth = Bth {
            opcode: opcode::RC_ACKNOWLEDGE,
            flags: 0,
            pkey: U16::new(path.pkey.get()),
            fecn_becn: 0,
            dest_qp: path.dest_qpn.to_bytes(),
            ack_req: 0,
            psn: [p0, p1, p2],
        };
        let aeth = Aeth {
            syndrome,
            msn: [m0, m1, m2],
        };
        let (head, tail) = self.scratch.split_at_mut(size_of::<Bth>());
        head.copy_from_slice(bth.as_bytes());
        tail[..size_of::<Aeth>()].copy_from_slice(aeth.as_bytes());
        Some(Packets {
            memory: &mut self.scratch,
            stride: ACK_LEN,
            count: 1,
        })
    }

    /// What was given is on the network; whether it was, or `None` if nothing had been given.
    pub fn transmitted(&mut self, count: usize) -> Option<bool> {
        let kind = self.pending.take()?;
        if count == 0 {
            return Some(false);
        }
        match kind {
            Kind::Invalid(_) => self.invalid = None,
            Kind::NotReady => self.not_ready = false,
            Kind::Gap | Kind::Ack => {
                // A NAK acknowledges what came before.
                self.gap_told |= kind == Kind::Gap;
                self.gap = false;
                self.asked = false;
                self.urgent = false;
                self.overdue = false;
                self.packets = 0;
                self.deadline = None;
            }
        }
        Some(true)
    }
}
