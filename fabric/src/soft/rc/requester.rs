//! The requester: sends what was posted, takes acknowledgements, sends again what was lost (IBA
//! vol. 1, 9.7.5 and 9.9.2).

mod response;

use std::collections::VecDeque;
use std::time::Duration;

use proto::{Instant, Psn, WcStatus};

use super::RcCounts;
use super::credits::Credits;
use super::recovery::{Peer, Recovery};
use super::retry::{Expired, Retry};
use super::rtt::Rtt;
use super::send_queue::{Path, Posted, Run, SendQueue};
use super::types::{Packets, Room, SendCompletion, SendRequest, Statistics};
use super::window::{Congestion, Window};

/// A full window is of a peer that is gone if nothing is acknowledged for so long, and of one that
/// must not hold up the others if it stays full for so long. A busy machine lets an acknowledgement
/// wait for tens of milliseconds; TCP sends again after 200.
const STALLED_AFTER: Duration = Duration::from_millis(50);

/// Packets that are worth a send of their own while others are in flight.
const RUN_WORTH_SENDING: u64 = 8;

/// In flight so many, an acknowledgement comes without delay.
const ACKNOWLEDGED_AT_ONCE: u64 = 16;

/// The sending side of one queue pair. Positions are packets since its start.
#[derive(Debug)]
pub struct Requester {
    queue: SendQueue,
    completions: VecDeque<SendCompletion>,
    /// The oldest packet that is not acknowledged.
    oldest: u64,
    /// The next packet to be sent for the first time.
    next: u64,
    /// In SQD: where sending ends.
    drain: Option<u64>,
    window: Window,
    rtt: Rtt,
    /// A packet and when it was sent, to measure the round trip by.
    timed: Option<(u64, Instant)>,
    retry: Retry,
    credits: Credits,
    peer: Peer,
    recovery: Option<Recovery>,
    /// What was named missing last, and when.
    named: Option<(u64, Instant)>,
    /// What was given to be sent last.
    pending: Option<(Run, bool)>,
    /// When something was acknowledged last, or sending began.
    progress: Instant,
    /// When the window last had room.
    roomy: Instant,
    tx_messages: u64,
    tx_bytes: u64,
    retransmits: u64,
}

impl Requester {
    /// Starts at `sq_psn`, with packets of `mtu` bytes.
    pub fn new(sq_psn: Psn, mtu: u32) -> Requester {
        Requester {
            queue: SendQueue::new(sq_psn),
            completions: VecDeque::new(),
            oldest: 0,
            next: 0,
            drain: None,
            window: Window::new(mtu),
            rtt: Rtt::default(),
            timed: None,
            retry: Retry::default(),
            credits: Credits::default(),
            peer: Peer::default(),
            recovery: None,
            named: None,
            pending: None,
            progress: Instant::default(),
            roomy: Instant::default(),
            tx_messages: 0,
            tx_bytes: 0,
            retransmits: 0,
        }
    }

    /// The attributes TIMEOUT, RETRY_CNT and RNR_RETRY.
    pub fn configure(&mut self, timeout: u8, retry_cnt: u8, rnr_retry: u8) {
        self.retry.configure(timeout, retry_cnt, rnr_retry);
    }

    /// Appends a request.
    ///
    /// # Errors
    /// Those of [`SendQueue::post`].
    pub fn post(
        &mut self,
        now: Instant,
        request: SendRequest,
        path: &Path,
    ) -> Result<(), SendRequest> {
        let (was_idle, had_room) = (self.oldest == self.queue.end(), self.has_room());
        self.queue.post(request, path.mtu)?;
        if was_idle {
            self.progress = now;
        }
        if had_room {
            self.roomy = now;
        }
        Ok(())
    }

    fn has_room(&self) -> bool {
        self.queue.end() - self.oldest < u64::from(self.window.packets())
    }

