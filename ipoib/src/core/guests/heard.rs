//! Learns guests and their addresses from frames of the TAP.

use std::net::IpAddr;

use proto::{Mac, Time};

use super::{ASK_AGAIN_MS, ASK_ANEW_MS, SILENT_MS};
use crate::arp::{Arp, REQUEST};
use crate::core::learning::{REFRESH_MS, is_claimable};
use crate::core::outgoing::{Tap, endpoints};
use crate::core::{Ipoib, Update};
use crate::guests::{Evicted, Guest, Guests, Standing, TakenFrom};
use crate::nd::{self, Kind, Message};
use crate::wire::{NEXT_HEADER_ICMPV6, TYPE_ARP, TYPE_IPV6, ip_header};
use crate::{DropReason, Event, MAC_BROADCAST};

/// Time for which the source of a frame is not checked again.
const CACHED_MS: u64 = 1000;
/// The minimum time for answers; another replica may be waiting for one.
const ANSWER_REFRESH_MS: u64 = 1000;
/// Time after a move for which hosts may still use the former MAC: Linux trusts an entry for up to 45 s,
/// and uses it for 8 s more while it probes.
const STALE_MS: u64 = 120_000;

/// A claim of an IP address by a frame from the TAP.
#[derive(Clone, Copy)]
struct Claim {
    /// The owner of the address.
    mac: Mac,
    ip: IpAddr,
    /// Made by ARP, neighbour discovery or DHCP; otherwise only a hint.
    strong: bool,
    /// The claim may take the address from another host that claimed it.
    overrides: bool,
    /// The frame is broadcast, so all peers see the claim.
    broadcast: bool,
    /// The frame answers a query.
    answer: bool,
    /// The frame shows whether its sender is an IPv6 router.
    router: Option<bool>,
}

fn is_host_mac(mac: Mac) -> bool {
    mac[0] & 1 == 0 && mac != [0; 6]
}

/// The claim in neighbour discovery from the TAP; `None` for other packets, or without a credible claim.
fn claim_in_nd(tap: &Tap<'_>) -> Option<Claim> {
    let l3 = tap.l3();
    let header = ip_header(TYPE_IPV6, l3).ok()?;
    let message = nd::parse(&l3[..header.len]).ok()??;
    let believed =
        message.hop_limit() == 255 && (tap.checksum_is_partial() || message.checksum_is_right());
    if !believed || message.kind == Kind::Redirect {
        return None;
    }
    let (wanted, ip) = message.claim();
    let option = message.options().find(|o| o.kind == wanted);
    let advertised = message.kind == Kind::NeighbourAdvertisement;
    Some(Claim {
        mac: option.and_then(|o| o.mac()).unwrap_or(tap.source()),
        ip,
        strong: true,
        overrides: message.overrides(),
        broadcast: advertised && header.destination.is_multicast(),
        answer: advertised,
        // Perhaps the host is not the only owner. Without the Router flag, the core does not announce the address: its
        // announcement would override.
        router: message.router().filter(|_| message.overrides()),
    })
}

/// From the TAP.
impl Ipoib {
    /// Whether there may be other MACs behind the interface.
    #[inline]
    pub(in crate::core) fn serves_guests(&self) -> bool {
        self.stacked || !self.guests.is_empty()
    }

    /// Learns from an IP packet from the TAP, at least as long as its header.
    #[inline]
    pub(in crate::core) fn learn_ip(
        &mut self,
        now: Time,
        tap: &Tap<'_>,
        ethertype: u16,
    ) -> Result<(), DropReason> {
        if tap.waited || (tap.source() == self.config.mac && !self.serves_guests()) {
            return Ok(());
        }
        self.learn_guest_ip(now, tap, ethertype)
    }

