//! The reliable connections of one worker, sans-IO: queue pairs, communication management and what
//! they share, joined to what [`crate::connection::Connections`] promises.
//!
//! An [`Engine`] takes received packets, the consumer's calls and the time, and gives runs of packets
//! to send, messages, events and the next deadline. Which queue pairs have something to send is
//! kept in a list and who waits for what in an ordered set, so a thousand idle connections cost
//! nothing to a busy one.
//!
//! The engine of a worker joins its RC queue pairs, its communication manager (`fabric/src/cm`) and
//! the shared receive queue. It is sans-IO: packets, calls and time in; runs of packets, messages,
//! events and a deadline out. Queue pairs with data take turns; deadlines are in an ordered set, so
//! idle connections cost a busy one nothing; an idle connection takes less than 4 KiB. A message
//! stays in the memory in which it was written, with headers between its pieces, until it is
//! acknowledged: a retransmission copies nothing. ICRCs are written when a run is sent.
//!
//! Receive buffers are those of a shared receive queue for each worker (64 MiB of address space;
//! only written pages take memory). The limit event comes when an eighth is left and is counted
//! (`srq_limit_reached`); other asynchronous events are logged at level `debug`.
//!
//! Both sides of a connection use one path MTU: a SEND First has exactly that many bytes, and a
//! reply cannot ask for fewer. A request for more than fits is rejected (reason 26); the requester
//! then asks with the next smaller MTU, down to 256. (The kernel accepts the path MTU of a
//! request.) When the underlay's MTU shrinks, connections that no longer fit end at once, and the
//! next packet requests new ones; when it grows, connections stay.
//!
//! The CA GUID, by which peers distinguish nodes, is random at each start: copies of a virtual
//! machine would share a GUID derived from the MAC, and each would end the other's connections as
//! stale.

mod connection;
mod consumer;
mod datagrams;
mod listeners;
mod lookup;
mod management;
mod messages;
mod pool;
mod random;
mod rdma_cm;
mod receive;
mod timers;
mod transmit;
mod unmanaged;

#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use super::rc::{Inbox, QpEvent, RcCounts, Room, Shared, Srq};
use crate::cm::{Cm, CmConfig};
use crate::connection::ConnectionInfo;
use crate::pkeys::PKeyTable;
use crate::worker::{Counters, RcReceived};

use connection::Connection;
use listeners::Listeners;
use lookup::{Place, Table};
use messages::Lent;
use pool::Pool;
use random::Random;
use timers::Timers;
use transmit::Gsi;

pub use datagrams::Answer;
use proto::{
    CloseReason, ConnectionEvent, ConnectionId, Gid, Guid, IbMtu, Instant, PKey, QKey, Qpn,
    WcStatus,
};
pub use transmit::Run;
pub use unmanaged::{LocalQp, RemoteQp};

/// How soon a window that stays full is looked at again, to see whether it still may hold up the others
/// (see [`Room`]).
const LOOK_AT_FULL: Duration = Duration::from_millis(20);

/// Half-open connections that others asked for, at most.
const HALF_OPEN_MAX: usize = 256;

/// One receive buffer in so many is left when the limit event comes, and twice as many when it is
/// armed again.
const SRQ_LIMIT: usize = 8;

/// Memory of receive buffers, and how few there may be however long they are. Memory that no
/// message was put into takes no room.
const SRQ_BYTES: usize = 64 << 20;
const SRQ_BUFFERS: std::ops::RangeInclusive<usize> = 64..=1024;

/// How long a message may take that has a receive buffer when there is no other: many times what any
/// peer takes that is still there.
const UNFINISHED_MAX: Duration = Duration::from_secs(1);

/// How often those that take longer are looked for.
const LOOK_AT_UNFINISHED: Duration = Duration::from_millis(100);

/// What an engine is.
#[derive(Clone, Copy, Debug)]
pub struct EngineConfig {
    /// Unique to this node and to this start of it.
    pub ca_guid: Guid,
    /// The worker's number.
    pub worker: usize,
    /// How many workers there are.
    pub workers: usize,
    /// Where its numbers come from: nobody else may know it.
    pub seed: [u64; 2],
    /// The largest message in bytes.
    pub message_max: usize,
    /// How many connections there may be.
    pub connections_max: usize,
}

