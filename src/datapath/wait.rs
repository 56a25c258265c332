//! Waiting for the next event: polling first, then sleeping.
//!
//! A wake-up adds microseconds to a request at each hop, tens of microseconds on a halted virtual CPU. So a
//! thread that expects an event soon polls for a short time before it sleeps, and yields the CPU between two
//! polls (`sched_yield`). The polling time depends on the length of the last waits, as in the kernel's halt
//! polling (`drivers/cpuidle/governors/haltpoll.c`): after a wait longer than the limit the thread does not
//! poll, and an idle daemon sleeps.
//!
//! With completion moderation a thread may ignore the fabric for a short time and wait for everything else.
//! A second epoll instance, created on first use, serves such waits.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::epoll::{self, Event, EventData, EventFlags};
use rustix::time::Timespec;

/// The first polling window, after a short sleep.
const FIRST: Duration = Duration::from_micros(10);

/// The least value of [`Waiter::at_once`].
const AT_ONCE: Duration = Duration::from_micros(3);

const NO_TIME: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 0,
};

/// How a thread waits.
#[derive(Debug)]
pub struct Waiter {
    epoll: OwnedFd,
    /// How long to poll before sleeping; 0: sleep at once.
    window: Duration,
    /// The longest window.
    limit: Duration,
    /// A shorter wait means that an event was already pending. In an emulated machine, a system call alone takes longer
    /// than [`AT_ONCE`].
    at_once: Duration,
    /// The descriptors of `epoll` without those of the fabric.
    rest: Option<OwnedFd>,
    /// The end of a hold: the fabric is ignored until then.
    hold: Option<Instant>,
}

impl Waiter {
    /// Creates a waiter that polls `epoll` for at most `limit` before it sleeps.
    pub fn new(epoll: OwnedFd, limit: Duration) -> Waiter {
        Waiter {
            at_once: AT_ONCE.max(4 * shortest_look()),
            epoll,
            window: Duration::ZERO,
            limit,
            rest: None,
            hold: None,
        }
    }

    /// Adds a descriptor.
    ///
    /// # Errors
    /// Errors of `epoll_ctl`.
    pub fn add(&self, fd: impl AsFd, data: EventData, flags: EventFlags) -> io::Result<()> {
        epoll::add(&self.epoll, fd.as_fd(), data, flags)?;
        if let Some(rest) = &self.rest {
            epoll::add(rest, fd.as_fd(), data, flags)?;
        }
        Ok(())
    }

    /// Changes the events of a descriptor.
    ///
    /// # Errors
    /// Errors of `epoll_ctl`.
    pub fn modify(&self, fd: impl AsFd, data: EventData, flags: EventFlags) -> io::Result<()> {
        epoll::modify(&self.epoll, fd.as_fd(), data, flags)?;
        if let Some(rest) = &self.rest {
            epoll::modify(rest, fd.as_fd(), data, flags)?;
        }
        Ok(())
    }

    /// Removes a descriptor. The kernel has already removed a closed one.
    pub fn delete(&self, fd: impl AsFd) {
        for epoll in [Some(&self.epoll), self.rest.as_ref()]
            .into_iter()
            .flatten()
        {
            let _ = epoll::delete(epoll, fd.as_fd());
        }
    }

    /// Enables [`Waiter::hold`]. True if holds were disabled: then the caller adds each descriptor except the
    /// fabric's with [`Waiter::add_rest`].
    ///
    /// # Errors
    /// Errors of `epoll_create1`.
    pub fn prepare_holds(&mut self) -> io::Result<bool> {
        if self.rest.is_some() {
            return Ok(false);
        }
        self.rest = Some(epoll::create(epoll::CreateFlags::CLOEXEC)?);
        Ok(true)
    }

    /// Adds a descriptor of this waiter to the waits during a hold.
    ///
    /// # Errors
    /// Errors of `epoll_ctl`.
    pub fn add_rest(&self, fd: impl AsFd, data: EventData, flags: EventFlags) -> io::Result<()> {
        match &self.rest {
            Some(rest) => Ok(epoll::add(rest, fd.as_fd(), data, flags)?),
            None => Ok(()),
        }
    }

    /// Ignores the fabric for `time`. No effect if holds are disabled.
    pub fn hold(&mut self, time: Duration) {
        self.hold = self.rest.as_ref().map(|_| Instant::now() + time);
    }

