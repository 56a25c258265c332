//! Learns neighbours, from the fabric and from other replicas.

use std::net::IpAddr;

use proto::{Mac, Time};

use super::{Ipoib, UPDATES_MAX, Update};
use crate::address::HardwareAddress;
use crate::counters::DropReason;
use crate::event::Event;
use crate::neighbour::Claim;

/// Announcements of a neighbour within this time count as one.
const ANNOUNCED_MS: u64 = 1000;

/// Time in which a new queue pair that takes an address from another of its port counts as its successor:
/// the owner restarted and announces its addresses again. Later the two are interfaces of a host and only
/// the address moves, as when a router takes over from another.
const RESTART_MS: u64 = 10_000;

/// Minimum time between updates to replicas about an address in use: it expires in none of them, and replicas whose
/// updates crossed agree again.
pub const REFRESH_MS: u64 = 20_000;

/// Whether a host can have the IP address.
pub fn is_claimable(ip: IpAddr) -> bool {
    let broadcast = matches!(ip, IpAddr::V4(v4) if v4.is_broadcast());
    !(ip.is_unspecified() || ip.is_multicast() || ip.is_loopback() || broadcast)
}

impl Ipoib {
    /// Learns a neighbour from ARP or neighbour discovery, and its address `ip`, if any. `overrides`: the
    /// neighbour gets the address also if another host has it.
    pub(super) fn learn_neighbour(
        &mut self,
        now: Time,
        address: &HardwareAddress,
        ip: Option<IpAddr>,
        overrides: bool,
    ) -> Result<(), DropReason> {
        let ip = ip.filter(|ip| is_claimable(*ip));
        if let Some(ip) = ip {
            self.inspect(now, address, ip)?;
        }
        let ip = ip.filter(|ip| overrides || !self.is_anothers(now, address, *ip));
        let Some((slot, mut news)) = self.learn(now, address, true, None) else {
            return Ok(());
        };
        let mac = self.neighbours.get(slot).mac;
        let ip = ip.filter(|ip| self.yield_to_peer(now, *ip, mac));
        // It sends packets, so it has no successor.
        news |= self.neighbours.get_mut(slot).successor.take().is_some();
        let (mut lost_to, mut again) = (None, false);
        if let Some(ip) = ip {
            match self.claim(ip, slot, false) {
                Claim::Known => {
                    again = self.neighbours.get(slot).published.after(REFRESH_MS) <= now;
                }
                Claim::New => news = true,
                Claim::From(old) => {
                    news = true;
                    let since = self.neighbours.get(slot).since;
                    if now < since.after(RESTART_MS) {
                        lost_to = self.supersede(now, old, slot);
                    }
                }
            }
        }
        if news {
            self.report_if_watched(|| Event::NeighbourLearned {
                address: *address,
                mac,
                ip,
            });
        }
        if news || again {
            self.neighbours.get_mut(slot).published = now;
            self.publish(Update::Learned {
                address: *address,
                mac,
                ip,
            });
        }
        if let Some(old) = lost_to {
            self.report_if_watched(|| Event::NeighbourReplaced { old, new: *address });
            self.publish(Update::Superseded { old, new: *address });
        }
        Ok(())
    }

    /// Whether a host other than the neighbour with the hardware address has an IP address.
    fn is_anothers(&self, now: Time, address: &HardwareAddress, ip: IpAddr) -> bool {
        if self.host_addresses.contains(ip) || self.is_at_guest(now, ip) {
            return true;
        }
        let neighbours = &self.neighbours;
        let slot = neighbours.by_address(address.gid(), address.qpn());
        let owner = neighbours.by_claimed_ip(ip);
        owner.is_some() && owner != slot.and_then(|slot| neighbours.current(slot))
    }

    /// Handles an announcement by a neighbour, as after its start.
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

