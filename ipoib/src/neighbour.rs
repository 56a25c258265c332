//! The neighbour table: peers by their address and by their MAC on the TAP.

use std::collections::HashMap;
use std::hash::BuildHasher;
use std::net::IpAddr;

use foldhash::fast::RandomState;
use hashbrown::HashTable;
use proto::{AddressHandle, Gid, Mac, Qpn, Time};

use crate::address::{HardwareAddress, mac_key, next_peer_mac, peer_mac};
use crate::bounded::push_bounded;
use crate::connections::NO_ENTRY;
use crate::ip_table::IpTable;
use proto::lru::{Lru, Place, Placed};

/// Number of consecutive MACs to try for a peer. The hash is public, so an attacker may choose thousands of
/// peers that fill a row.
const IN_A_ROW: u32 = 16;

/// Minimum time between updates of a neighbour's time of use.
const TOUCH_MS: u64 = 1000;

/// A neighbour's slot and its generation: a link to a removed entry is invalid.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Link {
    pub slot: u32,
    pub generation: u32,
}

pub struct Neighbour {
    pub address: HardwareAddress,
    pub mac: Mac,
    /// It sent ARP or neighbour discovery, not only data.
    pub confirmed: bool,
    pub ah: Option<AddressHandle>,
    /// The queue pair that replaced this one after a restart.
    pub successor: Option<Link>,
    pub used: Time,
    /// The time of the last packet from it, to about a second.
    pub last_heard: Time,
    /// The time at which it was learned.
    pub since: Time,
    /// The time of the last update about it for other replicas.
    pub published: Time,
    /// The connection requested by this host, or [`NO_ENTRY`].
    pub connection: u32,
    /// The time of its last announcement.
    pub announced: Option<Time>,
    generation: u32,
    live: bool,
    place: Place,
}

/// The maximum size of an entry with its places in the two maps and one IP address.
const _: () = assert!(
    size_of::<Neighbour>() + 2 * size_of::<(u64, u32)>() + crate::ip_table::ENTRY_BYTES < 256
);

impl Placed for Neighbour {
    fn place(&mut self) -> &mut Place {
        &mut self.place
    }
}

type Key = (u128, u32);

fn key(gid: Gid, qpn: Qpn) -> Key {
    (u128::from_ne_bytes(gid.0), qpn.get())
}

impl Neighbour {
    fn key(&self) -> Key {
        key(self.address.gid(), self.address.qpn())
    }
}

/// The result of learning.
pub struct Learned {
    pub slot: u32,
    /// The other replicas need an update: a new entry, newly confirmed, or with other flags.
    pub news: bool,
    /// The peer's RC flag is new or changed.
    pub flags_changed: bool,
    pub collided: bool,
    /// The evicted neighbour.
    pub evicted: Option<HardwareAddress>,
}

pub struct Neighbours {
    slots: Vec<Neighbour>,
    by_mac: HashMap<u64, u32, RandomState>,
    /// Slots, by a hash of queue pair and GID.
    by_address: HashTable<u32>,
    free: Vec<u32>,
    confirmed: Lru,
    heard: Lru,
    max: usize,
    pub ips: IpTable,
    /// Address handles of removed entries; the caller must destroy them.
    pub released: Vec<AddressHandle>,
    /// Connections of removed entries; the caller must end them.
    pub orphans: Vec<u32>,
}

impl Neighbours {
    pub fn new(max: usize) -> Neighbours {
        let max = max.clamp(1, 1 << 24);
        Neighbours {
            slots: Vec::new(),
            by_mac: HashMap::default(),
            by_address: HashTable::new(),
            free: Vec::new(),
            confirmed: Lru::new(),
            heard: Lru::new(),
            max,
            ips: IpTable::new(2 * max),
            released: Vec::new(),
            orphans: Vec::new(),
        }
    }

    pub fn len(&self) -> usize {
        self.by_address.len()
    }

    /// Number of slots ever used; all slots are below it.
    pub fn slots(&self) -> u32 {
        self.slots.len() as u32
    }

    pub fn get(&self, slot: u32) -> &Neighbour {
        &self.slots[slot as usize]
    }

    pub fn get_mut(&mut self, slot: u32) -> &mut Neighbour {
        &mut self.slots[slot as usize]
    }

