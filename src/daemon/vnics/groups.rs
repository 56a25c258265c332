//! The multicast groups of VNICs.

use crate::daemon::Daemon;
use crate::datapath::{DeviceId, now};
use crate::interface::groups;

impl Daemon {
    /// Attaches and detaches so that the VNIC's groups are those of its switch. Without the switch's own
    /// group it has no carrier, as it would not hear who asks for it.
    pub(in crate::daemon) fn sync_vnic_groups(&mut self, id: DeviceId) {
        let Some((interface, ethernet)) = self.interfaces.ethernet_mut(id) else {
            return;
        };
        let Some(endpoint) = ethernet.endpoint else {
            return;
        };
        let missed = ethernet.groups.misses().is_some();
        let wanted = ethernet.wanted_groups(interface);
        let port = &mut self.ports[interface.port].port;
        let (set, name) = (&mut ethernet.groups, &interface.name);
        let changes = groups::follow(set, now(), name, wanted, |joins, leaves| {
            port.change_groups(endpoint.id, joins, leaves)
        });
        changes.push(&mut self.events, interface);
        let (at, misses) = (interface.port, ethernet.groups.misses().is_some());
        if misses != missed {
            self.set_carriers(at);
        }
    }
}
