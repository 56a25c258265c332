//! The protocol machine.
//!
//! A TAP has 6-byte Ethernet addresses, IPoIB has 20-byte addresses. The core gives each peer a
//! locally administered MAC derived from its queue pair number and GID (`02:` and 40 bits of a
//! hash), so the MAC is the same after a restart. It rewrites ARP and neighbour discovery in both
//! directions and derives MGIDs from IP destinations, never from MACs. `ip neigh`, `arping`,
//! `ndisc6` and Wireshark see a plain Ethernet segment. The GID and the IP address identify a peer
//! that returns with another queue pair; frames to its old MAC go to its new queue pair. Several
//! queue pairs of one port that were known for a while are interfaces of one host: an address that
//! moves between them moves alone.

mod connections;
mod flush;
mod guests;
mod incoming;
mod learning;
mod outgoing;
mod services;
mod siblings;
mod types;

use std::collections::HashMap;
use std::net::IpAddr;

use proto::damping::{Damping, WhenFull};
use proto::{AddressHandle, DhcpMode, EventQueue, Gid, Mac, Qpn, Time};

use crate::address::{HardwareAddress, peer_mac};
use crate::counters::Counters;
use crate::event::Event;
use crate::group::{BROADCAST, Groups};
use crate::guests::{Guests, Standing};
use crate::multicast::{broadcast_mgid, mgid};
use crate::neighbour::{Link, Neighbours};
use crate::own::{Announcer, write_announcement, write_question};
use crate::resolve::{ASK_FABRIC, HeldFrame, Resolver};
use crate::too_big;
use connections::ConnectedState;
use guests::HostSideState;
use services::Services;
use siblings::Siblings;

pub(crate) use learning::is_claimable;
pub use siblings::Sibling;
pub use types::{
    Config, ConnectionAction, ConnectionPeer, EchoRequest, EchoTarget, Ended, GroupInfo, GuestInfo,
    Incoming, Limits, Meta, NeighbourInfo, Outgoing, Role, Target, TooBig, Update,
};

/// Room for a rewritten packet: neighbour discovery that fills an Ethernet frame, and what its
/// options may grow by.
const SCRATCH_LEN: usize = 2048;
const _: () = assert!(too_big::FRAME_MAX <= SCRATCH_LEN);
/// Addresses whose changes of owner are counted. Where more change at the same time, nobody hears of it.
const CONFLICTS_MAX: usize = 256;
/// Events kept between two drains; more are lost and counted.
const EVENTS_MAX: usize = 1024;
/// Updates kept between two drains.
const UPDATES_MAX: usize = 4096;

/// One replica of an interface's protocol state.
///
/// A [`Target`] that a call returns is good until the next call that learns or sends: use it at
/// once.
pub struct Ipoib {
    config: Config,
    neighbours: Neighbours,
    groups: Groups,
    resolver: Resolver,
    announcer: Announcer,
    guests: Guests,
    host_side: HostSideState,
    conflicts: Damping<IpAddr, Mac>,
    connected: ConnectedState,
    siblings: Siblings,
    updates: Vec<Update>,
    counters: Counters,
    events: EventQueue<Event, EVENTS_MAX>,
    /// Neighbour events are wanted.
    watched: bool,
    /// Signed neighbour discovery was told of.
    told_signed: bool,
    /// Something is stacked on the interface (a bridge, macvlans), so that its own address is not
    /// the only one behind it.
    stacked: bool,
    /// Frames with a tag are another link's.
    vlans: bool,
    /// The host routes multicast.
    routes_multicast: bool,
    services: Services,
    /// The source of the last datagram, which is mostly that of the next.
    last_source: Option<(Gid, Qpn, Link, Mac)>,
    /// The source of the last frame from a guest, which is mostly that of the next: not looked at
    /// again before that time.
    last_guest: Option<(Mac, IpAddr, Time)>,
    scratch: Vec<u8>,
}

