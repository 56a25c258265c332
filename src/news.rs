//! What happens, for those who want to hear of it: clients that monitor or ping.

use std::time::Instant;

use control::api::{ApiError, Happening, LinkAddress, PingRequest, Request, Selection};
use control::{StreamId, Streamed};
use ipoib::{Ended, Event, Role};

use crate::daemon::Daemon;
use crate::datapath::{Command, DeviceId};
use crate::pinger::{Answered, Link, Names, Plan};
use crate::port::PortId;
use crate::watch::Filter;

impl Daemon {
    /// Begins a stream of replies.
    ///
    /// # Errors
    /// What the client is told instead.
    pub(crate) fn open_stream(
        &mut self,
        stream: StreamId,
        request: Request,
    ) -> Result<(), ApiError> {
        match request {
            Request::Monitor(which) => self.monitor(stream, &which),
            Request::Ping(request) => self.ping(stream, &request),
            Request::Manage(request) => self.manage(stream, &request),
            _ => Err(ApiError::Refused {
                message: "this request is not answered by a stream".into(),
            }),
        }
    }

    /// What a stream has for its client.
    pub(crate) fn next_of_stream(&mut self, stream: StreamId) -> Streamed {
        self.streams.watchers.take(&mut self.events);
        let found = self.streams.watchers.next(stream);
        found
            .or_else(|| self.streams.pingers.next(stream))
            .or_else(|| self.streams.managers.next(stream))
            .unwrap_or(Streamed::Nothing)
    }

    /// A client is gone.
    pub(crate) fn close_stream(&mut self, stream: StreamId) {
        self.streams.pingers.remove(stream);
        self.manager_gone(stream);
        let watched = !self.streams.watchers.is_empty();
        self.streams.watchers.remove(stream);
        if watched && self.streams.watchers.is_empty() {
            self.watch(false);
        }
    }

    fn monitor(&mut self, stream: StreamId, which: &Selection) -> Result<(), ApiError> {
        self.name_places();
        let filter = match &which.interface {
            None => None,
            Some(name) => {
                let (interface, _) = self.named(name)?;
                Some(Filter {
                    interface: interface.name.clone(),
                    netns: interface.netns.clone(),
                    port: self.ports[interface.port].port.attributes().name,
                })
            }
        };
        if self.streams.watchers.is_empty() {
            self.watch(true);
        }
        self.streams.watchers.take(&mut self.events);
        self.streams.watchers.add(stream, filter);
        Ok(())
    }

    fn watch(&self, on: bool) {
        for port in self.ports.values() {
            port.tell(|| Command::Watch(on));
        }
    }

    fn ping(&mut self, stream: StreamId, request: &PingRequest) -> Result<(), ApiError> {
        let (interface, ip) = self.named_ip(&request.interface)?;
        let (device, at) = (interface.id, interface.port);
        let names = self.names(device, at)?;
        let link = Link {
            device,
            gid: ip.address.gid(),
            payload_max: self.ports[at].port.attributes().ud_payload_max,
            names: &names,
        };
        let plan = Plan::new(request, &link)?;
        self.streams
            .pingers
            .add(stream, plan, names, Instant::now());
        self.send_pings();
        Ok(())
    }

    /// Sends the echo requests that are due.
    pub(crate) fn send_pings(&mut self) {
        for (id, request) in self.streams.pingers.due(Instant::now()) {
            if let Some(interface) = self.interfaces.get(id) {
                self.ports[interface.port].tell_first(Command::Echo(id, request));
            }
        }
    }

    /// An interface's neighbours, as far as they are more than the source of some data, and their IP
    /// addresses.
    fn names(&self, id: DeviceId, at: PortId) -> Result<Names, ApiError> {
        let mut names = Names::new();
        for n in self
            .tables_of(id, at)?
            .into_iter()
            .flat_map(|t| t.neighbours)
            .filter(|n| n.confirmed)
        {
            let ips = names.entry((n.address.gid(), n.address.qpn())).or_default();
            for ip in n.ips {
                if !ips.contains(&ip) {
                    ips.push(ip);
                }
            }
        }
        Ok(names)
    }

    fn echo_answered(&mut self, id: DeviceId, answer: &Answered) {
        let now = Instant::now();
        if self.streams.pingers.lacks_names(id, answer, now)
            && let Some(interface) = self.interfaces.get(id)
            && let Ok(names) = self.names(id, interface.port)
        {
            self.streams.pingers.set_names(id, &names, now);
        }
        self.streams.pingers.answered(id, answer);
    }

    /// Tells those who watch, or who ping, of a core's news.
    pub(crate) fn tell_core_event(&mut self, id: DeviceId, event: &Event, round_trip: u64) {
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
            self.echo_answered(id, &answer);
        } else if let Some(what) = happening(event) {
            self.tell(id, what);
        }
    }
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