    /// Learns an unknown queue pair from data. Its IP address is only a hint: the packet may have been
    /// routed.
    pub(super) fn data_from(
        &mut self,
        now: Time,
        address: &HardwareAddress,
        ip: IpAddr,
    ) -> Option<u32> {
        let (slot, _) = self.learn(now, address, false, None)?;
        // A peer's data does not take an address from a guest.
        if is_claimable(ip) && !self.is_guests(ip) && !self.is_pinned_elsewhere(address, ip) {
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
            self.report_if_watched(|| Event::NeighbourForgotten { address });
        }
        if learned.flags_changed {
            self.flags_changed(learned.slot);
        }
        let grown = learned.evicted.is_some() || self.neighbours.len() > before;
        self.counters.neighbours_learned += u64::from(grown);
        if grown {
            self.resolver.found(self.neighbours.get(learned.slot).mac);
        }
        Some((learned.slot, learned.news))
    }

    fn claim(&mut self, ip: IpAddr, slot: u32, weak: bool) -> Claim {
        let claim = self.neighbours.claim_ip(ip, slot, weak);
        if let Claim::From(old) = claim {
            self.owner_changed(old, slot);
        }
        if !weak {
            self.resolver.resolved(ip);
        }
        claim
    }

    /// Ends the connection to the former owner of an IP address if the new owner has another GID. Perhaps both
    /// are one peer: its port has ended the connections of the former GID, and this host drops the disconnect
    /// requests, because they come from the new GID. If both exist, the only cost is another request.
    fn owner_changed(&mut self, old: u32, new: u32) {
        let gid = |slot| self.neighbours.get(slot).address.gid();
        if gid(old) != gid(new)
            && let Some(old) = self.neighbours.current(old)
        {
            self.drop_connection_of(old);
        }
    }

    /// Applies a claim that another replica followed.
    fn apply_claim(&mut self, now: Time, ip: IpAddr, slot: u32) {
        let peer = self.neighbours.get(slot).mac;
        self.guest_lost(now, ip, peer);
        self.claim(ip, slot, false);
    }

    fn supersede(&mut self, now: Time, old: u32, new: u32) -> Option<HardwareAddress> {
        let address = self.neighbours.get(old).address;
        if !self.neighbours.supersede(old, new) {
            return None;
        }
        // Only packets from a second later on show that the old one has not restarted: the last ones before a restart
        // may be late.
        self.neighbours.get_mut(old).last_heard = now;
        self.counters.neighbours_superseded += 1;
        // The peer of the old connection no longer exists.
        self.drop_connection_of(old);
        Some(address)
    }

    /// Handles a packet of a neighbour, a second or more after the last one: the neighbour has no successor. Two
    /// containers may share a port, and an address may move to the newer one. One that sent only data may be another
    /// queue pair of its successor, so its successor stays.
    pub(super) fn outlive(&mut self, slot: u32) {
        let neighbour = self.neighbours.get_mut(slot);
        if neighbour.successor.is_none() || !neighbour.confirmed {
            return;
        }
        neighbour.successor = None;
        let (address, mac) = (neighbour.address, neighbour.mac);
        self.publish(Update::Learned {
            address,
            mac,
            ip: None,
        });
    }

    /// Queues an event for the control side.
    pub(super) fn report(&mut self, event: Event) {
        self.events.push(event);
        self.counters.events_lost = self.events.lost();
    }

    /// Queues an event about a neighbour, if enabled.
    pub(super) fn report_if_watched(&mut self, event: impl FnOnce() -> Event) {
        if self.watched {
            self.report(event());
        }
    }

