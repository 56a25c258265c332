//! The requester: sends posted messages, handles acknowledgements, sends lost packets again
//! (IBA vol. 1, 9.7.5 and 9.9.2).

mod response;

use std::collections::VecDeque;
use std::time::Duration;

use proto::{Instant, Psn, WcStatus};

use super::RcCounts;
use super::credits::Credits;
use super::recovery::{Peer, Recovery};
use super::reply::Ack;
use super::retry::{Expired, Retry};
use super::rtt::Rtt;
use super::send_queue::{Asks, Path, Posted, Run, SendQueue};
use super::types::{Packets, SendCompletion, SendRequest, Statistics};
use super::window::{Congestion, Window};

/// Fewer packets are not worth a send of their own while others are in flight.
const RUN_WORTH_SENDING: u64 = 8;

/// The sending side of one queue pair. Positions count packets since its start.
#[derive(Debug)]
pub struct Requester {
    queue: SendQueue,
    completions: VecDeque<SendCompletion>,
    /// The oldest unacknowledged packet.
    oldest: u64,
    /// The next new packet.
    next: u64,
    /// The position after the last new packet that requested an acknowledgement inside a message.
    asked: u64,
    /// In SQD: the position where sending ends.
    drain: Option<u64>,
    window: Window,
    rtt: Rtt,
    /// A packet and its send time, to measure the round trip.
    timed: Option<(u64, Instant)>,
    retry: Retry,
    credits: Credits,
    peer: Peer,
    recovery: Option<Recovery>,
    /// The last packet reported missing, and when.
    named: Option<(u64, Instant)>,
    /// The run returned by the last `poll_transmit`.
    pending: Option<(Run, Asks)>,
    tx_messages: u64,
    tx_bytes: u64,
    retransmits: u64,
}

impl Requester {
    /// Creates a requester that starts at `sq_psn`, with packets of `mtu` bytes.
    pub fn new(sq_psn: Psn, mtu: u32) -> Requester {
        Requester {
            queue: SendQueue::new(sq_psn),
            completions: VecDeque::new(),
            oldest: 0,
            next: 0,
            asked: 0,
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
            tx_messages: 0,
            tx_bytes: 0,
            retransmits: 0,
        }
    }

    /// Sets TIMEOUT, RETRY_CNT and RNR_RETRY.
    pub fn configure(&mut self, timeout: u8, retry_cnt: u8, rnr_retry: u8) {
        self.retry.configure(timeout, retry_cnt, rnr_retry);
    }

    /// Appends a request.
    ///
    /// # Errors
    /// Those of [`SendQueue::post`].
    pub fn post(&mut self, request: SendRequest, path: &Path) -> Result<(), SendRequest> {
        self.queue.post(request, path.mtu)
    }

    /// Whether the window has room.
    pub fn has_room(&self) -> bool {
        self.queue.end() - self.oldest < u64::from(self.window.packets())
    }

    /// Completes a request that was posted in ERR.
    pub fn refuse(&mut self, request: SendRequest) {
        self.completions.push_back(SendCompletion {
            id: request.id,
            status: WcStatus::WrFlushErr,
            buffer: request.buffer,
        });
    }

    /// Starts a drain (SQD): finishes begun messages and starts no new ones.
    pub fn begin_drain(&mut self) {
        let begun = self.queue.find(self.next).filter(|p| p.first < self.next);
        self.drain = Some(begun.map_or(self.next, Posted::end));
    }

    /// Ends a drain.
    pub fn end_drain(&mut self) {
        self.drain = None;
    }

    /// Whether all messages begun before the drain are acknowledged.
    pub fn is_drained(&self) -> bool {
        self.drain.is_some_and(|end| self.oldest >= end)
    }