    fn learn_guest_ip(
        &mut self,
        now: Time,
        tap: &Tap<'_>,
        ethertype: u16,
    ) -> Result<(), DropReason> {
        let (source, destination) = endpoints(ethertype, tap.l3());
        if ethertype == TYPE_IPV6
            && tap.l3()[6] == NEXT_HEADER_ICMPV6
            && let Some(claim) = claim_in_nd(tap)
        {
            return self.hear(now, tap, Some(claim));
        }
        if let Some((mac, ip, until)) = self.last_guest
            && ip == source
            && mac == tap.source()
            && now < until
        {
            return Ok(());
        }
        let claim = Claim {
            mac: tap.source(),
            ip: source,
            strong: false,
            overrides: false,
            broadcast: false,
            answer: false,
            router: None,
        };
        self.hear(now, tap, Some(claim))?;
        self.verify(now, tap, source, destination);
        self.last_guest = Some((tap.source(), source, now.after(CACHED_MS)));
        Ok(())
    }

    /// Learns the source of a solicitation of the host: unlike data, it is not routed.
    pub(in crate::core) fn learn_solicitation(&mut self, tap: &Tap<'_>, message: &Message<'_>) {
        let of_host = tap.source() == self.config.mac && !tap.waited;
        if of_host && message.kind == Kind::NeighbourSolicitation {
            self.host_uses(message.source().into());
        }
    }

    /// Learns from ARP from the TAP. RARP shows only the guest's presence.
    pub(in crate::core) fn learn_arp(
        &mut self,
        now: Time,
        tap: &Tap<'_>,
        ethertype: u16,
        arp: &Arp<Mac>,
    ) -> Result<(), DropReason> {
        if tap.waited {
            return Ok(());
        }
        let own = self.config.mac;
        if tap.source() == own {
            // A reply may be that of a proxy.
            if ethertype == TYPE_ARP && arp.operation == REQUEST && arp.sender == own {
                self.host_uses(arp.sender_ip.into());
            }
            if !self.serves_guests() {
                return Ok(());
            }
        }
        if ethertype != TYPE_ARP {
            return self.hear(now, tap, None);
        }
        let claim = Claim {
            mac: arp.sender,
            ip: arp.sender_ip.into(),
            strong: true,
            overrides: true,
            broadcast: tap.destination() == MAC_BROADCAST,
            answer: arp.operation != REQUEST,
            router: None,
        };
        self.hear(now, tap, Some(claim))?;
        let is_probe = arp.operation == REQUEST && arp.sender_ip.is_unspecified();
        if is_probe && is_claimable(arp.target_ip.into()) && is_host_mac(arp.sender) {
            self.host_side
                .remember_probe(now, arp.target_ip, arp.sender);
            self.publish(Update::Probing {
                ip: arp.target_ip.into(),
                mac: arp.sender,
            });
        }
        Ok(())
    }

    fn hear(&mut self, now: Time, tap: &Tap<'_>, claim: Option<Claim>) -> Result<(), DropReason> {
        let source = tap.source();
        if !is_host_mac(source) {
            return Ok(());
        }
        let claim = claim.filter(|claim| is_claimable(claim.ip));
        let foreign = source != self.config.mac;
        if foreign
            && !self.guests.knows(source)
            && let Some(slot) = self.neighbours.by_mac(source)
        {
            let looped = claim.is_some_and(|claim| self.neighbours.owns(slot, claim.ip));
            if looped || !self.host_side.may_clash(now) {
                return Err(DropReason::Looped);
            }
            self.clash(slot);
        }
        if let Some(claim) = claim {
            self.take_in(now, source, claim);
        }
        if foreign && self.guests.note_mac(now, source) {
            self.publish(Update::GuestMac { mac: source });
        }
        Ok(())
    }

    fn take_in(&mut self, now: Time, source: Mac, claim: Claim) {
        // A host may send a claim for another host, but not for a peer.
        let for_another = claim.mac != source;
        if for_another && (!is_host_mac(claim.mac) || self.neighbours.by_mac(claim.mac).is_some()) {
            return;
        }
        let known = self.guests.get(claim.ip).filter(|g| g.is_real()).copied();
        match known {
            Some(known) if known.mac == claim.mac => self.confirm(now, claim),
            Some(known) if claim.strong && (claim.overrides || known.is_weak()) => {
                if self.may_change(now, claim.ip, known.mac, claim.mac) {
                    self.add_guest(now, claim);
                }
            }
            Some(known) if known.idle_ms(now) < SILENT_MS => {}
            Some(_) => self.add_guest(now, claim),
            None => self.take_from_fabric(now, claim),
        }
    }

