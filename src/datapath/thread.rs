//! A data thread: its state and its loop.

mod commands;
mod moderation;
mod pause;
mod receive;
mod reports;

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use crossbeam_channel::Sender;
use fabric::{Room, TOKEN, Worker};
use ipoib::Time;
use netdev::coalesce::{CoalesceConfig, Coalescer};
use netdev::tap::READ_MAX;
use rustix::event::epoll;
use rustix::time::{ClockId, Timespec, clock_gettime};

use super::allowed::Allowed;
use super::command::Report;
use super::ethernet::Ethernet;
use super::handle::{Inbox, Mailbox};
use super::ip::Ip;
use super::train::OpenTrain;
use super::wait::Waiter;
use moderation::Moderated;
#[cfg(test)]
pub(super) use receive::Receiver;
pub(super) use reports::Control;
#[cfg(test)]
pub(super) use reports::{REPORTS_MAX, may_wait};

/// Epoll data words.
const WAKE: u64 = 0;
const FABRIC: u64 = 1;
const LANES: u64 = 2;
const ETHERNET_LANES: u64 = 1 << 32;

/// Maximum number of frames read from one TAP queue in a round.
pub(super) const BURST: usize = 64;

/// Maximum depth of one poll of the fabric (see [`Worker::poll`]).
const DEPTH: usize = 8;

/// The lane of a TAP, by its place.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum At {
    /// The lane of an IP link.
    Ip(usize),
    /// The lane of a VNIC.
    Ethernet(usize),
}

impl At {
    /// The epoll data word of the lane's TAP.
    fn token(self) -> epoll::EventData {
        epoll::EventData::new_u64(match self {
            At::Ip(i) => LANES + i as u64,
            At::Ethernet(i) => ETHERNET_LANES + i as u64,
        })
    }

    /// The lane of a data word other than [`WAKE`] and the fabric's.
    fn of(word: u64) -> At {
        match word.checked_sub(ETHERNET_LANES) {
            Some(i) => At::Ethernet(i as usize),
            None => At::Ip(word.saturating_sub(LANES) as usize),
        }
    }
}

/// A data thread.
pub struct DataThread {
    pub(super) io: Io,
    pub(super) ip: Ip,
    pub(super) ethernet: Ethernet,
    pub(super) scratch: Scratch,
    pub(super) control: Control,
    pub(super) pace: Pace,
}

/// The fabric and the open train.
pub(super) struct Io {
    pub fabric: Box<dyn Worker>,
    pub train: OpenTrain,
    /// Whether the provider has connections.
    pub has_connections: bool,
    /// Datagrams and messages for endpoints without a lane.
    pub unserved: u64,
    /// Who may send datagrams and ask for connections.
    pub allowed: Allowed,
}

impl Io {
    /// Sends the open train.
    pub fn flush_train(&mut self) {
        self.train.flush(&mut *self.fabric);
    }
}

/// Memory for one packet or batch at a time.
pub(super) struct Scratch {
    /// A frame read from a TAP.
    pub buffer: Box<[u8]>,
    /// A frame that a core wrote.
    pub translated: Vec<u8>,
    /// A contiguous copy of a message.
    pub linear: Vec<u8>,
    pub coalescer: Coalescer,
}

impl Default for Scratch {
    fn default() -> Scratch {
        Scratch {
            buffer: vec![0; READ_MAX].into_boxed_slice(),
            translated: Vec::with_capacity(2048),
            linear: Vec::new(),
            coalescer: Coalescer::new(CoalesceConfig::default()),
        }
    }
}

/// When the thread polls and reads.
pub(super) struct Pace {
    pub waiter: Waiter,
    /// Events were pending when the last round ended. A busy round handles all pending packets. Other rounds
    /// handle one frame or train, so that a single request is answered without a search for a second one.
    pub busy: bool,
    /// What the fabric had room for at the end of the last round.
    pub room: Room,
    /// Lanes whose TAPs are removed from the wait while the fabric has too little room for them: those with
    /// frames.
    pub muted: Vec<At>,
    /// Number of pauses that have ended, by the room then.
    pub pauses: [usize; 3],
    /// Completion moderation, if the thread does it.
    moderation: Option<Moderated>,
    wakeups: u64,
}

/// The parts of a new data thread.
pub struct Parts {
    /// The thread's number.
    pub index: usize,
    /// The thread's part of the port.
    pub fabric: Box<dyn Worker>,
    /// The longest time to poll for the next event before sleeping.
    pub busy_poll: Duration,
    /// The thread's commands.
    pub inbox: Inbox,
    /// The mailboxes of the port's other threads.
    pub replicas: Vec<Mailbox>,
    /// Receives the reports.
    pub reports: Sender<Report>,
    /// Eventfd that wakes the control thread after a report.
    pub reports_wake: std::sync::Arc<OwnedFd>,
}

