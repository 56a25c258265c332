//! The multicast groups of devices: those that the host has joined, and what is behind it.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use fabric::EndpointId;
use netdev::membership;

use super::{Daemon, Payload};
use crate::datapath::{Command, LinkId, now};
use crate::ethernet::Ethernet;
use crate::interface::groups::GroupSet;
use crate::interface::{Interface, InterfaceId, Place};
use crate::ip::{IpLink, groups_with_guests_max};
use crate::port::PortId;

impl Daemon {
    /// Once for all changes that came together: a thousand joins are a thousand events.
    pub(super) fn sync_changed_groups(&mut self) {
        let changed = std::mem::take(&mut self.pending.membership);
        self.read_groups_of(changed);
    }

    /// Attaches and detaches so that the groups of an IP link are those that the host, and hosts behind it,
    /// have joined.
    pub(super) fn sync_groups(&mut self, id: LinkId) {
        self.read_groups_of([id]);
    }

    /// Attaches and detaches so that these links' groups are those that their hosts have joined.
    /// The groups of a namespace are read once for all its interfaces.
    pub(super) fn read_groups_of(&mut self, links: impl IntoIterator<Item = LinkId>) {
        let mut by_place: BTreeMap<Place, BTreeSet<InterfaceId>> = BTreeMap::new();
        for link in links {
            let Some((interface, payload)) = self.interfaces.with_link(link) else {
                continue;
            };
            let (id, place) = (interface.id, interface.place);
            match payload {
                Payload::Ethernet(_) => self.read_vnic_groups(id),
                // A VLAN's are known from reports alone.
                Payload::Ip(_) if id.link() != link => self.sync_link_groups(link),
                Payload::Ip(_) => {
                    by_place.entry(place).or_default().insert(id);
                }
            }
        }
        for (place, ids) in by_place {
            let joined = self.at_place(place, |_| membership::read_all());
            if let Some(Err(e)) = &joined {
                log::warn!("cannot read the group memberships: {e}");
            }
            for id in ids {
                if let Some(Ok(joined)) = &joined
                    && let Some((interface, ip)) = self.interfaces.ip_mut(id)
                {
                    let host = joined.get(&interface.ifindex).cloned();
                    ip.link.host_groups = host.unwrap_or_default();
                }
                self.sync_link_groups(id.link());
            }
        }
    }

    /// The same for one link, whose host's groups have been read.
    pub(super) fn sync_link_groups(&mut self, id: LinkId) {
        let Some((interface, ip)) = self.interfaces.with_link_mut(id) else {
            return;
        };
        let most = groups_with_guests_max(ip.groups_max);
        let Some(link) = ip.link_mut(id) else {
            return;
        };
        let (wanted, too_many) = link.wanted_groups(interface, most);
        let name = link.name(interface);
        if too_many && !std::mem::replace(&mut link.told_groups_full, true) {
            log::warn!(
                "{name}: hosts behind it have joined more multicast groups than there is room for; \
                 groups that come now are not received"
            );
        }
        let port = &mut self.ports[interface.port];
        let changes = link.fabric.follow_groups(&name, wanted, &mut *port.port);
        if !changes.is_empty() {
            let groups: Vec<_> = link.fabric.groups.attached().collect();
            port.tell(|| Command::SetJoined(id, groups.clone()));
        }
        if link.vid.is_some() {
            return;
        }
        changes.push(&mut self.events, interface);
        // With the broadcast group come and go the link and its carrier.
        let id = interface.id;
        if let Some((interface, ip)) = self.interfaces.ip(id) {
            let on = self.ip_misses(interface, ip).is_none();
            self.set_carrier(id, on);
        }
    }
}

/// The groups of all kinds of interfaces.
impl Daemon {
    /// The groups of all endpoints of a port.
    pub(super) fn group_sets(
        &mut self,
        at: PortId,
    ) -> impl Iterator<Item = (EndpointId, &mut GroupSet)> {
        let on_port = self
            .interfaces
            .iter_mut()
            .filter(move |(i, _)| i.port == at);
        let links = on_port.flat_map(|(_, payload)| payload.fabric_links_mut());
        let management = self.ports[at].management.as_mut();
        let links = links.chain(management.map(|m| &mut m.link));
        links.map(|link| (link.endpoint.id, &mut link.groups))
    }

    /// How long until [`Daemon::tick_groups`] has something to do.
    pub(super) fn next_group_tick(&self) -> Option<Duration> {
        let links = self.interfaces.iter();
        let links = links.flat_map(|(_, payload)| payload.fabric_links());
        let management = self.ports.values().filter_map(|p| p.management.as_ref());
        let links = links.chain(management.map(|m| &m.link));
        let all = links.filter_map(|link| link.groups.next());
        let now = now();
        all.map(|at| Duration::from_millis(at.since(now))).min()
    }

    /// Asks for groups again that were refused and for those that the fabric has forgotten, and does what
    /// late answers ask for.
    pub(super) fn tick_groups(&mut self) {
        let now = now();
        let is_due = |set: &GroupSet| set.next().is_some_and(|at| at <= now);
        let links = self.interfaces.ips().flat_map(|(_, ip)| ip.links());
        let due = links.filter(|link| is_due(&link.fabric.groups));
        self.pending.membership.extend(due.map(IpLink::id));
        let due = |_: &Interface, e: &Ethernet| e.link.as_ref().is_some_and(|l| is_due(&l.groups));
        for id in self.interfaces.ethernet_ids(due) {
            self.sync_vnic_groups(id);
        }
        for at in self.ports.ids() {
            let port = &mut self.ports[at];
            if let Some(management) = &mut port.management
                && is_due(&management.link.groups)
            {
                management.join(&mut *port.port);
            }
        }
    }
}
