//! Limits ARP and neighbour discovery of each source.
//!
//! A port with invented queue pairs could push all others out of the neighbour table, and requests for the host
//! fill its TAP. A source therefore has a token bucket. Nothing is stored for a source, so that sources cannot fill
//! a table: a keyed hash selects one bucket in each of two rows, and a source is refused if both are empty. A flood
//! hits another source only if both buckets are the same, one in 4,096.

use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

use proto::{Gid, Instant, Qpn, Time, TokenBucket, TokenRate};

/// 1,024 datagrams a second, so that the neighbour table is not filled before live neighbours are heard again. A
/// full bucket is enough to announce all hosts that can be behind an interface.
const RATE: TokenRate = TokenRate {
    interval: Duration::from_nanos(1_000_000_000 / 1024),
    burst: 8192,
};

/// The bits of a hash that select a bucket in a row.
const BUCKETS_SHIFT: u32 = 6;

/// The buckets of a replica.
pub struct SourceLimits {
    hasher: RandomState,
    rows: [[TokenBucket; 1 << BUCKETS_SHIFT]; 2],
}

impl Default for SourceLimits {
    fn default() -> SourceLimits {
        SourceLimits {
            hasher: RandomState::new(),
            rows: [[TokenBucket::default(); 1 << BUCKETS_SHIFT]; 2],
        }
    }
}

impl SourceLimits {
    /// Whether the source may send a datagram now. A source without a known GID is its queue pair.
    pub fn take(&mut self, now: Time, gid: Gid, qpn: Qpn) -> bool {
        let hash = match gid {
            Gid::UNSPECIFIED => self.hasher.hash_one(qpn),
            gid => self.hasher.hash_one(gid),
        };
        let now = Instant::from(now);
        let mut may = false;
        for (row, shift) in self.rows.iter_mut().zip([0, BUCKETS_SHIFT]) {
            let at = (hash >> shift) as usize % row.len();
            may |= row[at].take(now, RATE);
        }
        may
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const START: Time = Time(7_000_000);

    fn gid(n: u32) -> Gid {
        std::net::Ipv4Addr::from(n).into()
    }

    fn taken(limits: &mut SourceLimits, now: Time, gid: Gid, times: usize) -> usize {
        (0..times)
            .filter(|_| limits.take(now, gid, Qpn::new(5)))
            .count()
    }

    #[test]
    fn sources_without_a_gid_are_their_queue_pairs() {
        let mut limits = SourceLimits::default();
        let none = Gid::UNSPECIFIED;
        assert_eq!(taken(&mut limits, START, none, 20_000), RATE.burst as usize);
        let others = (100..200).filter(|n| limits.take(START, none, Qpn::new(*n)));
        assert!(others.count() > 90);
    }

    /// The chance that more than two of 100 sources share both buckets with one is below 1 in 100,000.
    #[test]
    fn a_flood_does_not_limit_other_sources() {
        let mut limits = SourceLimits::default();
        taken(&mut limits, START, gid(1), 20_000);
        let others = (100..200).filter(|n| limits.take(START, gid(*n), Qpn::new(5)));
        assert!(others.count() >= 98);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(32))]

        /// No pattern of times passes more than the burst and the rate.
        #[test]
        fn a_source_has_a_burst_and_then_its_rate(
            steps in prop::collection::vec((0..3000_u64, 0..6000_usize), 1..8),
        ) {
            let mut limits = SourceLimits::default();
            let (mut now, mut passed) = (START, 0);
            for (later, times) in steps {
                now = now.after(later);
                passed += taken(&mut limits, now, gid(9), times);
                let most = RATE.burst as u64 + now.since(START) * 1024 / 1000 + 1;
                prop_assert!(passed as u64 <= most, "{} of {}", passed, most);
            }
            let rested = now.after(9000);
            prop_assert_eq!(taken(&mut limits, rested, gid(9), 20_000), RATE.burst as usize);
        }
    }
}
