//! Resolves IP addresses: frames wait during the queries, for a limited time. On the fabric for peers, on
//! the host side for guests.

use std::collections::VecDeque;
use std::net::IpAddr;

use proto::{Mac, Time};

use crate::Limits;
use crate::counters::DropReason;

/// Timing of queries, and the action without an answer.
#[derive(Clone, Copy)]
pub struct Manner {
    /// Time between two queries.
    retry_ms: u64,
    /// Number of queries for an address.
    tries: u8,
    /// Time for which a failure is remembered and frames are refused. `None`: waiting frames are released
    /// without an answer.
    remember_ms: Option<u64>,
    /// Bytes of frames that may wait for one address beyond [`Limits::held_per_neighbour`].
    held_bytes: usize,
}

/// As ARP (RFC 1122, section 2.3.2.1): once a second. As many bytes wait as for a neighbour of the kernel
/// (`unres_qlen_bytes`): after a restart of the daemon, the host knows the MAC already and does not hold frames itself,
/// and the TAP's queue has those of the whole restart.
pub const ASK_FABRIC: Manner = Manner {
    retry_ms: 1000,
    tries: 3,
    remember_ms: Some(1000),
    held_bytes: 212_992,
};

/// Guests are near, so the timing is short. Without an answer the address may be behind the host, if the
/// host is a router.
pub const ASK_HOST_SIDE: Manner = Manner {
    retry_ms: 250,
    tries: 2,
    remember_ms: None,
    held_bytes: 0,
};

/// Maximum bytes of all held frames.
const HELD_BYTES_MAX: usize = 4 << 20;

/// A frame that waited for its destination. Pass it to [`crate::Ipoib::from_released`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HeldFrame {
    /// The virtio-net header of the frame.
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
    held_bytes: usize,
}

pub struct Resolver {
    manner: Manner,
    entries: Vec<Entry>,
    released: VecDeque<HeldFrame>,
    max: usize,
    held_each: usize,
    held_bytes: usize,
}

impl Resolver {
    pub fn new(limits: &Limits, manner: Manner) -> Resolver {
        Resolver {
            manner,
            entries: Vec::new(),
            released: VecDeque::new(),
            max: limits.unresolved.max(1),
            held_each: limits.held_per_neighbour.max(1),
            held_bytes: 0,
        }
    }

