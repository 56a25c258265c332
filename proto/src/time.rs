//! Points in time. Sans-IO code reads no clock: its callers pass the time.

use std::time::Duration;

/// Nanoseconds of a monotonic clock with any origin.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Instant(pub u64);

impl Instant {
    /// The point in time `later` after this one.
    #[must_use]
    pub const fn after(self, later: Duration) -> Instant {
        let whole = later.as_secs().saturating_mul(1_000_000_000);
        let later = whole.saturating_add(later.subsec_nanos() as u64);
        Instant(self.0.saturating_add(later))
    }

    /// The time since `earlier`; 0 if `earlier` is later.
    pub const fn since(self, earlier: Instant) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

/// Milliseconds of a monotonic clock with any origin.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Time(pub u64);

impl Time {
    /// The point in time `ms` milliseconds after this one.
    #[must_use]
    pub const fn after(self, ms: u64) -> Time {
        Time(self.0.saturating_add(ms))
    }

    /// Milliseconds since `earlier`; 0 if `earlier` is later.
    #[must_use]
    pub const fn since(self, earlier: Time) -> u64 {
        self.0.saturating_sub(earlier.0)
    }
}

impl From<Time> for Instant {
    fn from(time: Time) -> Instant {
        Instant(time.0.saturating_mul(1_000_000))
    }
}

impl From<Instant> for Time {
    /// Rounds down to a millisecond.
    fn from(instant: Instant) -> Time {
        Time(instant.0 / 1_000_000)
    }
}
