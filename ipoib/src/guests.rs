//! Guests: hosts behind the interface with other MACs, such as ports of a bridge or macvlans. All guests
//! share the interface's address on the fabric, so the IP address selects the receiver (MAC-NAT).
//!
//! An empty table has no memory. The table is bounded. It evicts presumed addresses first, then those known
//! from data only, then those seen once, so that a flood of forged senders does not evict an active host.
//!
//! * ARP, neighbour discovery and DHCP leases define an address. The source address of data is only a hint,
//!   because the sender may route. A hint takes no address from a peer. A hint starts a query on the host
//!   side, in the name of the peer for which the data is; the answer defines the address. A migrated guest
//!   that sends only data is found in this way.
//! * While there are guests, or another interface is stacked on this one, packets for an unknown address
//!   wait (three of them, half a second) for a query on the host side. Without an answer, the host itself
//!   gets them for a minute, because it may be a router. In other cases the cost is a comparison of the
//!   source MAC.
//! * An address moves to the last claimant, on either side. If a guest takes an address from a peer, the
//!   core announces the guest on the fabric. The core follows an alternating address three times in ten
//!   seconds, then keeps its owner for ten seconds and reports the conflict once (`address_conflicts`). It
//!   follows an owner that is new each time (a bridge that takes the MAC of another port) seven times.
//! * After a change of the interface's address, the core announces the guests. After an outage, a guest may be behind a
//!   peer. The core has not received the peer's announcement, so it announces a guest only when it hears the guest.
//! * When no interface is stacked on this one any more, the table is emptied.
//! * The MAC of a guest is never the MAC of a peer on the TAP. On a collision the peer gets another MAC,
//!   announced on the host side by gratuitous ARP and unsolicited advertisements. A frame from the TAP with
//!   a peer's MAC and its IP address has come back through a loop and is dropped (`tx_looped`).
//! * Frames that a bridge has flooded for a guest are dropped (`tx_to_guest`), without a query on the
//!   fabric.
//! * Replicas exchange updates, and every 20 s the addresses in use. An address without packets for 30
//!   minutes therefore expires in all of them.

use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;

use foldhash::fast::RandomState;

use crate::address::mac_key;
use crate::neighbour::Link;
use crate::own::Announcement;
use proto::lru::{Lru, Place, Placed};
use proto::{Mac, Time};

/// Lifetime of an address without packets.
const AGE_MS: u64 = 30 * 60 * 1000;
/// Time for which an unanswered address is presumed to be behind the host itself.
const PRESUMED_MS: u64 = 60 * 1000;
/// Minimum time between updates of an address's time of use.
const TOUCH_MS: u64 = 1000;
/// Maximum number of MACs of guests without a known IP address.
const BARE_MAX: usize = 256;

/// The reliability of an address; addresses with a lower one are evicted first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Standing {
    /// No answer came: the host itself gets the packets, as it may be a router.
    Presumed,
    /// Seen as the source address of data, which may be routed.
    Weak,
    /// Claimed by ARP, neighbour discovery or DHCP.
    Claimed,
    /// Claimed, and seen again a second later or more.
    Settled,
}

const STANDINGS: [Standing; 4] = [
    Standing::Presumed,
    Standing::Weak,
    Standing::Claimed,
    Standing::Settled,
];

#[derive(Clone, Copy)]
pub struct Guest {
    pub ip: IpAddr,
    pub mac: Mac,
    pub standing: Standing,
    /// Its last advertisement was that of an IPv6 router; `None`: it sent none yet.
    pub router: Option<bool>,
    /// Time of the last packet, to about a second.
    pub used: Time,
    /// Time of the last update for other replicas.
    pub published: Time,
    /// The address was not announced at the interface's present address, or the announcement was refused or cancelled.
    /// The guest is announced when it is heard.
    pub unannounced: bool,
    /// The peer that had the address before.
    pub taken_from: Option<TakenFrom>,
    place: Place,
}

/// A peer that lost an IP address to a guest.
#[derive(Clone, Copy)]
pub struct TakenFrom {
    pub peer: Link,
    /// Until then, hosts on the host side may use the peer's MAC for the address.
    pub until: Time,
}

impl Guest {
    /// Whether the address is not merely presumed.
    pub fn is_real(&self) -> bool {
        self.standing > Standing::Presumed
    }

    pub fn is_weak(&self) -> bool {
        self.standing == Standing::Weak
    }

    /// Whether the owner claimed the address.
    pub fn is_claimed(&self) -> bool {
        self.standing >= Standing::Claimed
    }

    pub fn idle_ms(&self, now: Time) -> u64 {
        now.0.saturating_sub(self.used.0)
    }

    /// The announcement of the address. `None` while it is not known whether its owner is an IPv6 router:
    /// with a wrong flag, hosts delete their default route.
    pub fn announcement(&self) -> Option<Announcement> {
        let router = match self.ip {
            IpAddr::V4(_) => false,
            IpAddr::V6(_) => self.router?,
        };
        Some(Announcement {
            ip: self.ip,
            router,
        })
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

/// The table: IP addresses of guests and of the host itself, and the MACs of guests.
pub struct Guests {
    /// The interface's own MAC, which is no guest's.
    own: Mac,
    slots: Vec<Guest>,
    free: Vec<u32>,
    by_ip: HashMap<IpAddr, u32, RandomState>,
    /// Number of occurrences of each guest's MAC in `slots` and `bare`.
    macs: HashMap<u64, u32, RandomState>,
    /// MACs that were seen without an IP address, oldest first.
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

    /// Whether a guest has the MAC.
    #[inline]
    pub fn knows(&self, mac: Mac) -> bool {
        self.macs.contains_key(&mac_key(mac))
    }

    /// All addresses except presumed ones.
    pub fn iter(&self) -> impl Iterator<Item = &Guest> {
        let slots = self.by_ip.values().map(|slot| &self.slots[*slot as usize]);
        slots.filter(|g| g.is_real())
    }

    /// Adds a MAC without a known IP address. True if it is new.
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

    /// Notes a packet with the address. True if the last note is old enough.
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
            Standing::Claimed => self.restand(slot, Standing::Settled),
            _ => self.lists[standing as usize].touch(&mut self.slots, slot),
        }
        true
    }

