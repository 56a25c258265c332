//! The IPoIB core: state and entry points.
//!
//! A TAP has 6-byte Ethernet addresses, IPoIB has 20-byte addresses. The core gives each peer a locally
//! administered MAC derived from its queue pair number and GID (`02:` and 40 bits of a hash), so the MAC is
//! the same after a restart. It rewrites ARP and neighbour discovery in both directions and derives MGIDs
//! from IP destinations, never from MACs. `ip neigh`, `arping`, `ndisc6` and Wireshark see a plain Ethernet
//! segment. GID and IP address identify a peer that returns with another queue pair; frames to its old MAC
//! go to its new queue pair. Several queue pairs of a port that have been known for a while are interfaces
//! of one host; if an IP address moves between them, only that address moves.

mod asking;
mod connections;
mod flush;
mod guests;
mod incoming;
mod inspection;
mod learning;
mod outgoing;
mod services;
mod siblings;
mod types;

use std::collections::HashMap;
use std::net::IpAddr;

use proto::damping::{Damping, WhenFull};
use proto::{AddressHandle, ClaimCheck, DhcpMode, EventQueue, Former, Gid, Mac, Qpn, Time};

use crate::address::{HardwareAddress, peer_mac};
use crate::counters::Counters;
use crate::event::Event;
use crate::group::{BROADCAST, Groups};
use crate::guests::{Guests, Standing};
use crate::multicast::mgid;
use crate::neighbour::{Link, Neighbours};
use crate::own::{Announcement, Announcer, write_announcement, write_question};
use crate::resolve::{ASK_FABRIC, HeldFrame, Resolver};
use crate::source_limits::SourceLimits;
use crate::too_big;
use asking::HostAddresses;
use connections::ConnectedState;
use guests::HostSideState;
use inspection::Inspection;
use services::Services;
use siblings::Siblings;

pub use inspection::Pins;
pub(crate) use learning::is_claimable;
pub use siblings::Sibling;
pub use types::{
    Config, ConnectionAction, ConnectionPeer, EchoRequest, EchoTarget, Ended, GroupInfo, GuestInfo,
    Incoming, Limits, Meta, NeighbourInfo, Outgoing, Role, Target, TooBig, Update,
};

/// Buffer for a rewritten packet: neighbour discovery that fills an Ethernet frame, with enlarged options.
const SCRATCH_LEN: usize = 2048;
const _: () = assert!(too_big::FRAME_MAX <= SCRATCH_LEN);
/// IP addresses whose changes of owner are counted. Changes beyond that are followed.
const CONFLICTS_MAX: usize = 256;
/// Events queued between two drains; more are lost and counted.
const EVENTS_MAX: usize = 1024;
/// Updates queued between two drains.
const UPDATES_MAX: usize = 4096;

/// A replica of an interface's protocol state.
///
/// A returned [`Target`] is valid until the next call that learns or sends: use it immediately.
pub struct Ipoib {
    config: Config,
    /// The interface's address before its last change.
    former_local: Former<HardwareAddress>,
    neighbours: Neighbours,
    groups: Groups,
    resolver: Resolver,
    announcer: Announcer,
    guests: Guests,
    host_addresses: HostAddresses,
    host_side: HostSideState,
    conflicts: Damping<IpAddr, Mac>,
    connected: ConnectedState,
    siblings: Siblings,
    inspection: Inspection,
    source_limits: SourceLimits,
    updates: Vec<Update>,
    counters: Counters,
    events: EventQueue<Event, EVENTS_MAX>,
    /// Neighbour events are enabled.
    watched: bool,
    /// Signed neighbour discovery was reported.
    signed_reported: bool,
    /// Another interface is stacked on this one (a bridge, macvlans), so there may be guests.
    stacked: bool,
    /// Tagged frames belong to other links.
    vlans: bool,
    /// The host routes multicast.
    routes_multicast: bool,
    services: Services,
    /// The source of the last datagram, usually also that of the next.
    last_source: Option<(Gid, Qpn, Link, Mac)>,
    /// The source of the last frame from a guest, usually also that of the next; not checked again before
    /// that time.
    last_guest: Option<(Mac, IpAddr, Time)>,
    scratch: Vec<u8>,
}

