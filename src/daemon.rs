//! The control thread: makes ports and devices, follows rtnetlink, the ports and the signals, and
//! answers the control socket. It is the only thread that changes anything.

mod addresses;
mod carrier;
mod children;
mod events;
mod groups;
mod guests;
mod interfaces;
mod link;
mod mode;
mod mtu;
mod namespaces;
mod partition;
mod parts;
mod requests;
mod service;
mod settings;
mod siblings;
mod vlan;
mod vnics;

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use control::config::IpoibConfig;
use control::config::ManagementSettings;
use control::config::{PortName, VnicConfig};
use fabric::{FabricError, PortState, ProviderConfig};
use rustix::event::{PollFd, PollFlags, poll};

use crate::datapath::{Report, Snapshot};
use crate::fdstore::{self};
use crate::interface::{Events, InterfaceError};
use crate::monitor::Streams;
use crate::port::{PortId, PortSettings, Ports};
use crate::reload::Running;

pub(crate) use interfaces::{Interfaces, Payload};
use parts::{Adoption, Host, Pending, Reports};

/// Why the daemon cannot start or go on.
#[derive(Debug, thiserror::Error)]
pub enum DaemonError {
    /// The fabric refused.
    #[error(transparent)]
    Fabric(#[from] FabricError),
    /// A device could not be made.
    #[error("cannot make {name}: {source}")]
    Device {
        /// Its name.
        name: String,
        /// Why.
        source: InterfaceError,
    },
    /// rtnetlink refused.
    #[error("cannot talk to the kernel over rtnetlink: {0}")]
    Netlink(#[from] rtnl::Error),
    /// The operating system refused.
    #[error("{0}: {1}")]
    Os(&'static str, io::Error),
    /// A data thread ended.
    #[error("{0}")]
    Thread(String),
}

/// A port and the devices on it.
#[derive(Clone, Debug)]
pub struct PortSpec {
    /// The fabric port.
    pub fabric: ProviderConfig,
    /// What the configuration calls it.
    pub name: PortName,
    /// How it is served.
    pub settings: PortSettings,
    /// Who may manage its VNICs.
    pub management: ManagementSettings,
    /// Devices to make.
    pub devices: Vec<IpoibConfig>,
    /// VNICs to make.
    pub vnics: Vec<VnicConfig>,
}

/// The running daemon.
pub struct Daemon {
    pub(crate) ports: Ports,
    pub(crate) interfaces: Interfaces,
    pub(crate) host: Host,
    reports: Reports,
    pending: Pending,
    adoption: Adoption,
    /// What has happened, for those who watch.
    pub(crate) events: Events,
    /// Clients that monitor, ping or manage.
    pub(crate) streams: Streams,
    /// The configuration that is in force, where there is a file to read again.
    pub(crate) running: Option<Running>,
    next_membership_poll: Instant,
}

/// How often a port that is down is looked at without having announced anything.
const DOWN_POLL: Duration = Duration::from_secs(1);

/// How often memberships are read where the kernel does not announce them.
const MEMBERSHIP_POLL: Duration = Duration::from_millis(250);

impl Daemon {
    /// Opens all ports and makes all devices.
    ///
    /// # Errors
    /// The first thing that does not work; what was made before is undone.
    pub fn start(specs: Vec<PortSpec>) -> Result<Daemon, DaemonError> {
        let mut daemon = Daemon {
            ports: Ports::default(),
            interfaces: Interfaces::default(),
            host: Host::open()?,
            reports: Reports::new()?,
            pending: Pending::default(),
            adoption: Adoption::default(),
            events: Events::default(),
            streams: Streams::default(),
            running: None,
            next_membership_poll: Instant::now(),
        };
        for spec in specs {
            if let Err(e) = daemon.start_port(spec) {
                for (interface, payload) in daemon.interfaces.iter() {
                    interface.undo(payload.config().persist);
                }
                daemon.stop();
                return Err(e);
            }
        }
        daemon.find_children();
        daemon.host.inherited.discard_rest();
        // Again, for where interfaces have exchanged names: one's new label was the other's old one.
        // What is kept already stays as it is.
        for (interface, payload) in daemon.interfaces.iter() {
            fdstore::keep(payload.config(), &interface.tap);
        }
        Ok(daemon)
    }

    /// Opens a port and makes its devices, of what was left behind where there is something.
    fn start_port(&mut self, mut spec: PortSpec) -> Result<(), DaemonError> {
        let devices = std::mem::take(&mut spec.devices);
        let vnics = std::mem::take(&mut spec.vnics);
        let at = self.add_port(spec)?;
        self.look_for_left(at);
        let made = devices.iter().try_for_each(|d| self.add_device(at, d));
        let made = made.and_then(|()| {
            let mut vnics = vnics.iter();
            vnics.try_for_each(|vnic| self.add_vnic(at, vnic).map(drop))
        });
        let left = std::mem::take(&mut self.adoption.left);
        made?;
        left.into_iter().for_each(|left| self.adopt_left(at, left));
        Ok(())
    }

    /// Takes over what children of ours there are already, at the start.
    fn find_children(&mut self) {
        for id in self.interfaces.ip_ids(|_, ip| ip.parent.is_none()) {
            self.look_for_children(id);
        }
        self.meet_strangers();
    }

    /// The descriptors to wait for.
    pub fn wait(&self, extra: &[BorrowedFd<'_>]) -> io::Result<()> {
        let mut fds: Vec<PollFd<'_>> = Vec::with_capacity(6);
        let mut add = |fd| fds.push(PollFd::from_borrowed_fd(fd, PollFlags::IN));
        add(self.host.monitor.as_fd());
        self.host.ethtool.iter().for_each(|m| add(m.as_fd()));
        add(self.reports.wake.as_fd());
        let ports = self.ports.values();
        ports.for_each(|p| add(p.port.event_fd()));
        extra.iter().for_each(|fd| add(*fd));
        let memberships = self.host.polls_memberships().then(|| {
            self.next_membership_poll
                .saturating_duration_since(Instant::now())
        });
        let down = self
            .ports
            .values()
            .any(|p| p.port.attributes().state == PortState::Down)
            .then_some(DOWN_POLL);
        let timeout = memberships
            .into_iter()
            .chain(down)
            .chain(self.next_tick())
            .chain(self.adoption.candidates.wait())
            .chain(self.streams.wait())
            .min()
            .and_then(|d| rustix::time::Timespec::try_from(d).ok());
        match poll(&mut fds, timeout.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(e) => Err(e.into()),
        }
    }

    /// Handles what happened.
    ///
    /// # Errors
    /// When a data thread cannot go on.
    pub fn process(&mut self) -> Result<(), DaemonError> {
        for notice in self.host.monitor.notices() {
            self.netlink_event(notice);
        }
        self.process_ethtool();
        for at in self.ports.ids() {
            for event in self.ports[at].port.process() {
                self.port_event(at, event);
            }
        }
        let mut count = [0; 8];
        let _ = rustix::io::read(&*self.reports.wake, &mut count);
        // What comes meanwhile wakes us again: a flood must not keep us from everything else.
        let waiting = self.reports.receiver.len();
        for report in self.reports.receiver.clone().try_iter().take(waiting) {
            match report {
                Report::TapGone(link) => {
                    let gone = self.interfaces.by_link(link);
                    gone.into_iter().for_each(|id| self.forget(id));
                }
                Report::Ethernet(link, from, event) => self.vnic_event(link, from, event),
                Report::Management(datagram, _) => self.management_received(&datagram),
                Report::Event(id, event, round_trip) => self.core_event(id, event, round_trip),
                Report::Vlan(id, vid) => self.vlan_wanted(id, vid),
                Report::EchoRefused(id, echo, seq) => self.streams.echo_refused(id, echo, seq),
                // No device of these kinds is made yet.
                Report::Failed(why) => return Err(DaemonError::Thread(why)),
            }
        }
        self.meet_strangers();
        self.sort_out_reports();
        self.tick();
        self.sync_changed_groups();
        self.sync_siblings();
        self.streams.send_pings(&self.ports);
        if self.host.polls_memberships() && Instant::now() >= self.next_membership_poll {
            self.next_membership_poll = Instant::now() + MEMBERSHIP_POLL;
            let all = self.interfaces.iter().map(|(i, _)| i.id.link());
            self.pending.membership.extend(all);
            self.sync_changed_groups();
        }
        self.streams.take(&mut self.events);
        Ok(())
    }

    /// Asks every data thread of every port for a copy of its counters.
    pub(crate) fn snapshots(&self, tables: bool) -> BTreeMap<PortId, Vec<Snapshot>> {
        let all = self.ports.iter();
        all.map(|(id, port)| (id, port.snapshots(tables))).collect()
    }

    /// Leaves all groups, closes all endpoints and removes the TAPs that are not persistent and whose
    /// queues no service manager keeps. The carrier is left to the kernel, which takes it away with
    /// the last queue.
    pub fn stop(&mut self) {
        self.interfaces
            .ids()
            .into_iter()
            .for_each(|id| self.close(id));
        self.ports.stop();
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        self.stop();
    }
}
