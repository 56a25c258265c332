//! MAC tables: what a member's table is to say, and the fewest messages that bring it there.
//!
//! An address keeps its place in a table for as long as it is there, so that an update never takes away,
//! not even for a moment, what it does not change.
//!
//! Agents keep with a table the digest of the last message that they have taken, whatever it is
//! (kernel opa_vnic_encap.c, `opa_vnic_update_mac_tbl`). A message may be taken late, or twice, and then
//! makes a mixture of a table that was right. So that this is seen, no two messages have the same digest:
//! it is a name, and says nothing about the content.
//! And since one may come late between two others, a table is read back once when it was written.

use std::collections::{BTreeMap, BTreeSet};

use proto::Mac;
use vnic::Lid;
use vnic::directory::NodeAddress;
use vnic::mac_table::MAC_TABLE_ENTRIES;

/// Entries of one message at most.
pub(super) const PAGE_ENTRIES: usize = vnic::mad::MAC_ENTRIES_PAGE;

/// What a table says: `dlid_sd` by address.
pub(super) type Content = BTreeMap<Mac, u32>;

/// A member's table, place by place.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Layout {
    places: Vec<Option<(Mac, u32)>>,
}

/// Places of a table from `offset` on, as one message has them; an empty place is an address of zeros.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Page {
    pub(super) offset: u16,
    pub(super) entries: Vec<Option<(Mac, u32)>>,
}

impl Layout {
    /// Puts in what was read, or what an agent has taken.
    pub(super) fn apply(&mut self, page: &Page) {
        for (at, entry) in page.entries.iter().enumerate() {
            let at = usize::from(page.offset) + at;
            if at >= MAC_TABLE_ENTRIES {
                return;
            }
            if self.places.len() <= at {
                self.places.resize(at + 1, None);
            }
            self.places[at] = *entry;
        }
    }

    /// What it says; of an address that is there twice the highest place counts.
    #[cfg(test)]
    pub(super) fn content(&self) -> Content {
        self.places.iter().copied().flatten().collect()
    }

    /// The messages that make it say `wanted`, in the order to send them.
    pub(super) fn plan(&self, wanted: &Content) -> Vec<Page> {
        let mut next = self.places.clone();
        let mut there = BTreeSet::new();
        // From above, since there the place counts whose address comes again below.
        for place in next.iter_mut().rev() {
            *place = place.and_then(|(mac, _)| match wanted.get(&mac) {
                Some(value) if there.insert(mac) => Some((mac, *value)),
                _ => None,
            });
        }
        let mut missing = wanted.iter().filter(|(mac, _)| !there.contains(*mac));
        for place in next.iter_mut().filter(|place| place.is_none()) {
            *place = missing.next().map(|(mac, value)| (*mac, *value));
        }
        next.extend(missing.map(|(mac, value)| Some((*mac, *value))));
        next.truncate(MAC_TABLE_ENTRIES);
        self.pages_to(&next)
    }

    /// Pages that begin and end with a change.
    fn pages_to(&self, next: &[Option<(Mac, u32)>]) -> Vec<Page> {
        let now = |at: usize| self.places.get(at).copied().flatten();
        let changed: Vec<usize> = (0..next.len()).filter(|at| now(*at) != next[*at]).collect();
        let mut pages = Vec::new();
        let mut rest = &changed[..];
        while let Some(&first) = rest.first() {
            let many = rest.partition_point(|at| *at < first + PAGE_ENTRIES);
            let last = rest[many - 1];
            pages.push(Page {
                // A place is below 2048.
                offset: u16::try_from(first).unwrap_or(u16::MAX),
                entries: next[first..=last].to_vec(),
            });
            rest = &rest[many..];
        }
        pages
    }
}

/// What the manager calls a switch's directory.
pub(super) fn directory_digest(nodes: &[(Lid, NodeAddress)]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    for (lid, address) in nodes {
        hasher.update(&lid.get().to_be_bytes());
        hasher.update(&address.gid.0);
        hasher.update(&address.qpn.to_bytes());
    }
    // 0 is none.
    hasher.finalize().max(1)
}

