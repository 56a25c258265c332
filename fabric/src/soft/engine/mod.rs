//! The reliable connections of one worker, sans-IO: implements [`crate::connection::Connections`].
//!
//! The engine of a worker joins its RC queue pairs, its communication manager (`fabric/src/cm`) and the
//! shared receive queue. Its input is packets, calls and time; its output is runs of packets, messages,
//! events and a deadline. Queue pairs with data take turns. A list holds the queue pairs with data and
//! an ordered set holds deadlines, so idle connections cost a busy one nothing. An idle connection
//! takes less than 4 KiB. A message stays in the memory in which it was written, with headers between
//! its pieces, until it is acknowledged: a retransmission copies nothing. ICRCs are written when a run
//! is sent.
//!
//! Each worker has a shared receive queue with its receive buffers (64 MiB of address space; only
//! written pages take memory). The limit event occurs when an eighth of the buffers is left and is
//! counted (`srq_limit_reached`). Other asynchronous events are logged at level `debug`.
//!
//! Both sides of a connection use one path MTU: a SEND First has exactly that many bytes, and a reply
//! cannot ask for fewer. A request for more than fits is rejected (reason 26); the requester then asks
//! with the next smaller MTU, down to 256. (The kernel accepts the path MTU of a request.) When the
//! underlay's MTU shrinks, connections that no longer fit end at once, and the next packet requests new
//! ones. When it grows, connections end that had the largest path MTU of before: with few bytes in each
//! packet they would stay slow for as long as they are in use.
//!
//! Peers distinguish nodes by the CA GUID. It is random at each start: copies of a virtual machine
//! would share a GUID derived from the MAC, and each would end the other's connections as stale.

mod connection;
mod consumer;
mod datagrams;
mod listeners;
mod lookup;
mod management;
mod messages;
mod pool;
mod rdma_cm;
mod receive;
mod reclaim;
mod starts;
mod timers;
mod transmit;
mod unmanaged;

#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::sync::Arc;

use super::gsi::Gsi;
use super::rc::{Inbox, QpEvent, RcCounts, Shared, Srq};
use crate::cm::{Cm, CmConfig, HALF_OPEN_MAX};
use crate::connection::{ConnectionInfo, LOOK_AT_FULL, Window, patience};
use crate::pkeys::PKeyTable;
use crate::random::Random;
use crate::worker::{Counters, RcReceived};

use connection::Connection;
use listeners::Listeners;
use lookup::{Place, Table};
use messages::Lent;
use pool::Pool;
use timers::Timers;

pub use datagrams::Answer;
use proto::{
    CloseReason, ConnectionEvent, ConnectionId, Gid, Guid, IbMtu, Instant, PKey, QKey, Qpn,
    WcStatus,
};
pub use starts::Starts;
pub use transmit::Run;
pub use unmanaged::{LocalQp, RemoteQp};

/// The limit event occurs when fewer than 1/8 of the receive buffers are left. It is armed again at twice
/// as many.
const SRQ_LIMIT: usize = 8;

/// Memory of receive buffers, and bounds of their number. Unused memory takes no room.
const SRQ_BYTES: usize = 64 << 20;
const SRQ_BUFFERS: std::ops::RangeInclusive<usize> = 64..=1024;

/// The number of receive buffers of a worker, and their length in bytes, for the largest message.
pub fn receive_buffers(message_max: usize) -> (usize, usize) {
    let buffer_len = message_max.next_multiple_of(8).max(8);
    let buffers = (SRQ_BYTES / buffer_len).clamp(*SRQ_BUFFERS.start(), *SRQ_BUFFERS.end());
    (buffers, buffer_len)
}

/// Maximum number of connections whose acknowledgement may leave with packets of others. A search for
/// each run must stay short.
const OWING_MAX: usize = 8;

/// Parameters of an engine.
#[derive(Clone, Copy, Debug)]
pub struct EngineConfig {
    /// Unique to this node and to this start.
    pub ca_guid: Guid,
    /// The worker's number.
    pub worker: usize,
    /// Number of workers.
    pub workers: usize,
    /// The seed of random numbers; must be secret.
    pub seed: [u64; 2],
    /// The largest message in bytes.
    pub message_max: usize,
    /// Maximum number of connections.
    pub connections_max: usize,
}

