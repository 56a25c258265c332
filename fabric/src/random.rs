//! Random numbers from a seed: queue pair numbers, first PSNs, transaction ids, jitter. The numbers are
//! unpredictable without the seed: only such numbers protect a connection or a transaction against
//! packets of strangers.

use std::hash::{DefaultHasher, Hasher};

/// A keyed hash of a counter.
#[derive(Clone, Debug)]
pub struct Random {
    seed: [u64; 2],
    count: u64,
}

impl Random {
    /// Creates a generator; the same seed gives the same numbers.
    pub const fn new(seed: [u64; 2]) -> Random {
        Random { seed, count: 0 }
    }

    /// The next number.
    pub fn next(&mut self) -> u64 {
        self.count += 1;
        let mut hasher = DefaultHasher::new();
        for word in [self.seed[0], self.count, self.seed[1]] {
            hasher.write_u64(word);
        }
        hasher.finish()
    }

    /// A number below `bound`; 0 if `bound` is 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(bound)) >> 64) as u64
    }
}
