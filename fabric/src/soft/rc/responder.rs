//! The responder: takes requests in order, assembles messages, and reports missing packets (IBA vol. 1,
//! 9.7.4 and 9.7.5).

use std::collections::VecDeque;
use std::time::Duration;

use proto::{Instant, Psn, Qpn, WcStatus};

use super::held::Held;
use super::message::Assembly;
use super::repeats::Repeats;
use super::reply::{Ack, Reply};
use super::send_queue::Path;
use super::types::{Packets, QpEvent, RcPacket, Statistics};
use super::{ReceivedMessage, Shared, window};
use crate::soft::wire::opcode;

/// A request packet, from the network or kept earlier.
#[derive(Clone, Copy, Debug)]
struct Request<'a> {
    opcode: u8,
    solicited: bool,
    ack_req: bool,
    immediate: Option<[u8; 4]>,
    payload: &'a [u8],
    /// Offset of the payload in the batch's memory; `None` for a kept packet.
    at: Option<usize>,
}

/// The result of a request packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Outcome {
    Taken,
    /// No receive buffer is left.
    NotReady,
    /// The queue pair fails.
    Refused(WcStatus),
}

/// The receiving side of one queue pair.
#[derive(Debug)]
pub struct Responder {
    qpn: Qpn,
    expected: Psn,
    /// Position of the expected packet: the number of packets taken.
    position: u64,
    msn: u32,
    message: Assembly,
    held: Held,
    /// The missing packet was reported.
    named: bool,
    /// Packets that the requester sends again.
    repeats: Repeats,
    /// When the last packet was received.
    heard: Option<Instant>,
    reply: Reply,
    rx_messages: u64,
    rx_bytes: u64,
}

impl Responder {
    /// Creates a responder that expects `rq_psn` first.
    pub fn new(qpn: Qpn, rq_psn: Psn) -> Responder {
        Responder {
            qpn,
            expected: rq_psn,
            position: 0,
            msn: 0,
            message: Assembly::default(),
            held: Held::default(),
            named: false,
            repeats: Repeats::default(),
            heard: None,
            reply: Reply::default(),
            rx_messages: 0,
            rx_bytes: 0,
        }
    }

    /// Handles a request packet.
    ///
    /// # Errors
    /// The status of the failed receive queue; a NAK is queued.
    pub fn receive(
        &mut self,
        now: Instant,
        shared: &mut Shared,
        packet: &RcPacket<'_>,
        mtu: usize,
        events: &mut VecDeque<QpEvent>,
    ) -> Result<(), WcStatus> {
        self.heard = Some(now);
        let ahead = packet.bth.psn().since(self.expected);
        if ahead != 0 {
            self.out_of_order(now, shared, packet, ahead, mtu);
            return Ok(());
        }
        self.repeats.end();
        let request = Request {
            opcode: packet.bth.opcode,
            solicited: packet.bth.solicited(),
            ack_req: packet.bth.ack_req(),
            immediate: packet.immediate,
            payload: packet.payload,
            at: Some(packet.at),
        };
        let mut outcome = self.take(now, shared, &request, mtu, events);
        if outcome == Outcome::Taken && !self.held.is_empty() {
            outcome = self.take_held(now, shared, mtu, events);
        }
        if self.held.is_empty() {
            self.reply.gap_is_over();
        }
        match outcome {
            Outcome::Taken => Ok(()),
            Outcome::NotReady => {
                shared.counts.send_rnr_err += 1;
                // Packets after this one need no NAK of their own.
                self.named = true;
                self.repeats.end();
                self.reply.not_ready();
                Ok(())
            }
            Outcome::Refused(status) => {
                match status {
                    WcStatus::LocLenErr => shared.counts.resp_local_length_error += 1,
                    _ => shared.counts.resp_invalid_request += 1,
                }
                self.reply.invalid(self.expected);
                Err(status)
            }
        }
    }

    fn out_of_order(
        &mut self,
        now: Instant,
        shared: &mut Shared,
        packet: &RcPacket<'_>,
        ahead: i32,
        mtu: usize,
    ) {
        if ahead < 0 {
            shared.counts.duplicate_request += 1;
            if let Some(at) = self.position.checked_add_signed(i64::from(ahead)) {
                self.repeats.came(now, at, self.position);
            }
            self.reply.duplicate();
            return;
        }
        self.repeats.end();
        shared.counts.out_of_sequence += 1;
        // A requester has no more packets in flight than its window, so others are forged. rdma_rxe and
        // adapters send again what is not kept.
        let ahead = ahead.cast_unsigned();
        let is_near = ahead < window::packets_max(mtu as u32);
        if is_near && packet.bth.opcode <= opcode::RC_SEND_ONLY_IMM {
            let at = self.position + u64::from(ahead);
            shared.counts.held_out_of_order +=
                u64::from(self.held.insert(&mut shared.srq, at, packet));
        }
        if !self.named {
            self.report_gap();
        }
    }

