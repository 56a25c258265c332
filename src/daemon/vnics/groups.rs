//! The multicast groups of VNICs: attached to, left, and tried again where the port has refused one.

use std::time::Duration;

use control::api::Happening;

use crate::daemon::Daemon;
use crate::datapath::DeviceId;
use crate::ethernet::{RefusedNews, now};
use crate::port::PortId;

impl Daemon {
    /// Attaches and detaches so that the VNIC's groups are those of its switch. Without the switch's own
    /// group it has no carrier, as it would not hear who asks for it.
    pub(in crate::daemon) fn sync_vnic_groups(&mut self, id: DeviceId) {
        let now = now();
        let Some((interface, ethernet)) = self.interfaces.ethernet_mut(id) else {
            return;
        };
        let missed = ethernet.misses_group().is_some();
        let wanted = ethernet.wanted_groups(interface);
        let new = ethernet.refused.to_join(now, &wanted, &ethernet.joined);
        let gone: Vec<_> = ethernet.joined.difference(&wanted).copied().collect();
        if let Some(endpoint) = ethernet.endpoint
            && !(new.is_empty() && gone.is_empty())
        {
            let port = &mut self.ports[interface.port].port;
            let refused = match port.change_groups(endpoint.id, &new, &gone) {
                Ok(refused) => refused
                    .into_iter()
                    .map(|(g, e)| (g, e.to_string()))
                    .collect(),
                Err(e) => new.iter().map(|group| (*group, e.to_string())).collect(),
            };
            ethernet.joined.retain(|group| wanted.contains(group));
            ethernet.joined.extend(&new);
            let news = ethernet.refused.tried(now, &new, refused);
            ethernet
                .joined
                .retain(|group| ethernet.refused.why(*group).is_none());
            match news {
                Some(RefusedNews::Refused(group, why)) => {
                    log::warn!(
                        "{}: multicast join failed for {group}: {why}",
                        interface.name
                    );
                }
                Some(RefusedNews::Over) => {
                    log::info!(
                        "{}: joined the multicast groups that had failed",
                        interface.name
                    );
                }
                None => {}
            }
            for mgid in gone {
                let left = Happening::GroupLeft { mgid };
                self.events.push(interface.subject(), left);
            }
            for mgid in new
                .into_iter()
                .filter(|group| ethernet.joined.contains(group))
            {
                let joined = Happening::GroupJoined { mgid };
                self.events.push(interface.subject(), joined);
            }
        }
        let (at, misses) = (interface.port, ethernet.misses_group().is_some());
        if misses != missed {
            self.set_carriers(at);
        }
    }

    /// What has refused groups of a port may be over.
    pub(in crate::daemon) fn hurry_vnic_groups(&mut self, at: PortId) {
        let all = self.interfaces.ethernets_mut();
        for (_, ethernet) in all.filter(|(interface, _)| interface.port == at) {
            ethernet.refused.hurry();
        }
        if let Some(management) = &mut self.ports[at].management {
            management.refused.hurry();
        }
    }

    /// How long until [`Daemon::tick_vnic_groups`] has something to do.
    pub(in crate::daemon) fn next_vnic_group_tick(&self) -> Option<Duration> {
        let now = now();
        let vnics = self.interfaces.ethernets();
        let vnics = vnics.filter_map(|(_, ethernet)| ethernet.refused.next());
        let management = self.ports.values().filter_map(|p| p.management.as_ref());
        let all = vnics.chain(management.filter_map(|m| m.refused.next()));
        all.map(|at| Duration::from_millis(at.since(now))).min()
    }

    /// Tries groups again that were refused.
    pub(in crate::daemon) fn tick_vnic_groups(&mut self) {
        let now = now();
        let due = self
            .interfaces
            .ethernet_ids(|_, ethernet| ethernet.refused.next().is_some_and(|at| at <= now));
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
