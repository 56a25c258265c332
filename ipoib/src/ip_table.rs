//! The IP addresses of neighbours.

use std::hash::BuildHasher;
use std::net::IpAddr;

use foldhash::fast::RandomState;
use hashbrown::HashTable;

use crate::bounded::push_bounded;
use crate::neighbour::Link;

/// Number of entries checked for a victim when the table is full.
const PROBES: usize = 32;

#[derive(Clone, Copy)]
pub struct IpEntry {
    pub ip: IpAddr,
    pub owner: Link,
    /// Known only from the source address of data.
    pub weak: bool,
}

/// Bytes of an entry, its place in the map included.
pub const ENTRY_BYTES: usize = size_of::<IpEntry>() + size_of::<u32>() + 2;

pub struct IpTable {
    slots: Vec<IpEntry>,
    /// Slots, by the hash of their IP address.
    by_ip: HashTable<u32>,
    hasher: RandomState,
    max: usize,
    hand: usize,
}

impl IpTable {
    pub fn new(max: usize) -> IpTable {
        IpTable {
            slots: Vec::new(),
            by_ip: HashTable::new(),
            hasher: RandomState::default(),
            max,
            hand: 0,
        }
    }

    pub fn get(&self, ip: IpAddr) -> Option<IpEntry> {
        Some(self.slots[self.slot(ip)? as usize])
    }

    fn slot(&self, ip: IpAddr) -> Option<u32> {
        let same = |slot: &u32| self.slots[*slot as usize].ip == ip;
        self.by_ip.find(self.hasher.hash_one(ip), same).copied()
    }

    /// Adds the entry of `ip` in `slot` to the map.
    fn link(&mut self, ip: IpAddr, slot: u32) {
        let (slots, hasher) = (&self.slots, &self.hasher);
        let hash = |slot: &u32| hasher.hash_one(slots[*slot as usize].ip);
        self.by_ip.insert_unique(hasher.hash_one(ip), slot, hash);
    }

    /// Removes an entry from the map; it is still in its slot.
    fn unlink(&mut self, ip: IpAddr) -> Option<u32> {
        let same = |slot: &u32| self.slots[*slot as usize].ip == ip;
        let found = self.by_ip.find_entry(self.hasher.hash_one(ip), same).ok()?;
        Some(found.remove().0)
    }

    pub fn entries(&self) -> impl Iterator<Item = &IpEntry> {
        self.slots.iter()
    }

    #[cfg(test)]
    pub fn len(&self) -> usize {
        self.by_ip.len()
    }

    pub fn set(&mut self, ip: IpAddr, owner: Link, weak: bool) {
        let new = IpEntry { ip, owner, weak };
        if let Some(slot) = self.slot(ip) {
            self.slots[slot as usize] = new;
            return;
        }
        let slot = if self.slots.len() < self.max {
            push_bounded(&mut self.slots, self.max, new);
            self.slots.len() - 1
        } else {
            let slot = self.victim();
            self.unlink(self.slots[slot].ip);
            self.slots[slot] = new;
            slot
        };
        self.link(ip, slot as u32);
    }

    pub fn remove(&mut self, ip: IpAddr) {
        let Some(slot) = self.unlink(ip) else {
            return;
        };
        // The last entry moves to the free slot.
        let last = self.slots.len() as u32 - 1;
        if slot != last {
            let moved = self.slots[last as usize].ip;
            self.unlink(moved);
            self.slots.swap_remove(slot as usize);
            self.link(moved, slot);
        } else {
            self.slots.pop();
        }
    }

    /// The next weak entry, else the next entry, in the manner of a clock: the cost is bounded and no entry
    /// is chosen twice in a round.
    fn victim(&mut self) -> usize {
        let n = self.slots.len();
        let found = (0..PROBES.min(n))
            .map(|i| (self.hand + i) % n)
            .find(|i| self.slots[*i].weak)
            .unwrap_or(self.hand % n);
        self.hand = (found + 1) % n;
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stays_bounded_and_weak_entries_go_first() {
        let mut t = IpTable::new(4);
        let owner = Link {
            slot: 0,
            generation: 0,
        };
        let ip = |n: u32| IpAddr::from(std::net::Ipv4Addr::from(n));
        for n in 0..4 {
            t.set(ip(n), owner, n == 2);
        }
        t.set(ip(9), owner, false);
        assert!(t.get(ip(2)).is_none() && t.get(ip(9)).is_some());
        for n in 100..1000 {
            t.set(ip(n), owner, false);
        }
        assert_eq!((t.len(), t.entries().count()), (4, 4));
        assert!(t.get(ip(999)).is_some());
    }

    #[test]
    fn what_is_removed_leaves_the_others_where_they_are_found() {
        let mut t = IpTable::new(4);
        let owner = |slot| Link {
            slot,
            generation: 0,
        };
        let ip = |n: u32| IpAddr::from(std::net::Ipv4Addr::from(n));
        for n in 0..4 {
            t.set(ip(n), owner(n), false);
        }
        for n in [1, 3, 7] {
            t.remove(ip(n));
        }
        let left = [0, 1, 2, 3].map(|n| t.get(ip(n)).map(|e| e.owner.slot));
        assert_eq!(left, [Some(0), None, Some(2), None]);
        assert_eq!((t.len(), t.entries().count()), (2, 2));
    }
}
