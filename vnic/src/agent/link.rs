//! What happens to the interfaces, and what of it a manager is told.

use proto::{Mac, Time};

use super::vport::{LINK_DOWN, LINK_UP};
use super::{Agent, vport::Vport};
use crate::attribute::ConfigState;
use crate::mad::TrapKind;

impl Agent {
    /// The fabric port is up, or down: with it all its virtual ports.
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

    /// An interface is up, or down, for its administrator.
    pub fn set_admin_up(&mut self, now: Time, index: u8, up: bool) {
        if let Some(vport) = self.vports.get_mut(&index)
            && vport.admin_up != up
        {
            vport.admin_up = up;
            self.update_link(now, index, true);
        }
    }

    /// The host can carry an interface's frames on its switch, or cannot: the partition is missing, say.
    /// It can unless this says otherwise.
    pub fn set_ready(&mut self, now: Time, index: u8, ready: bool) {
        if let Some(vport) = self.vports.get_mut(&index)
            && vport.ready != ready
        {
            vport.ready = ready;
            self.update_link(now, index, false);
        }
    }

    /// An interface has this address. That it is the one which the manager has given is no news.
    pub fn set_interface_mac(&mut self, now: Time, index: u8, mac: Mac) {
        self.update_unicast(now, index, |vport| vport.mac = mac);
    }

    /// These addresses are behind an interface, or it listens to them besides its own.
    pub fn set_unicast_macs(&mut self, now: Time, index: u8, macs: Vec<Mac>) {
        self.update_unicast(now, index, |vport| vport.others = macs);
    }

    /// An interface listens to these groups.
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

    /// Works out whether a port forwards (kernel opa_vnic_netdev.c, `opa_vnic_update_state`): what it is
    /// to do, its administrator, the host and the fabric must agree. The kernel's driver leaves out the
    /// last two.
    /// Tells of a change, and with `always` in any case.
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
