//! The protocol, sans-IO: a [`Cm`] with the paths and the datagrams' addresses of InfiniBand.
//!
//! A `Cm` names ports by GID. A datagram of the subnet has no GRH and so only a LID. A request names its
//! sender's GID and LID; the LID must be the datagram's. Any other message names the connection to which
//! it belongs, whose LID must be the datagram's; a peer that gives up its request names it by its own
//! communication id. Another datagram counts as from the GID `::LID`, which no
//! port has: it can be answered, and matches no connection.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::{Arc, Weak};

use proto::counters::Description;
use proto::{Gid, Instant, Psn, Qpn, RejectReason, ServiceId};

use super::super::device::{self, Address, Event, Source};
use super::super::real::{ACK_TIMEOUT, MIN_RNR_TIMER, RETRY_COUNT, RNR_RETRY};
use super::super::state::CmEvent as What;
use super::path::{Own, of_request};
use crate::cm::{Ask, Cm, CmConfig, CmEvent, CmId, Consent, NoService, Remote, SidrEvent};
use crate::mad::cm::{Message, RECEIVER_ID, SENDER_ID};
use crate::mad::{MAD_LEN, Mad};
use crate::pkeys::PKeyTable;
use crate::random::Random;
use crate::subnet::{Destination, SubnetPath};
use crate::umad::{Received, To};
use crate::verbs::ibv::RcParameters;

/// The status of an event for a peer without a path: EHOSTUNREACH.
const NO_PATH: i32 = -113;

/// The counter of dropped datagrams.
pub const NOT_A_MESSAGE: Description = (
    "cm_rx_not_a_message",
    "Management datagrams dropped: received with an error, of a wrong length, or without a peer for the answer.",
);

/// A datagram.
pub type Datagram = [u8; MAD_LEN];

/// Why a connection cannot do what was asked.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Fault {
    /// The id belongs to no connection.
    #[error("the connection does not exist")]
    Gone,
    /// The path, or the peer's reply, is missing.
    #[error("the state of the connection does not permit this yet")]
    TooEarly,
    /// The P_Key of a request is not in the table.
    #[error("the request's P_Key is not in the port's table")]
    NoPKey,
    /// Too many connections.
    #[error("the limit of connections is reached")]
    Full,
}

/// An id.
#[derive(Debug)]
pub enum Line {
    /// A listener, until it is dropped.
    Listener(#[allow(dead_code, reason = "counts the owners")] Arc<()>),
    /// A connection, until [`Manager::destroy`].
    Connection(u32),
}

/// A connection.
#[derive(Debug)]
struct Connection {
    context: u64,
    /// From the request to the end of TIMEWAIT.
    cm: Option<CmId>,
    /// The requester's end, if it is ours.
    source: Option<Source>,
    peer: Gid,
    service: ServiceId,
    path: Option<SubnetPath>,
    /// The address of its datagrams.
    to: Option<To>,
    /// The first PSN that the peer sends.
    psn: Psn,
    remote: Option<Remote>,
    /// The path was asked for again, and has not been found since.
    asked_again: bool,
    /// Destroyed by its owner.
    over: bool,
}

impl Connection {
    /// The destination of its packets.
    fn destination(&self) -> Option<Destination> {
        let own = self.source.map(|source| source.entry.pkey);
        let pkey = own.or(self.remote.map(|remote| remote.pkey))?.full();
        let gid = self.peer;
        Some(Destination { gid, pkey })
    }

    /// The path of the queue pair, if there may be one.
    fn path_in_use(&self) -> Option<&SubnetPath> {
        let agreed = self.cm.and(self.remote).is_some() && !self.over;
        self.path.as_ref().filter(|_| agreed)
    }
}

/// Our communication management. See the module.
#[derive(Debug)]
pub struct Manager {
    cm: Cm,
    random: Random,
    connections: HashMap<u32, Connection, foldhash::fast::RandomState>,
    by_cm: HashMap<CmId, u32, foldhash::fast::RandomState>,
    next: u32,
    services: BTreeMap<ServiceId, Weak<()>>,
    /// The context of an event is the number of its connection.
    events: VecDeque<Event<Line>>,
    transmit: VecDeque<(To, Datagram)>,
    /// Destinations whose path is asked for.
    wanted: Vec<Destination>,
    own: Own,
    /// Received datagrams that are no messages, and messages without an address to send them to.
    dropped: u64,
}

/// Asks for the path to a destination, once.
fn want(wanted: &mut Vec<Destination>, destination: Destination) {
    if !wanted.contains(&destination) {
        wanted.push(destination);
    }
}

impl Manager {
    /// Creates a manager without connections. `config.seed` has to be different at each start.
    pub fn new(config: CmConfig) -> Manager {
        Manager {
            cm: Cm::new(config),
            random: Random::new(config.seed.map(|half| !half)),
            connections: HashMap::default(),
            by_cm: HashMap::default(),
            next: 0,
            services: BTreeMap::new(),
            events: VecDeque::new(),
            transmit: VecDeque::new(),
            wanted: Vec::new(),
            own: Own::default(),
            dropped: 0,
        }
    }

