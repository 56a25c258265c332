//! Waiting for the next event: first awake, then asleep.
//!
//! To wake a sleeping thread costs a request microseconds, on a halted virtual CPU tens of them, at
//! each of the hops it makes. So where the next event is likely to be near, a thread looks for it a
//! little while before it sleeps, and lets others run between two looks (`sched_yield`). How long
//! follows what the last waits took, as the kernel's halt polling does
//! (`drivers/cpuidle/governors/haltpoll.c`): traffic that pauses for longer than the limit is not
//! looked for at all, and an idle daemon sleeps.

use std::io;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use rustix::event::epoll::{self, Event};
use rustix::time::Timespec;

/// The first window, after a sleep that was short.
const FIRST: Duration = Duration::from_micros(10);

/// A wait that ended sooner than this found something that was there already.
const AT_ONCE: Duration = Duration::from_micros(3);

const NO_TIME: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 0,
};

/// How a thread waits.
#[derive(Debug)]
pub struct Waiter {
    epoll: OwnedFd,
    /// How long to look before sleeping; 0 means to sleep at once.
    window: Duration,
    /// The longest window.
    limit: Duration,
}

impl Waiter {
    /// Waits on `epoll`, looking for at most `limit` before it sleeps.
    pub fn new(epoll: OwnedFd, limit: Duration) -> Waiter {
        Waiter {
            epoll,
            window: Duration::ZERO,
            limit,
        }
    }

    /// Changes the longest time to look for the next event.
    pub fn set_longest(&mut self, limit: Duration) {
        self.limit = limit;
        self.window = self.window.min(limit);
    }

    /// The epoll instance.
    pub fn epoll(&self) -> &OwnedFd {
        &self.epoll
    }

    /// Waits for events and puts them into `events`, until `timeout`. True if something was there
    /// at once: more than this thread can keep up with piece by piece.
    ///
    /// # Errors
    /// What `epoll_wait` says, but for EINTR, which leaves `events` empty.
    pub fn wait(
        &mut self,
        events: &mut Vec<Event>,
        timeout: Option<&Timespec>,
    ) -> io::Result<bool> {
        let start = Instant::now();
        events.clear();
        while !self.window.is_zero() {
            self.look(events, Some(&NO_TIME))?;
            let waited = start.elapsed();
            if !events.is_empty() {
                return Ok(waited < AT_ONCE);
            }
            if waited >= self.window {
                break;
            }
            std::thread::yield_now();
        }
        self.look(events, timeout)?;
        let waited = start.elapsed();
        self.learn(waited);
        // A timeout that was due is nothing to keep up with.
        Ok(!events.is_empty() && waited < AT_ONCE)
    }

    fn look(&self, events: &mut Vec<Event>, timeout: Option<&Timespec>) -> io::Result<()> {
        match epoll::wait(&self.epoll, rustix::buffer::spare_capacity(events), timeout) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(e) => Err(e.into()),
        }
    }

    /// Sets the window after a sleep: longer if a longer look would have found the event, none if
    /// the event was far.
    fn learn(&mut self, waited: Duration) {
        self.window = if waited > self.limit {
            Duration::ZERO
        } else {
            (self.window * 2).max(FIRST).min(self.limit)
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn waiter(limit: u64) -> Waiter {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).unwrap();
        Waiter::new(epoll, Duration::from_micros(limit))
    }

    #[test]
    fn the_window_grows_to_the_limit_while_sleeps_are_short() {
        let mut w = waiter(50);
        let windows: Vec<u128> = (0..5)
            .map(|_| {
                w.learn(Duration::from_micros(20));
                w.window.as_micros()
            })
            .collect();
        assert_eq!(windows, [10, 20, 40, 50, 50]);
    }

    #[test]
    fn a_long_sleep_ends_the_looking() {
        let mut w = waiter(50);
        w.learn(Duration::from_micros(20));
        w.learn(Duration::from_micros(51));
        assert_eq!(w.window, Duration::ZERO);
    }

    #[test]
    fn without_a_limit_it_never_looks() {
        let mut w = waiter(0);
        w.learn(Duration::from_micros(1));
        assert_eq!(w.window, Duration::ZERO);
        w.learn(Duration::ZERO);
        assert_eq!(w.window, Duration::ZERO);
    }

    #[test]
    fn an_empty_wait_ends_at_the_timeout() {
        let mut w = waiter(50);
        let mut events = Vec::with_capacity(4);
        let timeout = Timespec {
            tv_sec: 0,
            tv_nsec: 2_000_000,
        };
        assert!(!w.wait(&mut events, Some(&timeout)).unwrap());
        assert!(events.is_empty());
    }
}
