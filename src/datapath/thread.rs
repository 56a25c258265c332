//! One data thread.

mod commands;
mod connections;
mod ethernet;
mod management;
mod moderation;
mod outgoing;
mod pause;
mod reports;
mod vlans;

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use crossbeam_channel::Sender;
use fabric::{ConnectionId, TOKEN, Worker};
use ipoib::Time;
use netdev::coalesce::{CoalesceConfig, Coalescer};
use netdev::tap::READ_MAX;
use rustix::event::epoll;
use rustix::time::{ClockId, Timespec, clock_gettime};

use super::command::Report;
use super::ethernet::{EthernetLane, Management};
use super::handle::{Inbox, Mailbox};
use super::lanes::Lanes;
use super::receive;
use super::train::OpenTrain;
use super::wait::Waiter;
use moderation::Moderated;
use outgoing::Frame;
use vlans::Trunk;

/// Epoll data words.
const WAKE: u64 = 0;
const FABRIC: u64 = 1;
const LANES: u64 = 2;
const ETHERNET_LANES: u64 = 1 << 32;

/// Frames read from one TAP queue before others get their turn.
const BURST: usize = 64;

/// Arrivals taken from the fabric before others get their turn.
const DEPTH: usize = 8;

/// Which lane of the thread a TAP is of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum At {
    /// One of [`DataThread::lanes`].
    Ip(usize),
    /// One of [`DataThread::ethernet`].
    Ethernet(usize),
}

impl At {
    /// The epoll data word of its TAP.
    fn token(self) -> epoll::EventData {
        epoll::EventData::new_u64(match self {
            At::Ip(i) => LANES + i as u64,
            At::Ethernet(i) => ETHERNET_LANES + i as u64,
        })
    }

    /// The lane with this data word, which is neither [`WAKE`] nor the fabric's.
    fn of(word: u64) -> At {
        match word.checked_sub(ETHERNET_LANES) {
            Some(i) => At::Ethernet(i as usize),
            None => At::Ip(word.saturating_sub(LANES) as usize),
        }
    }
}

/// A data thread before and while it runs.
pub struct DataThread {
    index: usize,
    fabric: Box<dyn Worker>,
    lanes: Lanes,
    /// Those of VNICs.
    ethernet: Lanes<EthernetLane>,
    /// Endpoints of management.
    management: Management,
    /// Lanes whose cores have news of their siblings.
    owed: Vec<usize>,
    waiter: Waiter,
    inbox: Inbox,
    siblings: Vec<Mailbox>,
    reports: Sender<Report>,
    reports_wake: std::sync::Arc<OwnedFd>,
    train: OpenTrain,
    buffer: Box<[u8]>,
    translated: Vec<u8>,
    linear: Vec<u8>,
    coalescer: Coalescer,
    /// The provider has connections.
    has_connections: bool,
    /// Which lane a connection is of.
    connections: HashMap<ConnectionId, usize>,
    /// What tags on lanes' TAPs select, where they do.
    trunks: BTreeMap<usize, Trunk>,
    /// The TAPs are not read while the fabric has no room.
    paused: bool,
    /// How arrivals are gathered, where they are.
    moderation: Option<Moderated>,
    /// Lanes whose TAPs are not waited for meanwhile: those that had something.
    muted: Vec<At>,
    /// More was waiting when the last round ended. Then rounds take all that is there; else one
    /// piece, so that a lone request is answered without a look for a second.
    busy: bool,
    stop: bool,
    /// Somebody wants to hear about neighbours.
    watched: bool,
    wakeups: u64,
    /// Datagrams and messages for endpoints that have no lane here.
    unserved: u64,
    /// Events that the control thread was not told of.
    reports_lost: u64,
}

/// What a data thread is made from.
pub struct Parts {
    /// Its number.
    pub index: usize,
    /// Its part of the port.
    pub fabric: Box<dyn Worker>,
    /// The longest time to look for the next event before sleeping.
    pub busy_poll: Duration,
    /// Its commands.
    pub inbox: Inbox,
    /// The other threads of the port.
    pub siblings: Vec<Mailbox>,
    /// Where reports go.
    pub reports: Sender<Report>,
    /// Woken after a report.
    pub reports_wake: std::sync::Arc<OwnedFd>,
}

