//! What the data threads have of a VNIC.

use fabric::{EndpointId, PortAttributes};
use vnic::port::{Settings, VeswPort};

use super::{Ethernet, mtu_of};
use crate::datapath::{Command, EthernetLane, LaneBase, LaneInit, Mailbox};
use crate::interface::Interface;

impl Ethernet {
    /// Hands a lane to each data thread.
    pub fn hand_out(
        &self,
        interface: &Interface,
        endpoint: EndpointId,
        port: &PortAttributes,
        threads: &[Mailbox],
    ) {
        for (i, thread) in threads.iter().enumerate() {
            let Some(queue) = interface.queues.get(i % interface.queues.len().max(1)) else {
                return;
            };
            let mut core = VeswPort::new(Settings {
                mac: interface.mac,
                local: self.address_at(port.gid),
                learning: self.spec.learning.on,
                ageing_ms: self.spec.learning.ageing_ms(),
                mac_limit: self.spec.learning.mac_limit,
                hash_key: self.hash_key,
                tells: i == 0,
            });
            core.set_mtu(mtu_of(interface.mtu));
            core.configure(&self.info);
            core.set_table(self.table.clone());
            core.set_directory(&self.directory);
            core.set_siblings(self.siblings.iter().map(|sibling| sibling.lid));
            core.set_up(interface.up && interface.carrier);
            let init = LaneInit {
                id: interface.id,
                endpoint,
                qkey: self.qkey(),
                uso: interface.tap.offloads().uso,
            };
            let mut base = LaneBase::new(&init, queue.share(), i < interface.queues.len());
            base.set_coalesce(interface.coalesce);
            thread.send(Command::AddEthernet(Box::new(EthernetLane {
                base,
                core,
                payload_max: port.ud_payload_max as usize,
                siblings: self.siblings.clone(),
            })));
        }
    }
}
