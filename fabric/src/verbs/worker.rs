//! The data side: a worker polls completions, posts trains and follows the port's table.

mod destinations;

use std::collections::HashMap;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use proto::{AddressHandle, EndpointId, Gid, Instant, LogLimiter, WcStatus};
use rustix::event::epoll::{self, EventData, EventFlags};

use super::config::VerbsConfig;
use super::connections::{self, Engine, RealDevice};
use super::counts::Counts;
use super::ibv;
use super::lane::{Lane, Waiting};
use super::maker::Maker;
use super::snapshot::{Endpoint, Endpoints, Shared, Table};
use super::transmit::{Departure, NotPosted, Returned};
use crate::connection::Connections;
use crate::handles::{AddressHandles, Found};
use crate::kernel::clock;
use crate::worker::{
    AhAttributes, Batch, Counters, Room, Sent, TOKEN, Train, TrainTicket, UdDestination, Worker,
};

/// Completions that count as one received piece: about one large send of a peer.
const PIECE: usize = 32;

/// Minimum time between two restarts of a queue pair.
const RESTART_WAIT: Duration = Duration::from_millis(100);

/// Minimum time between two log messages of a kind, in milliseconds.
const LOG_APART_MS: u64 = 60_000;

/// A descriptor that wakes the worker, besides the port's eventfd.
#[derive(Clone, Copy)]
pub(super) enum Woken {
    /// The completion channel.
    Completions = 1,
    /// Events of communication management.
    Connections = 2,
}

impl Woken {
    /// The data word of the descriptor.
    pub(super) const fn word(self, token: u64) -> u64 {
        token & TOKEN | (self as u64) << TOKEN.count_ones()
    }
}

/// The part of a verbs port that belongs to one data thread.
pub struct VerbsWorker {
    pub(super) name: String,
    pub(super) shared: Arc<Shared>,
    /// The number of the worker; the first one, 0, receives.
    pub(super) index: usize,
    generation: u64,
    pub(super) table: Arc<Table>,
    pub(super) epoll: Option<(OwnedFd, u64)>,
    /// Descriptors reported readable since the last poll, as bits of [`Woken`]; `None` if the caller
    /// does not report them.
    woken: Option<u8>,
    /// The device; `None` while it is away.
    pub(super) lane: Option<Lane>,
    pub(super) connections: Engine<RealDevice>,
    /// When to open communication management again.
    pub(super) open_again: Option<Instant>,
    /// The failure of communication management was logged.
    pub(super) cm_reported: bool,
    handles: AddressHandles<ibv::AddressHandle>,
    maker: Maker<ibv::AddressHandle>,
    restarted: HashMap<EndpointId, Instant, foldhash::fast::RandomState>,
    /// Limits the log of failing queue pairs.
    log_limiter: LogLimiter,
    pub(super) counts: Counts,
}

impl VerbsWorker {
    /// Creates a worker of the port that publishes to `shared`; `index` is its number.
    ///
    /// # Errors
    /// If the system has no more threads.
    pub fn new(config: &VerbsConfig, shared: Arc<Shared>, index: usize) -> io::Result<VerbsWorker> {
        let mut worker = VerbsWorker {
            maker: Maker::start(Arc::clone(&shared.worker))?,
            name: config.name(),
            shared,
            index,
            generation: 0,
            table: Arc::default(),
            epoll: None,
            woken: None,
            lane: None,
            connections: Engine::new(connections::bounds(config)),
            open_again: None,
            cm_reported: false,
            handles: AddressHandles::default(),
            restarted: HashMap::default(),
            log_limiter: LogLimiter::new(LOG_APART_MS),
            counts: Counts::default(),
        };
        worker.follow();
        Ok(worker)
    }

    /// Follows a newer table.
    pub(super) fn follow(&mut self) {
        let newest = self.shared.generation();
        if newest == self.generation {
            return;
        }
        self.generation = newest;
        let old = std::mem::replace(&mut self.table, self.shared.table());
        let same_device = match (&old.device, &self.table.device) {
            (Some(a), Some(b)) => Arc::ptr_eq(a, b),
            (None, None) => true,
            _ => false,
        };
        if !same_device {
            self.change_device();
        }
        let flushed = old.flushes != self.table.flushes;
        if flushed && let Some(lane) = &mut self.lane {
            lane.receive.sources.clear();
        }
        if !same_device || old.gid != self.table.gid || old.gid_index != self.table.gid_index {
            self.handles.renew();
            self.maker.forget();
            self.make_handles();
        } else if flushed {
            self.handles.age_all();
        }
        if !Arc::ptr_eq(&old.endpoints, &self.table.endpoints) {
            let endpoints = &self.table.endpoints;
            self.restarted.retain(|id, _| endpoints.get(*id).is_some());
        }
        let endpoints = same_device.then(|| Arc::clone(&old.endpoints));
        // This may be the last owner of a device, whose removal waits for it.
        drop(old);
        self.end_handles();
        let followed = self.follow_endpoints(endpoints.as_deref());
        self.check("cannot restart a queue pair", followed);
        self.follow_connections(flushed);
    }

