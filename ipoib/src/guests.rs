//! Guests: hosts behind the interface with Ethernet addresses other than its own, as behind a
//! bridge. The fabric has one address for all of them, so that what arrives is told apart by the IP
//! address (MAC-NAT).
//!
//! The table takes no memory before there is a guest. It is bounded, and makes room where it hurts
//! least: presumptions first, then addresses known from data only, then those that were heard of
//! once; so that a flood of forged senders does not push out a host that is at work.
//!
//! Hosts behind the interface have MACs other than the interface's: other ports of a bridge,
//! macvlans. The fabric has one address for all of them, so a table from IP address to MAC selects
//! the receiver.
//!
//! * ARP, neighbour discovery and DHCP leases define an address. The source address of data is a
//!   hint only, because the sender may route. A hint takes no address from a peer. A hint starts a
//!   query on the host's side, in the name of the peer for which the data is; the answer defines
//!   the address. So a migrated guest that sends only data is found.
//! * While there are hosts behind the interface, or another interface is stacked on it, packets for
//!   an unknown address wait (three of them, half a second) for a query on the host's side. Without
//!   an answer, the host itself gets them for a minute, because it may be a router. In other cases
//!   the cost is a comparison of the source MAC.
//! * An address moves to the last claimant, on either side. If a host behind the interface takes an
//!   address from a peer, the core announces it on the fabric. The core follows an alternating
//!   address three times in ten seconds, then keeps its owner for ten seconds and reports it once
//!   (`address_conflicts`). It follows an owner that is new each time (a bridge that takes the MAC
//!   of another port) seven times.
//! * When nothing is stacked on the interface any more, the table is empty.
//! * A MAC of a host behind the interface never stands for a peer. On a collision the peer gets
//!   another MAC, announced on the host's side by gratuitous ARP and unsolicited advertisements. A
//!   frame from the TAP with a peer's MAC and its IP address has come back through a loop and is
//!   dropped (`tx_looped`).
//! * Frames that a bridge has flooded for a host behind the interface are dropped (`tx_to_guest`),
//!   without a query on the fabric.
//! * Replicas exchange news, and every 20 s the addresses in use, so that an address that is
//!   unheard for 30 minutes expires in all of them.

use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;

use foldhash::fast::RandomState;

use crate::address::mac_key;
use proto::lru::{Lru, Place, Placed};
use proto::{Mac, Time};

/// An address that was not heard of for so long is no guest's any more.
const AGE_MS: u64 = 30 * 60 * 1000;
/// How long an address that nobody answered for is presumed to be behind the host itself.
const PRESUMED_MS: u64 = 60 * 1000;
/// Use is noted at most this often for one address.
const TOUCH_MS: u64 = 1000;
/// Ethernet addresses remembered of guests without an IP address.
const BARE_MAX: usize = 256;

/// How well an address is known, which is also the order in which room is made.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Standing {
    /// Nobody answered for it: packets go to the host itself, which may be a router.
    Presumed,
    /// Seen as the source address of data, which may be routed.
    Weak,
    /// Said by ARP, neighbour discovery or DHCP.
    Said,
    /// Said, and heard of again a second later or more.
    Settled,
}

const STANDINGS: [Standing; 4] = [
    Standing::Presumed,
    Standing::Weak,
    Standing::Said,
    Standing::Settled,
];

#[derive(Clone, Copy)]
pub struct Guest {
    pub ip: IpAddr,
    pub mac: Mac,
    pub standing: Standing,
    /// When it was last heard of, to about a second.
    pub used: Time,
    /// When other replicas were last told.
    pub told: Time,
    place: Place,
}

impl Guest {
    /// Not only presumed.
    pub fn is_real(&self) -> bool {
        self.standing > Standing::Presumed
    }

    pub fn is_weak(&self) -> bool {
        self.standing == Standing::Weak
    }

    pub fn idle_ms(&self, now: Time) -> u64 {
        now.0.saturating_sub(self.used.0)
    }

