//! What the kernel gives: the time and random numbers.

use proto::Instant;
use rustix::io::Errno;
use rustix::rand::{GetRandomFlags, getrandom};
use rustix::time::{ClockId, clock_gettime};

/// Nanoseconds of CLOCK_MONOTONIC.
pub fn clock() -> Instant {
    let t = clock_gettime(ClockId::Monotonic);
    Instant(t.tv_sec.cast_unsigned() * 1_000_000_000 + t.tv_nsec.cast_unsigned())
}

/// 64 bits that nobody can foresee, from the kernel's random number generator.
///
/// # Panics
/// If the kernel has no such generator, or a filter of system calls forbids it: without unforeseeable
/// numbers strangers' packets get into connections.
pub fn random() -> u64 {
    let mut bytes = [0; 8];
    loop {
        match getrandom(&mut bytes, GetRandomFlags::empty()) {
            // So few bytes come whole.
            Ok(_) => return u64::from_ne_bytes(bytes),
            Err(Errno::INTR) => {}
            Err(e) => panic!("the kernel gives no random numbers: {e}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_differ_and_time_does_not_go_back() {
        let (before, numbers) = (clock(), [random(), random(), random()]);
        assert!(numbers[0] != numbers[1] && numbers[1] != numbers[2]);
        assert!(clock() >= before);
    }
}