    /// Empties the queue pairs of removed endpoints, and restarts those of which the table requests it.
    fn follow_endpoints(&mut self, before: Option<&Endpoints>) -> io::Result<()> {
        let table = Arc::clone(&self.table);
        let now = &table.endpoints;
        let before = before.into_iter().flat_map(Endpoints::all);
        let gone: Vec<&Endpoint> = before.filter(|e| now.get(e.id).is_none()).collect();
        let behind = now.all().iter().filter(|e| e.pair.is_behind(e.starts));
        let behind: Vec<&Endpoint> = behind.collect();
        self.stop(&[&gone[..], &behind[..]].concat())?;
        let (lane, counts) = (&mut self.lane, &mut self.counts);
        let Some(lane) = lane else { return Ok(()) };
        gone.into_iter().try_for_each(|e| lane.empty(e, counts))?;
        let mut behind = behind.into_iter();
        behind.try_for_each(|e| lane.restart(e, e.starts, counts))
    }

    /// Stops queue pairs, which change to RESET next. The next poll returns what they have received.
    fn stop(&mut self, pairs: &[&Endpoint]) -> io::Result<()> {
        let Some(lane) = &mut self.lane else {
            return Ok(());
        };
        if !lane.stop(pairs) {
            return Ok(());
        }
        lane.repost(&self.table, &mut self.counts)?;
        lane.unseen = true;
        self.receive(usize::MAX)
    }

    fn change_device(&mut self) {
        self.drop_lane();
        let Some(lane) = self.table.device.as_ref().and_then(Lane::new) else {
            return;
        };
        if let Some((epoll, token)) = &self.epoll
            && let Err(e) = lane.watch(epoll, Woken::Completions.word(*token))
        {
            self.shared
                .complain(format!("cannot wait for completions: {e}"));
        }
        let lane = self.lane.insert(lane);
        let posted = lane.repost(&self.table, &mut self.counts);
        if self.check("cannot post receives", posted).is_some()
            && let Some(device) = self.table.device.clone()
        {
            self.open_connections(&device);
        }
    }

    /// Drops the device: connections first; posted work and waiting trains are lost.
    fn drop_lane(&mut self) {
        self.close_connections();
        let Some(lane) = self.lane.take() else {
            return;
        };
        if let Some((epoll, _)) = &self.epoll {
            lane.unwatch(epoll);
        }
        for waiting in lane.waiting {
            self.counts.tx_failed += 1;
            self.handles.release(waiting.to.ah);
        }
    }

    /// After a failed call, drops the device, asks the port to open it again, and returns `None`.
    fn check<T>(&mut self, what: &str, result: io::Result<T>) -> Option<T> {
        result
            .map_err(|e| {
                self.shared.complain(format!("{what}: {e}"));
                // No more calls until the device is opened again.
                self.drop_lane();
            })
            .ok()
    }

    /// Tries the waiting trains again, in order.
    fn send_waiting(&mut self) {
        let count = self.lane.as_ref().map_or(0, |lane| lane.waiting.len());
        for _ in 0..count {
            let Some(waiting) = self.lane.as_mut().and_then(|l| l.waiting.pop_front()) else {
                return;
            };
            // A waiting train is a user of its handle.
            let handle = waiting.to.ah;
            let waits = self.dispatch(waiting, true) == Sent::Blocked;
            if !waits {
                self.handles.release(handle);
            }
        }
    }

