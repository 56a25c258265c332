//! The data side of one device, for its lifetime.

use std::collections::VecDeque;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use proto::{AddressHandle, EndpointId, Instant};
use rustix::event::epoll::{self, EventData, EventFlags};

use super::connections::{Lent, Messages};
use super::counts::Counts;
use super::device::{Device, Stock};
use super::ibv::{Completions, Place, StateChange};
use super::receive::Receive;
use super::snapshot::{Endpoint, Table};
use super::transmit::Transmit;
use crate::handles;
use crate::worker::{TrainTicket, UdDestination};

/// Completions taken by one poll.
const COMPLETIONS: usize = 256;

/// How long a device may complete nothing while everything is posted; then it counts as failed.
const STUCK: Duration = Duration::from_secs(10);

/// A train that waits for its address handle or for room.
#[derive(Debug)]
pub struct Waiting {
    pub from: EndpointId,
    /// The start of its queue pair that it belongs to.
    pub starts: u32,
    pub to: UdDestination,
    pub place: Place,
    pub train: TrainTicket,
    /// The train waits for room; no other train may be sent first.
    pub blocked: bool,
}

/// A device used by a worker.
pub struct Lane {
    /// The device.
    pub device: Arc<Device>,
    /// Receive places for datagrams.
    pub receive: Receive,
    /// Receive places for messages, if there are connections.
    pub messages: Option<Messages>,
    /// Transmit places.
    pub transmit: Transmit,
    /// The lent place.
    pub open: Option<Place>,
    /// The place lent for messages.
    pub lent: Option<Lent>,
    /// Waiting trains.
    pub waiting: VecDeque<Waiting>,
    /// Receive completions, to be handled by the next poll if `early`.
    pub found: Completions,
    /// [`Lane::arm`] has put completions into `found`.
    pub early: bool,
    /// Send completions.
    pub sent: Completions,
    /// The last batch has receives that no poll has returned yet.
    pub unseen: bool,
    receive_armed: bool,
    send_armed: bool,
    /// Work was reclaimed without completions: waiting trains may have room.
    emptied: bool,
    /// Start of the time without room.
    full_since: Option<Instant>,
}

impl Lane {
    /// Takes a device; `None` if another worker has it.
    pub fn new(device: &Arc<Device>) -> Option<Lane> {
        let Stock {
            transmit,
            datagrams,
            messages,
        } = device.take_stock()?;
        Some(Lane {
            receive: Receive::new(device, datagrams),
            transmit: Transmit::new(device, transmit),
            messages: device
                .messages
                .as_ref()
                .zip(messages)
                .map(|(queue, stock)| Messages::new(queue, stock)),
            open: None,
            lent: None,
            waiting: VecDeque::new(),
            found: Completions::new(COMPLETIONS),
            early: false,
            sent: Completions::new(COMPLETIONS),
            unseen: false,
            receive_armed: false,
            send_armed: false,
            emptied: false,
            full_since: None,
            device: Arc::clone(device),
        })
    }

    /// Posts the places of the last batch, if a poll has returned it.
    ///
    /// # Errors
    /// Errors of ibv_post_srq_recv(3) and ibv_post_recv(3).
    pub fn repost(&mut self, table: &Table, counts: &mut Counts) -> io::Result<()> {
        if self.unseen {
            return Ok(());
        }
        self.receive.repost(table.endpoints.all(), counts)?;
        if let Some(messages) = &mut self.messages
            && messages.repost()?
        {
            counts.post_lists += 1;
            counts.verbs_calls += 1;
        }
        Ok(())
    }

    /// Adds the device to an epoll instance.
    ///
    /// # Errors
    /// Errors of epoll_ctl(2).
    pub fn watch(&self, epoll: &OwnedFd, word: u64) -> io::Result<()> {
        let data = EventData::new_u64(word);
        epoll::add(epoll, self.device.channel.fd()?, data, EventFlags::IN)?;
        Ok(())
    }

    /// Removes the device from an epoll instance.
    pub fn unwatch(&self, epoll: &OwnedFd) {
        if let Ok(fd) = self.device.channel.fd() {
            let _ = epoll::delete(epoll, fd);
        }
    }

    /// Takes the events of the armed completion queues. Each makes one event, so the loop stops at that
    /// number; if a device makes more, the channel stays readable.
    ///
    /// # Errors
    /// Errors of ibv_get_cq_event(3).
    pub fn drain(&mut self, counts: &mut Counts) -> io::Result<()> {
        let armed = u32::from(self.receive_armed) + u32::from(self.send_armed);
        // At least one: unexpected events must not keep the thread awake.
        let most = armed.max(1);
        let events = self.device.channel.drain(most)?;
        counts.cq_events += u64::from(events);
        // One call for each, one that finds none, and an acknowledgement.
        let asked = (events + 1).min(most);
        counts.verbs_calls += u64::from(asked) + u64::from(events > 0);
        if events > 0 {
            // The queue does not matter: arming an armed queue does no harm.
            (self.receive_armed, self.send_armed) = (false, false);
        }
        Ok(())
    }

