//! A token bucket: limits how often something happens.

use std::time::Duration;

use crate::Instant;

/// The rate of a [`TokenBucket`].
#[derive(Clone, Copy, Debug)]
pub struct TokenRate {
    /// Time until an empty bucket gets one token.
    pub interval: Duration,
    /// Tokens of a full bucket, at least 1.
    pub burst: u32,
}

/// A bucket of tokens, which is full at first. Stored is the time at which it is full again.
#[derive(Clone, Copy, Debug, Default)]
pub struct TokenBucket {
    full_at: Instant,
}

impl TokenBucket {
    /// Takes a token; false if the bucket is empty. Each call for one bucket has the same `rate`.
    pub fn take(&mut self, now: Instant, rate: TokenRate) -> bool {
        if self.full_at.since(now) > rate.interval * (rate.burst - 1) {
            return false;
        }
        self.full_at = self.full_at.max(now).after(rate.interval);
        true
    }

    /// Whether no token is missing.
    #[must_use]
    pub fn is_full(&self, now: Instant) -> bool {
        self.full_at <= now
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RATE: TokenRate = TokenRate {
        interval: Duration::from_millis(100),
        burst: 5,
    };

    #[test]
    fn a_bucket_has_a_burst_and_then_its_rate() {
        let mut bucket = TokenBucket::default();
        let taken =
            |bucket: &mut TokenBucket, now| (0..100).filter(|_| bucket.take(now, RATE)).count();
        let now = Instant(7_000_000_000);
        assert!(bucket.is_full(now));
        assert_eq!(taken(&mut bucket, now), 5);
        assert!(!bucket.is_full(now));
        assert_eq!(taken(&mut bucket, now.after(Duration::from_millis(99))), 0);
        assert_eq!(taken(&mut bucket, now.after(Duration::from_millis(300))), 3);
        let later = now.after(Duration::from_secs(9));
        assert!(bucket.is_full(later));
        assert_eq!(taken(&mut bucket, later), 5);
    }
}