    /// The packets to send now, with `rider` if possible.
    pub fn poll_transmit(&mut self, rider: Option<&Ack>, path: &Path) -> Option<Packets<'_>> {
        let (run, again) = self.next_run(path)?;
        let mut asks = Asks {
            until: if again { run.start } else { self.asked },
            every: self.ask_every(),
            again,
        };
        let packets = self.queue.write(run, &mut asks, rider, path);
        self.pending = Some((run, asks));
        packets
    }

    /// Packets in flight from which on an acknowledgement is requested inside messages: half a window.
    fn ask_every(&self) -> u64 {
        u64::from(self.window.packets() / 2)
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
        // A few packets at the end of the window wait for the next acknowledgement, which was
        // requested.
        let in_flight = self.next - self.oldest;
        let is_scrap = run.count < run.ideal.min(RUN_WORTH_SENDING);
        if is_scrap && in_flight >= self.ask_every() {
            return None;
        }
        Some((run, false))
    }

    /// Number of packets that the peer has buffers for.
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

    /// Reports that the first `count` packets of the run were sent.
    pub fn transmitted(&mut self, now: Instant, count: usize, counts: &mut RcCounts) {
        let Some((run, asks)) = self.pending.take() else {
            return;
        };
        let again = asks.again;
        let count = run.count.min(count as u64);
        if count == 0 {
            return;
        }
        counts.sent_pkts += count;
        if again {
            counts.retransmitted += count;
            self.retransmits += count;
            // An acknowledgement does not tell the original from the retransmission (Karn's algorithm),
            // unless the peer has reported the original missing.
            let is_named = self.named.is_some_and(|(at, _)| at == run.start);
            self.timed = (is_named && run.start == self.oldest).then_some((run.start, now));
            if let Some(recovery) = &mut self.recovery {
                recovery.sent(run.start, count);
            }
        } else {
            self.next = run.start + count;
            if asks.until <= self.next {
                self.asked = asks.until;
            }
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

    /// The timeout of an acknowledgement.
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

    /// Handles the deadline.
    ///
    /// # Errors
    /// [`WcStatus::RetryExcErr`] if the peer has not answered after all retries.
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

    /// Sends the oldest packet again, to learn the peer's position.
    fn ask(&mut self) {
        if self.oldest == self.next {
            return;
        }
        // A first timeout may be the loss of this packet; later ones mean that the network does not
        // work.
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

    /// Whether a local ACK timeout has passed since the peer's last answer.
    pub const fn is_silent(&self) -> bool {
        self.retry.is_silent()
    }

    /// When to call [`Requester::handle_timeout`] next.
    pub fn deadline(&self) -> Option<Instant> {
        self.retry.deadline()
    }

    /// Completes all requests: the oldest with `status`, the others as flushed (IBA vol. 1, 10.3.1.7).
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

    /// The next completion.
    pub fn poll_completion(&mut self) -> Option<SendCompletion> {
        self.completions.pop_front()
    }

    /// Whether no requests are posted and no completions are queued.
    pub fn is_idle(&self) -> bool {
        self.oldest == self.queue.end() && self.completions.is_empty()
    }

    /// Whether [`Requester::trim`] would release memory.
    pub fn is_roomy(&self) -> bool {
        self.queue.is_roomy() || self.completions.capacity() > 4
    }

    /// Releases memory that an idle queue pair does not need.
    pub fn trim(&mut self) {
        self.queue.trim();
        self.completions.shrink_to(1);
    }

    /// Allocated bytes.
    #[cfg(test)]
    pub fn heap_bytes(&self) -> usize {
        self.queue.heap_bytes() + self.completions.capacity() * size_of::<SendCompletion>()
    }

    /// Adds the sending side's counters.
    pub fn statistics(&self, into: &mut Statistics) {
        into.tx_messages = self.tx_messages;
        into.tx_bytes = self.tx_bytes;
        into.retransmits = self.retransmits;
        into.in_flight = (self.next - self.oldest).min(u64::from(u32::MAX)) as u32;
        into.window = self.window.packets();
        into.srtt = self.rtt.smoothed();
    }
}