/// What an engine knows of its port.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PortView {
    /// The GID; [`Gid::UNSPECIFIED`] while there is none, and nothing to send with.
    pub gid: Gid,
    /// Payload bytes of one packet; none if not even the smallest fits.
    pub path_mtu: Option<IbMtu>,
    /// UDP payload bytes that may leave in one send.
    pub send_max: usize,
    /// What queue pairs of unreliable datagrams have taken.
    pub reserved: Vec<Qpn>,
    /// The P_Key table: management datagrams go out with one of its entries.
    pub pkeys: Arc<PKeyTable>,
}

/// The P_Key table entry of an endpoint, from one start of its queue pair to the next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Partition {
    /// Its queue pair, of unreliable datagrams: requests may name it.
    pub qpn: Qpn,
    /// That queue pair's key.
    pub qkey: QKey,
    /// Full or limited.
    pub pkey: PKey,
    /// Its place in the table.
    pub index: u16,
    /// Which start of the queue pair it is.
    pub starts: u32,
}

impl From<PKey> for Partition {
    /// The first entry of a table, and a queue pair that nobody can name.
    fn from(pkey: PKey) -> Partition {
        Partition {
            qpn: Qpn::new(0),
            qkey: QKey::new(0),
            pkey,
            index: 0,
            starts: 0,
        }
    }
}

/// What an endpoint is to its connections.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Standing {
    /// There is no such endpoint.
    Gone,
    /// Its P_Key is not in the table: it listens again when there is one, and has no connections.
    Waiting,
    /// It is in service.
    Member(Partition),
}

impl<T: Into<Partition>> From<T> for Standing {
    fn from(partition: T) -> Standing {
        Standing::Member(partition.into())
    }
}

impl Default for PortView {
    /// No port yet.
    fn default() -> PortView {
        PortView {
            gid: Gid::UNSPECIFIED,
            path_mtu: None,
            send_max: 0,
            reserved: Vec::new(),
            pkeys: Arc::default(),
        }
    }
}

/// The connections of one worker.
#[derive(Debug)]
pub struct Engine {
    config: EngineConfig,
    port: PortView,
    cm: Cm,
    shared: Shared,
    table: Table,
    listeners: Listeners,
    /// Who has datagram services.
    datagrams: Listeners,
    answers: VecDeque<Answer>,
    events: VecDeque<ConnectionEvent>,
    srq_limit: usize,
    /// What is in the inbox, as the consumer knows it.
    received: Vec<RcReceived>,
    lent: Option<Lent>,
    pool: Pool,
    /// Those that may have something to send.
    ready: VecDeque<Place>,
    /// Those that may have something to send at the end of the round.
    unflushed: Vec<Place>,
    /// Those that this batch had packets for.
    touched: Vec<Place>,
    /// Those whose window is full.
    full: Vec<Place>,
    look_at_full: Option<Instant>,
    /// Not before this are receive buffers taken from those that do not finish.
    look_at_unfinished: Instant,
    timers: Timers,
    gsi: Gsi,
    random: Random,
    next_id: u32,
    /// The network took no more.
    blocked: bool,
}

