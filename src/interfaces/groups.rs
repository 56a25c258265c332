//! The multicast groups of interfaces: which are joined on the fabric.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::IpAddr;
use std::time::Duration;

use fabric::EndpointId;
use netdev::membership;
use vnic::Mac;

use crate::datapath::{Command, LinkId, now};
use crate::ethernet::Ethernet;
use crate::interface::groups::GroupSet;
use crate::interface::{Interface, InterfaceId, Place};
use crate::interfaces::{Context, Interfaces, Payload, management};
use crate::ip::{IpLink, groups_with_guests_max};
use crate::port::PortId;

impl Interfaces {
    /// Follows the pending membership changes. Thousands of joins may be pending, and the memberships are
    /// read once for all.
    pub fn sync_changed_groups(&mut self, cx: &mut Context) {
        let changed = std::mem::take(&mut cx.pending.membership);
        self.read_groups_of(cx, changed);
    }

    /// Joins and leaves groups, until an IP link has the groups of the host and of hosts behind it.
    pub fn sync_groups(&mut self, cx: &mut Context, id: LinkId) {
        self.read_groups_of(cx, [id]);
    }

    /// Joins and leaves groups, until these links have the groups of their hosts. The memberships of a
    /// namespace are read once for all its interfaces.
    pub fn read_groups_of(&mut self, cx: &mut Context, links: impl IntoIterator<Item = LinkId>) {
        let mut by_place: BTreeMap<Place, BTreeSet<InterfaceId>> = BTreeMap::new();
        for link in links {
            let Some((interface, payload)) = self.with_link(link) else {
                continue;
            };
            let (id, place) = (interface.id, interface.place);
            match payload {
                Payload::Ethernet(ethernet) if ethernet.spec.switch.is_some() => {}
                Payload::Ethernet(_) => {
                    by_place.entry(place).or_default().insert(id);
                }
                // The groups of a VLAN are known from reports only.
                Payload::Ip(_) if id.link() != link => self.sync_link_groups(cx, link),
                Payload::Ip(_) => {
                    by_place.entry(place).or_default().insert(id);
                }
            }
        }
        for (place, ids) in by_place {
            let has_vnic = ids.iter().any(|id| self.ethernet(*id).is_some());
            let read = || {
                let links = has_vnic.then(membership::read_links);
                (membership::read_all(), links)
            };
            let (groups, links) = self.at_place(cx, place, |_| read()).unzip();
            let read = (logged(groups), logged(links.flatten()));
            for id in ids {
                self.take_groups(cx, id, &read);
            }
        }
    }

    /// Joins and leaves groups for the host's memberships as read: IP groups, and group addresses that interfaces
    /// receive.
    fn take_groups(
        &mut self,
        cx: &mut Context,
        id: InterfaceId,
        (groups, links): &(Option<OfAll<IpAddr>>, Option<OfAll<Mac>>),
    ) {
        let Some((interface, payload)) = self.both_mut(id) else {
            return;
        };
        let groups = groups.as_ref().map(|all| of(all, interface));
        match payload {
            Payload::Ip(ip) => {
                if let Some(groups) = groups {
                    ip.link.host_groups = groups;
                }
                self.sync_link_groups(cx, id.link());
            }
            Payload::Ethernet(ethernet) => {
                let links = links.as_ref().map(|all| of(all, interface));
                if let Some((groups, links)) = groups.zip(links)
                    && ethernet.take_groups(&groups, links)
                {
                    self.sync_vnic_groups(cx, id);
                    management::sync_agent_of(self, cx, id);
                }
            }
        }
    }

    /// Joins and leaves the groups of one link, with the host's memberships as read before.
    pub fn sync_link_groups(&mut self, cx: &mut Context, id: LinkId) {
        let Some((interface, ip)) = self.with_link_mut(id) else {
            return;
        };
        let most = groups_with_guests_max(ip.groups_max);
        let Some(link) = ip.link_mut(id) else {
            return;
        };
        let (wanted, too_many) = link.wanted_groups(interface, most);
        let name = link.name(interface);
        if too_many && !std::mem::replace(&mut link.logged_groups_full, true) {
            log::warn!(
                "{name}: hosts behind it joined more multicast groups than the table holds; \
                 further groups are not received"
            );
        }
        let port = &mut cx.ports[interface.port];
        let qkey = link.fabric.qkey;
        let changes = link.fabric.follow_groups(&name, wanted, &mut *port.port);
        if !changes.is_empty() {
            let groups: Vec<_> = link.fabric.groups.attached().collect();
            port.send(|| Command::SetJoined(id, groups.clone()));
        }
        let (new_qkey, own) = (link.fabric.qkey != qkey, link.vid.is_none());
        if own {
            changes.push(&mut cx.events, interface);
        }
        let id = interface.id;
        self.follow_link_mtu(cx, id);
        if new_qkey {
            self.sync_siblings(&cx.ports);
        }
        if !own {
            return;
        }
        // Link and carrier depend on the broadcast group.
        self.decide_carrier(cx, id);
    }

    /// The group sets of all endpoints of a port.
    pub fn group_sets(&mut self, at: PortId) -> impl Iterator<Item = (EndpointId, &mut GroupSet)> {
        let all = self.all.values_mut();
        let on_port = all.filter(move |(i, _)| i.port == at);
        let links = on_port.flat_map(|(_, payload)| payload.fabric_links_mut());
        let management = self.managements.get_mut(&at);
        let links = links.chain(management.map(|m| &mut m.link));
        links.map(|link| (link.endpoint.id, &mut link.groups))
    }

    /// Time until [`Interfaces::tick_groups`] is due.
    pub fn next_group_tick(&self) -> Option<Duration> {
        let links = self.iter();
        let links = links.flat_map(|(_, payload)| payload.fabric_links());
        let links = links.chain(self.managements.values().map(|m| &m.link));
        let all = links.filter_map(|link| link.groups.next());
        let now = now();
        all.map(|at| Duration::from_millis(at.since(now))).min()
    }

    /// Sends further requests, retries refused groups, joins groups again that the fabric has lost, and handles late
    /// answers.
    pub fn tick_groups(&mut self, cx: &mut Context) {
        let now = now();
        let is_due = |set: &GroupSet| set.next().is_some_and(|at| at <= now);
        let links = self.ips().flat_map(|(_, ip)| ip.links());
        let due = links.filter(|link| is_due(&link.fabric.groups));
        // Those that are pending follow in this turn.
        let due = due
            .map(IpLink::id)
            .filter(|id| !cx.pending.membership.contains(id));
        for id in due.collect::<Vec<_>>() {
            self.sync_link_groups(cx, id);
        }
        let due = |_: &Interface, e: &Ethernet| e.link.as_ref().is_some_and(|l| is_due(&l.groups));
        for id in self.ethernet_ids(due) {
            self.sync_vnic_groups(cx, id);
        }
        for (at, management) in &mut self.managements {
            if is_due(&management.link.groups) {
                management.join(&mut *cx.ports[*at].port);
            }
        }
    }
}

/// Memberships of all interfaces in a namespace, by index.
type OfAll<T> = BTreeMap<u32, BTreeSet<T>>;

/// The memberships of one interface.
fn of<T: Clone>(all: &OfAll<T>, interface: &Interface) -> BTreeSet<T> {
    all.get(&interface.ifindex).cloned().unwrap_or_default()
}

/// Memberships, if they could be read.
fn logged<T>(read: Option<io::Result<T>>) -> Option<T> {
    read?
        .inspect_err(|e| log::warn!("cannot read the group memberships: {e}"))
        .ok()
}
