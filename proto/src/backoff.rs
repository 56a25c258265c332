//! Waits between attempts.

use std::time::Duration;

use crate::Instant;

/// The wait after a failure: `first`, doubled for each of the `failures` earlier ones, at most `longest`.
pub const fn doubled(first: u64, failures: u32, longest: u64) -> u64 {
    let factor = if failures < 63 {
        1 << failures
    } else {
        1 << 63
    };
    let wait = first.saturating_mul(factor);
    if wait < longest { wait } else { longest }
}

/// Waits that double from the first to the longest.
#[derive(Clone, Copy, Debug)]
pub struct Backoff {
    first: Duration,
    longest: Duration,
    next: Duration,
    /// Time of the next attempt.
    until: Instant,
}

impl Backoff {
    /// Creates the state before any failure: the first attempt needs no wait.
    pub const fn new(first: Duration, longest: Duration) -> Backoff {
        Backoff {
            first,
            longest,
            next: first,
            until: Instant(0),
        }
    }

    /// Whether a new attempt is due.
    pub fn may_try(&self, now: Instant) -> bool {
        now >= self.until
    }

    /// When a new attempt is due.
    pub const fn due(&self) -> Instant {
        self.until
    }

    /// Notes a failed attempt.
    pub fn failed(&mut self, now: Instant) {
        self.until = now.after(self.next);
        self.next = (self.next * 2).min(self.longest);
    }

    /// Notes a successful attempt: the next wait is the first one again.
    pub fn succeeded(&mut self) {
        *self = Backoff::new(self.first, self.longest);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_doubles_and_never_overflows() {
        let waits = [0, 1, 5, 6, 62, 64, u32::MAX].map(|n| doubled(100, n, 5000));
        assert_eq!(waits, [100, 200, 3200, 5000, 5000, 5000, 5000]);
    }

    #[test]
    fn waits_double_up_to_the_longest_and_begin_anew_after_success() {
        let mut b = Backoff::new(Duration::from_secs(1), Duration::from_secs(30));
        assert!(b.may_try(Instant(0)));
        let mut now = 0;
        for seconds in [1, 2, 4, 8, 16, 30, 30] {
            b.failed(Instant(now));
            let end = now + seconds * 1_000_000_000;
            assert!(!b.may_try(Instant(end - 1)) && b.may_try(Instant(end)));
            now = end;
        }
        b.succeeded();
        b.failed(Instant(now));
        assert!(b.may_try(Instant(now + 1_000_000_000)));
    }
}
