//! Waiting for the next event: first awake, then asleep.
//!
//! To wake a sleeping thread costs a request microseconds, on a halted virtual CPU tens of them, at
//! each of the hops it makes. So where the next event is likely to be near, a thread looks for it a
//! little while before it sleeps, and lets others run between two looks (`sched_yield`). How long
//! follows what the last waits took, as the kernel's halt polling does
//! (`drivers/cpuidle/governors/haltpoll.c`): traffic that pauses for longer than the limit is not
//! looked for at all, and an idle daemon sleeps.
//!
//! With completion moderation a thread may leave the fabric alone for a while, and waits for all the
//! rest meanwhile: on a second epoll instance, which is made when that is first asked for.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::epoll::{self, Event, EventData, EventFlags};
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
    /// All that `epoll` has but the fabric.
    rest: Option<OwnedFd>,
    /// The fabric is not looked at before.
    hold: Option<Instant>,
}

impl Waiter {
    /// Waits on `epoll`, looking for at most `limit` before it sleeps.
    pub fn new(epoll: OwnedFd, limit: Duration) -> Waiter {
        Waiter {
            epoll,
            window: Duration::ZERO,
            limit,
            rest: None,
            hold: None,
        }
    }

    /// Waits for a descriptor, too.
    ///
    /// # Errors
    /// What `epoll_ctl` says.
    pub fn add(&self, fd: impl AsFd, data: EventData, flags: EventFlags) -> io::Result<()> {
        epoll::add(&self.epoll, fd.as_fd(), data, flags)?;
        if let Some(rest) = &self.rest {
            epoll::add(rest, fd.as_fd(), data, flags)?;
        }
        Ok(())
    }

    /// Changes what a descriptor is waited for.
    ///
    /// # Errors
    /// What `epoll_ctl` says.
    pub fn modify(&self, fd: impl AsFd, data: EventData, flags: EventFlags) -> io::Result<()> {
        epoll::modify(&self.epoll, fd.as_fd(), data, flags)?;
        if let Some(rest) = &self.rest {
            epoll::modify(rest, fd.as_fd(), data, flags)?;
        }
        Ok(())
    }

    /// Waits for a descriptor no more. One that is closed has left already.
    pub fn delete(&self, fd: impl AsFd) {
        for epoll in [Some(&self.epoll), self.rest.as_ref()]
            .into_iter()
            .flatten()
        {
            let _ = epoll::delete(epoll, fd.as_fd());
        }
    }

    /// Makes [`Waiter::hold`] possible. True the first time: then each descriptor but the fabric's is
    /// to be given by [`Waiter::add_rest`].
    ///
    /// # Errors
    /// What `epoll_create1` says.
    pub fn prepare_holds(&mut self) -> io::Result<bool> {
        if self.rest.is_some() {
            return Ok(false);
        }
        self.rest = Some(epoll::create(epoll::CreateFlags::CLOEXEC)?);
        Ok(true)
    }

    /// Waits for a descriptor that is waited for already also while the fabric is left alone.
    ///
    /// # Errors
    /// What `epoll_ctl` says.
    pub fn add_rest(&self, fd: impl AsFd, data: EventData, flags: EventFlags) -> io::Result<()> {
        match &self.rest {
            Some(rest) => Ok(epoll::add(rest, fd.as_fd(), data, flags)?),
            None => Ok(()),
        }
    }

    /// Leaves the fabric alone for a while, if that was prepared.
    pub fn hold(&mut self, time: Duration) {
        self.hold = self.rest.as_ref().map(|_| Instant::now() + time);
    }

    /// The fabric is left alone now.
    pub fn is_held(&self) -> bool {
        self.hold.is_some()
    }

    /// Undoes [`Waiter::prepare_holds`].
    pub fn forget_rest(&mut self) {
        self.rest = None;
        self.hold = None;
    }

    /// Looks at the fabric again.
    pub fn release(&mut self) {
        self.hold = None;
    }

