//! Between the two sides: addresses that move from a guest to a peer and back, and what other replicas say
//! of guests.

use std::net::IpAddr;

use proto::damping::Verdict;
use proto::{Mac, Time};

use super::SILENT_MS;
use crate::core::outgoing::{Tap, endpoints};
use crate::core::{Ipoib, Update};
use crate::guests::{Guest, Standing};
use crate::own::{Holder, HostSide};
use crate::{DropReason, Event};

/// Whether an address may change its owner.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(in crate::core) enum Change {
    /// Yes, and the link is to be told.
    Told,
    Quiet,
    Refused,
}

/// Between the two sides.
impl Ipoib {
    /// An address changes from `one` to `other`, unless it does that too often.
    pub(in crate::core) fn may_change(
        &mut self,
        now: Time,
        ip: IpAddr,
        one: Mac,
        other: Mac,
    ) -> Change {
        match self.conflicts.change(now, ip, one, other) {
            Verdict::Follow => Change::Told,
            Verdict::FollowQuietly => Change::Quiet,
            Verdict::Keep { first } => {
                if first {
                    self.counters.address_conflicts += 1;
                    self.tell(Event::AddressConflict { ip, one, other });
                    self.publish(Update::Conflict { ip });
                }
                Change::Refused
            }
        }
    }

    /// A peer said that it has an address. False if it is and stays a guest's.
    pub(in crate::core) fn yield_to_peer(&mut self, now: Time, ip: IpAddr, peer: Mac) -> bool {
        let Some(guest) = self.guests.get(ip).copied() else {
            return true;
        };
        if guest.is_real() && self.may_change(now, ip, guest.mac, peer) == Change::Refused {
            return false;
        }
        self.guests.forget(ip);
        self.guest_gone(&guest);
        true
    }

    /// Another replica gave an address to the peer that `peer` stands for.
    pub(in crate::core) fn guest_lost(&mut self, now: Time, ip: IpAddr, peer: Mac) {
        self.last_guest = None;
        if let Some(guest) = self.guests.forget(ip).filter(Guest::is_real) {
            self.withdraw_guest(&guest);
            self.conflicts.note(now, ip, guest.mac, peer);
        }
    }

    /// Whether a guest said that it has an address, or used it lately.
    pub(in crate::core) fn is_at_guest(&self, now: Time, ip: IpAddr) -> bool {
        let recent = |g: &Guest| !g.is_weak() || g.idle_ms(now) < SILENT_MS;
        self.guests
            .get(ip)
            .is_some_and(|g| g.is_real() && recent(g))
    }

    /// Refuses a frame that goes to a peer while its IP address has moved from there to a guest, and
    /// tells the sender where the guest is. Others learn that from the guest's broadcasts, but
    /// neighbour discovery is multicast, which they need not hear.
    #[inline]
    pub(in crate::core) fn is_not_stale(
        &mut self,
        now: Time,
        tap: &Tap<'_>,
        ethertype: u16,
    ) -> Result<(), DropReason> {
        if now >= self.host_side.stale_until {
            return Ok(());
        }
        let (source, destination) = endpoints(ethertype, tap.l3());
        let stale = tap.destination();
        // A hint moves nothing away from a peer.
        let said = |guest: &&Guest| guest.is_real() && !guest.is_weak();
        match self.guests.get(destination).filter(said).map(|g| g.mac) {
            Some(mac) if mac != stale => {
                self.host_side.push(HostSide::Correct {
                    stale,
                    guest: Holder {
                        ip: destination,
                        mac,
                    },
                    to: Holder {
                        ip: source,
                        mac: tap.source(),
                    },
                });
                Err(DropReason::ToGuest)
            }
            _ => Ok(()),
        }
    }

    /// Whether a guest has an address, and no hint may take it away.
    pub(in crate::core) fn is_guests(&self, ip: IpAddr) -> bool {
        self.guests.get(ip).is_some_and(Guest::is_real)
    }

    /// A guest has the Ethernet address of a peer, which gets another.
    pub(super) fn clash(&mut self, slot: u32) {
        let guest = self.neighbours.get(slot).mac;
        let peer = self.remap(slot);
        self.tell(Event::MacClash { guest, peer });
    }

    /// Gives a peer another Ethernet address than it has, and tells the host's side.
    pub(in crate::core) fn remap(&mut self, slot: u32) -> Mac {
        let (own, guests) = (self.config.mac, &self.guests);
        let former = self.neighbours.get(slot).mac;
        let taken = |mac| mac == own || mac == former || guests.knows(mac);
        let mac = self.neighbours.remap(slot, None, taken);
        self.last_source = None;
        self.counters.mac_clashes += 1;
        for ip in self.neighbours.ips_of(slot) {
            self.host_side.push(HostSide::Announce { ip, mac });
        }
        let address = self.neighbours.get(slot).address;
        self.publish(Update::Remapped { address, mac });
        mac
    }

    /// Takes in the news of another replica about guests.
    pub(in crate::core) fn apply_guest(&mut self, now: Time, ip: IpAddr, mac: Mac, weak: bool) {
        self.make_way(mac);
        let known = self.guests.get(ip).filter(|g| g.is_real()).copied();
        let owner = self.neighbours.strong_owner(ip);
        let owner = owner.map(|slot| self.neighbours.get(slot).mac);
        if let Some(former) = known.map(|g| g.mac).or(owner).filter(|m| *m != mac) {
            self.conflicts.note(now, ip, former, mac);
        }
        match known {
            Some(g) if g.mac == mac && (weak || !g.is_weak()) => {
                self.guests.touch(now, ip);
                self.guests.set_told(now, ip);
            }
            _ => {
                let standing = if weak { Standing::Weak } else { Standing::Said };
                if let Some(Some(evicted)) = self.guests.set(now, ip, mac, standing) {
                    self.counters.guests_evicted += u64::from(evicted.is_real());
                }
                self.last_guest = None;
            }
        }
        self.settle(now, ip);
    }

    /// Another replica heard of a guest.
    pub(in crate::core) fn apply_guest_mac(&mut self, now: Time, mac: Mac) {
        self.make_way(mac);
        self.guests.note_mac(now, mac);
    }

    fn make_way(&mut self, mac: Mac) {
        if mac != self.config.mac
            && let Some(slot) = self.neighbours.by_mac(mac)
        {
            self.clash(slot);
        }
    }

    pub(in crate::core) fn apply_guest_forgotten(&mut self, ip: IpAddr) {
        self.last_guest = None;
        if let Some(guest) = self.guests.forget(ip) {
            self.withdraw_guest(&guest);
        }
    }

    pub(in crate::core) fn apply_probing(&mut self, now: Time, ip: IpAddr, mac: Mac) {
        if let IpAddr::V4(ip) = ip {
            self.host_side.remember_probe(now, ip, mac);
        }
    }

    pub(in crate::core) fn apply_remapped(&mut self, slot: u32, mac: Mac) {
        let (own, guests) = (self.config.mac, &self.guests);
        let taken = |mac| mac == own || guests.knows(mac);
        if self.neighbours.by_mac(mac).is_none() && !taken(mac) {
            self.neighbours.remap(slot, Some(mac), taken);
            self.last_source = None;
        }
    }
}
