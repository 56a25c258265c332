//! Reliable connections with ibtapd's own queue pairs.
//!
//! Communication management is the kernel's or our own. Where the kernel implements it, rdma_cm(7) gives
//! access to it, by IP addresses on Ethernet and by GIDs on InfiniBand (AF_IB); its ids are used for nothing
//! else. On an InfiniBand port without the kernel's, [`umad`] implements it over the management datagrams of
//! umad(7). This module creates the queue pairs on the worker's completion queues and shared receive queue,
//! and changes their states by `ibv_modify_qp`. So one epoll instance and one poll of a completion queue
//! serve all of them.
//!
//! [`Engine`] decides and keeps the state, over a [`Device`] that makes the calls; it reads no clock.

mod acts;
mod connection;
mod consumer;
mod counts;
mod device;
mod events;
mod listeners;
mod lookup;
mod messages;
mod rdma_cm;
mod real;
mod receive;
mod sends;
mod state;
#[cfg(test)]
mod tests;
mod umad;
mod view;
mod worker;

use std::collections::VecDeque;
use std::io;
use std::time::Duration;

pub use device::Shape;
pub use rdma_cm::cm_address;
pub use real::RealDevice;
pub use receive::Messages;
pub use umad::fuzzed;
pub use umad::{CmAgent, services};
pub use view::{Member, View};

/// Names and descriptions of the counters of connections.
pub fn counter_descriptions() -> impl Iterator<Item = &'static Description> {
    let own = counts::Counts::DESCRIPTIONS.iter();
    own.chain([&umad::NOT_A_MESSAGE])
        .chain(crate::cm::Counts::descriptions())
}
pub use worker::{Lent, bounds};

use crate::cm::Limits;
use crate::connection::{ConnectionInfo, LOOK_AT_FULL, Window, patience};
use crate::worker::Counters;
use connection::Connection;
use counts::{Counts, REQUESTS};
use device::Device;
use listeners::Listeners;
use lookup::{Key, Table};
use proto::counters::Description;
use proto::{CloseReason, ConnectionEvent, Instant};
use state::{Input, State};

/// Maximum time for a peer's answer to a request. The kernel repeats a request after 6.1 s (its CM
/// response timeout and packet lifetime, drivers/infiniband/core/cma.c, CMA_CM_RESPONSE_TIMEOUT), for
/// 98 s in total. This time allows one repetition after a lost request or reply.
const ANSWER: Duration = Duration::from_secs(15);

/// Maximum time for a queue pair in ERR to return posted work. Destroying it returns the rest and ends
/// the device's use of the memory.
const DRAIN_MAX: Duration = Duration::from_secs(1);

/// Minimum time of a queue pair in ERR: a partly received message completes meanwhile with
/// WR_FLUSH_ERR, and its place in the shared receive queue comes back. (Devices report this with
/// IBV_EVENT_QP_LAST_WQE_REACHED, `rdma_rxe` does not.)
const DRAIN_MIN: Duration = Duration::from_millis(50);

/// Maximum time without a completion while work is posted. The queue pair's own timeouts are over by
/// then, so the peer has no receive buffers, for which RNR retry 7 waits forever.
const PROGRESS: Duration = Duration::from_secs(10);

/// Time without a completion after which a connection may have to give its memory: longer than three
/// acknowledgement timeouts of a queue pair ([`real::ACK_TIMEOUT`]), so that few lost packets, or a peer that pauses for
/// a moment, end no connection.
const STALLED_MAX: Duration = Duration::from_secs(1);

/// Interval of the check of waiting connections.
const SWEEP: Duration = Duration::from_millis(50);

/// Maximum number of events of rdma_cm handled in one call; the channel stays readable.
const EVENTS_MAX: usize = 64;

/// Limits of the engine.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Bounds {
    /// Maximum number of connections, including those with draining queue pairs.
    pub connections: usize,
    /// Maximum bytes of a message.
    pub message: usize,
    /// Maximum outstanding messages of a connection: the send queue's depth.
    pub messages: u32,
    /// Maximum outstanding post lists of a connection, each with a piece of memory.
    pub lists: usize,
    /// Maximum outstanding messages of all connections: their share of the send completion queue.
    pub completions: u32,
}

/// The connections of one worker.
#[derive(Debug)]
pub struct Engine<D: Device> {
    bounds: Bounds,
    /// `None` while the device is away.
    device: Option<D>,
    view: View,
    listeners: Listeners<D>,
    table: Table<Connection<D>>,
    events: VecDeque<ConnectionEvent>,
    next_id: u32,
    limits: Limits,
    /// Outstanding messages of all connections.
    outstanding: u32,
    /// Draining connections.
    draining: Vec<Key>,
    /// Connections with a full window.
    full: Vec<Key>,
    /// When to check the waiting connections.
    sweep: Option<Instant>,
    counts: Counts,
}

