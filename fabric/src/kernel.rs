//! The clock and the random number generator of the kernel.

use proto::Instant;
use rustix::io::Errno;
use rustix::rand::{GetRandomFlags, getrandom};
use rustix::time::{ClockId, clock_gettime};

/// Time of CLOCK_MONOTONIC, in nanoseconds.
pub fn clock() -> Instant {
    let t = clock_gettime(ClockId::Monotonic);
    Instant(t.tv_sec.cast_unsigned() * 1_000_000_000 + t.tv_nsec.cast_unsigned())
}

/// Returns 64 unpredictable bits from the kernel's random number generator.
///
/// # Panics
/// If the kernel lacks the generator or a system call filter forbids it. With predictable numbers an
/// attacker could insert packets into connections.
pub fn random() -> u64 {
    let mut bytes = [0; 8];
    loop {
        match getrandom(&mut bytes, GetRandomFlags::empty()) {
            // getrandom(2) returns up to 256 bytes whole.
            Ok(_) => return u64::from_ne_bytes(bytes),
            Err(Errno::INTR) => {}
            Err(e) => panic!("getrandom failed: {e}"),
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