    fn ends(&self) -> Time {
        self.used
            .after(if self.is_real() { AGE_MS } else { PRESUMED_MS })
    }
}

impl Placed for Guest {
    fn place(&mut self) -> &mut Place {
        &mut self.place
    }
}

/// The table: IP addresses of guests and of the host itself, and the guests' Ethernet addresses.
pub struct Guests {
    /// The interface's own address, which makes no guest.
    own: Mac,
    slots: Vec<Guest>,
    free: Vec<u32>,
    by_ip: HashMap<IpAddr, u32, RandomState>,
    /// How often each guest's Ethernet address occurs in `slots` and `bare`.
    macs: HashMap<u64, u32, RandomState>,
    /// Ethernet addresses that were seen without an IP address, oldest first.
    bare: VecDeque<(Mac, Time)>,
    lists: [Lru; 4],
    max: usize,
}

impl Guests {
    pub fn new(max: usize, own: Mac) -> Guests {
        Guests {
            own,
            slots: Vec::new(),
            free: Vec::new(),
            by_ip: HashMap::default(),
            macs: HashMap::default(),
            bare: VecDeque::new(),
            lists: [const { Lru::new() }; 4],
            max: max.clamp(1, 1 << 24),
        }
    }

    /// Whether there is no guest; the host's own addresses do not count.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.macs.is_empty()
    }

    #[inline]
    pub fn get(&self, ip: IpAddr) -> Option<&Guest> {
        self.by_ip.get(&ip).map(|slot| &self.slots[*slot as usize])
    }

    /// Whether a guest has the Ethernet address.
    #[inline]
    pub fn knows(&self, mac: Mac) -> bool {
        self.macs.contains_key(&mac_key(mac))
    }

    /// What is known, presumptions left out.
    pub fn iter(&self) -> impl Iterator<Item = &Guest> {
        let slots = self.by_ip.values().map(|slot| &self.slots[*slot as usize]);
        slots.filter(|g| g.is_real())
    }

    /// Remembers an Ethernet address that has no IP address yet. True if it was unknown.
    pub fn note_mac(&mut self, now: Time, mac: Mac) -> bool {
        if mac == self.own || self.knows(mac) {
            return false;
        }
        if self.bare.len() >= BARE_MAX
            && let Some((oldest, _)) = self.bare.pop_front()
        {
            self.leave(oldest);
        }
        self.bare.push_back((mac, now));
        self.enter(mac);
        true
    }

    /// Notes that an address was heard of. True if that had not been noted lately.
    pub fn touch(&mut self, now: Time, ip: IpAddr) -> bool {
        let Some(slot) = self.by_ip.get(&ip).copied() else {
            return false;
        };
        let guest = &mut self.slots[slot as usize];
        if guest.idle_ms(now) < TOUCH_MS {
            return false;
        }
        guest.used = now;
        let standing = guest.standing;
        match standing {
            Standing::Said => self.restand(slot, Standing::Settled),
            _ => self.lists[standing as usize].touch(&mut self.slots, slot),
        }
        true
    }

    /// Notes that other replicas have been told of an address.
    pub fn set_told(&mut self, now: Time, ip: IpAddr) {
        if let Some(slot) = self.by_ip.get(&ip) {
            self.slots[*slot as usize].told = now;
        }
    }

    /// Gives an address to a guest or to the host itself. `None` when the table is full of better
    /// known ones; otherwise what made room.
    pub fn set(&mut self, now: Time, ip: IpAddr, mac: Mac, standing: Standing) -> Option<Evicted> {
        let evicted = match self.by_ip.get(&ip).copied() {
            Some(slot) => {
                self.remove(slot);
                None
            }
            None => self.make_room(standing)?,
        };
        let new = Guest {
            ip,
            mac,
            standing,
            used: now,
            told: now,
            place: Place::default(),
        };
        let slot = match self.free.pop() {
            Some(slot) => {
                self.slots[slot as usize] = new;
                slot
            }
            None => {
                self.slots.push(new);
                (self.slots.len() - 1) as u32
            }
        };
        self.lists[standing as usize].push(&mut self.slots, slot);
        self.by_ip.insert(ip, slot);
        self.enter(mac);
        Some(evicted)
    }

    /// Forgets an address; gives what was known of it.
    pub fn forget(&mut self, ip: IpAddr) -> Option<Guest> {
        let slot = self.by_ip.get(&ip).copied()?;
        Some(self.remove(slot))
    }

    /// The interface's own address changed: forgets what was known of it and of the former. Gives
    /// the IP addresses.
    pub fn set_own(&mut self, own: Mac) -> Vec<IpAddr> {
        let former = std::mem::replace(&mut self.own, own);
        let of_them = |g: &&Guest| g.mac == former || g.mac == own;
        let slots = self.by_ip.values().map(|slot| &self.slots[*slot as usize]);
        let ips: Vec<IpAddr> = slots.filter(of_them).map(|g| g.ip).collect();
        self.bare.retain(|(mac, _)| *mac != own);
        self.macs.remove(&mac_key(own));
        let forgotten = ips.into_iter().filter_map(|ip| self.forget(ip));
        forgotten.filter(Guest::is_real).map(|g| g.ip).collect()
    }

    /// Forgets an address that was not heard of for too long; call until `None`.
    pub fn expire(&mut self, now: Time) -> Option<Guest> {
        while let Some((mac, since)) = self.bare.front().copied()
            && since.after(AGE_MS) <= now
        {
            self.bare.pop_front();
            self.leave(mac);
        }
        let slot = self
            .oldest()
            .find(|s| self.slots[*s as usize].ends() <= now)?;
        Some(self.remove(slot))
    }

    /// When [`Guests::expire`] has something to do.
    pub fn next_deadline(&self) -> Option<Time> {
        let bare = self.bare.front().map(|(_, since)| since.after(AGE_MS));
        let listed = self.oldest().map(|slot| self.slots[slot as usize].ends());
        listed.chain(bare).min()
    }

    fn oldest(&self) -> impl Iterator<Item = u32> {
        self.lists.iter().filter_map(Lru::oldest)
    }

    fn make_room(&mut self, standing: Standing) -> Option<Evicted> {
        if self.by_ip.len() < self.max {
            return Some(None);
        }
        // Whoever spoke may push out anybody, data only what is no better known.
        let limit = standing.max(match standing {
            Standing::Said | Standing::Settled => Standing::Settled,
            _ => Standing::Presumed,
        });
        let worst = STANDINGS.iter().filter(|s| **s <= limit);
        let slot = worst
            .filter_map(|s| self.lists[*s as usize].oldest())
            .next()?;
        Some(Some(self.remove(slot)))
    }

    fn restand(&mut self, slot: u32, standing: Standing) {
        let former = std::mem::replace(&mut self.slots[slot as usize].standing, standing);
        self.lists[former as usize].remove(&mut self.slots, slot);
        self.lists[standing as usize].push(&mut self.slots, slot);
    }

    fn remove(&mut self, slot: u32) -> Guest {
        let guest = self.slots[slot as usize];
        self.lists[guest.standing as usize].remove(&mut self.slots, slot);
        self.by_ip.remove(&guest.ip);
        self.free.push(slot);
        self.leave(guest.mac);
        guest
    }

    fn enter(&mut self, mac: Mac) {
        if mac != self.own {
            *self.macs.entry(mac_key(mac)).or_default() += 1;
        }
    }

    fn leave(&mut self, mac: Mac) {
        if let Some(times) = self.macs.get_mut(&mac_key(mac)) {
            *times -= 1;
            if *times == 0 {
                self.macs.remove(&mac_key(mac));
            }
        }
    }
}