    /// Whether a send completion is awaited.
    pub fn wants_completions(&self) -> bool {
        !self.transmit.has_free() || self.waiting.iter().any(|w| w.blocked)
    }

    /// Arms the completion queue of receives, and with `sends` that of sends. True if completions have
    /// arrived or were taken already, or if work was reclaimed.
    ///
    /// # Errors
    /// Errors of ibv_req_notify_cq(3) and ibv_poll_cq(3).
    pub fn arm(&mut self, sends: bool, counts: &mut Counts) -> io::Result<bool> {
        if self.early || self.emptied || self.unseen {
            return Ok(true);
        }
        let mut there = false;
        if !self.receive_armed {
            counts.cq_arms += 1;
            counts.verbs_calls += 2;
            self.device.receive_cq.arm()?;
            self.receive_armed = true;
            // Completions from before the arming make no event (IBA vol. 1, 11.4.2.2).
            self.early = self.device.receive_cq.poll(&mut self.found)? > 0;
            there = self.early;
        }
        if sends && !self.send_armed {
            counts.cq_arms += 1;
            counts.verbs_calls += 1;
            self.device.send_cq.arm()?;
            self.send_armed = true;
            // The next poll reads this queue in any case.
            there = true;
        }
        Ok(there)
    }

    /// Polls send completions into `sent`; returns their number.
    ///
    /// # Errors
    /// Errors of ibv_poll_cq(3).
    pub fn poll_sends(&mut self, counts: &mut Counts) -> io::Result<usize> {
        counts.verbs_calls += 1;
        let count = self.device.send_cq.poll(&mut self.sent)?;
        counts.cq_completions += count as u64;
        Ok(count)
    }

    /// Polls receive completions into `found`; returns their number.
    ///
    /// # Errors
    /// Errors of ibv_poll_cq(3).
    pub fn poll_receives(&mut self, counts: &mut Counts) -> io::Result<usize> {
        let count = if std::mem::take(&mut self.early) {
            self.found.iter().len()
        } else {
            counts.verbs_calls += 1;
            self.device.receive_cq.poll(&mut self.found)?
        };
        counts.cq_completions += count as u64;
        Ok(count)
    }

    /// Updates the time without room. Returns whether there has been neither room nor a completion for
    /// so long that the device counts as failed.
    pub fn is_stuck(&mut self, now: Instant, progress: bool) -> bool {
        if progress || !self.wants_completions() {
            self.full_since = None;
        }
        if !self.wants_completions() {
            return false;
        }
        let since = *self.full_since.get_or_insert(now);
        now >= since.after(STUCK)
    }

    /// When the device counts as failed.
    pub fn stuck_at(&self) -> Option<Instant> {
        self.full_since.map(|since| since.after(STUCK))
    }

    /// Whether a train may be lent.
    pub fn has_room(&self) -> bool {
        self.open.is_some() || (self.transmit.has_free() && !self.is_blocked())
    }

    /// Whether a train waits for room.
    pub fn is_blocked(&self) -> bool {
        self.waiting.iter().any(|w| w.blocked)
    }

    /// Whether another train may wait for an address handle.
    pub fn may_wait(&self, ah: AddressHandle) -> bool {
        handles::may_wait(self.waiting.iter().map(|w| w.to.ah), ah)
    }

    /// Stops queue pairs: they receive nothing any more. True if the worker must take their receive completions before
    /// they change to RESET or are destroyed. mlx4, mlx5 and mthca remove the completions then (mlx5_cq_clean), and the
    /// places would be lost to the shared receive queue. A queue pair's own queue is emptied as a whole.
    pub fn stop(&self, pairs: &[&Endpoint]) -> bool {
        if self.receive.has_own_queues() {
            return false;
        }
        for e in pairs {
            // A queue pair in RESET refuses the change, and receives nothing.
            if let Err(error) = e.pair.qp.modify(&StateChange::error()) {
                log::debug!("{:?} cannot stop: {error}", e.pair.qp);
            }
        }
        !pairs.is_empty()
    }

    /// Restarts a queue pair through RESET; posted work is lost.
    ///
    /// # Errors
    /// Errors of ibv_modify_qp(3).
    pub fn restart(&mut self, e: &Endpoint, number: u32, counts: &mut Counts) -> io::Result<()> {
        self.empty(e, counts)?;
        counts.qp_restarts += 1;
        e.pair.start(number, e.pkey.map(|(_, index)| index), e.qkey)
    }

    /// Changes a queue pair to RESET and reclaims its posted places.
    ///
    /// # Errors
    /// Errors of ibv_modify_qp(3).
    pub fn empty(&mut self, e: &Endpoint, counts: &mut Counts) -> io::Result<()> {
        let emptied = e.pair.reset()?;
        let lost = self.transmit.reclaim(&emptied);
        counts.tx_failed += lost as u64;
        self.receive.reclaim(&emptied);
        self.emptied = true;
        Ok(())
    }

    /// Whether work was reclaimed since the last call.
    pub fn take_emptied(&mut self) -> bool {
        std::mem::take(&mut self.emptied)
    }
}