    /// The connection requested by this host to a neighbour, or [`NO_ENTRY`]; for any slot.
    pub fn connection_of(&self, slot: u32) -> u32 {
        self.slots
            .get(slot as usize)
            .map_or(NO_ENTRY, |n| n.connection)
    }

    pub fn live(&self) -> impl Iterator<Item = (Link, &Neighbour)> {
        self.slots
            .iter()
            .enumerate()
            .filter(|(_, n)| n.live)
            .map(|(i, n)| {
                let link = Link {
                    slot: i as u32,
                    generation: n.generation,
                };
                (link, n)
            })
    }

    pub fn by_mac(&self, mac: Mac) -> Option<u32> {
        self.by_mac.get(&mac_key(mac)).copied()
    }

    fn hash(&self, key: &Key) -> u64 {
        self.by_mac.hasher().hash_one(key)
    }

    pub fn by_address(&self, gid: Gid, qpn: Qpn) -> Option<u32> {
        let wanted = key(gid, qpn);
        let same = |slot: &u32| self.get(*slot).key() == wanted;
        self.by_address.find(self.hash(&wanted), same).copied()
    }

    pub fn link(&self, slot: u32) -> Link {
        Link {
            slot,
            generation: self.get(slot).generation,
        }
    }

    pub fn follow(&self, link: Link) -> Option<u32> {
        let n = self.slots.get(link.slot as usize)?;
        (n.live && n.generation == link.generation).then_some(link.slot)
    }

    /// The destination of frames for the entry: itself or its successor. `None` if the successor was
    /// removed: the peer counts as unknown.
    #[inline]
    pub fn current(&self, slot: u32) -> Option<u32> {
        match self.get(slot).successor {
            None => Some(slot),
            Some(link) => self.follow_chain(link),
        }
    }

    fn follow_chain(&self, mut link: Link) -> Option<u32> {
        // Restarts in quick succession make chains. No loop can form, because an entry that gains an
        // address loses its successor; the walk is bounded nevertheless.
        for _ in 0..16 {
            let slot = self.follow(link)?;
            match self.get(slot).successor {
                None => return Some(slot),
                Some(next) => link = next,
            }
        }
        None
    }

    /// The owner of an IP address, perhaps known only from the source address of data, which may be forged or routed:
    /// [`Neighbours::by_claimed_ip`] is the destination of packets.
    pub fn by_ip(&self, ip: IpAddr) -> Option<u32> {
        let slot = self.follow(self.ips.get(ip)?.owner)?;
        self.current(slot)
    }

    /// Notes a packet from or to the neighbour.
    #[inline]
    pub fn touch(&mut self, slot: u32, now: Time) {
        let n = &mut self.slots[slot as usize];
        if now.0.saturating_sub(n.used.0) >= TOUCH_MS {
            n.used = now;
            let list = if n.confirmed {
                &mut self.confirmed
            } else {
                &mut self.heard
            };
            list.touch(&mut self.slots, slot);
        }
    }

    /// Notes a packet from the neighbour. Once a second, returns the time of the previous one.
    #[inline]
    pub fn heard(&mut self, slot: u32, now: Time) -> Option<Time> {
        let last = &mut self.slots[slot as usize].last_heard;
        if now.0.saturating_sub(last.0) < TOUCH_MS {
            return None;
        }
        let before = std::mem::replace(last, now);
        self.touch(slot, now);
        Some(before)
    }

    /// Finds or adds the entry. `None` if the table is full of confirmed neighbours and this one is not
    /// confirmed.
    ///
    /// `wish` is the MAC that another replica chose. A MAC for which `taken` is true (used on the host
    /// side) is never assigned.
    pub fn learn(
        &mut self,
        now: Time,
        address: &HardwareAddress,
        confirmed: bool,
        wish: Option<Mac>,
        taken: impl Fn(Mac) -> bool,
    ) -> Option<Learned> {
        if let Some(slot) = self.by_address(address.gid(), address.qpn()) {
            let known = self.get(slot);
            let first = confirmed && !known.confirmed;
            let reflagged = confirmed && known.address != *address;
            if first {
                self.promote(slot);
            }
            if confirmed {
                self.get_mut(slot).address = *address;
            }
            self.heard(slot, now);
            return Some(Learned {
                slot,
                news: first || reflagged,
                flags_changed: first || reflagged,
                collided: false,
                evicted: None,
            });
        }
        let evicted = self.make_room(confirmed)?;
        let wanted = peer_mac(address);
        let mac = self.free_mac(wish.unwrap_or(wanted), taken, address);
        let slot = self.insert(now, address, confirmed, mac);
        Some(Learned {
            slot,
            news: confirmed,
            flags_changed: confirmed,
            collided: mac != wanted,
            evicted,
        })
    }

