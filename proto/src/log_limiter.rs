//! Limits the rate of log lines that others can trigger.

use crate::Time;

/// Limits one kind of log line: one in each interval.
#[derive(Debug)]
pub struct LogLimiter {
    apart_ms: u64,
    next: Time,
    skipped: u64,
}

impl LogLimiter {
    /// Creates a limiter for one line in `apart_ms` milliseconds.
    pub const fn new(apart_ms: u64) -> LogLimiter {
        LogLimiter {
            apart_ms,
            next: Time(0),
            skipped: 0,
        }
    }

    /// Counts an occurrence. Returns `None` if it must not be logged, else the number of suppressed ones
    /// since the last line.
    pub fn take(&mut self, now: Time) -> Option<u64> {
        if now < self.next {
            self.skipped += 1;
            return None;
        }
        self.next = now.after(self.apart_ms);
        Some(std::mem::take(&mut self.skipped))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_a_second_is_logged_and_how_many_were_not() {
        let mut limiter = LogLimiter::new(1000);
        assert_eq!(limiter.take(Time(5000)), Some(0));
        assert!((5001..6000).all(|now| limiter.take(Time(now)).is_none()));
        assert_eq!(limiter.take(Time(6000)), Some(999));
        assert_eq!(limiter.take(Time(6999)), None);
        assert_eq!(limiter.take(Time(60_000)), Some(1));
        assert_eq!(limiter.take(Time(61_000)), Some(0));
    }
}
