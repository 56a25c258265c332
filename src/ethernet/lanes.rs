//! The lanes of VNICs in the data threads.

use fabric::PortAttributes;

use super::{Ethernet, mtu_of};
use crate::datapath::{Command, EthernetInit, EthernetLane, EthernetSettings, LaneInit, Mailbox};
use crate::interface::{FabricLink, Interface};
use crate::port::PortRuntime;

impl Ethernet {
    /// The settings of the lanes, on a port with these attributes.
    pub fn lane_settings(&self, interface: &Interface, port: &PortAttributes) -> EthernetSettings {
        EthernetSettings {
            local: self.address_at(port.gid),
            info: self.info.clone(),
            mac: interface.mac,
            mtu: mtu_of(interface.mtu),
            up: interface.up && interface.carrier,
            payload_max: self.payload_max(port) as usize,
            coalesce: interface.coalesce,
            learning: self.spec.learning.on,
            ageing_ms: self.spec.learning.ageing_ms(),
        }
    }

    /// Updates the settings of the lanes.
    pub fn update_lanes(&self, interface: &Interface, port: &PortRuntime) {
        let settings = self.lane_settings(interface, &port.port.attributes());
        let (id, settings) = (interface.id.link(), Box::new(settings));
        port.send(|| Command::Ethernet(id, settings.clone()));
    }

    /// Gives each data thread a lane.
    pub fn hand_out(
        &self,
        interface: &Interface,
        link: &FabricLink,
        port: &PortAttributes,
        threads: &[Mailbox],
    ) {
        let (settings, queues) = (self.lane_settings(interface, port), &interface.queues);
        for (i, thread) in threads.iter().enumerate() {
            let Some(queue) = queues.get(i % queues.len().max(1)) else {
                return;
            };
            let init = EthernetInit {
                base: LaneInit {
                    id: link.id,
                    endpoint: link.endpoint.id,
                    pkey: link.pkey,
                    uso: interface.tap.offloads().uso,
                },
                mac_limit: self.spec.learning.mac_limit,
                hash_key: self.hash_key,
                reports: i == 0,
            };
            let reads = i < queues.len();
            let mut lane = EthernetLane::new(&init, settings.clone(), queue.share(), reads);
            lane.core.set_table(self.table.clone());
            lane.core.set_directory(&self.directory);
            lane.set_siblings(self.siblings.clone());
            thread.send(Command::AddEthernet(Box::new(lane)));
        }
    }
}