impl Ipoib {
    /// Creates an empty state. Tables allocate on demand, so an idle replica is small: see
    /// `tests/memory.rs`.
    pub fn new(config: Config) -> Ipoib {
        let broadcast = proto::mgid::broadcast(config.pkey, config.scope);
        Ipoib {
            neighbours: Neighbours::new(config.limits.neighbours),
            groups: Groups::new(broadcast, config.limits.groups),
            resolver: Resolver::new(&config.limits, ASK_FABRIC),
            announcer: Announcer::default(),
            guests: Guests::new(config.limits.guests, config.mac),
            host_addresses: HostAddresses::default(),
            host_side: HostSideState::new(&config.limits),
            conflicts: Damping::new(CONFLICTS_MAX, WhenFull::Follow),
            connected: ConnectedState::new(config.limits.connections),
            siblings: Siblings::default(),
            inspection: Inspection::default(),
            source_limits: SourceLimits::default(),
            former_local: Former::NONE,
            updates: Vec::new(),
            counters: Counters::default(),
            events: EventQueue::default(),
            watched: false,
            signed_reported: false,
            stacked: false,
            vlans: false,
            routes_multicast: false,
            services: Services::new(),
            last_source: None,
            last_guest: None,
            scratch: vec![0; SCRATCH_LEN],
            config,
        }
    }

    /// The interface's address on the fabric.
    pub fn local(&self) -> HardwareAddress {
        self.config.local
    }

    /// Whether the interface accepts and requests connections.
    pub fn takes_connections(&self) -> bool {
        self.config.limits.connections > 0
    }

    /// Changes the interface's address: another GID or queue pair. Neighbours and groups stay; announce the
    /// host's IP addresses to inform the peers. Guests are announced when they are heard;
    /// [`Ipoib::announce_guests`] does not wait for that. Connections end unless only the flags changed,
    /// because peers identify the interface by the address; listen again on [`Ipoib::service_ids`].
    pub fn set_local(&mut self, now: Time, local: HardwareAddress) {
        if !local.same_peer(&self.config.local) {
            self.former_local.set(now, self.config.local);
            self.drop_connections();
        }
        self.config.local = local;
        self.guests.set_all_unannounced();
        self.last_source = None;
        if let Some(slot) = self.neighbours.by_address(local.gid(), local.qpn()) {
            self.neighbours.forget(slot);
            self.report_if_watched(|| Event::NeighbourForgotten { address: local });
        }
    }

    /// Changes the TAP's MAC. A peer that had this MAC gets another one, announced to the host by
    /// [`Ipoib::poll_tap`].
    pub fn set_mac(&mut self, mac: Mac) {
        if mac == self.config.mac {
            return;
        }
        self.config.mac = mac;
        self.last_guest = None;
        for ip in self.guests.set_own(mac) {
            self.report(Event::GuestForgotten { ip });
        }
        if let Some(slot) = self.neighbours.by_mac(mac) {
            self.remap(slot);
        }
    }

    /// Changes the largest IP packet that the link carries.
    pub fn set_link_mtu(&mut self, bytes: usize) {
        self.config.link_mtu = bytes;
    }

    /// Changes the DHCPv4 mode.
    pub fn set_dhcp(&mut self, mode: DhcpMode) {
        self.config.dhcp = mode;
    }

    /// Changes the check of claims against their sender.
    pub fn set_claims(&mut self, claims: ClaimCheck) {
        self.config.claims = claims;
    }

    /// Sets whether to refuse requests for connections in datagram mode. Connections stay.
    pub fn set_refuse_requests(&mut self, on: bool) {
        self.config.refuse_requests = on;
    }

    /// Sets whether another interface is stacked on this one, so that there may be unknown guests. `false`
    /// removes all guests.
    pub fn set_stacked(&mut self, stacked: bool) {
        if self.stacked && !stacked {
            self.forget_guests();
        }
        self.stacked = stacked;
    }

    /// Sets whether frames with an 802.1Q tag belong to another link ([`Outgoing::Tagged`]); otherwise they
    /// count as an unsupported type. The core learns nothing from them in either case.
    pub fn set_vlans(&mut self, on: bool) {
        self.vlans = on;
    }

    /// Notes an IP address of the host: with another interface stacked on this one, packets for the address
    /// need not wait for a query.
    pub fn host_has(&mut self, now: Time, ip: IpAddr) {
        if !learning::is_claimable(ip) {
            return;
        }
        self.apply_host_address(ip, true);
        if self.guests.get(ip).is_none() {
            let own = self.config.mac;
            let evicted = self.guests.set(now, ip, own, Standing::Claimed);
            self.replaced(evicted.flatten());
        }
    }

