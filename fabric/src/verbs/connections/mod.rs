//! Reliable connections over rdma_cm, with queue pairs of our own.
//!
//! The kernel owns QP1 and keeps the protocol of communication management; rdma_cm(7) is the way to it.
//! Its ids are used for that alone. The queue pairs are made here, on the worker's completion queues and
//! shared receive queue, and moved by `ibv_modify_qp` with what `rdma_init_qp_attr` says: so one epoll
//! instance and one poll of a completion queue serve all of them.
//!
//! [`Engine`] decides and keeps the books, over a [`Device`] that makes the calls; it reads no clock.

mod acts;
mod connection;
mod consumer;
mod counts;
mod device;
mod events;
mod listeners;
mod lookup;
mod messages;
mod real;
mod receive;
mod sends;
mod state;
#[cfg(test)]
mod tests;
mod view;
mod worker;

use std::collections::VecDeque;
use std::io;
use std::time::Duration;

pub use device::{Address, Shape};
pub use real::{RealDevice, socket_address};
pub use receive::Messages;
pub use view::{Member, View};
pub use worker::{Lent, bounds};

use crate::cm::Limits;
use crate::connection::ConnectionInfo;
use crate::worker::Counters;
use connection::Connection;
use counts::Counts;
use device::Device;
use listeners::Listeners;
use lookup::{Key, Table};
use proto::{CloseReason, ConnectionEvent, Gid, Instant};
use state::{Input, State};

/// How long a peer may take to answer a request. The kernel repeats one after 6.1 s (its CM response
/// timeout and packet life, drivers/infiniband/core/cma.c, CMA_CM_RESPONSE_TIMEOUT) and would for
/// 98 s; a lost request or reply gets a second chance.
const ANSWER: Duration = Duration::from_secs(15);

/// How long a queue pair in ERR may take to give back what was posted. What is left then comes back by
/// destroying it, which ends the device's use of the memory in any case.
const DRAIN_MAX: Duration = Duration::from_secs(1);

/// How long a queue pair stays in ERR at least: a message that was half received is completed meanwhile
/// with WR_FLUSH_ERR, and its place in the shared receive queue comes back. (Devices tell by
/// IBV_EVENT_QP_LAST_WQE_REACHED, `rdma_rxe` does not.)
const DRAIN_MIN: Duration = Duration::from_millis(50);

/// How long nothing may be completed while something is posted: the queue pair's own timeouts are over
/// by then, so the peer has no receive buffers, for which RNR retry 7 waits for ever.
const PROGRESS: Duration = Duration::from_secs(10);

/// After which time without a completion a full window no longer holds up the others.
const STALLED_AFTER: Duration = Duration::from_millis(50);

/// How soon full windows are looked at again.
const LOOK_AT_FULL: Duration = Duration::from_millis(20);

/// How often what waits is looked at.
const SWEEP: Duration = Duration::from_millis(50);

/// Events of rdma_cm that are taken in one call; the channel stays readable.
const EVENTS_MAX: usize = 64;

/// How much there may be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Bounds {
    /// Connections, those included whose queue pairs drain.
    pub connections: usize,
    /// Bytes of a message.
    pub message: usize,
    /// Messages outstanding on a connection: the send queue's depth.
    pub messages: u32,
    /// Post lists outstanding on a connection, each with a piece of memory.
    pub lists: usize,
    /// Messages outstanding on all connections: what the send completion queue has for them.
    pub completions: u32,
}

/// The connections of one worker.
#[derive(Debug)]
pub struct Engine<D: Device> {
    bounds: Bounds,
    /// None while the device is away.
    device: Option<D>,
    view: View,
    listeners: Listeners<D>,
    table: Table<Connection<D>>,
    events: VecDeque<ConnectionEvent>,
    next_id: u32,
    limits: Limits,
    /// Messages outstanding on all connections.
    outstanding: u32,
    /// Those that drain.
    draining: Vec<Key>,
    /// Those whose window is full.
    full: Vec<Key>,
    /// When to look at what waits.
    sweep: Option<Instant>,
    counts: Counts,
}

