//! The multicast groups of VNICs: attached to, left, and tried again where the port has refused one.

use std::time::Duration;

use control::api::Happening;

use crate::daemon::Daemon;
use crate::datapath::DeviceId;
use crate::port::PortId;
use crate::vnic::{RefusedNews, Vnic, now};

impl Daemon {
    /// Attaches and detaches so that the VNIC's groups are those of its switch. Without the switch's own
    /// group it has no carrier, as it would not hear who asks for it.
    pub(in crate::daemon) fn sync_vnic_groups(&mut self, id: DeviceId) {
        let now = now();
        let Some(vnic) = self.vnics.get_mut(&id) else {
            return;
        };
        let missed = vnic.misses_group().is_some();
        let wanted = vnic.wanted_groups();
        let new = vnic.refused.to_join(now, &wanted, &vnic.joined);
        let gone: Vec<_> = vnic.joined.difference(&wanted).copied().collect();
        if let Some(endpoint) = vnic.endpoint
            && !(new.is_empty() && gone.is_empty())
        {
            let port = &mut self.ports[vnic.at].port;
            let refused = match port.change_groups(endpoint.id, &new, &gone) {
                Ok(refused) => refused
                    .into_iter()
                    .map(|(g, e)| (g, e.to_string()))
                    .collect(),
                Err(e) => new.iter().map(|group| (*group, e.to_string())).collect(),
            };
            vnic.joined.retain(|group| wanted.contains(group));
            vnic.joined.extend(&new);
            let news = vnic.refused.tried(now, &new, refused);
            vnic.joined
                .retain(|group| vnic.refused.why(*group).is_none());
            match news {
                Some(RefusedNews::Refused(group, why)) => {
                    log::warn!("{}: multicast join failed for {group}: {why}", vnic.name);
                }
                Some(RefusedNews::Over) => {
                    log::info!("{}: joined the multicast groups that had failed", vnic.name);
                }
                None => {}
            }
            for mgid in gone {
                let left = Happening::GroupLeft { mgid };
                self.watchers.tell(vnic.subject(), left);
            }
            for mgid in new.into_iter().filter(|group| vnic.joined.contains(group)) {
                let joined = Happening::GroupJoined { mgid };
                self.watchers.tell(vnic.subject(), joined);
            }
        }
        let (at, misses) = (vnic.at, vnic.misses_group().is_some());
        if misses != missed {
            self.set_vnic_carriers(at);
        }
    }

    /// What has refused groups of a port may be over.
    pub(in crate::daemon) fn hurry_vnic_groups(&mut self, at: PortId) {
        for vnic in self.vnics.values_mut().filter(|v| v.at == at) {
            vnic.refused.hurry();
        }
        if let Some(management) = &mut self.ports[at].management {
            management.refused.hurry();
        }
    }

    /// How long until [`Daemon::tick_vnic_groups`] has something to do.
    pub(in crate::daemon) fn next_vnic_group_tick(&self) -> Option<Duration> {
        let now = now();
        let vnics = self.vnics.values().filter_map(|v| v.refused.next());
        let management = self.ports.values().filter_map(|p| p.management.as_ref());
        let all = vnics.chain(management.filter_map(|m| m.refused.next()));
        all.map(|at| Duration::from_millis(at.since(now))).min()
    }

    /// Tries groups again that were refused.
    pub(in crate::daemon) fn tick_vnic_groups(&mut self) {
        let now = now();
        let is_due = |v: &&Vnic| v.refused.next().is_some_and(|at| at <= now);
        let due: Vec<DeviceId> = self.vnics.values().filter(is_due).map(|v| v.id).collect();
        for id in due {
            self.sync_vnic_groups(id);
        }
        for at in self.ports.ids() {
            let port = &mut self.ports[at];
            if let Some(management) = &mut port.management
                && management.refused.next().is_some_and(|at| at <= now)
            {
                management.join(&mut *port.port);
            }
        }
    }
}