/// The engine's view of its port.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PortView {
    /// The GID; [`Gid::UNSPECIFIED`] while the port has none and cannot send.
    pub gid: Gid,
    /// Payload bytes of one packet; `None` if not even the smallest IB MTU fits.
    pub path_mtu: Option<IbMtu>,
    /// Maximum UDP payload bytes of one send.
    pub send_max: usize,
    /// The queue pair numbers of the UD endpoints.
    pub reserved: Vec<Qpn>,
    /// The P_Key table: management datagrams are sent with one of its entries.
    pub pkeys: Arc<PKeyTable>,
}

/// The P_Key table entry of an endpoint, from one start of its queue pair to the next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Partition {
    /// The number of the endpoint's UD queue pair: requests may name it.
    pub qpn: Qpn,
    /// The Q_Key of that queue pair.
    pub qkey: QKey,
    /// The P_Key, full or limited.
    pub pkey: PKey,
    /// The index in the table.
    pub index: u16,
    /// Counts the starts of the queue pair.
    pub starts: u32,
}

impl From<PKey> for Partition {
    /// The first entry of a table, with a queue pair number that requests cannot name.
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

/// The state of an endpoint, as its connections see it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Standing {
    /// The endpoint does not exist.
    Gone,
    /// The P_Key is not in the table. Listeners wait for the P_Key; connections end.
    Waiting,
    /// In service.
    Member(Partition),
}

impl<T: Into<Partition>> From<T> for Standing {
    fn from(partition: T) -> Standing {
        Standing::Member(partition.into())
    }
}

impl Default for PortView {
    /// A port without a GID.
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
    /// The listeners of datagram services.
    datagrams: Listeners,
    answers: VecDeque<Answer>,
    events: VecDeque<ConnectionEvent>,
    srq_limit: usize,
    /// The messages of the inbox, in the consumer's form.
    received: Vec<RcReceived>,
    lent: Option<Lent>,
    pool: Pool,
    /// Connections that may have something to send.
    ready: VecDeque<Place>,
    /// Connections that may have something to send at the end of the round.
    unflushed: Vec<Place>,
    /// Connections whose acknowledgement waits: a few, in no order.
    owing: Vec<Place>,
    /// Connections that received packets in this batch.
    touched: Vec<Place>,
    /// Connections whose window is full.
    full: Vec<Place>,
    look_at_full: Option<Instant>,
    /// Earliest time of the next search for incomplete messages.
    look_at_unfinished: Instant,
    timers: Timers,
    gsi: Gsi,
    starts: Arc<Starts>,
    random: Random,
    next_id: u32,
    /// The network has no room.
    blocked: bool,
}