    /// Gives an entry another MAC: `wish`, or a successor of the present one.
    pub fn remap(&mut self, slot: u32, wish: Option<Mac>, taken: impl Fn(Mac) -> bool) -> Mac {
        let (former, address) = {
            let n = self.get(slot);
            (n.mac, n.address)
        };
        let mac = self.free_mac(
            wish.unwrap_or_else(|| next_peer_mac(former)),
            taken,
            &address,
        );
        self.by_mac.remove(&mac_key(former));
        self.by_mac.insert(mac_key(mac), slot);
        self.get_mut(slot).mac = mac;
        mac
    }

    /// Exchanges the MACs of two entries.
    pub fn swap_macs(&mut self, one: u32, other: u32) {
        let (mac, others) = (self.get(one).mac, self.get(other).mac);
        for (slot, mac) in [(one, others), (other, mac)] {
            self.get_mut(slot).mac = mac;
            self.by_mac.insert(mac_key(mac), slot);
        }
    }

    fn promote(&mut self, slot: u32) {
        self.heard.remove(&mut self.slots, slot);
        self.confirmed.push(&mut self.slots, slot);
        self.get_mut(slot).confirmed = true;
    }

    /// `None` if there is no room, else the evicted neighbour, if any.
    fn make_room(&mut self, confirmed: bool) -> Option<Option<HardwareAddress>> {
        if self.len() < self.max {
            return Some(None);
        }
        let oldest = match self.heard.oldest() {
            Some(slot) => slot,
            None if confirmed => self.confirmed.oldest()?,
            None => return None,
        };
        let address = self.get(oldest).address;
        self.forget(oldest);
        Some(Some(address))
    }

    /// Tries a few MACs in a row, then in another, unpredictable row. Terminates because the table is far
    /// smaller than the 2^40 addresses.
    fn free_mac(
        &self,
        mut mac: Mac,
        taken: impl Fn(Mac) -> bool,
        address: &HardwareAddress,
    ) -> Mac {
        let mut tries: u32 = 0;
        while taken(mac) || self.by_mac(mac).is_some() {
            tries += 1;
            mac = if tries.is_multiple_of(IN_A_ROW) {
                let [_, _, row @ ..] = self
                    .by_mac
                    .hasher()
                    .hash_one((address, tries))
                    .to_be_bytes();
                next_peer_mac(row)
            } else {
                next_peer_mac(mac)
            };
        }
        mac
    }

    fn insert(&mut self, now: Time, address: &HardwareAddress, confirmed: bool, mac: Mac) -> u32 {
        let mut new = Neighbour {
            address: *address,
            mac,
            confirmed,
            ah: None,
            successor: None,
            used: now,
            last_heard: now,
            since: now,
            published: now,
            connection: NO_ENTRY,
            announced: None,
            generation: 0,
            live: true,
            place: Place::default(),
        };
        let slot = match self.free.pop() {
            Some(slot) => {
                new.generation = self.get(slot).generation.wrapping_add(1);
                self.slots[slot as usize] = new;
                slot
            }
            None => {
                push_bounded(&mut self.slots, self.max, new);
                (self.slots.len() - 1) as u32
            }
        };
        let list = if confirmed {
            &mut self.confirmed
        } else {
            &mut self.heard
        };
        list.push(&mut self.slots, slot);
        self.by_mac.insert(mac_key(mac), slot);
        let hasher = self.by_mac.hasher();
        let hash = |slot: &u32| hasher.hash_one(self.slots[*slot as usize].key());
        self.by_address.insert_unique(hash(&slot), slot, hash);
        slot
    }

    /// Removes an entry; links to it become invalid.
    pub fn forget(&mut self, slot: u32) {
        let n = &mut self.slots[slot as usize];
        n.live = false;
        self.released.extend(n.ah.take());
        if n.connection != NO_ENTRY {
            self.orphans.push(n.connection);
        }
        let (mac, address, confirmed) = (n.mac, n.address, n.confirmed);
        let list = if confirmed {
            &mut self.confirmed
        } else {
            &mut self.heard
        };
        list.remove(&mut self.slots, slot);
        self.by_mac.remove(&mac_key(mac));
        let hash = self.hash(&key(address.gid(), address.qpn()));
        if let Ok(found) = self.by_address.find_entry(hash, |s| *s == slot) {
            found.remove();
        }
        self.free.push(slot);
    }

