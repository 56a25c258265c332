//! What the daemon is made of besides its ports and interfaces.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use crossbeam_channel::{Receiver, Sender, unbounded};
use netdev::netns::{Namespace, NamespaceId};
use rtnl::{EthtoolMonitor, Group, Monitor};
use rustix::event::{EventfdFlags, eventfd};

use super::DaemonError;
use super::children::ChildCandidates;
use crate::datapath::{LinkId, Report};
use crate::fdstore::Inherited;
use crate::interface::InterfaceId;
use crate::interface::{LeftBehind, Place};

/// The host: its kernel, and its service manager.
pub(crate) struct Host {
    /// For questions in the daemon's own network namespace.
    pub netlink: rtnl::Requests,
    /// The daemon's own network namespace.
    pub home: NamespaceId,
    /// What the kernel announces.
    pub monitor: Monitor,
    /// What ethtool sets; older kernels do not announce it.
    pub ethtool: Option<EthtoolMonitor>,
    /// Queues that a service manager has kept over a restart.
    pub inherited: Inherited,
}

impl Host {
    /// Begins to listen to the kernel, and takes what the service manager has kept.
    ///
    /// # Errors
    /// What the operating system says.
    pub fn open() -> Result<Host, DaemonError> {
        let monitor = Monitor::across_namespaces(&[
            Group::Link,
            Group::Ipv4Address,
            Group::Ipv6Address,
            Group::Ipv4Multicast,
            Group::Ipv6Multicast,
            Group::Ipv4MulticastRoute,
            Group::Ipv6MulticastRoute,
            Group::Ipv4Netconf,
            Group::Ipv6Netconf,
            Group::Namespace,
        ])?;
        let home = Namespace::current()
            .and_then(|home| home.id())
            .map_err(|e| DaemonError::Os("cannot read the own network namespace", e))?;
        Ok(Host {
            netlink: rtnl::Requests::new()?,
            home,
            monitor,
            ethtool: EthtoolMonitor::new()?,
            inherited: Inherited::take(),
        })
    }

    /// Whether memberships are to be read from time to time, since the kernel does not announce them.
    pub fn polls_memberships(&self) -> bool {
        let monitor = &self.monitor;
        !(monitor.has(Group::Ipv4Multicast) && monitor.has(Group::Ipv6Multicast))
    }
}

/// What the data threads report.
pub(crate) struct Reports {
    /// Reports that were not read yet.
    pub receiver: Receiver<Report>,
    /// For the data threads.
    pub sender: Sender<Report>,
    /// Readable while there are reports.
    pub wake: Arc<OwnedFd>,
}

impl Reports {
    /// Nothing was reported yet.
    ///
    /// # Errors
    /// What the operating system says.
    pub fn new() -> Result<Reports, DaemonError> {
        let (sender, receiver) = unbounded();
        let wake = eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)
            .map_err(|e| DaemonError::Os("cannot make an eventfd", e.into()))?;
        Ok(Reports {
            receiver,
            sender,
            wake: Arc::new(wake),
        })
    }
}

/// What is to be looked at once for all changes that came together.
#[derive(Default)]
pub(crate) struct Pending {
    /// Links whose groups may be others.
    pub membership: BTreeSet<LinkId>,
    /// Interfaces on which something may be stacked now, or no longer.
    pub stacking: BTreeSet<InterfaceId>,
    /// Interfaces whose addresses may be others.
    pub addresses: BTreeSet<InterfaceId>,
    /// Where multicast routes may be others.
    pub routes: BTreeSet<Place>,
    /// Groups that were reported with the host's own Ethernet address, by itself or by others.
    pub maybe_own: BTreeSet<(LinkId, IpAddr)>,
}

/// Interfaces that the daemon did not make, and may serve.
#[derive(Default)]
pub(crate) struct Adoption {
    /// Those that a former daemon has left behind on the port that is being opened, at the start.
    pub left: Vec<LeftBehind>,
    /// TAPs that may become children.
    pub candidates: ChildCandidates,
}