    /// Notes an update about the address for other replicas.
    pub fn set_published(&mut self, now: Time, ip: IpAddr) {
        if let Some(slot) = self.by_ip.get(&ip) {
            self.slots[*slot as usize].published = now;
        }
    }

    /// Notes the kind of an advertisement by the owner of an address.
    pub fn set_router(&mut self, ip: IpAddr, router: bool) {
        if let Some(slot) = self.by_ip.get(&ip) {
            self.slots[*slot as usize].router = Some(router);
        }
    }

    /// Notes whether an address must still be announced.
    pub fn set_unannounced(&mut self, ip: IpAddr, unannounced: bool) {
        if let Some(slot) = self.by_ip.get(&ip) {
            self.slots[*slot as usize].unannounced = unannounced;
        }
    }

    /// Notes that all claimed addresses must be announced.
    pub fn set_all_unannounced(&mut self) {
        for guest in &mut self.slots {
            guest.unannounced |= guest.standing >= Standing::Claimed;
        }
    }

    /// Notes the peer that lost an address to a guest.
    pub fn set_taken_from(&mut self, ip: IpAddr, from: TakenFrom) {
        if let Some(slot) = self.by_ip.get(&ip) {
            self.slots[*slot as usize].taken_from = Some(from);
        }
    }

    /// Forgets the peers that lost addresses: links to neighbours are no longer valid.
    pub fn forget_peers(&mut self) {
        self.slots.iter_mut().for_each(|g| g.taken_from = None);
    }

    /// Assigns an address to a guest or to the host itself. `None` if the table is full of more reliable
    /// addresses; otherwise the evicted entry.
    pub fn set(&mut self, now: Time, ip: IpAddr, mac: Mac, standing: Standing) -> Option<Evicted> {
        let former = self.forget(ip);
        let evicted = match former {
            Some(_) => None,
            None => self.make_room(standing)?,
        };
        let new = Guest {
            ip,
            mac,
            standing,
            router: former.filter(|g| g.mac == mac).and_then(|g| g.router),
            used: now,
            published: now,
            unannounced: former.is_some_and(|g| g.unannounced),
            taken_from: former.and_then(|g| g.taken_from),
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

    /// Removes an address; returns its entry.
    pub fn forget(&mut self, ip: IpAddr) -> Option<Guest> {
        let slot = self.by_ip.get(&ip).copied()?;
        Some(self.remove(slot))
    }

    /// Changes the interface's own MAC; removes the entries of the old and the new one. Returns their IP
    /// addresses.
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

    /// Removes an expired address; call until `None`.
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

    /// The time for the next [`Guests::expire`].
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
        // A claim may evict any entry, data only entries that are not more reliable.
        let limit = standing.max(match standing {
            Standing::Claimed | Standing::Settled => Standing::Settled,
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

/// The evicted entry, if any.
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
            (1, Standing::Claimed),
            (2, Standing::Weak),
            (3, Standing::Claimed),
        ] {
            assert_eq!(set(&mut t, 0, n, standing), Some(None));
        }
        assert_eq!(set(&mut t, 0, 4, Standing::Presumed), Some(None));
        assert!(t.touch(Time(1000), ip(1)));
        assert!(!t.touch(Time(1500), ip(1)));
        assert_eq!(set(&mut t, 2000, 5, Standing::Claimed), Some(Some(ip(4))));
        assert_eq!(set(&mut t, 2000, 6, Standing::Presumed), None);
        assert_eq!(set(&mut t, 2000, 6, Standing::Weak), Some(Some(ip(2))));
        assert_eq!(set(&mut t, 2000, 7, Standing::Claimed), Some(Some(ip(6))));
        assert_eq!(set(&mut t, 2000, 8, Standing::Weak), None);
        assert_eq!(set(&mut t, 2000, 8, Standing::Claimed), Some(Some(ip(3))));
        // Settled addresses stay while others can be evicted.
        for n in 100..200 {
            assert!(set(&mut t, 2000, n, Standing::Claimed).is_some());
        }
        assert!(t.get(ip(1)).is_some() && t.knows(mac(1)) && !t.knows(mac(3)));
        assert_eq!((t.by_ip.len(), t.macs.len(), t.slots.len()), (4, 4, 4));
    }

    #[test]
    fn silent_addresses_expire() {
        let mut t = Guests::new(8, OWN);
        set(&mut t, 0, 1, Standing::Claimed);
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
        t.set(Time(0), ip(1), OWN, Standing::Claimed);
        assert!(t.is_empty() && !t.knows(OWN));
        assert!((0..1000).all(|n| t.note_mac(Time(0), mac(n))));
        assert_eq!((t.bare.len(), t.macs.len()), (BARE_MAX, BARE_MAX));
        set(&mut t, 0, 999, Standing::Claimed);
        assert_eq!(t.set_own(mac(999)).len(), 2);
        assert!(!t.knows(mac(999)));
        assert_eq!(t.macs.len(), BARE_MAX - 1);
        assert!(t.expire(Time(AGE_MS)).is_none() && t.is_empty());
    }
}
