//! Learning neighbours, from the fabric and from other replicas.

use std::net::IpAddr;

use proto::{Mac, Time};

use super::{Ipoib, UPDATES_MAX, Update};
use crate::address::HardwareAddress;
use crate::event::Event;
use crate::neighbour::Claim;

/// Announcements of one neighbour that follow each other more quickly count as one.
const ANNOUNCED_MS: u64 = 1000;

/// A queue pair that takes an address from another of its port so soon after it was first heard of
/// stands in for that one: its owner was restarted, and says anew what it has. Later the two are
/// interfaces of one host, and no more than the address moves, as when a router takes over from
/// another.
const RESTART_MS: u64 = 10_000;

/// Whether a host can have the address.
pub fn is_claimable(ip: IpAddr) -> bool {
    let broadcast = matches!(ip, IpAddr::V4(v4) if v4.is_broadcast());
    !(ip.is_unspecified() || ip.is_multicast() || ip.is_loopback() || broadcast)
}

impl Ipoib {
    /// A neighbour said by ARP or neighbour discovery that it is there and, maybe, has `ip`.
    pub(super) fn heard_from(&mut self, now: Time, address: &HardwareAddress, ip: Option<IpAddr>) {
        let ip = ip.filter(|ip| is_claimable(*ip));
        let Some((slot, mut news)) = self.learn(now, address, true, None) else {
            return;
        };
        let mac = self.neighbours.get(slot).mac;
        let ip = ip.filter(|ip| self.yield_to_peer(now, *ip, mac));
        // It speaks, so nothing has taken its place.
        news |= self.neighbours.get_mut(slot).successor.take().is_some();
        let mut lost_to = None;
        if let Some(ip) = ip {
            match self.claim(ip, slot, false) {
                Claim::Known => {}
                Claim::New => news = true,
                Claim::From(old) => {
                    news = true;
                    let since = self.neighbours.get(slot).since;
                    if now < since.after(RESTART_MS) {
                        lost_to = self.supersede(old, slot);
                    }
                }
            }
        }
        if news {
            self.tell_watcher(|| Event::NeighbourLearned {
                address: *address,
                mac,
                ip,
            });
            self.publish(Update::Learned {
                address: *address,
                mac,
                ip,
            });
        }
        if let Some(old) = lost_to {
            self.tell_watcher(|| Event::NeighbourReplaced { old, new: *address });
            self.publish(Update::Superseded { old, new: *address });
        }
    }

    /// A neighbour announced an address of its own, as it does after a start.
    pub(super) fn announced(&mut self, now: Time, address: &HardwareAddress) {
        let Some(slot) = self.neighbours.by_address(address.gid(), address.qpn()) else {
            return;
        };
        let last = self.neighbours.get_mut(slot).announced.replace(now);
        if last.is_none_or(|last| last.after(ANNOUNCED_MS) <= now) {
            self.ask_again(slot);
            let address = *address;
            self.publish(Update::Announced { address });
        }
    }

    /// Data came from a queue pair that the table does not know. Its IP address is a hint only: the
    /// packet may have been routed.
    pub(super) fn data_from(
        &mut self,
        now: Time,
        address: &HardwareAddress,
        ip: IpAddr,
    ) -> Option<u32> {
        let (slot, _) = self.learn(now, address, false, None)?;
        // What a guest has, a peer's data does not take away.
        if is_claimable(ip) && !self.is_guests(ip) {
            self.claim(ip, slot, true);
        }
        Some(slot)
    }

    fn learn(
        &mut self,
        now: Time,
        address: &HardwareAddress,
        confirmed: bool,
        wish: Option<Mac>,
    ) -> Option<(u32, bool)> {
        if address.same_peer(&self.config.local) || !address.is_unicast() {
            return None;
        }
        let before = self.neighbours.len();
        let (own, guests) = (self.config.mac, &self.guests);
        let taken = |mac| mac == own || guests.knows(mac);
        let Some(learned) = self.neighbours.learn(now, address, confirmed, wish, taken) else {
            self.counters.neighbours_refused += 1;
            return None;
        };
        self.counters.mac_collisions += u64::from(learned.collided);
        self.counters.neighbours_evicted += u64::from(learned.evicted.is_some());
        if let Some(address) = learned.evicted {
            self.tell_watcher(|| Event::NeighbourForgotten { address });
        }
        if learned.flags_told {
            self.flags_told(learned.slot);
        }
        let grown = learned.evicted.is_some() || self.neighbours.len() > before;
        self.counters.neighbours_learned += u64::from(grown);
        Some((learned.slot, learned.news))
    }

