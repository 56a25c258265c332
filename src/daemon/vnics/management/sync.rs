//! What a port's agent knows of the VNICs, and what it says of them.

use control::api::FabricAddress;
use control::config::vnic::VPORTS_MAX;
use fabric::EndpointId;

use super::host::new_port;
use crate::daemon::Daemon;
use crate::ethernet::{Ethernet, Management, now};
use crate::interface::Interface;
use crate::interface::InterfaceId;
use crate::port::PortId;

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
        let managed = |e: &Ethernet| e.spec.switch.is_none();
        let all = self.interfaces.ethernets();
        for (interface, ethernet) in all.filter(|(i, e)| i.port == at && managed(e)) {
            let index = ethernet.spec.index;
            gone.retain(|known| *known != index);
            agent.add_port(now, index, new_port(interface, ethernet));
            agent.set_name(now, index, &interface.name);
            agent.set_qpn(now, index, ethernet.qpn());
            agent.set_admin_up(now, index, interface.up);
            agent.set_ready(now, index, ethernet.is_ready());
            agent.set_interface_mac(now, index, interface.mac);
            agent.set_unicast_macs(now, index, ethernet.guests.clone());
            agent.set_multicast_macs(now, index, ethernet.host_groups.clone());
        }
        for index in gone {
            agent.remove_port(now, index);
        }
        let place = management.place(&*port.port);
        if management.told.as_ref() != Some(&place) {
            self.streams.managers.moved(&port.name, &place);
            management.told = Some(place);
        }
    }

    /// The same for the agent of a VNIC's port.
    pub(in crate::daemon) fn sync_agent_of(&mut self, id: InterfaceId) {
        if let Some((interface, _)) = self.interfaces.ethernet(id) {
            self.sync_agent(interface.port);
        }
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
    pub(in crate::daemon) fn management_counters(
        &self,
        interface: &Interface,
        ethernet: &Ethernet,
    ) -> control::api::Counters {
        let management = self.ports[interface.port].management.as_ref();
        let its = management.filter(|_| ethernet.spec.switch.is_none());
        its.map(Management::counters).unwrap_or_default()
    }

    /// Who manages a VNIC.
    pub(in crate::daemon) fn manager_of(
        &self,
        interface: &Interface,
        ethernet: &Ethernet,
    ) -> Option<FabricAddress> {
        let management = self.ports[interface.port].management.as_ref()?;
        let owner = management.agent.as_ref()?.owner(now())?;
        let (gid, qpn) = (owner.gid, owner.qpn);
        let is_managed = ethernet.spec.switch.is_none();
        is_managed.then_some(FabricAddress { gid, qpn })
    }
}
