//! The subnet administrator of a port, reached through umad: memberships and paths ([`Subnet`]) with a
//! carrier ([`Umad`]) and a timer.

mod life;

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use proto::{Instant, Lid};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, timerfd_create, timerfd_settime,
};

use crate::kernel::{clock, random};
use crate::port::FabricError;
use crate::subnet::{LocalPort, Subnet, SubnetEvent, SubnetInfo};
use crate::umad::{Agent, AgentId, To, Umad, UmadError};
use life::Life;

/// How long the kernel delivers answers to a request. Longer than all tries of [`Subnet`], so that it
/// delivers late answers, too.
const ANSWER: Duration = Duration::from_secs(10);

/// Maximum time to wait for answers when the port closes.
const FINISH: Duration = Duration::from_millis(500);

/// Interval of the look for groups to which nothing is sent any more.
const SWEEP: Duration = Duration::from_secs(60);

/// Delay between the first use of a subnet manager and the subscription to its Reports: joins come first.
const SUBSCRIBE_AFTER: Duration = Duration::from_secs(2);

/// The subnet manager's port, where the subnet administrator is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Manager {
    /// Its LID.
    pub lid: Lid,
    /// The service level of packets to it.
    pub sl: u8,
    /// The place of the default partition in the port's P_Key table.
    pub pkey_index: u16,
}

/// The subnet administrator of a port.
#[derive(Debug)]
pub struct Administration {
    umad: Arc<Umad>,
    /// Watches the subnet manager if the port has no events.
    life: Option<Life>,
    requests: AgentId,
    timer: OwnedFd,
    manager: Option<Manager>,
    /// When to look for groups to which nothing is sent any more.
    sweep: Instant,
    /// When to subscribe to Reports.
    subscribe: Option<Instant>,
    /// This program receives the port's Reports.
    has_reports: bool,
    /// Memberships and paths.
    pub subnet: Subnet,
}

impl Administration {
    /// Opens umad on a port of an RDMA device.
    ///
    /// # Errors
    /// [`FabricError::Unusable`] that says what is missing and what to do; [`FabricError::Os`].
    pub fn open(device: &str, number: u8, port: LocalPort) -> Result<Administration, FabricError> {
        let umad = Umad::open(device, number);
        Administration::over(umad.map_err(unusable)?, port)
    }

    /// With an open umad port.
    ///
    /// # Errors
    /// As [`Administration::open`].
    pub fn over(umad: Umad, port: LocalPort) -> Result<Administration, FabricError> {
        let simulated = umad.is_simulated();
        let agent = Agent {
            rmpp_version: u8::from(!simulated),
            ..Agent::SA
        };
        let requests = umad.register(agent).map_err(unusable)?;
        let reports = umad.register(Agent {
            methods: Agent::REPORTS.methods,
            ..agent
        });
        if let Err(e) = &reports {
            log::warn!("{}: lost groups are noticed late: {e}", umad.name());
        }
        let life = match simulated {
            true => Some(Life::new(umad.register(Agent::SM).map_err(unusable)?)),
            false => None,
        };
        let timer = timerfd_create(
            TimerfdClockId::Monotonic,
            TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK,
        );
        let timer = timer.map_err(|e| FabricError::Os {
            what: format!("{}: cannot create a timer", umad.name()),
            source: e.into(),
        })?;
        Ok(Administration {
            umad: Arc::new(umad),
            life,
            requests,
            timer,
            manager: None,
            sweep: clock().after(SWEEP),
            subscribe: None,
            has_reports: reports.is_ok(),
            subnet: Subnet::new(port, [random(), random()], simulated),
        })
    }

    /// The descriptors that are readable when [`Administration::process`] has work.
    pub fn fds(&self) -> [BorrowedFd<'_>; 2] {
        [self.umad.event_fd(), self.timer.as_fd()]
    }

    /// The open umad port.
    pub const fn umad(&self) -> &Arc<Umad> {
        &self.umad
    }

    /// Sets the subnet manager; `None` while there is none: requests time out then.
    pub fn set_manager(&mut self, now: Instant, manager: Option<Manager>) {
        if self.manager != manager {
            self.manager = manager;
            self.subscribe_soon(now);
        }
    }