    /// Sends a train, or keeps it until it can be sent.
    fn dispatch(&mut self, mut w: Waiting, again: bool) -> Sent {
        let found = self.handles.find(w.to.ah, clock);
        self.make_handles();
        let table = Arc::clone(&self.table);
        let Some(lane) = &mut self.lane else {
            // The place was lost with its device.
            self.counts.tx_failed += 1;
            return Sent::Failed;
        };
        let endpoint = table.endpoints.get(w.from);
        let endpoint = endpoint.filter(|e| e.pkey.is_some() && e.starts == w.starts);
        let Some(endpoint) = endpoint else {
            lane.transmit.give(w.place);
            self.counts.tx_failed += 1;
            return Sent::Failed;
        };
        let ah = match found {
            Found::Ready(ah) => ah,
            Found::Making if again || lane.may_wait(w.to.ah) => {
                w.blocked = false;
                return self.keep(w, again);
            }
            Found::Making | Found::Failed => {
                lane.transmit.give(w.place);
                self.counts.tx_no_ah += 1;
                return Sent::Failed;
            }
        };
        let departure = Departure {
            from: w.from,
            pair: &endpoint.pair,
            ah: &ah,
            qpn: w.to.qpn,
            qkey: endpoint.sent_qkey(w.to.qkey),
            train: w.train,
        };
        self.counts.post_lists += 1;
        self.counts.verbs_calls += 1;
        match lane.transmit.post(w.place, &departure) {
            Ok(()) => {
                self.counts.tx_trains += 1;
                self.counts.tx_packets += w.train.count as u64;
                self.counts.tx_bytes += bytes(&w.train);
                Sent::Done
            }
            Err(NotPosted::Full(place)) => {
                self.counts.post_lists -= 1;
                self.counts.verbs_calls -= 1;
                self.counts.tx_blocked += 1;
                w.place = place;
                w.blocked = true;
                self.keep(w, again);
                Sent::Blocked
            }
            Err(NotPosted::Refused(e)) => {
                self.counts.tx_failed += 1;
                self.broken(endpoint, &e.to_string());
                Sent::Failed
            }
        }
    }

    /// Keeps a train that cannot be sent now. The caller may continue unless the train waits for room.
    fn keep(&mut self, w: Waiting, again: bool) -> Sent {
        if !again {
            // The handle stays valid until the train is sent, even if the caller destroys it.
            self.handles.hold(w.to.ah);
            self.counts.tx_waited += u64::from(!w.blocked);
        }
        if let Some(lane) = &mut self.lane {
            lane.waiting.push_back(w);
        }
        if again { Sent::Blocked } else { Sent::Done }
    }

    /// Restarts a failed queue pair through RESET, at a limited rate.
    fn broken(&mut self, endpoint: &Endpoint, why: &str) {
        let now = clock();
        let last = self.restarted.get(&endpoint.id);
        if last.is_some_and(|last| now < last.after(RESTART_WAIT)) {
            return;
        }
        self.restarted.insert(endpoint.id, now);
        if self.log_limiter.take(now.into()).is_some() {
            let qpn = endpoint.pair.qp.qpn();
            log::warn!("{}: restarting queue pair {qpn}: {why}", self.name);
        }
        let restarted = self.stop(&[endpoint]).and_then(|()| {
            let (lane, counts) = (&mut self.lane, &mut self.counts);
            let lane = lane.as_mut();
            lane.map_or(Ok(()), |lane| {
                lane.restart(endpoint, endpoint.starts, counts)
            })
        });
        self.check("cannot restart a queue pair", restarted);
    }

    /// Handles send completions.
    fn reap(&mut self) -> io::Result<()> {
        let mut progress = self.lane.as_mut().is_some_and(Lane::take_emptied);
        let mut failed: Vec<(EndpointId, WcStatus)> = Vec::new();
        let now = clock();
        loop {
            let Some(lane) = &mut self.lane else {
                return Ok(());
            };
            let count = lane.poll_sends(&mut self.counts)?;
            for wc in lane.sent.iter() {
                let status = wc.status();
                let ok = status == WcStatus::Success;
                self.counts.cq_errors += u64::from(!ok);
                match lane.transmit.completed(&wc) {
                    Returned::Train(_, WcStatus::Success) => progress = true,
                    Returned::Train(from, status) => {
                        progress = true;
                        self.counts.tx_failed += 1;
                        failed.push((from, status));
                    }
                    Returned::Packet => {}
                    Returned::Message => self.connections.sent(now, wc.qpn(), status, false),
                    Returned::Other(place) => {
                        progress = true;
                        self.connections.sent(now, wc.qpn(), status, true);
                        lane.transmit.give(place);
                    }
                    Returned::Unknown => self.counts.cq_unknown += 1,
                }
            }
            if count < lane.sent.capacity() {
                break;
            }
        }
        let table = Arc::clone(&self.table);
        for (from, status) in failed {
            if let Some(endpoint) = table.endpoints.get(from) {
                self.broken(endpoint, &format!("a send failed with {status}"));
            }
        }
        self.end_handles();
        if progress {
            self.send_waiting();
        }
        self.reclaim();
        if self
            .lane
            .as_mut()
            .is_some_and(|l| l.is_stuck(now, progress))
        {
            return Err(io::Error::other("the device completes no sends"));
        }
        Ok(())
    }

