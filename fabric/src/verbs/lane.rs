//! What a worker does with one device, for as long as that is there.

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
use super::ibv::{Completions, Place};
use super::receive::Receive;
use super::snapshot::{Endpoint, Endpoints, Table};
use super::transmit::Transmit;
use crate::worker::{TrainTicket, UdDestination};

/// Completions that one look takes.
const COMPLETIONS: usize = 256;

/// How long a device may complete nothing while all there is is posted, before it is taken for dead.
const STUCK: Duration = Duration::from_secs(10);

/// Trains that wait for address handles at most, and for each of them: a peer that does not answer
/// must not take the places of the others.
const WAITING_MAX: usize = 32;
const WAITING_FOR_ONE: usize = 4;

/// A train that waits for its address handle, or for room.
#[derive(Debug)]
pub struct Waiting {
    pub from: EndpointId,
    /// Which start of its queue pair it was for.
    pub starts: u32,
    pub to: UdDestination,
    pub place: Place,
    pub train: TrainTicket,
    /// It waits for room, and nothing else may be sent before.
    pub blocked: bool,
}

/// A device in a worker's hands.
pub struct Lane {
    /// The device.
    pub device: Arc<Device>,
    /// Places that datagrams are received in.
    pub receive: Receive,
    /// Places that messages are received in, if there are connections.
    pub messages: Option<Messages>,
    /// Places that are sent from.
    pub transmit: Transmit,
    /// The place that is lent.
    pub open: Option<Place>,
    /// The place that is lent for messages.
    pub lent: Option<Lent>,
    /// Trains that wait.
    pub waiting: VecDeque<Waiting>,
    /// Completions of receives, to be handled by the next poll if `early`.
    pub found: Completions,
    /// There are some in `found` that [`Lane::arm`] has found.
    pub early: bool,
    /// Completions of sends.
    pub sent: Completions,
    receive_armed: bool,
    send_armed: bool,
    /// Since when there has been no room.
    full_since: Option<Instant>,
}

