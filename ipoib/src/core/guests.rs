//! Guests behind the interface: learned from what the TAP gives, found for what the fabric brings.
//!
//! What ARP, neighbour discovery and DHCP say of a guest is believed as what peers say of
//! themselves: the last to speak has the address, on whichever side it is, within the limits of
//! [`Conflicts`](crate::conflict). The source address of data is a hint, since the guest may be a
//! router: it takes no address away from a peer, and from another guest only when that has been
//! silent. A hint that is new or contradicts makes us ask for the address on the host's side, in
//! the name of the peer that the data is for; whoever answers has it.

use std::collections::VecDeque;
use std::net::{IpAddr, Ipv4Addr};

use proto::{Mac, Time};

use super::incoming::Step;
use super::learning::is_claimable;
use super::outgoing::{Tap, endpoints};
use super::{Ipoib, Limits, Update};
use crate::arp::{Arp, REQUEST};
use crate::conflict::Verdict;
use crate::guests::{Guest, Guests, Standing};
use crate::nd::{self, Kind};
use crate::own::{
    Holder, HostSide, write_host_announcement, write_host_correction, write_host_question,
};
use crate::resolve::{ASK_HOST_SIDE, Resolver};
use crate::wire::{
    ETHERNET_LEN, IpHeader, NEXT_HEADER_ICMPV6, TYPE_ARP, TYPE_IPV6, array, be16, ip_header,
};
use crate::{DropReason, Event, MAC_BROADCAST};

/// The source of a frame is looked at again after this long.
const CACHED_MS: u64 = 1000;
/// A guest that is silent for so long loses its address to another's data.
const SILENT_MS: u64 = 60_000;
/// Replicas are told of an address in use this often, so that it grows old in none.
const REFRESH_MS: u64 = 20_000;
/// The same for answers, for which another replica may be waiting.
const ANSWER_REFRESH_MS: u64 = 1000;
/// How long the question of a guest without an address is remembered (RFC 5227, section 1.1:
/// probing takes up to 5 s).
const PROBE_MS: u64 = 5000;
const PROBES_MAX: usize = 64;
/// Frames of our own for the host's side that may wait.
const QUEUE_MAX: usize = 256;
/// A hint that contradicts what is known is followed by a question this often, any other so often.
const ASK_AGAIN_MS: u64 = 2000;
const ASK_ANEW_MS: u64 = 120_000;
const ASKED_MAX: usize = 256;
/// Clashes that are followed in so long a time. An accident is one in 2^40: whoever takes one peer's
/// Ethernet address after another forges them, or there is a loop.
const CLASHES_MAX: u8 = 8;
const CLASHES_MS: u64 = 10_000;
/// For so long after a move somebody may still have the former Ethernet address: Linux believes an
/// entry for up to 45 s, and uses it for 8 s more while it asks.
const STALE_MS: u64 = 120_000;

/// A guest without an address asks for one.
struct Probe {
    ip: Ipv4Addr,
    mac: Mac,
    until: Time,
}

/// What goes on with the host's side of the interface.
pub(super) struct HostSideState {
    /// Packets from the fabric for addresses that no guest is known to have.
    resolver: Resolver,
    queue: VecDeque<HostSide>,
    probes: VecDeque<Probe>,
    /// Hints that were followed by a question, and when, oldest first.
    asked: VecDeque<(IpAddr, Time)>,
    /// Until then others on the host's side may have a peer's Ethernet address for an IP address
    /// that moved to a guest.
    stale_until: Time,
    /// Clashes that were followed since then.
    clashes: (Time, u8),
    /// The frame that [`Ipoib::poll_tap`] gave out.
    frame: Vec<u8>,
}

impl HostSideState {
    pub fn new(limits: &Limits) -> HostSideState {
        HostSideState {
            resolver: Resolver::new(limits, ASK_HOST_SIDE),
            queue: VecDeque::new(),
            probes: VecDeque::new(),
            asked: VecDeque::new(),
            stale_until: Time(0),
            clashes: (Time(0), 0),
            frame: Vec::new(),
        }
    }

