//! IP addresses that move between guests and peers, and updates of other replicas about guests.

use std::net::IpAddr;

use proto::damping::Verdict;
use proto::{Mac, Time};

use super::SILENT_MS;
use crate::core::outgoing::{Tap, endpoints};
use crate::core::{Ipoib, Update};
use crate::guests::{Guest, Standing};
use crate::own::{Holder, HostSide};
use crate::{DropReason, Event};

/// Between the two sides.
impl Ipoib {
    /// Decides whether an address may change from `one` to `other`; not if it changes too often.
    pub(in crate::core) fn may_change(
        &mut self,
        now: Time,
        ip: IpAddr,
        one: Mac,
        other: Mac,
    ) -> bool {
        match self.conflicts.change(now, ip, one, other) {
            Verdict::Follow => true,
            Verdict::Keep => false,
            Verdict::Hold { first, .. } => {
                if first {
                    self.counters.address_conflicts += 1;
                    self.report(Event::AddressConflict { ip, one, other });
                }
                self.publish(Update::Conflict { ip });
                false
            }
        }
    }

    /// Handles a peer's claim of an address. False if a guest keeps the address.
    pub(in crate::core) fn yield_to_peer(&mut self, now: Time, ip: IpAddr, peer: Mac) -> bool {
        if let Some(guest) = self.guests.get(ip).copied() {
            if guest.is_real() && !self.may_change(now, ip, guest.mac, peer) {
                return false;
            }
            self.guests.forget(ip);
            self.guest_gone(&guest);
        }
        // An announcement may outlive its guest, for example after a change of the interface's MAC.
        self.announcer.withdraw_guest(ip);
        // The update about the peer tells the other replicas.
        self.host_addresses.remove(ip);
        true
    }

    /// Notes that another replica gave an address from a guest to the peer with the MAC `peer`.
    pub(in crate::core) fn guest_lost(&mut self, now: Time, ip: IpAddr, peer: Mac) {
        self.last_guest = None;
        self.announcer.withdraw_guest(ip);
        self.host_addresses.remove(ip);
        if let Some(guest) = self.guests.forget(ip).filter(Guest::is_real) {
            self.conflicts.note(now, ip, guest.mac, peer);
        }
    }

    /// Whether a guest claimed an address, or used it recently.
    pub(in crate::core) fn is_at_guest(&self, now: Time, ip: IpAddr) -> bool {
        let recent = |g: &Guest| !g.is_weak() || g.idle_ms(now) < SILENT_MS;
        self.guests
            .get(ip)
            .is_some_and(|g| g.is_real() && recent(g))
    }

