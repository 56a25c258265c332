//! The queue pair: state, requester and responder.

use std::collections::VecDeque;
use std::time::Duration;

use proto::{IbMtu, Instant, PKey, Qpn, WcStatus};

use super::reply::Ack;
use super::requester::Requester;
use super::responder::Responder;
use super::send_queue::Path;
use super::{Packets, QpEvent, RcPacket, SendCompletion, SendRequest, Shared, Statistics};
use crate::port::FabricError;
use crate::soft::qp::{Attributes, Connected, Posted, State};
use crate::soft::wire::opcode;

/// Maximum UDP payload bytes of one run, unless [`RcQp::set_path`] changes it: the limit over IPv6 on an
/// underlay whose `gso_max_size` is 65536 (`send_max` in underlay.rs).
const RUN_MAX: usize = 65473;

/// How long an idle queue pair keeps its memory.
const TRIM_AFTER: Duration = Duration::from_secs(1);

/// An RC queue pair.
#[derive(Debug)]
pub struct RcQp {
    qpn: Qpn,
    attributes: Connected,
    pkey: PKey,
    run_max: usize,
    requester: Requester,
    responder: Responder,
    events: VecDeque<QpEvent>,
    failure: Option<WcStatus>,
    trim: Option<Instant>,
}

impl RcQp {
    /// Creates a queue pair in RESET.
    pub fn new(qpn: Qpn) -> RcQp {
        let attributes = Connected::new(IbMtu::B4096);
        RcQp {
            qpn,
            pkey: PKey::DEFAULT,
            run_max: RUN_MAX,
            requester: Requester::new(attributes.sq_psn, attributes.path_mtu.bytes()),
            responder: Responder::new(qpn, attributes.rq_psn),
            attributes,
            events: VecDeque::new(),
            failure: None,
            trim: None,
        }
    }

    /// Sets the P_Key of packets, which belongs to the index of INIT, and the maximum UDP payload bytes
    /// of a run. The defaults are the default partition and 65473.
    pub fn set_path(&mut self, pkey: PKey, run_max: usize) {
        self.pkey = pkey;
        self.run_max = run_max;
    }

    /// The queue pair number.
    pub const fn qpn(&self) -> Qpn {
        self.qpn
    }

    /// The state.
    pub const fn state(&self) -> State {
        self.attributes.state
    }

    /// The attributes set by the modify verb.
    pub const fn attributes(&self) -> &Connected {
        &self.attributes
    }

    /// The modify verb. ERR flushes all requests, RESET clears everything. A queue pair must be moved
    /// to one of these states before it is dropped, or its part of `shared` is lost.
    ///
    /// # Errors
    /// Those of [`Connected::modify`]; the queue pair is then unchanged.
    pub fn modify(
        &mut self,
        shared: &mut Shared,
        to: State,
        attributes: &Attributes,
    ) -> Result<(), FabricError> {
        let from = self.attributes.state;
        self.attributes.modify(to, attributes)?;
        self.apply(from, attributes);
        match (from, to) {
            (_, State::Reset) => self.forget(shared),
            (State::Err, State::Err) => {}
            (_, State::Err) => self.enter_error(shared, WcStatus::WrFlushErr),
            (State::Rts, State::Sqd) => {
                self.requester.begin_drain();
                self.report_drained();
            }
            (State::Sqd, State::Rts) => self.requester.end_drain(),
            _ => {}
        }
        Ok(())
    }

    /// Applies new attributes to requester and responder.
    fn apply(&mut self, from: State, given: &Attributes) {
        let set = &self.attributes;
        if given.rq_psn.is_some() {
            self.responder = Responder::new(self.qpn, set.rq_psn);
        }
        if given.sq_psn.is_some() {
            self.requester = Requester::new(set.sq_psn, set.path_mtu.bytes());
        }
        let retries = [given.timeout, given.retry_cnt, given.rnr_retry];
        if from == State::Rtr || retries.iter().any(Option::is_some) {
            let (timeout, retry_cnt, rnr_retry) = (set.timeout, set.retry_cnt, set.rnr_retry);
            self.requester.configure(timeout, retry_cnt, rnr_retry);
        }
    }

    /// Returns to RESET without completions.
    fn forget(&mut self, shared: &mut Shared) {
        self.responder.flush(shared);
        *self = RcQp {
            pkey: self.pkey,
            run_max: self.run_max,
            ..RcQp::new(self.qpn)
        };
    }

    /// Moves to ERR: the oldest send completes with `oldest`, all other requests are flushed.
    fn enter_error(&mut self, shared: &mut Shared, oldest: WcStatus) {
        self.attributes.state = State::Err;
        self.requester.flush(oldest);
        self.responder.flush(shared);
        self.events.push_back(QpEvent::LastWqeReached);
    }