    fn push(&mut self, message: HostSide) {
        if self.queue.len() < QUEUE_MAX && !self.queue.contains(&message) {
            self.queue.push_back(message);
        }
    }

    /// Whether the last question for `ip` is `pause_ms` ago or forgotten.
    fn may_ask(&mut self, now: Time, ip: IpAddr, pause_ms: u64) -> bool {
        if let Some(at) = self.asked.iter().position(|(asked, _)| *asked == ip) {
            if self.asked[at].1.after(pause_ms) > now {
                return false;
            }
            self.asked.remove(at);
        }
        let forgotten = |(_, then): &(IpAddr, Time)| then.after(ASK_AGAIN_MS) <= now;
        if self.asked.len() >= ASKED_MAX {
            if !self.asked.front().is_some_and(forgotten) {
                return false;
            }
            self.asked.pop_front();
        }
        self.asked.push_back((ip, now));
        true
    }

    /// Whether a peer may be given another Ethernet address once more.
    fn may_clash(&mut self, now: Time) -> bool {
        let (since, used) = &mut self.clashes;
        if since.after(CLASHES_MS) <= now {
            (*since, *used) = (now, 0);
        }
        let left = *used < CLASHES_MAX;
        *used += u8::from(left);
        left
    }

    fn remember_probe(&mut self, now: Time, ip: Ipv4Addr, mac: Mac) {
        self.probes.retain(|p| p.ip != ip && p.until > now);
        if self.probes.len() >= PROBES_MAX {
            self.probes.pop_front();
        }
        let until = now.after(PROBE_MS);
        self.probes.push_back(Probe { ip, mac, until });
    }
}

/// What a frame from the TAP says about who has which address.
#[derive(Clone, Copy)]
struct Said {
    /// Whose the address is.
    mac: Mac,
    ip: IpAddr,
    /// Said by ARP, neighbour discovery or DHCP; otherwise a hint.
    strong: bool,
    /// The frame tells all peers.
    broadcast: bool,
    /// Somebody asked for it.
    answer: bool,
}

fn is_host_mac(mac: Mac) -> bool {
    mac[0] & 1 == 0 && mac != [0; 6]
}

/// What neighbour discovery from the TAP says; `None` when it is none, or says nothing that can be
/// believed.
fn said_in_nd(tap: &Tap<'_>) -> Option<Said> {
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
    Some(Said {
        mac: option.and_then(|o| o.mac()).unwrap_or(tap.source()),
        ip,
        strong: true,
        broadcast: advertised && header.destination.is_multicast(),
        answer: advertised,
    })
}

/// From the TAP.
impl Ipoib {
    /// Whether there may be more than one Ethernet address behind the interface.
    #[inline]
    pub(super) fn serves_guests(&self) -> bool {
        self.stacked || !self.guests.is_empty()
    }

    /// Learns from an IP packet from the TAP, of at least header length.
    #[inline]
    pub(super) fn hear_ip(
        &mut self,
        now: Time,
        tap: &Tap<'_>,
        ethertype: u16,
    ) -> Result<(), DropReason> {
        if tap.waited || (tap.source() == self.config.mac && !self.serves_guests()) {
            return Ok(());
        }
        self.hear_guest_ip(now, tap, ethertype)
    }

    fn hear_guest_ip(
        &mut self,
        now: Time,
        tap: &Tap<'_>,
        ethertype: u16,
    ) -> Result<(), DropReason> {
        let (source, destination) = endpoints(ethertype, tap.l3());
        if ethertype == TYPE_IPV6
            && tap.l3()[6] == NEXT_HEADER_ICMPV6
            && let Some(said) = said_in_nd(tap)
        {
            return self.hear(now, tap, Some(said));
        }
        if let Some((mac, ip, until)) = self.last_guest
            && ip == source
            && mac == tap.source()
            && now < until
        {
            return Ok(());
        }
        let said = Said {
            mac: tap.source(),
            ip: source,
            strong: false,
            broadcast: false,
            answer: false,
        };
        self.hear(now, tap, Some(said))?;
        self.verify(now, tap, source, destination);
        self.last_guest = Some((tap.source(), source, now.after(CACHED_MS)));
        Ok(())
    }