    /// Enables or disables events about neighbours.
    pub fn watch(&mut self, on: bool) {
        self.watched = on;
    }

    /// Sets whether the host routes multicast and needs events of groups on the fabric.
    pub fn route_multicast(&mut self, on: bool) {
        self.routes_multicast = on;
    }

    /// Returns the next event, in order.
    pub fn pop_event(&mut self) -> Option<Event> {
        self.events.pop()
    }

    /// Whether [`Ipoib::pop_event`] would return an event.
    pub fn has_events(&self) -> bool {
        !self.events.is_empty()
    }

    /// The GID and queue pair of a target.
    pub fn address(&self, to: Target) -> (Gid, Qpn) {
        match to {
            Target::Group(slot) => (self.groups.get(slot).mgid, Qpn::MULTICAST),
            Target::Neighbour(slot) => {
                let a = &self.neighbours.get(slot).address;
                (a.gid(), a.qpn())
            }
        }
    }

    /// The address handle set by [`Ipoib::set_ah`] for a target.
    pub fn ah(&self, to: Target) -> Option<AddressHandle> {
        match to {
            Target::Group(slot) => self.groups.get(slot).ah,
            Target::Neighbour(slot) => self.neighbours.get(slot).ah,
        }
    }

    /// Sets the address handle of a target. [`Ipoib::pop_released_ah`] returns it when the target is
    /// evicted or gets another handle.
    pub fn set_ah(&mut self, to: Target, ah: AddressHandle) {
        let (place, released) = match to {
            Target::Group(slot) => (&mut self.groups.get_mut(slot).ah, None),
            Target::Neighbour(slot) => (&mut self.neighbours.get_mut(slot).ah, Some(())),
        };
        let Some(old) = place.replace(ah).filter(|old| *old != ah) else {
            return;
        };
        match released {
            Some(()) => self.neighbours.released.push(old),
            None => self.groups.released.push(old),
        }
    }

    /// Returns an address handle that is no longer used; the caller must destroy it.
    pub fn pop_released_ah(&mut self) -> Option<AddressHandle> {
        self.neighbours
            .released
            .pop()
            .or_else(|| self.groups.released.pop())
    }

    /// Releases all address handles, for [`Ipoib::pop_released_ah`].
    pub fn release_all(&mut self) {
        for slot in 0..self.neighbours.slots() {
            let ah = self.neighbours.get_mut(slot).ah.take();
            self.neighbours.released.extend(ah);
        }
        let handles: Vec<AddressHandle> =
            self.groups.iter_mut().filter_map(|g| g.ah.take()).collect();
        self.groups.released.extend(handles);
    }

    /// Returns the next packet of the core itself: a complete IB payload, encapsulation included.
    pub fn poll_transmit(&mut self, now: Time) -> Option<(Target, &[u8])> {
        if let Some(to) = self.next_echo(now) {
            return Some((to, self.services.echo.current()));
        }
        let local = self.config.local;
        let written = if let Some(Announcement { ip, router }) = self.announcer.next(now) {
            self.counters.announcements_sent += 1;
            write_announcement(&mut self.scratch, &local, ip, router)
        } else {
            let (target, source) = self.resolver.next_question(now)?;
            let source = self.own_name(source, target);
            self.counters.resolutions_sent += 1;
            write_question(&mut self.scratch, &local, source, target)?
        };
        let to = match self.mgid_for(written.group) {
            Some(mgid) => self.group(now, mgid),
            None => Target::Group(BROADCAST),
        };
        Some((to, &self.scratch[..written.len]))
    }

    /// Returns a held frame whose destination is known now, or may be queried again. Pass it to
    /// [`Ipoib::from_released`].
    pub fn pop_released(&mut self) -> Option<HeldFrame> {
        self.resolver
            .pop_released()
            .or_else(|| self.connected.table.pop_released())
    }

    /// Whether [`Ipoib::pop_released`] would return a frame.
    pub fn has_released(&self) -> bool {
        self.resolver.has_released() || self.connected.table.has_released()
    }