    /// Sets the attributes of the port.
    pub const fn set_own(&mut self, own: Own) {
        self.own = own;
    }

    /// Takes requests for a service until the id is dropped.
    pub fn listen(&mut self, service: ServiceId) -> Line {
        self.services.retain(|_, owner| owner.strong_count() > 0);
        let owner = Arc::new(());
        self.services.insert(service, Arc::downgrade(&owner));
        Line::Listener(owner)
    }

    /// Begins a connection; events carry `context`.
    pub fn begin(&mut self, context: u64, from: &Source, to: &Address) -> Line {
        let psn = self.new_psn();
        let number = self.add(Connection {
            context,
            cm: None,
            source: Some(*from),
            peer: to.gid,
            service: to.service,
            path: None,
            to: None,
            psn,
            remote: None,
            asked_again: false,
            over: false,
        });
        self.happened(number, What::AddrResolved, 0, Box::default());
        Line::Connection(number)
    }

    fn new_psn(&mut self) -> Psn {
        Psn::new(self.random.next() as u32)
    }

    fn add(&mut self, connection: Connection) -> u32 {
        loop {
            self.next = self.next.wrapping_add(1);
            if !self.connections.contains_key(&self.next) {
                self.connections.insert(self.next, connection);
                return self.next;
            }
        }
    }

    fn get(&self, line: &Line) -> Result<&Connection, Fault> {
        match line {
            Line::Connection(number) => self.connections.get(number).ok_or(Fault::Gone),
            Line::Listener(_) => Err(Fault::Gone),
        }
    }

    fn get_mut(&mut self, line: &Line) -> Result<&mut Connection, Fault> {
        match line {
            Line::Connection(number) => self.connections.get_mut(number).ok_or(Fault::Gone),
            Line::Listener(_) => Err(Fault::Gone),
        }
    }

    fn cm_of(&self, line: &Line) -> Option<CmId> {
        self.get(line).ok()?.cm
    }

    /// Sets the context of a request's events.
    pub fn set_context(&mut self, line: &Line, context: u64) {
        if let Ok(c) = self.get_mut(line) {
            c.context = context;
        }
    }

    /// Asks for the path: see [`Manager::take_wanted`].
    ///
    /// # Errors
    /// `Fault::Gone`.
    pub fn resolve_route(&mut self, line: &Line) -> Result<(), Fault> {
        let wanted = self.get(line)?.destination().ok_or(Fault::Gone)?;
        want(&mut self.wanted, wanted);
        Ok(())
    }

    /// Takes the destinations whose paths are needed. [`Manager::path_found`] has to follow for each.
    pub fn take_wanted(&mut self) -> Vec<Destination> {
        std::mem::take(&mut self.wanted)
    }

    /// Asks for the paths of all connections again, because the subnet has changed.
    pub fn ask_again(&mut self) {
        for c in self.connections.values_mut() {
            c.asked_again = c.path_in_use().is_some();
            if let Some(destination) = c.destination().filter(|_| c.asked_again) {
                want(&mut self.wanted, destination);
            }
        }
    }

    /// Ends the connections to a destination whose LID, or ours, has changed: the address of a queue pair is
    /// that of its start, and retries of packets that reach nobody take long. Without a path, asks for the
    /// path once more.
    fn follow_path(&mut self, destination: Destination, path: Option<&SubnetPath>) {
        let own = self.own;
        let mut moved = Vec::new();
        for (number, c) in &mut self.connections {
            let Some(before) = c.path_in_use().copied() else {
                continue;
            };
            if c.destination() != Some(destination) {
                continue;
            }
            let Some(path) = path else {
                if !std::mem::replace(&mut c.asked_again, true) {
                    want(&mut self.wanted, destination);
                }
                continue;
            };
            c.asked_again = false;
            if own.has_ends_of(&before, path) {
                continue;
            }
            c.path = Some(*path);
            // The peer gets the end of the connection at its new address.
            let index = c.to.map_or(0, |to| to.pkey_index);
            c.to = Some(own.gsi_address(path, c.peer, index));
            moved.push(*number);
        }
        for number in moved {
            self.happened(number, What::Disconnected, 0, Box::default());
        }
    }