    /// Handles a claim by the guest that already has the address.
    fn confirm(&mut self, now: Time, claim: Claim) {
        let Some(known) = self.guests.get(claim.ip).copied() else {
            return;
        };
        if known.is_weak() && claim.strong {
            self.add_guest(now, claim);
            self.announce_heard(now, claim, false);
            return;
        }
        let shown = claim.router.filter(|shown| known.router != Some(*shown));
        if let Some(router) = shown {
            self.guests.set_router(claim.ip, router);
        }
        let unannounced = known.unannounced && !known.is_weak();
        // Without the Router flag, the address was not announced.
        let was_unknown = shown.is_some() && known.router.is_none();
        if (unannounced || was_unknown) && !self.announce_heard(now, claim, false) {
            // The next frame tries again.
            return;
        }
        self.guests.touch(now, claim.ip);
        let refresh = if claim.answer {
            ANSWER_REFRESH_MS
        } else {
            REFRESH_MS
        };
        if shown.is_some() || unannounced || now.0.saturating_sub(known.published.0) >= refresh {
            self.guests.set_published(now, claim.ip);
            self.publish_guest(claim.ip);
        }
    }

    /// Handles a claim of an address that no guest has; a peer may have it.
    fn take_from_fabric(&mut self, now: Time, claim: Claim) {
        let Some(peer) = self.neighbours.strong_owner(claim.ip) else {
            self.add_guest(now, claim);
            if claim.strong {
                self.announce_heard(now, claim, false);
            }
            return;
        };
        if !claim.overrides {
            return;
        }
        let peer = self.neighbours.get(peer).mac;
        if !self.may_change(now, claim.ip, peer, claim.mac) {
            return;
        }
        self.add_guest(now, claim);
        // A query before the move is no reason to wait with the one for the Router flag, without which the address
        // is not announced.
        self.host_side.asked.retain(|(asked, _)| *asked != claim.ip);
        self.announce_heard(now, claim, true);
    }

    /// Announces a guest's address, unless the guest's frame informs the link itself, or the Router flag is unknown.
    /// Peers may know the address at a peer, or at a queue pair from before a restart. `again`: also later. False:
    /// refused, because too many were announced.
    fn announce_heard(&mut self, now: Time, claim: Claim, again: bool) -> bool {
        let what = self.guests.get(claim.ip).and_then(Guest::announcement);
        let done = claim.broadcast
            || what.is_none_or(|what| self.announcer.announce_guest(now, what, again));
        match done {
            true => self.guests.set_unannounced(claim.ip, false),
            false => self.announce_later(claim.ip),
        }
        done
    }

    /// Notes in all replicas that a guest is announced when it is heard.
    pub(super) fn announce_later(&mut self, ip: IpAddr) {
        let is_news = |g: &Guest| g.is_real() && !g.unannounced;
        if self.guests.get(ip).is_some_and(is_news) {
            self.guests.set_unannounced(ip, true);
            self.publish_guest(ip);
        }
    }

    fn add_guest(&mut self, now: Time, claim: Claim) {
        let Claim { ip, mac, .. } = claim;
        let standing = if claim.strong {
            Standing::Claimed
        } else {
            Standing::Weak
        };
        let Some(evicted) = self.guests.set(now, ip, mac, standing) else {
            return;
        };
        if let Some(router) = claim.router {
            self.guests.set_router(ip, router);
        }
        self.last_guest = None;
        self.replaced(evicted);
        self.counters.guests_learned += 1;
        self.settle(now, ip);
        if claim.strong || mac != self.config.mac {
            let weak = !claim.strong;
            self.report(Event::GuestLearned { ip, mac, weak });
        }
        self.publish_guest(ip);
    }