    /// Completes a request that was posted when it was too late.
    pub fn refuse(&mut self, request: SendRequest) {
        self.completions.push_back(SendCompletion {
            id: request.id,
            status: WcStatus::WrFlushErr,
            buffer: request.buffer,
        });
    }

    /// Whether the window takes more.
    pub fn room(&self, now: Instant) -> Room {
        if self.has_room() {
            Room::Open
        } else if now.since(self.progress.min(self.roomy)) > STALLED_AFTER {
            Room::Stalled
        } else {
            Room::Full
        }
    }

    /// Starts nothing new but finishes what has begun, in SQD.
    pub fn begin_drain(&mut self) {
        let begun = self.queue.find(self.next).filter(|p| p.first < self.next);
        self.drain = Some(begun.map_or(self.next, Posted::end));
    }

    /// Goes on as before.
    pub fn end_drain(&mut self) {
        self.drain = None;
    }

    /// Whether everything that had begun is acknowledged.
    pub fn is_drained(&self) -> bool {
        self.drain.is_some_and(|end| self.oldest >= end)
    }

    /// What to send now.
    pub fn poll_transmit(&mut self, path: &Path) -> Option<Packets<'_>> {
        let (run, again) = self.next_run(path)?;
        self.pending = Some((run, again));
        self.queue.write(run, again, path)
    }

    fn next_run(&self, path: &Path) -> Option<(Run, bool)> {
        if self.retry.is_waiting() {
            return None;
        }
        let window_end = self.oldest + u64::from(self.window.packets());
        if let Some(recovery) = &self.recovery {
            let resend = recovery.resend();
            if !resend.is_empty() {
                let limit = resend.end.min(window_end).saturating_sub(resend.start);
                return Some((self.queue.run(resend.start, limit, path)?, true));
            }
            if recovery.holds_back(self.peer) {
                return None;
            }
        }
        let end = self.drain.unwrap_or(self.queue.end()).min(window_end);
        let limit = end.saturating_sub(self.next).min(self.allowance());
        let run = self.queue.run(self.next, limit, path)?;
        // A few packets at the end of the window wait for the next acknowledgement, which is near.
        let in_flight = self.next - self.oldest;
        let is_scrap = run.count < run.ideal.min(RUN_WORTH_SENDING);
        if is_scrap && in_flight >= ACKNOWLEDGED_AT_ONCE {
            return None;
        }
        Some((run, false))
    }

    /// Packets that the peer has buffers for.
    fn allowance(&self) -> u64 {
        let Some(posted) = self.queue.find(self.next) else {
            return 0;
        };
        let begun = self.next - posted.first;
        if posted.messages() == 1 && begun > 0 {
            return u64::MAX;
        }
        let before = (begun & 0xff_ffff) as u32;
        let ssn = posted.ssn.wrapping_add(before) & 0xff_ffff;
        match (self.credits.allowance(ssn), posted.messages()) {
            (0, _) => 0,
            (_, 1) => u64::MAX,
            (messages, _) => u64::from(messages),
        }
    }

    /// The first `count` packets of what was given are on the network.
    pub fn transmitted(&mut self, now: Instant, count: usize, counts: &mut RcCounts) {
        let Some((run, again)) = self.pending.take() else {
            return;
        };
        let count = run.count.min(count as u64);
        if count == 0 {
            return;
        }
        counts.sent_pkts += count;
        if again {
            counts.retransmitted += count;
            self.retransmits += count;
            // An acknowledgement does not say for which of the two it is (Karn), unless the first
            // is known to be lost.
            let is_named = self.named.is_some_and(|(at, _)| at == run.start);
            self.timed = (is_named && run.start == self.oldest).then_some((run.start, now));
            if let Some(recovery) = &mut self.recovery {
                recovery.sent(run.start, count);
            }
        } else {
            self.next = run.start + count;
            if self.timed.is_none() && self.recovery.is_none() {
                self.timed = Some((self.next - 1, now));
            }
        }
        if again && run.start == self.oldest {
            self.retry.resent(now, self.patience());
        } else {
            self.retry.sent(now, self.patience());
        }
    }

    /// How long an answer takes at most.
    fn patience(&self) -> Duration {
        match &self.recovery {
            Some(recovery) if recovery.is_selective(self.peer) => self.rtt.timeout_of_resent(),
            _ => self.rtt.timeout(),
        }
    }

    fn done(&mut self, posted: Posted, status: WcStatus) {
        self.completions.push_back(SendCompletion {
            id: posted.request.id,
            status,
            buffer: posted.request.buffer,
        });
    }

    /// Lets time pass.
    ///
    /// # Errors
    /// [`WcStatus::RetryExcErr`] when the peer has not answered in all the tries.
    pub fn handle_timeout(&mut self, now: Instant, counts: &mut RcCounts) -> Result<(), WcStatus> {
        match self.retry.expire(now, self.patience()) {
            Expired::Nothing | Expired::Ready => {}
            Expired::Overdue => {
                counts.local_ack_timeout_err += 1;
                self.timed = None;
                self.named = None;
                self.ask();
            }
            Expired::Exhausted => {
                counts.local_ack_timeout_err += 1;
                counts.retry_exceeded_err += 1;
                return Err(WcStatus::RetryExcErr);
            }
        }
        Ok(())
    }

    /// Sends the oldest packet again, to find out where the peer is.
    fn ask(&mut self) {
        if self.oldest == self.next {
            return;
        }
        // Once it may be the packet that was lost; more often, the network does not work.
        if self.retry.silences() > 1 {
            self.window
                .shrink(Congestion::Timeout, self.oldest, self.next);
        } else {
            self.lost(1, self.oldest);
        }
        self.recovery = Some(match &self.recovery {
            Some(recovery) if recovery.is_selective(self.peer) && self.retry.silences() == 1 => {
                recovery.again(self.oldest, self.next)
            }
            _ => Recovery::probe(self.oldest, self.next),
        });
    }

    /// When [`Requester::handle_timeout`] wants to be called next.
    pub fn deadline(&self) -> Option<Instant> {
        self.retry.deadline()
    }

    /// Completes everything: the oldest request with `status`, the others as flushed (IBA vol. 1,
    /// 10.3.1.7).
    pub fn flush(&mut self, status: WcStatus) {
        let mut status = status;
        while let Some(posted) = self.queue.pop() {
            self.done(posted, status);
            status = WcStatus::WrFlushErr;
        }
        self.oldest = self.queue.end();
        self.next = self.oldest;
        self.drain = None;
        self.recovery = None;
        self.pending = None;
        self.timed = None;
        self.retry.stop();
    }

    /// What became of what was posted.
    pub fn poll_completion(&mut self) -> Option<SendCompletion> {
        self.completions.pop_front()
    }

    /// Whether nothing is posted, and nothing is to be told.
    pub fn is_idle(&self) -> bool {
        self.oldest == self.queue.end() && self.completions.is_empty()
    }

    /// Whether [`Requester::trim`] would give something back.
    pub fn is_roomy(&self) -> bool {
        self.queue.is_roomy() || self.completions.capacity() > 4
    }

    /// Gives back memory that an idle queue pair does not need.
    pub fn trim(&mut self) {
        self.queue.trim();
        self.completions.shrink_to(1);
    }

    /// Bytes that it has allocated.
    #[cfg(test)]
    pub fn heap_bytes(&self) -> usize {
        self.queue.heap_bytes() + self.completions.capacity() * size_of::<SendCompletion>()
    }

    /// Adds its side to the counts of a queue pair.
    pub fn statistics(&self, into: &mut Statistics) {
        into.tx_messages = self.tx_messages;
        into.tx_bytes = self.tx_bytes;
        into.retransmits = self.retransmits;
        into.in_flight = (self.next - self.oldest).min(u64::from(u32::MAX)) as u32;
        into.window = self.window.packets();
        into.srtt = self.rtt.smoothed();
    }
}