impl DataThread {
    /// Creates a data thread and its epoll instance.
    ///
    /// # Errors
    /// Errors of `epoll_create1` and `epoll_ctl`.
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
            io: Io {
                fabric,
                train: OpenTrain::default(),
                has_connections,
                unserved: 0,
                allowed: Allowed::default(),
            },
            ip: Ip::default(),
            ethernet: Ethernet::default(),
            scratch: Scratch::default(),
            control: Control {
                index: parts.index,
                inbox: parts.inbox,
                replicas: parts.replicas,
                reports: parts.reports,
                reports_wake: parts.reports_wake,
                reports_lost: 0,
                watched: false,
                stop: false,
            },
            pace: Pace {
                waiter: Waiter::new(epoll, parts.busy_poll),
                busy: false,
                room: Room::Messages,
                muted: Vec::new(),
                pauses: [0; 3],
                moderation: None,
                wakeups: 0,
            },
        })
    }

    /// Runs until [`super::Command::Stop`].
    pub fn run(mut self) {
        if let Err(e) = self.serve() {
            self.control.report(Report::Failed(format!(
                "data thread {} failed: {e}",
                self.control.index
            )));
        }
    }

    fn serve(&mut self) -> io::Result<()> {
        let mut events = Vec::with_capacity(32);
        while !self.control.stop {
            self.round(&mut events)?;
        }
        // Notify the peers, which would otherwise have to wait for timeouts.
        let all = self.ip.lanes.places();
        all.into_iter().for_each(|i| self.close_all(i));
        Ok(())
    }

    /// Waits for events and handles them. `events` provides memory only.
    pub(super) fn round(&mut self, events: &mut Vec<epoll::Event>) -> io::Result<()> {
        let ready = self.arm()?;
        let timeout = if ready {
            Some(Timespec::default())
        } else {
            self.timeout()
        };
        self.pace.busy = self.pace.waiter.wait(events, timeout.as_ref())?;
        self.io.train.expect_more(self.pace.busy);
        self.pace.wakeups += 1;
        let at = nanoseconds();
        let now = milliseconds(at);
        if self.notify_fabric(events) || ready {
            self.receive(now)?;
        }
        for event in &*events {
            match event.data.u64() {
                WAKE => {
                    self.control.inbox.drain_wake();
                    self.commands(now);
                }
                word if word & TOKEN == FABRIC => {}
                lane => {
                    let at = At::of(lane);
                    let flags = event.flags;
                    if flags.contains(epoll::EventFlags::ERR) {
                        self.probe(at);
                    } else if !self.mute(at)? {
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
        self.io.flush_train();
        if self.io.has_connections {
            self.serve_connections(now);
            self.serve_owed(now);
            self.io.flush_train();
        }
        self.io.fabric.flush();
        let room = self.io.fabric.room();
        if room != Room::Messages {
            // Events of the fabric make room.
            self.pace.waiter.release();
        }
        self.pause(room)
    }

    /// Arms the fabric's wake-up, except during a hold. True if arrivals are already pending.
    fn arm(&mut self) -> io::Result<bool> {
        Ok(!self.pace.waiter.is_held() && self.io.fabric.arm()?)
    }

    /// Reports readable descriptors of the fabric to the fabric; true if there are any. The fabric is polled
    /// once for all of them.
    fn notify_fabric(&mut self, events: &[epoll::Event]) -> bool {
        let mut any = false;
        for word in events.iter().map(|event| event.data.u64()) {
            if word & TOKEN == FABRIC {
                self.io.fabric.woken(word);
                any = true;
            }
        }
        any
    }

    /// How long to sleep: until the first deadline of the cores and the fabric.
    pub(super) fn timeout(&mut self) -> Option<Timespec> {
        let cores = [self.ip.lanes.settle(), self.ethernet.lanes.settle()];
        let cores = cores.into_iter().flatten();
        let fabric = self.io.fabric.next_deadline().map(|t| t.0);
        let first = cores
            .map(|t| t.0.saturating_mul(1_000_000))
            .chain(fabric)
            .min()?;
        let left = first.saturating_sub(nanoseconds());
        Timespec::try_from(Duration::from_nanos(left)).ok()
    }

    /// Handles timers up to `at` nanoseconds.
    fn timers(&mut self, at: u64) {
        if self.io.fabric.next_deadline().is_some_and(|t| t.0 <= at) {
            self.io.fabric.handle_timeout();
        }
        let now = milliseconds(at);
        while let Some(i) = self.ip.lanes.pop_due(now) {
            if let Some(lane) = self.ip.lanes.get_mut(i) {
                lane.core.handle_timeout(now);
                self.service(i, now);
            }
        }
        self.ethernet_timers(now);
        let Io { fabric, train, .. } = &mut self.io;
        self.ip.lanes.release_ahs(&mut **fabric, train);
        self.ethernet.lanes.release_ahs(&mut **fabric, train);
    }
}

fn lane_interest(muted: bool) -> epoll::EventFlags {
    if muted {
        epoll::EventFlags::empty()
    } else {
        epoll::EventFlags::IN
    }
}

/// The monotonic clock in nanoseconds.
pub(super) fn nanoseconds() -> u64 {
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
