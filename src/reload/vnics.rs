//! Making one change of a VNIC.

use std::sync::Arc;

use control::config::ManagementSettings;
use control::config::vnic::{Learning, SwitchConfig};
use control::config::{InterfaceKey, PortName, VnicConfig};

use super::apply::Outcome;
use crate::daemon::Daemon;
use crate::ethernet::{Ethernet, carried_mtu, static_switch};
use crate::interface::Interface;
use crate::port::PortId;

impl Daemon {
    pub(super) fn make_vnic_of(&mut self, at: PortId, vnic: &VnicConfig) -> Outcome {
        let key = vnic.key();
        let is_other = |e: &Ethernet| e.spec.key() == key;
        let has_index = |e: &Ethernet| e.spec.index == vnic.index;
        let is_other = |i: &Interface, e: &Ethernet| is_other(e) || (i.port == at && has_index(e));
        let others = self.interfaces.ethernet_ids(is_other);
        if let Some(other) = others.first().and_then(|id| self.interfaces.get(*id)) {
            return Err(format!(
                "{key}: an Ethernet Manager made {} with that name or index; give another one, or \
                 restart ibtapd",
                other.name
            ));
        }
        let id = self.add_vnic(at, vnic).map_err(|e| format!("{key}: {e}"))?;
        let made = self.interfaces.get(id).map_or(0, |i| i.queues.len());
        let asked = vnic.queue_count();
        Ok(match made < asked {
            true => format!(
                "{key}: created with {made} of {asked} queues, as many as its port has threads; \
                 restart ibtapd for more"
            ),
            false => format!("{key}: created"),
        })
    }

    pub(super) fn set_configured_vnic_mtu(
        &mut self,
        key: &InterfaceKey,
        mtu: Option<u32>,
    ) -> Outcome {
        let (interface, ethernet) = self.configured_vnic(key)?;
        let most = *ethernet.allowed_mtu().end();
        if let Some(mtu) = mtu.filter(|mtu| *mtu > most) {
            return Err(format!(
                "{key}: the MTU {mtu} is over the switch's or the port's {most}; ask for at most {most}"
            ));
        }
        ethernet.spec.mtu = mtu;
        let (id, bytes) = (interface.id, mtu.unwrap_or(most));
        self.try_mtu(id, bytes);
        Ok(format!("{key}: mtu {bytes}"))
    }

    pub(super) fn set_vnic_learning(&mut self, key: &InterfaceKey, learning: Learning) -> Outcome {
        let (interface, ethernet) = self.configured_vnic(key)?;
        ethernet.spec.learning = learning;
        let id = interface.id;
        self.update_lanes(id);
        Ok(format!(
            "{key}: learning {}, ageing {} s",
            learning.on, learning.ageing
        ))
    }

    pub(super) fn set_vnic_switch(&mut self, key: &InterfaceKey, switch: &SwitchConfig) -> Outcome {
        let (interface, _) = self.configured_vnic(key)?;
        let (id, at) = (interface.id, interface.port);
        let port = self.ports[at].port.attributes();
        let (_, ethernet) = self.configured_vnic(key)?;
        ethernet.spec.switch = Some(switch.clone());
        let carried = carried_mtu(port.ud_payload_max);
        let (info, directory) = static_switch(switch, port.guid, ethernet.spec.index, carried);
        let (was, mac) = (ethernet.info.base_mac_addr, info.base_mac_addr);
        if was != mac {
            self.set_vnic_mac(id, mac);
        }
        let lid = info.encap_slid;
        self.set_vnic_directory(id, Arc::new(directory));
        self.configure_vnic(id, info)
            .map_err(|e| format!("{key}: {e}"))?;
        Ok(format!("{key}: switch {}, LID {lid}", switch.vesw))
    }

    /// Who may manage the VNICs of a port.
    pub(super) fn set_management(
        &mut self,
        name: &PortName,
        settings: &ManagementSettings,
        at: PortId,
    ) -> Outcome {
        let port = &mut self.ports[at];
        port.management_settings = settings.clone();
        let management = port.management.as_mut();
        if let Some(agent) = management.and_then(|m| m.agent.as_mut()) {
            agent.set_managers(settings.managers.clone());
            agent.set_may_create(settings.vnic_create);
        }
        match settings.vnic_create {
            true => self.manage_port(at),
            false => self.close_unused_management(at),
        }
        let managers = match settings.managers.len() {
            0 => "any".to_owned(),
            n => n.to_string(),
        };
        let create = settings.vnic_create;
        Ok(format!("{name}: managers {managers}, vnic_create {create}"))
    }
}
