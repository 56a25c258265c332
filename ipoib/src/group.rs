//! Multicast groups: joined and send-only.

use std::collections::{HashMap, HashSet};

use foldhash::fast::RandomState;
use proto::{AddressHandle, Gid, Time};

use crate::bounded::push_bounded;
use proto::lru::{Lru, Place, Placed};

pub struct Group {
    pub mgid: Gid,
    pub joined: bool,
    /// The slot is in use.
    live: bool,
    pub ah: Option<AddressHandle>,
    pub created: Time,
    place: Place,
}

impl Placed for Group {
    fn place(&mut self) -> &mut Place {
        &mut self.place
    }
}

pub struct Groups {
    slots: Vec<Group>,
    by_mgid: HashMap<u128, u32, RandomState>,
    send_only: Lru,
    joined: Lru,
    free: Vec<u32>,
    max: usize,
    pub released: Vec<AddressHandle>,
    pub evicted: u64,
}

fn key(mgid: Gid) -> u128 {
    u128::from_ne_bytes(mgid.0)
}

/// The slot of the broadcast group, which is never evicted.
pub const BROADCAST: u32 = 0;

impl Groups {
    pub fn new(broadcast: Gid, max: usize) -> Groups {
        let max = max.clamp(2, 1 << 24);
        let mut groups = Groups {
            slots: Vec::new(),
            by_mgid: HashMap::default(),
            send_only: Lru::new(),
            joined: Lru::new(),
            free: Vec::new(),
            max,
            released: Vec::new(),
            evicted: 0,
        };
        let slot = groups.insert(Time(0), broadcast, true);
        // In no list, so it is never the oldest.
        groups.joined.remove(&mut groups.slots, slot);
        groups
    }

    pub fn get(&self, slot: u32) -> &Group {
        &self.slots[slot as usize]
    }

    pub fn get_mut(&mut self, slot: u32) -> &mut Group {
        &mut self.slots[slot as usize]
    }

    pub fn iter(&self) -> impl Iterator<Item = &Group> {
        self.slots.iter().filter(|g| g.live)
    }

    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut Group> {
        self.slots.iter_mut()
    }

    /// Finds the group or adds a send-only one.
    pub fn for_sending(&mut self, now: Time, mgid: Gid) -> u32 {
        match self.by_mgid.get(&key(mgid)) {
            Some(&slot) => {
                if !self.get(slot).joined {
                    self.send_only.touch(&mut self.slots, slot);
                }
                slot
            }
            None => self.insert(now, mgid, false),
        }
    }

    fn insert(&mut self, now: Time, mgid: Gid, joined: bool) -> u32 {
        let new = Group {
            mgid,
            joined,
            live: true,
            ah: None,
            created: now,
            place: Place::default(),
        };
        let slot = if let Some(slot) = self.free.pop() {
            self.slots[slot as usize] = new;
            slot
        } else if self.slots.len() < self.max {
            push_bounded(&mut self.slots, self.max, new);
            (self.slots.len() - 1) as u32
        } else {
            let slot = self.take_oldest();
            self.slots[slot as usize] = new;
            slot
        };
        let list = if joined {
            &mut self.joined
        } else {
            &mut self.send_only
        };
        list.push(&mut self.slots, slot);
        self.by_mgid.insert(key(mgid), slot);
        slot
    }

    /// Frees a slot: that of the least recently used send-only group, else of a joined one. Only the entry
    /// for sending is lost, not the membership.
    fn take_oldest(&mut self) -> u32 {
        let slot = match (self.send_only.oldest(), self.joined.oldest()) {
            (Some(slot), _) => {
                self.send_only.remove(&mut self.slots, slot);
                slot
            }
            (None, Some(slot)) => {
                self.joined.remove(&mut self.slots, slot);
                slot
            }
            (None, None) => {
                unreachable!("a full table has another slot than the broadcast group's")
            }
        };
        self.forget(slot);
        self.evicted += 1;
        slot
    }

    /// Clears a slot that is in no list.
    fn forget(&mut self, slot: u32) {
        let old = &mut self.slots[slot as usize];
        old.live = false;
        self.released.extend(old.ah.take());
        self.by_mgid.remove(&key(old.mgid));
    }

    /// Releases all address handles and removes send-only groups.
    pub fn flush(&mut self) {
        for slot in 0..self.slots.len() as u32 {
            let g = self.get_mut(slot);
            let ah = g.ah.take();
            let forgotten = g.live && !g.joined;
            self.released.extend(ah);
            if forgotten {
                self.send_only.remove(&mut self.slots, slot);
                self.forget(slot);
                self.free.push(slot);
            }
        }
    }

    /// Marks exactly `groups` and the broadcast group as joined. A group that was left is removed, as in
    /// the kernel's driver; sending to it adds it again.
    pub fn set_joined(&mut self, now: Time, groups: &[Gid]) {
        let wanted: HashSet<u128> = groups.iter().map(|g| key(*g)).collect();
        for slot in 1..self.slots.len() as u32 {
            let g = self.get(slot);
            if g.live && g.joined && !wanted.contains(&key(g.mgid)) {
                self.joined.remove(&mut self.slots, slot);
                self.forget(slot);
                self.free.push(slot);
            }
        }
        for mgid in groups {
            match self.by_mgid.get(&key(*mgid)).copied() {
                Some(BROADCAST) => {}
                Some(slot) => {
                    if !self.get(slot).joined {
                        self.get_mut(slot).joined = true;
                        self.send_only.remove(&mut self.slots, slot);
                        self.joined.push(&mut self.slots, slot);
                    }
                }
                None => {
                    self.insert(now, *mgid, true);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gid(n: u16) -> Gid {
        let mut g: Gid = "ff12:401b:ffff::".parse().unwrap();
        g.0[14..].copy_from_slice(&n.to_be_bytes());
        g
    }

    #[test]
    fn bounded_and_the_broadcast_group_stays() {
        let broadcast = gid(0xffff);
        let mut g = Groups::new(broadcast, 16);
        g.set_joined(Time(0), &[broadcast, gid(1), gid(2)]);
        for n in 10..1000 {
            let slot = g.for_sending(Time(1), gid(n));
            g.get_mut(slot).ah = Some(AddressHandle(u32::from(n)));
        }
        assert_eq!(g.iter().count(), 16);
        assert_eq!(g.get(BROADCAST).mgid, broadcast);
        let joined: Vec<Gid> = g.iter().filter(|g| g.joined).map(|g| g.mgid).collect();
        assert_eq!(joined, [broadcast, gid(1), gid(2)]);
        assert_eq!(g.released.len(), 990 - 13);
        assert_eq!(g.evicted, 990 - 13);
    }

    #[test]
    fn a_group_that_was_left_is_forgotten_and_its_slot_used_again() {
        let mut g = Groups::new(gid(0xffff), 4);
        g.set_joined(Time(0), &[gid(1)]);
        g.set_joined(Time(0), &[gid(2)]);
        let state: Vec<_> = g.iter().skip(1).map(|g| (g.mgid, g.joined)).collect();
        assert_eq!(state, [(gid(2), true)]);
        let again = g.for_sending(Time(3), gid(1));
        assert!(!g.get(again).joined && g.get(again).created == Time(3));
        g.set_joined(Time(4), &[]);
        g.set_joined(Time(4), &[gid(2)]);
        assert_eq!(g.iter().count(), 3);
        let slot = g.for_sending(Time(5), gid(2));
        assert!(g.get(slot).joined && g.get(slot).created == Time(4));
    }
}