    /// Handles receive completions.
    fn receive(&mut self, depth: usize) -> io::Result<()> {
        let Some(lane) = &mut self.lane else {
            return Ok(());
        };
        let now = clock();
        let most = depth.saturating_mul(PIECE);
        let mut total = 0;
        loop {
            let count = lane.poll_receives(&mut self.counts)?;
            for wc in lane.found.iter() {
                if lane.receive.owns(&wc) {
                    lane.receive.completed(&wc, &self.table, &mut self.counts);
                    continue;
                }
                let messages = lane.messages.as_mut().filter(|m| m.owns(&wc));
                let known = messages.is_some_and(|m| m.completed(now, &wc, &mut self.connections));
                self.counts.cq_unknown += u64::from(!known);
            }
            total += count;
            if count < lane.found.capacity() {
                self.connections.receive_queue_empty();
                break;
            }
            if total >= most {
                break;
            }
        }
        let failed = lane.receive.take_failed();
        let table = Arc::clone(&self.table);
        if let Some(endpoint) = failed.and_then(|qpn| table.endpoints.by_qpn(qpn)) {
            self.broken(endpoint, "a receive failed");
        }
        Ok(())
    }

    fn look(&mut self, depth: usize) -> io::Result<()> {
        let woken = self.woken;
        self.woken = woken.map(|_| 0);
        let readable = |of: Woken| woken.is_none_or(|bits| bits & of as u8 != 0);
        let Some(lane) = &mut self.lane else {
            return Ok(());
        };
        lane.repost(&self.table, &mut self.counts)?;
        if readable(Woken::Completions) {
            lane.drain(&mut self.counts)?;
        }
        self.reap()?;
        self.receive(depth)?;
        if let Some(lane) = &mut self.lane {
            lane.unseen = false;
        }
        if readable(Woken::Connections) {
            self.process_connections()?;
        }
        Ok(())
    }
}

/// Payload bytes of a train.
fn bytes(train: &TrainTicket) -> u64 {
    let full = train.count.saturating_sub(1);
    (full * train.payload + train.last) as u64
}

impl Worker for VerbsWorker {
    fn register(&mut self, epoll: BorrowedFd<'_>, token: u64) -> io::Result<()> {
        let epoll = epoll.try_clone_to_owned()?;
        // Edge-triggered: the count is never read, and every write wakes once.
        let edge = EventFlags::IN | EventFlags::ET;
        let data = EventData::new_u64(token);
        epoll::add(&epoll, &self.shared.worker, data, edge)?;
        if let Some(lane) = &self.lane {
            lane.watch(&epoll, Woken::Completions.word(token))?;
        }
        self.watch_connections(&epoll, token)?;
        self.epoll = Some((epoll, token));
        Ok(())
    }

    fn woken(&mut self, word: u64) {
        let which = (word >> TOKEN.count_ones()) as u8;
        self.woken = Some(self.woken.unwrap_or(0) | which);
    }