    /// Reports the expected packet as missing.
    fn report_gap(&mut self) {
        self.named = true;
        self.reply.gap();
    }

    /// Takes kept packets after a filled gap, up to the next gap. Reports that gap at once unless the
    /// requester will repeat it by itself.
    fn take_held(
        &mut self,
        now: Instant,
        shared: &mut Shared,
        mtu: usize,
        events: &mut VecDeque<QpEvent>,
    ) -> Outcome {
        let mut held = std::mem::take(&mut self.held);
        let mut outcome = Outcome::Taken;
        let start = self.position;
        while let Some(packet) = held.next(&mut shared.srq, self.position) {
            let request = Request {
                opcode: packet.opcode,
                solicited: packet.solicited,
                ack_req: packet.ack_req,
                immediate: packet.immediate,
                payload: &packet.payload,
                at: None,
            };
            outcome = self.take(now, shared, &request, mtu, events);
            if outcome != Outcome::Taken {
                break;
            }
            held.pop(&mut shared.srq);
        }
        let is_invalid = matches!(outcome, Outcome::Refused(_));
        if is_invalid {
            // An attacker needs less luck to hit one of the next packets than to hit the expected one. The
            // requester sends its packets again; if one of them is invalid, the queue pair fails then.
            shared.counts.held_invalid += 1;
            held.clear(&mut shared.srq);
            outcome = Outcome::Taken;
        }
        self.held = held;
        if outcome == Outcome::Taken {
            // Packets that were only reordered make no requester go back.
            let goes_back = self.reply.gap_was_reported() && self.repeats.are_expected();
            if self.reply.gap_was_reported() && (self.position > start || goes_back) {
                self.repeats.expect(now, start..self.position);
            }
            if is_invalid {
                self.report_gap();
            } else if !goes_back {
                self.name_next();
            }
        }
        outcome
    }

    /// Reports the missing packet, if there is one and it was not reported.
    fn name_next(&mut self) {
        if !self.held.is_empty() && !self.named {
            self.report_gap();
        }
    }

    /// Takes the expected packet.
    fn take(
        &mut self,
        now: Instant,
        shared: &mut Shared,
        request: &Request<'_>,
        mtu: usize,
        events: &mut VecDeque<QpEvent>,
    ) -> Outcome {
        // 1. The packet must follow the previous one, and have the length of its kind.
        let Some((is_first, is_last)) = place(request.opcode) else {
            return Outcome::Refused(WcStatus::RemInvReqErr);
        };
        let len = request.payload.len();
        let fits = match (is_first, is_last) {
            (_, false) => len == mtu,
            (true, true) => len <= mtu,
            (false, true) => (1..=mtu).contains(&len),
        };
        if is_first == self.message.is_open() || !fits {
            return Outcome::Refused(WcStatus::RemInvReqErr);
        }
        // 2. A message needs a receive buffer that is large enough.
        let begun = if is_first { 0 } else { self.message.len() };
        if begun + len > shared.srq.buffer_len() {
            return Outcome::Refused(WcStatus::LocLenErr);
        }
        if is_first {
            let Some((buffer, limit_reached)) = shared.srq.take() else {
                return Outcome::NotReady;
            };
            if limit_reached && !events.contains(&QpEvent::SrqLimitReached) {
                events.push_back(QpEvent::SrqLimitReached);
            }
            self.message.open(now, buffer);
        }
        // 3. The payload.
        match request.at {
            Some(at) => self.message.arrived(at..at + len),
            None => self.message.keep(&mut shared.srq, request.payload),
        }
        self.expected = self.expected.advance(1);
        self.position += 1;
        self.reply.received(now, request.ack_req, is_last);
        if std::mem::take(&mut self.named) {
            // The requester waits for the acknowledgement of the packet it repeated.
            self.reply.hurry();
        }
        // 4. The end.
        if is_last {
            self.finish(shared, request);
        }
        Outcome::Taken
    }

    fn finish(&mut self, shared: &mut Shared, request: &Request<'_>) {
        let start = shared.inbox.parts.len();
        let Some((buffer, len)) = self.message.close(&mut shared.inbox.parts) else {
            return;
        };
        self.msn = self.msn.wrapping_add(1) & 0xff_ffff;
        self.rx_messages += 1;
        self.rx_bytes += len as u64;
        shared.inbox.messages.push(ReceivedMessage {
            qpn: self.qpn,
            immediate: request.immediate,
            solicited: request.solicited,
            len,
            buffer,
            parts: start..shared.inbox.parts.len(),
        });
    }

