//! What a port's agent knows of the VNICs, and what it says of them.

use control::api::FabricAddress;
use control::config::vnic::VPORTS_MAX;
use fabric::{EndpointId, PortEvent};

use super::host::new_port;
use crate::daemon::Daemon;
use crate::datapath::DeviceId;
use crate::port::PortId;
use crate::vnic::{Management, Vnic, now};

// So that the agent has room for all.
const _: () = assert!(VPORTS_MAX <= vnic::mad::NODE_PORTS_MAX);

impl Daemon {
    /// Tells a port's agent what its VNICs are like now. What it knows already is no news to it.
    pub(in crate::daemon) fn sync_agent(&mut self, at: PortId) {
        let now = now();
        let port = &mut self.ports[at];
        let Some(management) = &mut port.management else {
            return;
        };
        management.follow(&mut *port.port);
        let Some(agent) = &mut management.agent else {
            // It is at work, and is told afterwards.
            management.stale = true;
            return;
        };
        let mut gone: Vec<u8> = agent.ports().map(|(index, ..)| index).collect();
        let managed = |v: &&Vnic| v.at == at && v.spec.switch.is_none();
        for vnic in self.vnics.values().filter(managed) {
            let index = vnic.spec.index;
            gone.retain(|known| *known != index);
            agent.add_port(now, index, new_port(vnic));
            agent.set_name(now, index, &vnic.name);
            agent.set_qpn(now, index, vnic.qpn());
            agent.set_admin_up(now, index, vnic.up);
            agent.set_ready(now, index, vnic.is_ready());
            agent.set_interface_mac(now, index, vnic.mac);
            agent.set_unicast_macs(now, index, vnic.guests.clone());
            agent.set_multicast_macs(now, index, vnic.groups.clone());
        }
        for index in gone {
            agent.remove_port(now, index);
        }
        let place = management.place(&*port.port);
        if management.told.as_ref() != Some(&place) {
            self.management.moved(&port.name, &place);
            management.told = Some(place);
        }
    }

    pub(in crate::daemon) fn sync_agent_of(&mut self, id: DeviceId) {
        if let Some(at) = self.vnics.get(&id).map(|v| v.at) {
            self.sync_agent(at);
        }
    }

    /// A VNIC is up or down now, or has another carrier.
    pub(in crate::daemon) fn management_link_changed(&mut self, id: DeviceId) {
        self.sync_agent_of(id);
    }

    /// A VNIC's interface has another MAC, or another name.
    pub(in crate::daemon) fn management_macs_changed(&mut self, id: DeviceId) {
        self.sync_agent_of(id);
    }

    /// The host has joined other groups on a VNIC's interface.
    pub(in crate::daemon) fn management_groups_changed(&mut self, id: DeviceId) {
        self.sync_agent_of(id);
    }

    /// A port has news.
    pub(in crate::daemon) fn management_port_event(&mut self, at: PortId, _: &PortEvent) {
        self.sync_agent(at);
    }

    /// The entries of these endpoints in a port's P_Key table are others now.
    pub(in crate::daemon) fn management_pkeys_changed(
        &mut self,
        at: PortId,
        changed: &[EndpointId],
    ) {
        let management = self.ports[at].management.as_ref();
        if management.is_some_and(|m| changed.iter().any(|endpoint| m.has(*endpoint))) {
            self.sync_agent(at);
        }
    }

    /// The counters of the agent that a VNIC has.
    pub(in crate::daemon) fn management_counters(&self, vnic: &Vnic) -> control::api::Counters {
        let management = self.ports[vnic.at].management.as_ref();
        let its = management.filter(|_| vnic.spec.switch.is_none());
        its.map(Management::counters).unwrap_or_default()
    }

    /// Who manages a VNIC.
    pub(in crate::daemon) fn manager_of(&self, vnic: &Vnic) -> Option<FabricAddress> {
        let management = self.ports[vnic.at].management.as_ref()?;
        let owner = management.agent.as_ref()?.owner(now())?;
        let (gid, qpn) = (owner.gid, owner.qpn);
        let is_managed = vnic.spec.switch.is_none();
        is_managed.then_some(FabricAddress { gid, qpn })
    }
}
