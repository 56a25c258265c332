//! Clients of the control socket that are answered by streams: those that monitor, that ping, or that manage
//! VNICs.

mod pinger;
mod watchers;

use std::time::{Duration, Instant};

use control::api::{ApiError, Happening, LinkAddress, PingRequest};
use control::{StreamId, Streamed};
use ipoib::{Ended, Event, Role};

use crate::datapath::{Command, LinkId};
use crate::ethernet::Clients;
use crate::interface::{Events, Interface};
use crate::ip::Ip;
use crate::port::{PortId, PortRuntime, Ports};
use pinger::{Answered, Link, Names, Pingers, Plan};
pub use watchers::Filter;
use watchers::Watchers;

/// The streams of all clients.
#[derive(Default)]
pub struct Streams {
    watchers: Watchers,
    pingers: Pingers,
    /// Clients that manage VNICs.
    pub managers: Clients,
}

impl Streams {
    /// Begins a stream of events: of one interface and its port, or of all.
    pub fn monitor(
        &mut self,
        stream: StreamId,
        filter: Option<Filter>,
        ports: &Ports,
        events: &mut Events,
    ) {
        if self.watchers.is_empty() {
            watch(ports, true);
        }
        // What happened before is not for this client.
        self.watchers.take(events);
        self.watchers.add(stream, filter);
    }

    /// Begins a stream of answers to a ping.
    pub fn ping(&mut self, stream: StreamId, ping: Ping, ports: &Ports) {
        self.pingers
            .add(stream, ping.plan, ping.names, Instant::now());
        self.send_pings(ports);
    }

    /// What a stream has for its client; `None` if it is none of these.
    pub fn next(&mut self, stream: StreamId, events: &mut Events) -> Option<Streamed> {
        self.watchers.take(events);
        let found = self.watchers.next(stream);
        found
            .or_else(|| self.pingers.next(stream))
            .or_else(|| self.managers.next(stream))
    }

    /// A client that monitored or pinged is gone.
    pub fn close(&mut self, stream: StreamId, ports: &Ports) {
        self.pingers.remove(stream);
        let watched = !self.watchers.is_empty();
        self.watchers.remove(stream);
        if watched && self.watchers.is_empty() {
            watch(ports, false);
        }
    }

    /// Hands what has happened to the clients that monitor.
    pub fn take(&mut self, events: &mut Events) {
        self.watchers.take(events);
    }

    /// A port is opened: its data threads report neighbours where a client monitors.
    pub fn port_opened(&self, port: &PortRuntime) {
        if !self.watchers.is_empty() {
            port.tell(|| Command::Watch(true));
        }
    }

    /// An interface is closed: pings through it end.
    pub fn interface_closed(&mut self, id: LinkId) {
        self.pingers.device_gone(id);
    }

    /// How long until [`Streams::send_pings`] has something to do.
    pub fn wait(&self) -> Option<Duration> {
        let next = self.pingers.deadline()?;
        Some(next.saturating_duration_since(Instant::now()))
    }

    /// Sends the echo requests that are due.
    pub fn send_pings(&mut self, ports: &Ports) {
        for (port, id, request) in self.pingers.due(Instant::now()) {
            if let Some(port) = ports.get(port) {
                port.tell_first(Command::Echo(id, request));
            }
        }
    }

    /// An echo request could not be sent.
    pub fn echo_refused(&mut self, id: LinkId, echo: u16, sequence: u32) {
        self.pingers.refused(id, echo, sequence);
    }

    /// A core reports: an answer for the clients that ping, or an event for those that monitor.
    pub fn core_event(
        &mut self,
        interface: &Interface,
        event: &Event,
        round_trip: u64,
        (ports, events): (&Ports, &mut Events),
    ) {
        if let Event::Echo {
            from,
            id: echo,
            sequence,
            len,
            ..
        } = *event
        {
            let answer = Answered {
                from,
                id: echo,
                sequence,
                len,
                round_trip,
            };
            self.echo_answered(interface, &answer, ports);
        } else if let Some(what) = happening(event) {
            events.push(interface.subject(), what);
        }
    }

