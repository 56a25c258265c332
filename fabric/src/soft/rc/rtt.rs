//! The round trip time: smoothed, its variation, its minimum, and the timeout of acknowledgements (the
//! estimator of RFC 6298, section 2).

use std::time::Duration;

use proto::Instant;

/// The minimum timeout: more than a peer delays acknowledgements, and more than the scheduling delay of
/// a busy machine.
const RTO_MIN: Duration = Duration::from_millis(5);

/// The minimum timeout of retransmitted packets: peers do not delay these acknowledgements.
const RESENT_MIN: Duration = Duration::from_millis(2);

/// The timeout before the first sample.
const RTO_INITIAL: Duration = Duration::from_millis(50);

/// How long a minimum is valid: paths change.
const EPOCH: Duration = Duration::from_secs(10);

/// The excess over the minimum at which the queue on the path counts as full.
const QUEUEING_MAX: Duration = Duration::from_millis(4);

/// Round trip times of one queue pair.
#[derive(Debug, Default)]
pub struct Rtt {
    smoothed: Duration,
    variation: Duration,
    /// The minimum of this epoch and of the previous one.
    least: [Option<Duration>; 2],
    epoch: Instant,
}

impl Rtt {
    /// Adds the round trip time of a packet that was sent once.
    pub fn sample(&mut self, now: Instant, sample: Duration) {
        self.smooth(sample);
        if now.since(self.epoch) > EPOCH {
            self.epoch = now;
            self.least = [None, self.least[0]];
        }
        self.least[0] = Some(self.least[0].map_or(sample, |least| least.min(sample)));
    }

    /// Adds the time between the retransmission of a packet that the peer reported missing and its acknowledgement.
    /// Only the smoothed time follows it, not the minimum: perhaps the packet was only late, and the acknowledgement
    /// is that of the original.
    pub fn smooth(&mut self, sample: Duration) {
        if self.smoothed.is_zero() {
            self.smoothed = sample;
            self.variation = sample / 2;
        } else {
            self.variation = (self.variation * 3 + self.smoothed.abs_diff(sample)) / 4;
            self.smoothed = (self.smoothed * 7 + sample) / 8;
        }
    }

    /// The smoothed round trip time; zero before the first sample.
    pub const fn smoothed(&self) -> Duration {
        self.smoothed
    }

    /// How long to wait for an acknowledgement before a retransmission.
    pub fn timeout(&self) -> Duration {
        if self.smoothed.is_zero() {
            RTO_INITIAL
        } else {
            (self.smoothed + self.variation * 4).max(RTO_MIN)
        }
    }

    /// The same for a packet that the peer reported missing and that was sent again.
    pub fn timeout_of_resent(&self) -> Duration {
        let twice = self.smoothed * 2 + self.variation * 4;
        twice.max(RESENT_MIN).min(self.timeout())
    }

    /// Whether round trip times have grown so much that packets must be waiting in a queue.
    pub fn is_queueing(&self) -> bool {
        let least = self.least.iter().flatten().min();
        least.is_some_and(|&least| self.smoothed > least + least.max(QUEUEING_MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn the_timeout_follows_the_samples_and_has_a_floor() {
        let mut rtt = Rtt::default();
        assert_eq!(rtt.timeout(), RTO_INITIAL);
        rtt.sample(Instant(0), 20 * MS);
        assert_eq!(rtt.timeout(), 60 * MS);
        for _ in 0..200 {
            rtt.sample(Instant(0), MS / 10);
        }
        assert_eq!(rtt.timeout(), RTO_MIN);
    }

    #[test]
    fn queueing_shows_against_the_least_of_the_last_two_epochs() {
        let mut rtt = Rtt::default();
        let mut now = Instant(1);
        rtt.sample(now, MS / 10);
        for _ in 0..100 {
            rtt.sample(now, 8 * MS);
        }
        assert!(rtt.is_queueing());
        // The path has become longer: the minimum adapts.
        for _ in 0..2 {
            now = now.after(EPOCH + MS);
            rtt.sample(now, 8 * MS);
        }
        assert!(!rtt.is_queueing());
    }
}
