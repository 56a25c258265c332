//! The clock, timers, the random number generator and eventfds of the kernel.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use proto::Instant;
use rustix::io::Errno;
use rustix::rand::{GetRandomFlags, getrandom};
use rustix::time::{
    ClockId, Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, clock_gettime,
    timerfd_create, timerfd_settime,
};

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

/// A timer of CLOCK_MONOTONIC, readable when it has expired.
#[derive(Debug)]
pub struct Timer(OwnedFd);

impl Timer {
    /// A timer that does not run.
    ///
    /// # Errors
    /// Errors of timerfd_create(2).
    pub fn new() -> Result<Timer, Errno> {
        let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
        timerfd_create(TimerfdClockId::Monotonic, flags).map(Timer)
    }

    /// Expires after the time `first`, and then after each `interval`; 0: not at all, and not again.
    ///
    /// # Errors
    /// Errors of timerfd_settime(2), and a time that does not fit.
    pub fn set(&self, first: Duration, interval: Duration) -> io::Result<()> {
        let time = |t| Timespec::try_from(t).map_err(io::Error::other);
        let at = Itimerspec {
            it_interval: time(interval)?,
            it_value: time(first)?,
        };
        timerfd_settime(&self.0, TimerfdTimerFlags::empty(), &at)?;
        Ok(())
    }

    /// Whether the timer has expired since the last call.
    pub fn has_expired(&self) -> bool {
        rustix::io::read(&self.0, &mut [0; 8]).is_ok()
    }
}

impl AsFd for Timer {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Wakes the reader of an eventfd.
pub fn wake(eventfd: &OwnedFd) {
    if let Err(e) = rustix::io::write(eventfd, &1u64.to_ne_bytes()) {
        log::error!("cannot write to an eventfd: {e}");
    }
}

#[cfg(test)]
mod tests {
    use rustix::event::{PollFd, PollFlags, poll};

    use super::*;

    #[test]
    fn numbers_differ_and_time_does_not_go_back() {
        let (before, numbers) = (clock(), [random(), random(), random()]);
        assert!(numbers[0] != numbers[1] && numbers[1] != numbers[2]);
        assert!(clock() >= before);
    }

    #[test]
    fn a_timer_expires_once_or_again_and_again() {
        let timer = Timer::new().unwrap();
        let expires = || {
            let mut fds = [PollFd::new(&timer, PollFlags::IN)];
            poll(&mut fds, None).unwrap();
            timer.has_expired()
        };
        assert!(!timer.has_expired());
        let (soon, never) = (Duration::from_millis(1), Duration::ZERO);
        timer.set(soon, never).unwrap();
        assert!(expires());
        assert!(!timer.has_expired());
        timer.set(soon, soon).unwrap();
        assert!(expires() && expires());
        timer.set(never, never).unwrap();
        assert!(!timer.has_expired());
    }
}
