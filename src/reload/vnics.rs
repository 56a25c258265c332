//! Making one change of a VNIC.

use std::sync::Arc;

use control::config::vnic::{Learning, SwitchConfig};
use control::config::{Config, InterfaceKey, ManagementSettings, PortName, VnicConfig};

use super::apply::Outcome;
use super::plan::VnicChange;
use crate::daemon::Daemon;
use crate::datapath::{Command, DeviceId, EthernetCommand};
use crate::port::PortId;
use crate::vnic::{Vnic, carried_mtu, static_switch};

impl Daemon {
    /// Makes one change, and notes it in the configuration that is in force.
    pub(super) fn apply_to_vnic(
        &mut self,
        key: &InterfaceKey,
        change: &VnicChange,
        running: &mut Config,
    ) -> Outcome {
        let done = match change {
            VnicChange::Mtu(mtu) => self.set_configured_vnic_mtu(key, *mtu),
            VnicChange::Up(up) => self.set_vnic_up(key, *up),
            VnicChange::Persist(persist) => self.set_vnic_persist(key, *persist),
            VnicChange::Learning(learning) => self.set_vnic_learning(key, *learning),
            VnicChange::Switch(switch) => self.set_vnic_switch(key, switch),
        }?;
        if let Some(vnic) = running.vnics.iter_mut().find(|v| v.key() == *key) {
            note(vnic, change);
        }
        Ok(done)
    }

    /// The VNIC that the configuration calls so, whatever its interface is called now.
    fn configured_vnic(&mut self, key: &InterfaceKey) -> Result<&mut Vnic, String> {
        let mut all = self.vnics.values_mut();
        all.find(|v| !v.made_by_manager && v.spec.key() == *key)
            .ok_or_else(|| format!("{key}: it is not in service"))
    }

    fn configured_vnic_id(&mut self, key: &InterfaceKey) -> Result<(DeviceId, PortId), String> {
        let vnic = self.configured_vnic(key)?;
        Ok((vnic.id, vnic.at))
    }

    pub(super) fn remove_vnic(&mut self, key: &InterfaceKey) -> Outcome {
        let vnic = self.configured_vnic(key)?;
        if vnic.spec.persist
            && let Err(e) = vnic.tap.set_persist(false)
        {
            log::warn!("{key}: cannot be removed: {e}");
        }
        let (id, stays) = (vnic.id, vnic.tap.is_persistent().unwrap_or(false));
        self.forget_vnic(id);
        Ok(match stays {
            true => {
                format!("{key}: out of service; the interface was there before ibtapd and stays")
            }
            false => format!("{key}: removed"),
        })
    }

    pub(super) fn make_vnic_of(&mut self, at: PortId, vnic: &VnicConfig) -> Outcome {
        let key = vnic.key();
        let is_other =
            |v: &&Vnic| v.spec.key() == key || (v.at == at && v.spec.index == vnic.index);
        if let Some(other) = self.vnics.values().find(is_other) {
            return Err(format!(
                "{key}: an Ethernet Manager made {} with that name or index; give another one, or \
                 restart ibtapd",
                other.name
            ));
        }
        let id = self.add_vnic(at, vnic).map_err(|e| format!("{key}: {e}"))?;
        let made = self.vnics.get(&id).map_or(0, Vnic::queues);
        let asked = vnic.queue_count();
        Ok(match made < asked {
            true => format!(
                "{key}: created with {made} of {asked} queues, as many as its port has threads; \
                 restart ibtapd for more"
            ),
            false => format!("{key}: created"),
        })
    }

    fn set_configured_vnic_mtu(&mut self, key: &InterfaceKey, mtu: Option<u32>) -> Outcome {
        let vnic = self.configured_vnic(key)?;
        let most = *vnic.allowed_mtu().end();
        if let Some(mtu) = mtu.filter(|mtu| *mtu > most) {
            return Err(format!(
                "{key}: the MTU {mtu} is over the switch's or the port's {most}; ask for at most {most}"
            ));
        }
        vnic.spec.mtu = mtu;
        let (id, bytes) = (vnic.id, mtu.unwrap_or(most));
        self.set_vnic_mtu(id, bytes);
        Ok(format!("{key}: mtu {bytes}"))
    }

    fn set_vnic_up(&mut self, key: &InterfaceKey, up: bool) -> Outcome {
        let vnic = self.configured_vnic(key)?;
        vnic.spec.up = up;
        let id = vnic.id;
        if !up {
            return Ok(format!("{key}: up false; it stays as it is now"));
        }
        self.inside_vnic(id, |vnic, netlink| netlink.set_up(vnic.ifindex))
            .ok_or_else(|| format!("{key}: its network namespace cannot be entered"))?
            .map_err(|e| format!("{key}: cannot be set up: {e}"))?;
        Ok(format!("{key}: up true"))
    }

    fn set_vnic_persist(&mut self, key: &InterfaceKey, persist: bool) -> Outcome {
        let vnic = self.configured_vnic(key)?;
        vnic.tap
            .set_persist(persist)
            .map_err(|e| format!("{key}: cannot change persist: {e}"))?;
        vnic.spec.persist = persist;
        Ok(format!("{key}: persist {persist}"))
    }

    fn set_vnic_learning(&mut self, key: &InterfaceKey, learning: Learning) -> Outcome {
        let (id, at) = self.configured_vnic_id(key)?;
        let vnic = self.configured_vnic(key)?;
        vnic.spec.learning = learning;
        let tell = |command: fn(Learning) -> EthernetCommand| {
            self.ports[at].tell(|| Command::Ethernet(id, command(learning)));
        };
        tell(|learning| EthernetCommand::SetLearning(learning.on));
        tell(|learning| EthernetCommand::SetAgeing(learning.ageing_ms()));
        Ok(format!(
            "{key}: learning {}, ageing {} s",
            learning.on, learning.ageing
        ))
    }

    fn set_vnic_switch(&mut self, key: &InterfaceKey, switch: &SwitchConfig) -> Outcome {
        let (id, at) = self.configured_vnic_id(key)?;
        let port = self.ports[at].port.attributes();
        let vnic = self.configured_vnic(key)?;
        vnic.spec.switch = Some(switch.clone());
        let carried = carried_mtu(port.ud_payload_max);
        let (info, directory) = static_switch(switch, port.guid, vnic.spec.index, carried);
        let (was, mac) = (vnic.info.base_mac_addr, info.base_mac_addr);
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

fn note(vnic: &mut VnicConfig, change: &VnicChange) {
    match change {
        VnicChange::Mtu(mtu) => vnic.mtu = *mtu,
        VnicChange::Up(up) => vnic.up = *up,
        VnicChange::Persist(persist) => vnic.persist = *persist,
        VnicChange::Learning(learning) => vnic.learning = *learning,
        VnicChange::Switch(switch) => vnic.switch = Some(switch.clone()),
    }
}