    /// The subnet, for display.
    pub fn info(&self) -> SubnetInfo<'_> {
        SubnetInfo {
            sm_lid: self.manager.map(|manager| manager.lid),
            sm_sl: self.manager.map_or(0, |manager| manager.sl),
            subnet: &self.subnet,
        }
    }

    /// Subscribes to Reports: the subnet administrator may have forgotten the subscriptions.
    pub fn subscribe_soon(&mut self, now: Instant) {
        if self.has_reports && self.manager.is_some() {
            self.subscribe = Some(now.after(SUBSCRIBE_AFTER));
        }
    }

    /// Receives, handles timeouts, sends. Returns the events.
    ///
    /// # Errors
    /// The device is gone.
    pub fn process(&mut self, now: Instant) -> Result<Vec<SubnetEvent>, UmadError> {
        let mut count = [0; 8];
        let _ = rustix::io::read(&self.timer, &mut count);
        while let Some(received) = self.umad.receive()? {
            // The kernel returns a request without an answer; `Subnet` has its own timeouts.
            match &mut self.life {
                _ if received.status != 0 => {}
                Some(life) if life.agent == received.agent => life.receive(&received.mad),
                _ => self.subnet.receive(now, &received.mad),
            }
        }
        if self.subscribe.is_some_and(|at| at <= now) {
            self.subscribe = None;
            self.subnet.subscribe(now);
        }
        let due = self.subnet.next_deadline().is_some_and(|at| at <= now);
        if due || self.sweep <= now {
            self.sweep = now.after(SWEEP);
            self.subnet.handle_timeout(now);
        }
        self.transmit();
        let events = std::iter::from_fn(|| self.subnet.poll_event()).collect();
        if let Err(e) = self.set_timer(now) {
            log::error!("{}: cannot set a timer: {e}", self.umad.name());
        }
        Ok(events)
    }

    /// Asks the subnet manager of a simulated port for a sign of life: once a second. Returns whether the
    /// manager has started again, and so has forgotten all registrations.
    pub fn watch_manager(&mut self) -> bool {
        let Some(life) = &mut self.life else {
            return false;
        };
        if let Some(manager) = self.manager {
            let mad = life.ask(manager.lid);
            let to = To::smi(manager.lid);
            if let Err(e) = self.umad.send(life.agent, &to, &mad, ANSWER, 0) {
                log::debug!("{e}");
            }
        }
        life.take_restart()
    }

    /// Sends the open requests, and waits for their answers for a short time: the port closes, and has left
    /// its groups.
    pub fn finish(&mut self) {
        self.subnet.leave_all(clock());
        let end = clock().after(FINISH);
        loop {
            let now = clock();
            let processed = self.process(now);
            let is_idle = self.manager.is_none() || self.subnet.is_idle();
            if is_idle || processed.is_err() || now >= end {
                return;
            }
            let mut ready = self
                .fds()
                .map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN));
            let left = Timespec::try_from(end.since(now)).unwrap_or_default();
            if poll(&mut ready, Some(&left)).is_err() {
                return;
            }
        }
    }

    fn transmit(&mut self) {
        while let Some(mad) = self.subnet.poll_transmit() {
            let Some(manager) = self.manager else {
                continue;
            };
            let to = To {
                pkey_index: manager.pkey_index,
                ..To::gsi(manager.lid, manager.sl)
            };
            // Answers to Reports have no answer.
            let is_answer = mad[3] & crate::mad::method::RESPONSE != 0;
            let wait = if is_answer { Duration::ZERO } else { ANSWER };
            if let Err(e) = self.umad.send(self.requests, &to, &mad, wait, 0) {
                log::debug!("{e}");
            }
        }
    }

    fn set_timer(&self, now: Instant) -> io::Result<()> {
        let next = [self.subnet.next_deadline(), self.subscribe];
        let Some(next) = next.into_iter().flatten().min() else {
            return Ok(());
        };
        // A time of zero would stop the timer.
        let wait = next.since(now).max(Duration::from_millis(1));
        let at = Itimerspec {
            it_interval: Timespec::default(),
            it_value: Timespec::try_from(wait).map_err(io::Error::other)?,
        };
        timerfd_settime(&self.timer, TimerfdTimerFlags::empty(), &at)?;
        Ok(())
    }
}

fn unusable(e: UmadError) -> FabricError {
    FabricError::Unusable(e.to_string())
}
