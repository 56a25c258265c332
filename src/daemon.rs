//! The control thread: waits for the kernel, the ports, the data threads and the clients, and dispatches
//! their events to [`Interfaces`]. No other thread changes an interface.

pub(crate) mod notify;
mod requests;

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use control::api::ApiError;
use control::config::{Config, Source};
use fabric::PortState;
use proto::Time;
use rustix::event::{PollFd, PollFlags, poll};

use crate::datapath::Report;
use crate::fdstore;
use crate::interface::{InterfaceError, Patience};
use crate::interfaces::{Context, Interfaces, children, management, vlans};
use crate::monitor::Streams;
use crate::port::PortSpec;
use crate::status::View;

pub use crate::interfaces::DaemonError;

/// A configuration read from a file.
#[derive(Clone, Debug)]
pub struct Running {
    /// The file and the command line.
    pub source: Source,
    /// The configuration in force: that of the file without the refused changes.
    pub config: Config,
}

/// The running daemon.
pub struct Daemon {
    /// The interfaces in service.
    pub(crate) interfaces: Interfaces,
    /// Ports, host, pending work.
    cx: Context,
    /// Clients that monitor or ping.
    streams: Streams,
    /// The configuration in force, if read from a file.
    pub(crate) running: Option<Running>,
    next_membership_poll: Instant,
    watchdog: Option<notify::Watchdog>,
}

/// How often a port that is down is polled.
const DOWN_POLL: Duration = Duration::from_secs(1);

/// How often group memberships are read if the kernel does not announce them.
const MEMBERSHIP_POLL: Duration = Duration::from_millis(250);

impl Daemon {
    /// Opens all ports and creates all interfaces.
    ///
    /// # Errors
    /// The first error. Everything created before is removed.
    pub fn start(specs: Vec<PortSpec>) -> Result<Daemon, DaemonError> {
        let mut daemon = Daemon {
            interfaces: Interfaces::default(),
            cx: Context::open()?,
            streams: Streams::default(),
            running: None,
            next_membership_poll: Instant::now(),
            watchdog: notify::Watchdog::of_manager(),
        };
        let mut left_out = None;
        let mut specs = specs.into_iter();
        let mut started = specs.try_for_each(|spec| daemon.start_port(spec, &mut left_out));
        let may_create = daemon
            .cx
            .ports
            .values()
            .any(|p| p.management_settings.vnic_create);
        if started.is_ok() && daemon.interfaces.iter().next().is_none() && !may_create {
            started = left_out.map_or(Ok(()), Err);
        }
        if let Err(e) = started {
            for (interface, payload) in daemon.interfaces.iter() {
                interface.undo(payload.config().persist);
            }
            daemon.stop();
            return Err(e);
        }
        daemon.find_children();
        daemon.cx.host.inherited.discard_rest();
        // Interfaces may have exchanged names: the new label of one was the old label of the other. The
        // service manager ignores queues that it already keeps.
        for (interface, payload) in daemon.interfaces.iter() {
            fdstore::keep(payload.config(), &interface.tap);
        }
        // Packets have waited in stored sockets until their interfaces exist.
        daemon.cx.ports.set_receiving(true);
        daemon.interfaces.remove_neighbours(&mut daemon.cx);
        Ok(daemon)
    }

    /// Opens a port and creates its interfaces. Reuses left interfaces. Leaves out interfaces that fail in another
    /// namespace, and keeps the first of these errors.
    fn start_port(
        &mut self,
        mut spec: PortSpec,
        left_out: &mut Option<DaemonError>,
    ) -> Result<(), DaemonError> {
        let ipoibs = std::mem::take(&mut spec.ipoib);
        let vnics = std::mem::take(&mut spec.vnics);
        let at = self.interfaces.add_port(&mut self.cx, spec)?;
        children::look_for_left(&mut self.cx, at);
        let mut leave_out = |made| match made {
            // Root of a container must not keep the daemon from serving the other interfaces. The children of such an
            // interface lack their parent.
            Err(
                e @ DaemonError::Interface {
                    source: InterfaceError::Elsewhere(..) | InterfaceError::NoParent(_),
                    ..
                },
            ) => {
                log::error!("{e}; when this is corrected, reload the configuration");
                left_out.get_or_insert(e);
                Ok(())
            }
            made => made,
        };
        let made = ipoibs
            .iter()
            .try_for_each(|ipoib| leave_out(self.interfaces.add_ipoib(&mut self.cx, at, ipoib)));
        let made = made.and_then(|()| {
            let mut vnics = vnics.iter();
            vnics.try_for_each(|vnic| {
                leave_out(self.interfaces.add_vnic(&mut self.cx, at, vnic).map(drop))
            })
        });
        let left = std::mem::take(&mut self.cx.adoption.left);
        made?;
        left.into_iter()
            .for_each(|left| children::adopt_left(&mut self.interfaces, &mut self.cx, at, left));
        Ok(())
    }

    /// Takes over existing children at the start.
    fn find_children(&mut self) {
        self.interfaces.look_around(&mut self.cx, |_, _| true);
        children::adopt_due(&mut self.interfaces, &mut self.cx);
    }

