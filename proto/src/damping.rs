//! Damping of changes between two places: a few changes are followed, then one place is kept. Two owners of the
//! same address therefore cannot cause a storm. The place to keep is that of before the changes: a flood of forged
//! packets ends where it has begun.

use std::collections::HashMap;
use std::hash::Hash;

use foldhash::fast::RandomState;

use crate::Time;

/// The largest total cost of changes in a [`WINDOW_MS`].
const COST_MAX: u8 = 7;
/// Cost of a change back to a former place: two owners claim the key.
const COST_RETURN: u8 = 3;
/// Cost of a change to a new place, such as the migration of a virtual machine.
const COST_NEW: u8 = 1;
/// Number of remembered former places.
const FORMER_MAX: usize = 4;
/// Milliseconds in which changes are counted; also how long a place is held after too many changes.
const WINDOW_MS: u64 = 10_000;
/// A key that did not change for this time, in milliseconds, is at home. A flood of forged packets never leaves a
/// key at one place for so long, because its owner sends, too.
const SETTLED_MS: u64 = 1000;
/// If nobody confirms a held place for this time, in milliseconds, perhaps nobody is there. The time is short, because
/// packets to that place may be lost.
const SILENT_MS: u64 = 1200;
/// If one other place alone claims a held key for this time, in milliseconds, the owner is at that place. Only the first
/// packet in a second confirms a place. So the confirmations of an owner that sends every second are up to two seconds
/// apart, and reach other replicas a little later.
const ALONE_MS: u64 = 2200;
/// Milliseconds by which the holds of two replicas can end one after the other: each began when the replica got the
/// message about it.
const APART_MS: u64 = 1000;

/// The reaction to a change between places of the type `P`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict<P> {
    /// Follow the change.
    Follow,
    /// Do not follow the change: the place is held, or there is no room to count the change.
    Keep,
    /// Too many changes: do not follow this one, and hold a place from now on.
    Hold {
        /// The place of before the changes, which can be the present one; or the only one that still claims the key.
        place: P,
        /// Whether this is the first such verdict for the key.
        first: bool,
        /// Whether the key was held before, at a place that nobody confirms.
        again: bool,
    },
}

/// The reaction to a change when the table is full.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WhenFull {
    /// Follow it.
    Follow,
    /// Keep the present place.
    Keep,
}

#[derive(Debug)]
struct Entry<P> {
    since: Time,
    cost: u8,
    /// Former places in this window, the latest first.
    former: [Option<P>; FORMER_MAX],
    /// The place of before the changes; in a hold, the held place.
    home: Option<P>,
    /// The last change: the place that the key left, and the time.
    left: Option<(P, Time)>,
    held_until: Time,
    /// When the held place was last confirmed; at first, when the hold began.
    confirmed: Time,
    /// The place that claims the held key, and since when it alone does so.
    rival: Option<(P, Time)>,
    known: bool,
}

/// Changes of place, counted for each key.
#[derive(Debug)]
pub struct Damping<K, P> {
    entries: HashMap<K, Entry<P>, RandomState>,
    max: usize,
    when_full: WhenFull,
    late_ms: u64,
    owners_confirm: bool,
    /// The earliest time at which an entry can expire.
    full_until: Time,
    /// No key is held from this time on.
    held_until: Time,
}

impl<K: Copy + Eq + Hash, P: Copy + PartialEq> Damping<K, P> {
    /// Creates a table for `max` keys.
    pub fn new(max: usize, when_full: WhenFull) -> Damping<K, P> {
        Damping {
            entries: HashMap::default(),
            max,
            when_full,
            late_ms: 0,
            owners_confirm: false,
            full_until: Time(0),
            held_until: Time(0),
        }
    }

    /// Sets for how many milliseconds packets from the place that a key has left are late, not a change back. One
    /// owner with several threads changes its place in one thread after the other, and packets wait in queues.
    pub fn with_late(mut self, late_ms: u64) -> Damping<K, P> {
        self.late_ms = late_ms;
        self
    }

    /// A key is not held at a place that nobody has confirmed for a while ([`confirm`](Damping::confirm)).
    pub fn with_confirmation(mut self) -> Damping<K, P> {
        self.owners_confirm = true;
        self
    }

    /// Notes a packet from the present place of a key. Returns whether the key is held there: then each replica must
    /// note one such packet in a second.
    pub fn confirm(&mut self, now: Time, key: K) -> bool {
        if self.held_until <= now {
            return false;
        }
        let held = self.entries.get_mut(&key).filter(|e| now < e.held_until);
        held.map(|entry| (entry.rival, entry.confirmed) = (None, now))
            .is_some()
    }