    /// Keeps a frame from `source` for `ip`. True for the first frame of a query.
    pub fn hold(
        &mut self,
        now: Time,
        ip: IpAddr,
        source: IpAddr,
        prefix: &[u8; 12],
        frame: &[u8],
    ) -> Result<bool, DropReason> {
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
        let room =
            e.held.len() < self.held_each || e.held_bytes + frame.len() <= self.manner.held_bytes;
        if !room || self.held_bytes + frame.len() > HELD_BYTES_MAX {
            return Err(DropReason::HoldFull);
        }
        let first = e.held.is_empty();
        self.held_bytes += frame.len();
        e.held_bytes += frame.len();
        e.held.push_back(HeldFrame {
            prefix: *prefix,
            frame: frame.into(),
        });
        Ok(first)
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
            held_bytes: 0,
        });
        Ok(self.entries.len() - 1)
    }

    /// Releases the frames of an address that is known now.
    pub fn resolved(&mut self, ip: IpAddr) {
        if let Some(at) = self.entries.iter().position(|e| e.ip == ip) {
            self.released.extend(self.entries.swap_remove(at).held);
        }
    }

    /// Releases the frames with a destination MAC that is known now: their IP destinations are behind a router.
    pub fn found(&mut self, mac: Mac) {
        let waits = |held: &HeldFrame| held.frame.starts_with(&mac);
        for e in &mut self.entries {
            if !e.held.iter().any(waits) {
                continue;
            }
            let (found, others): (Vec<_>, Vec<_>) =
                std::mem::take(&mut e.held).into_iter().partition(waits);
            e.held_bytes = others.iter().map(|held| held.frame.len()).sum();
            e.held = others.into();
            self.released.extend(found);
        }
        let is_over = |e: &Entry| e.held.is_empty() && matches!(e.state, State::Asking { .. });
        self.entries.retain(|e| !is_over(e));
    }

    pub fn pop_released(&mut self) -> Option<HeldFrame> {
        let held = self.released.pop_front()?;
        self.held_bytes -= held.frame.len();
        Some(held)
    }

    /// Removes everything; returns the number of lost frames.
    pub fn clear(&mut self) -> u64 {
        let waiting: usize = self.entries.iter().map(|e| e.held.len()).sum();
        let lost = waiting + self.released.len();
        self.entries = Vec::new();
        self.released = VecDeque::new();
        self.held_bytes = 0;
        lost as u64
    }

    /// Whether [`Resolver::pop_released`] would return a frame.
    pub fn has_released(&self) -> bool {
        !self.released.is_empty()
    }

    /// The frames that wait for `ip`; `None` if there is no query for it.
    pub fn waiting(&self, ip: IpAddr) -> Option<&VecDeque<HeldFrame>> {
        let entry = self.entries.iter().find(|e| e.ip == ip)?;
        Some(&entry.held)
    }

    /// The next address to query, and the source of the first frame that waits for it.
    pub fn next_question(&mut self, now: Time) -> Option<(IpAddr, IpAddr)> {
        let manner = self.manner;
        self.entries.iter_mut().find_map(|e| match &mut e.state {
            State::Asking { tries, due } if *due <= now && *tries < manner.tries => {
                *tries += 1;
                *due = now.after(manner.retry_ms);
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

    /// Gives up addresses after the last query and calls `given_up` for each. Returns their number and that
    /// of lost frames.
    pub fn handle_timeout(&mut self, now: Time, mut given_up: impl FnMut(IpAddr)) -> (u64, u64) {
        let (mut failed, mut lost) = (0, 0);
        let manner = self.manner;
        for e in &mut self.entries {
            let over = matches!(e.state, State::Asking { tries, due }
                if tries == manner.tries && due <= now);
            if !over {
                continue;
            }
            failed += 1;
            given_up(e.ip);
            let bytes = std::mem::take(&mut e.held_bytes);
            if manner.remember_ms.is_some() {
                lost += e.held.len() as u64;
                e.held.clear();
                self.held_bytes -= bytes;
            } else {
                self.released.append(&mut e.held);
            }
            e.state = State::Failed {
                until: now.after(manner.remember_ms.unwrap_or(0)),
            };
        }
        self.entries
            .retain(|e| !matches!(e.state, State::Failed { until } if until <= now));
        (failed, lost)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resolver_with(manner: Manner) -> Resolver {
        let limits = Limits {
            unresolved: 2,
            ..Limits::default()
        };
        Resolver::new(&limits, manner)
    }

    fn resolver() -> Resolver {
        resolver_with(ASK_FABRIC)
    }

    fn time_out(r: &mut Resolver, now: u64) -> (u64, u64) {
        r.handle_timeout(Time(now), |_| {})
    }

    fn ip(n: u8) -> IpAddr {
        IpAddr::from([10, 0, 0, n])
    }

    fn hold(r: &mut Resolver, now: u64, n: u8, mark: u8) -> Result<(), DropReason> {
        r.hold(Time(now), ip(n), ip(9), &[mark; 12], &[mark; 60])
            .map(drop)
    }

    fn hold_large(r: &mut Resolver, len: usize) -> Result<(), DropReason> {
        r.hold(Time(0), ip(1), ip(9), &[0; 12], &vec![0; len])
            .map(drop)
    }

    #[test]
    fn c60_three_frames_of_any_length_or_many_short_ones_wait_for_one_destination() {
        let mut r = resolver();
        for _ in 0..3 {
            assert_eq!(hold_large(&mut r, 90_000), Ok(()));
        }
        assert_eq!(hold_large(&mut r, 60), Err(DropReason::HoldFull));

        // The frames of a restart: 1,000 is the TAP's queue.
        let mut r = resolver();
        for _ in 0..1000 {
            assert_eq!(hold_large(&mut r, 150), Ok(()));
        }
        assert_eq!(hold_large(&mut r, 62_992), Ok(()));
        assert_eq!(hold_large(&mut r, 1), Err(DropReason::HoldFull));
        assert_eq!(r.waiting(ip(1)).map(VecDeque::len), Some(1001));
        while r.next_question(Time(0)).is_some() {}
        r.resolved(ip(1));
        assert_eq!(std::iter::from_fn(|| r.pop_released()).count(), 1001);
        assert_eq!(r.held_bytes, 0);
    }

    #[test]
    fn on_the_host_side_at_most_three_frames_wait_for_one_destination() {
        let mut r = resolver_with(ASK_HOST_SIDE);
        for mark in 0..3 {
            assert_eq!(hold(&mut r, 0, 1, mark), Ok(()));
        }
        assert_eq!(hold(&mut r, 0, 1, 3), Err(DropReason::HoldFull));
        assert_eq!(r.waiting(ip(1)).map(VecDeque::len), Some(3));
    }

    #[test]
    fn on_the_host_side_frames_are_released_after_two_unanswered_queries() {
        let mut r = resolver_with(ASK_HOST_SIDE);
        hold(&mut r, 0, 1, 7).unwrap();
        for now in [0, 250] {
            assert_eq!(time_out(&mut r, now), (0, 0));
            assert_eq!(r.next_question(Time(now)), Some((ip(1), ip(9))));
        }
        let mut given_up = Vec::new();
        assert_eq!(r.handle_timeout(Time(500), |ip| given_up.push(ip)), (1, 0));
        assert_eq!(given_up, [ip(1)]);
        assert!(r.has_released() && r.waiting(ip(1)).is_none());
        assert_eq!(r.pop_released().map(|h| h.prefix[0]), Some(7));
        assert_eq!((r.held_bytes, r.entries.len()), (0, 0));
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
            assert_eq!(time_out(&mut r, now.0), (0, 0));
            assert_eq!(r.next_question(now), Some((ip(1), ip(9))));
            assert_eq!(r.next_question(now), None);
            assert_eq!(r.next_deadline(), Some(Time(second * 1000 + 1000)));
        }
        assert_eq!(r.next_question(Time(3000)), None);
        assert_eq!(time_out(&mut r, 3000), (1, 1));
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
        assert_eq!(time_out(&mut r, 3000), (2, 2));
        assert_eq!(hold(&mut r, 3000, 3, 0), Ok(()));
        assert_eq!(time_out(&mut r, 4000), (0, 0));
        assert_eq!(r.entries.len(), 1);
    }
}
