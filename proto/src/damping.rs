//! What goes to and fro between two places: followed a few times, then held still, so that two owners of
//! one address make no storm.

use std::collections::HashMap;
use std::hash::Hash;

use foldhash::fast::RandomState;

use crate::Time;

/// What changes of place may cost together in one [`WINDOW_MS`].
const COST_MAX: u8 = 7;
/// Back at a place where it was before: two claim it.
const COST_RETURN: u8 = 3;
/// At a new place: a virtual machine, say, that was moved.
const COST_NEW: u8 = 1;
/// Former places that are remembered.
const FORMER_MAX: usize = 4;
/// The time in which changes are counted, and for which a place is kept after too many.
const WINDOW_MS: u64 = 10_000;

/// What to do about a change of place.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// Follow it, and announce it.
    Follow,
    /// Follow it without an announcement: too many things change at once.
    FollowQuietly,
    /// Keep the present place.
    Keep {
        /// The first time for this thing.
        first: bool,
    },
}

/// What a change does that there is no room to count.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WhenFull {
    /// It is followed, quietly.
    Follow,
    /// The present place is kept.
    Keep,
}

#[derive(Debug)]
struct Entry<P> {
    since: Time,
    cost: u8,
    /// Where it was in this window, the last one first.
    former: [Option<P>; FORMER_MAX],
    kept_until: Time,
    known: bool,
}

/// Changes of place, counted by thing.
#[derive(Debug)]
pub struct Damping<K, P> {
    entries: HashMap<K, Entry<P>, RandomState>,
    max: usize,
    when_full: WhenFull,
    /// There is room again then at the earliest.
    full_until: Time,
}

impl<K: Copy + Eq + Hash, P: Copy + PartialEq> Damping<K, P> {
    /// Counts the changes of `max` things at a time.
    pub fn new(max: usize, when_full: WhenFull) -> Damping<K, P> {
        Damping {
            entries: HashMap::default(),
            max,
            when_full,
            full_until: Time(0),
        }
    }

