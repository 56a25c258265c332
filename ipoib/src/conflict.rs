//! Addresses that go to and fro between two hosts: followed a few times, then held still, so that
//! two hosts with one address make no storm.

use std::net::IpAddr;

use crate::Time;

/// Changes of owner that are followed in one [`WINDOW_MS`].
const CHANGES_MAX: u8 = 3;
/// The time in which changes are counted, and for which an owner is kept after too many.
const WINDOW_MS: u64 = 10_000;
/// Addresses whose changes are counted. Where more change at the same time, nobody is told of it.
const ENTRIES_MAX: usize = 256;

/// What to do about a change of owner.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// Follow it, and tell the link.
    Follow,
    /// Follow it without telling: too many addresses change at once.
    FollowQuietly,
    /// Keep the present owner.
    Keep {
        /// The first time for this address.
        first: bool,
    },
}

struct Entry {
    ip: IpAddr,
    since: Time,
    changes: u8,
    kept_until: Time,
    known: bool,
}

impl Entry {
    fn is_over(&self, now: Time) -> bool {
        self.since.after(WINDOW_MS) <= now && self.kept_until <= now
    }
}

/// Changes of owner, counted by address.
#[derive(Default)]
pub struct Conflicts {
    entries: Vec<Entry>,
}

impl Conflicts {
    /// An address is about to change its owner.
    pub fn change(&mut self, now: Time, ip: IpAddr) -> Verdict {
        let Some(entry) = self.entry(now, ip) else {
            return Verdict::FollowQuietly;
        };
        if now < entry.kept_until {
            return Verdict::Keep { first: false };
        }
        if entry.changes >= CHANGES_MAX {
            let first = !entry.known;
            entry.keep(now);
            return Verdict::Keep { first };
        }
        entry.changes += 1;
        Verdict::Follow
    }

    /// Another replica followed a change.
    pub fn note(&mut self, now: Time, ip: IpAddr) {
        if let Some(entry) = self.entry(now, ip) {
            entry.changes = entry.changes.saturating_add(1);
        }
    }

    /// Another replica keeps the present owner.
    pub fn keep(&mut self, now: Time, ip: IpAddr) {
        if let Some(entry) = self.entry(now, ip) {
            entry.keep(now);
        }
    }

    fn entry(&mut self, now: Time, ip: IpAddr) -> Option<&mut Entry> {
        let at = match self.entries.iter().position(|e| e.ip == ip) {
            Some(at) => at,
            None => self.new_entry(now, ip)?,
        };
        let entry = &mut self.entries[at];
        if entry.since.after(WINDOW_MS) <= now {
            entry.since = now;
            entry.changes = 0;
        }
        Some(entry)
    }

    fn new_entry(&mut self, now: Time, ip: IpAddr) -> Option<usize> {
        let new = Entry {
            ip,
            since: now,
            changes: 0,
            kept_until: now,
            known: false,
        };
        if self.entries.len() < ENTRIES_MAX {
            self.entries.push(new);
            return Some(self.entries.len() - 1);
        }
        // Known conflicts are kept longest: each is to be told once.
        let over = self
            .entries
            .iter()
            .enumerate()
            .filter(|(_, e)| e.is_over(now));
        let (at, _) = over.min_by_key(|(_, e)| (e.known, e.since))?;
        self.entries[at] = new;
        Some(at)
    }
}

impl Entry {
    fn keep(&mut self, now: Time) {
        self.known = true;
        self.kept_until = now.after(WINDOW_MS);
        self.since = self.kept_until;
        self.changes = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(n: u16) -> IpAddr {
        let [a, b] = n.to_be_bytes();
        IpAddr::from([10, 0, a, b])
    }

    #[test]
    fn three_changes_are_followed_then_the_owner_is_kept_and_told_of_once() {
        let mut c = Conflicts::default();
        let mut at = |now| c.change(Time(now), ip(1));
        assert_eq!([0, 1, 2].map(&mut at), [Verdict::Follow; 3]);
        assert_eq!(at(3), Verdict::Keep { first: true });
        assert_eq!(at(10_002), Verdict::Keep { first: false });
        assert_eq!([10_003, 10_004, 10_005].map(&mut at), [Verdict::Follow; 3]);
        assert_eq!(at(10_006), Verdict::Keep { first: false });
        assert_eq!(
            [40_000, 60_000, 80_000, 90_000, 99_000].map(at),
            [Verdict::Follow; 5]
        );
    }

    #[test]
    fn replicas_count_together() {
        let (mut one, mut two) = (Conflicts::default(), Conflicts::default());
        for now in 0..3 {
            assert_eq!(one.change(Time(now), ip(1)), Verdict::Follow);
            two.note(Time(now), ip(1));
        }
        assert_eq!(two.change(Time(4), ip(1)), Verdict::Keep { first: true });
        one.keep(Time(4), ip(1));
        assert_eq!(one.change(Time(5), ip(1)), Verdict::Keep { first: false });
    }

    #[test]
    fn memory_is_bounded_and_a_flood_is_quiet() {
        let mut c = Conflicts::default();
        for n in 0..ENTRIES_MAX as u16 {
            assert_eq!(c.change(Time(0), ip(n)), Verdict::Follow);
        }
        assert_eq!(c.change(Time(0), ip(999)), Verdict::FollowQuietly);
        assert_eq!(c.change(Time(10_000), ip(999)), Verdict::Follow);
        assert_eq!(c.entries.len(), ENTRIES_MAX);
    }
}