impl Ipoib {
    /// An empty state. Its tables take memory only for what is in them, so that an idle replica is
    /// small: see `tests/memory.rs`.
    pub fn new(config: Config) -> Ipoib {
        let broadcast = broadcast_mgid(config.pkey, config.scope);
        Ipoib {
            neighbours: Neighbours::new(config.limits.neighbours),
            groups: Groups::new(broadcast, config.limits.groups),
            resolver: Resolver::new(&config.limits, ASK_FABRIC),
            announcer: Announcer::default(),
            guests: Guests::new(config.limits.guests, config.mac),
            host_side: HostSideState::new(&config.limits),
            conflicts: Damping::new(CONFLICTS_MAX, WhenFull::Follow),
            connected: ConnectedState::new(config.limits.connections),
            siblings: Siblings::default(),
            updates: Vec::new(),
            counters: Counters::default(),
            events: EventQueue::default(),
            watched: false,
            told_signed: false,
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

    /// Our own address.
    pub fn local(&self) -> HardwareAddress {
        self.config.local
    }

    /// Whether peers may ask for connections, and we for theirs.
    pub fn takes_connections(&self) -> bool {
        self.config.limits.connections > 0
    }

    /// The port's GID or the queue pair changed. Neighbours and groups stay; announce the host's
    /// addresses to tell the peers. Unless only the flags did, connections end, since peers know us by
    /// the address that they were made with; listen anew for [`Ipoib::service_ids`].
    pub fn set_local(&mut self, local: HardwareAddress) {
        if !local.same_peer(&self.config.local) {
            self.drop_connections();
        }
        self.config.local = local;
        self.last_source = None;
        if let Some(slot) = self.neighbours.by_address(local.gid(), local.qpn()) {
            self.neighbours.forget(slot);
            self.tell_watcher(|| Event::NeighbourForgotten { address: local });
        }
    }

    /// The TAP's own Ethernet address changed. A peer that had it gets another, which the host is
    /// told through [`Ipoib::poll_tap`].
    pub fn set_mac(&mut self, mac: Mac) {
        if mac == self.config.mac {
            return;
        }
        self.config.mac = mac;
        self.last_guest = None;
        for ip in self.guests.set_own(mac) {
            self.tell(Event::GuestForgotten { ip });
        }
        if let Some(slot) = self.neighbours.by_mac(mac) {
            self.remap(slot);
        }
    }

    /// The largest IP packet that the link carries changed.
    pub fn set_link_mtu(&mut self, bytes: usize) {
        self.config.link_mtu = bytes;
    }

    /// What is done to DHCPv4 from now on.
    pub fn set_dhcp(&mut self, mode: DhcpMode) {
        self.config.dhcp = mode;
    }

    /// Says whether something is stacked on the interface, so that there may be guests that nobody
    /// has heard of yet. When nothing is any more, guests are forgotten.
    pub fn set_stacked(&mut self, stacked: bool) {
        if self.stacked && !stacked {
            self.forget_guests();
        }
        self.stacked = stacked;
    }

    /// Says whether frames with an 802.1Q tag are another link's ([`Outgoing::Tagged`]); else they are
    /// of a type that is not carried. Nothing is learned from them in either case.
    pub fn set_vlans(&mut self, on: bool) {
        self.vlans = on;
    }

    /// The host itself has an address: packets for it need not wait until the host is asked, when
    /// something is stacked on the interface.
    pub fn host_has(&mut self, now: Time, ip: IpAddr) {
        if learning::is_claimable(ip) && self.guests.get(ip).is_none() {
            let own = self.config.mac;
            self.guests.set(now, ip, own, Standing::Said);
        }
    }

    /// Switches events about neighbours on or off.
    pub fn watch(&mut self, on: bool) {
        self.watched = on;
    }

    /// Says whether the host routes multicast, and wants to hear of groups that others report.
    pub fn route_multicast(&mut self, on: bool) {
        self.routes_multicast = on;
    }

    /// The next event, in order.
    pub fn pop_event(&mut self) -> Option<Event> {
        self.events.pop()
    }

    /// Whether [`Ipoib::pop_event`] has something.
    pub fn has_events(&self) -> bool {
        !self.events.is_empty()
    }

    /// Where a target is: a GID, and the queue pair there.
    pub fn address(&self, to: Target) -> (Gid, Qpn) {
        match to {
            Target::Group(slot) => (self.groups.get(slot).mgid, Qpn::MULTICAST),
            Target::Neighbour(slot) => {
                let a = &self.neighbours.get(slot).address;
                (a.gid(), a.qpn())
            }
        }
    }

    /// The address handle that [`Ipoib::set_ah`] gave to a target.
    pub fn ah(&self, to: Target) -> Option<AddressHandle> {
        match to {
            Target::Group(slot) => self.groups.get(slot).ah,
            Target::Neighbour(slot) => self.neighbours.get(slot).ah,
        }
    }

    /// Keeps an address handle for a target. It comes back through [`Ipoib::pop_released_ah`] when
    /// the target makes room for another, or is given a new handle.
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

    /// An address handle that is no longer named, to be ended by the caller.
    pub fn pop_released_ah(&mut self) -> Option<AddressHandle> {
        self.neighbours
            .released
            .pop()
            .or_else(|| self.groups.released.pop())
    }

    /// Gives up all address handles, for [`Ipoib::pop_released_ah`].
    pub fn release_all(&mut self) {
        for slot in 0..self.neighbours.slots() {
            let ah = self.neighbours.get_mut(slot).ah.take();
            self.neighbours.released.extend(ah);
        }
        let handles: Vec<AddressHandle> =
            self.groups.iter_mut().filter_map(|g| g.ah.take()).collect();
        self.groups.released.extend(handles);
    }

    /// The next packet of our own: a complete IB payload, encapsulation included.
    pub fn poll_transmit(&mut self, now: Time) -> Option<(Target, &[u8])> {
        if let Some(to) = self.next_echo(now) {
            return Some((to, self.services.echo.current()));
        }
        let local = self.config.local;
        let written = if let Some(ip) = self.announcer.next(now) {
            self.counters.announcements_sent += 1;
            write_announcement(&mut self.scratch, &local, ip)
        } else {
            let (target, source) = self.resolver.next_question(now)?;
            self.counters.resolutions_sent += 1;
            write_question(&mut self.scratch, &local, source, target)?
        };
        let to = match self.mgid_for(written.group) {
            Some(mgid) => self.group(now, mgid),
            None => Target::Group(BROADCAST),
        };
        Some((to, &self.scratch[..written.len]))
    }

    /// A frame whose destination is known now, or can be asked for again: to be given to
    /// [`Ipoib::from_released`].
    pub fn pop_released(&mut self) -> Option<HeldFrame> {
        self.resolver
            .pop_released()
            .or_else(|| self.connected.table.pop_released())
    }

    /// Whether [`Ipoib::pop_released`] has something.
    pub fn has_released(&self) -> bool {
        self.resolver.has_released() || self.connected.table.has_released()
    }

    /// When [`Ipoib::handle_timeout`] and then [`Ipoib::poll_transmit`], [`Ipoib::poll_tap`],
    /// [`Ipoib::poll_connection`] and [`Ipoib::pop_released`] should be called next.
    pub fn next_deadline(&self) -> Option<Time> {
        let own = self.announcer.next_deadline();
        let asked = self.resolver.next_deadline();
        let connections = self.connected.table.next_due();
        [own, asked, self.guests_deadline(), connections]
            .into_iter()
            .flatten()
            .min()
    }

    /// Lets time pass.
    pub fn handle_timeout(&mut self, now: Time) {
        self.guests_timeout(now);
        self.connections_timeout(now);
        let (failed, lost) = self.resolver.handle_timeout(now, |_| {});
        self.counters.resolutions_failed += failed;
        self.counters.held_dropped += lost;
    }

    /// Tells the link about an address of the host, now and once again a second later: a gratuitous
    /// ARP request or an unsolicited neighbour advertisement. Addresses that are no unicast
    /// addresses are ignored.
    pub fn announce(&mut self, ip: IpAddr) {
        if learning::is_claimable(ip) {
            self.announcer.announce(ip);
        }
    }

    /// The host no longer has an address: what is still to be announced of it is not.
    pub fn withdraw(&mut self, ip: IpAddr) {
        self.announcer.withdraw(ip);
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

    /// Says which groups the interface is a member of; all others are only sent to.
    pub fn set_joined(&mut self, now: Time, groups: &[Gid]) {
        self.groups.set_joined(now, groups);
    }

    /// Counters.
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
                superseded: n.successor.is_some(),
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

    /// The group table, broadcast group first.
    pub fn groups(&self) -> impl Iterator<Item = GroupInfo> {
        self.groups.iter().map(|g| GroupInfo {
            mgid: g.mgid,
            send_only: !g.joined,
            created: g.created,
            ah: g.ah,
        })
    }

    /// Ethernet address that stands for `address`, whether the table knows it or not.
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