    /// Passes the path to a destination; `None`: there is none.
    pub fn path_found(&mut self, destination: Destination, path: Option<&SubnetPath>) {
        self.follow_path(destination, path);
        let own = self.own;
        let waits = |c: &Connection| {
            c.destination() == Some(destination) && c.path.is_none() && c.cm.is_none()
        };
        let mut waiting = Vec::new();
        for (number, c) in self.connections.iter_mut().filter(|(_, c)| waits(c)) {
            let Some(source) = c.source else { continue };
            c.path = path.copied();
            c.to = path.map(|path| own.gsi_address(path, c.peer, source.entry.index));
            waiting.push(*number);
        }
        let (what, status) = match path {
            Some(_) => (What::RouteResolved, 0),
            None => (What::RouteError, NO_PATH),
        };
        for number in waiting {
            self.happened(number, what, status, Box::default());
        }
    }

    /// The path of a request. `pkeys` is the port's table.
    ///
    /// # Errors
    /// `Fault`.
    pub fn path(&self, line: &Line, pkeys: &PKeyTable) -> Result<device::Path, Fault> {
        let c = self.get(line)?;
        let remote = c.remote.ok_or(Fault::TooEarly)?;
        let entry = pkeys.find(remote.pkey).ok_or(Fault::NoPKey)?;
        Ok(device::Path {
            peer: c.peer,
            pkey_index: entry.index,
            path_mtu: remote.path_mtu.bytes(),
            remote_qpn: remote.qpn,
        })
    }

    /// The attributes of a queue pair with the peer's parameters.
    ///
    /// # Errors
    /// `Fault`.
    pub fn agreed(&self, line: &Line) -> Result<(RcParameters, device::Path), Fault> {
        let c = self.get(line)?;
        let (Some(remote), Some(path)) = (c.remote, c.path) else {
            return Err(Fault::TooEarly);
        };
        let parameters = RcParameters {
            path: self.own.address(&path, c.peer),
            path_mtu: remote.path_mtu,
            dest_qpn: remote.qpn,
            // Each side names the PSN with which the other side begins (IBA vol. 1, 12.6.5).
            rq_psn: c.psn,
            sq_psn: remote.starting_psn,
            min_rnr_timer: MIN_RNR_TIMER,
            timeout: ACK_TIMEOUT,
            retry_count: RETRY_COUNT,
            rnr_retry: RNR_RETRY,
        };
        let path = device::Path {
            peer: c.peer,
            pkey_index: c.source.map_or(0, |s| s.entry.index),
            path_mtu: remote.path_mtu.bytes(),
            remote_qpn: remote.qpn,
        };
        Ok((parameters, path))
    }

    /// Sends a request for a connection of the queue pair `qpn`.
    ///
    /// # Errors
    /// `Fault`.
    pub fn ask(
        &mut self,
        now: Instant,
        line: &Line,
        qpn: Qpn,
        private_data: &[u8],
    ) -> Result<(), Fault> {
        let Line::Connection(number) = line else {
            return Err(Fault::Gone);
        };
        let c = self.connections.get_mut(number).ok_or(Fault::Gone)?;
        let (Some(source), Some(path), None) = (c.source, c.path, c.cm) else {
            return Err(Fault::TooEarly);
        };
        let primary = self.own.in_request(&path, source.gid, c.peer);
        let ask = Ask {
            service: c.service,
            local_gid: source.gid,
            remote_gid: c.peer,
            primary: Some(&primary),
            qpn,
            starting_psn: c.psn,
            pkey: source.entry.pkey,
            path_mtu: path.mtu,
            srq: true,
            private_data,
        };
        let id = self.cm.connect(now, &ask).map_err(|_| Fault::Full)?;
        c.cm = Some(id);
        self.by_cm.insert(id, *number);
        self.drain(None);
        Ok(())
    }

