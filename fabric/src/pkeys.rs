//! The P_Key table of a port: its partitions, and its membership in each (IBA vol. 1, 10.9.2).
//!
//! A port has one P_Key table, replaced as a whole at run time. A queue pair holds an index into the
//! table, and a different index restarts it, so entries stay at their index. A removed entry leaves an
//! empty place (0x0000), as a subnet manager does; a new key takes it later.
//!
//! An endpoint uses the first full entry of its partition, otherwise the first limited one; its packets
//! carry that entry. MGIDs always have the full form. Without an entry the queue pair waits in RESET
//! and keeps its number; no data thread knows it. When the entry changes, by value or index, the queue
//! pair restarts (ERR, RESET, INIT, RTR, RTS) and its connections end, as in the kernel's heavy flush;
//! listeners stay. Other queue pairs lose no packet. Every queue pair compares the key of received
//! packets with its entry: two limited members never communicate. QP1 accepts every key of the table
//! and answers in the request's partition.

use std::collections::HashSet;

use proto::PKey;

/// The value of an empty place (IBA vol. 1, 10.9.2: a partition number of 0 is invalid).
pub const EMPTY: PKey = PKey::new(0);

/// Maximum number of places: the count is a 16-bit field (IBA vol. 1, 14.2.5.3, PartitionCap).
pub const PLACES_MAX: usize = u16::MAX as usize;

/// An entry of a table with its index.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Entry {
    /// Index, counted from 0.
    pub index: u16,
    /// Full or limited.
    pub pkey: PKey,
}

/// A P_Key table with at least one valid entry.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PKeyTable(Vec<PKey>);

impl Default for PKeyTable {
    /// Full membership in the default partition.
    fn default() -> PKeyTable {
        PKeyTable(vec![PKey::DEFAULT])
    }
}

impl PKeyTable {
    /// Creates a table with these entries in these places. Invalid keys (0x0000, 0x8000) and repeated
    /// keys become empty places; entries past [`PLACES_MAX`] are dropped. A table without any entry
    /// becomes the default table.
    pub fn new(mut entries: Vec<PKey>) -> PKeyTable {
        entries.truncate(PLACES_MAX);
        let mut seen = HashSet::new();
        for pkey in &mut entries {
            if !pkey.is_valid() || !seen.insert(*pkey) {
                *pkey = EMPTY;
            }
        }
        trim(&mut entries);
        if entries.is_empty() {
            return PKeyTable::default();
        }
        PKeyTable(entries)
    }

    /// All places, in order.
    pub fn places(&self) -> &[PKey] {
        &self.0
    }

    /// The entry that a queue pair of a partition uses: the first full one, otherwise the first limited
    /// one (kernel drivers/infiniband/core/device.c, `ib_find_pkey`).
    pub fn find(&self, partition: PKey) -> Option<Entry> {
        let full = self.place_of(partition.full());
        full.or_else(|| self.place_of(PKey::new(partition.get() & 0x7fff)))
    }

    fn place_of(&self, pkey: PKey) -> Option<Entry> {
        if !pkey.is_valid() {
            return None;
        }
        let index = self.0.iter().position(|&k| k == pkey)?;
        u16::try_from(index).ok().map(|index| Entry { index, pkey })
    }

    /// Whether a packet with this key may reach QP1, which accepts any key of the table (IBA vol. 1,
    /// 10.9.8).
    pub fn admits(&self, pkey: PKey) -> bool {
        self.0.iter().any(|k| k.matches(pkey))
    }

    /// The entry for management datagrams outside any other partition: the default partition's entry,
    /// otherwise a full one, otherwise any.
    pub fn management(&self) -> Entry {
        let valid = || (0..).zip(&self.0).filter(|(_, k)| k.is_valid());
        let full = || valid().find(|(_, k)| k.is_full());
        self.find(PKey::DEFAULT)
            .or_else(|| {
                let (index, &pkey) = full().or_else(|| valid().next())?;
                Some(Entry { index, pkey })
            })
            .unwrap_or(Entry {
                index: 0,
                pkey: PKey::DEFAULT,
            })
    }
}

/// The places of a table with exactly the entries `wanted`, made from `present`: a kept entry keeps its
/// place, a removed entry leaves an empty place, and a new entry takes the first empty place. The
/// change then affects only the queue pairs concerned.
///
/// Ignores invalid keys and keys beyond [`PLACES_MAX`].
pub fn keep_places(present: &[PKey], wanted: &[PKey]) -> Vec<PKey> {
    let stays: HashSet<PKey> = wanted.iter().copied().filter(|k| k.is_valid()).collect();
    let mut seen = HashSet::new();
    let kept = present.iter().map(|&k| {
        if stays.contains(&k) && seen.insert(k) {
            k
        } else {
            EMPTY
        }
    });
    let mut places: Vec<PKey> = kept.collect();
    let mut next = 0;
    for &new in wanted {
        if !new.is_valid() || !seen.insert(new) {
            continue;
        }
        while places.get(next).is_some_and(|k| k.is_valid()) {
            next += 1;
        }
        match places.get_mut(next) {
            Some(empty) => *empty = new,
            None => places.push(new),
        }
    }
    trim(&mut places);
    places.truncate(PLACES_MAX);
    places
}