    /// Something is about to change from one place to another.
    pub fn change(&mut self, now: Time, key: K, from: P, to: P) -> Verdict {
        let when_full = self.when_full;
        let Some(entry) = self.entry(now, key) else {
            return match when_full {
                WhenFull::Follow => Verdict::FollowQuietly,
                WhenFull::Keep => Verdict::Keep { first: false },
            };
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
    pub fn note(&mut self, now: Time, key: K, from: P, to: P) {
        if let Some(entry) = self.entry(now, key) {
            entry.pay(from, to);
        }
    }

    /// Another replica keeps the present place.
    pub fn keep(&mut self, now: Time, key: K) {
        if let Some(entry) = self.entry(now, key) {
            entry.keep(now);
        }
    }

    /// Forgets everything.
    pub fn clear(&mut self) {
        *self = Damping::new(self.max, self.when_full);
    }

    /// What is counted of a thing; `None` if there is no room for it.
    fn entry(&mut self, now: Time, key: K) -> Option<&mut Entry<P>> {
        if !self.entries.contains_key(&key) && !self.has_room(now) {
            return None;
        }
        let entry = self.entries.entry(key).or_insert(Entry {
            since: now,
            cost: 0,
            former: [None; FORMER_MAX],
            kept_until: now,
            known: false,
        });
        if entry.since.after(WINDOW_MS) <= now {
            entry.begin(now);
        }
        Some(entry)
    }

    /// Whether there is room for another thing, which those that have been still make. Conflicts that were
    /// told of go only if nothing else does: each is to be told once.
    fn has_room(&mut self, now: Time) -> bool {
        if self.entries.len() < self.max {
            return true;
        }
        // A storm must not have them all looked at for each of its packets.
        if now < self.full_until {
            return false;
        }
        self.entries.retain(|_, e| e.known || !e.is_over(now));
        if self.entries.len() >= self.max {
            let over = self.entries.iter().filter(|(_, e)| e.is_over(now));
            let oldest = over.min_by_key(|(_, e)| e.since).map(|(key, _)| *key);
            oldest.map(|key| self.entries.remove(&key));
        }
        let next = self.entries.values().map(Entry::over_at).min();
        self.full_until = next.unwrap_or(now);
        self.entries.len() < self.max
    }
}

impl<P: Copy + PartialEq> Entry<P> {
    /// When it has been still for long enough.
    fn over_at(&self) -> Time {
        self.since.after(WINDOW_MS).max(self.kept_until)
    }

    fn is_over(&self, now: Time) -> bool {
        self.over_at() <= now
    }

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
    fn pay(&mut self, from: P, to: P) -> u8 {
        let returns = self.former.contains(&Some(to));
        let cost = if returns { COST_RETURN } else { COST_NEW };
        self.cost = self.cost.saturating_add(cost);
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

    const ENTRIES_MAX: usize = 4096;
    const FOLLOWED: [Verdict; 3] = [Verdict::Follow; 3];

    fn counted<K: Copy + Eq + Hash, P: Copy + PartialEq>(
        max: usize,
        when_full: WhenFull,
    ) -> Damping<K, P> {
        Damping::new(max, when_full)
    }

    /// The thing goes to and fro between two places, as far as it is followed.
    fn swap(d: &mut Damping<u16, char>, now: u64, at: &mut char) -> Verdict {
        let to = if *at == 'a' { 'b' } else { 'a' };
        let verdict = d.change(Time(now), 1, *at, to);
        if verdict == Verdict::Follow {
            *at = to;
        }
        verdict
    }

    #[test]
    fn three_changes_are_followed_then_the_place_is_kept_and_told_of_once() {
        let mut d = counted(ENTRIES_MAX, WhenFull::Keep);
        let mut place = 'a';
        let mut at = |now| swap(&mut d, now, &mut place);
        assert_eq!([0, 1, 2].map(&mut at), FOLLOWED);
        assert_eq!(at(3), Verdict::Keep { first: true });
        assert_eq!(at(10_002), Verdict::Keep { first: false });
        assert_eq!([10_003, 10_004, 10_005].map(&mut at), FOLLOWED);
        assert_eq!(at(10_006), Verdict::Keep { first: false });
        assert_eq!(
            [40_000, 60_000, 80_000, 90_000, 99_000].map(at),
            [Verdict::Follow; 5]
        );
    }

    #[test]
    fn a_thing_at_ever_new_places_is_followed_longer_and_not_for_ever() {
        let mut d = counted(ENTRIES_MAX, WhenFull::Keep);
        let verdicts: Vec<Verdict> = (0..8).map(|n| d.change(Time(0), 1, n, n + 1)).collect();
        assert_eq!(verdicts[..7], [Verdict::Follow; 7]);
        assert_eq!(verdicts[7], Verdict::Keep { first: true });
    }

    #[test]
    fn replicas_count_together() {
        let (mut one, mut two) = (
            counted(256, WhenFull::Follow),
            counted(256, WhenFull::Follow),
        );
        for (now, from, to) in [(0, 'a', 'b'), (1, 'b', 'a'), (2, 'a', 'b')] {
            assert_eq!(one.change(Time(now), 1, from, to), Verdict::Follow);
            two.note(Time(now), 1, from, to);
        }
        let kept = two.change(Time(4), 1, 'b', 'a');
        assert_eq!(kept, Verdict::Keep { first: true });
        one.keep(Time(4), 1);
        let kept = one.change(Time(5), 1, 'b', 'a');
        assert_eq!(kept, Verdict::Keep { first: false });
    }

    /// Nor is a storm a way around it: what it leaves no room for stays.
    #[test]
    fn memory_is_bounded_whatever_moves() {
        let mut d = counted(ENTRIES_MAX, WhenFull::Keep);
        let most = ENTRIES_MAX as u16;
        for n in 0..most + 1000 {
            let verdict = match n < most {
                true => Verdict::Follow,
                false => Verdict::Keep { first: false },
            };
            assert_eq!(d.change(Time(u64::from(n)), n, 'a', 'b'), verdict);
        }
        assert_eq!(d.entries.len(), ENTRIES_MAX);
        // Those that are counted are as before.
        assert_eq!(d.change(Time(6000), 0, 'b', 'a'), Verdict::Follow);
        // One that was still makes room for one.
        let late = most + 1;
        let kept = d.change(Time(9_999), late, 'a', 'b');
        assert_eq!(kept, Verdict::Keep { first: false });
        assert_eq!(d.change(Time(10_000), late, 'a', 'b'), Verdict::Follow);
        let kept = d.change(Time(10_000), late + 1, 'a', 'b');
        assert_eq!(kept, Verdict::Keep { first: false });
        assert_eq!(d.entries.len(), ENTRIES_MAX);
        assert_eq!(d.change(Time(50_000), late + 1, 'a', 'b'), Verdict::Follow);
        assert_eq!(d.entries.len(), 1);
    }

    #[test]
    fn a_conflict_that_was_told_of_is_remembered_as_long_as_there_is_room() {
        let mut d = counted(ENTRIES_MAX, WhenFull::Keep);
        d.keep(Time(0), 0);
        for n in 1..=ENTRIES_MAX as u16 {
            d.change(Time(0), n, 'a', 'b');
        }
        // All are still, and the first is the one that stays.
        d.change(Time(50_000), 9999, 'a', 'b');
        let mut place = 'a';
        let verdicts: Vec<Verdict> = (50_001..50_005)
            .map(|now| {
                let to = if place == 'a' { 'b' } else { 'a' };
                let verdict = d.change(Time(now), 0, place, to);
                place = to;
                verdict
            })
            .collect();
        assert_eq!(verdicts[..3], FOLLOWED);
        assert_eq!(verdicts[3], Verdict::Keep { first: false });
    }

    #[test]
    fn of_conflicts_that_were_told_of_one_makes_room() {
        let mut d = counted(4, WhenFull::Follow);
        (0..4).for_each(|n| d.keep(Time(n), n));
        let late = |d: &mut Damping<u64, char>, n| d.change(Time(50_000), n, 'a', 'b');
        assert_eq!(late(&mut d, 9), Verdict::Follow);
        assert_eq!(d.entries.len(), 4);
        let known = d.entries.iter().filter(|(_, e)| e.known);
        let mut known: Vec<u64> = known.map(|(key, _)| *key).collect();
        known.sort_unstable();
        assert_eq!(known, [1, 2, 3]);
    }

    #[test]
    fn where_changes_are_followed_that_are_not_counted_a_flood_is_quiet() {
        let mut d = Damping::new(256, WhenFull::Follow);
        let mut at = |now, n: u16| d.change(Time(now), n, 'a', 'b');
        for n in 0..256 {
            assert_eq!(at(0, n), Verdict::Follow);
        }
        assert_eq!(at(0, 999), Verdict::FollowQuietly);
        assert_eq!(d.entries.len(), 256);
        let mut at = |now, n: u16| d.change(Time(now), n, 'a', 'b');
        assert_eq!(at(10_000, 999), Verdict::Follow);
        assert!(d.entries.len() <= 256);
    }
}