    /// Accepts a request with the queue pair `qpn`, which has to be able to receive.
    pub fn accept(&mut self, now: Instant, line: &Line, qpn: Qpn, private_data: &[u8]) {
        let Ok(c) = self.get(line) else { return };
        let consent = Consent {
            qpn,
            starting_psn: c.psn,
            srq: true,
            private_data,
        };
        if let Some(id) = c.cm {
            self.cm.accept(now, id, &consent);
            self.drain(None);
        }
    }

    /// Confirms a reply.
    pub fn confirm(&mut self, line: &Line) {
        if let Some(id) = self.cm_of(line) {
            self.cm.establish(id);
            self.drain(None);
        }
    }

    /// Rejects a request or a reply.
    pub fn reject(&mut self, now: Instant, line: &Line, why: RejectReason, private_data: &[u8]) {
        if let Some(id) = self.cm_of(line) {
            self.cm.reject(now, id, why, private_data);
            self.drain(None);
        }
    }

    /// Ends a connection in any state, and notifies the peer.
    pub fn disconnect(&mut self, now: Instant, line: &Line) {
        if let Some(id) = self.cm_of(line) {
            self.cm.disconnect(now, id);
            self.drain(None);
        }
    }

    /// Ends an id. The connection stays until the end of TIMEWAIT, without events.
    pub fn destroy(&mut self, now: Instant, line: Line) {
        self.disconnect(now, &line);
        let Line::Connection(number) = line else {
            return;
        };
        match self.connections.get_mut(&number) {
            Some(c) if c.cm.is_some() => c.over = true,
            _ => drop(self.connections.remove(&number)),
        }
    }

    /// Handles a received datagram of class 7.
    pub fn receive(&mut self, now: Instant, received: &Received) {
        let mad = received.mad.first_chunk::<MAD_LEN>();
        let (0, Some(mad)) = (received.status, mad) else {
            self.dropped += 1;
            return;
        };
        let from = self.sender(received, mad);
        let Manager { cm, services, .. } = self;
        let listens = |service| {
            let owner = services.get(&service);
            owner.is_some_and(|owner| owner.strong_count() > 0)
        };
        cm.receive(now, from, mad, listens);
        self.drain(Some((from, received.reply_to(), mad)));
    }

    /// The GID of a datagram's sender; see the module.
    fn sender(&self, received: &Received, mad: &Datagram) -> Gid {
        if let Some(grh) = &received.grh {
            return grh.gid;
        }
        let is_its = |c: &&Connection| c.to.is_some_and(|to| to.dlid == received.slid);
        let message = Mad::parse(mad).ok();
        let known = match message.and_then(|mad| mad.communication_management()) {
            Some(Message::Req(m)) => {
                (m.primary.local_lid.get() == received.slid.0).then_some(Gid(m.primary.local_gid))
            }
            Some(Message::Rej(m)) if m.remote_comm_id.get() == 0 => {
                let mut all = self.connections.values().filter(is_its);
                all.find(|c| self.cm.given_up(c.peer, m).is_some())
                    .map(|c| c.peer)
            }
            _ => self.named(mad, RECEIVER_ID).filter(is_its).map(|c| c.peer),
        };
        known.unwrap_or_else(|| {
            let mut bytes = [0; 16];
            let [.., high, low] = &mut bytes;
            [*high, *low] = received.slid.0.to_be_bytes();
            Gid(bytes)
        })
    }

    /// The connection whose communication id is at an offset of a datagram.
    fn named(&self, mad: &Datagram, at: usize) -> Option<&Connection> {
        let id = mad.get(at..)?.first_chunk()?;
        let number = self.by_cm.get(&CmId(u32::from_be_bytes(*id)))?;
        self.connections.get(number)
    }

    /// When to call [`Manager::handle_timeout`] and [`Manager::poll_event`] next.
    pub fn next_deadline(&self) -> Option<Instant> {
        if !self.events.is_empty() {
            return Some(Instant::default());
        }
        self.cm.next_deadline()
    }

    /// Handles the timers.
    pub fn handle_timeout(&mut self, now: Instant) {
        self.cm.handle_timeout(now);
        self.drain(None);
    }

    /// The next datagram to send.
    pub fn poll_transmit(&mut self) -> Option<(To, Datagram)> {
        self.transmit.pop_front()
    }