    /// Whether the fabric is ignored now.
    pub fn is_held(&self) -> bool {
        self.hold.is_some()
    }

    /// Disables holds again.
    pub fn forget_rest(&mut self) {
        self.rest = None;
        self.hold = None;
    }

    /// Ends a hold.
    pub fn release(&mut self) {
        self.hold = None;
    }

    /// Sets the longest time to poll for the next event.
    pub fn set_longest(&mut self, limit: Duration) {
        self.limit = limit;
        self.window = self.window.min(limit);
    }

    /// Waits for events until `timeout`, and replaces `events` by them. True if events were already pending:
    /// then the thread should handle several packets in a round.
    ///
    /// # Errors
    /// Errors of `epoll_wait` except EINTR, which leaves `events` empty.
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
                return Ok(!events.is_empty() && start.elapsed() < self.at_once);
            }
            // The hold is over: the fabric's events count as pending.
            self.look(events, Some(&NO_TIME))?;
            return Ok(!events.is_empty());
        }
        while !self.window.is_zero() {
            self.look(events, Some(&NO_TIME))?;
            let waited = start.elapsed();
            if !events.is_empty() {
                return Ok(waited < self.at_once);
            }
            if waited >= self.window {
                break;
            }
            std::thread::yield_now();
        }
        self.look(events, timeout)?;
        let waited = start.elapsed();
        self.learn(waited);
        // A timer that was already due is not a pending event.
        Ok(!events.is_empty() && waited < self.at_once)
    }

    /// Waits for everything except the fabric, for at most `most`.
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

    /// Sets the window after a sleep: longer if longer polling would have found the event, 0 if the wait
    /// exceeded the limit.
    fn learn(&mut self, waited: Duration) {
        self.window = if waited > self.limit {
            Duration::ZERO
        } else {
            (self.window * 2).max(FIRST).min(self.limit)
        };
    }
}

/// The shortest of several looks at an epoll instance without events. The instance is a new one: a look at the thread's
/// own would take its edge-triggered events.
fn shortest_look() -> Duration {
    let Ok(empty) = epoll::create(epoll::CreateFlags::CLOEXEC) else {
        return Duration::ZERO;
    };
    let mut events = Vec::with_capacity(1);
    let looks = (0..8).map(|_| {
        let start = Instant::now();
        // A failure shows in the first wait.
        let _ = look_at(&empty, &mut events, Some(&NO_TIME));
        start.elapsed()
    });
    looks.min().unwrap_or_default()
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
    fn a_long_sleep_ends_the_polling() {
        let mut w = waiter(50);
        w.learn(Duration::from_micros(20));
        w.learn(Duration::from_micros(51));
        assert_eq!(w.window, Duration::ZERO);
    }

    #[test]
    fn with_limit_0_the_waiter_never_polls() {
        let mut w = waiter(0);
        w.learn(Duration::from_micros(1));
        assert_eq!(w.window, Duration::ZERO);
        w.learn(Duration::ZERO);
        assert_eq!(w.window, Duration::ZERO);
    }

    const FABRIC: u64 = 1;
    const TAP: u64 = 2;

    /// A waiter in a hold, with a readable fabric and a TAP.
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
    fn a_hold_hides_only_the_fabric() {
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
        assert!(events.is_empty(), "timers continue");
        w.release();
        w.wait(&mut events, None).unwrap();
        assert_eq!(words(&events), [FABRIC]);
    }

    #[test]
    fn the_fabric_is_polled_at_the_end_of_the_hold() {
        let (mut w, _fabric, _tap) = held(Duration::from_millis(2));
        let mut events = Vec::with_capacity(4);
        assert!(w.wait(&mut events, None).unwrap());
        assert_eq!(words(&events), [FABRIC]);
    }

    #[test]
    fn changes_of_descriptors_apply_during_a_hold() {
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

    /// Whatever a system call costs on this machine.
    #[test]
    fn a_pending_event_is_noticed() {
        let (w, _fabric, _tap) = held(Duration::ZERO);
        let mut w = Waiter::new(w.epoll, Duration::ZERO);
        let mut events = Vec::with_capacity(4);
        // Another process may interrupt some waits.
        assert!((0..1000).any(|_| w.wait(&mut events, None).unwrap()));
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
