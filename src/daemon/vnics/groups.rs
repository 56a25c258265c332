//! The multicast groups of VNICs.

use crate::daemon::Daemon;
use crate::interface::InterfaceId;

impl Daemon {
    /// Attaches and detaches so that the VNIC's groups are those of its switch. Without the switch's own
    /// group it has no carrier, as it would not hear who asks for it.
    pub(in crate::daemon) fn sync_vnic_groups(&mut self, id: InterfaceId) {
        let Some((interface, ethernet)) = self.interfaces.ethernet_mut(id) else {
            return;
        };
        let missed = ethernet.misses_group().is_some();
        let wanted = ethernet.wanted_groups(interface);
        let Some(link) = &mut ethernet.link else {
            return;
        };
        let port = &mut self.ports[interface.port].port;
        let changes = link.follow_groups(&interface.name, wanted, &mut **port);
        changes.push(&mut self.events, interface);
        let (at, misses) = (interface.port, ethernet.misses_group().is_some());
        if misses != missed {
            self.set_carriers(at);
        }
    }
}