impl Engine {
    /// No connections yet.
    pub fn new(config: EngineConfig) -> Engine {
        let mut random = Random::new(config.seed);
        let cm = Cm::new(CmConfig {
            ca_guid: config.ca_guid,
            worker: config.worker,
            workers: config.workers,
            seed: random.next(),
            half_open_max: HALF_OPEN_MAX,
            connections_max: config.connections_max,
        });
        let buffer_len = config.message_max.next_multiple_of(8).max(8);
        let buffers = (SRQ_BYTES / buffer_len).clamp(*SRQ_BUFFERS.start(), *SRQ_BUFFERS.end());
        let mut srq = Srq::new(buffers, buffer_len);
        let srq_limit = buffers / SRQ_LIMIT;
        srq.arm(srq_limit);
        Engine {
            port: PortView::default(),
            cm,
            shared: Shared {
                srq,
                inbox: Inbox::default(),
                counts: RcCounts::default(),
            },
            table: Table::default(),
            listeners: Listeners::default(),
            datagrams: Listeners::default(),
            answers: VecDeque::new(),
            events: VecDeque::new(),
            srq_limit,
            received: Vec::new(),
            lent: None,
            pool: Pool::default(),
            ready: VecDeque::new(),
            unflushed: Vec::new(),
            touched: Vec::new(),
            full: Vec::new(),
            look_at_full: None,
            look_at_unfinished: Instant::default(),
            timers: Timers::default(),
            gsi: Gsi::new(random.next()),
            random,
            next_id: 1,
            blocked: false,
            config,
        }
    }

    /// Tells what the port is like now. With another GID all connections end: their peers take
    /// packets from the old one alone. With a smaller path MTU those of a larger one do, which
    /// nothing would arrive over.
    pub fn set_port(&mut self, now: Instant, port: PortView) {
        if port == self.port {
            return;
        }
        let moved = self.port.gid != port.gid;
        self.port = port;
        let path_mtu = self.port.path_mtu;
        let too_large = |c: &Connection| path_mtu.is_none_or(|fits| c.path_mtu > fits);
        let reason = if moved {
            CloseReason::PortGone
        } else {
            CloseReason::PathMtu
        };
        for place in self.table.places(|c| moved || too_large(c)) {
            self.end(now, place, reason);
        }
        for c in self.table.iter_mut() {
            c.qp.set_path(c.partition.pkey, self.port.send_max);
        }
        self.drain_cm(now);
    }

    /// What happened, in order.
    pub fn poll_event(&mut self) -> Option<ConnectionEvent> {
        self.events.pop_front()
    }

    /// Whether all queue pairs that are in use take more, but for those whose peers seem to be gone.
    pub fn has_room(&self) -> bool {
        self.full.is_empty()
    }

    /// Whether the network took no more when it was last offered something.
    pub const fn is_blocked(&self) -> bool {
        self.blocked
    }

    /// When [`Engine::handle_timeout`] wants to be called next.
    pub fn next_deadline(&self) -> Option<Instant> {
        [
            self.timers.first(),
            self.cm.next_deadline(),
            self.look_at_full,
        ]
        .into_iter()
        .flatten()
        .min()
    }

    /// Lets time pass.
    pub fn handle_timeout(&mut self, now: Instant) {
        self.cm.handle_timeout(now);
        self.drain_cm(now);
        // One round, so that a deadline that stays in the past holds up nobody.
        for _ in 0..self.timers.len() {
            let Some(place) = self.timers.pop_due(now) else {
                break;
            };
            let Some(c) = self.table.get_mut(place) else {
                continue;
            };
            c.scheduled = None;
            if c.qp.next_deadline().is_some_and(|at| at <= now) {
                c.qp.handle_timeout(now, &mut self.shared);
                self.make_ready(place);
            }
            self.settle(now, place);
        }
        if self.look_at_full.is_some_and(|at| at <= now) {
            self.look_at_full(now);
        }
    }

    /// Takes those off the list whose window is no longer full, or that are given up for now.
    fn look_at_full(&mut self, now: Instant) {
        let Engine { full, table, .. } = self;
        full.retain(|&place| {
            let Some(c) = table.get_mut(place) else {
                return false;
            };
            c.full = c.full && c.qp.room(now) == Room::Full;
            c.full
        });
        self.look_at_full = (!self.full.is_empty()).then(|| now.after(LOOK_AT_FULL));
    }