/// Tells contents from each other.
pub(super) fn content_sum(content: &Content) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    for (mac, value) in content {
        hasher.update(mac);
        hasher.update(&value.to_be_bytes());
    }
    hasher.finalize()
}

/// What tables are called: each name is given once in 2^32 times.
#[derive(Debug)]
pub(super) struct Names {
    last: u32,
}

impl Names {
    /// `mark` was drawn for this run, so that names of other runs are others.
    pub(super) const fn new(mark: u32) -> Names {
        Names { last: mark }
    }

    pub(super) fn give(&mut self) -> u32 {
        // 0 is a table that nobody has set.
        self.last = self.last.checked_add(1).unwrap_or(1);
        self.last
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn mac(n: u16) -> Mac {
        let [a, b] = n.to_be_bytes();
        [2, 0, 0, 0, a, b]
    }

    fn content() -> impl Strategy<Value = Content> {
        prop::collection::btree_map((0..600_u16).prop_map(mac), 0x100..0x105_u32, 0..400)
    }

    /// Applies all, and looks at each step for what must not go away.
    fn bring(layout: &mut Layout, wanted: &Content) -> usize {
        let before = layout.content();
        let pages = layout.plan(wanted);
        for page in &pages {
            assert!(!page.entries.is_empty() && page.entries.len() <= PAGE_ENTRIES);
            layout.apply(page);
            let now = layout.content();
            for (mac, value) in wanted {
                if before.get(mac) == Some(value) {
                    assert_eq!(now.get(mac), Some(value));
                }
            }
        }
        pages.len()
    }

    #[test]
    fn e07_a_full_table_is_17_messages() {
        let wanted: Content = (0..2048).map(|n| (mac(n), 0x100)).collect();
        let mut layout = Layout::default();
        assert_eq!(bring(&mut layout, &wanted), 17);
        assert_eq!(layout.content(), wanted);
        assert_eq!(layout.plan(&wanted), []);
    }

    #[test]
    fn an_address_that_moves_is_one_entry() {
        let mut wanted: Content = (0..500).map(|n| (mac(n), 0x100)).collect();
        let mut layout = Layout::default();
        bring(&mut layout, &wanted);
        wanted.insert(mac(300), 0x900);
        let pages = layout.plan(&wanted);
        assert_eq!(pages.len(), 1);
        assert_eq!(pages[0].entries, [Some((mac(300), 0x900))]);
    }

    #[test]
    fn more_than_fits_is_cut_off() {
        let wanted: Content = (0..2100).map(|n| (mac(n), 0x100)).collect();
        let mut layout = Layout::default();
        assert_eq!(bring(&mut layout, &wanted), 17);
        assert_eq!(layout.content().len(), 2048);
    }

    #[test]
    fn sums_tell_contents_apart() {
        let one: Content = [(mac(1), 0x100)].into();
        let other: Content = [(mac(1), 0x200)].into();
        assert_ne!(content_sum(&one), content_sum(&other));
        assert_ne!(content_sum(&one), content_sum(&Content::new()));
    }

    #[test]
    fn names_are_never_0_and_do_not_come_again() {
        let mut names = Names::new(u32::MAX - 2);
        let given: Vec<u32> = (0..4).map(|_| names.give()).collect();
        assert_eq!(given, [u32::MAX - 1, u32::MAX, 1, 2]);
    }

    proptest! {
        #[test]
        fn any_table_becomes_any_other(
            first in content(),
            second in content(),
            third in content(),
            strange in prop::collection::vec(
                prop::option::of(((0..600_u16).prop_map(mac), 0x100..0x105_u32)),
                0..300,
            ),
        ) {
            let mut layout = Layout::default();
            // What a former manager has left may have an address twice.
            for (at, part) in strange.chunks(PAGE_ENTRIES).enumerate() {
                let offset = u16::try_from(at * PAGE_ENTRIES).unwrap();
                layout.apply(&Page { offset, entries: part.to_vec() });
            }
            for wanted in [first, second, third] {
                bring(&mut layout, &wanted);
                prop_assert_eq!(layout.content(), wanted);
            }
        }
    }
}
