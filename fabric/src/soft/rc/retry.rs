//! When a requester retransmits, and when it gives up.
//!
//! Two timers run while something is unacknowledged. The first follows the measured round trip; when it
//! expires, the requester sends its oldest packet again. That may happen often and costs only a packet.
//! The second is the negotiated *local ACK timeout*; only its expiry spends one of `retry_cnt` retries
//! (IBA vol. 1, 9.7.6.1.3 and 9.9.2.4.1), so early retransmission does not cause early failure. A third
//! timer waits after an RNR NAK.
//!
//! A NAK of a missing packet also spends a retry. Progress restores all retries. With `retry_cnt` 0
//! nothing is ever sent again: the first NAK or timeout is the end.

use std::time::Duration;

use proto::Instant;

use super::rnr;

/// Unlimited retries, in `rnr_retry` (IBA vol. 1, 9.7.5.2.8).
const FOREVER: u8 = 7;

/// How often the interval between retransmissions doubles. A retransmission is one small packet, and on
/// a network that loses many packets many are necessary before the peer may be considered gone.
const DOUBLED_MAX: u8 = 3;

/// The interval doubles at most up to this part of the local ACK timeout. Where round trips vary much, it
/// would otherwise reach the timeout, and each retry would be a single packet.
const DOUBLED_PART: u32 = 4;

/// The longest interval between retransmissions if no timeout was negotiated.
const ASK_MAX: Duration = Duration::from_secs(4);

/// The result of [`Retry::expire`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Expired {
    /// No timer has expired.
    Nothing,
    /// The oldest packet must be sent again.
    Overdue,
    /// The RNR delay is over.
    Ready,
    /// No retries are left.
    Exhausted,
}

/// The timers and the remaining retries.
#[derive(Debug, Default)]
pub struct Retry {
    /// The local ACK timeout; `None` is unlimited.
    timeout: Option<Duration>,
    count: u8,
    left: u8,
    rnr_count: u8,
    rnr_left: u8,
    /// How often the first timer has expired since the last progress.
    backoff: u8,
    /// A local ACK timeout has passed since the peer's last answer.
    silent: bool,
    overdue: Option<Instant>,
    spend: Option<Instant>,
    rnr: Option<Instant>,
}

impl Retry {
    /// Sets the attributes: the code of the local ACK timeout (4.096 µs times two to the power of the
    /// code; 0 is unlimited), retries after timeouts, retries after RNR NAKs. Restores all retries.
    pub fn configure(&mut self, timeout: u8, count: u8, rnr_count: u8) {
        let nanoseconds = 4096u64 << (timeout & 0x1f);
        self.timeout = (timeout != 0).then(|| Duration::from_nanos(nanoseconds));
        self.count = count;
        self.rnr_count = rnr_count;
        self.left = count;
        self.rnr_left = rnr_count;
    }

    /// Starts the timers after a send; `rto` is the timeout of its acknowledgement.
    pub fn sent(&mut self, now: Instant, rto: Duration) {
        if self.overdue.is_none() {
            self.start(now, rto);
        }
        if self.spend.is_none() {
            self.spend = self.timeout.map(|timeout| now.after(timeout));
        }
    }

    /// Restarts the first timer after the oldest packet was sent again.
    pub fn resent(&mut self, now: Instant, rto: Duration) {
        self.start(now, rto);
        self.sent(now, rto);
    }

    /// Number of timeouts since the last progress.
    pub const fn silences(&self) -> u8 {
        self.backoff
    }

    /// Whether a local ACK timeout has passed since the peer's last answer.
    pub const fn is_silent(&self) -> bool {
        self.silent
    }

    /// Handles new acknowledgements; `waiting` if more are outstanding.
    pub fn progress(&mut self, now: Instant, rto: Duration, waiting: bool) {
        self.left = self.count;
        self.rnr_left = self.rnr_count;
        self.backoff = 0;
        self.silent = false;
        self.rnr = None;
        if waiting {
            self.start(now, rto);
            self.spend = self.timeout.map(|timeout| now.after(timeout));
        } else {
            self.stop();
        }
    }

    /// Starts the delay after an RNR NAK. False if no retries are left.
    pub fn not_ready(&mut self, now: Instant, timer: u8) -> bool {
        if self.rnr_left == 0 {
            return false;
        }
        if self.rnr_count != FOREVER {
            self.rnr_left -= 1;
        }
        // A peer that is not ready is alive.
        self.left = self.count;
        self.backoff = 0;
        self.silent = false;
        self.stop();
        self.rnr = Some(now.after(rnr::delay(timer)));
        true
    }

    /// Handles a NAK of a missing packet. False if there are no retries. Only the first NAK of a packet
    /// counts: a peer sends no more (IBA vol. 1, 9.7.5.2.8), but the network may duplicate it.
    pub const fn missed(&mut self) -> bool {
        self.silent = false;
        let Some(left) = self.count.checked_sub(1) else {
            return false;
        };
        if self.left > left {
            self.left = left;
        }
        true
    }

    /// Whether an RNR delay is running.
    pub const fn is_waiting(&self) -> bool {
        self.rnr.is_some()
    }

    /// Stops all timers.
    pub fn stop(&mut self) {
        self.overdue = None;
        self.spend = None;
        self.rnr = None;
    }