    /// Reports signed neighbour discovery, once.
    pub(super) fn signed_nd(&mut self) {
        self.counters.nd_signed += 1;
        if !self.signed_reported {
            self.signed_reported = true;
            self.report(Event::SignedNd);
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

    /// Whether [`Ipoib::drain_updates`] would return updates.
    pub fn has_updates(&self) -> bool {
        !self.updates.is_empty()
    }

    /// Returns the updates for other replicas, in order.
    pub fn drain_updates(&mut self) -> impl Iterator<Item = Update> {
        self.updates.drain(..)
    }

    fn apply_learned(
        &mut self,
        now: Time,
        address: &HardwareAddress,
        mac: Mac,
        ip: Option<IpAddr>,
    ) {
        let Some((slot, _)) = self.learn(now, address, true, Some(mac)) else {
            return;
        };
        // The host knows the peer by that MAC.
        self.apply_remapped(slot, mac);
        let given = self.neighbours.get(slot).mac;
        if given != mac && self.guests.knows(mac) {
            self.publish(Update::Remapped {
                address: *address,
                mac: given,
            });
        }
        self.neighbours.get_mut(slot).successor = None;
        if let Some(ip) = ip {
            self.apply_claim(now, ip, slot);
        }
        self.part(slot, mac);
    }

    /// Applies the answer of another replica, which is no packet of the owner: the owner is not live because of the
    /// answer.
    fn apply_known(
        &mut self,
        now: Time,
        address: &HardwareAddress,
        mac: Mac,
        ip: IpAddr,
        heard: Time,
    ) {
        let slot = |core: &Ipoib| core.neighbours.by_address(address.gid(), address.qpn());
        let before = slot(self).map(|slot| self.neighbours.get(slot).last_heard);
        self.apply_learned(now, address, mac, Some(ip));
        if let Some(slot) = slot(self) {
            self.neighbours.get_mut(slot).last_heard = heard.max(before.unwrap_or(heard));
        }
    }

    /// Answers a replica that queries an IP address. A neighbour known only from data is no answer.
    fn apply_wanted(&mut self, ip: IpAddr) {
        if let Some(slot) = self.neighbours.by_claimed_ip(ip) {
            let neighbour = self.neighbours.get(slot);
            let (address, mac) = (neighbour.address, neighbour.mac);
            let heard = neighbour.last_heard;
            self.publish(Update::Known {
                address,
                mac,
                ip,
                heard,
            });
        }
    }

    /// Applies an update of another replica. A question ([`Update::Wanted`]) causes an answer, and a new
    /// neighbour whose MAC is a guest's or another's causes [`Update::Remapped`], which causes nothing.
    pub fn apply(&mut self, now: Time, update: &Update) {
        match update {
            Update::Learned { address, mac, ip } => self.apply_learned(now, address, *mac, *ip),
            Update::Wanted { ip } => self.apply_wanted(*ip),
            Update::Known {
                address,
                mac,
                ip,
                heard,
            } => {
                // A replica that does not query the address may know a later owner.
                if self.resolver.waiting(*ip).is_some() {
                    self.apply_known(now, address, *mac, *ip, *heard);
                }
            }
            Update::Superseded { old, new } => {
                let slot = |a: &HardwareAddress| self.neighbours.by_address(a.gid(), a.qpn());
                if let (Some(old), Some(new)) = (slot(old), slot(new)) {
                    self.supersede(now, old, new);
                }
            }
            Update::Announced { address } => {
                if let Some(slot) = self.neighbours.by_address(address.gid(), address.qpn()) {
                    self.ask_again(slot);
                }
            }
            Update::Heard { address } => {
                if let Some(slot) = self.neighbours.by_address(address.gid(), address.qpn()) {
                    self.neighbours.get_mut(slot).last_heard = now;
                }
            }
            Update::Remapped { address, mac } => {
                if let Some(slot) = self.neighbours.by_address(address.gid(), address.qpn()) {
                    self.apply_remapped(slot, *mac);
                }
            }
            Update::Guest {
                ip,
                mac,
                weak,
                router,
                unannounced,
            } => self.apply_guest(now, *ip, *mac, *weak, *router, *unannounced),
            Update::GuestMac { mac } => self.apply_guest_mac(now, *mac),
            Update::GuestForgotten { ip } => self.apply_guest_forgotten(*ip),
            Update::Probing { ip, mac } => self.apply_probing(now, *ip, *mac),
            Update::Conflict { ip } => {
                self.conflicts.hold(now, *ip, None, false);
            }
            Update::SignedNd => self.signed_reported = true,
            Update::HostAddress { ip, present } => self.apply_host_address(*ip, *present),
            Update::Dhcp { xid, client } => {
                self.services.clients.remember(now, *xid, *client);
            }
        }
    }
}
