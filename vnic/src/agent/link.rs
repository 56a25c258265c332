//! State of the interfaces, and traps about changes.

use proto::{Mac, Time};

use super::vport::{LINK_DOWN, LINK_UP};
use super::{Agent, vport::Vport};
use crate::attribute::ConfigState;
use crate::mad::TrapKind;

impl Agent {
    /// Sets whether the fabric port, and with it each virtual port, is up.
    pub fn set_fabric_up(&mut self, now: Time, up: bool) {
        if self.fabric_up == up {
            return;
        }
        self.fabric_up = up;
        let all: Vec<u8> = self.vports.keys().copied().collect();
        for index in all {
            self.update_link(now, index, false);
        }
    }

    /// Sets the administrative state of an interface.
    pub fn set_admin_up(&mut self, now: Time, index: u8, up: bool) {
        if let Some(vport) = self.vports.get_mut(&index)
            && vport.admin_up != up
        {
            vport.admin_up = up;
            self.update_link(now, index, true);
        }
    }

    /// Sets whether the host can carry an interface's frames on its switch; false, for example, without the
    /// partition. Initially true.
    pub fn set_ready(&mut self, now: Time, index: u8, ready: bool) {
        if let Some(vport) = self.vports.get_mut(&index)
            && vport.ready != ready
        {
            vport.ready = ready;
            self.update_link(now, index, false);
        }
    }

    /// Sets the address of an interface. The list for the manager omits the address that the manager
    /// assigned.
    pub fn set_interface_mac(&mut self, now: Time, index: u8, mac: Mac) {
        self.update_unicast(now, index, |vport| vport.mac = mac);
    }

    /// Sets the other unicast addresses that are behind an interface, or that it listens to.
    pub fn set_unicast_macs(&mut self, now: Time, index: u8, macs: Vec<Mac>) {
        self.update_unicast(now, index, |vport| vport.others = macs);
    }

    /// Sets the multicast addresses that an interface listens to.
    pub fn set_multicast_macs(&mut self, now: Time, index: u8, macs: Vec<Mac>) {
        if let Some(vport) = self.vports.get_mut(&index)
            && vport.list_multicast(macs)
        {
            self.trap(now, index, TrapKind::McastMacs);
        }
    }

    fn update_unicast(&mut self, now: Time, index: u8, update: impl FnOnce(&mut Vport)) {
        if let Some(vport) = self.vports.get_mut(&index) {
            update(vport);
            if vport.list_unicast() {
                self.trap(now, index, TrapKind::UcastMacs);
            }
        }
    }

    /// Updates whether a port forwards (kernel opa_vnic_netdev.c, `opa_vnic_update_state`). The manager,
    /// the administrator, the host and the fabric must all allow it; the kernel's driver ignores the last
    /// two. Sends a trap if the state changed or `always` is set.
    pub(super) fn update_link(&mut self, now: Time, index: u8, always: bool) {
        let Some(vport) = self.vports.get_mut(&index) else {
            return;
        };
        let info = &mut vport.info;
        let is_to = info.config_state == ConfigState::Forwarding;
        let forwards = is_to && vport.admin_up && vport.ready && self.fabric_up;
        let (state, status) = if forwards {
            (ConfigState::Forwarding, LINK_UP)
        } else {
            (ConfigState::DropAll, LINK_DOWN)
        };
        let changed = info.eth_link_status != status;
        info.oper_state = state;
        info.eth_link_status = status;
        if changed || always {
            self.trap(now, index, TrapKind::LinkStatus);
        }
    }
}