    /// Removes all entries. Slots and generations start again, so no [`Link`] may be kept.
    pub fn flush(&mut self) {
        let handles = self.slots.iter_mut().filter_map(|n| n.ah.take());
        let mut released = std::mem::take(&mut self.released);
        released.extend(handles);
        *self = Neighbours {
            released,
            ..Neighbours::new(self.max)
        };
    }

    /// The present entry that claimed an IP address.
    pub fn strong_owner(&self, ip: IpAddr) -> Option<u32> {
        let entry = self.ips.get(ip).filter(|e| !e.weak)?;
        self.follow(entry.owner)
    }

    /// The destination of packets for the entry that claimed an IP address.
    pub fn by_claimed_ip(&self, ip: IpAddr) -> Option<u32> {
        self.current(self.strong_owner(ip)?)
    }

    /// Whether an entry, or one that it succeeds, has an IP address.
    pub fn owns(&self, slot: u32, ip: IpAddr) -> bool {
        self.ips.get(ip).is_some_and(|e| self.leads(slot, e.owner))
    }

    /// Whether frames for an entry go to the same peer as those for the entry of a link.
    pub fn leads(&self, slot: u32, to: Link) -> bool {
        self.follow(to)
            .is_some_and(|to| to == slot || self.current(to) == self.current(slot))
    }

    /// The IP addresses that an entry claimed.
    pub fn ips_of(&self, slot: u32) -> impl Iterator<Item = IpAddr> {
        let link = self.link(slot);
        let strong = self
            .ips
            .entries()
            .filter(move |e| e.owner == link && !e.weak);
        strong.map(|e| e.ip)
    }

    /// Assigns an IP address to an entry. Returns the present entry that lost it, if any.
    ///
    /// A `weak` claim (the source address of data, which may be routed) never takes an address away.
    pub fn claim_ip(&mut self, ip: IpAddr, slot: u32, weak: bool) -> Claim {
        let link = self.link(slot);
        let before = self.ips.get(ip).filter(|e| self.follow(e.owner).is_some());
        match before {
            Some(e) if e.owner == link => {
                if e.weak && !weak {
                    self.ips.set(ip, link, false);
                    return Claim::New;
                }
                Claim::Known
            }
            Some(_) if weak => Claim::Known,
            Some(e) => {
                let loser = e.owner.slot;
                self.ips.set(ip, link, weak);
                Claim::From(loser)
            }
            None => {
                self.ips.set(ip, link, weak);
                Claim::New
            }
        }
    }

    /// Makes `new` the successor of `old` if both are queue pairs of the same port, as after a restart of
    /// the peer. The MAC of `old` remains valid.
    pub fn supersede(&mut self, old: u32, new: u32) -> bool {
        if old == new || self.get(old).address.gid() != self.get(new).address.gid() {
            return false;
        }
        let link = self.link(new);
        self.get_mut(new).successor = None;
        self.get_mut(old).successor = Some(link);
        true
    }
}