    /// Learns from ARP from the TAP; from RARP no more than that the guest is there.
    pub(super) fn hear_arp(
        &mut self,
        now: Time,
        tap: &Tap<'_>,
        ethertype: u16,
        arp: &Arp<Mac>,
    ) -> Result<(), DropReason> {
        if tap.waited || (tap.source() == self.config.mac && !self.serves_guests()) {
            return Ok(());
        }
        if ethertype != TYPE_ARP {
            return self.hear(now, tap, None);
        }
        let said = Said {
            mac: arp.sender,
            ip: arp.sender_ip.into(),
            strong: true,
            broadcast: tap.destination() == MAC_BROADCAST,
            answer: arp.operation != REQUEST,
        };
        self.hear(now, tap, Some(said))?;
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

    fn hear(&mut self, now: Time, tap: &Tap<'_>, said: Option<Said>) -> Result<(), DropReason> {
        let source = tap.source();
        if !is_host_mac(source) {
            return Ok(());
        }
        let said = said.filter(|s| is_claimable(s.ip));
        let foreign = source != self.config.mac;
        if foreign
            && !self.guests.knows(source)
            && let Some(slot) = self.neighbours.by_mac(source)
        {
            let looped = said.is_some_and(|s| self.neighbours.owns(slot, s.ip));
            if looped || !self.host_side.may_clash(now) {
                return Err(DropReason::Looped);
            }
            self.clash(slot);
        }
        if let Some(said) = said {
            self.take_in(now, source, said);
        }
        if foreign && self.guests.note_mac(now, source) {
            self.publish(Update::GuestMac { mac: source });
        }
        Ok(())
    }

    fn take_in(&mut self, now: Time, source: Mac, said: Said) {
        // A host may speak for another, but not for a peer.
        let for_another = said.mac != source;
        if for_another && (!is_host_mac(said.mac) || self.neighbours.by_mac(said.mac).is_some()) {
            return;
        }
        let known = self.guests.get(said.ip).filter(|g| g.is_real()).copied();
        match known {
            Some(known) if known.mac == said.mac => self.confirm(now, said),
            Some(known) if said.strong => {
                if self.may_change(now, said.ip, known.mac, said.mac) != Change::Refused {
                    self.add_guest(now, said);
                }
            }
            Some(known) if known.idle_ms(now) < SILENT_MS => {}
            Some(_) => self.add_guest(now, said),
            None => self.take_from_fabric(now, said),
        }
    }

    /// A guest has the address already.
    fn confirm(&mut self, now: Time, said: Said) {
        let Some(known) = self.guests.get(said.ip).copied() else {
            return;
        };
        if known.is_weak() && said.strong {
            self.add_guest(now, said);
            self.announce_found(now, said);
            return;
        }
        self.guests.touch(now, said.ip);
        let refresh = if said.answer {
            ANSWER_REFRESH_MS
        } else {
            REFRESH_MS
        };
        if now.0.saturating_sub(known.told.0) >= refresh {
            self.guests.set_told(now, said.ip);
            self.publish_guest(said.ip);
        }
    }

    /// No guest had the address; maybe a peer has.
    fn take_from_fabric(&mut self, now: Time, said: Said) {
        let Some(peer) = self.neighbours.strong_owner(said.ip) else {
            self.add_guest(now, said);
            self.announce_found(now, said);
            return;
        };
        if !said.strong {
            return;
        }
        let peer = self.neighbours.get(peer).mac;
        let change = self.may_change(now, said.ip, peer, said.mac);
        if change == Change::Refused {
            return;
        }
        self.add_guest(now, said);
        if change == Change::Told && !said.broadcast {
            self.announcer.announce_guest(now, said.ip, true);
        }
    }

    /// Peers may know the address at a queue pair that we had before a restart. The host's own are
    /// announced by who starts us.
    fn announce_found(&mut self, now: Time, said: Said) {
        if said.strong && !said.broadcast && said.mac != self.config.mac {
            self.announcer.announce_guest(now, said.ip, false);
        }
    }

    fn add_guest(&mut self, now: Time, said: Said) {
        let Said { ip, mac, .. } = said;
        let standing = if said.strong {
            Standing::Said
        } else {
            Standing::Weak
        };
        let Some(evicted) = self.guests.set(now, ip, mac, standing) else {
            return;
        };
        self.last_guest = None;
        if let Some(evicted) = evicted {
            self.counters.guests_evicted += u64::from(evicted.is_real());
            self.guest_gone(&evicted);
            self.publish(Update::GuestForgotten { ip: evicted.ip });
        }
        self.counters.guests_learned += 1;
        self.settle(now, ip);
        if said.strong || mac != self.config.mac {
            let weak = !said.strong;
            self.tell(Event::GuestLearned { ip, mac, weak });
        }
        self.publish_guest(ip);
    }

    /// An address is a guest's now: no peer has it, and nobody waits for it.
    fn settle(&mut self, now: Time, ip: IpAddr) {
        if self.neighbours.by_ip(ip).is_some() {
            self.host_side.stale_until = now.after(STALE_MS);
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
            };
            self.publish(update);
        }
    }

