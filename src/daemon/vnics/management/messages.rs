//! What comes to a port's endpoint of management, and what goes from there.

use std::time::Duration;

use control::api::{Hex, ManagementDatagram};
use vnic::agent::{Agent, Destination};
use vnic::carriage::Address;
use vnic::directory::NodeAddress;
use vnic::mad::Mad;

use super::host::PortHost;
use crate::daemon::Daemon;
use crate::datapath::Datagram;
use crate::ethernet::{ChangeTracking, Management, now};
use crate::port::{PortId, PortRuntime};

/// Messages of a port to itself that are handled at once: what comes of them waits for the next turn.
const LOOPBACK_AT_ONCE: usize = 256;

impl Daemon {
    /// A datagram came to an endpoint of management.
    pub(in crate::daemon) fn management_received(&mut self, datagram: &Datagram) {
        let is_its = |m: &Management| m.link.id == datagram.at;
        let has_it = |p: &PortRuntime| p.management.as_ref().is_some_and(is_its);
        let Some(at) = self.ports.find(has_it) else {
            return;
        };
        let port = &mut self.ports[at];
        let own = port.port.attributes().gid;
        let from = Address {
            gid: datagram.gid,
            qpn: datagram.qpn,
            by_group: datagram.multicast,
        };
        let management = port.management.as_mut();
        let mad = management.and_then(|m| m.receive(own, from, &datagram.payload));
        if let Some(mad) = mad {
            self.management_message(at, from, mad);
        }
        self.tend_management(at);
    }

    /// A whole message came, from the fabric or from this port itself.
    fn management_message(&mut self, at: PortId, from: Address, mad: Vec<u8>) {
        let is_request = Mad::parse(&mad).is_ok_and(|mad| mad.header.is_request());
        let agent = self.ports[at].management.as_mut();
        if let Some(mut agent) = agent.and_then(|m| m.agent.take()) {
            let mut host = ChangeTracking::new(PortHost { daemon: self, at });
            let answer = agent.handle(now(), from, &mad, &mut host);
            let mut touched = host.is_changed();
            if let Some(management) = &mut self.ports[at].management {
                management.agent = Some(agent);
                touched |= std::mem::take(&mut management.stale);
            }
            if let Some(answer) = answer {
                let (gid, qpn) = (from.gid, from.qpn);
                self.send_mad(at, Destination::Node(NodeAddress { gid, qpn }), answer);
            }
            if touched {
                self.sync_agent(at);
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
            self.streams
                .managers
                .received(&self.ports[at].name, &datagram);
        }
    }

    pub(super) fn send_mad(&mut self, at: PortId, to: Destination, mad: Vec<u8>) {
        let port = &mut self.ports[at];
        let own = port.port.attributes().gid;
        if let Some(management) = &mut port.management {
            for command in management.send(own, to, mad) {
                port.tell_first(command);
            }
        }
    }

    /// Sends what a port's agent has to say, and hears what the port has said to itself.
    pub(super) fn tend_management(&mut self, at: PortId) {
        for _ in 0..LOOPBACK_AT_ONCE {
            // An agent that is at work hears, and is heard, afterwards.
            let management = self.ports[at].management.as_mut();
            let Some(management) = management.filter(|m| m.agent.is_some()) else {
                return;
            };
            if let Some((from, mad)) = management.loopback.pop_front() {
                self.management_message(at, from, mad);
                continue;
            }
            let Some(agent) = &mut management.agent else {
                return;
            };
            match agent.poll_transmit(now()) {
                Some(transmit) => self.send_mad(at, transmit.to, transmit.mad),
                None => break,
            }
        }
        self.tell_agent_events(at);
    }

    fn tell_agent_events(&mut self, at: PortId) {
        let port = &mut self.ports[at];
        let name = port.port.attributes().name;
        let agent = port.management.as_mut().and_then(|m| m.agent.as_mut());
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

    /// How long until [`Daemon::tick_management`] has something to do.
    pub(in crate::daemon) fn next_management_tick(&self) -> Option<Duration> {
        let now = now();
        let all = self.ports.values().filter_map(|p| p.management.as_ref());
        let due = all.filter_map(|m| match m.loopback.is_empty() {
            true => m.agent.as_ref().and_then(Agent::next_deadline),
            false => Some(now),
        });
        due.map(|at| Duration::from_millis(at.since(now))).min()
    }

    /// Lets time pass for management.
    pub(in crate::daemon) fn tick_management(&mut self) {
        for at in self.ports.ids() {
            self.tend_management(at);
        }
    }
}
