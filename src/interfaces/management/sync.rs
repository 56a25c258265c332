//! Keeps a port's agent up to date about the VNICs.

use control::config::vnic::VPORTS_MAX;
use fabric::EndpointId;

use super::host::{new_port, reported_mac};
use crate::ethernet::{Ethernet, now};
use crate::interface::InterfaceId;
use crate::interfaces::{Context, Interfaces};
use crate::port::PortId;

// The agent has room for all VNICs.
const _: () = assert!(VPORTS_MAX <= vnic::mad::NODE_PORTS_MAX);

/// Updates a port's agent from its VNICs. The agent ignores what has not changed.
pub fn sync_agent(interfaces: &mut Interfaces, cx: &mut Context, at: PortId) {
    let now = now();
    let port = &mut cx.ports[at];
    let Some(management) = interfaces.managements.get_mut(&at) else {
        return;
    };
    management.follow(&mut *port.port);
    let Some(agent) = &mut management.agent else {
        // The agent is handling a message; it is updated afterwards.
        management.stale = true;
        return;
    };
    let mut gone: Vec<u8> = agent.ports().map(|(index, ..)| index).collect();
    let managed = |e: &Ethernet| e.spec.switch.is_none();
    let all = interfaces.all.values();
    let all = all.filter_map(|(i, payload)| Some((i, payload.ethernet()?)));
    for (interface, ethernet) in all.filter(|(i, e)| i.port == at && managed(e)) {
        let index = ethernet.spec.index;
        gone.retain(|known| *known != index);
        agent.add_port(now, index, new_port(interface, ethernet));
        agent.set_name(now, index, &interface.name);
        agent.set_qpn(now, index, ethernet.qpn());
        agent.set_admin_up(now, index, interface.up);
        agent.set_ready(now, index, ethernet.is_ready());
        agent.set_interface_mac(now, index, reported_mac(interface.mac, ethernet.bonded));
        agent.set_unicast_macs(now, index, ethernet.guests.clone());
        agent.set_multicast_macs(now, index, ethernet.host_groups.clone());
    }
    for index in gone {
        agent.remove_port(now, index);
    }
    let place = management.place(&*port.port);
    if management.announced.as_ref() != Some(&place) {
        cx.managers.moved(&port.name, &place);
        management.announced = Some(place);
    }
}

/// Updates the agent of a VNIC's port.
pub fn sync_agent_of(interfaces: &mut Interfaces, cx: &mut Context, id: InterfaceId) {
    if let Some((interface, _)) = interfaces.ethernet(id) {
        sync_agent(interfaces, cx, interface.port);
    }
}

/// The P_Key table entries of these endpoints changed.
pub fn pkeys_changed(
    interfaces: &mut Interfaces,
    cx: &mut Context,
    at: PortId,
    changed: &[EndpointId],
) {
    let management = interfaces.managements.get(&at);
    if management.is_some_and(|m| changed.iter().any(|endpoint| m.has(*endpoint))) {
        sync_agent(interfaces, cx, at);
    }
}
