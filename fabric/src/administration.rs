//! The subnet administrator of a port: memberships and paths ([`Subnet`]) with a carrier of management
//! datagrams ([`Carrier`]) and a timer.

mod life;
mod umad;

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use proto::{Gid, Instant, Lid};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::kernel::{Timer, clock, random};
use crate::mad::MAD_LEN;
use crate::port::FabricError;
use crate::subnet::{LocalPort, Subnet, SubnetEvent, SubnetInfo};
pub use umad::{Manager, UmadCarrier};

/// Maximum time to wait for answers when the port closes.
const FINISH: Duration = Duration::from_millis(500);

/// Interval of the look for groups to which nothing is sent any more.
const SWEEP: Duration = Duration::from_secs(60);

/// Delay between the first use of a subnet administrator and the subscription to its Reports: joins come
/// first.
const SUBSCRIBE_AFTER: Duration = Duration::from_secs(2);

/// Interval of the questions for the memberships of the port, if no event reports their loss.
const CHECK: Duration = Duration::from_secs(10);

/// Where a subnet administrator is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Place {
    /// At the port of the subnet manager.
    Manager {
        /// The LID of that port.
        lid: Lid,
        /// The service level of packets to that port, 0 to 15.
        sl: u8,
    },
    /// At the port with this GID.
    Port(Gid),
}

/// What a carrier delivers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Abilities {
    /// Reports.
    pub reports: bool,
    /// Single segments of tables, see [`crate::rmpp`]; otherwise whole tables.
    pub segments: bool,
    /// An event of the port when the subnet administrator has forgotten memberships.
    pub losses: bool,
}

/// Carries management datagrams to the QP1 of a subnet administrator's port, and back.
pub trait Carrier: Send {
    /// Readable while [`Carrier::receive`] has something.
    fn event_fd(&self) -> BorrowedFd<'_>;

    /// The next received datagram of subnet administration.
    ///
    /// # Errors
    /// A sentence, once: the carrier is gone, and nothing will be received any more.
    fn receive(&mut self) -> Result<Option<Vec<u8>>, FabricError>;

    /// Sends a datagram; a datagram that cannot be sent is lost. `wait`: how long answers are delivered,
    /// zero for a datagram without an answer.
    fn send(&mut self, mad: &[u8; MAD_LEN], wait: Duration);

    /// The place of the subnet administrator; `None` while there is none: datagrams are lost then.
    fn place(&self) -> Option<Place>;

    /// What the carrier delivers.
    fn abilities(&self) -> Abilities;
}

/// The subnet administrator of a port, see the module.
#[derive(Debug)]
pub struct Administration<C: ?Sized> {
    timer: Timer,
    /// The place of the administrator when the carrier was last used.
    place: Option<Place>,
    /// When to look for groups to which nothing is sent any more.
    sweep: Instant,
    /// When to ask for the memberships of the port.
    check: Instant,
    /// To ask once more, although there is no need any more.
    last_check: bool,
    /// When to subscribe to Reports.
    subscribe: Option<Instant>,
    /// Memberships and paths.
    pub subnet: Subnet,
    /// The carrier.
    pub carrier: Box<C>,
}

impl<C: Carrier + ?Sized> Administration<C> {
    /// For the port `port`, with a carrier.
    ///
    /// # Errors
    /// [`FabricError::Os`].
    pub fn over(carrier: Box<C>, port: LocalPort) -> Result<Administration<C>, FabricError> {
        let timer = Timer::new().map_err(|e| FabricError::Os {
            what: "cannot create a timer for requests to the subnet administrator".to_owned(),
            source: e.into(),
        })?;
        let now = clock();
        Ok(Administration {
            timer,
            place: None,
            sweep: now.after(SWEEP),
            check: now.after(CHECK),
            last_check: false,
            subscribe: None,
            subnet: Subnet::new(port, [random(), random()], carrier.abilities().segments),
            carrier,
        })
    }

    /// The descriptors that are readable when [`Administration::process`] has work.
    pub fn fds(&self) -> [BorrowedFd<'_>; 2] {
        [self.carrier.event_fd(), self.timer.as_fd()]
    }

