//! Limits the answers and new connections for each source with a token bucket.

use std::collections::BTreeMap;
use std::time::Duration;

use proto::{Gid, Instant, TokenBucket, TokenRate};

/// 256 tokens a second. A full bucket is enough for a peer that connects in all its partitions at once.
const RATE: TokenRate = TokenRate {
    interval: Duration::from_nanos(1_000_000_000 / 256),
    burst: 256,
};

/// Maximum number of half-open connections that peers requested from a worker. One source may have
/// a quarter of them: its whole burst, so that a peer that connects in all its partitions at once
/// does not evict its own requests before it confirms them. A half-open connection has no receive
/// buffers of its own, because all connections of a worker share them.
pub const HALF_OPEN_MAX: usize = 4 * RATE.burst as usize;

/// Maximum number of sources with their own bucket; the others share one.
const SOURCES: usize = 1024;

/// Interval of the search for full buckets.
const SWEEP: Duration = Duration::from_millis(100);

/// The buckets.
#[derive(Debug, Default)]
pub struct Limits {
    sources: BTreeMap<Gid, TokenBucket>,
    others: TokenBucket,
    swept: Instant,
}

impl Limits {
    /// Takes a token of `source`; false if its bucket is empty.
    pub fn take(&mut self, now: Instant, source: Gid) -> bool {
        if self.sources.len() >= SOURCES && now.since(self.swept) >= SWEEP {
            self.swept = now;
            self.sources.retain(|_, bucket| !bucket.is_full(now));
        }
        let bucket = if self.sources.len() < SOURCES || self.sources.contains_key(&source) {
            self.sources.entry(source).or_default()
        } else {
            &mut self.others
        };
        bucket.take(now, RATE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gid(n: u32) -> Gid {
        std::net::Ipv4Addr::from(n).into()
    }

    #[test]
    fn a_source_has_a_burst_and_then_its_rate() {
        let mut limits = Limits::default();
        let now = Instant(7_000_000_000);
        let burst = (0..1000).filter(|_| limits.take(now, gid(1))).count();
        assert_eq!(burst, RATE.burst as usize);
        let later = now.after(Duration::from_millis(500));
        let more = (0..1000).filter(|_| limits.take(later, gid(1))).count();
        assert_eq!(more, 128);
        assert!(limits.take(now, gid(2)));
    }

    #[test]
    fn many_sources_share_what_is_left_and_are_forgotten() {
        let mut limits = Limits::default();
        let now = Instant(7_000_000_000);
        assert!(limits.take(now, gid(0xffff_ffff)));
        let taken = (0..10_000).filter(|n| limits.take(now, gid(*n))).count();
        assert_eq!(limits.sources.len(), SOURCES);
        assert_eq!(taken, SOURCES - 1 + RATE.burst as usize);
        // Sources from before the flood keep their own bucket.
        assert!(limits.take(now, gid(0xffff_ffff)));
        let later = now.after(Duration::from_secs(1));
        assert!(limits.take(later, gid(20_000)));
        assert_eq!(limits.sources.len(), 1);
    }
}
