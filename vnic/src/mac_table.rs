//! MAC table of a virtual port, set by the Ethernet Manager.

use std::collections::HashMap;

use foldhash::fast::RandomState;
use proto::Mac;
use thiserror::Error;

use crate::Lid;

/// Entries of a MAC table (kernel opa_vnic_internal.h, OPA_VNIC_MAC_TBL_MAX_ENTRIES).
pub const MAC_TABLE_ENTRIES: usize = 2048;

/// One entry of the table. An all-zero address marks an empty entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct MacEntry {
    /// The address.
    pub mac: Mac,
    /// Stored and returned; has no effect (kernel opa_vnic_encap.c, `opa_vnic_chk_mac_tbl`).
    pub mask: Mac,
    /// The LID in the upper 24 bits, side data in the lower 8.
    pub dlid_sd: u32,
}

impl MacEntry {
    /// Side data: the entry is for a source address, not for a destination.
    pub const SOURCE: u32 = 0x20;

    /// The LID.
    #[must_use]
    pub const fn lid(&self) -> Lid {
        Lid::new(self.dlid_sd >> 8)
    }

    /// Whether the entry is for a source address.
    #[must_use]
    pub const fn is_source(&self) -> bool {
        self.dlid_sd & MacEntry::SOURCE != 0
    }

    /// Whether the entry is empty.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        matches!(self.mac, [0, 0, 0, 0, 0, 0])
    }
}

/// An update exceeds the table; the table is unchanged.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[error("{count} entries from index {offset} exceed the MAC table's {MAC_TABLE_ENTRIES} entries")]
pub struct BeyondTable {
    /// Index of the first entry.
    pub offset: usize,
    /// Number of entries.
    pub count: usize,
}

/// An immutable MAC table. An update creates a new table, so that no reader sees a half-done update.
#[derive(Clone, Debug, Default)]
pub struct MacTable {
    /// By index, up to the last entry that is not empty.
    places: Vec<Option<MacEntry>>,
    /// LIDs of the destination entries.
    lids: HashMap<Mac, Lid, RandomState>,
    digest: u32,
}

impl MacTable {
    /// Returns a new table with these entries from index `offset` on; all other entries stay.
    ///
    /// # Errors
    /// [`BeyondTable`], if the entries exceed the table.
    pub fn update(
        &self,
        offset: usize,
        entries: &[MacEntry],
        digest: u32,
    ) -> Result<MacTable, BeyondTable> {
        let count = entries.len();
        let end = offset.saturating_add(count);
        if end > MAC_TABLE_ENTRIES {
            return Err(BeyondTable { offset, count });
        }
        let mut places = self.places.clone();
        places.resize(places.len().max(end), None);
        for (place, entry) in places[offset..end].iter_mut().zip(entries) {
            *place = Some(*entry).filter(|entry| !entry.is_empty());
        }
        while places.pop_if(|place| place.is_none()).is_some() {}
        Ok(MacTable {
            // Of several entries for one address, the highest index applies: it is inserted last. In the
            // kernel's driver, the oldest entry applies and a new one has no effect.
            lids: destinations(&places).collect(),
            places,
            digest,
        })
    }

    /// Digest, set by the manager; 0: no table was set.
    #[must_use]
    pub const fn digest(&self) -> u32 {
        self.digest
    }

    /// Returns the LID of a destination, by all 48 bits of its address; `None` also if the entry's LID is
    /// 0.
    #[inline]
    #[must_use]
    pub fn lookup(&self, mac: Mac) -> Option<Lid> {
        if self.lids.is_empty() {
            return None;
        }
        let lid = self.lids.get(&mac).copied();
        lid.filter(|lid| *lid != Lid::NONE)
    }

    /// Returns the entry at an index.
    #[must_use]
    pub fn entry(&self, place: usize) -> Option<&MacEntry> {
        self.places.get(place)?.as_ref()
    }

    /// Indexes and entries without the empty ones, in ascending order.
    pub fn entries(&self) -> impl Iterator<Item = (usize, &MacEntry)> {
        let numbered = self.places.iter().enumerate();
        numbered.filter_map(|(place, entry)| Some((place, entry.as_ref()?)))
    }

    /// Destinations and their LIDs, in no particular order.
    pub fn destinations(&self) -> impl Iterator<Item = (Mac, Lid)> {
        self.lids.iter().map(|(mac, lid)| (*mac, *lid))
    }

    /// Number of entries.
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries().count()
    }

    /// Whether the table has no entries.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.places.is_empty()
    }
}

impl PartialEq for MacTable {
    /// Equal entries at equal indexes, and equal digests.
    fn eq(&self, other: &MacTable) -> bool {
        self.digest == other.digest && self.places == other.places
    }
}

impl Eq for MacTable {}

