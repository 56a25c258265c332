//! Numbers that nobody can foresee who does not know the seed: queue pair numbers and first PSNs,
//! which are all that keeps a stranger's packets out of a connection.

use std::hash::{DefaultHasher, Hasher};

/// A keyed hash of a counter.
#[derive(Clone, Debug)]
pub struct Random {
    seed: [u64; 2],
    count: u64,
}

impl Random {
    /// The same seed gives the same numbers.
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
}
