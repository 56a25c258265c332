//! Guests: learned from frames of the TAP, searched for packets from the fabric.
//!
//! ARP, neighbour discovery and DHCP define the owner of an IP address, for guests as for peers: the last
//! claimant has the address, on either side, within the limits of [`Damping`](proto::damping). The source
//! address of data is only a hint, because the guest may be a router: it takes no address from a peer, and
//! from another guest only after silence. A new or contradicting hint starts a query for the address on the
//! host side, in the name of the peer for which the data is. The answer defines the owner.

mod heard;
mod moves;

use std::collections::VecDeque;
use std::net::{IpAddr, Ipv4Addr};

use proto::{Mac, Time};

use super::incoming::Step;
use super::learning::is_claimable;
use super::outgoing::endpoints;
use super::{EVENTS_MAX, Ipoib, Limits};
use crate::arp::{Arp, REQUEST};
use crate::guests::{Guest, Standing};
use crate::own::{HostSide, write_host_announcement, write_host_correction, write_host_question};
use crate::resolve::{ASK_HOST_SIDE, Resolver};
use crate::wire::{ETHERNET_LEN, IpHeader, array, be16};
use crate::{DropReason, MAC_BROADCAST};

/// After this silence, a guest's address may move to another guest by data only.
const SILENT_MS: u64 = 60_000;
/// Time for which a query of a guest without an address is remembered (RFC 5227, section 1.1: probing takes
/// up to 5 s).
const PROBE_MS: u64 = 5000;
const PROBES_MAX: usize = 64;
/// Maximum number of queued frames for the host side.
const QUEUE_MAX: usize = 256;
/// Minimum time between queries caused by hints that contradict known owners, and by other hints.
const ASK_AGAIN_MS: u64 = 2000;
const ASK_ANEW_MS: u64 = 120_000;
const ASKED_MAX: usize = 256;
/// Minimum time between two equal corrections, and the number of remembered ones.
const CORRECT_AGAIN_MS: u64 = 1000;
const CORRECTED_MAX: usize = 64;
/// Followed MAC collisions in this time. An accidental one has a probability of 2^-40; a series of them is
/// forged, or a loop.
const CLASHES_MAX: u8 = 8;
const CLASHES_MS: u64 = 10_000;

/// A query of a guest without an address.
struct Probe {
    ip: Ipv4Addr,
    mac: Mac,
    until: Time,
}

/// State of the host side.
pub(super) struct HostSideState {
    /// Packets from the fabric for addresses without a known guest.
    resolver: Resolver,
    queue: VecDeque<HostSide>,
    probes: VecDeque<Probe>,
    /// Hints that caused a query, with its time, oldest first.
    asked: VecDeque<(IpAddr, Time)>,
    /// The latest corrections, with their times, oldest first.
    corrected: VecDeque<(HostSide, Time)>,
    /// The latest [`TakenFrom::until`](crate::guests::TakenFrom) of all guests.
    stale_until: Time,
    /// Number of followed collisions since that time.
    clashes: (Time, u8),
    /// The frame that [`Ipoib::poll_tap`] returned.
    frame: Vec<u8>,
}