    /// Nothing is stacked on the interface any more: whoever was behind it is not.
    pub(super) fn forget_guests(&mut self) {
        let own = self.config.mac;
        let former = std::mem::replace(
            &mut self.guests,
            Guests::new(self.config.limits.guests, own),
        );
        former.iter().for_each(|guest| self.guest_gone(guest));
        self.conflicts.clear();
        self.last_guest = None;
    }

    fn withdraw_guest(&mut self, guest: &Guest) {
        if guest.mac != self.config.mac {
            self.announcer.withdraw(guest.ip);
        }
    }

    fn guest_gone(&mut self, guest: &Guest) {
        self.last_guest = None;
        if guest.is_real() {
            self.withdraw_guest(guest);
            self.tell(Event::GuestForgotten { ip: guest.ip });
        }
    }

    /// Asks for an address that was seen as the source of data only, so that its owner says so.
    fn verify(&mut self, now: Time, tap: &Tap<'_>, ip: IpAddr, destination: IpAddr) {
        let (source, peer) = (tap.source(), tap.destination());
        let answerable = source != self.config.mac
            && is_claimable(ip)
            && is_claimable(destination)
            && self.neighbours.by_mac(peer).is_some();
        let known = self.guests.get(ip).filter(|g| g.mac == source);
        if !answerable || known.is_some_and(|g| !g.is_weak()) {
            return;
        }
        let pause_ms = known.map_or(ASK_AGAIN_MS, |_| ASK_ANEW_MS);
        if self.host_side.may_ask(now, ip, pause_ms) {
            self.host_side.push(HostSide::Ask {
                target: ip,
                source: destination,
                mac: peer,
            });
        }
    }
}

/// Whether an address may change its owner.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Change {
    /// Yes, and the link is to be told.
    Told,
    Quiet,
    Refused,
}

