//! What the data threads have of a VNIC.

use fabric::{EndpointId, PortAttributes};
use vnic::port::{Settings, VeswPort};

use super::{Vnic, mtu_of};
use crate::datapath::{Command, EthernetCommand, EthernetLane, LaneBase, LaneInit, Mailbox};

impl Vnic {
    /// Hands a lane to each data thread.
    pub fn hand_out(&self, endpoint: EndpointId, port: &PortAttributes, threads: &[Mailbox]) {
        for (i, thread) in threads.iter().enumerate() {
            let Some(queue) = self.queues.get(i % self.queues.len().max(1)) else {
                return;
            };
            let mut core = VeswPort::new(Settings {
                mac: self.mac,
                local: self.address_at(port.gid),
                learning: self.spec.learning.on,
                ageing_ms: self.spec.learning.ageing_ms(),
                mac_limit: self.spec.learning.mac_limit,
                hash_key: self.hash_key,
                tells: i == 0,
            });
            core.set_mtu(mtu_of(self.mtu));
            core.configure(&self.info);
            core.set_table(self.table.clone());
            core.set_directory(&self.directory);
            core.set_siblings(self.siblings.iter().map(|sibling| sibling.lid));
            core.set_up(self.up && self.carrier);
            let init = LaneInit {
                id: self.id,
                endpoint,
                qkey: self.qkey(),
                uso: self.tap.offloads().uso,
            };
            let mut base = LaneBase::new(&init, queue.share(), i < self.queues.len());
            base.set_coalesce(self.coalesce);
            thread.send(Command::AddEthernet(Box::new(EthernetLane {
                base,
                core,
                payload_max: port.ud_payload_max as usize,
                siblings: self.siblings.clone(),
            })));
        }
    }

    /// A command to all its lanes.
    pub fn command(&self, command: EthernetCommand) -> Command {
        Command::Ethernet(self.id, command)
    }
}