    fn start(&mut self, now: Instant, rto: Duration) {
        if self.count == 0 {
            return;
        }
        let longest = self.timeout.unwrap_or(ASK_MAX);
        let doubled = rto * (1 << self.backoff.min(DOUBLED_MAX));
        let wait = doubled.min(rto.max(longest / DOUBLED_PART)).min(longest);
        self.overdue = Some(now.after(wait));
    }

    /// When the next timer expires.
    pub fn deadline(&self) -> Option<Instant> {
        [self.overdue, self.spend, self.rnr]
            .into_iter()
            .flatten()
            .min()
    }

    /// Handles the timers. One call spends at most one retry: if this thread did not run for long,
    /// nothing was retransmitted meanwhile.
    pub fn expire(&mut self, now: Instant, rto: Duration) -> Expired {
        let due = |at: Option<Instant>| at.is_some_and(|at| at <= now);
        if due(self.rnr) {
            self.rnr = None;
            return Expired::Ready;
        }
        if due(self.spend) {
            if self.left == 0 {
                self.stop();
                return Expired::Exhausted;
            }
            self.left -= 1;
            self.silent = true;
            self.spend = self.timeout.map(|timeout| now.after(timeout));
            self.backoff = self.backoff.saturating_add(1);
            self.start(now, rto);
            return Expired::Overdue;
        }
        if due(self.overdue) {
            self.backoff = self.backoff.saturating_add(1);
            self.start(now, rto);
            return Expired::Overdue;
        }
        Expired::Nothing
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RTO: Duration = Duration::from_millis(5);

    /// Runs until no retries are left; returns the number of retransmissions and the total time.
    fn give_up(retry: &mut Retry, rto: Duration) -> (usize, Duration) {
        let start = Instant(1_000_000);
        retry.sent(start, rto);
        let mut asked = 0;
        loop {
            let now = retry.deadline().unwrap();
            match retry.expire(now, rto) {
                Expired::Exhausted => return (asked, now.since(start)),
                Expired::Overdue => asked += 1,
                other => panic!("{other:?}"),
            }
        }
    }

    #[test]
    fn asking_early_does_not_spend_tries() {
        let mut retry = Retry::default();
        retry.configure(15, 7, 7);
        let (asked, after) = give_up(&mut retry, RTO);
        // 134.2 ms, and seven retries.
        assert_eq!(after, Duration::from_nanos(8 * (4096 << 15)));
        assert!(asked > 20 && asked < 50, "{asked}");
    }

    /// If some packets are late by 20 ms, an acknowledgement is awaited for about 40 ms.
    #[test]
    fn where_round_trips_vary_much_a_retry_is_more_than_one_packet() {
        let mut retry = Retry::default();
        retry.configure(15, 7, 7);
        let (asked, after) = give_up(&mut retry, 8 * RTO);
        assert_eq!(after, Duration::from_nanos(8 * (4096 << 15)));
        assert!(asked >= 24, "{asked}");
        // An acknowledgement is awaited for longer than the local ACK timeout.
        retry.configure(15, 7, 7);
        assert_eq!(give_up(&mut retry, 100 * RTO).0, 7);
    }

    #[test]
    fn without_retries_the_first_timeout_fails() {
        let mut retry = Retry::default();
        retry.configure(14, 0, 0);
        assert_eq!(
            give_up(&mut retry, RTO),
            (0, Duration::from_nanos(4096 << 14))
        );
        assert!(!retry.not_ready(Instant(0), 1));
    }

    #[test]
    fn a_nak_is_a_try_and_progress_gives_it_back() {
        let mut retry = Retry::default();
        retry.configure(15, 2, 7);
        assert!(retry.missed() && retry.missed(), "an echo is none");
        assert_eq!(retry.left, 1);
        retry.progress(Instant(0), RTO, true);
        assert_eq!(retry.left, 2);
        retry.configure(15, 0, 7);
        assert!(!retry.missed());
    }

    #[test]
    fn a_clock_that_jumps_costs_one_retry() {
        let mut retry = Retry::default();
        retry.configure(15, 7, 7);
        retry.sent(Instant(0), RTO);
        let late = Instant(0).after(Duration::from_secs(60));
        assert_eq!(retry.expire(late, RTO), Expired::Overdue);
        assert_eq!(retry.left, 6);
    }

    #[test]
    fn without_a_timeout_it_never_gives_up() {
        let mut retry = Retry::default();
        retry.configure(0, 1, 1);
        retry.sent(Instant(0), RTO);
        for _ in 0..100 {
            let now = retry.deadline().unwrap();
            assert_eq!(retry.expire(now, RTO), Expired::Overdue);
            assert!(retry.deadline().unwrap().since(now) <= ASK_MAX);
        }
    }

    #[test]
    fn rnr_tries_are_counted_and_7_is_without_end() {
        let mut retry = Retry::default();
        retry.configure(15, 7, 2);
        assert!(retry.not_ready(Instant(0), 12));
        assert_eq!(retry.deadline(), Some(Instant(640_000)));
        assert_eq!(retry.expire(Instant(639_999), RTO), Expired::Nothing);
        assert_eq!(retry.expire(Instant(640_000), RTO), Expired::Ready);
        assert!(retry.not_ready(Instant(0), 12));
        assert!(!retry.not_ready(Instant(0), 12));
        retry.configure(15, 7, 7);
        assert!((0..1000).all(|_| retry.not_ready(Instant(0), 0)));
    }
}