/// The change made by a claim of an IP address.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Claim {
    Known,
    New,
    /// The slot that had the address.
    From(u32),
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWN: fn(Mac) -> bool = |mac| mac == [6; 6];

    fn address(n: u32) -> HardwareAddress {
        HardwareAddress::new(0, Qpn::new(n), "fe80::1".parse().unwrap())
    }

    #[test]
    fn c57_no_two_peers_share_an_address_even_when_hashes_collide() {
        let mut t = Neighbours::new(8);
        let wish = [2, 0xff, 0xff, 0xff, 0xff, 0xff];
        let macs: Vec<Mac> = (2..6)
            .map(|n| {
                let l = t
                    .learn(Time(0), &address(n), true, Some(wish), OWN)
                    .unwrap();
                t.get(l.slot).mac
            })
            .collect();
        assert_eq!(macs[0], wish);
        assert_eq!(
            macs[1..],
            [[2, 0, 0, 0, 0, 0], [2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]]
        );
        for (n, mac) in macs.iter().enumerate() {
            let slot = t.by_mac(*mac).unwrap();
            assert_eq!(t.get(slot).address.qpn().get(), n as u32 + 2);
        }
    }

    #[test]
    fn a_long_row_of_taken_addresses_is_not_walked_to_its_end() {
        let mut t = Neighbours::new(1024);
        let wish = [2, 0, 0, 0, 0, 0];
        let mut learn = |n| {
            let l = t
                .learn(Time(0), &address(n), true, Some(wish), OWN)
                .unwrap();
            t.get(l.slot).mac
        };
        let macs: Vec<Mac> = (2..1002).map(&mut learn).collect();
        let row = |m: &&Mac| mac_key(**m) - mac_key(wish) < 1000;
        assert!(macs.iter().filter(row).count() < 100);
        assert!(macs.iter().all(|m| m[0] == 2));
        let distinct: std::collections::HashSet<_> = macs.iter().collect();
        assert_eq!(distinct.len(), macs.len());
    }

    #[test]
    fn a_peer_gets_another_unused_address() {
        let mut t = Neighbours::new(8);
        let wish = Some([2, 0, 0, 0, 0, 1]);
        let s: Vec<u32> = (2..4)
            .map(|n| t.learn(Time(0), &address(n), true, wish, OWN).unwrap().slot)
            .collect();
        assert_eq!(t.get(s[1]).mac, [2, 0, 0, 0, 0, 2]);
        let taken = |mac: Mac| mac[5] == 1 || mac[5] == 3;
        assert_eq!(t.remap(s[0], None, taken), [2, 0, 0, 0, 0, 4]);
        assert_eq!(t.by_mac([2, 0, 0, 0, 0, 1]), None);
        assert_eq!(t.by_mac([2, 0, 0, 0, 0, 4]), Some(s[0]));
        let wish = Some([2, 0, 0, 0, 0, 9]);
        assert_eq!(t.remap(s[0], wish, taken), [2, 0, 0, 0, 0, 9]);
    }

    #[test]
    fn data_sources_make_room_first_and_never_push_out_confirmed_ones() {
        let mut t = Neighbours::new(3);
        let mut learn = |n, c| {
            t.learn(Time(0), &address(n), c, None, OWN)
                .map(|l| l.evicted.is_some())
        };
        assert_eq!(learn(10, true), Some(false));
        assert_eq!(learn(11, false), Some(false));
        assert_eq!(learn(12, false), Some(false));
        assert_eq!(learn(13, true), Some(true));
        assert_eq!(learn(14, true), Some(true));
        assert_eq!(learn(15, false), None);
        assert_eq!(learn(16, true), Some(true));
        let left = |n| t.by_address(address(n).gid(), Qpn::new(n)).is_some();
        assert_eq!(
            [10, 11, 12, 13, 14, 15, 16].map(left),
            [false, false, false, true, true, false, true]
        );
        assert_eq!(t.len(), 3);
    }

    #[test]
    fn links_to_a_reused_slot_lead_nowhere() {
        let mut t = Neighbours::new(1);
        let ip: IpAddr = "10.0.0.1".parse().unwrap();
        let a = t.learn(Time(0), &address(2), true, None, OWN).unwrap().slot;
        assert_eq!(t.claim_ip(ip, a, false), Claim::New);
        let b = t.learn(Time(0), &address(3), true, None, OWN).unwrap().slot;
        assert_eq!((a, b), (0, 0));
        assert_eq!(t.by_ip(ip), None);
    }

    #[test]
    fn chains_of_restarts_lead_to_the_last() {
        let mut t = Neighbours::new(8);
        let s: Vec<u32> = (2..6)
            .map(|n| t.learn(Time(0), &address(n), true, None, OWN).unwrap().slot)
            .collect();
        for w in s.windows(2) {
            assert!(t.supersede(w[0], w[1]));
        }
        assert!(s.iter().all(|x| t.current(*x) == Some(s[3])));
        assert!(t.supersede(s[3], s[0]));
        assert!(s.iter().all(|x| t.current(*x) == Some(s[0])));
        let elsewhere = HardwareAddress::new(0, Qpn::new(9), "fe80::2".parse().unwrap());
        let e = t.learn(Time(0), &elsewhere, true, None, OWN).unwrap().slot;
        assert!(!t.supersede(s[0], e));
    }
}