impl HostSideState {
    pub fn new(limits: &Limits) -> HostSideState {
        HostSideState {
            resolver: Resolver::new(limits, ASK_HOST_SIDE),
            queue: VecDeque::new(),
            probes: VecDeque::new(),
            asked: VecDeque::new(),
            corrected: VecDeque::new(),
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

    /// Sends a correction, unless it was sent recently: its receiver may have a reason to use the MAC.
    fn correct(&mut self, now: Time, correction: HostSide) {
        let recent = |(_, then): &(HostSide, Time)| then.after(CORRECT_AGAIN_MS) > now;
        self.corrected.retain(recent);
        if self.corrected.iter().any(|(sent, _)| *sent == correction) {
            return;
        }
        if self.corrected.len() >= CORRECTED_MAX {
            self.corrected.pop_front();
        }
        self.corrected.push_back((correction, now));
        self.push(correction);
    }

    /// Queries `target` because of a packet from `source` by the peer with the MAC, unless the last query was within
    /// `pause_ms`.
    fn ask(&mut self, now: Time, pause_ms: u64, target: IpAddr, source: IpAddr, mac: Mac) {
        if self.may_ask(now, target, pause_ms) {
            self.push(HostSide::Ask {
                target,
                source,
                mac,
            });
        }
    }

    /// Whether the last query for `ip` was `pause_ms` ago or is forgotten.
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

    /// Whether another peer may get a new MAC because of a collision.
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

/// From the fabric.
impl Ipoib {
    /// The destination MAC of a unicast packet; `None` if its guest must be searched first.
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

    /// Keeps a packet, built for the host itself, until its guest is known. The host gets the packet if no query is
    /// possible, or if `l3` has only the beginning of the packet, which cannot be kept: after a query, the guest gets
    /// the next ones.
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
            Step::Packet(ethernet, len) if l3.len() < *len => {
                let mac = array(ethernet, 6);
                self.host_side
                    .ask(now, ASK_AGAIN_MS, ip, header.source, mac);
                return Ok(step);
            }
            Step::Packet(ethernet, len) => [&ethernet[..], &l3[..*len]].concat(),
            Step::Frame(len) => self.scratch[..*len].to_vec(),
            Step::Held | Step::Consumed => return Ok(step),
        };
        let resolver = &mut self.host_side.resolver;
        match resolver.hold(now, ip, header.source, &[0; 12], &frame) {
            Ok(_) => {
                self.counters.frames_held += 1;
                Ok(Step::Held)
            }
            Err(reason) if resolver.waiting(ip).is_some() => Err(reason),
            Err(_) => Ok(step),
        }
    }

    /// The destination MAC of unicast ARP.
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
            // A peer checks a guest that is unknown here, for example after a restart of this host.
            None if arp.operation == REQUEST => MAC_BROADCAST,
            None => own,
        }
    }
}

/// To the TAP.
impl Ipoib {
    /// Whether a frame from the TAP must be written back to it when the interface reflects: a frame for a
    /// guest or a group (IEEE 802.1Qbg's reflective relay, needed by macvlans in VEPA mode). A peer's own
    /// frame has already come back through a loop and is not reflected again.
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

    /// Announces the addresses that guests have claimed, because the interface's address changed. Hosts of a VLAN and
    /// ipvlans have the interface's MAC, so the addresses with this MAC are announced, too. One replica announces the
    /// guests of all.
    ///
    /// `since`: the interface has received all announcements of peers since then. A guest that was last heard before may
    /// have moved to a peer, and an announcement would take its address back. The guest is announced when it is heard.
    pub fn announce_guests(&mut self, now: Time, since: Time) {
        let here = |g: &&Guest| g.is_claimed() && g.used >= since;
        let all = self.guests.iter().filter(here);
        let all: Vec<_> = all.filter_map(Guest::announcement).collect();
        let accepted = self.announcer.announce_guests(now, &all);
        for what in &all[..accepted] {
            self.guests.set_unannounced(what.ip, false);
        }
    }

    /// Cancels the announcements of guests; each guest is announced when it is heard. Call this when the interface loses
    /// its carrier: a guest may move to a peer before the carrier returns.
    pub fn postpone_announcements(&mut self) {
        for ip in self.announcer.take_guests() {
            self.announce_later(ip);
        }
    }

    /// Returns the next Ethernet frame for the host side: a query for a guest, a correction, or a packet
    /// whose guest is known now.
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
                // The address may have moved on while the correction waited.
                let known = self.guests.get(guest.ip).filter(|g| g.is_claimed());
                return known.is_some_and(|known| known.mac == guest.mac)
                    && write_host_correction(frame, stale, guest, to);
            }
            HostSide::Ask {
                target,
                source,
                mac,
            } => {
                let source = self.peers_name(mac, source, target);
                let frame = &mut self.host_side.frame;
                if !write_host_question(frame, mac, source, target) {
                    return false;
                }
                self.counters.resolutions_sent += 1;
            }
        }
        true
    }

    /// Drops pending announcements of peers and packets from them; returns the number of packets.
    pub(super) fn flush_host_side(&mut self) -> u64 {
        let h = &mut self.host_side;
        h.queue.clear();
        h.asked.clear();
        h.stale_until = Time(0);
        self.guests.forget_peers();
        self.host_side.resolver.clear()
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
        // Those beyond are still due then. Each of these events is needed, and more would not fit.
        for _ in 0..EVENTS_MAX / 2 {
            let Some(guest) = self.guests.expire(now) else {
                break;
            };
            self.guest_gone(&guest);
        }
    }
}