/// What made room, if anything had to.
pub type Evicted = Option<Guest>;

#[cfg(test)]
mod tests {
    use super::*;

    const OWN: Mac = [6; 6];

    fn ip(n: u32) -> IpAddr {
        std::net::Ipv4Addr::from(0x0a00_0000 + n).into()
    }

    fn mac(n: u32) -> Mac {
        let [a, b, c, d] = n.to_be_bytes();
        [0x52, 0x54, a, b, c, d]
    }

    fn set(t: &mut Guests, now: u64, n: u32, standing: Standing) -> Option<Option<IpAddr>> {
        let evicted = t.set(Time(now), ip(n), mac(n), standing)?;
        Some(evicted.map(|g| g.ip))
    }

    #[test]
    fn room_is_made_where_it_hurts_least() {
        let mut t = Guests::new(4, OWN);
        for (n, standing) in [
            (1, Standing::Said),
            (2, Standing::Weak),
            (3, Standing::Said),
        ] {
            assert_eq!(set(&mut t, 0, n, standing), Some(None));
        }
        assert_eq!(set(&mut t, 0, 4, Standing::Presumed), Some(None));
        assert!(t.touch(Time(1000), ip(1)));
        assert!(!t.touch(Time(1500), ip(1)));
        assert_eq!(set(&mut t, 2000, 5, Standing::Said), Some(Some(ip(4))));
        assert_eq!(set(&mut t, 2000, 6, Standing::Presumed), None);
        assert_eq!(set(&mut t, 2000, 6, Standing::Weak), Some(Some(ip(2))));
        assert_eq!(set(&mut t, 2000, 7, Standing::Said), Some(Some(ip(6))));
        assert_eq!(set(&mut t, 2000, 8, Standing::Weak), None);
        assert_eq!(set(&mut t, 2000, 8, Standing::Said), Some(Some(ip(3))));
        // Settled ones stay while others can go.
        for n in 100..200 {
            assert!(set(&mut t, 2000, n, Standing::Said).is_some());
        }
        assert!(t.get(ip(1)).is_some() && t.knows(mac(1)) && !t.knows(mac(3)));
        assert_eq!((t.by_ip.len(), t.macs.len(), t.slots.len()), (4, 4, 4));
    }

