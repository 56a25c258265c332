//! The multicast groups of devices: those that the host has joined, and what is behind it.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use fabric::EndpointId;
use netdev::membership;

use super::{Daemon, Payload};
use crate::datapath::{Command, LinkId, now};
use crate::interface::Place;
use crate::interface::groups::GroupSet;
use crate::ip::{IpLink, groups_with_guests_max};
use crate::port::PortId;

impl Daemon {
    /// Once for all changes that came together: a thousand joins are a thousand events.
    pub(super) fn sync_changed_groups(&mut self) {
        let changed = std::mem::take(&mut self.pending.membership);
        for id in &changed {
            self.read_vnic_groups(*id);
        }
        self.sync_groups_of(changed);
    }

    /// Attaches and detaches so that the device's groups are those that the host has joined.
    pub(super) fn sync_groups(&mut self, id: LinkId) {
        self.sync_groups_of([id]);
    }

    /// Attaches and detaches so that these devices' groups are those that their hosts have joined.
    /// The groups of a namespace are read once for all its interfaces.
    pub(super) fn sync_groups_of(&mut self, ids: impl IntoIterator<Item = LinkId>) {
        let mut by_place: BTreeMap<Place, BTreeSet<LinkId>> = BTreeMap::new();
        for id in ids {
            match self.interfaces.ip(id) {
                Some((interface, _)) => {
                    by_place.entry(interface.place).or_default().insert(id);
                }
                None => self.sync_link_groups(id),
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
                self.sync_link_groups(id);
            }
        }
    }

    /// Attaches and detaches so that the groups of an IP link are those that the host, and hosts behind it,
    /// have joined.
    pub(super) fn sync_link_groups(&mut self, id: LinkId) {
        let Some((interface, ip)) = self.interfaces.link_mut(id) else {
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
        let interfaces = on_port.flat_map(|(_, payload)| match payload {
            Payload::Ip(ip) => {
                let links = ip.links_mut();
                let sets = links.map(|l| (l.fabric.endpoint.id, &mut l.fabric.groups));
                sets.collect::<Vec<_>>()
            }
            Payload::Ethernet(vnic) => {
                let endpoint = vnic.endpoint.as_ref();
                let set = endpoint.map(|endpoint| (endpoint.id, &mut vnic.groups));
                set.into_iter().collect()
            }
        });
        let management = self.ports[at].management.as_mut();
        let management = management.map(|m| (m.endpoint.id, &mut m.groups));
        interfaces.chain(management)
    }

    /// How long until [`Daemon::tick_groups`] has something to do.
    pub(super) fn next_group_tick(&self) -> Option<Duration> {
        let links = self.interfaces.ips().flat_map(|(_, ip)| ip.links());
        let links = links.map(|link| &link.fabric.groups);
        let vnics = self.interfaces.ethernets().map(|(_, vnic)| &vnic.groups);
        let management = self.ports.values().filter_map(|p| p.management.as_ref());
        let all = links.chain(vnics).chain(management.map(|m| &m.groups));
        let all = all.filter_map(GroupSet::next);
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
        for id in self.interfaces.ethernet_ids(|_, e| is_due(&e.groups)) {
            self.sync_vnic_groups(id);
        }
        for at in self.ports.ids() {
            let port = &mut self.ports[at];
            if let Some(management) = &mut port.management
                && is_due(&management.groups)
            {
                management.join(&mut *port.port);
            }
        }
    }
}