    /// Sets the number of messages received.
    #[cfg(test)]
    pub const fn set_msn(&mut self, msn: u32) {
        self.msn = msn;
    }

    /// Whether a packet was received.
    pub const fn has_heard(&self) -> bool {
        self.heard.is_some()
    }

    /// When the incomplete message began, if there is one.
    pub fn unfinished_since(&self) -> Option<Instant> {
        self.message.since()
    }

    /// Drops kept packets if nothing was received for `silence`: a live peer sends them again, others
    /// only occupy memory.
    pub fn forget_held(&mut self, shared: &mut Shared, now: Instant, silence: Duration) {
        if self.heard.is_some_and(|at| now.since(at) >= silence) {
            self.held.clear(&mut shared.srq);
        }
    }

    /// Copies parts of an incomplete message from `memory`. True if there were any.
    pub fn end_batch(&mut self, shared: &mut Shared, memory: &[u8]) -> bool {
        self.message.keep_arrived(&mut shared.srq, memory)
    }

    /// The reply to send now, if one is due.
    pub fn poll_transmit(
        &mut self,
        flush: bool,
        rnr_timer: u8,
        path: &Path,
    ) -> Option<Packets<'_>> {
        let hold = self.repeats.hold();
        self.reply
            .poll(flush, hold, self.expected, self.msn, rnr_timer, path)
    }

    /// The acknowledgement that waits, if any, to be sent with packets of another queue pair.
    /// [`Responder::transmitted`] must follow.
    pub fn ride(&mut self, path: &Path) -> Option<Ack> {
        self.owes()
            .then(|| self.reply.ride(self.expected, self.msn, path))
    }

    /// Whether an acknowledgement waits.
    pub fn owes(&self) -> bool {
        self.reply.is_owed() && !self.repeats.hold()
    }

    /// Reports that the reply was sent, if `count` is not 0. Returns whether it was; `None` without a
    /// reply.
    pub fn transmitted(&mut self, count: usize) -> Option<bool> {
        self.reply.transmitted(count)
    }

    /// When to call [`Responder::handle_timeout`] next.
    pub fn deadline(&self) -> Option<Instant> {
        let deadlines = [self.reply.deadline(), self.repeats.deadline()];
        deadlines.into_iter().flatten().min()
    }

    /// Handles the deadlines.
    pub fn handle_timeout(&mut self, now: Instant) {
        self.reply.handle_timeout(now);
        if self.repeats.handle_timeout(now) {
            self.name_next();
        }
    }

    /// Drops the incomplete message and returns its receive buffer. A NAK that is due stays due.
    pub fn flush(&mut self, shared: &mut Shared) {
        if let Some(buffer) = self.message.abandon() {
            shared.srq.post(buffer);
        }
        self.held.clear(&mut shared.srq);
        self.repeats = Repeats::default();
        self.reply.only_last();
    }

    /// Whether [`Responder::trim`] would release memory.
    pub fn is_roomy(&self) -> bool {
        self.message.is_roomy() || !self.held.is_empty()
    }

    /// Whether no message is incomplete and no packets are kept.
    pub fn is_idle(&self) -> bool {
        !self.message.is_open() && self.held.is_empty()
    }

    /// Releases memory that an idle queue pair does not need.
    pub fn trim(&mut self) {
        self.message.trim();
    }

    /// Allocated bytes.
    #[cfg(test)]
    pub fn heap_bytes(&self) -> usize {
        self.message.heap_bytes() + self.held.memory()
    }

    /// Adds the receiving side's counters.
    pub fn statistics(&self, into: &mut Statistics) {
        into.rx_messages = self.rx_messages;
        into.rx_bytes = self.rx_bytes;
    }
}

/// Whether a SEND packet is the first and the last one of its message; `None` for unsupported
/// operations: READ, WRITE, ATOMIC and invalidation.
const fn place(opcode: u8) -> Option<(bool, bool)> {
    match opcode {
        opcode::RC_SEND_FIRST => Some((true, false)),
        opcode::RC_SEND_MIDDLE => Some((false, false)),
        opcode::RC_SEND_LAST | opcode::RC_SEND_LAST_IMM => Some((false, true)),
        opcode::RC_SEND_ONLY | opcode::RC_SEND_ONLY_IMM => Some((true, true)),
        _ => None,
    }
}