/// Between the two sides.
impl Ipoib {
    /// An address changes from `one` to `other`, unless it does that too often.
    pub(super) fn may_change(&mut self, now: Time, ip: IpAddr, one: Mac, other: Mac) -> Change {
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
    pub(super) fn yield_to_peer(&mut self, now: Time, ip: IpAddr, peer: Mac) -> bool {
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
    pub(super) fn guest_lost(&mut self, now: Time, ip: IpAddr, peer: Mac) {
        self.last_guest = None;
        if let Some(guest) = self.guests.forget(ip).filter(Guest::is_real) {
            self.withdraw_guest(&guest);
            self.conflicts.note(now, ip, guest.mac, peer);
        }
    }

    /// Whether a guest said that it has an address, or used it lately.
    pub(super) fn is_at_guest(&self, now: Time, ip: IpAddr) -> bool {
        let recent = |g: &Guest| !g.is_weak() || g.idle_ms(now) < SILENT_MS;
        self.guests
            .get(ip)
            .is_some_and(|g| g.is_real() && recent(g))
    }

    /// Refuses a frame that goes to a peer while its IP address has moved from there to a guest, and
    /// tells the sender where the guest is. Others learn that from the guest's broadcasts, but
    /// neighbour discovery is multicast, which they need not hear.
    #[inline]
    pub(super) fn is_not_stale(
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
    pub(super) fn is_guests(&self, ip: IpAddr) -> bool {
        self.guests.get(ip).is_some_and(Guest::is_real)
    }

    /// A guest has the Ethernet address of a peer, which gets another.
    fn clash(&mut self, slot: u32) {
        let guest = self.neighbours.get(slot).mac;
        let peer = self.remap(slot);
        self.tell(Event::MacClash { guest, peer });
    }

    /// Gives a peer another Ethernet address than it has, and tells the host's side.
    pub(super) fn remap(&mut self, slot: u32) -> Mac {
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
    pub(super) fn apply_guest(&mut self, now: Time, ip: IpAddr, mac: Mac, weak: bool) {
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
    pub(super) fn apply_guest_mac(&mut self, now: Time, mac: Mac) {
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

    pub(super) fn apply_guest_forgotten(&mut self, ip: IpAddr) {
        self.last_guest = None;
        if let Some(guest) = self.guests.forget(ip) {
            self.withdraw_guest(&guest);
        }
    }

    pub(super) fn apply_probing(&mut self, now: Time, ip: IpAddr, mac: Mac) {
        if let IpAddr::V4(ip) = ip {
            self.host_side.remember_probe(now, ip, mac);
        }
    }

    pub(super) fn apply_remapped(&mut self, slot: u32, mac: Mac) {
        let (own, guests) = (self.config.mac, &self.guests);
        let taken = |mac| mac == own || guests.knows(mac);
        if self.neighbours.by_mac(mac).is_none() && !taken(mac) {
            self.neighbours.remap(slot, Some(mac), taken);
            self.last_source = None;
        }
    }

    /// DHCP gave an address to a guest, or to the host.
    pub(super) fn leased(&mut self, now: Time, ip: IpAddr, mac: Mac) {
        let of_peer = self.neighbours.by_mac(mac).is_some();
        if is_claimable(ip) && is_host_mac(mac) && !of_peer && self.serves_guests() {
            let said = Said {
                mac,
                ip,
                strong: true,
                // It will tell the link itself when it has made sure that nobody else has it.
                broadcast: true,
                answer: false,
            };
            self.take_in(now, mac, said);
        }
    }
}

/// From the fabric.
impl Ipoib {
    /// The Ethernet destination of a unicast packet; `None` when its guest must be found first.
    #[inline]
    pub(super) fn guest_for(&self, ip: IpAddr) -> Option<Mac> {
        if !self.serves_guests() {
            return Some(self.config.mac);
        }
        match self.guests.get(ip) {
            Some(guest) => Some(guest.mac),
            None if is_claimable(ip) => None,
            None => Some(self.config.mac),
        }
    }

    /// Keeps a packet, made for the host itself, until its guest is known. Where nobody can be
    /// asked, it goes to the host.
    pub(super) fn hold_for_guest(
        &mut self,
        now: Time,
        step: Step,
        header: &IpHeader,
        l3: &[u8],
    ) -> Result<Step, DropReason> {
        let ip = header.destination;
        if !is_claimable(header.source) {
            return Ok(step);
        }
        let frame = match &step {
            Step::Packet(ethernet, len) => [&ethernet[..], &l3[..*len]].concat(),
            Step::Frame(len) => self.scratch[..*len].to_vec(),
            Step::Held | Step::Consumed => return Ok(step),
        };
        let resolver = &mut self.host_side.resolver;
        match resolver.hold(now, ip, header.source, &[0; 12], &frame) {
            Ok(()) => {
                self.counters.frames_held += 1;
                Ok(Step::Held)
            }
            Err(reason) if resolver.waiting(ip).is_some() => Err(reason),
            Err(_) => Ok(step),
        }
    }

    /// The Ethernet destination of ARP that came by unicast.
    pub(super) fn arp_guest<H>(&self, arp: &Arp<H>) -> Mac {
        let own = self.config.mac;
        if !self.serves_guests() {
            return own;
        }
        if arp.target_ip.is_unspecified() {
            let mut probes = self.host_side.probes.iter();
            let probe = probes.find(|p| p.ip == arp.sender_ip);
            return probe.map_or(own, |p| p.mac);
        }
        match self.guests.get(arp.target_ip.into()) {
            Some(guest) => guest.mac,
            // A peer checks on a guest that we do not know yet, as after our own restart.
            None if arp.operation == REQUEST => MAC_BROADCAST,
            None => own,
        }
    }
}

/// To the TAP.
impl Ipoib {
    /// Whether a frame from the TAP goes back to it, too, where the interface reflects: it is for a
    /// guest, or for a group (IEEE 802.1Qbg's reflective relay, which macvlans in VEPA mode need).
    /// A peer's own frame has come back through a loop already, and does not once more.
    pub fn is_reflected(&self, frame: &[u8]) -> bool {
        let Some((to, rest)) = frame.split_first_chunk::<6>() else {
            return false;
        };
        let looped = rest
            .first_chunk::<6>()
            .is_some_and(|from| self.neighbours.by_mac(*from).is_some());
        let wanted = to[0] & 1 != 0 || (*to != self.config.mac && self.guests.knows(*to));
        wanted && !looped
    }

    /// The next Ethernet frame of our own for the host: a question for a guest, a correction, or a
    /// packet that waited for its guest to be known.
    pub fn poll_tap(&mut self, now: Time) -> Option<&[u8]> {
        while let Some(message) = self.host_side.queue.pop_front() {
            if self.write_host_side(message) {
                return Some(&self.host_side.frame);
            }
        }
        while let Some((target, source)) = self.host_side.resolver.next_question(now) {
            let waiting = self.host_side.resolver.waiting(target);
            let Some(held) = waiting.and_then(VecDeque::front) else {
                continue;
            };
            let mac = array(&held.frame, 6);
            if self.write_host_side(HostSide::Ask {
                target,
                source,
                mac,
            }) {
                return Some(&self.host_side.frame);
            }
        }
        let held = self.host_side.resolver.pop_released()?;
        let frame = &mut self.host_side.frame;
        frame.clear();
        frame.extend_from_slice(&held.frame);
        let (_, destination) = endpoints(be16(frame, 12), &frame[ETHERNET_LEN..]);
        let mac = self.guests.get(destination).map(|guest| guest.mac);
        frame[..6].copy_from_slice(&mac.unwrap_or(self.config.mac));
        Some(&self.host_side.frame)
    }

    fn write_host_side(&mut self, message: HostSide) -> bool {
        let frame = &mut self.host_side.frame;
        match message {
            HostSide::Announce { ip, mac } => write_host_announcement(frame, mac, ip),
            HostSide::Correct { stale, guest, to } => {
                return write_host_correction(frame, stale, guest, to);
            }
            HostSide::Ask {
                target,
                source,
                mac,
            } => {
                if !write_host_question(frame, mac, source, target) {
                    return false;
                }
                self.counters.resolutions_sent += 1;
            }
        }
        true
    }

    /// Forgets what was to be told of peers, and what came from them; gives how many packets.
    pub(super) fn flush_host_side(&mut self) -> u64 {
        let h = &mut self.host_side;
        h.queue.clear();
        h.asked.clear();
        h.stale_until = Time(0);
        h.resolver.clear()
    }

    pub(super) fn guests_deadline(&self) -> Option<Time> {
        let h = &self.host_side;
        let at_once = !h.queue.is_empty() || h.resolver.has_released();
        let at_once = at_once.then_some(Time(0));
        let later = [h.resolver.next_deadline(), self.guests.next_deadline()];
        at_once.into_iter().chain(later.into_iter().flatten()).min()
    }

    pub(super) fn guests_timeout(&mut self, now: Time) {
        let own = self.config.mac;
        let guests = &mut self.guests;
        let (failed, _) = self.host_side.resolver.handle_timeout(now, |ip| {
            guests.set(now, ip, own, Standing::Presumed);
        });
        self.counters.resolutions_failed += failed;
        while let Some(guest) = self.guests.expire(now) {
            self.guest_gone(&guest);
        }
    }
}