    /// Sends the guest's MAC to a host that uses another MAC for the guest's IP address: that of the peer that had
    /// the address. The guest's broadcasts inform other hosts, but they may not receive neighbour discovery, which is
    /// multicast. The peer may also be a gateway to the address, so the frame is sent to the peer. A frame to a MAC
    /// that neither a peer nor a guest has is refused.
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
        // A hint takes nothing from a peer.
        let claimed = |guest: &&Guest| guest.is_claimed() && guest.mac != stale;
        let Some(guest) = self.guests.get(destination).filter(claimed) else {
            return Ok(());
        };
        // The bridge flooded a frame for another guest, perhaps a router. A frame from here with this guest's MAC would
        // teach the bridge a wrong port.
        if self.guests.knows(stale) {
            return Ok(());
        }
        let peer = self.neighbours.by_mac(stale);
        if peer.is_some_and(|slot| !self.had_address(now, slot, guest)) {
            return Ok(());
        }
        let guest = Holder {
            ip: destination,
            mac: guest.mac,
        };
        let to = Holder {
            ip: source,
            mac: tap.source(),
        };
        self.host_side
            .correct(now, HostSide::Correct { stale, guest, to });
        // The peer is gone; or a guest that came from a peer uses the MAC under which peers see this host.
        if peer.is_none() {
            return Err(DropReason::ToGuest);
        }
        Ok(())
    }

    /// Whether a peer recently had the address of a guest: frames for the former owner go to this peer.
    fn had_address(&self, now: Time, slot: u32, guest: &Guest) -> bool {
        let from = guest.taken_from.filter(|from| now < from.until);
        from.is_some_and(|from| self.neighbours.leads(slot, from.peer))
    }

    /// Whether a guest has an address that a hint must not take away.
    pub(in crate::core) fn is_guests(&self, ip: IpAddr) -> bool {
        self.guests.get(ip).is_some_and(Guest::is_real)
    }

    /// Handles a guest with the MAC of a peer: the peer gets another MAC.
    pub(super) fn clash(&mut self, slot: u32) {
        let guest = self.neighbours.get(slot).mac;
        let peer = self.remap(slot);
        self.report(Event::MacClash { guest, peer });
    }

    /// Gives a peer another MAC and announces it on the host side.
    pub(in crate::core) fn remap(&mut self, slot: u32) -> Mac {
        let (own, guests) = (self.config.mac, &self.guests);
        let former = self.neighbours.get(slot).mac;
        let taken = |mac| mac == own || mac == former || guests.knows(mac);
        let mac = self.neighbours.remap(slot, None, taken);
        self.last_source = None;
        self.show_mac(slot);
        mac
    }

    /// Announces the MAC of a peer on the host side and to other replicas.
    fn show_mac(&mut self, slot: u32) {
        let peer = self.neighbours.get(slot);
        let (address, mac) = (peer.address, peer.mac);
        self.counters.mac_clashes += 1;
        for ip in self.neighbours.ips_of(slot) {
            self.host_side.push(HostSide::Announce { ip, mac });
        }
        self.publish(Update::Remapped { address, mac });
    }

    /// Handles a MAC that another replica gave to the peer of `slot`, and this one to another peer, at the same time.
    /// The peer with the lower address has it, so that both replicas decide alike.
    pub(in crate::core) fn part(&mut self, slot: u32, mac: Mac) {
        let Some(other) = self.neighbours.by_mac(mac).filter(|other| *other != slot) else {
            return;
        };
        let peer = |slot| &self.neighbours.get(slot).address.0[1..];
        if peer(slot) < peer(other) {
            self.neighbours.swap_macs(slot, other);
            self.last_source = None;
            self.show_mac(other);
        } else {
            self.show_mac(slot);
        }
    }

    /// Applies another replica's update about a guest.
    pub(in crate::core) fn apply_guest(
        &mut self,
        now: Time,
        ip: IpAddr,
        mac: Mac,
        weak: bool,
        router: Option<bool>,
        unannounced: bool,
    ) {
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
                self.guests.set_published(now, ip);
            }
            _ => {
                let standing = if weak {
                    Standing::Weak
                } else {
                    Standing::Claimed
                };
                if let Some(Some(evicted)) = self.guests.set(now, ip, mac, standing) {
                    self.counters.guests_evicted += u64::from(evicted.is_real());
                }
                self.last_guest = None;
            }
        }
        if let Some(router) = router {
            self.guests.set_router(ip, router);
        }
        // A replica that knows the guest from data only has not announced it.
        if !weak {
            self.guests.set_unannounced(ip, unannounced);
        }
        self.settle(now, ip);
    }

    /// Applies another replica's update about a guest's MAC.
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
        self.announcer.withdraw_guest(ip);
        self.guests.forget(ip);
    }

    pub(in crate::core) fn apply_probing(&mut self, now: Time, ip: IpAddr, mac: Mac) {
        if let IpAddr::V4(ip) = ip {
            self.host_side.remember_probe(now, ip, mac);
        }
    }

    pub(in crate::core) fn apply_remapped(&mut self, slot: u32, mac: Mac) {
        let (own, guests) = (self.config.mac, &self.guests);
        let taken = |mac| mac == own || guests.knows(mac);
        let holder = self.neighbours.by_mac(mac);
        let stays = |other| other == slot || self.neighbours.get(other).confirmed;
        if taken(mac) || holder.is_some_and(stays) {
            return;
        }
        // A peer known from data only is known to this replica alone. Its packets may be forged, so that it gets the
        // frames for the other one.
        if let Some(other) = holder {
            self.neighbours.remap(other, None, taken);
        }
        self.neighbours.remap(slot, Some(mac), taken);
        self.last_source = None;
    }
}
