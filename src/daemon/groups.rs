//! The multicast groups of devices: those that the host has joined, and what is behind it.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use control::api::Happening;
use log::Level;
use netdev::membership;

use super::Daemon;
use crate::datapath::{Command, DeviceId};
use crate::interface::Place;

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
        let (wanted, too_many) = match ip.holds_groups(interface) {
            true => ip.wanted_groups(&host),
            false => (BTreeSet::new(), false),
        };
        ip.host_groups = host;
        if too_many && !std::mem::replace(&mut ip.told_groups_full, true) {
            log::warn!(
                "{}: hosts behind it have joined more multicast groups than there is room for; \
                 groups that come now are not received",
                interface.name
            );
        }
        if wanted == ip.joined {
            return;
        }
        let runtime = &mut self.ports[interface.port];
        let new: Vec<_> = wanted.difference(&ip.joined).copied().collect();
        let gone: Vec<_> = ip.joined.difference(&wanted).copied().collect();
        let refused = match runtime.port.change_groups(ip.endpoint.id, &new, &gone) {
            Ok(refused) => refused,
            Err(e) => {
                log::warn!(
                    "{}: cannot change its multicast groups: {e}",
                    interface.name
                );
                return;
            }
        };
        let events = &mut self.events;
        let mut tell = |what| events.push(interface.subject(), what);
        for group in &gone {
            log::debug!("{}: leaving {group}", interface.name);
            tell(Happening::GroupLeft { mgid: *group });
        }
        // Nobody wants the others any more; hosts may ask for any number of groups over time.
        ip.refused.retain(|g| wanted.contains(g));
        let mut joined = wanted;
        for (group, e) in refused {
            joined.remove(&group);
            // The first says what is the matter; thousands may follow.
            let first = ip.refused.is_empty();
            if ip.refused.insert(group) {
                let level = if first { Level::Warn } else { Level::Debug };
                log::log!(
                    level,
                    "{}: multicast join failed for {group}: {e}",
                    interface.name
                );
            }
        }
        for group in new.iter().filter(|group| joined.contains(group)) {
            log::debug!("{}: joined {group}", interface.name);
            tell(Happening::GroupJoined { mgid: *group });
            ip.refused.remove(group);
        }
        ip.joined = joined;
        let groups: Vec<_> = ip.joined.iter().copied().collect();
        runtime.tell(|| Command::SetJoined(id, groups.clone()));
    }
}