impl Lane {
    /// Takes over a device; none if another worker has it.
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
            receive_armed: false,
            send_armed: false,
            full_since: None,
            device: Arc::clone(device),
        })
    }

    /// Posts the places of the last batch.
    ///
    /// # Errors
    /// Those of ibv_post_srq_recv(3) and ibv_post_recv(3).
    pub fn repost(&mut self, table: &Table, counts: &mut Counts) -> io::Result<()> {
        self.receive.repost(table.endpoints.all(), counts)?;
        if let Some(messages) = &mut self.messages
            && messages.repost()?
        {
            counts.post_lists += 1;
            counts.verbs_calls += 1;
        }
        Ok(())
    }

    /// Waits for the device, too.
    ///
    /// # Errors
    /// Those of epoll_ctl(2).
    pub fn watch(&self, epoll: &OwnedFd, word: u64) -> io::Result<()> {
        let data = EventData::new_u64(word);
        epoll::add(epoll, self.device.channel.fd()?, data, EventFlags::IN)?;
        Ok(())
    }

    /// Waits for it no longer.
    pub fn unwatch(&self, epoll: &OwnedFd) {
        if let Ok(fd) = self.device.channel.fd() {
            let _ = epoll::delete(epoll, fd);
        }
    }

    /// Takes the events of the completion queues that are armed. A queue makes one, so that nothing is
    /// asked once there are as many; a device that makes more keeps the channel readable.
    ///
    /// # Errors
    /// Those of ibv_get_cq_event(3).
    pub fn drain(&mut self, counts: &mut Counts) -> io::Result<()> {
        let armed = u32::from(self.receive_armed) + u32::from(self.send_armed);
        // One at least: events that should not be there must not keep the thread awake.
        let most = armed.max(1);
        let events = self.device.channel.drain(most)?;
        counts.cq_events += u64::from(events);
        // One for each, one that finds none, and an acknowledgement.
        let asked = (events + 1).min(most);
        counts.verbs_calls += u64::from(asked) + u64::from(events > 0);
        if events > 0 {
            // Which of the two it was matters little: arming one that is armed does no harm.
            (self.receive_armed, self.send_armed) = (false, false);
        }
        Ok(())
    }

    /// Whether a completion of a send is waited for.
    pub fn wants_completions(&self) -> bool {
        !self.transmit.has_free() || self.waiting.iter().any(|w| w.blocked)
    }

    /// Arms the completion queues: that of receives, and with `sends` that of sends. True if something is
    /// there already.
    ///
    /// # Errors
    /// Those of ibv_req_notify_cq(3) and ibv_poll_cq(3).
    pub fn arm(&mut self, sends: bool, counts: &mut Counts) -> io::Result<bool> {
        if self.early {
            return Ok(true);
        }
        let mut there = false;
        if !self.receive_armed {
            counts.cq_arms += 1;
            counts.verbs_calls += 2;
            self.device.receive_cq.arm()?;
            self.receive_armed = true;
            // What came before it was armed makes no event (IBA vol. 1, 11.4.2.2).
            self.early = self.device.receive_cq.poll(&mut self.found)? > 0;
            there = self.early;
        }
        if sends && !self.send_armed {
            counts.cq_arms += 1;
            counts.verbs_calls += 1;
            self.device.send_cq.arm()?;
            self.send_armed = true;
            // The next poll looks there in any case.
            there = true;
        }
        Ok(there)
    }

    /// The next completions of sends are in `sent`; gives how many.
    ///
    /// # Errors
    /// Those of ibv_poll_cq(3).
    pub fn poll_sends(&mut self, counts: &mut Counts) -> io::Result<usize> {
        counts.verbs_calls += 1;
        let count = self.device.send_cq.poll(&mut self.sent)?;
        counts.cq_completions += count as u64;
        Ok(count)
    }

    /// The next completions of receives are in `found`; gives how many.
    ///
    /// # Errors
    /// Those of ibv_poll_cq(3).
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

    /// Notes whether there is room, and gives whether there has been none, and no completion, for so
    /// long that there will be none.
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

    /// When it would be stuck.
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

    /// Whether one more train may wait for an address handle.
    pub fn may_wait(&self, ah: AddressHandle) -> bool {
        let of_it = self.waiting.iter().filter(|w| w.to.ah == ah).count();
        self.waiting.len() < WAITING_MAX && of_it < WAITING_FOR_ONE
    }

    /// Carries out the starts of queue pairs that the table asks for.
    ///
    /// # Errors
    /// Those of ibv_modify_qp(3).
    pub fn follow_starts(&mut self, table: &Table, counts: &mut Counts) -> io::Result<()> {
        for e in table.endpoints.all() {
            if e.pair.is_behind(e.starts) {
                self.restart(e, e.starts, counts)?;
            }
        }
        Ok(())
    }

    /// Takes a queue pair through RESET: what was posted to it is lost.
    ///
    /// # Errors
    /// Those of ibv_modify_qp(3).
    pub fn restart(&mut self, e: &Endpoint, number: u32, counts: &mut Counts) -> io::Result<()> {
        self.empty(e, counts)?;
        counts.qp_restarts += 1;
        e.pair.start(number, e.pkey.map(|(_, index)| index), e.qkey)
    }

    /// Takes a queue pair to RESET, and back what was posted to it.
    fn empty(&mut self, e: &Endpoint, counts: &mut Counts) -> io::Result<()> {
        let emptied = e.pair.reset()?;
        let lost = self.transmit.reclaim(&emptied);
        counts.tx_failed += lost as u64;
        self.receive.reclaim(&emptied);
        Ok(())
    }

    /// Takes back the places of endpoints that are gone: with a receive queue of its own a queue pair
    /// would take them along.
    ///
    /// # Errors
    /// Those of ibv_modify_qp(3).
    pub fn retire(
        &mut self,
        before: &Endpoints,
        now: &Endpoints,
        counts: &mut Counts,
    ) -> io::Result<()> {
        if !self.receive.has_own_queues() {
            return Ok(());
        }
        let gone = before.all().iter().filter(|e| now.get(e.id).is_none());
        gone.into_iter().try_for_each(|e| self.empty(e, counts))
    }
}
