//! Finding out where an IP address is: frames wait, we ask, and give up after a while.

use std::collections::VecDeque;
use std::net::IpAddr;

use crate::counters::DropReason;
use crate::{Limits, Time};

/// Between two questions, and how long a failure is remembered.
const RETRY_MS: u64 = 1000;
/// Questions for one address.
const TRIES: u8 = 3;
/// Memory that all held frames together may take.
const HELD_BYTES_MAX: usize = 4 << 20;

/// A frame that waited for its destination; to be given to [`crate::Ipoib::from_tap`] again.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HeldFrame {
    /// The virtio-net header that came with it.
    pub prefix: [u8; 12],
    /// The Ethernet frame.
    pub frame: Box<[u8]>,
}

enum State {
    Asking { tries: u8, due: Time },
    Failed { until: Time },
}

struct Entry {
    ip: IpAddr,
    source: IpAddr,
    state: State,
    held: VecDeque<HeldFrame>,
}

pub struct Resolver {
    entries: Vec<Entry>,
    released: VecDeque<HeldFrame>,
    max: usize,
    held_each: usize,
    held_bytes: usize,
}

impl Resolver {
    pub fn new(limits: &Limits) -> Resolver {
        Resolver {
            entries: Vec::with_capacity(limits.unresolved),
            released: VecDeque::new(),
            max: limits.unresolved.max(1),
            held_each: limits.held_per_neighbour.max(1),
            held_bytes: 0,
        }
    }

    /// Keeps a frame for `ip`, to be asked for in the name of `source`.
    pub fn hold(
        &mut self,
        now: Time,
        ip: IpAddr,
        source: IpAddr,
        prefix: &[u8; 12],
        frame: &[u8],
    ) -> Result<(), DropReason> {
        let at = match self.entries.iter().position(|e| e.ip == ip) {
            Some(at) => at,
            None => self.new_entry(now, ip, source)?,
        };
        let e = &mut self.entries[at];
        if let State::Failed { until } = e.state {
            if now < until {
                return Err(DropReason::Unreachable);
            }
            e.state = State::Asking { tries: 0, due: now };
        }
        if e.held.len() >= self.held_each || self.held_bytes + frame.len() > HELD_BYTES_MAX {
            return Err(DropReason::HoldFull);
        }
        self.held_bytes += frame.len();
        e.held.push_back(HeldFrame {
            prefix: *prefix,
            frame: frame.into(),
        });
        Ok(())
    }

    fn new_entry(&mut self, now: Time, ip: IpAddr, source: IpAddr) -> Result<usize, DropReason> {
        if self.entries.len() >= self.max {
            let failed = |e: &Entry| matches!(e.state, State::Failed { .. });
            let at = self
                .entries
                .iter()
                .position(failed)
                .ok_or(DropReason::HoldFull)?;
            self.entries.swap_remove(at);
        }
        self.entries.push(Entry {
            ip,
            source,
            state: State::Asking { tries: 0, due: now },
            held: VecDeque::new(),
        });
        Ok(self.entries.len() - 1)
    }

    /// `ip` is known now: its frames may go.
    pub fn resolved(&mut self, ip: IpAddr) {
        if let Some(at) = self.entries.iter().position(|e| e.ip == ip) {
            self.released.extend(self.entries.swap_remove(at).held);
        }
    }

    pub fn pop_released(&mut self) -> Option<HeldFrame> {
        let held = self.released.pop_front()?;
        self.held_bytes -= held.frame.len();
        Some(held)
    }

    /// Frames that wait for `ip`.
    #[cfg(test)]
    pub fn waiting(&self, ip: IpAddr) -> usize {
        self.entries
            .iter()
            .find(|e| e.ip == ip)
            .map_or(0, |e| e.held.len())
    }

    /// The next address to ask for, and in whose name.
    pub fn next_question(&mut self, now: Time) -> Option<(IpAddr, IpAddr)> {
        self.entries.iter_mut().find_map(|e| match &mut e.state {
            State::Asking { tries, due } if *due <= now && *tries < TRIES => {
                *tries += 1;
                *due = now.after(RETRY_MS);
                Some((e.ip, e.source))
            }
            _ => None,
        })
    }

