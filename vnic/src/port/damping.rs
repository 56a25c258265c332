//! What goes to and fro between two places: followed a few times, then held still, so that two owners of
//! one address make no storm.

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
/// Things whose changes are counted. Where more change at the same time, nobody is told of it.
const ENTRIES_MAX: usize = 256;

/// What to do about a change of place.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// Follow it.
    Follow,
    /// Keep the present place.
    Keep {
        /// The first time for this thing.
        first: bool,
    },
}

struct Entry<K, P> {
    key: K,
    since: Time,
    cost: u8,
    /// Where it was in this window, the last one first.
    former: [Option<P>; FORMER_MAX],
    kept_until: Time,
    known: bool,
}

/// Changes of place, counted by thing.
pub struct Damping<K, P> {
    entries: Vec<Entry<K, P>>,
}

impl<K, P> Default for Damping<K, P> {
    fn default() -> Damping<K, P> {
        Damping {
            entries: Vec::new(),
        }
    }
}

impl<K: Copy + PartialEq, P: Copy + PartialEq> Damping<K, P> {
    /// Something is about to change from one place to another.
    pub fn change(&mut self, now: Time, key: K, from: P, to: P) -> Verdict {
        let Some(entry) = self.entry(now, key) else {
            return Verdict::Follow;
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
        self.entries.clear();
    }

    fn entry(&mut self, now: Time, key: K) -> Option<&mut Entry<K, P>> {
        let at = match self.entries.iter().position(|e| e.key == key) {
            Some(at) => at,
            None => self.new_entry(now, key)?,
        };
        let entry = &mut self.entries[at];
        if entry.since.after(WINDOW_MS) <= now {
            entry.begin(now);
        }
        Some(entry)
    }

    fn new_entry(&mut self, now: Time, key: K) -> Option<usize> {
        let new = Entry {
            key,
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
        // Conflicts that were told of are kept longest: each is to be told once.
        let numbered = self.entries.iter().enumerate();
        let over = numbered.filter(|(_, e)| e.is_over(now));
        let (at, _) = over.min_by_key(|(_, e)| (e.known, e.since))?;
        self.entries[at] = new;
        Some(at)
    }
}

impl<K, P: Copy + PartialEq> Entry<K, P> {
    fn is_over(&self, now: Time) -> bool {
        self.since.after(WINDOW_MS) <= now && self.kept_until <= now
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

    const FOLLOWED: [Verdict; 3] = [Verdict::Follow; 3];

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
        let mut d = Damping::default();
        let mut place = 'a';
        let mut at = |now| swap(&mut d, now, &mut place);
        assert_eq!([0, 1, 2].map(&mut at), FOLLOWED);
        assert_eq!(at(3), Verdict::Keep { first: true });
        assert_eq!(at(10_002), Verdict::Keep { first: false });
        assert_eq!([10_003, 10_004, 10_005].map(&mut at), FOLLOWED);
        assert_eq!(at(10_006), Verdict::Keep { first: false });
    }

    #[test]
    fn a_thing_at_ever_new_places_is_followed_longer_and_not_for_ever() {
        let mut d = Damping::default();
        let verdicts: Vec<Verdict> = (0..8).map(|n| d.change(Time(0), 1, n, n + 1)).collect();
        assert_eq!(verdicts[..7], [Verdict::Follow; 7]);
        assert_eq!(verdicts[7], Verdict::Keep { first: true });
    }

    #[test]
    fn replicas_count_together() {
        let (mut one, mut two) = (Damping::default(), Damping::default());
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

    #[test]
    fn memory_is_bounded_whatever_moves() {
        let mut d = Damping::default();
        for n in 0..1000_u16 {
            assert_eq!(d.change(Time(0), n, 'a', 'b'), Verdict::Follow);
        }
        assert_eq!(d.entries.len(), ENTRIES_MAX);
        assert_eq!(d.change(Time(10_000), 999, 'b', 'a'), Verdict::Follow);
        assert_eq!(d.entries.len(), ENTRIES_MAX);
    }
}
