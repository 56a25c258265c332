//! Table of learned Ethernet addresses and their LIDs.
//!
//! A lookup touches two cache lines in a table of any size: the index contains all that sending needs. The
//! order of use is in the separate entries, updated once a second for each address.

use std::hash::BuildHasher;

use foldhash::fast::RandomState;
use hashbrown::HashTable;
use proto::Mac;
use proto::lru::{Lru, Place, Placed};

use crate::Lid;

/// Time in seconds.
pub type Second = u32;

/// An address in the index.
#[derive(Clone, Copy)]
struct Known {
    mac: Mac,
    /// Lower bits of the second in which the address was last seen.
    heard: u16,
    lid: u32,
    slot: u32,
}

const _: () = assert!(size_of::<Known>() == 16);

/// The rest of an address's data.
#[derive(Clone, Copy)]
struct Entry {
    mac: Mac,
    /// This replica, not another one, learned and counted the address.
    ours: bool,
    heard: Second,
    /// When the last update for the other replicas was published.
    published: Option<Second>,
    place: Place,
}

impl Placed for Entry {
    fn place(&mut self) -> &mut Place {
        &mut self.place
    }
}

/// State of an address that was seen.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Heard {
    /// Known at this LID, and already seen in this second.
    Known,
    /// Known at this LID, and first seen in this second. The time is that of the last update for the other
    /// replicas.
    Again(Option<Second>),
    /// Known at this other LID.
    Elsewhere(Lid),
    /// Unknown.
    Unknown,
}

/// Numbers of removed addresses.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Gone {
    /// All removed addresses.
    pub all: usize,
    /// Removed addresses that this replica learned.
    pub ours: usize,
}

/// A bounded table of addresses.
pub struct Macs {
    index: HashTable<Known>,
    entries: Vec<Entry>,
    free: Vec<u32>,
    order: Lru,
    hash: RandomState,
    max: usize,
}

impl Macs {
    /// Creates an empty table for up to `max` addresses. It allocates memory as it grows.
    pub fn new(max: usize) -> Macs {
        Macs {
            index: HashTable::new(),
            entries: Vec::new(),
            free: Vec::new(),
            order: Lru::new(),
            hash: RandomState::default(),
            max: max.clamp(1, 1 << 24),
        }
    }

    fn len(&self) -> usize {
        self.index.len()
    }

    /// Whether the next new address evicts another one.
    pub fn is_full(&self) -> bool {
        self.len() >= self.max
    }

    /// LID of an address.
    #[inline]
    pub fn lookup(&self, mac: Mac) -> Option<Lid> {
        if self.index.is_empty() {
            return None;
        }
        let found = self.index.find(self.hash_of(mac), |known| known.mac == mac);
        found.map(|known| Lid::new(known.lid))
    }

    /// Updates the time of an address seen at `lid`. Does not change its LID.
    #[inline]
    pub fn hear(&mut self, second: Second, mac: Mac, lid: Lid) -> Heard {
        let hash = self.hash_of(mac);
        let Some(known) = self.index.find_mut(hash, |known| known.mac == mac) else {
            return Heard::Unknown;
        };
        if known.lid != lid.get() {
            return Heard::Elsewhere(Lid::new(known.lid));
        }
        if known.heard == second as u16 {
            return Heard::Known;
        }
        known.heard = second as u16;
        let slot = known.slot;
        self.order.touch(&mut self.entries, slot);
        let entry = &mut self.entries[slot as usize];
        entry.heard = second;
        Heard::Again(entry.published)
    }

    /// Sets the LID of an address. Returns the evicted addresses: those not seen for the longest time.
    pub fn set(&mut self, second: Second, mac: Mac, lid: Lid, ours: bool) -> Gone {
        let hash = self.hash_of(mac);
        if let Some(known) = self.index.find_mut(hash, |known| known.mac == mac) {
            known.lid = lid.get();
            known.heard = second as u16;
            let slot = known.slot;
            self.order.touch(&mut self.entries, slot);
            let entry = &mut self.entries[slot as usize];
            entry.heard = second;
            entry.ours |= ours;
            entry.published = None;
            return Gone::default();
        }
        let gone = self.make_room();
        let slot = self.new_slot(Entry {
            mac,
            ours,
            heard: second,
            published: None,
            place: Place::default(),
        });
        let known = Known {
            mac,
            heard: second as u16,
            lid: lid.get(),
            slot,
        };
        let state = &self.hash;
        let rehash = |known: &Known| state.hash_one(key(known.mac));
        self.index.insert_unique(hash, known, rehash);
        gone
    }