impl<D: Device> Engine<D> {
    /// Without a device yet.
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

    /// How much there may be.
    pub const fn bounds(&self) -> Bounds {
        self.bounds
    }

    /// Changes it; what is more already stays.
    pub const fn bound(&mut self, bounds: Bounds) {
        self.bounds = bounds;
        self.table.bound(bounds.connections);
    }

    /// The device is there. Who listened does so again.
    pub fn attach(&mut self, now: Instant, device: D) {
        self.detach(now);
        self.device = Some(device);
        self.listeners.close(now);
        self.open_listeners(now);
    }

    /// The device has gone: everything of it ends at once, queue pairs first. Gives it back, since it
    /// must outlive what was made of it.
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

    /// The port is another now. Connections that stand on what has changed end.
    pub fn follow(&mut self, now: Instant, view: View) {
        let moved = view.gid != self.view.gid || view.scope != self.view.scope;
        self.view = view;
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
        // While the device is away nobody has a queue pair; who listens does so again when it is back.
        if device.is_some() {
            listeners.retain(|e| view.members.contains_key(&e));
        }
        let mut over = Vec::new();
        for (key, c) in table.iter() {
            let reason = match view.members.get(&c.endpoint) {
                None => CloseReason::PortGone,
                Some(_) if c.local != view.gid => CloseReason::PortGone,
                Some(member) if member.entry != Some(c.entry) => CloseReason::PKeyChange,
                Some(_) if view.path_mtu.is_none_or(|m| m.bytes() < c.path_mtu) => {
                    CloseReason::PortGone
                }
                Some(_) => continue,
            };
            over.push((key, reason));
        }
        for (key, reason) in over {
            self.drive(now, key, Input::Lost(reason));
        }
        self.open_listeners(now);
    }

    /// Takes what rdma_cm has to say. To be called when its channel is readable.
    ///
    /// # Errors
    /// What the channel says: it is of no use any more.
    pub fn process(&mut self, now: Instant) -> io::Result<()> {
        for _ in 0..EVENTS_MAX {
            let Some(device) = &mut self.device else {
                break;
            };
            match device.event()? {
                Some(event) => self.told(now, event),
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

    /// The shared receive queue's completions were all taken: a queue pair that is in ERR for a while
    /// has none there any more.
    pub fn receive_queue_empty(&mut self) {
        for key in &self.draining {
            if let Some(c) = self.table.get_mut(*key) {
                c.quiet = true;
            }
        }
    }

    /// When [`Engine::handle_timeout`] wants to be called next.
    pub fn next_deadline(&self) -> Option<Instant> {
        let listeners = self.device.as_ref();
        let listeners = listeners.and_then(|_| self.listeners.next_deadline());
        [self.sweep, listeners].into_iter().flatten().min()
    }

    /// Lets time pass.
    pub fn handle_timeout(&mut self, now: Instant) {
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

    /// Ends what has waited for too long, and what has drained.
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

    /// Takes those off the list whose window is no longer full, or that are given up for now.
    fn look_at_full(&mut self, now: Instant) {
        let Engine {
            full,
            table,
            bounds,
            ..
        } = self;
        full.retain(|key| {
            let Some(c) = table.get_mut(*key) else {
                return false;
            };
            c.full = c.full && c.is_full(bounds) && now.since(c.progress) <= STALLED_AFTER;
            c.full
        });
        if !self.full.is_empty() {
            self.sweep_within(now, LOOK_AT_FULL);
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

    /// All connections that the consumer knows of.
    pub fn list(&self) -> Vec<ConnectionInfo> {
        let all = self.table.iter();
        all.map(|(_, c)| c.info(self.bounds.messages)).collect()
    }

    /// Counters by name.
    pub fn counters(&self) -> Counters {
        self.counts.named().to_vec()
    }

    /// Whether the port has an address to connect from to a peer.
    fn reaches(&self, peer: Gid) -> bool {
        let local = self.view.gid;
        local != Gid::UNSPECIFIED
            && peer != Gid::UNSPECIFIED
            && !peer.is_multicast()
            && peer.ipv4().is_some() == local.ipv4().is_some()
    }
}