/// Removes empty places at the end.
fn trim(places: &mut Vec<PKey>) {
    let used = places.iter().rposition(|k| k.is_valid());
    places.truncate(used.map_or(0, |last| last + 1));
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn keys(keys: &[u16]) -> Vec<PKey> {
        keys.iter().copied().map(PKey::new).collect()
    }

    fn found(table: &[u16], partition: u16) -> Option<(u16, u16)> {
        let entry = PKeyTable::new(keys(table)).find(PKey::new(partition))?;
        Some((entry.index, entry.pkey.get()))
    }

    #[test]
    fn c85_a_full_entry_is_found_before_a_limited_one_in_either_order() {
        for asked in [0x0001, 0x8001] {
            assert_eq!(found(&[0xffff, 0x0001, 0x8001], asked), Some((2, 0x8001)));
            assert_eq!(found(&[0xffff, 0x8001, 0x0001], asked), Some((1, 0x8001)));
            assert_eq!(found(&[0xffff, 0x0001], asked), Some((1, 0x0001)));
            assert_eq!(found(&[0xffff, 0x8002], asked), None);
        }
    }

    #[test]
    fn c83_invalid_keys_are_no_entries() {
        assert_eq!(found(&[0, 0x8000, 0x8001], 0x8001), Some((2, 0x8001)));
        for invalid in [0, 0x8000] {
            assert_eq!(found(&[0, 0x8000, 0x8001], invalid), None);
        }
        let table = PKeyTable::new(keys(&[0, 0x8000]));
        assert_eq!(table, PKeyTable::default());
        assert!(!PKeyTable::new(keys(&[0, 0x8001])).admits(PKey::new(0)));
    }

    #[test]
    fn a_key_has_one_place_and_a_table_has_an_end() {
        let table = PKeyTable::new(keys(&[0x8001, 0x8002, 0x8001, 0x0001, 0x8001, 0]));
        assert_eq!(table.places(), keys(&[0x8001, 0x8002, 0, 0x0001]));
        let all = (0..=0xffff).cycle().take(200_000).map(PKey::new).collect();
        let table = PKeyTable::new(all);
        assert_eq!(table.places().len(), PLACES_MAX);
        let last = table.find(PKey::new(0x7ffe)).unwrap();
        assert_eq!((last.index, last.pkey.get()), (0xfffe, 0xfffe));
    }

    #[test]
    fn management_prefers_the_default_partition_then_a_full_entry() {
        let management = |table: &[u16]| {
            let entry = PKeyTable::new(keys(table)).management();
            (entry.index, entry.pkey.get())
        };
        assert_eq!(management(&[0x8001, 0xffff]), (1, 0xffff));
        assert_eq!(management(&[0x8001, 0x7fff]), (1, 0x7fff));
        assert_eq!(management(&[0, 0x0003, 0x8001, 0x8002]), (2, 0x8001));
        assert_eq!(management(&[0, 0x0003, 0x0001]), (1, 0x0003));
        assert_eq!(management(&[]), (0, 0xffff));
    }

    #[test]
    fn places_are_kept_left_empty_and_taken_again() {
        let present = keys(&[0xffff, 0x8001, 0x8002, 0x8003]);
        let places = keep_places(&present, &keys(&[0x8003, 0xffff, 0x8002]));
        assert_eq!(places, keys(&[0xffff, 0, 0x8002, 0x8003]));
        let places = keep_places(&places, &keys(&[0xffff, 0x8003, 0x8002, 0x8009, 0x800a]));
        assert_eq!(places, keys(&[0xffff, 0x8009, 0x8002, 0x8003, 0x800a]));
        assert_eq!(keep_places(&places, &keys(&[0xffff])), keys(&[0xffff]));
        assert!(keep_places(&places, &[]).is_empty());
    }

    fn table() -> impl Strategy<Value = Vec<PKey>> {
        // Few partitions, so that collisions occur.
        let key = (0u16..6, any::<bool>()).prop_map(|(n, full)| n | u16::from(full) << 15);
        proptest::collection::vec(key.prop_map(PKey::new), 0..20)
    }

    proptest! {
        #[test]
        fn what_is_found_is_the_kernels_choice(entries in table(), partition in 0u16..6) {
            let table = PKeyTable::new(entries.clone());
            // The loop of ib_find_pkey.
            let (mut full, mut partial) = (None, None);
            for (i, k) in table.places().iter().enumerate() {
                if k.get() & 0x7fff == partition & 0x7fff && partition & 0x7fff != 0 {
                    if k.is_full() {
                        full = full.or(Some(i));
                        break;
                    }
                    partial = partial.or(Some(i));
                }
            }
            let expected = full.or(partial);
            let found = table.find(PKey::new(partition));
            prop_assert_eq!(found.map(|e| usize::from(e.index)), expected);
            prop_assert!(found.is_none_or(|e| table.places()[usize::from(e.index)] == e.pkey));
        }

        #[test]
        fn kept_places_are_the_wanted_keys_and_move_nobody(present in table(), wanted in table()) {
            let present = PKeyTable::new(present).places().to_vec();
            let places = keep_places(&present, &wanted);
            let set = |keys: &[PKey]| -> HashSet<PKey> {
                keys.iter().copied().filter(|k| k.is_valid()).collect()
            };
            prop_assert_eq!(set(&places), set(&wanted));
            prop_assert_eq!(set(&places).len(), places.iter().filter(|k| k.is_valid()).count());
            for (at, k) in present.iter().enumerate() {
                if k.is_valid() && set(&wanted).contains(k) {
                    prop_assert_eq!(places[at], *k);
                }
            }
        }
    }
}
