//! The loops: for any processor, and for AVX2. The latter copies and sums in one pass. The compiler turns the plain
//! loop into a `memcpy` and a second pass.
#![allow(unsafe_code)]

/// Bytes for each turn of the plain loop.
const TURN: usize = 64;
const LANES: usize = TURN / 4;

/// Adds 32-bit words to 64-bit lanes; 2^32 additions fit without a carry.
#[inline(always)]
fn add(lanes: &mut [u64; LANES], turn: &[u8; TURN]) {
    let (words, _) = turn.as_chunks::<4>();
    for (lane, word) in lanes.iter_mut().zip(words) {
        *lane += u64::from(u32::from_ne_bytes(*word));
    }
}

/// Adds the lanes, folded to 33 bits each, and the rest behind the last turn.
#[inline(always)]
fn finish(lanes: &[u64; LANES], rest: &[u8]) -> u64 {
    let halves = lanes.iter().map(|l| (l >> 32) + (l & 0xffff_ffff));
    halves.sum::<u64>() + sum_short(rest)
}

#[inline(always)]
fn sum_turns(data: &[u8]) -> u64 {
    let (turns, rest) = data.as_chunks::<TURN>();
    let mut lanes = [0; LANES];
    for turn in turns {
        add(&mut lanes, turn);
    }
    finish(&lanes, rest)
}

#[inline(always)]
fn copy_turns(to: &mut [u8], from: &[u8]) -> u64 {
    let (turns, rest) = from.as_chunks::<TURN>();
    let (to_turns, to_rest) = to.as_chunks_mut::<TURN>();
    let mut lanes = [0; LANES];
    for (to, turn) in to_turns.iter_mut().zip(turns) {
        *to = *turn;
        add(&mut lanes, turn);
    }
    to_rest.copy_from_slice(rest);
    finish(&lanes, rest)
}

/// The sum of a few bytes.
#[inline]
pub(super) fn sum_short(data: &[u8]) -> u64 {
    let (words, rest) = data.as_chunks::<4>();
    let mut sum: u64 = words
        .iter()
        .map(|w| u64::from(u32::from_ne_bytes(*w)))
        .sum();
    if !rest.is_empty() {
        let mut last = [0; 4];
        last[..rest.len()].copy_from_slice(rest);
        sum += u64::from(u32::from_ne_bytes(last));
    }
    sum
}

#[cfg(target_arch = "x86_64")]
mod avx2 {
    use std::arch::x86_64::{
        __m256i, _mm256_add_epi64, _mm256_loadu_si256, _mm256_setzero_si256, _mm256_srli_epi64,
        _mm256_storeu_si256,
    };

    use super::sum_short;

    const REGISTER: usize = size_of::<__m256i>();

    /// Registers for each turn of the loop: enough to hide the latency of additions.
    const REGISTERS: usize = 4;
    const TURN: usize = REGISTERS * REGISTER;

    #[target_feature(enable = "avx2")]
    #[inline]
    fn load(from: &[u8; REGISTER]) -> __m256i {
        // SAFETY: `from` has the bytes of a register; the load needs no alignment.
        unsafe { _mm256_loadu_si256(from.as_ptr().cast()) }
    }

    #[target_feature(enable = "avx2")]
    #[inline]
    fn store(to: &mut [u8; REGISTER], value: __m256i) {
        // SAFETY: `to` has the bytes of a register; the store needs no alignment.
        unsafe { _mm256_storeu_si256(to.as_mut_ptr().cast(), value) }
    }

    /// The 64-bit lanes of a register.
    #[target_feature(enable = "avx2")]
    fn lanes(register: __m256i) -> [u64; 4] {
        let mut bytes = [0; REGISTER];
        store(&mut bytes, register);
        let (words, _) = bytes.as_chunks::<8>();
        std::array::from_fn(|i| u64::from_ne_bytes(words[i]))
    }