    /// Changes the longest time to look for the next event.
    pub fn set_longest(&mut self, limit: Duration) {
        self.limit = limit;
        self.window = self.window.min(limit);
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
        if let Some(until) = self.hold {
            self.wait_for_rest(events, timeout, until.saturating_duration_since(start))?;
            if Instant::now() >= until {
                self.hold = None;
            }
            if self.hold.is_some() || !events.is_empty() {
                return Ok(!events.is_empty() && start.elapsed() < AT_ONCE);
            }
            // It waited for this.
            self.look(events, Some(&NO_TIME))?;
            return Ok(!events.is_empty());
        }
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

    /// Waits for all but the fabric, at most for `most`.
    fn wait_for_rest(
        &self,
        events: &mut Vec<Event>,
        timeout: Option<&Timespec>,
        most: Duration,
    ) -> io::Result<()> {
        let most = Timespec::try_from(most).unwrap_or(NO_TIME);
        let first = timeout.map_or(most, |timeout| most.min(*timeout));
        match &self.rest {
            Some(rest) => look_at(rest, events, Some(&first)),
            None => Ok(()),
        }
    }

    fn look(&self, events: &mut Vec<Event>, timeout: Option<&Timespec>) -> io::Result<()> {
        look_at(&self.epoll, events, timeout)
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

fn look_at(epoll: &OwnedFd, events: &mut Vec<Event>, timeout: Option<&Timespec>) -> io::Result<()> {
    match epoll::wait(epoll, rustix::buffer::spare_capacity(events), timeout) {
        Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
        Err(e) => Err(e.into()),
    }
}

#[cfg(test)]
mod tests {
    use rustix::event::{EventfdFlags, eventfd};

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

    const FABRIC: u64 = 1;
    const TAP: u64 = 2;

    /// A waiter with a fabric that is readable, and a TAP.
    fn held(time: Duration) -> (Waiter, OwnedFd, OwnedFd) {
        let mut w = waiter(50);
        let fabric = eventfd(1, EventfdFlags::NONBLOCK).unwrap();
        let tap = eventfd(0, EventfdFlags::NONBLOCK).unwrap();
        epoll::add(
            &w.epoll,
            &fabric,
            EventData::new_u64(FABRIC),
            EventFlags::IN,
        )
        .unwrap();
        w.add(&tap, EventData::new_u64(TAP), EventFlags::IN)
            .unwrap();
        assert!(w.prepare_holds().unwrap());
        assert!(!w.prepare_holds().unwrap());
        w.add_rest(&tap, EventData::new_u64(TAP), EventFlags::IN)
            .unwrap();
        w.hold(time);
        (w, fabric, tap)
    }

    fn words(events: &[Event]) -> Vec<u64> {
        events.iter().map(|e| e.data.u64()).collect()
    }

    const LONG: Duration = Duration::from_secs(3600);

    #[test]
    fn a_fabric_that_is_left_alone_hides_nothing_else() {
        let (mut w, _fabric, tap) = held(LONG);
        let mut events = Vec::with_capacity(4);
        rustix::io::write(&tap, &1u64.to_ne_bytes()).unwrap();
        w.wait(&mut events, None).unwrap();
        assert_eq!(words(&events), [TAP]);
        rustix::io::read(&tap, &mut [0; 8]).unwrap();
        let timeout = Timespec {
            tv_sec: 0,
            tv_nsec: 1_000_000,
        };
        w.wait(&mut events, Some(&timeout)).unwrap();
        assert!(events.is_empty(), "timers go on");
        w.release();
        w.wait(&mut events, None).unwrap();
        assert_eq!(words(&events), [FABRIC]);
    }

    #[test]
    fn the_fabric_is_looked_at_when_the_time_is_over() {
        let (mut w, _fabric, _tap) = held(Duration::from_millis(2));
        let mut events = Vec::with_capacity(4);
        assert!(w.wait(&mut events, None).unwrap());
        assert_eq!(words(&events), [FABRIC]);
    }

    #[test]
    fn what_comes_and_goes_is_in_both() {
        let (mut w, _fabric, tap) = held(LONG);
        let mut events = Vec::with_capacity(4);
        rustix::io::write(&tap, &1u64.to_ne_bytes()).unwrap();
        w.modify(&tap, EventData::new_u64(TAP), EventFlags::empty())
            .unwrap();
        w.wait(&mut events, Some(&NO_TIME)).unwrap();
        assert!(events.is_empty());
        w.delete(&tap);
        w.add(&tap, EventData::new_u64(TAP + 1), EventFlags::IN)
            .unwrap();
        w.wait(&mut events, None).unwrap();
        assert_eq!(words(&events), [TAP + 1]);
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
