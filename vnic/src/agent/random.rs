//! Pseudo-random numbers that differ between nodes; not for secrets.

/// SplitMix64 (Steele, Lea and Flood, 2014).
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// Creates a generator. Equal seeds give equal numbers on every machine.
    pub const fn new(seed: u64) -> Random {
        Random(seed)
    }

    /// Returns a number below `bound`; 0 if `bound` is 0.
    pub const fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        let z = z ^ z >> 31;
        ((z as u128 * bound as u128) >> 64) as u64
    }
}
