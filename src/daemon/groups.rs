//! The multicast groups of devices: those that the host has joined, and what is behind it.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::Duration;

use fabric::EndpointId;
use netdev::membership;

use super::{Daemon, Payload};
use crate::datapath::{Command, DeviceId, now};
use crate::interface::Place;
use crate::interface::groups::{self, GroupSet};
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
    pub(super) fn sync_groups(&mut self, id: DeviceId) {
        self.sync_groups_of([id]);
    }

    /// Attaches and detaches so that these devices' groups are those that their hosts have joined.
    /// The groups of a namespace are read once for all its interfaces.
    pub(super) fn sync_groups_of(&mut self, ids: impl IntoIterator<Item = DeviceId>) {
        let mut by_place: BTreeMap<Place, BTreeSet<DeviceId>> = BTreeMap::new();
        for id in ids {
            if let Some((interface, _)) = self.interfaces.ip(id) {
                by_place.entry(interface.place).or_default().insert(id);
            }
        }
        for (place, ids) in by_place {
            let joined = self.at_place(place, |_| membership::read_all());
            if let Some(Err(e)) = &joined {
                log::warn!("cannot read the group memberships: {e}");
            }
            for id in ids {
                let Some((interface, ip)) = self.interfaces.ip(id) else {
                    continue;
                };
                let host = match &joined {
                    Some(Ok(joined)) => joined.get(&interface.ifindex).cloned(),
                    _ => Some(ip.host_groups.clone()),
                };
                self.attach_groups(id, host.unwrap_or_default());
            }
        }
    }

    /// The same for an interface whose host has joined these groups.
    fn attach_groups(&mut self, id: DeviceId, host: BTreeSet<IpAddr>) {
        let Some((interface, ip)) = self.interfaces.ip_mut(id) else {
            return;
        };
        let (required, (wanted, too_many)) = match ip.holds_groups(interface) {
            true => (Some(ip.broadcast()), ip.wanted_groups(&host)),
            false => Default::default(),
        };
        ip.host_groups = host;
        if too_many && !std::mem::replace(&mut ip.told_groups_full, true) {
            log::warn!(
                "{}: hosts behind it have joined more multicast groups than there is room for; \
                 groups that come now are not received",
                interface.name
            );
        }
        let (endpoint, runtime) = (ip.endpoint.id, &mut self.ports[interface.port]);
        let (set, name) = (&mut ip.groups, &interface.name);
        let wanted = (required, wanted);
        let changes = groups::follow(set, now(), name, wanted, |joins, leaves| {
            runtime.port.change_groups(endpoint, joins, leaves)
        });
        changes.push(&mut self.events, interface);
        if !changes.is_empty() {
            let groups: Vec<_> = ip.groups.attached().collect();
            runtime.tell(|| Command::SetJoined(id, groups.clone()));
        }
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
        let interfaces = self
            .interfaces
            .iter_mut()
            .filter(move |(i, _)| i.port == at);
        let interfaces = interfaces.filter_map(|(_, payload)| match payload {
            Payload::Ip(ip) => Some((ip.endpoint.id, &mut ip.groups)),
            Payload::Ethernet(vnic) => Some((vnic.endpoint?.id, &mut vnic.groups)),
        });
        let vlans = self.vlans.all().filter(move |(_, p)| p.at == at);
        let vlans = vlans.map(|(_, p)| (p.endpoint.id, &mut p.groups));
        let management = self.ports[at].management.as_mut();
        let management = management.map(|m| (m.endpoint.id, &mut m.groups));
        interfaces.chain(vlans).chain(management)
    }

    /// How long until [`Daemon::tick_groups`] has something to do.
    pub(super) fn next_group_tick(&self) -> Option<Duration> {
        let interfaces = self.interfaces.iter().map(|(_, payload)| payload.groups());
        let management = self.ports.values().filter_map(|p| p.management.as_ref());
        let all = interfaces.chain(management.map(|m| &m.groups));
        let all = all.chain(self.vlans.group_sets());
        let all = all.filter_map(GroupSet::next);
        let now = now();
        all.map(|at| Duration::from_millis(at.since(now))).min()
    }

    /// Asks for groups again that were refused and for those that the fabric has forgotten, and does what
    /// late answers ask for.
    pub(super) fn tick_groups(&mut self) {
        let now = now();
        let is_due = |set: &GroupSet| set.next().is_some_and(|at| at <= now);
        let due = self.interfaces.ip_ids(|_, ip| is_due(&ip.groups));
        self.pending.membership.extend(due);
        let due = self.vlans.all().filter(|(_, p)| is_due(&p.groups));
        for id in due.map(|(id, _)| id).collect::<Vec<_>>() {
            self.sync_vlan_groups(id);
        }
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
