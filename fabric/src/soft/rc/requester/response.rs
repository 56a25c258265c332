//! The requester's handling of responses (IBA vol. 1, 9.7.5).

use std::time::Duration;

use proto::{Instant, Psn, WcStatus};

use super::super::RcCounts;
use super::super::recovery::{Peer, Recovery};
use super::super::window::Congestion;
use super::Requester;
use crate::soft::wire::{Acknowledgement, Aeth};

/// A second NAK of the same packet within this time is an echo of the first.
const NAMED_AGAIN_AFTER: Duration = Duration::from_micros(200);

impl Requester {
    /// Handles a response.
    ///
    /// # Errors
    /// The status of the oldest request, if the queue pair fails.
    pub fn receive(
        &mut self,
        now: Instant,
        psn: Psn,
        aeth: Aeth,
        counts: &mut RcCounts,
    ) -> Result<(), WcStatus> {
        // Valid PSNs: from the last acknowledged packet to the last sent one.
        let ahead = psn.since(self.queue.psn(self.oldest));
        let in_flight = self.next - self.oldest;
        let outstanding = u64::try_from(ahead).ok().filter(|&n| n < in_flight);
        if outstanding.is_none() && ahead != -1 {
            counts.out_of_window_ack += 1;
            return Ok(());
        }
        match (aeth.acknowledgement(), outstanding) {
            (Acknowledgement::Ack { credits }, outstanding) => {
                self.credits.learn(credits, aeth.msn());
                if let Some(n) = outstanding {
                    self.acknowledge(now, self.oldest + n + 1);
                }
            }
            (Acknowledgement::Reserved, _) => {}
            (_, None) => counts.out_of_window_ack += 1,
            (Acknowledgement::Rnr { timer }, Some(n)) => {
                return self.not_ready(now, self.oldest + n, timer, counts);
            }
            (Acknowledgement::Nak { code }, Some(n)) => {
                return self.refused(now, self.oldest + n, code, counts);
            }
        }
        Ok(())
    }

    fn refused(
        &mut self,
        now: Instant,
        at: u64,
        code: u8,
        counts: &mut RcCounts,
    ) -> Result<(), WcStatus> {
        let status = match code {
            0 => return self.missing(now, at, counts),
            1 => WcStatus::RemInvReqErr,
            2 => WcStatus::RemAccessErr,
            3 => WcStatus::RemOpErr,
            // Codes of services that are not used, or reserved.
            _ => return Ok(()),
        };
        match status {
            WcStatus::RemInvReqErr => counts.req_remote_invalid_request += 1,
            _ => counts.req_remote_access_errors += 1,
        }
        self.acknowledge(now, at);
        Err(status)
    }

    /// NAK sequence error: the packet at `at` is missing, all packets before it have arrived.
    fn missing(&mut self, now: Instant, at: u64, counts: &mut RcCounts) -> Result<(), WcStatus> {
        counts.packet_seq_err += 1;
        let is_echo = self.named.is_some_and(|(named, when)| {
            named == at && now.since(when) < self.rtt.smoothed().max(NAMED_AGAIN_AFTER)
        });
        // A peer that is not ready discards everything, and may report that.
        let is_known = self.retry.is_waiting() && at == self.oldest;
        if is_echo || is_known {
            return Ok(());
        }
        // The previous recovery must not handle this as a usual acknowledgement.
        let before = self.recovery.take();
        self.acknowledge(now, at);
        if !self.retry.missed() {
            counts.retry_exceeded_err += 1;
            return Err(WcStatus::RetryExcErr);
        }
        self.named = Some((at, now));
        self.timed = None;
        if let Some(before) = &before {
            before.learn_from_nak(&mut self.peer, at);
        }
        let recovery = Recovery::from_nak(self.peer, before.as_ref(), at, self.next);
        if self.peer == Peer::Discards {
            // The peer also discards the packets after a loss, so fewer should be in flight.
            self.window.shrink(Congestion::Loss, at, self.next);
        } else {
            self.lost(recovery.remaining(), at);
        }
        self.recovery = Some(recovery);
        Ok(())
    }

    /// Records the loss of `count` packets, among them the one at position `at`.
    pub(super) fn lost(&mut self, count: u64, at: u64) {
        self.window.lost(count.min(1 << 20) as u32, at, self.next);
    }

    /// RNR NAK: the packet at `at` found no receive buffer.
    fn not_ready(
        &mut self,
        now: Instant,
        at: u64,
        timer: u8,
        counts: &mut RcCounts,
    ) -> Result<(), WcStatus> {
        // Further RNR NAKs of the same packets do not prolong the delay.
        if self.retry.is_waiting() && at == self.oldest {
            counts.rnr_nak_retry_err += 1;
            return Ok(());
        }
        self.recovery = None;
        self.acknowledge(now, at);
        if !self.retry.not_ready(now, timer) {
            counts.retry_rnr_exceeded_err += 1;
            return Err(WcStatus::RnrRetryExcErr);
        }
        counts.rnr_nak_retry_err += 1;
        self.timed = None;
        // One packet is enough to test whether there are buffers again.
        self.recovery = Some(Recovery::from_nak(Peer::Unknown, None, at, self.next));
        Ok(())
    }

    /// Handles the acknowledgement of all packets before position `to`.
    fn acknowledge(&mut self, now: Instant, to: u64) {
        if to <= self.oldest {
            return;
        }
        let count = to - self.oldest;
        let was_in_use = (self.next - self.oldest) * 2 >= u64::from(self.window.packets());
        self.oldest = to;
        if let Some((at, sent)) = self.timed
            && at < to
        {
            self.timed = None;
            match self.named {
                Some((named, _)) if named == at => self.rtt.smooth(now.since(sent)),
                _ => self.rtt.sample(now, now.since(sent)),
            }
            if self.rtt.is_queueing() {
                self.window.shrink(Congestion::Delay, at, self.next);
            }
        }
        let count = count.min(1 << 20) as u32;
        self.window.arrived(count);
        self.recover(to);
        let flows = match &self.recovery {
            Some(recovery) => recovery.is_selective(self.peer),
            None => true,
        };
        if was_in_use && flows && !self.rtt.is_queueing() {
            self.window.grow(count);
        }
        self.retry.progress(now, self.rtt.timeout(), to < self.next);
        while let Some(posted) = self.queue.complete(to) {
            self.tx_messages += posted.messages();
            self.tx_bytes += posted.bytes();
            self.done(posted, WcStatus::Success);
        }
    }

    /// Updates the recovery: all packets before `to` have arrived.
    fn recover(&mut self, to: u64) {
        let Some(recovery) = &mut self.recovery else {
            return;
        };
        let before = recovery.remaining();
        if !recovery.progress(&mut self.peer, to) {
            self.recovery = None;
            return;
        }
        let more = recovery.remaining().saturating_sub(before);
        if self.peer != Peer::Discards {
            self.lost(more, to);
        }
    }

    /// Handles a congestion notification.
    pub fn notified(&mut self, counts: &mut RcCounts) {
        let in_flight = self.next > self.oldest;
        if in_flight
            && self
                .window
                .shrink(Congestion::Notified, self.oldest, self.next)
        {
            counts.rp_cnp_handled += 1;
        } else {
            counts.rp_cnp_ignored += 1;
        }
    }
}
