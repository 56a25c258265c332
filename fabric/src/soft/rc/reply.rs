//! Replies of a responder: acknowledgements, which may be delayed, and NAKs, which may not (IBA vol. 1,
//! 9.7.5.1 and 9.7.5.2).

use std::time::Duration;

use proto::{Instant, Psn};
use zerocopy::IntoBytes;
use zerocopy::big_endian::U16;

use super::credits;
use super::send_queue::Path;
use super::types::Packets;
use crate::soft::wire::{Aeth, Bth, ICRC_LEN, opcode};

/// UDP payload bytes of an acknowledgement.
pub const ACK_LEN: usize = size_of::<Bth>() + size_of::<Aeth>() + ICRC_LEN;

/// An acknowledgement, with room for the ICRC.
pub type Ack = [u8; ACK_LEN];

/// An acknowledgement of this many packets or messages waits at most until the end of the round: the
/// peer's window or send queue may be no larger.
const WAITING_MAX: u32 = 16;

/// The same in packets for a peer that requests acknowledgements inside messages, before its window is
/// full.
const WAITING_OF_ASKING_MAX: u32 = 64;

/// An acknowledgement of this many packets does not even wait for the end of a round; for other peers
/// and for asking ones.
const WAITING_IN_ROUND_MAX: [u32; 2] = [64, 128];

/// The delay of acknowledgements: a request and its response need none in between.
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

/// The replies that are due.
#[derive(Debug, Default)]
pub struct Reply {
    /// The peer requested an acknowledgement.
    asked: bool,
    /// The peer requested an acknowledgement inside a message.
    pressed: bool,
    /// The peer has done so before: it requests acknowledgements when it needs them.
    presses: bool,
    /// The acknowledgement waits at most until the end of the round.
    urgent: bool,
    /// The acknowledgement waits no longer.
    overdue: bool,
    /// Packets received since the last acknowledgement.
    packets: u32,
    /// Messages received since the last acknowledgement.
    messages: u32,
    deadline: Option<Instant>,
    /// Packets are missing.
    gap: bool,
    /// The gap, or the missing receive buffer, was reported to the peer, which may be going back.
    gap_reported: bool,
    /// No receive buffer was left.
    not_ready: bool,
    /// The last reply of this queue pair: to the request with this PSN.
    invalid: Option<Psn>,
    pending: Option<Kind>,
    scratch: Ack,
}

impl Reply {
    /// Handles the expected packet, which ends a message or does not.
    pub fn received(&mut self, now: Instant, ack_req: bool, ends: bool) {
        self.packets = self.packets.saturating_add(1);
        self.messages = self.messages.saturating_add(u32::from(ends));
        self.gap = false;
        self.not_ready = false;
        if ack_req {
            self.asked = true;
            self.pressed |= !ends;
            self.presses |= !ends;
            self.deadline.get_or_insert(now.after(DELAY));
        }
    }

    /// Handles a duplicate packet: its acknowledgement was lost or is late.
    pub fn duplicate(&mut self) {
        self.asked = true;
        self.urgent = true;
    }

    /// Sends the acknowledgement at the end of the round.
    pub fn hurry(&mut self) {
        self.urgent = true;
    }

    /// Reports that packets are missing.
    pub fn gap(&mut self) {
        self.gap = true;
    }

    /// Whether the gap, or a missing receive buffer before it, was reported to the peer.
    pub const fn gap_was_reported(&self) -> bool {
        self.gap_reported
    }

    /// The reported gap is filled.
    pub fn gap_is_over(&mut self) {
        self.gap_reported = false;
    }

    /// Reports that the expected packet found no receive buffer.
    pub fn not_ready(&mut self) {
        self.not_ready = true;
        self.gap = false;
    }

    /// Reports that the request with this PSN is invalid.
    pub fn invalid(&mut self, psn: Psn) {
        *self = Reply {
            invalid: Some(psn),
            ..Reply::default()
        };
    }

    /// Cancels all replies except the one to an invalid request.
    pub fn only_last(&mut self) {
        *self = Reply {
            invalid: self.invalid,
            ..Reply::default()
        };
    }

    /// When to call [`Reply::handle_timeout`] next.
    pub const fn deadline(&self) -> Option<Instant> {
        self.deadline
    }

    /// Handles the deadline.
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
            true => {
                let enough = match self.presses && !self.pressed {
                    true => WAITING_OF_ASKING_MAX,
                    false => WAITING_MAX,
                };
                !self.urgent && self.packets < enough && self.messages < WAITING_MAX
            }
            false => self.packets < WAITING_IN_ROUND_MAX[usize::from(self.presses)],
        };
        // Packets before one without a buffer get an acknowledgement of their own: not every peer
        // accepts an RNR NAK for them.
        if self.asked && !hold && (self.overdue || self.not_ready || !waits) {
            return Some(Kind::Ack);
        }
        self.not_ready.then_some(Kind::NotReady)
    }

    /// The reply to send now, if any: with the `expected` PSN, the number of messages received, and the
    /// RNR timer code. Acknowledgements are not sent while `hold` is set.
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
        self.scratch = packet(syndrome, psn, msn, path);
        Some(Packets {
            memory: &mut self.scratch,
            stride: ACK_LEN,
            count: 1,
            carries: false,
        })
    }

    /// Whether an acknowledgement waits and no other reply is due.
    pub const fn is_owed(&self) -> bool {
        let other = self.gap || self.not_ready || self.invalid.is_some();
        self.asked && !other
    }

    /// The acknowledgement that waits, to be sent with packets of another queue pair.
    pub fn ride(&mut self, expected: Psn, msn: u32, path: &Path) -> Ack {
        self.pending = Some(Kind::Ack);
        packet(credits::UNLIMITED, expected.advance(0xff_ffff), msn, path)
    }

    /// Reports that the reply was sent, if `count` is not 0. Returns whether it was; `None` without a
    /// reply.
    pub fn transmitted(&mut self, count: usize) -> Option<bool> {
        let kind = self.pending.take()?;
        if count == 0 {
            return Some(false);
        }
        match kind {
            Kind::Invalid(_) => self.invalid = None,
            Kind::NotReady => {
                self.not_ready = false;
                // The requester goes back, as after a reported gap.
                self.gap_reported = true;
            }
            Kind::Gap | Kind::Ack => {
                // A NAK acknowledges the packets before it.
                self.gap_reported |= kind == Kind::Gap;
                self.gap = false;
                self.asked = false;
                self.pressed = false;
                self.urgent = false;
                self.overdue = false;
                self.packets = 0;
                self.messages = 0;
                self.deadline = None;
            }
        }
        Some(true)
    }
}

/// A reply, with room for the ICRC.
fn packet(syndrome: u8, psn: Psn, msn: u32, path: &Path) -> Ack {
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
    let mut bytes = [0; ACK_LEN];
    let (head, tail) = bytes.split_at_mut(size_of::<Bth>());
    head.copy_from_slice(bth.as_bytes());
    tail[..size_of::<Aeth>()].copy_from_slice(aeth.as_bytes());
    bytes
}