fn destinations(places: &[Option<MacEntry>]) -> impl Iterator<Item = (Mac, Lid)> {
    let entries = places.iter().flatten();
    let destinations = entries.filter(|entry| !entry.is_source());
    destinations.map(|entry| (entry.mac, entry.lid()))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    const A: Mac = [0x52, 0x54, 0, 0, 0, 0xa];
    const B: Mac = [0x52, 0x54, 0, 0, 0, 0xb];

    fn entry(mac: Mac, lid: u32, side: u32) -> MacEntry {
        MacEntry {
            mac,
            mask: [0xff; 6],
            dlid_sd: lid << 8 | side,
        }
    }

    fn table(entries: &[MacEntry]) -> MacTable {
        MacTable::default().update(0, entries, 1).unwrap()
    }

    #[test]
    fn t02_t03_t04_destinations_are_found_by_all_bits_and_source_entries_never() {
        let other_mask = MacEntry {
            mask: [0; 6],
            ..entry(B, 0x34_5678, 0xdf)
        };
        let t = table(&[entry(A, 5, MacEntry::SOURCE), other_mask]);
        assert_eq!(t.lookup(A), None);
        assert_eq!(t.lookup(B), Some(Lid::new(0x34_5678)));
        assert_eq!(t.lookup([0x52, 0x54, 0, 0, 1, 0xb]), None);
        assert_eq!(t.entry(0).unwrap().lid(), Lid::new(5));
    }

    #[test]
    fn a_destination_without_a_lid_is_not_found() {
        assert_eq!(table(&[entry(A, 0, 0)]).lookup(A), None);
    }

    #[test]
    fn m16_an_update_does_not_change_a_held_table() {
        let before = table(&[entry(A, 1, 0), entry(B, 2, 0)]);
        let held = before.clone();
        let after = before.update(0, &[entry(A, 3, 0), entry(B, 4, 0)], 2);
        let both = |t: &MacTable| [A, B].map(|mac| t.lookup(mac).map(Lid::get));
        assert_eq!(both(&held), [Some(1), Some(2)]);
        assert_eq!(both(&after.unwrap()), [Some(3), Some(4)]);
        assert_eq!(before, held);
    }

    #[test]
    fn of_several_entries_the_highest_index_applies() {
        let t = MacTable::default();
        let t = t.update(9, &[entry(A, 9, 0)], 1).unwrap();
        let t = t.update(3, &[entry(A, 3, 0)], 2).unwrap();
        assert_eq!(t.lookup(A), Some(Lid::new(9)));
        let t = t.update(9, &[MacEntry::default()], 3).unwrap();
        assert_eq!(t.lookup(A), Some(Lid::new(3)));
    }

    #[test]
    fn m12_m15_an_update_beyond_the_last_entry_is_refused_as_a_whole() {
        let t = table(&[entry(A, 1, 0)]);
        let last = MAC_TABLE_ENTRIES - 1;
        assert!(t.update(last, &[entry(B, 2, 0)], 2).is_ok());
        for (offset, count) in [(last, 2), (MAC_TABLE_ENTRIES, 1), (usize::MAX, 3)] {
            let refused = t.update(offset, &vec![entry(B, 2, 0); count], 2);
            assert_eq!(refused, Err(BeyondTable { offset, count }));
        }
        assert_eq!((t.digest(), t.lookup(B)), (1, None));
    }

    /// Index of the first entry; then for each entry the last byte of its address, its LID, and whether it
    /// is a source entry.
    type Change = (usize, Vec<(u8, u32, bool)>);

    fn updates() -> impl Strategy<Value = Vec<Change>> {
        let entries = prop::collection::vec((0..6_u8, 0..4_u32, any::<bool>()), 0..6);
        prop::collection::vec((0..12_usize, entries), 0..12)
    }

    proptest! {
        /// Compares the table with a map by index, searched from the highest index.
        #[test]
        fn m13_m14_a_table_matches_a_model(updates in updates()) {
            let mut t = MacTable::default();
            let mut model: BTreeMap<usize, MacEntry> = BTreeMap::new();
            for (digest, (offset, entries)) in updates.into_iter().enumerate() {
                // 0 gives an all-zero address, which empties the entry.
                let entries: Vec<MacEntry> = entries
                    .into_iter()
                    .map(|(mac, lid, source)| {
                        entry([0, 0, 0, 0, 0, mac], lid, if source { MacEntry::SOURCE } else { 0 })
                    })
                    .collect();
                t = t.update(offset, &entries, digest as u32).unwrap();
                for (at, entry) in entries.iter().enumerate() {
                    model.remove(&(offset + at));
                    if entry.mac != [0; 6] {
                        model.insert(offset + at, *entry);
                    }
                }
                prop_assert_eq!(t.digest(), digest as u32);
            }
            let entries: Vec<(usize, MacEntry)> = t.entries().map(|(at, e)| (at, *e)).collect();
            let expected: Vec<(usize, MacEntry)> = model.clone().into_iter().collect();
            prop_assert_eq!(entries, expected);
            prop_assert_eq!(t.len(), model.len());
            for last in 0..6 {
                let mac = [0, 0, 0, 0, 0, last];
                let found = model.values().rev().find(|e| e.mac == mac && !e.is_source());
                let expected = found.map(MacEntry::lid).filter(|lid| *lid != Lid::NONE);
                prop_assert_eq!(t.lookup(mac), expected);
            }
        }
    }
}