    /// Whether the key is held at a place that nobody has confirmed for a while: perhaps nobody is there.
    #[inline]
    pub fn is_silent(&self, now: Time, key: K) -> bool {
        now < self.held_until && self.entries.get(&key).is_some_and(|e| e.is_silent(now))
    }

    /// The place at which the key is held, if it is known. The key stays there even if the caller's table has no room
    /// for it: else the next claim of the key would be followed.
    #[inline]
    pub fn held_at(&self, now: Time, key: K) -> Option<P> {
        if self.held_until <= now {
            return None;
        }
        let held = self.entries.get(&key).filter(|e| now < e.held_until);
        held.and_then(|entry| entry.home)
    }

    /// Counts a change of `key` from one place to another; returns the reaction.
    pub fn change(&mut self, now: Time, key: K, from: P, to: P) -> Verdict<P> {
        let (when_full, late_ms, confirmed) = (self.when_full, self.late_ms, self.owners_confirm);
        let Some(entry) = self.entry(now, key) else {
            return match when_full {
                WhenFull::Follow => Verdict::Follow,
                WhenFull::Keep => Verdict::Keep,
            };
        };
        let place = if now < entry.held_until {
            if !confirmed || !entry.is_alone(now, to) {
                return Verdict::Keep;
            }
            to
        } else {
            let is_late = |(place, when): (P, Time)| place == to && now < when.after(late_ms);
            if entry.left.is_some_and(is_late) {
                return Verdict::Keep;
            }
            if entry.pay(now, from, to) <= COST_MAX {
                return Verdict::Follow;
            }
            entry.home.unwrap_or(from)
        };
        let verdict = entry.hold_at(now, place);
        self.held_until = now.after(WINDOW_MS);
        verdict
    }

    /// Notes a change that another replica followed. Returns whether this replica follows it, too: not while it
    /// holds a place, because the other replica did not know that yet. But at the end of its hold, this replica follows:
    /// the hold of the other replica has ended, and the other replica does not repeat the change soon.
    pub fn note(&mut self, now: Time, key: K, from: P, to: P) -> bool {
        let Some(entry) = self.entry(now, key) else {
            return true;
        };
        if now.after(APART_MS) < entry.held_until {
            return false;
        }
        entry.held_until = entry.held_until.min(now);
        entry.pay(now, from, to);
        true
    }

    /// Notes that another replica holds a place; `None`: the place is unknown. Returns whether this replica holds it
    /// from now on, too: not if it holds a place already, unless the place is the only one that still claims the key
    /// (`again`).
    pub fn hold(&mut self, now: Time, key: K, place: Option<P>, again: bool) -> bool {
        let Some(entry) = self.entry(now, key) else {
            return true;
        };
        if now < entry.held_until && !again {
            return false;
        }
        entry.hold(now, place);
        self.held_until = now.after(WINDOW_MS);
        true
    }

    /// Removes all entries.
    pub fn clear(&mut self) {
        self.entries.clear();
        self.full_until = Time(0);
        self.held_until = Time(0);
    }

    /// The entry of a key, made if there is room; else `None`.
    fn entry(&mut self, now: Time, key: K) -> Option<&mut Entry<P>> {
        if !self.entries.contains_key(&key) && !self.has_room(now) {
            return None;
        }
        let entry = self.entries.entry(key).or_insert(Entry {
            since: now,
            cost: 0,
            former: [None; FORMER_MAX],
            home: None,
            left: None,
            rival: None,
            held_until: now,
            confirmed: now,
            known: false,
        });
        if entry.since.after(WINDOW_MS) <= now {
            entry.begin(now);
        }
        Some(entry)
    }