    /// Where there is no receive buffer left, ends connections whose peers began a message and do not
    /// finish it: all others would wait for as long as those are there.
    fn reclaim_buffers(&mut self, now: Instant) {
        if self.shared.srq.available() > 0 || now < self.look_at_unfinished {
            return;
        }
        self.look_at_unfinished = now.after(LOOK_AT_UNFINISHED);
        let too_long = |since| now.since(since) > UNFINISHED_MAX;
        let those = |c: &Connection| c.qp.unfinished_since().is_some_and(too_long);
        for place in self.table.places(those) {
            self.shared.counts.unfinished_messages += 1;
            self.end(now, place, CloseReason::Failed(WcStatus::GeneralErr));
        }
    }

    fn note_full(&mut self, now: Instant, place: Place) {
        if let Some(c) = self.table.get_mut(place)
            && !std::mem::replace(&mut c.full, true)
        {
            self.full.push(place);
            self.look_at_full
                .get_or_insert_with(|| now.after(LOOK_AT_FULL));
        }
    }

    /// A queue pair may have something to send.
    fn make_ready(&mut self, place: Place) {
        if let Some(c) = self.table.get_mut(place)
            && !std::mem::replace(&mut c.ready, true)
        {
            self.ready.push_back(place);
        }
    }

    /// Draws the conclusions of whatever a queue pair went through: memory comes back, events are
    /// seen, the timer is set.
    fn settle(&mut self, now: Instant, place: Place) {
        let Engine {
            table,
            pool,
            timers,
            shared,
            ..
        } = self;
        let Some(c) = table.get_mut(place) else {
            return;
        };
        while let Some(done) = c.qp.poll_completion() {
            c.posted = c.posted.saturating_sub(1);
            pool.give(done.buffer.memory);
        }
        while let Some(event) = c.qp.poll_event() {
            log::debug!("queue pair {} of {}: {event}", c.qp.qpn(), c.peer);
            shared.counts.srq_limit_reached += u64::from(event == QpEvent::SrqLimitReached);
        }
        if c.qp.state() == super::qp::State::Err {
            if !std::mem::replace(&mut c.failing, true) {
                // A NAK may tell the peer what was wrong.
                self.make_ready(place);
            } else if !c.ready {
                let status = c.qp.failure().unwrap_or(WcStatus::GeneralErr);
                self.end(now, place, CloseReason::Failed(status));
                self.drain_cm(now);
            }
            return;
        }
        timers.schedule(place, &mut c.scheduled, c.qp.next_deadline());
        if c.full && c.qp.room(now) != Room::Full {
            self.look_at_full(now);
        }
    }

    /// Ends a connection and tells the consumer why. The peer is told if communication management
    /// thinks that it is still there.
    fn end(&mut self, now: Instant, place: Place, reason: CloseReason) {
        if let Some((connection, cm)) = self.forget(now, place) {
            self.cm.disconnect(now, cm);
            self.events
                .push_back(ConnectionEvent::Closed { connection, reason });
        }
    }

    /// Takes a connection out of everything here; its memory comes back.
    fn forget(&mut self, now: Instant, place: Place) -> Option<(ConnectionId, crate::cm::CmId)> {
        let mut c = self.table.remove(place)?;
        self.timers.cancel(place, &mut c.scheduled);
        // To ERR first: that gives back what was posted. From RESET there is no way there.
        let nothing = super::qp::Attributes::default();
        let _ =
            c.qp.modify(now, &mut self.shared, super::qp::State::Err, &nothing);
        while let Some(done) = c.qp.poll_completion() {
            self.pool.give(done.buffer.memory);
        }
        let _ =
            c.qp.modify(now, &mut self.shared, super::qp::State::Reset, &nothing);
        if c.full {
            self.full.retain(|&p| p != place);
        }
        Some((c.id, c.cm))
    }

    /// Bytes of the largest message.
    pub fn message_max(&self) -> usize {
        self.config.message_max
    }

    /// All connections.
    pub fn list(&self) -> Vec<ConnectionInfo> {
        let state = |cm| self.cm.state(cm).unwrap_or("IDLE");
        self.table.iter().map(|c| c.info(state(c.cm))).collect()
    }

    /// Counters by name.
    pub fn counters(&self) -> Counters {
        let mut all = self.shared.counts.named().to_vec();
        all.extend(self.cm.counters());
        all
    }
}
