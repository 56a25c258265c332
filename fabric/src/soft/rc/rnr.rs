//! The delays of RNR NAKs by timer code (IBA vol. 1, 9.7.5.2.8, table 45; include/rdma/ib_verbs.h,
//! `enum ib_rnr_timeout`).

use std::time::Duration;

/// Units of 10 µs by code. Code 0 is the longest.
const UNITS: [u32; 32] = [
    65536, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536,
    2048, 3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768, 49152,
];

/// The minimum delay after an RNR NAK with the 5-bit timer `code`: at most 655.36 ms, which limits how
/// long one NAK can delay us.
pub fn delay(code: u8) -> Duration {
    Duration::from_micros(u64::from(UNITS[usize::from(code & 0x1f)]) * 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_0_is_the_longest_and_the_others_grow() {
        assert_eq!(delay(0), Duration::from_micros(655_360));
        assert_eq!(delay(1), Duration::from_micros(10));
        assert_eq!(delay(12), Duration::from_micros(640));
        assert_eq!(delay(25), Duration::from_micros(61_440));
        assert_eq!(delay(31), Duration::from_micros(491_520));
        assert!((1..31).all(|code| delay(code) < delay(code + 1)));
        assert!((1..32).all(|code| delay(code) < delay(0)));
    }
}
