//! The context for operations on interfaces: ports, host, pending work.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use crossbeam_channel::{Receiver, Sender, unbounded};
use fabric::FabricError;
use netdev::netns::{Namespace, NamespaceId};
use rtnl::{EthtoolMonitor, Group, Monitor};
use rustix::event::{EventfdFlags, eventfd};

use super::children::ChildCandidates;
use crate::datapath::Report;
use crate::ethernet::Clients;
use crate::fdstore::Inherited;
use crate::interface::{Events, InterfaceError, LeftBehind, Patience, Pending};
use crate::port::Ports;

/// Why the daemon cannot start or go on.
#[derive(Debug, thiserror::Error)]
pub enum DaemonError {
    /// Error of the fabric.
    #[error(transparent)]
    Fabric(#[from] FabricError),
    /// An interface could not be created.
    #[error("cannot create {name}: {source}")]
    Interface {
        /// Interface name.
        name: String,
        /// The cause.
        source: InterfaceError,
    },
    /// Error of rtnetlink.
    #[error("rtnetlink failed: {0}")]
    Netlink(#[from] rtnl::Error),
    /// Error of the operating system.
    #[error("{0}: {1}")]
    Os(&'static str, io::Error),
    /// A data thread failed.
    #[error("{0}")]
    Thread(String),
}

/// The ports, the host, and pending work.
pub struct Context {
    /// The fabric ports.
    pub ports: Ports,
    /// The host.
    pub host: Host,
    /// Reports of the data threads.
    pub reports: Reports,
    /// Work for the end of the loop, done once for all changes.
    pub pending: Pending,
    /// Interfaces that the daemon did not create and may serve.
    pub adoption: Adoption,
    /// Events for the clients that monitor.
    pub events: Events,
    /// Ethernet Managers that are clients of the control socket.
    pub managers: Clients,
}

impl Context {
    /// Creates a context without ports. Opens the monitor sockets and takes the queues that the service
    /// manager has kept.
    ///
    /// # Errors
    /// Errors of the operating system.
    pub fn open() -> Result<Context, DaemonError> {
        Ok(Context {
            ports: Ports::default(),
            host: Host::open()?,
            reports: Reports::new()?,
            pending: Pending::default(),
            adoption: Adoption::default(),
            events: Events::default(),
            managers: Clients::default(),
        })
    }
}

/// The host: its kernel and its service manager.
pub struct Host {
    /// For requests in the daemon's own network namespace.
    pub netlink: rtnl::Requests,
    /// The daemon's own network namespace.
    pub home: NamespaceId,
    /// Notifications of the kernel.
    pub monitor: Monitor,
    /// Notifications of ethtool; older kernels have none.
    pub ethtool: Option<EthtoolMonitor>,
    /// Queues that the service manager kept over a restart.
    pub inherited: Inherited,
    /// The waiting time for held TAPs; each turn of the control loop renews it.
    pub patience: Patience,
}

impl Host {
    /// Opens the monitor sockets and takes the queues that the service manager has kept.
    ///
    /// # Errors
    /// Errors of the operating system.
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
            .map_err(|e| DaemonError::Os("cannot read the daemon's network namespace", e))?;
        Ok(Host {
            netlink: rtnl::Requests::new()?,
            home,
            monitor,
            ethtool: EthtoolMonitor::new()?,
            inherited: Inherited::take(),
            patience: Patience::default(),
        })
    }

    /// Whether group memberships are polled, because the kernel does not announce them.
    pub fn polls_memberships(&self) -> bool {
        let monitor = &self.monitor;
        !(monitor.has(Group::Ipv4Multicast) && monitor.has(Group::Ipv6Multicast))
    }
}

/// Reports of the data threads.
pub struct Reports {
    /// The queue of reports.
    pub receiver: Receiver<Report>,
    /// For the data threads.
    pub sender: Sender<Report>,
    /// Readable while there are reports.
    pub wake: Arc<OwnedFd>,
}

impl Reports {
    /// Creates an empty queue.
    ///
    /// # Errors
    /// Errors of the operating system.
    pub fn new() -> Result<Reports, DaemonError> {
        let (sender, receiver) = unbounded();
        let wake = eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)
            .map_err(|e| DaemonError::Os("cannot create an eventfd", e.into()))?;
        Ok(Reports {
            receiver,
            sender,
            wake: Arc::new(wake),
        })
    }
}

/// Interfaces that the daemon did not create and may serve.
#[derive(Default)]
pub struct Adoption {
    /// Left interfaces of the port that is being opened; only during the start.
    pub left: Vec<LeftBehind>,
    /// TAPs that may become children.
    pub candidates: ChildCandidates,
}
