//! The loops, compiled twice from the same safe code: for any processor, and for AVX2, which is about 1.5
//! times as fast.
#![allow(unsafe_code)]

/// Bytes for each turn of the loop. Sixteen sums are four AVX2 registers of 64-bit lanes: enough to hide
/// the latency of additions.
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
#[target_feature(enable = "avx2")]
fn sum_avx2(data: &[u8]) -> u64 {
    sum_turns(data)
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn copy_avx2(to: &mut [u8], from: &[u8]) -> u64 {
    copy_turns(to, from)
}

/// The sum of `data`, 64 bits in the machine's byte order.
#[inline]
pub(super) fn sum(data: &[u8]) -> u64 {
    #[cfg(target_arch = "x86_64")]
    if std::arch::is_x86_feature_detected!("avx2") {
        // SAFETY: a function with a target feature may only be called on a processor with the feature; the
        // line above has checked it. The function itself is safe code.
        return unsafe { sum_avx2(data) };
    }
    sum_turns(data)
}

/// Copies and returns the sum of the data. The lengths are equal.
#[inline]
pub(super) fn copy(to: &mut [u8], from: &[u8]) -> u64 {
    #[cfg(target_arch = "x86_64")]
    if std::arch::is_x86_feature_detected!("avx2") {
        // SAFETY: as in `sum`: the processor has AVX2; the call needs nothing else.
        return unsafe { copy_avx2(to, from) };
    }
    copy_turns(to, from)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Both compilations give the same results, at all lengths around a turn.
    #[test]
    fn the_plain_loop_and_the_detected_one_agree() {
        let data: Vec<u8> = (0..4 * TURN + 7).map(|i| (i * 37 + 11) as u8).collect();
        for len in 0..data.len() {
            let (mut a, mut b) = (vec![0; len], vec![0; len]);
            let plain = sum_turns(&data[..len]);
            assert_eq!(plain, sum(&data[..len]), "{len} bytes");
            assert_eq!(plain, copy_turns(&mut a, &data[..len]), "{len} bytes");
            assert_eq!(plain, copy(&mut b, &data[..len]), "{len} bytes");
            assert!(a == data[..len] && b == data[..len], "{len} bytes");
        }
    }
}