    /// Sets when the last update of an address was published.
    pub fn set_published(&mut self, second: Second, mac: Mac) {
        let found = self.index.find(self.hash_of(mac), |known| known.mac == mac);
        if let Some(slot) = found.map(|known| known.slot) {
            self.entries[slot as usize].published = Some(second);
        }
    }

    /// Removes an address. Returns whether it was known.
    pub fn remove(&mut self, mac: Mac) -> bool {
        let hash = self.hash_of(mac);
        let Ok(found) = self.index.find_entry(hash, |known| known.mac == mac) else {
            return false;
        };
        let (known, _) = found.remove();
        self.order.remove(&mut self.entries, known.slot);
        self.free.push(known.slot);
        self.shrink();
        true
    }

    /// Keeps only addresses whose LID satisfies `keep`.
    pub fn retain(&mut self, keep: impl Fn(Lid) -> bool) {
        let gone = self.index.iter().filter(|known| !keep(Lid::new(known.lid)));
        let macs: Vec<Mac> = gone.map(|known| known.mac).collect();
        for mac in macs {
            self.remove(mac);
        }
    }

    /// Removes all addresses.
    pub fn clear(&mut self) {
        *self = Macs::new(self.max);
    }

    /// When the least recently seen address was last seen.
    pub fn oldest(&self) -> Option<Second> {
        let slot = self.order.oldest()?;
        Some(self.entries[slot as usize].heard)
    }

    /// Removes up to `most` addresses that were last seen in second `until` or before.
    pub fn expire(&mut self, until: Second, most: usize) -> Gone {
        let mut gone = Gone::default();
        while gone.all < most && self.oldest().is_some_and(|heard| heard <= until) {
            self.remove_oldest(&mut gone);
        }
        gone
    }

    /// Addresses, their LIDs, and when they were last seen; in no particular order.
    pub fn iter(&self) -> impl Iterator<Item = (Mac, Lid, Second)> {
        self.index.iter().map(|known| {
            let heard = self.entries[known.slot as usize].heard;
            (known.mac, Lid::new(known.lid), heard)
        })
    }

    #[inline]
    fn hash_of(&self, mac: Mac) -> u64 {
        self.hash.hash_one(key(mac))
    }

    fn make_room(&mut self) -> Gone {
        let mut gone = Gone::default();
        while self.is_full() {
            self.remove_oldest(&mut gone);
        }
        gone
    }

    fn remove_oldest(&mut self, gone: &mut Gone) {
        let Some(slot) = self.order.oldest() else {
            return;
        };
        let Entry { mac, ours, .. } = self.entries[slot as usize];
        self.remove(mac);
        gone.all += 1;
        gone.ours += usize::from(ours);
    }

    fn new_slot(&mut self, entry: Entry) -> u32 {
        let slot = match self.free.pop() {
            Some(slot) => {
                self.entries[slot as usize] = entry;
                slot
            }
            None => {
                self.entries.push(entry);
                (self.entries.len() - 1) as u32
            }
        };
        self.order.push(&mut self.entries, slot);
        slot
    }

    /// Frees the memory of a large table that has become empty.
    fn shrink(&mut self) {
        if self.index.is_empty() && self.entries.len() > 1024 {
            self.clear();
        }
    }
}