    fn echo_answered(&mut self, interface: &Interface, answer: &Answered, ports: &Ports) {
        let (id, now) = (interface.id.link(), Instant::now());
        if self.pingers.lacks_names(id, answer, now)
            && let Ok(names) = names(ports, interface.port, id)
        {
            self.pingers.set_names(id, &names, now);
        }
        self.pingers.answered(id, answer);
    }
}

/// A ping that can begin.
pub struct Ping {
    plan: Plan,
    names: Names,
}

impl Ping {
    /// Checks a request for a ping through an interface.
    ///
    /// # Errors
    /// [`ApiError::BadArgument`] for a request that cannot be; [`ApiError::Busy`] when the data threads do
    /// not answer.
    pub fn new(
        request: &PingRequest,
        (interface, ip): (&Interface, &Ip),
        ports: &Ports,
    ) -> Result<Ping, ApiError> {
        let names = names(ports, interface.port, interface.id.link())?;
        let link = Link {
            device: interface.id.link(),
            port: interface.port,
            gid: ip.link.address.gid(),
            payload_max: ports[interface.port].port.attributes().ud_payload_max,
            names: &names,
        };
        let plan = Plan::new(request, &link)?;
        Ok(Ping { plan, names })
    }
}

fn watch(ports: &Ports, on: bool) {
    for port in ports.values() {
        port.tell(|| Command::Watch(on));
    }
}

/// The confirmed neighbours of an interface, and their IP addresses.
fn names(ports: &Ports, port: PortId, id: LinkId) -> Result<Names, ApiError> {
    let mut names = Names::new();
    let tables = ports.tables_of(port, id)?.into_iter();
    let neighbours = tables.flat_map(|table| table.neighbours);
    for neighbour in neighbours.filter(|n| n.confirmed) {
        let address = (neighbour.address.gid(), neighbour.address.qpn());
        let ips = names.entry(address).or_default();
        for ip in neighbour.ips {
            if !ips.contains(&ip) {
                ips.push(ip);
            }
        }
    }
    Ok(names)
}

/// What a core's news is to those who watch; nothing for news that only the daemon wants.
fn happening(event: &Event) -> Option<Happening> {
    Some(match *event {
        Event::NeighbourLearned { address, mac, ip } => Happening::NeighbourLearned {
            mac: LinkAddress(mac),
            gid: address.gid(),
            qpn: address.qpn(),
            ip,
        },
        Event::NeighbourReplaced { old, new } => Happening::NeighbourReplaced {
            gid: new.gid(),
            qpn: new.qpn(),
            old_gid: old.gid(),
            old_qpn: old.qpn(),
        },
        Event::NeighbourForgotten { address } => Happening::NeighbourForgotten {
            gid: address.gid(),
            qpn: address.qpn(),
        },
        Event::GuestLearned { ip, mac, .. } => Happening::GuestLearned {
            mac: LinkAddress(mac),
            ip,
        },
        Event::GuestForgotten { ip } => Happening::GuestForgotten { ip },
        Event::AddressConflict { ip, one, other } => Happening::AddressConflict {
            ip,
            mac: LinkAddress(one),
            other_mac: LinkAddress(other),
        },
        Event::MacClash { guest, peer } => Happening::MacClash {
            mac: LinkAddress(guest),
            peer_mac: LinkAddress(peer),
        },
        Event::SignedNd => Happening::SignedNd,
        Event::ConnectionUp { peer, role } => Happening::ConnectionUp {
            gid: peer.gid(),
            qpn: peer.qpn(),
            active: role == Role::Active,
        },
        Event::ConnectionDown { peer, role, why } => Happening::ConnectionDown {
            gid: peer.gid(),
            qpn: peer.qpn(),
            active: role == Role::Active,
            reason: why.to_string(),
        },
        Event::ConnectionRefused { peer, reason } => Happening::ConnectionRefused {
            gid: peer.gid(),
            qpn: peer.qpn(),
            reason: Ended::Closed(reason).to_string(),
        },
        Event::GroupJoined { .. }
        | Event::GroupLeft { .. }
        | Event::GroupSeen { .. }
        | Event::Echo { .. } => return None,
    })
}