impl DataThread {
    /// Sets up the epoll instance.
    ///
    /// # Errors
    /// What `epoll_create1` or `epoll_ctl` say.
    pub fn new(parts: Parts) -> io::Result<DataThread> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let mut fabric = parts.fabric;
        let has_connections = fabric.connections().is_some();
        fabric.register(epoll.as_fd(), FABRIC)?;
        epoll::add(
            &epoll,
            &*parts.inbox.wake,
            epoll::EventData::new_u64(WAKE),
            epoll::EventFlags::IN,
        )?;
        Ok(DataThread {
            index: parts.index,
            fabric,
            lanes: Lanes::default(),
            ethernet: Lanes::default(),
            management: Management::default(),
            owed: Vec::new(),
            waiter: Waiter::new(epoll, parts.busy_poll),
            inbox: parts.inbox,
            siblings: parts.siblings,
            reports: parts.reports,
            reports_wake: parts.reports_wake,
            train: OpenTrain::default(),
            buffer: vec![0; READ_MAX].into_boxed_slice(),
            translated: Vec::with_capacity(2048),
            linear: Vec::new(),
            coalescer: Coalescer::new(CoalesceConfig::default()),
            has_connections,
            connections: HashMap::new(),
            trunks: BTreeMap::new(),
            moderation: None,
            paused: false,
            muted: Vec::new(),
            busy: false,
            stop: false,
            watched: false,
            wakeups: 0,
            unserved: 0,
            reports_lost: 0,
        })
    }

    /// Runs until [`super::Command::Stop`].
    pub fn run(mut self) {
        if let Err(e) = self.serve() {
            self.report(Report::Failed(format!(
                "data thread {} cannot go on: {e}",
                self.index
            )));
        }
    }

    fn serve(&mut self) -> io::Result<()> {
        let mut events = Vec::with_capacity(32);
        while !self.stop {
            self.round(&mut events)?;
        }
        // Else peers would find out by timeouts.
        let all = self.lanes.places();
        all.into_iter().for_each(|i| self.close_all(i));
        Ok(())
    }

    /// Waits for events and handles them. `events` is only memory.
    fn round(&mut self, events: &mut Vec<epoll::Event>) -> io::Result<()> {
        let ready = self.arm()?;
        let timeout = if ready {
            Some(Timespec::default())
        } else {
            self.timeout()
        };
        self.busy = self.waiter.wait(events, timeout.as_ref())?;
        self.train.expect_more(self.busy);
        self.wakeups += 1;
        let at = nanoseconds();
        let now = milliseconds(at);
        if self.hear_fabric(events) || ready {
            self.receive(now)?;
        }
        for event in &*events {
            match event.data.u64() {
                WAKE => {
                    self.inbox.drain_wake();
                    self.commands(now);
                }
                word if word & TOKEN == FABRIC => {}
                lane => {
                    let at = At::of(lane);
                    let flags = event.flags;
                    if flags.contains(epoll::EventFlags::ERR) {
                        self.probe(at);
                    } else if self.paused && !self.fabric.has_room() {
                        self.mute(at)?;
                    } else {
                        match at {
                            At::Ip(i) => self.transmit(i, now),
                            At::Ethernet(i) => self.transmit_ethernet(i, now),
                        }
                    }
                }
            }
        }
        self.timers(at);
        self.serve_owed(now);
        self.train.flush(&mut *self.fabric);
        if self.has_connections {
            self.serve_connections(now);
            self.serve_owed(now);
            self.train.flush(&mut *self.fabric);
        }
        self.fabric.flush();
        let has_room = self.fabric.has_room();
        if !has_room {
            // What makes room comes from there.
            self.waiter.release();
        }
        self.pause(!has_room)
    }

    /// Has the fabric wake this thread, unless moderation leaves it alone for a while. True if something
    /// is there already.
    fn arm(&mut self) -> io::Result<bool> {
        Ok(!self.waiter.is_held() && self.fabric.arm()?)
    }

    /// Tells the fabric which of its descriptors are readable; whether there are any. It is polled once
    /// however many they are.
    fn hear_fabric(&mut self, events: &[epoll::Event]) -> bool {
        let mut any = false;
        for word in events.iter().map(|event| event.data.u64()) {
            if word & TOKEN == FABRIC {
                self.fabric.woken(word);
                any = true;
            }
        }
        any
    }

    /// How long to sleep: until the first core, or the fabric, wants to be woken.
    fn timeout(&mut self) -> Option<Timespec> {
        let cores = [self.lanes.settle(), self.ethernet.settle()];
        let cores = cores.into_iter().flatten();
        let fabric = self.fabric.next_deadline().map(|t| t.0);
        let first = cores
            .map(|t| t.0.saturating_mul(1_000_000))
            .chain(fabric)
            .min()?;
        let left = first.saturating_sub(nanoseconds());
        Timespec::try_from(Duration::from_nanos(left)).ok()
    }

    /// Takes what the fabric has, as much as moderation says.
    fn receive(&mut self, now: Time) -> io::Result<()> {
        if self.moderation.is_some() {
            return self.receive_moderated(now);
        }
        let depth = if self.busy { DEPTH } else { 1 };
        self.receive_batch(now, depth).map(drop)
    }

    /// Receives one batch and writes it to the TAPs. With moderation, gives the number of packets.
    fn receive_batch(&mut self, now: Time, depth: usize) -> io::Result<usize> {
        let batch = self.fabric.poll(depth)?;
        let arrived = match self.moderation {
            Some(_) => batch.datagrams().count() + batch.messages().count(),
            None => 0,
        };
        let mut receiver = receive::Receiver {
            lanes: &mut self.lanes,
            ethernet: &mut self.ethernet,
            management: &mut self.management,
            coalescer: &mut self.coalescer,
            translated: &mut self.translated,
            linear: &mut self.linear,
            siblings: &self.siblings,
            now,
            unserved: &mut self.unserved,
        };
        let news = receiver.batch(&batch);
        if news {
            // A guest that a packet waits for may be known to a sibling whose news wait in the inbox.
            self.commands(now);
            let mut n = 0;
            while let Some(i) = self.lanes.used(n) {
                self.service(i, now);
                n += 1;
            }
            let mut n = 0;
            while let Some(i) = self.ethernet.used(n) {
                self.service_ethernet(i);
                n += 1;
            }
            self.report_management();
        }
        Ok(arrived)
    }

    /// Serves the lanes that heard of their siblings. Not at once: two that wait for each other would
    /// be served within each other.
    fn serve_owed(&mut self, now: Time) {
        while let Some(i) = self.owed.pop() {
            self.service(i, now);
        }
    }

    /// Sends what a core wants sent, and frames that it no longer holds.
    fn service(&mut self, i: usize, now: Time) {
        let Some(lane) = self.lanes.get_mut(i) else {
            return;
        };
        lane.publish(&self.siblings);
        self.send_own(i, now);
        let Some(lane) = self.lanes.get_mut(i) else {
            return;
        };
        while let Some(frame) = lane.core.poll_tap(now) {
            self.translated.clear();
            self.translated.extend_from_slice(frame);
            receive::write_frame(lane, &self.translated);
        }
        loop {
            // A connection is established before what waited for it goes over it.
            let acted = self.has_connections && self.act(i, now);
            self.send_released(i, now);
            if !acted {
                break;
            }
        }
        if let Some(lane) = self.lanes.get_mut(i) {
            lane.release_ahs(&mut *self.fabric, &mut self.train);
        }
        self.tell_events(i);
    }

    /// Lets time pass, up to `at` nanoseconds.
    fn timers(&mut self, at: u64) {
        if self.fabric.next_deadline().is_some_and(|t| t.0 <= at) {
            self.fabric.handle_timeout();
        }
        let now = milliseconds(at);
        while let Some(i) = self.lanes.pop_due(now) {
            if let Some(lane) = self.lanes.get_mut(i) {
                lane.core.handle_timeout(now);
                self.service(i, now);
            }
        }
        self.ethernet_timers(now);
        let mut n = 0;
        while let Some(i) = self.lanes.used(n) {
            // Frames that all find their way call for no service, and yet may have pushed groups out
            // of the core's table.
            if let Some(lane) = self.lanes.get_mut(i) {
                lane.release_ahs(&mut *self.fabric, &mut self.train);
            }
            n += 1;
        }
    }
}

fn lane_interest(paused: bool) -> epoll::EventFlags {
    if paused {
        epoll::EventFlags::empty()
    } else {
        epoll::EventFlags::IN
    }
}

/// The monotonic clock in nanoseconds.
fn nanoseconds() -> u64 {
    let t = clock_gettime(ClockId::Monotonic);
    t.tv_sec as u64 * 1_000_000_000 + t.tv_nsec as u64
}

/// The monotonic clock in milliseconds.
pub fn now() -> Time {
    milliseconds(nanoseconds())
}

fn milliseconds(nanoseconds: u64) -> Time {
    Time(nanoseconds / 1_000_000)
}

#[cfg(test)]
mod tests;