    /// Counts and reports the address that was removed from the full table for another one.
    pub(in crate::core) fn replaced(&mut self, evicted: Evicted) {
        if let Some(evicted) = evicted {
            self.counters.guests_evicted += u64::from(evicted.is_real());
            self.guest_gone(&evicted);
            self.publish(Update::GuestForgotten { ip: evicted.ip });
        }
    }

    /// Handles an address that is a guest's now: removes it from peers and releases waiting frames.
    pub(super) fn settle(&mut self, now: Time, ip: IpAddr) {
        if let Some(peer) = self.neighbours.ips.get(ip).map(|e| e.owner) {
            let until = now.after(STALE_MS);
            self.guests.set_taken_from(ip, TakenFrom { peer, until });
            self.host_side.stale_until = until;
        }
        self.neighbours.ips.remove(ip);
        self.resolver.resolved(ip);
        self.host_side.resolver.resolved(ip);
    }

    fn publish_guest(&mut self, ip: IpAddr) {
        if let Some(guest) = self.guests.get(ip) {
            let update = Update::Guest {
                ip,
                mac: guest.mac,
                weak: guest.is_weak(),
                router: guest.router,
                unannounced: guest.unannounced,
            };
            self.publish(update);
        }
    }

    /// Removes all guests, because no interface is stacked on this one any more.
    pub(in crate::core) fn forget_guests(&mut self) {
        let own = self.config.mac;
        let former = std::mem::replace(
            &mut self.guests,
            Guests::new(self.config.limits.guests, own),
        );
        former.iter().for_each(|guest| self.guest_gone(guest));
        self.conflicts.clear();
        self.last_guest = None;
    }

    /// Forgets an address in all replicas.
    pub(in crate::core) fn forget_guest(&mut self, ip: IpAddr) {
        if let Some(guest) = self.guests.forget(ip) {
            self.guest_gone(&guest);
            self.publish(Update::GuestForgotten { ip });
        }
    }

    pub(super) fn guest_gone(&mut self, guest: &Guest) {
        self.last_guest = None;
        if guest.is_real() {
            self.announcer.withdraw_guest(guest.ip);
            self.report(Event::GuestForgotten { ip: guest.ip });
        }
    }

    /// Queries an address that was seen only as the source of data, so that its owner confirms it; or an address
    /// that cannot be announced yet.
    fn verify(&mut self, now: Time, tap: &Tap<'_>, ip: IpAddr, destination: IpAddr) {
        let (source, peer) = (tap.source(), tap.destination());
        let known = self.guests.get(ip).filter(|g| g.mac == source);
        let is_claimed = known.is_some_and(|g| !g.is_weak());
        // The host itself may be a router for many addresses.
        let answerable = (source != self.config.mac || is_claimed)
            && is_claimable(ip)
            && is_claimable(destination)
            && self.neighbours.by_mac(peer).is_some();
        let is_announceable = known.is_some_and(|g| g.announcement().is_some());
        if !answerable || (is_claimed && is_announceable) {
            return;
        }
        // Peers send to the former host of an address that was not announced, and a query may be lost.
        let is_hint = known.is_some_and(Guest::is_weak);
        let pause_ms = if is_hint { ASK_ANEW_MS } else { ASK_AGAIN_MS };
        self.host_side.ask(now, pause_ms, ip, destination, peer);
    }

    /// Learns the address that DHCP gave to a guest or to the host.
    pub(in crate::core) fn leased(&mut self, now: Time, ip: IpAddr, mac: Mac) {
        let of_peer = self.neighbours.by_mac(mac).is_some();
        if is_claimable(ip) && is_host_mac(mac) && !of_peer && self.serves_guests() {
            let claim = Claim {
                mac,
                ip,
                strong: true,
                overrides: true,
                // The client announces the address itself after duplicate address detection.
                broadcast: true,
                answer: false,
                router: None,
            };
            self.take_in(now, mac, claim);
        }
    }
}