    /// The subnet, for display.
    pub fn info(&self) -> SubnetInfo<'_> {
        SubnetInfo {
            administrator: self.carrier.place(),
            subnet: &self.subnet,
        }
    }

    /// Sets the attributes of the port, see [`Subnet::set_port`].
    pub fn set_port(&mut self, now: Instant, port: LocalPort) {
        let needed = self.needs_checks();
        self.subnet.set_port(now, port);
        if needed && !self.needs_checks() {
            // The last interface of the kernel has gone, and the kernel ends its memberships about now.
            self.last_check = true;
            self.check = now.after(CHECK);
        }
    }

    /// Subscribes to Reports: the subnet administrator may have forgotten the subscriptions.
    pub fn subscribe_soon(&mut self, now: Instant) {
        if self.carrier.abilities().reports && self.carrier.place().is_some() {
            self.subscribe = Some(now.after(SUBSCRIBE_AFTER));
        }
    }

    /// Receives, handles timeouts, sends. Returns the events.
    ///
    /// # Errors
    /// As [`Carrier::receive`].
    pub fn process(&mut self, now: Instant) -> Result<Vec<SubnetEvent>, FabricError> {
        self.timer.has_expired();
        while let Some(mad) = self.carrier.receive()? {
            self.subnet.receive(now, &mad);
        }
        let place = self.carrier.place();
        if std::mem::replace(&mut self.place, place) != place {
            self.subscribe_soon(now);
        }
        if self.subscribe.is_some_and(|at| at <= now) {
            self.subscribe = None;
            self.subnet.subscribe(now);
        }
        if self.check <= now {
            self.check = now.after(CHECK);
            if place.is_some() && self.needs_checks() {
                self.last_check = false;
                self.subnet.check(now);
            }
        }
        let due = self.subnet.next_deadline().is_some_and(|at| at <= now);
        if due || self.sweep <= now {
            self.sweep = now.after(SWEEP);
            self.subnet.handle_timeout(now);
        }
        self.transmit();
        let events = std::iter::from_fn(|| self.subnet.poll_event()).collect();
        if let Err(e) = self.set_timer(now) {
            log::error!("cannot set the timer of requests to the subnet administrator: {e}");
        }
        Ok(events)
    }

    /// Leaves all groups, and waits for the answers for a short time: the port closes.
    pub fn finish(&mut self) {
        self.subnet.leave_all(clock());
        let end = clock().after(FINISH);
        loop {
            let now = clock();
            let processed = self.process(now);
            let is_idle = self.carrier.place().is_none() || self.subnet.is_idle();
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

    /// The kernel's interface on the port may end memberships without an event.
    fn needs_checks(&self) -> bool {
        let kernel = !self.subnet.port().kernel_pkeys.is_empty();
        !self.carrier.abilities().losses || kernel || self.last_check
    }

    fn transmit(&mut self) {
        while let Some(mad) = self.subnet.poll_transmit() {
            if self.carrier.place().is_some() {
                let wait = self.subnet.patience(&mad);
                self.carrier.send(&mad, wait);
            }
        }
    }

    fn set_timer(&self, now: Instant) -> io::Result<()> {
        let check = self.needs_checks().then_some(self.check);
        let next = [self.subnet.next_deadline(), self.subscribe, check];
        let Some(next) = next.into_iter().flatten().min() else {
            return Ok(());
        };
        // A time of zero would stop the timer.
        let wait = next.since(now).max(Duration::from_millis(1));
        self.timer.set(wait, Duration::ZERO)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;
    use std::os::fd::OwnedFd;

    use proto::{IbMtu, PKey, QKey};
    use rustix::event::{EventfdFlags, eventfd};

    use super::*;
    use crate::subnet::tests::administrator::Administrator;
    use crate::subnet::tests::{broadcast, port_gid};

    /// A carrier to an administrator that answers at once.
    struct Simulated {
        fd: OwnedFd,
        sa: Administrator,
        answers: VecDeque<Vec<u8>>,
    }

    impl Carrier for Simulated {
        fn event_fd(&self) -> BorrowedFd<'_> {
            self.fd.as_fd()
        }

        fn receive(&mut self) -> Result<Option<Vec<u8>>, FabricError> {
            Ok(self.answers.pop_front())
        }

        fn send(&mut self, mad: &[u8; MAD_LEN], _: Duration) {
            let answers = self.sa.answer(0, mad).into_iter();
            self.answers.extend(answers.map(|(_, mad)| mad.to_vec()));
        }

        fn place(&self) -> Option<Place> {
            Some(Place::Port(port_gid(1)))
        }

        fn abilities(&self) -> Abilities {
            Abilities {
                reports: false,
                segments: true,
                losses: true,
            }
        }
    }

    /// The kernel ends memberships of the port when its interface vanishes.
    #[test]
    fn memberships_are_checked_once_more_after_the_kernels_last_interface() {
        let port = |kernel_pkeys| LocalPort {
            gid: port_gid(0),
            mtu: IbMtu::B4096,
            kernel_pkeys,
        };
        let carrier = Box::new(Simulated {
            fd: eventfd(0, EventfdFlags::CLOEXEC).unwrap(),
            sa: Administrator::new(1),
            answers: VecDeque::new(),
        });
        let local = port(vec![PKey::DEFAULT]);
        let mut administration = Administration::over(carrier, local).unwrap();
        let mut now = clock();
        let (pkey, qkey) = (PKey::DEFAULT, QKey::IPOIB_DEFAULT);
        administration.subnet.join(now, broadcast(), pkey, qkey);
        let mut run = |administration: &mut Administration<Simulated>, seconds: u32| {
            let mut forgotten = 0;
            for _ in 0..seconds {
                now = now.after(Duration::from_secs(1));
                let events = administration.process(now).unwrap();
                let is_loss = |event: &&SubnetEvent| **event == SubnetEvent::Forgotten;
                forgotten += events.iter().filter(is_loss).count();
            }
            (now, forgotten)
        };
        let (at, forgotten) = run(&mut administration, 9);
        assert_eq!(forgotten, 0);
        administration.set_port(at, port(Vec::new()));
        administration.carrier.sa.restart();
        assert_eq!(run(&mut administration, 8).1, 0);
        assert_eq!(run(&mut administration, 40).1, 1);
    }
}