    /// Fails the send queue (IBA vol. 1, 9.9.2.4); the completion has the status.
    fn fail_sending(&mut self, shared: &mut Shared, status: WcStatus) {
        self.failure = Some(status);
        self.enter_error(shared, status);
    }

    /// Fails the receive queue. The shared receive queue has no completion for it, so an event reports
    /// the failure (IBA vol. 1, 9.9.3 and 11.6.3.2).
    fn fail_receiving(&mut self, shared: &mut Shared, status: WcStatus) {
        self.failure = Some(status);
        self.events.push_back(match status {
            WcStatus::LocLenErr => QpEvent::QpFatal,
            _ => QpEvent::QpReqErr,
        });
        self.enter_error(shared, WcStatus::WrFlushErr);
    }

    fn report_drained(&mut self) {
        if self.state() == State::Sqd && self.attributes.sqd_notify && self.requester.is_drained() {
            self.attributes.sqd_notify = false;
            self.events.push_back(QpEvent::SqDrained);
        }
    }

    fn path(&self) -> Path {
        Path {
            pkey: self.pkey,
            dest_qpn: self.attributes.dest_qpn,
            mtu: self.attributes.path_mtu.bytes() as usize,
            run_max: self.run_max,
        }
    }

    /// Posts messages to send. In SQD they wait, in ERR they are flushed.
    ///
    /// # Errors
    /// Returns the request in a state that accepts none, if a message is longer than 2^31 bytes, or if
    /// the buffer is empty or its packets do not fit the path MTU.
    pub fn post_send(&mut self, now: Instant, request: SendRequest) -> Result<(), SendRequest> {
        match self.state().post_send() {
            Posted::Refused => Err(request),
            Posted::Flushed => {
                self.requester.refuse(request);
                Ok(())
            }
            Posted::Queued | Posted::Processed => {
                let path = self.path();
                self.requester.post(request, &path)?;
                self.remember_to_trim(now);
                Ok(())
            }
        }
    }

    /// Whether the window has room.
    pub fn has_room(&self) -> bool {
        self.requester.has_room()
    }

    /// Takes a received packet. Received messages go to `shared.inbox`, completions to
    /// [`RcQp::poll_completion`], replies to [`RcQp::poll_transmit`].
    pub fn receive(&mut self, now: Instant, shared: &mut Shared, packet: &RcPacket<'_>) {
        match packet.bth.opcode {
            opcode::RC_ACKNOWLEDGE => self.receive_response(now, shared, packet),
            opcode::CNP => {
                if self.state().takes_responses() {
                    self.requester.notified(&mut shared.counts);
                } else {
                    shared.counts.rp_cnp_ignored += 1;
                }
            }
            // Responses to operations that we never request.
            opcode::RC_READ_RESPONSE_FIRST..=opcode::RC_ATOMIC_ACKNOWLEDGE => {}
            0..=opcode::RC_SEND_ONLY_INVALIDATE => self.receive_request(now, shared, packet),
            _ => {}
        }
    }

    fn receive_request(&mut self, now: Instant, shared: &mut Shared, packet: &RcPacket<'_>) {
        if !self.state().receives() {
            return;
        }
        shared.counts.rcvd_pkts += 1;
        if self.state() == State::Rtr && !self.responder.has_heard() {
            self.events.push_back(QpEvent::CommEst);
        }
        let mtu = self.attributes.path_mtu.bytes() as usize;
        let taken = self
            .responder
            .receive(now, shared, packet, mtu, &mut self.events);
        match taken {
            Ok(()) => self.remember_to_trim(now),
            Err(status) => self.fail_receiving(shared, status),
        }
    }

    fn receive_response(&mut self, now: Instant, shared: &mut Shared, packet: &RcPacket<'_>) {
        let Some(aeth) = packet.aeth.filter(|_| self.state().takes_responses()) else {
            return;
        };
        shared.counts.rcvd_pkts += 1;
        let psn = packet.bth.psn();
        match self.requester.receive(now, psn, aeth, &mut shared.counts) {
            Ok(()) => self.report_drained(),
            Err(status) => self.fail_sending(shared, status),
        }
    }

    /// Ends a batch: copies parts of incomplete messages from its memory. Must be called before
    /// `shared.inbox` is passed on. True if there were any.
    pub fn end_batch(&mut self, shared: &mut Shared, memory: &[u8]) -> bool {
        self.responder.end_batch(shared, memory)
    }

