//! Points in time. Sans-IO parts read no clock: their callers pass the time in.

use std::time::Duration;

/// Nanoseconds of a monotonic clock, from any origin.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Instant(pub u64);

impl Instant {
    /// `later` after this.
    #[must_use]
    pub const fn after(self, later: Duration) -> Instant {
        Instant(self.0.saturating_add(later.as_nanos() as u64))
    }

    /// The time that has passed since `earlier`; none if that is later.
    pub const fn since(self, earlier: Instant) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

/// Milliseconds of a monotonic clock, from any origin.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Time(pub u64);

impl Time {
    /// `ms` milliseconds later.
    #[must_use]
    pub const fn after(self, ms: u64) -> Time {
        Time(self.0.saturating_add(ms))
    }

    /// Milliseconds since `earlier`; 0 if that is later.
    #[must_use]
    pub const fn since(self, earlier: Time) -> u64 {
        self.0.saturating_sub(earlier.0)
    }
}

impl From<Instant> for Time {
    /// The millisecond that a point in time is in.
    fn from(instant: Instant) -> Time {
        Time(instant.0 / 1_000_000)
    }
}