    /// The sum of `from`; copies it to `to` on the way if `COPY`.
    #[target_feature(enable = "avx2")]
    #[inline]
    fn pass<const COPY: bool>(to: &mut [u8], from: &[u8]) -> u64 {
        let (turns, rest) = from.as_chunks::<TURN>();
        let (to_turns, to_rest) = to.as_chunks_mut::<TURN>();
        // Sums of 64-bit words modulo 2^64, and of their upper halves, which 2^32 additions fit. The difference is
        // the sum of the lower halves: one operation fewer than adding both halves.
        let mut words = [_mm256_setzero_si256(); REGISTERS];
        let mut upper = [_mm256_setzero_si256(); REGISTERS];
        let mut to_turns = to_turns.iter_mut();
        for turn in turns {
            let (parts, _) = turn.as_chunks::<REGISTER>();
            let values: [__m256i; REGISTERS] = std::array::from_fn(|i| load(&parts[i]));
            if COPY && let Some(to) = to_turns.next() {
                let (to, _) = to.as_chunks_mut::<REGISTER>();
                for (to, value) in to.iter_mut().zip(values) {
                    store(to, value);
                }
            }
            for i in 0..REGISTERS {
                words[i] = _mm256_add_epi64(words[i], values[i]);
                upper[i] = _mm256_add_epi64(upper[i], _mm256_srli_epi64::<32>(values[i]));
            }
        }
        if COPY {
            to_rest.copy_from_slice(rest);
        }
        let mut sum = sum_short(rest);
        for (words, upper) in words.into_iter().zip(upper) {
            for (words, upper) in lanes(words).into_iter().zip(lanes(upper)) {
                let lower = words.wrapping_sub(upper << 32);
                // Each is folded to 33 bits.
                let folded = [lower, upper].map(|half| (half >> 32) + (half & 0xffff_ffff));
                sum += folded[0] + folded[1];
            }
        }
        sum
    }

    #[target_feature(enable = "avx2")]
    pub fn sum(data: &[u8]) -> u64 {
        pass::<false>(&mut [], data)
    }

    #[target_feature(enable = "avx2")]
    pub fn copy(to: &mut [u8], from: &[u8]) -> u64 {
        pass::<true>(to, from)
    }
}

/// The sum of `data`, 64 bits in the machine's byte order.
#[inline]
pub(super) fn sum(data: &[u8]) -> u64 {
    #[cfg(target_arch = "x86_64")]
    if std::arch::is_x86_feature_detected!("avx2") {
        // SAFETY: a function with a target feature may only be called on a processor with the feature; the
        // line above has checked it. The function itself is safe code.
        return unsafe { avx2::sum(data) };
    }
    sum_turns(data)
}

/// Copies and returns the sum of the data. The lengths are equal.
#[inline]
pub(super) fn copy(to: &mut [u8], from: &[u8]) -> u64 {
    #[cfg(target_arch = "x86_64")]
    if std::arch::is_x86_feature_detected!("avx2") {
        // SAFETY: as in `sum`: the processor has AVX2; the call needs nothing else.
        return unsafe { avx2::copy(to, from) };
    }
    copy_turns(to, from)
}

#[cfg(test)]
mod tests {
    use super::super::Sum;
    use super::*;

    /// Both loops give the same results, at all lengths around a turn.
    #[test]
    fn the_plain_loop_and_the_detected_one_agree() {
        let mixed: Vec<u8> = (0..8 * TURN + 7).map(|i| (i * 37 + 11) as u8).collect();
        let checksum = |sum| Sum(sum).finish();
        for data in [mixed, vec![0xff; 8 * TURN + 7]] {
            for len in 0..data.len() {
                let (mut a, mut b) = (vec![0; len], vec![0; len]);
                let plain = checksum(sum_turns(&data[..len]));
                assert_eq!(plain, checksum(sum(&data[..len])), "{len} bytes");
                assert_eq!(
                    plain,
                    checksum(copy_turns(&mut a, &data[..len])),
                    "{len} bytes"
                );
                assert_eq!(plain, checksum(copy(&mut b, &data[..len])), "{len} bytes");
                assert!(a == data[..len] && b == data[..len], "{len} bytes");
            }
        }
    }
}
