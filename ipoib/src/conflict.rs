//! Addresses that go to and fro between two hosts: followed a few times, then held still, so that
//! two hosts with one address make no storm.

use std::net::IpAddr;

use proto::{Mac, Time};

/// What changes of owner may cost together in one [`WINDOW_MS`].
const COST_MAX: u8 = 7;
/// An owner that had the address before comes back: two hosts claim it.
const COST_RETURN: u8 = 3;
/// An owner that is new: a bridge, say, that took the Ethernet address of another port.
const COST_NEW: u8 = 1;
/// Former owners that are remembered.
const FORMER_MAX: usize = 4;
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
    cost: u8,
    /// Who had it in this window, the last one first.
    former: [Option<Mac>; FORMER_MAX],
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
    /// An address is about to change from one owner to another.
    pub fn change(&mut self, now: Time, ip: IpAddr, from: Mac, to: Mac) -> Verdict {
        let Some(entry) = self.entry(now, ip) else {
            return Verdict::FollowQuietly;
        };
        if now < entry.kept_until {
            return Verdict::Keep { first: false };
        }
        if entry.pay(from, to) > COST_MAX {
            let first = !entry.known;
            entry.keep(now);
            return Verdict::Keep { first };
        }
        Verdict::Follow
    }

    /// Another replica followed a change.
    pub fn note(&mut self, now: Time, ip: IpAddr, from: Mac, to: Mac) {
        if let Some(entry) = self.entry(now, ip) {
            entry.pay(from, to);
        }
    }

    /// Forgets everything.
    pub fn clear(&mut self) {
        self.entries.clear();
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
            entry.begin(now);
        }
        Some(entry)
    }

    fn new_entry(&mut self, now: Time, ip: IpAddr) -> Option<usize> {
        let new = Entry {
            ip,
            since: now,
            cost: 0,
            former: [None; FORMER_MAX],
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
        self.begin(self.kept_until);
    }

    fn begin(&mut self, now: Time) {
        self.since = now;
        self.cost = 0;
        self.former = [None; FORMER_MAX];
    }

    /// Adds what a change costs; gives the sum.
    fn pay(&mut self, from: Mac, to: Mac) -> u8 {
        let returns = self.former.contains(&Some(to));
        self.cost = self
            .cost
            .saturating_add(if returns { COST_RETURN } else { COST_NEW });
        if !self.former.contains(&Some(from)) {
            self.former.rotate_right(1);
            self.former[0] = Some(from);
        }
        self.cost
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: Mac = [2, 0, 0, 0, 0, 0xa];
    const B: Mac = [2, 0, 0, 0, 0, 0xb];

    fn ip(n: u16) -> IpAddr {
        let [a, b] = n.to_be_bytes();
        IpAddr::from([10, 0, a, b])
    }

    /// The address goes to and fro between two hosts.
    fn swap(c: &mut Conflicts, now: u64, to_b: bool) -> Verdict {
        let (from, to) = if to_b { (A, B) } else { (B, A) };
        c.change(Time(now), ip(1), from, to)
    }

    #[test]
    fn three_changes_are_followed_then_the_owner_is_kept_and_told_of_once() {
        let mut c = Conflicts::default();
        let mut to_b = false;
        let mut at = |now| {
            to_b = !to_b;
            let verdict = swap(&mut c, now, to_b);
            if matches!(verdict, Verdict::Keep { .. }) {
                to_b = !to_b;
            }
            verdict
        };
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
    fn an_owner_with_ever_new_ethernet_addresses_is_followed_longer_and_not_for_ever() {
        let mut c = Conflicts::default();
        let mac = |n| [2, 0, 0, 0, 1, n];
        let verdicts = (0..8).map(|n| c.change(Time(0), ip(1), mac(n), mac(n + 1)));
        let verdicts: Vec<Verdict> = verdicts.collect();
        assert_eq!(verdicts[..7], [Verdict::Follow; 7]);
        assert_eq!(verdicts[7], Verdict::Keep { first: true });
    }

    #[test]
    fn replicas_count_together() {
        let (mut one, mut two) = (Conflicts::default(), Conflicts::default());
        for (now, to_b) in [(0, true), (1, false), (2, true)] {
            assert_eq!(swap(&mut one, now, to_b), Verdict::Follow);
            let (from, to) = if to_b { (A, B) } else { (B, A) };
            two.note(Time(now), ip(1), from, to);
        }
        assert_eq!(swap(&mut two, 4, false), Verdict::Keep { first: true });
        one.keep(Time(4), ip(1));
        assert_eq!(swap(&mut one, 5, false), Verdict::Keep { first: false });
    }

    #[test]
    fn memory_is_bounded_and_a_flood_is_quiet() {
        let mut c = Conflicts::default();
        let mut at = |now, n| c.change(Time(now), ip(n), A, B);
        for n in 0..ENTRIES_MAX as u16 {
            assert_eq!(at(0, n), Verdict::Follow);
        }
        assert_eq!(at(0, 999), Verdict::FollowQuietly);
        assert_eq!(at(10_000, 999), Verdict::Follow);
        assert_eq!(c.entries.len(), ENTRIES_MAX);
    }
}
