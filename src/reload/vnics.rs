//! Makes one change of a VNIC.

use std::sync::Arc;

use control::config::ManagementSettings;
use control::config::vnic::{Learning, SwitchConfig};
use control::config::{InterfaceKey, PortName, VnicConfig};

use super::Apply;
use super::apply::{Outcome, created};
use crate::ethernet::{Ethernet, configured_switch};
use crate::interface::Interface;
use crate::interfaces::management;
use crate::port::PortId;

impl Apply<'_> {
    pub(super) fn make_vnic_of(&mut self, at: PortId, vnic: &VnicConfig) -> Outcome {
        let key = vnic.key();
        let is_other = |e: &Ethernet| e.spec.key() == key;
        let has_index = |e: &Ethernet| e.spec.index == vnic.index;
        let is_other = |i: &Interface, e: &Ethernet| is_other(e) || (i.port == at && has_index(e));
        let others = self.interfaces.ethernet_ids(is_other);
        if let Some(other) = others.first().and_then(|id| self.interfaces.get(*id)) {
            return Err(format!(
                "{key}: an Ethernet Manager created {} with that name or index; use another one, or \
                 restart ibtapd",
                other.name
            ));
        }
        let id = self
            .interfaces
            .add_vnic(self.cx, at, vnic)
            .map_err(|e| format!("{key}: {e}"))?;
        let made = self.interfaces.get(id).map_or(0, |i| i.queues.len());
        Ok(created(&key, made, vnic.queue_count()))
    }

    pub(super) fn set_vnic_learning(&mut self, key: &InterfaceKey, learning: Learning) -> Outcome {
        let (interface, ethernet) = self.configured_vnic(key)?;
        ethernet.spec.learning = learning;
        let id = interface.id;
        self.interfaces.update_lanes(&self.cx.ports, id);
        Ok(format!(
            "{key}: learning {}, ageing {} s",
            learning.on, learning.ageing
        ))
    }

    pub(super) fn set_vnic_switch(&mut self, key: &InterfaceKey, switch: &SwitchConfig) -> Outcome {
        let (interface, _) = self.configured_vnic(key)?;
        let (id, at) = (interface.id, interface.port);
        let port = self.cx.ports[at].port.attributes();
        let (_, ethernet) = self.configured_vnic(key)?;
        ethernet.spec.switch = Some(switch.clone());
        let (info, directory) = configured_switch(switch, ethernet.spec.index, &port);
        let (was, mac) = (ethernet.info.base_mac_addr, info.base_mac_addr);
        if was != mac {
            self.interfaces.set_vnic_mac(self.cx, id, mac);
        }
        let lid = info.encap_slid;
        self.interfaces
            .set_vnic_directory(&self.cx.ports, id, Arc::new(directory));
        self.interfaces
            .configure_vnic(self.cx, id, info)
            .map_err(|e| format!("{key}: {e}"))?;
        Ok(format!("{key}: switch {}, LID {lid}", switch.vesw))
    }

    /// Sets the allowed managers of a port's VNICs, and the keys that authenticate them.
    pub(super) fn set_management(
        &mut self,
        name: &PortName,
        settings: &ManagementSettings,
        at: PortId,
    ) -> Outcome {
        let port = &mut self.cx.ports[at];
        port.management_settings = settings.clone();
        if let Some(management) = self.interfaces.management_mut(at) {
            management.configure(&*port.port, settings);
        }
        match settings.vnic_create {
            true => management::manage_port(self.interfaces, self.cx, at),
            false => management::close_unused_management(self.interfaces, self.cx, at),
        }
        let managers = match settings.managers.len() {
            0 => "any".to_owned(),
            n => n.to_string(),
        };
        let create = settings.vnic_create;
        let keys = settings.management_key.keys().len();
        Ok(format!(
            "{name}: managers {managers}, {keys} management key(s), vnic_create {create}"
        ))
    }
}
