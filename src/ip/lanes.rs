//! The lanes of IP links in the data threads.

use control::config::SCOPE;
use ipoib::Mode;

use super::{Ip, IpLink};
use crate::datapath::{Command, IpInit, IpParts, IpSettings, LaneInit, Mailbox, VlanLane};
use crate::interface::Interface;

impl Ip {
    /// The settings of the interface's lanes. The lanes of VLANs use them with changes.
    pub fn lane_settings(&self, interface: &Interface) -> IpSettings {
        IpSettings {
            local: self.link.address,
            mode: self.mode,
            mac: interface.mac,
            link_mtu: self.limits.datagram as usize,
            mss: match self.mode {
                Mode::Datagram => None,
                Mode::Connected => self.limits.mss(self.spec.mss),
            },
            coalesce: interface.coalesce,
            trust_checksums: self.spec.trust_checksums,
            reflect: self.spec.reflect,
            dhcp: self.spec.dhcp,
            claims: self.spec.claims,
            refuse_requests: self.spec.refuse_requests,
            inspect: self.spec.inspect,
            pins: self.pins.clone(),
            stacked: self.link.guests.is_stacked(),
            routes_multicast: self.link.guests.is_routing(),
        }
    }

    /// The constant part of a link's lanes, in each of `threads` data threads.
    fn lane_init(&self, interface: &Interface, link: &IpLink, threads: usize) -> IpInit {
        let fabric = &link.fabric;
        IpInit {
            base: LaneInit {
                id: fabric.id,
                endpoint: fabric.endpoint.id,
                pkey: fabric.pkey,
                uso: interface.tap.offloads().uso,
            },
            scope: SCOPE,
            services: self.services,
            connections: share(self.connections, threads),
        }
    }

    /// Gives each data thread a lane of the interface's own link. `first_receives`: all datagrams arrive at the
    /// first thread, and all messages of a peer at one thread. So each thread writes to all queues, and the host's
    /// flows use all threads.
    pub(super) fn hand_out(
        &mut self,
        interface: &Interface,
        threads: &[Mailbox],
        first_receives: bool,
    ) {
        let init = self.lane_init(interface, &self.link, threads.len());
        let settings = self.lane_settings(interface);
        let queues = &interface.queues;
        for (i, thread) in threads.iter().enumerate() {
            let Some(queue) = queues.get(i % queues.len().max(1)) else {
                return;
            };
            let parts = IpParts::new(&init, settings.clone());
            let queue = match first_receives {
                true => queue.share_by_flow(queues),
                false => queue.share(),
            };
            let lane = parts.with_queue(queue, i < queues.len());
            thread.send(Command::AddLane(Box::new(lane)));
        }
        self.link.handed_out(settings);
    }

    /// Gives each data thread a lane of a VLAN's link. The lanes share the interface's TAP queues.
    pub(super) fn hand_out_vlan(
        &self,
        interface: &Interface,
        vid: u16,
        link: &mut IpLink,
        threads: &[Mailbox],
    ) {
        let init = self.lane_init(interface, link, threads.len());
        let settings = link.settings(&self.lane_settings(interface));
        for thread in threads {
            thread.send(Command::AddVlan(Box::new(VlanLane {
                trunk: self.link.id(),
                vid,
                parts: IpParts::new(&init, settings.clone()),
            })));
        }
        link.handed_out(settings);
    }
}

/// Each data thread's share of an interface's connections. At least 1 if the interface may have any, since
/// each thread opens its own connections.
pub fn share(connections: usize, threads: usize) -> usize {
    connections.div_ceil(threads.max(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_share_the_connections() {
        assert_eq!(share(4096, 4), 1024);
        assert_eq!(share(4096, 3), 1366);
        assert_eq!(share(1, 4), 1);
        assert_eq!(share(0, 4), 0);
        assert_eq!(share(7, 0), 7);
    }
}