    pub fn next_deadline(&self) -> Option<Time> {
        let deadline = |e: &Entry| match e.state {
            State::Asking { due, .. } => due,
            State::Failed { until } => until,
        };
        self.entries.iter().map(deadline).min()
    }

    /// Gives up on those that were asked for often enough. Returns how many, and the frames lost.
    pub fn handle_timeout(&mut self, now: Time) -> (u64, u64) {
        let (mut failed, mut lost) = (0, 0);
        for e in &mut self.entries {
            if let State::Asking { tries: TRIES, due } = e.state
                && due <= now
            {
                failed += 1;
                lost += e.held.len() as u64;
                self.held_bytes -= e.held.drain(..).map(|h| h.frame.len()).sum::<usize>();
                e.state = State::Failed {
                    until: now.after(RETRY_MS),
                };
            }
        }
        self.entries
            .retain(|e| !matches!(e.state, State::Failed { until } if until <= now));
        (failed, lost)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resolver() -> Resolver {
        Resolver::new(&Limits {
            unresolved: 2,
            ..Limits::default()
        })
    }

    fn ip(n: u8) -> IpAddr {
        IpAddr::from([10, 0, 0, n])
    }

    fn hold(r: &mut Resolver, now: u64, n: u8, mark: u8) -> Result<(), DropReason> {
        r.hold(Time(now), ip(n), ip(9), &[mark; 12], &[mark; 60])
    }

    #[test]
    fn c60_at_most_three_frames_wait_for_one_destination() {
        let mut r = resolver();
        for mark in 0..3 {
            assert_eq!(hold(&mut r, 0, 1, mark), Ok(()));
        }
        assert_eq!(hold(&mut r, 0, 1, 3), Err(DropReason::HoldFull));
        assert_eq!(r.waiting(ip(1)), 3);
    }

    #[test]
    fn c61_held_frames_leave_in_order() {
        let mut r = resolver();
        for mark in 0..3 {
            hold(&mut r, 0, 1, mark).unwrap();
        }
        assert_eq!(r.pop_released(), None);
        r.resolved(ip(1));
        let order: Vec<u8> = std::iter::from_fn(|| r.pop_released())
            .map(|h| h.prefix[0])
            .collect();
        assert_eq!(order, [0, 1, 2]);
        assert_eq!((r.held_bytes, r.entries.len()), (0, 0));
    }

    #[test]
    fn asks_three_times_then_is_silent_for_a_second() {
        let mut r = resolver();
        hold(&mut r, 0, 1, 0).unwrap();
        for second in 0..3 {
            let now = Time(second * 1000);
            assert_eq!(r.handle_timeout(now), (0, 0));
            assert_eq!(r.next_question(now), Some((ip(1), ip(9))));
            assert_eq!(r.next_question(now), None);
            assert_eq!(r.next_deadline(), Some(Time(second * 1000 + 1000)));
        }
        assert_eq!(r.next_question(Time(3000)), None);
        assert_eq!(r.handle_timeout(Time(3000)), (1, 1));
        assert_eq!(hold(&mut r, 3999, 1, 0), Err(DropReason::Unreachable));
        assert_eq!(hold(&mut r, 4000, 1, 0), Ok(()));
        assert_eq!(r.next_question(Time(4000)), Some((ip(1), ip(9))));
    }

    #[test]
    fn the_table_is_bounded_and_failures_make_room() {
        let mut r = resolver();
        hold(&mut r, 0, 1, 0).unwrap();
        hold(&mut r, 0, 2, 0).unwrap();
        assert_eq!(hold(&mut r, 0, 3, 0), Err(DropReason::HoldFull));
        for second in 0..3 {
            while r.next_question(Time(second * 1000)).is_some() {}
        }
        assert_eq!(r.handle_timeout(Time(3000)), (2, 2));
        assert_eq!(hold(&mut r, 3000, 3, 0), Ok(()));
        assert_eq!(r.handle_timeout(Time(4000)), (0, 0));
        assert_eq!(r.entries.len(), 1);
    }
}