impl<D: Device> Engine<D> {
    /// Creates an engine without a device.
    pub fn new(bounds: Bounds) -> Engine<D> {
        Engine {
            bounds,
            device: None,
            view: View::default(),
            listeners: Listeners::default(),
            table: Table::new(bounds.connections),
            events: VecDeque::new(),
            next_id: 1,
            limits: Limits::default(),
            outstanding: 0,
            draining: Vec::new(),
            full: Vec::new(),
            sweep: None,
            counts: Counts::default(),
        }
    }

    /// The limits.
    pub const fn bounds(&self) -> Bounds {
        self.bounds
    }

    /// Changes the limits; existing connections stay.
    pub const fn bound(&mut self, bounds: Bounds) {
        self.bounds = bounds;
        self.table.bound(bounds.connections);
    }

    /// Attaches a device. Listeners listen again.
    pub fn attach(&mut self, now: Instant, device: D) {
        self.detach(now);
        self.device = Some(device);
        self.listeners.close(now);
        self.open_listeners(now);
    }

    /// Detaches the device and ends all its objects, queue pairs first. Returns the device, which must
    /// outlive its objects.
    pub fn detach(&mut self, now: Instant) -> Option<D> {
        for key in self.table.keys(|_| true) {
            self.drive(now, key, Input::Lost(CloseReason::PortGone));
            self.drive(now, key, Input::Drained);
        }
        self.draining.clear();
        self.full.clear();
        self.sweep = None;
        self.listeners.close(now);
        self.device.take()
    }

    /// The device.
    pub const fn device(&mut self) -> Option<&mut D> {
        self.device.as_mut()
    }

    /// Follows a change of the port. Connections that depend on a changed attribute end.
    pub fn follow(&mut self, now: Instant, view: View) {
        let moved = view.gid != self.view.gid
            || view.scope != self.view.scope
            || view.services != self.view.services;
        let former = std::mem::replace(&mut self.view, view).path_mtu;
        if moved {
            self.listeners.close(now);
        }
        let Engine {
            listeners,
            view,
            table,
            device,
            ..
        } = self;
        // While the device is away there are no queue pairs; listeners return with it.
        if device.is_some() {
            listeners.retain(|e| view.members.contains_key(&e));
        }
        // A larger path MTU ends connections that the former one limited.
        let limited = former.filter(|_| former < view.path_mtu).map(|m| m.bytes());
        let is_right = |path_mtu| {
            view.path_mtu.is_some_and(|m| path_mtu <= m.bytes()) && limited != Some(path_mtu)
        };
        let mut over = Vec::new();
        for (key, c) in table.iter() {
            let reason = match view.members.get(&c.endpoint) {
                None => CloseReason::PortGone,
                Some(_) if c.local != view.gid => CloseReason::PortGone,
                Some(member) if member.entry != Some(c.entry) => CloseReason::PKeyChange,
                Some(_) if view.path_mtu.is_none() => CloseReason::PortGone,
                Some(_) if !is_right(c.path_mtu) => CloseReason::PathMtu,
                Some(_) => continue,
            };
            over.push((key, reason));
        }
        for (key, reason) in over {
            self.drive(now, key, Input::Lost(reason));
        }
        self.open_listeners(now);
    }

    /// Handles the events of rdma_cm. Call this when its channel is readable.
    ///
    /// # Errors
    /// Errors of the channel, which is unusable then.
    pub fn process(&mut self, now: Instant) -> io::Result<()> {
        for _ in 0..EVENTS_MAX {
            let Some(device) = &mut self.device else {
                break;
            };
            match device.event()? {
                Some(event) => self.on_event(now, event),
                None => break,
            }
        }
        Ok(())
    }

    /// The next event for the consumer.
    pub fn poll_event(&mut self) -> Option<ConnectionEvent> {
        self.events.pop_front()
    }

    /// Whether nothing is outstanding.
    pub const fn is_idle(&self) -> bool {
        self.outstanding == 0
    }

    /// All completions of the shared receive queue were taken, also those of the draining queue pairs. Only a queue pair
    /// that has been in ERR for [`DRAIN_MIN`] has no later ones.
    pub fn receive_queue_empty(&mut self) {
        for key in &self.draining {
            if let Some(c) = self.table.get_mut(*key) {
                c.quiet = true;
            }
        }
    }