    fn poll(&mut self, depth: usize) -> io::Result<Batch<'_>> {
        self.follow();
        self.take_made();
        let looked = self.look(depth);
        self.check("cannot poll the device", looked);
        Ok(match &self.lane {
            Some(lane) => {
                let batch = Batch::new(&lane.receive.taken, &lane.receive.received);
                match &lane.messages {
                    Some(m) => batch.with_messages(&m.taken, &m.received, &m.parts),
                    None => batch,
                }
            }
            None => Batch::new(&[], &[]),
        })
    }

    fn arm(&mut self) -> io::Result<bool> {
        let blocked = !self.has_room_for_messages();
        let Some(lane) = &mut self.lane else {
            return Ok(false);
        };
        let sends = blocked || lane.wants_completions();
        // The last batch may have emptied a receive queue. Nothing would arrive then, or wake the thread.
        let posted = lane.repost(&self.table, &mut self.counts);
        let armed = posted.and_then(|()| lane.arm(sends, &mut self.counts));
        Ok(self
            .check("cannot wait for completions", armed)
            .unwrap_or(false))
    }

    fn moderate(&mut self, frames: u16, usecs: u16) -> bool {
        let Some(device) = &self.table.device else {
            return false;
        };
        let (most, longest) = device.attributes.moderation;
        if most == 0 || longest == 0 {
            return false;
        }
        let cq = &device.receive_cq;
        cq.moderate(frames.min(most), usecs.min(longest)).is_ok()
    }

    fn create_ah(&mut self, attributes: &AhAttributes) -> io::Result<AddressHandle> {
        self.follow();
        let (dgid, sgid) = (attributes.dgid, self.table.gid);
        if dgid == Gid::UNSPECIFIED {
            return Err(io::Error::from_raw_os_error(libc::EADDRNOTAVAIL));
        }
        // The source decides the address family of packets.
        let known = self.table.ethernet && sgid != Gid::UNSPECIFIED;
        if known && dgid.ipv4().is_some() != sgid.ipv4().is_some() {
            return Err(io::Error::from_raw_os_error(libc::EAFNOSUPPORT));
        }
        let handle = self.handles.create(attributes)?;
        self.make_handles();
        Ok(handle)
    }

    fn destroy_ah(&mut self, ah: AddressHandle) {
        self.handles.release(ah);
    }

    fn train(&mut self, payload: usize) -> Option<Train<'_>> {
        let lane = self.lane.as_mut()?;
        if lane.open.is_none() {
            if !lane.has_room() {
                return None;
            }
            lane.open = Some(lane.transmit.take()?);
        }
        let empty = TrainTicket {
            count: 0,
            payload,
            last: 0,
        };
        Some(Worker::resume(self, empty))
    }

    fn resume(&mut self, ticket: TrainTicket) -> Train<'_> {
        let payload_max = self.table.payload_max;
        let Some(lane) = &mut self.lane else {
            return nowhere(ticket);
        };
        let most = lane.device.limits.train_packets;
        let Some(place) = &mut lane.open else {
            return nowhere(ticket);
        };
        let fits = match ticket.payload {
            payload if payload > payload_max => 0,
            payload => most.min(place.len() / payload.max(1)),
        };
        // The limits may have changed since the train was started; `send` checks again.
        let capacity = fits.max(ticket.count);
        Train::new(place, 0, ticket.payload, capacity, ticket)
    }

    fn send(&mut self, from: EndpointId, to: &UdDestination, train: TrainTicket) -> Sent {
        self.follow();
        let Some(lane) = &mut self.lane else {
            self.counts.tx_failed += 1;
            return Sent::Failed;
        };
        // `None`: the place was lent from a removed device.
        let Some(place) = lane.open.take() else {
            self.counts.tx_failed += 1;
            return Sent::Failed;
        };
        if train.count == 0 {
            lane.transmit.give(place);
            return Sent::Done;
        }
        // The MTU may have changed since the train was started.
        if train.payload.max(train.last) > self.table.payload_max {
            lane.transmit.give(place);
            self.counts.tx_too_big += 1;
            self.counts.tx_failed += 1;
            return Sent::Failed;
        }
        let starts = self.table.endpoints.get(from).map_or(0, |e| e.starts);
        let waiting = Waiting {
            from,
            starts,
            to: *to,
            place,
            train,
            blocked: false,
        };
        self.dispatch(waiting, false)
    }

    fn room(&self) -> Room {
        if !self.lane.as_ref().is_none_or(Lane::has_room) {
            Room::Nothing
        } else if self.has_room_for_messages() {
            Room::Messages
        } else {
            Room::Datagrams
        }
    }

    fn next_deadline(&self) -> Option<Instant> {
        let stuck = self.lane.as_ref().and_then(Lane::stuck_at);
        let deadlines = [stuck, self.connections.next_deadline(), self.open_again];
        deadlines.into_iter().flatten().min()
    }

    fn handle_timeout(&mut self) {
        let reaped = self.reap();
        self.check("cannot poll the device", reaped);
        let managed = self.connections_timeout(clock());
        self.check("cannot manage connections", managed);
    }

    fn connections(&mut self) -> Option<&mut dyn Connections> {
        Some(self)
    }

    fn counters(&self) -> Counters {
        let mut all = self.counts.named();
        all.extend(self.connections.counters());
        all
    }
}

/// A train without memory, after its device was removed.
fn nowhere(ticket: TrainTicket) -> Train<'static> {
    Train::new(&mut [], 0, ticket.payload, ticket.count, ticket)
}

impl Drop for VerbsWorker {
    fn drop(&mut self) {
        self.close_connections();
        if let Some((epoll, _)) = &self.epoll {
            let _ = epoll::delete(epoll, &self.shared.worker);
            if let Some(lane) = &self.lane {
                lane.unwatch(epoll);
            }
        }
    }
}

#[cfg(test)]
mod tests;