    /// The packets to send now; [`RcQp::transmitted`] must follow. Acknowledgements that may wait are
    /// sent only with `flush`.
    pub fn poll_transmit(&mut self, flush: bool) -> Option<Packets<'_>> {
        self.poll_transmit_with(flush, None)
    }

    /// Like [`RcQp::poll_transmit`]. If [`Packets::carries`] is set, the last packet is `rider`, an
    /// acknowledgement of another queue pair for the same peer.
    pub fn poll_transmit_with(&mut self, flush: bool, rider: Option<&Ack>) -> Option<Packets<'_>> {
        let path = self.path();
        let rnr_timer = self.attributes.min_rnr_timer;
        // In ERR, only a last NAK may be due.
        if let Some(reply) = self.responder.poll_transmit(flush, rnr_timer, &path) {
            return Some(reply);
        }
        if !self.attributes.state.takes_responses() {
            return None;
        }
        self.requester.poll_transmit(rider, &path)
    }

    /// The acknowledgement that waits, if any, to be sent with packets of another queue pair;
    /// [`RcQp::transmitted`] must follow.
    pub fn ride(&mut self) -> Option<Ack> {
        let path = self.path();
        self.responder.ride(&path)
    }

    /// Whether [`RcQp::ride`] has an acknowledgement.
    pub fn owes(&self) -> bool {
        self.responder.owes()
    }

    /// Reports that the first `count` packets of the last [`RcQp::poll_transmit`] were sent.
    pub fn transmitted(&mut self, now: Instant, shared: &mut Shared, count: usize) {
        match self.responder.transmitted(count) {
            Some(sent) => shared.counts.sent_pkts += u64::from(sent),
            None => self.requester.transmitted(now, count, &mut shared.counts),
        }
    }

    /// The next completion.
    pub fn poll_completion(&mut self) -> Option<SendCompletion> {
        self.requester.poll_completion()
    }

    /// The next event.
    pub fn poll_event(&mut self) -> Option<QpEvent> {
        self.events.pop_front()
    }

    /// When to call [`RcQp::handle_timeout`] next: for a retransmission, the end of an RNR delay, a
    /// delayed acknowledgement, or the release of memory.
    pub fn next_deadline(&self) -> Option<Instant> {
        let deadlines = [
            self.requester.deadline(),
            self.responder.deadline(),
            self.trim,
        ];
        deadlines.into_iter().flatten().min()
    }

    /// Handles all deadlines up to `now`.
    pub fn handle_timeout(&mut self, now: Instant, shared: &mut Shared) {
        self.responder.handle_timeout(now);
        if let Err(status) = self.requester.handle_timeout(now, &mut shared.counts) {
            self.fail_sending(shared, status);
        }
        if self.trim.is_some_and(|at| at <= now) {
            self.trim = None;
            self.give_memory_back(now, shared);
        }
    }

    /// Whether a local ACK timeout has passed since the peer's last answer.
    pub fn is_silent(&self) -> bool {
        self.failure.is_none() && self.requester.is_silent()
    }

    /// Ends the queue pair as after the last retry.
    pub fn give_up(&mut self, shared: &mut Shared) {
        shared.counts.retry_exceeded_err += 1;
        self.fail_sending(shared, WcStatus::RetryExcErr);
    }

    /// Schedules the release of memory after an idle time.
    fn remember_to_trim(&mut self, now: Instant) {
        if self.trim.is_none() && (self.requester.is_roomy() || self.responder.is_roomy()) {
            self.trim = Some(now.after(TRIM_AFTER));
        }
    }

    fn give_memory_back(&mut self, now: Instant, shared: &mut Shared) {
        self.responder.forget_held(shared, now, TRIM_AFTER);
        if self.requester.is_idle() && self.responder.is_idle() {
            self.requester.trim();
            self.responder.trim();
        } else {
            self.remember_to_trim(now);
        }
    }

    /// Allocated bytes.
    #[cfg(test)]
    fn heap_bytes(&self) -> usize {
        self.events.capacity() + self.requester.heap_bytes() + self.responder.heap_bytes()
    }

    /// When the incomplete message that holds a receive buffer began, if there is one.
    pub fn unfinished_since(&self) -> Option<Instant> {
        self.responder.unfinished_since()
    }

    /// The status of the failure.
    pub const fn failure(&self) -> Option<WcStatus> {
        self.failure
    }

    /// The counters of this queue pair.
    pub fn statistics(&self) -> Statistics {
        let mut statistics = Statistics::default();
        self.requester.statistics(&mut statistics);
        self.responder.statistics(&mut statistics);
        statistics
    }
}

#[cfg(test)]
#[path = "tests/mod.rs"]
mod tests;
