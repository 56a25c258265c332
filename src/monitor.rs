//! Streams of answers to clients of the control socket: `monitor` and `ping`.

mod pinger;
mod watchers;

use std::time::{Duration, Instant};

use control::api::{ApiError, Happening, LinkAddress, PingRequest};
use control::{StreamId, Streamed};
use ipoib::{Ended, Event, Role};

use crate::datapath::{Command, LinkId};
use crate::interface::{Events, Interface};
use crate::ip::Ip;
use crate::port::{PortId, Ports};
use pinger::{Answered, Link, Names, Pingers, Plan};
pub use watchers::Filter;
use watchers::Watchers;

/// The streams of all clients.
#[derive(Default)]
pub struct Streams {
    watchers: Watchers,
    pingers: Pingers,
}

impl Streams {
    /// Begins a stream of events: of one interface and its port, or of everything.
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
        // Earlier events are not for this client.
        self.watchers.take(events);
        self.watchers.add(stream, filter);
    }

    /// Begins a stream of answers to a ping.
    pub fn ping(&mut self, stream: StreamId, ping: Ping, ports: &Ports) {
        self.pingers
            .add(stream, ping.plan, ping.names, Instant::now());
        self.send_pings(ports);
    }

    /// The next reply of a stream; `None` for an unknown stream.
    pub fn next(&mut self, stream: StreamId, events: &mut Events) -> Option<Streamed> {
        self.watchers.take(events);
        let found = self.watchers.next(stream);
        found.or_else(|| self.pingers.next(stream))
    }

    /// Ends the stream of a client that has gone.
    pub fn close(&mut self, stream: StreamId, ports: &Ports) {
        self.pingers.remove(stream);
        let watched = !self.watchers.is_empty();
        self.watchers.remove(stream);
        if watched && self.watchers.is_empty() {
            watch(ports, false);
        }
    }

    /// Passes events to the clients that monitor.
    pub fn take(&mut self, events: &mut Events) {
        self.watchers.take(events);
    }

    /// Makes the data threads of new ports report neighbours, if a client monitors.
    pub fn ports_changed(&self, ports: &Ports) {
        if !self.watchers.is_empty() {
            watch(ports, true);
        }
    }

    /// Ends the pings through a closed interface.
    pub fn interface_closed(&mut self, id: LinkId) {
        self.pingers.link_closed(id);
    }

    /// The time until the next [`Streams::send_pings`] is due; `None` without pings.
    pub fn wait(&self) -> Option<Duration> {
        let next = self.pingers.deadline()?;
        Some(next.saturating_duration_since(Instant::now()))
    }

    /// Sends the echo requests that are due.
    pub fn send_pings(&mut self, ports: &Ports) {
        for (port, id, request) in self.pingers.due(Instant::now()) {
            if let Some(port) = ports.get(port) {
                port.send_first(Command::Echo(id, request));
            }
        }
    }

    /// Handles an echo request that could not be sent.
    pub fn echo_refused(&mut self, id: LinkId, echo: u16, sequence: u32) {
        self.pingers.refused(id, echo, sequence);
    }

    /// Handles an event of a core: an answer for clients that ping, or an event for clients that monitor.
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

/// A checked ping.
pub struct Ping {
    plan: Plan,
    names: Names,
}

impl Ping {
    /// Checks a request for a ping through an interface.
    ///
    /// # Errors
    /// [`ApiError::BadArgument`] for an invalid request; [`ApiError::Busy`] if no data thread answers.
    pub fn new(
        request: &PingRequest,
        (interface, ip): (&Interface, &Ip),
        ports: &Ports,
    ) -> Result<Ping, ApiError> {
        let names = names(ports, interface.port, interface.id.link())?;
        let link = Link {
            link: interface.id.link(),
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
        port.send(|| Command::Watch(on));
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

/// The event for clients that monitor; `None` for events that only the daemon uses.
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
        Event::SuspiciousClaim {
            address,
            ip,
            pinned,
            refused,
        } => Happening::SuspiciousClaim {
            ip,
            gid: address.gid(),
            qpn: address.qpn(),
            pinned,
            dropped: refused,
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