    #[test]
    fn what_is_not_heard_of_is_forgotten() {
        let mut t = Guests::new(8, OWN);
        set(&mut t, 0, 1, Standing::Said);
        set(&mut t, 0, 2, Standing::Weak);
        set(&mut t, 0, 3, Standing::Presumed);
        t.note_mac(Time(0), mac(9));
        assert_eq!(t.next_deadline(), Some(Time(60_000)));
        assert_eq!(t.expire(Time(60_000)).map(|g| g.ip), Some(ip(3)));
        assert!(t.expire(Time(60_000)).is_none());
        t.touch(Time(60_000), ip(1));
        assert_eq!(t.expire(Time(1_800_000)).map(|g| g.ip), Some(ip(2)));
        assert!(t.expire(Time(1_800_000)).is_none());
        assert!(!t.knows(mac(9)) && t.knows(mac(1)));
        assert_eq!(t.expire(Time(1_860_000)).map(|g| g.ip), Some(ip(1)));
        assert!(t.is_empty() && t.next_deadline().is_none());
    }

    #[test]
    fn addresses_without_ip_are_bounded_and_the_host_itself_is_no_guest() {
        let mut t = Guests::new(8, OWN);
        assert!(!t.note_mac(Time(0), OWN) && t.is_empty());
        t.set(Time(0), ip(1), OWN, Standing::Said);
        assert!(t.is_empty() && !t.knows(OWN));
        assert!((0..1000).all(|n| t.note_mac(Time(0), mac(n))));
        assert_eq!((t.bare.len(), t.macs.len()), (BARE_MAX, BARE_MAX));
        set(&mut t, 0, 999, Standing::Said);
        assert_eq!(t.set_own(mac(999)).len(), 2);
        assert!(!t.knows(mac(999)));
        assert_eq!(t.macs.len(), BARE_MAX - 1);
        assert!(t.expire(Time(AGE_MS)).is_none() && t.is_empty());
    }
}