    fn claim(&mut self, ip: IpAddr, slot: u32, weak: bool) -> Claim {
        let claim = self.neighbours.claim_ip(ip, slot, weak);
        self.resolver.resolved(ip);
        claim
    }

    /// Another replica followed the claim.
    fn apply_claim(&mut self, now: Time, ip: IpAddr, slot: u32) {
        let peer = self.neighbours.get(slot).mac;
        self.guest_lost(now, ip, peer);
        self.claim(ip, slot, false);
    }

    fn supersede(&mut self, old: u32, new: u32) -> Option<HardwareAddress> {
        let address = self.neighbours.get(old).address;
        if !self.neighbours.supersede(old, new) {
            return None;
        }
        self.counters.neighbours_superseded += 1;
        // Whoever was at its other end is gone.
        self.drop_connection_of(old);
        Some(address)
    }

    /// Tells the control side.
    pub(super) fn tell(&mut self, event: Event) {
        self.events.push(event);
        self.counters.events_lost = self.events.lost();
    }

    /// Tells of a neighbour, if anybody wants to hear.
    pub(super) fn tell_watcher(&mut self, event: impl FnOnce() -> Event) {
        if self.watched {
            self.tell(event());
        }
    }

    /// Signed neighbour discovery passes.
    pub(super) fn signed_nd(&mut self) {
        self.counters.nd_signed += 1;
        if !self.told_signed {
            self.told_signed = true;
            self.tell(Event::SignedNd);
            self.publish(Update::SignedNd);
        }
    }

    pub(super) fn publish(&mut self, update: Update) {
        if self.updates.len() < UPDATES_MAX {
            self.updates.push(update);
        } else {
            self.counters.updates_lost += 1;
        }
    }

    /// Whether [`Ipoib::drain_updates`] has something.
    pub fn has_updates(&self) -> bool {
        !self.updates.is_empty()
    }

    /// News for the other replicas, in order.
    pub fn drain_updates(&mut self) -> impl Iterator<Item = Update> {
        self.updates.drain(..)
    }

    /// Takes in the news of another replica; makes none of its own.
    pub fn apply(&mut self, now: Time, update: &Update) {
        match update {
            Update::Learned { address, mac, ip } => {
                let Some((slot, _)) = self.learn(now, address, true, Some(*mac)) else {
                    return;
                };
                // The host was told that address.
                self.apply_remapped(slot, *mac);
                let given = self.neighbours.get(slot).mac;
                if given != *mac && self.guests.knows(*mac) {
                    self.publish(Update::Remapped {
                        address: *address,
                        mac: given,
                    });
                }
                self.neighbours.get_mut(slot).successor = None;
                if let Some(ip) = ip {
                    self.apply_claim(now, *ip, slot);
                }
            }
            Update::Superseded { old, new } => {
                let slot = |a: &HardwareAddress| self.neighbours.by_address(a.gid(), a.qpn());
                if let (Some(old), Some(new)) = (slot(old), slot(new)) {
                    self.supersede(old, new);
                }
            }
            Update::Announced { address } => {
                if let Some(slot) = self.neighbours.by_address(address.gid(), address.qpn()) {
                    self.ask_again(slot);
                }
            }
            Update::Forgotten { address } => {
                if let Some(slot) = self.neighbours.by_address(address.gid(), address.qpn()) {
                    self.neighbours.forget(slot);
                }
            }
            Update::Remapped { address, mac } => {
                if let Some(slot) = self.neighbours.by_address(address.gid(), address.qpn()) {
                    self.apply_remapped(slot, *mac);
                }
            }
            Update::Guest { ip, mac, weak } => self.apply_guest(now, *ip, *mac, *weak),
            Update::GuestMac { mac } => self.apply_guest_mac(now, *mac),
            Update::GuestForgotten { ip } => self.apply_guest_forgotten(*ip),
            Update::Probing { ip, mac } => self.apply_probing(now, *ip, *mac),
            Update::Conflict { ip } => self.conflicts.keep(now, *ip),
            Update::SignedNd => self.told_signed = true,
            Update::Dhcp { xid, client } => {
                self.services.clients.remember(now, *xid, *client);
            }
        }
    }
}