impl Engine {
    /// Creates an engine without connections.
    pub fn new(config: EngineConfig) -> Engine {
        let mut random = Random::new(config.seed);
        let cm = Cm::new(CmConfig {
            ca_guid: config.ca_guid,
            worker: config.worker,
            workers: config.workers,
            seed: [random.next(), random.next()],
            half_open_max: HALF_OPEN_MAX,
            connections_max: config.connections_max,
        });
        let (buffers, buffer_len) = receive_buffers(config.message_max);
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
            owing: Vec::with_capacity(OWING_MAX),
            touched: Vec::new(),
            full: Vec::new(),
            look_at_full: None,
            look_at_unfinished: Instant::default(),
            timers: Timers::default(),
            gsi: Gsi::new(random.next()),
            starts: Arc::default(),
            random,
            next_id: 1,
            blocked: false,
            config,
        }
    }

    /// Shares the starts of peers with the engines of other workers.
    pub fn with_starts(mut self, starts: Arc<Starts>) -> Engine {
        self.starts = starts;
        self
    }

    /// Applies a change of the port. A new GID ends all connections, because their peers accept packets
    /// from the old GID only. A smaller path MTU ends connections with a larger one, because their
    /// packets would not arrive. A larger one ends connections that the former one limited.
    pub fn set_port(&mut self, now: Instant, port: PortView) {
        if port == self.port {
            return;
        }
        let moved = self.port.gid != port.gid;
        let former = std::mem::replace(&mut self.port, port).path_mtu;
        let path_mtu = self.port.path_mtu;
        let is_other = |c: &Connection| match path_mtu {
            Some(fits) => c.path_mtu > fits || (former < path_mtu && former == Some(c.path_mtu)),
            None => true,
        };
        let reason = if moved {
            CloseReason::PortGone
        } else {
            CloseReason::PathMtu
        };
        for place in self.table.places(|c| moved || is_other(c)) {
            self.end(now, place, reason);
        }
        for c in self.table.iter_mut() {
            c.qp.set_path(c.partition.pkey, self.port.send_max);
        }
        self.drain_cm(now);
    }

    /// The next event, in order.
    pub fn poll_event(&mut self) -> Option<ConnectionEvent> {
        self.events.pop_front()
    }

    /// Whether all active queue pairs take more messages. Queue pairs with a stalled peer do not count.
    pub fn has_room(&self) -> bool {
        self.full.is_empty()
    }

    /// Whether the network had no room for the last packet.
    pub const fn is_blocked(&self) -> bool {
        self.blocked
    }

    /// When to call [`Engine::handle_timeout`] next.
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

    /// Handles all deadlines up to `now`.
    pub fn handle_timeout(&mut self, now: Instant) {
        self.cm.handle_timeout(now);
        self.drain_cm(now);
        // One round, so that a deadline that stays in the past cannot loop.
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
                let has_restarted = |guid| self.starts.is_former(c.peer, guid);
                if c.qp.is_silent() && self.cm.guid_of_peer(c.cm).is_some_and(has_restarted) {
                    c.qp.give_up(&mut self.shared);
                }
                self.make_ready(place);
            }
            self.settle(now, place);
        }
        if self.look_at_full.is_some_and(|at| at <= now) {
            self.look_at_full(now);
        }
    }

    /// Removes connections from the list whose peer has stalled.
    fn look_at_full(&mut self, now: Instant) {
        let Engine { full, table, .. } = self;
        let is_late = |place| table.get(place).is_some_and(|c| c.window.is_late(now));
        if full.iter().copied().any(is_late) {
            let patience = patience(now, table.iter().map(|c| (c.peer, c.used)));
            full.retain(|&place| {
                let c = table.get_mut(place);
                c.is_some_and(|c| c.window.waits(now, patience))
            });
        }
        self.look_at_full = (!self.full.is_empty()).then(|| now.after(LOOK_AT_FULL));
    }

    /// Adds a connection to the list of those that may have something to send.
    fn make_ready(&mut self, place: Place) {
        if let Some(c) = self.table.get_mut(place)
            && !std::mem::replace(&mut c.ready, true)
        {
            self.ready.push_back(place);
        }
    }

    /// Applies the results of a queue pair's work: returns memory, handles events, sets the timer.
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
            log::debug!("queue pair {}, peer {}: {event}", c.qp.qpn(), c.peer);
            shared.counts.srq_limit_reached += u64::from(event == QpEvent::SrqLimitReached);
        }
        if c.qp.state() == super::qp::State::Err {
            if !std::mem::replace(&mut c.failing, true) {
                // A NAK may report the error to the peer.
                self.make_ready(place);
            } else if !c.ready {
                let status = c.qp.failure().unwrap_or(WcStatus::GeneralErr);
                self.end(now, place, CloseReason::Failed(status));
                self.drain_cm(now);
            }
            return;
        }
        timers.schedule(place, &mut c.scheduled, c.qp.next_deadline());
        if c.window != Window::Open && c.qp.has_room() {
            c.window = Window::Open;
            self.full.retain(|&p| p != place);
        }
    }

    /// Ends a connection and reports the reason to the consumer. Communication management notifies the
    /// peer if it considers the connection alive.
    fn end(&mut self, now: Instant, place: Place, reason: CloseReason) {
        if let Some((connection, cm)) = self.forget(place) {
            self.cm.disconnect(now, cm);
            self.events
                .push_back(ConnectionEvent::Closed { connection, reason });
        }
    }

    /// Removes a connection from all lists and returns its memory.
    fn forget(&mut self, place: Place) -> Option<(ConnectionId, crate::cm::CmId)> {
        let mut c = self.table.remove(place)?;
        self.timers.cancel(place, &mut c.scheduled);
        // ERR first, which completes posted requests. There is no transition from RESET to ERR.
        let nothing = super::qp::Attributes::default();
        let _ =
            c.qp.modify(&mut self.shared, super::qp::State::Err, &nothing);
        while let Some(done) = c.qp.poll_completion() {
            self.pool.give(done.buffer.memory);
        }
        let _ =
            c.qp.modify(&mut self.shared, super::qp::State::Reset, &nothing);
        self.full.retain(|&p| p != place);
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