/// The address as an integer, which hashes faster.
#[inline]
const fn key(mac: Mac) -> u64 {
    let [a, b, c, d, e, f] = mac;
    u64::from_le_bytes([a, b, c, d, e, f, 0, 0])
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn mac(n: u32) -> Mac {
        let [a, b, c, d] = n.to_be_bytes();
        [0x52, 0x54, a, b, c, d]
    }

    fn lid(n: u32) -> Lid {
        Lid::new(n + 1)
    }

    #[test]
    fn the_least_recently_seen_address_is_evicted() {
        let mut t = Macs::new(3);
        for n in 0..3 {
            assert_eq!(t.set(n, mac(n), lid(n), n == 1), Gone::default());
        }
        assert_eq!(t.hear(3, mac(0), lid(0)), Heard::Again(None));
        assert_eq!(t.hear(3, mac(0), lid(0)), Heard::Known);
        assert_eq!(t.set(4, mac(9), lid(9), true), Gone { all: 1, ours: 1 });
        assert_eq!(t.lookup(mac(1)), None);
        assert_eq!(t.set(5, mac(8), lid(8), true), Gone { all: 1, ours: 0 });
        assert_eq!((t.lookup(mac(2)), t.lookup(mac(0))), (None, Some(lid(0))));
        assert_eq!(t.len(), 3);
    }

    #[test]
    fn an_address_elsewhere_stays_until_it_is_set() {
        let mut t = Macs::new(8);
        t.set(0, mac(1), lid(1), true);
        t.set_published(0, mac(1));
        assert_eq!(t.hear(7, mac(1), lid(2)), Heard::Elsewhere(lid(1)));
        assert_eq!(t.oldest(), Some(0));
        t.set(7, mac(1), lid(2), true);
        // The other replicas need an update, because the address moved.
        assert_eq!(t.hear(8, mac(1), lid(2)), Heard::Again(None));
        assert_eq!(t.lookup(mac(1)), Some(lid(2)));
    }

    #[test]
    fn a_second_after_a_wrap_of_the_short_count_is_another_one() {
        let mut t = Macs::new(8);
        t.set(0, mac(1), lid(1), true);
        assert_eq!(t.hear(0x1_0001, mac(1), lid(1)), Heard::Again(None));
        assert_eq!(t.oldest(), Some(0x1_0001));
    }

    #[test]
    fn a_storm_stays_within_the_memory_bound_and_frees_it() {
        let mut t = Macs::new(10_000);
        let mut gone = 0;
        for n in 0..1_000_000 {
            gone += t.set(n / 1000, mac(n), lid(n % 7), true).all;
        }
        assert_eq!((t.len(), gone), (10_000, 990_000));
        assert_eq!((t.entries.len(), t.free.len()), (10_000, 0));
        assert_eq!(t.expire(u32::MAX, 4000).all, 4000);
        assert_eq!(t.expire(u32::MAX, usize::MAX).all, 6000);
        assert_eq!((t.entries.capacity(), t.index.capacity()), (0, 0));
    }

    proptest! {
        /// Compares the table with a vector in the order of use.
        #[test]
        fn the_table_matches_a_model(steps in prop::collection::vec((0..12_u32, 0..3_u32, 0..4_u8), 0..200)) {
            let mut t = Macs::new(6);
            let mut model: Vec<(u32, u32, u32)> = Vec::new();
            for (second, (n, at, what)) in steps.into_iter().enumerate() {
                let second = second as u32;
                let known = model.iter().position(|(m, ..)| *m == n);
                match what {
                    0 => {
                        let heard = t.hear(second, mac(n), lid(at));
                        match known.map(|k| (k, model[k])) {
                            None => prop_assert_eq!(heard, Heard::Unknown),
                            Some((_, (_, l, _))) if l != at => {
                                prop_assert_eq!(heard, Heard::Elsewhere(lid(l)));
                            }
                            Some((k, (m, l, _))) => {
                                prop_assert_eq!(heard, Heard::Again(None));
                                model.remove(k);
                                model.push((m, l, second));
                            }
                        }
                    }
                    1 => {
                        let gone = t.set(second, mac(n), lid(at), true);
                        if let Some(k) = known {
                            model.remove(k);
                        }
                        model.push((n, at, second));
                        let full = model.len() > 6;
                        prop_assert_eq!(gone.all, usize::from(full));
                        if full {
                            model.remove(0);
                        }
                    }
                    2 => {
                        prop_assert_eq!(t.remove(mac(n)), known.is_some());
                        model.retain(|(m, ..)| *m != n);
                    }
                    _ => {
                        let until = second.saturating_sub(8);
                        let gone = t.expire(until, usize::MAX);
                        let before = model.len();
                        model.retain(|(_, _, heard)| *heard > until);
                        prop_assert_eq!(gone.all, before - model.len());
                    }
                }
                let mut all: Vec<(u32, u32, u32)> = model.clone();
                all.sort_unstable();
                let mut got: Vec<(Mac, Lid, u32)> = t.iter().collect();
                got.sort_unstable();
                let expected: Vec<(Mac, Lid, u32)> =
                    all.into_iter().map(|(m, l, s)| (mac(m), lid(l), s)).collect();
                prop_assert_eq!(got, expected);
                prop_assert_eq!(t.oldest(), model.first().map(|m| m.2));
            }
        }
    }
}
