//! Messages from and to a port's management endpoint.

use std::time::Duration;

use control::api::{Hex, ManagementDatagram};
use vnic::agent::{Agent, Destination};
use vnic::carriage::Address;
use vnic::directory::NodeAddress;
use vnic::mad::Mad;

use super::host::PortHost;
use crate::datapath::Datagram;
use crate::ethernet::{ChangeTracking, Management, now};
use crate::interfaces::management::sync::sync_agent;
use crate::interfaces::{Context, Interfaces};
use crate::port::PortId;

/// Messages of a port to itself that are handled in one turn of the loop.
const LOOPBACK_AT_ONCE: usize = 256;

/// Handles a datagram for a management endpoint.
pub fn received(interfaces: &mut Interfaces, cx: &mut Context, datagram: &Datagram) {
    let is_its = |m: &Management| m.link.id == datagram.at;
    let mut all = interfaces.managements.iter_mut();
    let Some((&at, management)) = all.find(|(_, m)| is_its(m)) else {
        return;
    };
    let from = Address {
        gid: datagram.gid,
        qpn: datagram.qpn,
        by_group: datagram.multicast,
    };
    if let Some(mad) = management.receive(&*cx.ports[at].port, from, &datagram.payload) {
        handle_message(interfaces, cx, at, from, mad);
    }
    process_management(interfaces, cx, at);
}

/// Handles a complete message from the fabric or from this port.
fn handle_message(
    interfaces: &mut Interfaces,
    cx: &mut Context,
    at: PortId,
    from: Address,
    mad: Vec<u8>,
) {
    let is_request = Mad::parse(&mad).is_ok_and(|mad| mad.header.is_request());
    let agent = interfaces.managements.get_mut(&at);
    if let Some(mut agent) = agent.and_then(|m| m.agent.take()) {
        let mut host = ChangeTracking::new(PortHost { interfaces, cx, at });
        let answer = agent.handle(now(), from, &mad, &mut host);
        let mut changed = host.is_changed();
        if let Some(management) = interfaces.managements.get_mut(&at) {
            management.agent = Some(agent);
            changed |= std::mem::take(&mut management.stale);
        }
        if let Some(answer) = answer {
            let (gid, qpn) = (from.gid, from.qpn);
            send_mad(
                interfaces,
                cx,
                at,
                Destination::Node(NodeAddress { gid, qpn }),
                answer,
            );
        }
        if changed {
            sync_agent(interfaces, cx, at);
        }
    }
    if !is_request {
        let datagram = ManagementDatagram {
            gid: from.gid,
            qpn: from.qpn,
            by_group: from.by_group,
            mad: Hex(mad),
            lost: None,
        };
        cx.managers.received(&cx.ports[at].name, &datagram);
    }
}

/// Sends a message of a port's management.
pub fn send_mad(
    interfaces: &mut Interfaces,
    cx: &mut Context,
    at: PortId,
    to: Destination,
    mad: Vec<u8>,
) {
    let port = &cx.ports[at];
    let own = port.port.attributes().gid;
    if let Some(management) = interfaces.managements.get_mut(&at) {
        for command in management.send(own, to, mad) {
            port.send_first(command);
        }
    }
}

/// Sends the messages of a port's agent, and handles the messages of the port to itself.
pub fn process_management(interfaces: &mut Interfaces, cx: &mut Context, at: PortId) {
    for _ in 0..LOOPBACK_AT_ONCE {
        // The agent is handling a message now; the rest is done afterwards.
        let management = interfaces.managements.get_mut(&at);
        let Some(management) = management.filter(|m| m.agent.is_some()) else {
            return;
        };
        if let Some((from, mad)) = management.loopback.pop_front() {
            handle_message(interfaces, cx, at, from, mad);
            continue;
        }
        let Some(agent) = &mut management.agent else {
            return;
        };
        match agent.poll_transmit(now()) {
            Some(transmit) => send_mad(interfaces, cx, at, transmit.to, transmit.mad),
            None => break,
        }
    }
    log_agent_events(interfaces, cx, at);
}

fn log_agent_events(interfaces: &mut Interfaces, cx: &mut Context, at: PortId) {
    let name = cx.ports[at].port.attributes().name;
    let management = interfaces.managements.get_mut(&at);
    let agent = management.and_then(|m| m.agent.as_mut());
    for event in agent
        .into_iter()
        .flat_map(|a| std::iter::from_fn(|| a.poll_event()))
    {
        match event.is_warning() {
            true => log::warn!("{name}: VNIC management: {event}"),
            false => log::info!("{name}: VNIC management: {event}"),
        }
    }
}

/// Time until [`tick`] is due.
pub fn next_tick(interfaces: &Interfaces) -> Option<Duration> {
    let now = now();
    let due = interfaces
        .managements
        .values()
        .filter_map(|m| match m.loopback.is_empty() {
            true => m.agent.as_ref().and_then(Agent::next_deadline),
            false => Some(now),
        });
    due.map(|at| Duration::from_millis(at.since(now))).min()
}

/// Does the due work of all ports' management.
pub fn tick(interfaces: &mut Interfaces, cx: &mut Context) {
    for at in interfaces.managements.keys().copied().collect::<Vec<_>>() {
        process_management(interfaces, cx, at);
    }
}