    /// Waits for events of the kernel, ports, data threads and `extra`, or for the next timer.
    ///
    /// # Errors
    /// Errors of `poll(2)`.
    pub fn wait(&mut self, extra: &[BorrowedFd<'_>]) -> io::Result<()> {
        vlans::sync(&mut self.interfaces, &mut self.cx);
        let mut fds: Vec<PollFd<'_>> = Vec::with_capacity(6);
        let mut add = |fd| fds.push(PollFd::from_borrowed_fd(fd, PollFlags::IN));
        add(self.cx.host.monitor.as_fd());
        self.cx.host.ethtool.iter().for_each(|m| add(m.as_fd()));
        add(self.cx.reports.wake.as_fd());
        let ports = self.cx.ports.values();
        ports.for_each(|p| add(p.port.event_fd()));
        extra.iter().for_each(|fd| add(*fd));
        let memberships = self.cx.host.polls_memberships().then(|| {
            self.next_membership_poll
                .saturating_duration_since(Instant::now())
        });
        let down = self
            .cx
            .ports
            .values()
            .any(|p| p.port.attributes().state == PortState::Down)
            .then_some(DOWN_POLL);
        let timeout = memberships
            .into_iter()
            .chain(down)
            .chain(self.interfaces.next_tick())
            .chain(self.cx.adoption.candidates.wait())
            .chain(self.streams.wait())
            .chain(self.watchdog.as_ref().map(notify::Watchdog::wait))
            .min()
            .and_then(|d| rustix::time::Timespec::try_from(d).ok());
        match poll(&mut fds, timeout.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(e) => Err(e.into()),
        }
    }

    /// Handles all events since the last call.
    ///
    /// # Errors
    /// [`DaemonError::Thread`] if a data thread failed.
    pub fn process(&mut self) -> Result<(), DaemonError> {
        self.cx.host.patience = Patience::default();
        for notice in self.cx.host.monitor.notices() {
            self.interfaces.netlink_event(&mut self.cx, notice);
        }
        self.interfaces.process_ethtool(&mut self.cx);
        for at in self.cx.ports.ids() {
            for event in self.cx.ports[at].port.process() {
                self.interfaces.port_event(&mut self.cx, at, event);
            }
        }
        let mut count = [0; 8];
        let _ = rustix::io::read(&*self.cx.reports.wake, &mut count);
        // Later reports wake this thread again: a flood must not block all other work.
        let waiting = self.cx.reports.receiver.len();
        for report in self.cx.reports.receiver.clone().try_iter().take(waiting) {
            match report {
                Report::TapGone(link) => {
                    let gone = self.interfaces.by_link(link);
                    gone.into_iter()
                        .for_each(|id| self.interfaces.forget(&mut self.cx, id));
                }
                Report::Ethernet(link, from, event) => {
                    self.interfaces.vnic_event(&mut self.cx, link, from, event)
                }
                Report::Management(datagram, _) => {
                    management::received(&mut self.interfaces, &mut self.cx, &datagram)
                }
                Report::Event(id, event, round_trip) => {
                    if let Some(interface) = self.interfaces.core_event(&mut self.cx, id, &event) {
                        let parts = (&self.cx.ports, &mut self.cx.events);
                        self.streams
                            .core_event(interface, &event, round_trip, parts);
                    }
                }
                Report::Vlan(id, vid) => vlans::wanted(&mut self.interfaces, &mut self.cx, id, vid),
                Report::EchoRefused(id, echo, seq) => self.streams.echo_refused(id, echo, seq),
                Report::Failed(why) => return Err(DaemonError::Thread(why)),
            }
        }
        children::adopt_due(&mut self.interfaces, &mut self.cx);
        self.interfaces.find_own_reports(&mut self.cx);
        self.interfaces.tick(&mut self.cx);
        self.interfaces.remove_neighbours(&mut self.cx);
        self.interfaces.sync_changed_groups(&mut self.cx);
        self.interfaces.sync_siblings(&self.cx.ports);
        self.end_pings();
        self.streams.send_pings(&self.cx.ports);
        if self.cx.host.polls_memberships() && Instant::now() >= self.next_membership_poll {
            self.next_membership_poll = Instant::now() + MEMBERSHIP_POLL;
            let all = self.interfaces.iter().map(|(i, _)| i.id.link());
            self.cx.pending.membership.extend(all);
            self.interfaces.sync_changed_groups(&mut self.cx);
        }
        self.streams.take(&mut self.cx.events);
        if let Some(watchdog) = &mut self.watchdog {
            watchdog.turn(&self.cx.ports);
        }
        Ok(())
    }

    /// Ends the pings through closed interfaces.
    fn end_pings(&mut self) {
        for link in self.cx.pending.closed.drain(..) {
            self.streams.interface_closed(link);
        }
    }

    /// The daemon for requests that change nothing.
    pub(crate) fn view(&self) -> View<'_> {
        View {
            interfaces: &self.interfaces,
            ports: &self.cx.ports,
            home: self.cx.host.home,
        }
    }

    /// Counters and states in the OpenMetrics text format.
    ///
    /// # Errors
    /// [`ApiError::Busy`]: the data threads did not answer.
    pub fn metrics(&self) -> Result<String, ApiError> {
        self.view().metrics()
    }

    /// Leaves all groups, closes all endpoints and removes TAPs, except persistent ones and those whose
    /// queues a service manager keeps. The kernel removes the carrier with the last queue.
    pub fn stop(&mut self) {
        // The next daemon receives the packets that arrive from now on, if a service manager keeps the sockets.
        self.cx.ports.set_receiving(false);
        self.interfaces
            .write_due_aliases(&mut self.cx, Time(u64::MAX));
        self.interfaces
            .ids()
            .into_iter()
            .for_each(|id| self.interfaces.close(&mut self.cx, id));
        self.cx.ports.stop();
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        self.stop();
    }
}
