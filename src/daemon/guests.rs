//! What the control thread does for hosts behind its interfaces: attaches to the groups that they
//! join, asks them from time to time, and tells the administrator what cannot go well.
//!
//! The control thread follows rtnetlink for interfaces stacked on an interface, attaches to the
//! groups that hosts behind it report or need (solicited-node groups need no report), sends the
//! querier's queries while hosts may be behind it, announces the addresses of a bridge above like
//! the interface's own, and attaches to the groups of the kernel's multicast routes.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::time::Duration;

use ipoib::Event;
use netdev::mroute::{self, MulticastRoutes};
use rtnl::Stacking;

use super::{Daemon, Payload};
use crate::datapath::{Command, LinkId, now};
use crate::interface::InterfaceId;
use crate::interface::{Interface, Place};
use crate::ip::Ip;

/// Addresses whose conflicts are remembered, so that each is logged once.
const CONFLICTS_MAX: usize = 1024;

impl Daemon {
    /// A core of an IP link has news.
    pub(super) fn core_event(&mut self, id: LinkId, event: Event, round_trip: u64) {
        let Some((interface, ip)) = self.interfaces.with_link_mut(id) else {
            return;
        };
        log::trace!("{}: {event:?}", interface.name);
        let Some(link) = ip.link_mut(id) else {
            return;
        };
        let changed = link.event(&event);
        if changed {
            self.pending.membership.insert(id);
        }
        let is_vlan = link.vid.is_some();
        if let Event::GroupLeft { group, .. } = &event {
            self.pending.maybe_own.remove(&(id, *group));
        }
        if let Event::GroupJoined { mac, group } = event {
            return match is_vlan {
                true => self.joined_behind(id, group),
                false => self.group_joined(id, mac, group),
            };
        }
        if is_vlan {
            return;
        }
        let parts = (&self.ports, &mut self.events);
        self.streams
            .core_event(interface, &event, round_trip, parts);
        match event {
            Event::AddressConflict {
                ip: claimed,
                one,
                other,
            } if ip.conflicts.len() < CONFLICTS_MAX && ip.conflicts.insert(claimed) => log::warn!(
                "{}: {} and {} both claim {claimed}; give one of them another address",
                interface.name,
                mac_text(one),
                mac_text(other)
            ),
            Event::MacClash { guest, peer } => {
                log::info!(
                    "{}: the guest {} has the address that stood for a peer, which is {} now",
                    interface.name,
                    mac_text(guest),
                    mac_text(peer)
                );
            }
            Event::SignedNd if !std::mem::replace(&mut ip.told_signed, true) => log::warn!(
                "{}: signed neighbour discovery (SEND) passes unchanged, since a change would break \
                 the signature; its senders cannot be resolved on this link",
                interface.name
            ),
            _ => {}
        }
    }

    /// A report passed. The host's own are known from the kernel, which also says when a group is
    /// left; with the host's Ethernet address there may be others, such as a bridge above.
    fn group_joined(&mut self, id: LinkId, mac: [u8; 6], group: IpAddr) {
        let Some((interface, ip)) = self.interfaces.with_link_mut(id) else {
            return;
        };
        if mac != interface.mac || ip.link.guests.is_member(group) {
            self.joined_behind(id, group);
        } else if !ip.link.host_groups.contains(&group) {
            self.pending.maybe_own.insert((id, group));
        }
    }

    /// Finds out which of the reports with the host's Ethernet address were its own. Its groups are
    /// read once for all of them: one forged report names hundreds of groups.
    pub(super) fn sort_out_reports(&mut self) {
        let reported = std::mem::take(&mut self.pending.maybe_own);
        let ids: BTreeSet<LinkId> = reported.iter().map(|(id, _)| *id).collect();
        ids.into_iter().for_each(|id| self.sync_groups(id));
        for (id, group) in reported {
            let of_host = |(_, ip): (_, &mut Ip)| ip.link.host_groups.contains(&group);
            if !self.interfaces.with_link_mut(id).is_some_and(of_host) {
                self.joined_behind(id, group);
            }
        }
    }

    fn joined_behind(&mut self, id: LinkId, group: IpAddr) {
        let Some((interface, ip)) = self.interfaces.with_link_mut(id) else {
            return;
        };
        let Some(link) = ip.link_mut(id) else {
            return;
        };
        let turned_away = link.guests.turned_away();
        if link.guests.joined(now(), group) {
            let name = link.name(interface);
            log::debug!("{name}: a host behind it joined {group}");
            self.pending.membership.insert(id);
        } else if turned_away == 0 && link.guests.turned_away() != 0 {
            // The first without room: it is told of when the groups are looked at.
            self.pending.membership.insert(id);
        }
    }

    /// A link changed or went: something may be stacked on one of ours now, or no longer. Looked at
    /// once for all changes that came together.
    pub(super) fn note_stacking(&mut self, place: Place, link: Option<&rtnl::Link>) {
        let concerned = |interface: &Interface, payload: &Payload| match link {
            // What is stacked on a bond is stacked on its ports.
            Some(link) => {
                link.index == interface.ifindex
                    || link.link == Some(interface.ifindex)
                    || matches!(link.kind.as_deref(), Some("bond" | "team"))
            }
            None => payload.is_stacked(),
        };
        let there = self.interfaces.iter().filter(|(i, _)| i.place == place);
        let concerned = there.filter(|(i, payload)| concerned(i, payload));
        self.pending
            .stacking
            .extend(concerned.map(|(interface, _)| interface.id));
    }

