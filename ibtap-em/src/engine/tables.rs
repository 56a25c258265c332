//! MAC tables: the content of a member's table, and the fewest messages that produce it.
//!
//! An address keeps its place in a table, so an update never removes an unchanged entry, not even for a
//! moment.
//!
//! Agents store with a table the digest of the last accepted message, whatever its content (kernel
//! opa_vnic_encap.c, `opa_vnic_update_mac_tbl`). A late or repeated message can leave a mixture in the table.
//! To make that visible, each message has a unique digest: an identifier, not a checksum of the content. A
//! message may also arrive late between two others; therefore a table is read back once after it was written.

use std::collections::{BTreeMap, BTreeSet};

use proto::Mac;
use vnic::Lid;
use vnic::directory::NodeAddress;
use vnic::mac_table::MAC_TABLE_ENTRIES;

/// Maximum number of entries in a message.
pub(super) const PAGE_ENTRIES: usize = vnic::mad::MAC_ENTRIES_PAGE;

/// Content of a table: `dlid_sd` by address.
pub(super) type Content = BTreeMap<Mac, u32>;

/// A member's table, place by place.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Layout {
    places: Vec<Option<(Mac, u32)>>,
}

/// Places of a table from `offset`, for one message. An empty place is an address of zeros.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Page {
    pub(super) offset: u16,
    pub(super) entries: Vec<Option<(Mac, u32)>>,
}

impl Layout {
    /// Applies a page that was read or that an agent has accepted.
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

    /// The content; of a repeated address, the highest place counts.
    #[cfg(test)]
    pub(super) fn content(&self) -> Content {
        self.places.iter().copied().flatten().collect()
    }

    /// The messages that change the content to `wanted`, in the order to send them.
    pub(super) fn plan(&self, wanted: &Content) -> Vec<Page> {
        let mut next = self.places.clone();
        let mut there = BTreeSet::new();
        // From the end: of a repeated address, the highest place counts.
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
                // Places are below 2048.
                offset: u16::try_from(first).unwrap_or(u16::MAX),
                entries: next[first..=last].to_vec(),
            });
            rest = &rest[many..];
        }
        pages
    }
}

/// Digest of a switch's directory.
pub(super) fn directory_digest(nodes: &[(Lid, NodeAddress)]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    for (lid, address) in nodes {
        hasher.update(&lid.get().to_be_bytes());
        hasher.update(&address.gid.0);
        hasher.update(&address.qpn.to_bytes());
    }
    // 0 means no directory.
    hasher.finalize().max(1)
}

/// Checksum of a content, to compare contents.
pub(super) fn content_sum(content: &Content) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    for (mac, value) in content {
        hasher.update(mac);
        hasher.update(&value.to_be_bytes());
    }
    hasher.finalize()
}

/// Source of digests for tables: each digest repeats after 2^32 others.
#[derive(Debug)]
pub(super) struct Names {
    last: u32,
}

impl Names {
    /// `mark` is a random number of this run, so that runs use different digests.
    pub(super) const fn new(mark: u32) -> Names {
        Names { last: mark }
    }

    pub(super) fn give(&mut self) -> u32 {
        // 0 means that no manager has set the table.
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

    /// Applies all pages. At each step, no unchanged entry may be missing.
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
    fn sums_distinguish_contents() {
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
            // The table of a former manager may contain an address twice.
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