    /// The next event.
    pub fn poll_event(&mut self) -> Option<Event<Line>> {
        let mut event = self.events.pop_front()?;
        if let Event::Of { context, .. } = &mut event {
            let number = u32::try_from(*context).ok()?;
            let connection = self.connections.get(&number);
            match connection.filter(|c| !c.over) {
                Some(c) => *context = c.context,
                None => return Some(Event::Other),
            }
        }
        Some(event)
    }

    /// Counters by name.
    pub fn counters(&self) -> Vec<(&'static str, u64)> {
        let mut all = self.cm.counters();
        all.push((NOT_A_MESSAGE.0, self.dropped));
        all
    }

    /// Takes datagrams and events from `cm`, after it handled a datagram `(from, reply to, datagram)` or
    /// something else.
    fn drain(&mut self, handled: Option<(Gid, To, &Datagram)>) {
        while let Some(event) = self.cm.poll_sidr() {
            if let SidrEvent::Requested { request, .. } = event {
                // The services here are for connections.
                self.cm.answer(&request, Err(NoService::Unsupported));
            }
        }
        while let Some(out) = self.cm.poll_transmit() {
            let answer = handled.filter(|(from, ..)| *from == out.to);
            let to = match answer {
                Some((_, to, _)) => Some(to),
                None => self.named(&out.datagram, SENDER_ID).and_then(|c| c.to),
            };
            match to {
                Some(to) => self.transmit.push_back((to, out.datagram)),
                None => self.dropped += 1,
            }
        }
        while let Some(event) = self.cm.poll_event() {
            self.managed(event, handled);
        }
    }

    fn managed(&mut self, event: CmEvent, handled: Option<(Gid, To, &Datagram)>) {
        let number = self.by_cm.get(&event.id()).copied();
        let nothing = Box::<[u8]>::default;
        let (what, status, private_data) = match event {
            CmEvent::Requested {
                id,
                service,
                peer,
                remote,
                private_data,
            } => return self.requested(id, service, peer, remote, private_data, handled),
            CmEvent::Released { id } => return self.released(id),
            CmEvent::Replied {
                remote,
                private_data,
                ..
            } => {
                if let Some(c) = number.and_then(|n| self.connections.get_mut(&n)) {
                    c.remote = Some(remote);
                }
                (What::ConnectResponse, 0, private_data)
            }
            CmEvent::Established { .. } => (What::Established, 0, nothing()),
            CmEvent::Rejected { reason, .. } => (What::Rejected, reason.0.into(), nothing()),
            CmEvent::Disconnected { .. } => (What::Disconnected, 0, nothing()),
            CmEvent::TimedOut { .. } => (What::Unreachable, 0, nothing()),
        };
        if let Some(number) = number {
            self.happened(number, what, status, private_data);
        }
    }

    fn happened(&mut self, number: u32, event: What, status: i32, private_data: Box<[u8]>) {
        self.events.push_back(Event::Of {
            context: number.into(),
            event,
            status,
            private_data,
        });
    }

    /// A request: the datagram that is handled.
    fn requested(
        &mut self,
        id: CmId,
        service: ServiceId,
        peer: Gid,
        remote: Remote,
        private_data: Box<[u8]>,
        handled: Option<(Gid, To, &Datagram)>,
    ) {
        let path = handled.and_then(|(_, to, mad)| {
            let mad = Mad::parse(mad).ok()?;
            let Message::Req(m) = mad.communication_management()? else {
                return None;
            };
            Some(of_request(&m.primary, &to, remote.path_mtu))
        });
        let psn = self.new_psn();
        let number = self.add(Connection {
            context: 0,
            cm: Some(id),
            source: None,
            peer,
            service,
            path,
            to: handled.map(|(_, to, _)| to),
            psn,
            remote: Some(remote),
            asked_again: false,
            over: false,
        });
        self.by_cm.insert(id, number);
        self.events.push_back(Event::Request {
            service,
            id: Line::Connection(number),
            private_data,
        });
    }

    fn released(&mut self, id: CmId) {
        let Some(number) = self.by_cm.remove(&id) else {
            return;
        };
        match self.connections.get_mut(&number) {
            Some(c) if !c.over => c.cm = None,
            _ => drop(self.connections.remove(&number)),
        }
    }

    /// Number of connections, those in TIMEWAIT included.
    #[allow(clippy::len_without_is_empty, reason = "for tests and a fuzz target")]
    pub fn len(&self) -> usize {
        self.connections.len()
    }
}