    /// Looks at what is stacked on an interface, and whether the host routes multicast.
    pub(super) fn read_stacking(&mut self, id: InterfaceId) {
        let Some((interface, ip)) = self.interfaces.ip_mut(id) else {
            return;
        };
        let was_stacked = ip.link.guests.is_stacked();
        let read = interface.inside(&mut self.host.netlink, |interface, netlink| {
            let stacking = netlink.stacking(interface.ifindex)?;
            let stacked = stacking.has_guests();
            let mut own = Vec::new();
            if stacked != was_stacked {
                interface.set_gso_max(netlink, ip.gso_max_stacked(stacked));
                if stacked {
                    own = netlink.addresses(interface.ifindex).unwrap_or_default();
                }
            }
            Ok::<_, rtnl::Error>((stacking, own))
        });
        let Some(read) = read else {
            return;
        };
        let (stacking, own) = match read {
            Ok(read) => read,
            Err(e) => {
                log::debug!("{}: cannot read what is stacked on it: {e}", interface.name);
                return;
            }
        };
        let place = interface.place;
        let stacked = stacking.has_guests();
        if stacked != ip.link.guests.is_stacked() {
            log::info!("{}: {}", interface.name, describe(&stacking));
            ip.link.guests.set_stacked(now(), stacked);
            // Else packets for the host itself would wait until it is asked for its addresses.
            for address in own {
                self.ports[interface.port].tell(|| Command::HostHas(id.link(), address.ip));
            }
            ip.update_lanes(interface, &self.ports[interface.port]);
        }
        self.read_routes(place, &BTreeSet::from([id]));
    }

    /// Looks at what multicast routing does with interfaces that are in one namespace.
    fn read_routes(&mut self, place: Place, ids: &BTreeSet<InterfaceId>) {
        let Some(Ok(tables)) = self.at_place(place, |_| mroute::Tables::read()) else {
            return;
        };
        for id in ids {
            if let Some(interface) = self.interfaces.get(*id) {
                let found = tables.of(&interface.name);
                self.routes_seen(*id, found);
            }
        }
    }

    fn routes_seen(&mut self, id: InterfaceId, found: MulticastRoutes) {
        let Some((interface, ip)) = self.interfaces.ip_mut(id) else {
            return;
        };
        let was_routing = ip.link.guests.is_routing();
        if !ip.link.guests.set_routes(found.routes, found.groups) {
            return;
        }
        if found.routes != was_routing {
            let port = &mut self.ports[interface.port];
            ip.update_lanes(interface, port);
            if !found.routes {
                log::info!(
                    "{}: the host routes no multicast here any more",
                    interface.name
                );
            } else if port.port.capabilities().multicast {
                log::warn!(
                    "{}: the host routes multicast; groups that have a route here and groups \
                     that hosts report on the link are received, others are not: a fabric has no \
                     promiscuous multicast",
                    interface.name
                );
            } else {
                log::info!(
                    "{}: the host routes multicast; all groups are received",
                    interface.name
                );
            }
        }
        self.pending.membership.insert(id.link());
    }

    /// How long until [`Daemon::tick`] has something to do.
    pub(super) fn next_tick(&self) -> Option<Duration> {
        let now = now();
        let guests = self.interfaces.ips();
        let guests = guests.flat_map(|(_, ip)| ip.links());
        let guests = guests.filter_map(|link| link.guests.wait(now));
        guests
            .chain(self.next_management_tick())
            .chain(self.next_group_tick())
            .chain(self.next_vnic_carrier_tick())
            .min()
    }

    /// Lets time pass for what is behind the interfaces.
    pub(super) fn tick(&mut self) {
        for id in std::mem::take(&mut self.pending.stacking) {
            match self.interfaces.ethernet(id) {
                Some(_) => self.read_vnic_stacking(id),
                None => self.read_stacking(id),
            }
        }
        for id in std::mem::take(&mut self.pending.addresses) {
            self.read_addresses(id);
        }
        let now = now();
        for (interface, ip) in self.interfaces.ips_mut() {
            let port = &self.ports[interface.port];
            for link in ip.links_mut() {
                let id = link.id();
                let write = |frame: &[u8]| port.tell_first(Command::ToTap(id, frame.into()));
                if link.guests.tick(now, write) {
                    self.pending.membership.insert(id);
                }
            }
        }
        self.tick_management();
        self.tick_groups();
        self.tick_vnic_carriers();
        for place in std::mem::take(&mut self.pending.routes) {
            let ids = self.interfaces.ip_ids(|i, _| i.place == place);
            self.read_routes(place, &ids.into_iter().collect());
        }
    }
}

fn describe(stacking: &Stacking) -> String {
    match stacking {
        Stacking::None | Stacking::Bond(_) => "hosts behind it are no longer looked for".into(),
        Stacking::Bridge(name) => format!("looking for hosts behind it, as a port of {name}"),
        Stacking::Macvlan(name) | Stacking::Other(name) => {
            format!("looking for hosts behind it: {name} is stacked on it")
        }
        Stacking::Promiscuous => "looking for hosts behind it: it is promiscuous".into(),
    }
}

fn mac_text(mac: [u8; 6]) -> String {
    control::api::LinkAddress(mac).to_string()
}