    /// The time of the next [`Ipoib::handle_timeout`], followed by [`Ipoib::poll_transmit`],
    /// [`Ipoib::poll_tap`], [`Ipoib::poll_connection`] and [`Ipoib::pop_released`].
    pub fn next_deadline(&self) -> Option<Time> {
        let own = self.announcer.next_deadline();
        let asked = self.resolver.next_deadline();
        let connections = self.connected.table.next_due();
        [own, asked, self.guests_deadline(), connections]
            .into_iter()
            .flatten()
            .min()
    }

    /// Handles timers that are due.
    pub fn handle_timeout(&mut self, now: Time) {
        self.guests_timeout(now);
        self.connections_timeout(now);
        let (failed, lost) = self.resolver.handle_timeout(now, |_| {});
        self.counters.resolutions_failed += failed;
        self.counters.held_dropped += lost;
    }

    /// Announces an IP address of the host on the link, now and again a second later: a gratuitous ARP
    /// request or an unsolicited neighbour advertisement. `router`: the host is an IPv6 router there. Ignores
    /// addresses other than unicast. While 1024 announcements wait for their repetition, an address is announced
    /// only once. Call [`Ipoib::poll_transmit`] before the next 256 addresses, because more are ignored.
    pub fn announce(&mut self, ip: IpAddr, router: bool) {
        if learning::is_claimable(ip) {
            self.host_uses(ip);
            self.announcer.announce(Announcement { ip, router });
        }
    }

    /// Cancels pending announcements of an IP address that the host no longer has, and forgets its owner on the
    /// host side: with a bridge, the core knows the address as a guest's.
    pub fn withdraw(&mut self, ip: IpAddr) {
        self.announcer.withdraw(ip);
        self.host_lost(ip);
        self.forget_guest(ip);
    }

    /// The multicast GID of an IP group on this link.
    pub fn mgid_for(&self, group: IpAddr) -> Option<Gid> {
        mgid(group, self.config.pkey, self.config.scope)
    }

    /// The broadcast GID of this link.
    pub fn broadcast_mgid(&self) -> Gid {
        self.groups.get(BROADCAST).mgid
    }

    fn group(&mut self, now: Time, mgid: Gid) -> Target {
        let slot = self.groups.for_sending(now, mgid);
        self.counters.groups_evicted = self.groups.evicted;
        Target::Group(slot)
    }

    /// Sets the groups of which the interface is a member; all other groups are send-only.
    pub fn set_joined(&mut self, now: Time, groups: &[Gid]) {
        self.groups.set_joined(now, groups);
    }

    /// The counters.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// The neighbour table.
    pub fn neighbours(&self) -> impl Iterator<Item = NeighbourInfo> {
        let mut ips: HashMap<(u32, u32), Vec<IpAddr>> = HashMap::new();
        for e in self.neighbours.ips.entries() {
            let owner = (e.owner.slot, e.owner.generation);
            ips.entry(owner).or_default().push(e.ip);
        }
        self.neighbours.live().map(move |(link, n)| {
            let mut ips = ips
                .remove(&(link.slot, link.generation))
                .unwrap_or_default();
            ips.sort_unstable();
            NeighbourInfo {
                mac: n.mac,
                address: n.address,
                ips,
                confirmed: n.confirmed,
                ah: n.ah,
                used: n.used,
            }
        })
    }

    /// The guests' IP addresses and, while there are guests, the host's own; in no order.
    pub fn guests(&self) -> impl Iterator<Item = GuestInfo> {
        self.guests.iter().map(|g| GuestInfo {
            ip: g.ip,
            mac: g.mac,
            weak: g.is_weak(),
            used: g.used,
        })
    }

    /// The group table, starting with the broadcast group.
    pub fn groups(&self) -> impl Iterator<Item = GroupInfo> {
        self.groups.iter().map(|g| GroupInfo {
            mgid: g.mgid,
            send_only: !g.joined,
            created: g.created,
            ah: g.ah,
        })
    }

    /// The MAC of the peer `address`, known or not.
    fn mac_of(&self, address: &HardwareAddress) -> Mac {
        if address.same_peer(&self.config.local) {
            return self.config.mac;
        }
        match self.neighbours.by_address(address.gid(), address.qpn()) {
            Some(slot) => self.neighbours.get(slot).mac,
            None => peer_mac(address),
        }
    }
}

#[cfg(test)]
mod tests;
