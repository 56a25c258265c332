//! Guests behind the interface: learned from what the TAP gives, found for what the fabric brings.
//!
//! What ARP, neighbour discovery and DHCP say of a guest is believed as what peers say of
//! themselves: the last to speak has the address, on whichever side it is, within the limits of
//! [`Damping`](proto::damping). The source address of data is a hint, since the guest may be a
//! router: it takes no address away from a peer, and from another guest only when that has been
//! silent. A hint that is new or contradicts makes us ask for the address on the host's side, in
//! the name of the peer that the data is for; whoever answers has it.

mod heard;
mod moves;

use std::collections::VecDeque;
use std::net::{IpAddr, Ipv4Addr};

use proto::{Mac, Time};

use super::incoming::Step;
use super::learning::is_claimable;
use super::outgoing::endpoints;
use super::{Ipoib, Limits};
use crate::arp::{Arp, REQUEST};
use crate::guests::Standing;
use crate::own::{HostSide, write_host_announcement, write_host_correction, write_host_question};
use crate::resolve::{ASK_HOST_SIDE, Resolver};
use crate::wire::{ETHERNET_LEN, IpHeader, array, be16};
use crate::{DropReason, MAC_BROADCAST};

/// A guest that is silent for so long loses its address to another's data.
const SILENT_MS: u64 = 60_000;
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