    /// Whether a new entry fits, after removal of expired ones. Reported conflicts are removed last, so
    /// that each is reported once.
    fn has_room(&mut self, now: Time) -> bool {
        if self.entries.len() < self.max {
            return true;
        }
        // A storm must not cause a search of the table for each packet.
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
    /// When the entry expires.
    fn over_at(&self) -> Time {
        self.since.after(WINDOW_MS).max(self.held_until)
    }

    fn is_over(&self, now: Time) -> bool {
        self.over_at() <= now
    }

    fn is_silent(&self, now: Time) -> bool {
        now < self.held_until && self.confirmed.after(SILENT_MS) <= now
    }

    /// Whether `to` alone has claimed the held key for a while.
    fn is_alone(&mut self, now: Time, to: P) -> bool {
        let rival = self.rival.filter(|(place, _)| *place == to);
        let (_, since) = *self.rival.insert(rival.unwrap_or((to, now)));
        since.after(ALONE_MS) <= now
    }

    fn hold_at(&mut self, now: Time, place: P) -> Verdict<P> {
        let again = now < self.held_until;
        let first = !self.known;
        self.hold(now, Some(place));
        Verdict::Hold {
            place,
            first,
            again,
        }
    }

    fn hold(&mut self, now: Time, place: Option<P>) {
        self.known = true;
        self.held_until = now.after(WINDOW_MS);
        self.confirmed = now;
        (self.home, self.left, self.rival) = (place, None, None);
        self.begin(self.held_until);
    }

    fn begin(&mut self, now: Time) {
        self.since = now;
        self.cost = 0;
        self.former = [None; FORMER_MAX];
    }

    /// Adds the cost of a change; returns the sum.
    fn pay(&mut self, now: Time, from: P, to: P) -> u8 {
        let settled = self
            .left
            .is_none_or(|(_, when)| when.after(SETTLED_MS) <= now);
        if settled {
            self.home = Some(from);
        }
        self.left = Some((from, now));
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
    const FOLLOWED: [Verdict<char>; 3] = [Verdict::Follow; 3];

    fn counted<K: Copy + Eq + Hash, P: Copy + PartialEq>(
        max: usize,
        when_full: WhenFull,
    ) -> Damping<K, P> {
        Damping::new(max, when_full)
    }

    fn hold<P>(first: bool, place: P) -> Verdict<P> {
        Verdict::Hold {
            place,
            first,
            again: false,
        }
    }

    /// A change between two places; updates `at` as its owner does.
    fn swap(d: &mut Damping<u16, char>, now: u64, at: &mut char) -> Verdict<char> {
        let to = if *at == 'a' { 'b' } else { 'a' };
        let verdict = d.change(Time(now), 1, *at, to);
        match verdict {
            Verdict::Keep => {}
            Verdict::Hold { place, .. } => *at = place,
            _ => *at = to,
        }
        verdict
    }

    #[test]
    fn three_changes_are_followed_then_the_first_place_is_kept_and_reported_once() {
        let mut d = counted(ENTRIES_MAX, WhenFull::Keep);
        let mut place = 'a';
        let mut at = |now| swap(&mut d, now, &mut place);
        assert_eq!([0, 1, 2].map(&mut at), FOLLOWED);
        assert_eq!(at(3), hold(true, 'a'));
        assert_eq!(at(10_002), Verdict::Keep);
        assert_eq!([10_003, 10_004, 10_005].map(&mut at), FOLLOWED);
        assert_eq!(at(10_006), hold(false, 'a'));
        assert_eq!(
            [40_000, 60_000, 80_000, 90_000, 99_000].map(at),
            [Verdict::Follow; 5]
        );
    }

    #[test]
    fn a_thing_at_ever_new_places_is_followed_longer_and_not_for_ever() {
        let mut d = counted(ENTRIES_MAX, WhenFull::Keep);
        let verdicts: Vec<_> = (0..8).map(|n| d.change(Time(0), 1, n, n + 1)).collect();
        assert_eq!(verdicts[..7], [Verdict::Follow; 7]);
        assert_eq!(verdicts[7], hold(true, 0));
    }

    #[test]
    fn replicas_count_together() {
        let (mut one, mut two) = (
            counted(256, WhenFull::Follow),
            counted(256, WhenFull::Follow),
        );
        for (now, from, to) in [(0, 'a', 'b'), (1, 'b', 'a'), (2, 'a', 'b')] {
            assert_eq!(one.change(Time(now), 1, from, to), Verdict::Follow);
            assert!(two.note(Time(now), 1, from, to));
        }
        assert_eq!(two.change(Time(4), 1, 'b', 'a'), hold(true, 'a'));
        assert!(one.hold(Time(4), 1, Some('a'), false));
        assert_eq!(one.change(Time(5), 1, 'b', 'a'), Verdict::Keep);
        // What the other replica did before it knew.
        assert!(!two.note(Time(5), 1, 'a', 'b'));
        assert!(!two.hold(Time(5), 1, Some('a'), false));
        assert!(two.note(Time(10_004), 1, 'a', 'b'));
    }

    /// The second replica got the message about the hold 3 ms later.
    #[test]
    fn a_replica_whose_hold_ends_later_follows_the_other_one() {
        let mut replicas =
            [(); 2].map(|()| counted::<u16, char>(ENTRIES_MAX, WhenFull::Keep).with_confirmation());
        for (replica, at) in replicas.iter_mut().zip([0, 3]) {
            assert!(replica.hold(Time(at), 1, Some('a'), false));
        }
        let [one, two] = &mut replicas;
        assert_eq!(one.change(Time(10_000), 1, 'a', 'b'), Verdict::Follow);
        assert!(two.note(Time(10_001), 1, 'a', 'b'));
        assert!(!two.confirm(Time(10_002), 1), "the hold is over");
        // The changes of both count.
        assert_eq!(two.change(Time(10_002), 1, 'b', 'a'), Verdict::Follow);
        assert!(one.note(Time(10_002), 1, 'b', 'a'));
        assert_eq!(one.change(Time(10_002), 1, 'a', 'b'), Verdict::Follow);
        assert!(two.note(Time(10_003), 1, 'a', 'b'));
        assert_eq!(two.change(Time(10_003), 1, 'b', 'a'), hold(false, 'a'));
    }

    #[test]
    fn a_held_place_is_known_until_the_hold_ends() {
        let mut d = counted(ENTRIES_MAX, WhenFull::Keep).with_confirmation();
        assert_eq!(d.held_at(Time(0), 1), None);
        let mut place = 'a';
        (0..4).for_each(|now| _ = swap(&mut d, now, &mut place));
        assert_eq!(d.held_at(Time(10_002), 1), Some('a'));
        assert_eq!(
            (d.held_at(Time(10_003), 1), d.held_at(Time(3), 2)),
            (None, None)
        );
        // Another place alone claims the key.
        d.hold(Time(20_000), 1, Some('c'), false);
        assert_eq!(d.change(Time(20_000), 1, 'c', 'b'), Verdict::Keep);
        assert_eq!(d.held_at(Time(22_199), 1), Some('c'));
        assert!(matches!(
            d.change(Time(22_200), 1, 'c', 'b'),
            Verdict::Hold { .. }
        ));
        assert_eq!(d.held_at(Time(22_200), 1), Some('b'));
        d.hold(Time(40_000), 1, None, false);
        assert_eq!(d.held_at(Time(40_000), 1), None);
    }

    /// A host changes its address. One of its threads still sends from the former one.
    #[test]
    fn late_packets_are_no_change_back() {
        let mut d = counted(ENTRIES_MAX, WhenFull::Keep).with_late(50);
        for (n, (from, to)) in ('a'..'e').zip('b'..).enumerate() {
            let now = n as u64 * 300;
            assert_eq!(d.change(Time(now), 1, from, to), Verdict::Follow);
            for late in [0, 1, 49] {
                assert_eq!(d.change(Time(now + late), 1, to, from), Verdict::Keep);
            }
        }
        // The former place is not left: two hosts claim the key.
        assert_eq!(d.change(Time(950), 1, 'e', 'd'), Verdict::Follow);
        d.clear();
        assert_eq!(d.change(Time(1000), 1, 'd', 'e'), Verdict::Follow);
        assert_eq!(d.change(Time(1049), 1, 'e', 'd'), Verdict::Keep);
    }

    /// A flood of forged packets is over, and the owner has another place.
    #[test]
    fn a_key_is_not_held_where_nobody_is() {
        let mut d = counted(ENTRIES_MAX, WhenFull::Keep).with_confirmation();
        assert!(!d.confirm(Time(0), 1));
        d.hold(Time(0), 1, Some('a'), false);
        let mut at = |now, to| d.change(Time(now), 1, 'a', to);
        assert_eq!(at(100, 'b'), Verdict::Keep);
        // Two others claim it.
        assert_eq!(at(2250, 'c'), Verdict::Keep);
        assert_eq!(at(2350, 'b'), Verdict::Keep);
        assert!(!d.is_silent(Time(1199), 1) && d.is_silent(Time(1200), 1));
        // The owner is there.
        assert!(d.confirm(Time(3000), 1));
        assert!(!d.is_silent(Time(4199), 1) && d.is_silent(Time(4200), 1));
        let mut at = |now, to| d.change(Time(now), 1, 'a', to);
        assert_eq!(at(3100, 'b'), Verdict::Keep);
        assert_eq!(at(5299, 'b'), Verdict::Keep);
        let alone = Verdict::Hold {
            place: 'b',
            first: false,
            again: true,
        };
        assert_eq!(at(5300, 'b'), alone);
        // Another replica holds the former place.
        let mut other = counted::<u16, char>(ENTRIES_MAX, WhenFull::Keep).with_confirmation();
        other.hold(Time(1000), 1, Some('a'), false);
        assert!(!other.hold(Time(5301), 1, Some('a'), false));
        assert!(other.hold(Time(5301), 1, Some('a'), true));
        assert!(other.confirm(Time(15_300), 1) && d.confirm(Time(15_299), 1));
        assert!(!other.confirm(Time(15_301), 1) && !d.confirm(Time(15_300), 1));
        assert!(!d.is_silent(Time(16_500), 1));
    }

    /// The window ends while a flood goes on: the place of that moment is not the home.
    #[test]
    fn a_flood_over_the_end_of_a_window_returns_to_the_place_of_before_it() {
        let mut d = counted(ENTRIES_MAX, WhenFull::Keep);
        let mut at = |now, from, to| d.change(Time(now), 1, from, to);
        assert_eq!(at(0, 'a', 'b'), Verdict::Follow);
        // Home is b by now.
        assert_eq!(at(9_998, 'b', '1'), Verdict::Follow);
        assert_eq!(at(9_999, '1', '2'), Verdict::Follow);
        for (from, to) in ['2', '3', '4', '5', '6', '7', '8'].into_iter().zip('3'..) {
            assert_eq!(at(10_000, from, to), Verdict::Follow);
        }
        assert_eq!(at(10_001, '9', 'x'), hold(true, 'b'));
    }

    /// A storm is no way around it: changes that do not fit in the table are not followed.
    #[test]
    fn memory_is_bounded_during_a_storm() {
        let mut d = counted(ENTRIES_MAX, WhenFull::Keep);
        let most = ENTRIES_MAX as u16;
        for n in 0..most + 1000 {
            let verdict = match n < most {
                true => Verdict::Follow,
                false => Verdict::Keep,
            };
            assert_eq!(d.change(Time(u64::from(n)), n, 'a', 'b'), verdict);
        }
        assert_eq!(d.entries.len(), ENTRIES_MAX);
        // The counted keys are unaffected.
        assert_eq!(d.change(Time(6000), 0, 'b', 'a'), Verdict::Follow);
        // An expired entry makes room for one key.
        let late = most + 1;
        assert_eq!(d.change(Time(9_999), late, 'a', 'b'), Verdict::Keep);
        assert_eq!(d.change(Time(10_000), late, 'a', 'b'), Verdict::Follow);
        assert_eq!(d.change(Time(10_000), late + 1, 'a', 'b'), Verdict::Keep);
        assert_eq!(d.entries.len(), ENTRIES_MAX);
        assert_eq!(d.change(Time(50_000), late + 1, 'a', 'b'), Verdict::Follow);
        assert_eq!(d.entries.len(), 1);
    }

    #[test]
    fn a_reported_conflict_is_remembered_while_there_is_room() {
        let mut d = counted(ENTRIES_MAX, WhenFull::Keep);
        d.hold(Time(0), 0, Some('a'), false);
        for n in 1..=ENTRIES_MAX as u16 {
            d.change(Time(0), n, 'a', 'b');
        }
        // All entries expire; the first one remains.
        d.change(Time(50_000), 9999, 'a', 'b');
        let mut place = 'a';
        let verdicts: Vec<_> = (50_001..50_005)
            .map(|now| {
                let to = if place == 'a' { 'b' } else { 'a' };
                let verdict = d.change(Time(now), 0, place, to);
                place = to;
                verdict
            })
            .collect();
        assert_eq!(verdicts[..3], FOLLOWED);
        assert_eq!(verdicts[3], hold(false, 'a'));
    }

    #[test]
    fn the_oldest_reported_conflict_makes_room() {
        let mut d = counted(4, WhenFull::Follow);
        (0..4).for_each(|n| assert!(d.hold(Time(n), n, Some('a'), false)));
        let late = |d: &mut Damping<u64, char>, n| d.change(Time(50_000), n, 'a', 'b');
        assert_eq!(late(&mut d, 9), Verdict::Follow);
        assert_eq!(d.entries.len(), 4);
        let known = d.entries.iter().filter(|(_, e)| e.known);
        let mut known: Vec<u64> = known.map(|(key, _)| *key).collect();
        known.sort_unstable();
        assert_eq!(known, [1, 2, 3]);
    }

    #[test]
    fn changes_that_are_not_counted_are_followed() {
        let mut d = counted(256, WhenFull::Follow);
        for n in 0..300u16 {
            assert_eq!(d.change(Time(0), n, 'a', 'b'), Verdict::Follow);
        }
        assert_eq!(d.entries.len(), 256);
        assert_eq!(d.change(Time(10_000), 999, 'a', 'b'), Verdict::Follow);
        assert!(d.entries.contains_key(&999) && d.entries.len() <= 256);
    }
}