    /// When to call [`Engine::handle_timeout`] next.
    pub fn next_deadline(&self) -> Option<Instant> {
        let listeners = self.device.as_ref();
        let listeners = listeners.and_then(|_| self.listeners.next_deadline());
        let device = self.device.as_ref().and_then(Device::next_deadline);
        [self.sweep, listeners, device].into_iter().flatten().min()
    }

    /// Handles the timers.
    ///
    /// # Errors
    /// As [`Engine::process`].
    pub fn handle_timeout(&mut self, now: Instant) -> io::Result<()> {
        if let Some(device) = &mut self.device {
            device.handle_timeout(now);
            self.process(now)?;
        }
        self.sweep(now);
        Ok(())
    }

    fn sweep(&mut self, now: Instant) {
        self.open_listeners(now);
        if self.sweep.is_none_or(|at| at > now) {
            return;
        }
        self.sweep = None;
        for key in self.table.keys(Connection::waits) {
            self.look_at(now, key);
        }
        self.look_at_full(now);
        if self.table.iter().any(|(_, c)| c.waits()) {
            self.sweep_within(now, SWEEP);
        }
    }

    /// Ends a connection that waited too long or has drained.
    fn look_at(&mut self, now: Instant, key: Key) {
        let Some(c) = self.table.get(key) else { return };
        let waited = now.since(c.since);
        let input = match c.state {
            State::Resolving | State::Routing | State::Asking if waited > ANSWER => {
                Input::Lost(CloseReason::TimedOut)
            }
            State::Accepted | State::Open if now.since(c.progress) > PROGRESS => {
                self.counts.rnr_exceeded += 1;
                Input::Lost(CloseReason::Failed(crate::WcStatus::RnrRetryExcErr))
            }
            State::Draining => {
                let back = c.sends.is_empty() && c.quiet && waited >= DRAIN_MIN;
                if !back && waited < DRAIN_MAX {
                    return;
                }
                self.counts.not_drained += u64::from(!back);
                Input::Drained
            }
            _ => return,
        };
        self.drive(now, key, input);
    }

    /// Removes connections from the list of full windows that are stalled.
    fn look_at_full(&mut self, now: Instant) {
        let Engine { full, table, .. } = self;
        let is_late = |key| table.get(key).is_some_and(|c| c.window.is_late(now));
        if full.iter().copied().any(is_late) {
            let patience = patience(now, table.iter().map(|(_, c)| (c.peer, c.used)));
            full.retain(|key| {
                let c = table.get_mut(*key);
                c.is_some_and(|c| c.window.waits(now, patience))
            });
        }
        if !self.full.is_empty() {
            self.sweep_within(now, LOOK_AT_FULL);
        }
    }

    /// If no memory for messages is left, ends the connection that has gone without a completion longest, if
    /// that is too long: peers that take nothing would keep the memory from all others.
    pub fn end_stalled(&mut self, now: Instant) {
        // The memory of a draining connection comes back first.
        if !self.draining.is_empty() {
            return;
        }
        let all = self.table.iter();
        let waiting = all.filter(|(_, c)| c.state.is_known() && !c.sends.is_empty());
        let longest = waiting.min_by_key(|(_, c)| c.progress);
        let stalled = longest.filter(|(_, c)| now.since(c.progress) > STALLED_MAX);
        if let Some(key) = stalled.map(|(key, _)| key) {
            self.counts.stalled += 1;
            let reason = CloseReason::Failed(crate::WcStatus::GeneralErr);
            self.drive(now, key, Input::Lost(reason));
        }
    }

    fn sweep_within(&mut self, now: Instant, time: Duration) {
        let at = now.after(time);
        self.sweep = Some(self.sweep.map_or(at, |sweep| sweep.min(at)));
    }

    fn open_listeners(&mut self, now: Instant) {
        if let Some(device) = &mut self.device {
            self.listeners.open(now, device, &self.view);
        }
    }

    /// All connections that the consumer knows.
    pub fn list(&self) -> Vec<ConnectionInfo> {
        let all = self.table.iter();
        all.map(|(_, c)| c.info(self.bounds.messages)).collect()
    }

    /// Counters by name.
    pub fn counters(&self) -> Counters {
        let mut all = self.counts.named().to_vec();
        for managed in self.device.iter().flat_map(Device::counters) {
            match all.iter_mut().find(|own| own.0 == managed.0) {
                // The engine counts those that reach it.
                Some(own) if own.0 == REQUESTS => own.1 = managed.1,
                Some(own) => own.1 += managed.1,
                None => all.push(managed),
            }
        }
        all
    }
}
