//! The control thread: makes ports and devices, follows rtnetlink, the ports and the signals, and
//! answers the control socket. It is the only thread that changes anything.

mod carrier;
mod children;
mod front;
mod mode;
mod mtu;
mod partition;
mod place;
mod settings;
mod siblings;
mod vlan;

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, Sender, unbounded};
use fabric::soft::{SoftConfig, SoftPort};
use fabric::{FabricError, PortEvent, PortState};
use log::Level;
use netdev::ethtool::Features;
use netdev::netns::{Namespace, NamespaceId};
use rtnl::{EthtoolMonitor, Event, Group, Monitor, Notice};
use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};

use crate::api::{Happening, LinkAddress};
use crate::datapath::{Command, DeviceId, Report, Snapshot};
use crate::device::{Device, DeviceError, DeviceSpec, Site, Stray};
use crate::fdstore::{self, Inherited};
use crate::pinger::Pingers;
use crate::port::PortRuntime;
use crate::reload::Running;
use crate::watch::{Subject, Watchers};
use children::Strangers;
pub use place::Place;
pub(crate) use place::{Left, Names, visit};
use vlan::Vlans;

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
        source: DeviceError,
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
    pub soft: SoftConfig,
    /// The P_Key table holds what its devices ask for, no less and no more.
    pub automatic_pkeys: bool,
    /// How long data threads look for the next packet before they sleep.
    pub busy_poll: Duration,
    /// Devices to make.
    pub devices: Vec<DeviceSpec>,
}

/// The running daemon.
pub struct Daemon {
    pub(crate) ports: Vec<PortRuntime>,
    pub(crate) devices: BTreeMap<DeviceId, (usize, Device)>,
    /// Partitions that tags on their frames select.
    pub(crate) vlans: Vlans,
    /// Clients that monitor.
    pub(crate) watchers: Watchers,
    /// Clients that ping.
    pub(crate) pingers: Pingers,
    /// The configuration that is in force, where there is a file to read again.
    pub(crate) running: Option<Running>,
    next_id: u32,
    pub(crate) netlink: rtnl::Requests,
    /// The daemon's own network namespace.
    home: NamespaceId,
    monitor: Monitor,
    /// What ethtool sets; older kernels do not tell.
    ethtool: Option<EthtoolMonitor>,
    reports: Receiver<Report>,
    reports_sender: Sender<Report>,
    reports_wake: Arc<OwnedFd>,
    next_membership_poll: Instant,
    membership_changed: BTreeSet<DeviceId>,
    /// Queues that a service manager has kept over a restart.
    inherited: Inherited,
    /// Interfaces that a former daemon has left behind on the port that is being opened, at the start.
    left: Vec<Left>,
    /// TAPs that may become children.
    strangers: Strangers,
    stacking_changed: BTreeSet<DeviceId>,
    addresses_changed: BTreeSet<DeviceId>,
    routes_changed: BTreeSet<Place>,
    /// Groups that were reported with the host's own Ethernet address, by itself or by others.
    maybe_own: BTreeSet<(DeviceId, IpAddr)>,
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
        let (reports_sender, reports) = unbounded();
        let wake = eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)
            .map_err(|e| DaemonError::Os("cannot make an eventfd", e.into()))?;
        let mut daemon = Daemon {
            ports: Vec::new(),
            devices: BTreeMap::new(),
            vlans: Vlans::default(),
            watchers: Watchers::default(),
            pingers: Pingers::default(),
            running: None,
            next_id: 0,
            netlink: rtnl::Requests::new()?,
            home,
            monitor,
            ethtool: EthtoolMonitor::new()?,
            reports,
            reports_sender,
            reports_wake: Arc::new(wake),
            next_membership_poll: Instant::now(),
            membership_changed: BTreeSet::new(),
            inherited: Inherited::take(),
            left: Vec::new(),
            strangers: Strangers::default(),
            stacking_changed: BTreeSet::new(),
            addresses_changed: BTreeSet::new(),
            routes_changed: BTreeSet::new(),
            maybe_own: BTreeSet::new(),
        };
        for spec in specs {
            if let Err(e) = daemon.start_port(spec) {
                daemon.devices.values().for_each(|(_, d)| d.undo());
                daemon.stop();
                return Err(e);
            }
        }
        daemon.find_children();
        daemon.inherited.discard_rest();
        // Again, for where interfaces have exchanged names: one's new label was the other's old one.
        // What is kept already stays as it is.
        for (_, device) in daemon.devices.values() {
            fdstore::keep(&device.spec, &device.tap);
        }
        Ok(daemon)
    }

    /// Opens a port and makes its devices, of what was left behind where there is something.
    fn start_port(&mut self, mut spec: PortSpec) -> Result<(), DaemonError> {
        let devices = std::mem::take(&mut spec.devices);
        self.add_port(spec)?;
        let at = self.ports.len() - 1;
        self.look_for_left(at);
        let made = devices.iter().try_for_each(|d| self.add_device(at, d));
        let left = std::mem::take(&mut self.left);
        made?;
        left.into_iter().for_each(|left| self.adopt_left(at, left));
        Ok(())
    }

    /// Opens a port and makes its devices.
    pub(crate) fn add_port(&mut self, spec: PortSpec) -> Result<(), DaemonError> {
        let underlay = spec.soft.underlay.clone();
        let port = SoftPort::open(spec.soft)?;
        let runtime = PortRuntime::start(
            underlay,
            Box::new(port),
            spec.automatic_pkeys,
            spec.busy_poll,
            &self.reports_sender,
            &self.reports_wake,
        )
        .map_err(|e| DaemonError::Os("cannot start a data thread", e))?;
        if !self.watchers.is_empty() {
            runtime.tell(|| Command::Watch(true));
        }
        self.ports.push(runtime);
        let at = self.ports.len() - 1;
        for device in spec.devices {
            self.add_device(at, &device)?;
        }
        Ok(())
    }

    /// Makes a device on a port, as a child if its parent is named.
    pub(crate) fn add_device(&mut self, at: usize, spec: &DeviceSpec) -> Result<(), DaemonError> {
        let parent = match &spec.parent {
            Some(name) => Some(self.configured_parent(at, spec, name)?),
            None => None,
        };
        let id = self.bring_in(at, spec, parent, None)?;
        if parent.is_none() {
            self.look_for_children(id);
        }
        Ok(())
    }

    /// The device of the same port that the configuration calls so.
    fn configured_parent(
        &self,
        at: usize,
        child: &DeviceSpec,
        name: &str,
    ) -> Result<DeviceId, DaemonError> {
        let is_parent = |port: usize, device: &Device| {
            port == at && device.parent.is_none() && device.spec.name == name
        };
        let mut all = self.devices.iter();
        all.find(|(_, (port, device))| is_parent(*port, device))
            .map(|(id, _)| *id)
            .ok_or_else(|| DaemonError::Device {
                name: child.name.clone(),
                source: DeviceError::NoParent(name.to_owned()),
            })
    }

    /// Puts a device into service on a port: a child of `parent`, with the interface `found`, if
    /// these are given.
    fn bring_in(
        &mut self,
        at: usize,
        spec: &DeviceSpec,
        parent: Option<DeviceId>,
        found: Option<Stray<'_>>,
    ) -> Result<DeviceId, DaemonError> {
        let id = DeviceId(self.next_id);
        self.next_id += 1;
        let failed = |source| DaemonError::Device {
            name: spec.name.clone(),
            source,
        };
        self.follow_pkeys(at, Some(spec.pkey))
            .map_err(|why| failed(DeviceError::Pkeys(why)))?;
        let made = self.make_device_at(id, at, spec, parent, found);
        let mut device = match made {
            Ok(device) => device,
            Err(e) => {
                self.unfollow_pkeys(at);
                return Err(failed(e));
            }
        };
        let missing = self.no_carrier(at, &device);
        device.set_carrier(missing.is_none());
        log::info!(
            "{}: serving on {} mode={} qpn={} pkey={} gid={} mtu={} queues={}",
            device.name,
            self.ports[at].port.attributes().name,
            device.mode_word(),
            device.endpoint.qpn,
            device.spec.pkey,
            device.address.gid(),
            device.mtu,
            device.queues
        );
        if let Some(why) = missing {
            log::info!("{}: no carrier: {why}", device.name);
        }
        // What was announced while the device was made is older than what is read now, and would
        // show states that have passed: the first MAC, the first MTU, down before up.
        for notice in self.monitor.notices() {
            self.netlink_event(notice);
        }
        // What is drained here wakes the control loop no more.
        self.tick();
        self.sync_changed_groups();
        let created = Happening::Created {
            qpn: device.endpoint.qpn,
            gid: device.address.gid(),
        };
        let waits = device.endpoint.pkey.is_none();
        let pkey = device.spec.pkey;
        self.devices.insert(id, (at, device));
        self.tell_device(id, created);
        if waits {
            self.tell_device(id, Happening::PkeyMissing { pkey });
        }
        self.tell_child_added(id);
        self.reread(id);
        self.sync_siblings();
        Ok(id)
    }

    fn make_device_at(
        &mut self,
        id: DeviceId,
        at: usize,
        spec: &DeviceSpec,
        parent: Option<DeviceId>,
        found: Option<Stray<'_>>,
    ) -> Result<Device, DeviceError> {
        let namespace = self.namespace_for(spec, parent)?;
        let left = match found {
            Some(_) => None,
            None => self.take_left(at, spec, parent),
        };
        let name_of = |id| self.devices.get(&id).map(|(_, d)| (id, d.name.clone()));
        let port = &mut self.ports[at];
        let mut site = Site {
            parent: parent.and_then(name_of),
            found,
            threads: &port.mailboxes(),
            port: &mut *port.port,
            netlink: &mut self.netlink,
            inherited: &mut self.inherited,
            namespace,
            left,
        };
        Device::create(id, spec, &mut site)
    }

    /// Takes over what children of ours there are already, at the start.
    fn find_children(&mut self) {
        let parents = self.devices.iter().filter(|(_, (_, d))| d.parent.is_none());
        for id in parents.map(|(id, _)| *id).collect::<Vec<_>>() {
            self.look_for_children(id);
        }
        self.meet_strangers();
    }

    /// The descriptors to wait for.
    pub fn wait(&self, extra: &[BorrowedFd<'_>]) -> io::Result<()> {
        let mut fds: Vec<PollFd<'_>> = Vec::with_capacity(5 + self.ports.len());
        let mut add = |fd| fds.push(PollFd::from_borrowed_fd(fd, PollFlags::IN));
        add(self.monitor.as_fd());
        self.ethtool.iter().for_each(|m| add(m.as_fd()));
        add(self.reports_wake.as_fd());
        self.ports.iter().for_each(|p| add(p.port.event_fd()));
        extra.iter().for_each(|fd| add(*fd));
        let memberships = self.polls_memberships().then(|| {
            self.next_membership_poll
                .saturating_duration_since(Instant::now())
        });
        let down = self
            .ports
            .iter()
            .any(|p| p.port.attributes().state == PortState::Down)
            .then_some(DOWN_POLL);
        let ping = self.pingers.deadline();
        let timeout = memberships
            .into_iter()
            .chain(down)
            .chain(self.next_tick())
            .chain(self.strangers.wait())
            .chain(ping.map(|at| at.saturating_duration_since(Instant::now())))
            .min()
            .and_then(|d| rustix::time::Timespec::try_from(d).ok());
        match poll(&mut fds, timeout.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(e) => Err(e.into()),
        }
    }

    fn polls_memberships(&self) -> bool {
        !(self.monitor.has(Group::Ipv4Multicast) && self.monitor.has(Group::Ipv6Multicast))
    }

    /// Handles what happened.
    ///
    /// # Errors
    /// When a data thread cannot go on.
    pub fn process(&mut self) -> Result<(), DaemonError> {
        for notice in self.monitor.notices() {
            self.netlink_event(notice);
        }
        self.process_ethtool();
        for at in 0..self.ports.len() {
            for event in self.ports[at].port.process() {
                self.port_event(at, event);
            }
        }
        let mut count = [0; 8];
        let _ = rustix::io::read(&*self.reports_wake, &mut count);
        // What comes meanwhile wakes us again: a flood must not keep us from everything else.
        let waiting = self.reports.len();
        for report in self.reports.clone().try_iter().take(waiting) {
            match report {
                Report::TapGone(id) => self.forget(id),
                Report::Event(id, event, round_trip) => self.core_event(id, event, round_trip),
                Report::Vlan(id, vid) => self.vlan_wanted(id, vid),
                Report::EchoRefused(id, echo, seq) => self.pingers.refused(id, echo, seq),
                Report::Failed(why) => return Err(DaemonError::Thread(why)),
            }
        }
        self.meet_strangers();
        self.sort_out_reports();
        self.tick();
        self.sync_changed_groups();
        self.sync_siblings();
        self.send_pings();
        if self.polls_memberships() && Instant::now() >= self.next_membership_poll {
            self.next_membership_poll = Instant::now() + MEMBERSHIP_POLL;
            let ids: Vec<DeviceId> = self.devices.keys().copied().collect();
            self.sync_groups_of(ids);
        }
        Ok(())
    }

    /// The device whose interface has this index at this place.
    pub(super) fn by_index(&self, place: Place, ifindex: u32) -> Option<DeviceId> {
        self.devices
            .iter()
            .find(|(_, (_, d))| d.ifindex == ifindex && d.place == place)
            .map(|(id, _)| *id)
    }

    /// The devices through which an interface's addresses are reached: it is one of ours, or the
    /// bridge that ours are ports of. (A bond announces for itself, through its active port.)
    fn reached_by(&self, place: Place, ifindex: u32) -> Vec<DeviceId> {
        self.devices
            .iter()
            .filter(|(_, (_, d))| d.place == place)
            .filter(|(_, (_, d))| d.ifindex == ifindex || d.bridge == Some(ifindex))
            .map(|(id, _)| *id)
            .collect()
    }

    fn netlink_event(&mut self, notice: Notice) {
        let place = Place { nsid: notice.nsid };
        match notice.event {
            Event::LinkChanged(link) => {
                match self.by_index(place, link.index) {
                    Some(id) => self.link_changed(id, &link),
                    None => self.strangers.seen(place, &link),
                }
                self.vlan_link_seen(place, &link);
                self.note_stacking(place, Some(&link));
            }
            Event::LinkGone { index, .. } => {
                self.strangers.gone(place, index);
                if let Some(id) = self.by_index(place, index) {
                    self.left_its_place(id);
                }
                self.note_stacking(place, None);
            }
            Event::AddressAdded(a) => {
                if a.is_usable() {
                    self.reached_by(place, a.ifindex)
                        .into_iter()
                        .for_each(|id| self.address_added(id, a.ip));
                }
            }
            Event::AddressRemoved(a) => {
                for id in self.reached_by(place, a.ifindex) {
                    self.address_removed(id, a.ip);
                    // It may have gone from the port to the bridge, or back.
                    self.addresses_changed.insert(id);
                }
            }
            Event::MulticastAdded { ifindex, .. } | Event::MulticastRemoved { ifindex, .. } => {
                let id = self.by_index(place, ifindex);
                self.membership_changed.extend(id);
            }
            Event::MulticastRouting => {
                self.routes_changed.insert(place);
            }
            Event::NamespaceGone { nsid } => self.place_gone(Place { nsid: Some(nsid) }),
            Event::Overrun => {
                let ids: Vec<DeviceId> = self.devices.keys().copied().collect();
                for id in ids {
                    self.reread(id);
                    self.look_for_children(id);
                }
            }
        }
    }

    /// Reads what is otherwise announced: of a new device, and after announcements were lost.
    fn reread(&mut self, id: DeviceId) {
        if let Some(link) = self.find(id) {
            self.link_changed(id, &link);
            self.read_stacking(id);
            self.read_addresses(id);
            self.sync_groups(id);
        }
    }

    fn link_changed(&mut self, id: DeviceId, link: &rtnl::Link) {
        let asked = self.inside(id, |device, netlink| {
            // What was a bridge is one still: asked for once, and not at each change of the link.
            let bridge = link
                .master
                .filter(|m| device.bridge == Some(*m) || is_bridge(netlink, *m));
            (bridge, Features::read(&link.name))
        });
        let Some((at, device)) = self.devices.get_mut(&id) else {
            return;
        };
        let at = *at;
        // Where the daemon cannot go, what was told is followed at least.
        let unread = || (device.bridge, Err(std::io::ErrorKind::NotFound.into()));
        let (bridge, features) = asked.unwrap_or_else(unread);
        let bridged = std::mem::replace(&mut device.bridge, bridge) != bridge;
        let was = std::mem::replace(&mut device.name, link.name.clone());
        let mut tell = |what| self.watchers.tell(Subject::Interface(&link.name), what);
        let renamed = was != link.name;
        if renamed {
            tell(Happening::Renamed { was });
        }
        let is_parent = device.parent.is_none();
        if std::mem::replace(&mut device.up, link.up) != link.up {
            self.up_changed(id);
        }
        if renamed && is_parent {
            self.parent_renamed(id, &link.name);
        }
        self.mtu_seen(id, link.mtu);
        let Some((_, device)) = self.devices.get_mut(&id) else {
            return;
        };
        if let Some(mac) = link.address
            && mac != device.mac
        {
            device.mac = mac;
            let what = Happening::MacChanged {
                mac: LinkAddress(mac),
            };
            self.watchers.tell(Subject::Interface(&link.name), what);
            self.ports[at].tell(|| Command::SetMac(id, mac));
        }
        let Some((_, device)) = self.devices.get_mut(&id) else {
            return;
        };
        match features {
            Ok(f) if f.gro != device.coalesce => {
                device.coalesce = f.gro;
                log::debug!(
                    "{}: coalescing {}",
                    device.name,
                    if f.gro { "on" } else { "off" }
                );
                self.ports[at].tell(|| Command::SetCoalesce(id, f.gro));
            }
            Ok(_) => {}
            Err(e) => log::debug!("{}: cannot read the offload features: {e}", device.name),
        }
        if bridged {
            self.read_addresses(id);
        }
        self.membership_changed.insert(id);
    }

    fn read_addresses(&mut self, id: DeviceId) {
        let found = self.inside(id, |device, netlink| {
            let mut found = BTreeSet::new();
            for ifindex in [Some(device.ifindex), device.bridge].into_iter().flatten() {
                let all = netlink.addresses(ifindex)?;
                found.extend(all.iter().filter(|a| a.is_usable()).map(|a| a.ip));
            }
            Ok::<_, rtnl::Error>(found)
        });
        let Some((_, device)) = self.devices.get(&id) else {
            return;
        };
        let found = match found {
            Some(Ok(found)) => found,
            Some(Err(e)) => {
                log::warn!("{}: cannot read its addresses: {e}", device.name);
                return;
            }
            None => return,
        };
        let gone: Vec<IpAddr> = device.addresses.difference(&found).copied().collect();
        gone.into_iter().for_each(|ip| self.address_removed(id, ip));
        found.into_iter().for_each(|ip| self.address_added(id, ip));
    }

    /// What is announced no more must not be announced when the link's address changes, either: it
    /// may be another host's by then.
    fn address_removed(&mut self, id: DeviceId, ip: IpAddr) {
        if let Some((at, device)) = self.devices.get_mut(&id)
            && device.addresses.remove(&ip)
        {
            log::debug!("{}: {ip} is announced no more", device.name);
            self.ports[*at].tell_first(Command::Withdraw(id, ip));
        }
    }

    /// Tells the link about an address, so that peers that knew us under another queue pair find
    /// us again at once.
    fn address_added(&mut self, id: DeviceId, ip: IpAddr) {
        if let Some((at, device)) = self.devices.get_mut(&id)
            && device.addresses.insert(ip)
        {
            // One that is down has no link to tell; it tells when it comes up.
            if device.up {
                log::debug!("{}: announcing {ip}", device.name);
                self.ports[*at].tell_first(Command::Announce(id, ip));
            }
        }
    }

    fn announce_all(&self, at: usize) {
        let on_port = self.devices.iter().filter(|(_, (p, _))| *p == at);
        on_port.for_each(|(id, _)| self.announce(*id));
    }

    /// Tells the link about all addresses of a device, since its own address is another one now.
    fn announce(&self, id: DeviceId) {
        if let Some((at, device)) = self.devices.get(&id)
            && device.up
        {
            for ip in &device.addresses {
                self.ports[*at].tell_first(Command::Announce(id, *ip));
            }
        }
    }

    /// Once for all changes that came together: a thousand joins are a thousand events.
    fn sync_changed_groups(&mut self) {
        let changed = std::mem::take(&mut self.membership_changed);
        self.sync_groups_of(changed);
    }

    /// Attaches and detaches so that the device's groups are those that the host has joined.
    fn sync_groups(&mut self, id: DeviceId) {
        self.sync_groups_of([id]);
    }

    /// The same for devices whose host has joined these groups.
    fn attach_groups(&mut self, id: DeviceId, host: BTreeSet<IpAddr>) {
        let Some((at, device)) = self.devices.get_mut(&id) else {
            return;
        };
        let (wanted, too_many) = match device.holds_groups() {
            true => device.wanted_groups(&host),
            false => (BTreeSet::new(), false),
        };
        device.host_groups = host;
        if too_many && !std::mem::replace(&mut device.told_groups_full, true) {
            log::warn!(
                "{}: hosts behind it have joined more multicast groups than there is room for; \
                 groups that come now are not received",
                device.name
            );
        }
        if wanted == device.joined {
            return;
        }
        let runtime = &mut self.ports[*at];
        let new: Vec<_> = wanted.difference(&device.joined).copied().collect();
        let gone: Vec<_> = device.joined.difference(&wanted).copied().collect();
        let refused = match runtime.port.change_groups(device.endpoint.id, &new, &gone) {
            Ok(refused) => refused,
            Err(e) => {
                log::warn!("{}: cannot change its multicast groups: {e}", device.name);
                return;
            }
        };
        let mut tell = |what| self.watchers.tell(Subject::Interface(&device.name), what);
        for group in &gone {
            log::debug!("{}: leaving {group}", device.name);
            tell(Happening::GroupLeft { mgid: *group });
        }
        // Nobody wants the others any more; hosts may ask for any number of groups over time.
        device.refused.retain(|g| wanted.contains(g));
        let mut joined = wanted;
        for (group, e) in refused {
            joined.remove(&group);
            // The first says what is the matter; thousands may follow.
            let first = device.refused.is_empty();
            if device.refused.insert(group) {
                let level = if first { Level::Warn } else { Level::Debug };
                log::log!(
                    level,
                    "{}: multicast join failed for {group}: {e}",
                    device.name
                );
            }
        }
        for group in new.iter().filter(|group| joined.contains(group)) {
            log::debug!("{}: joined {group}", device.name);
            tell(Happening::GroupJoined { mgid: *group });
            device.refused.remove(group);
        }
        device.joined = joined;
        let groups: Vec<_> = device.joined.iter().copied().collect();
        runtime.tell(|| Command::SetJoined(id, groups.clone()));
    }

    fn port_event(&mut self, at: usize, event: PortEvent) {
        let name = self.ports[at].port.attributes().name;
        self.watchers.tell(Subject::Port(&name), told(&event));
        match event {
            PortEvent::Active => {
                log::info!("{name}: port active");
                self.set_carriers(at);
                self.announce_all(at);
            }
            PortEvent::Down(why) => {
                log::warn!("{name}: port down: {why}");
                self.set_carriers(at);
            }
            PortEvent::Removed => {
                log::warn!("{name}: the underlay is gone; waiting for it to come back");
                self.set_carriers(at);
            }
            PortEvent::GidChange(gid) => {
                log::info!("{name}: the port's GID is now {gid}");
                for (id, (_, device)) in self.devices.iter_mut().filter(|(_, (p, _))| *p == at) {
                    let address = device.address_at(gid);
                    device.address = address;
                    self.ports[at].tell(|| Command::SetLocal(*id, address));
                }
                self.renew_aliases_elsewhere(at);
                self.announce_all(at);
            }
            PortEvent::MtuChange(payload) => self.link_mtu_changed(at, payload),
            PortEvent::PKeyChange(changed) => self.pkeys_changed(at, &changed),
        }
    }

    /// Closes a device whose TAP is gone, or is to go, and its children with their interfaces.
    pub(crate) fn forget(&mut self, id: DeviceId) {
        self.remove_children(id);
        let Some((at, device)) = self.devices.get(&id) else {
            return;
        };
        let at = *at;
        log::info!("{}: out of service, its endpoint is closed", device.name);
        fdstore::forget(&device.spec);
        self.tell_child_removed(id);
        self.close(id);
        self.unfollow_pkeys(at);
    }

    /// Closes a device. Its TAP stays if it is persistent or a service manager keeps its queues.
    fn close(&mut self, id: DeviceId) {
        self.tell_device(id, Happening::Gone);
        self.pingers.device_gone(id);
        // Their lanes hold the TAP open.
        self.end_vlans(id);
        if let Some((at, device)) = self.devices.remove(&id) {
            self.ports[at].remove_lanes(id);
            if let Err(e) = self.ports[at].port.destroy_ud(device.endpoint.id) {
                log::warn!("{}: cannot close its endpoint: {e}", device.name);
            }
        }
    }

    /// Asks every data thread of every port for a copy of its counters.
    pub(crate) fn snapshots(&self, tables: bool) -> Vec<(usize, Vec<Snapshot>)> {
        self.ports
            .iter()
            .enumerate()
            .map(|(i, p)| (i, p.snapshots(tables)))
            .collect()
    }

    /// Leaves all groups, closes all endpoints and removes the TAPs that are not persistent and whose
    /// queues no service manager keeps. The carrier is left to the kernel, which takes it away with
    /// the last queue.
    pub fn stop(&mut self) {
        for id in self.devices.keys().copied().collect::<Vec<_>>() {
            self.close(id);
        }
        for port in self.ports.drain(..) {
            port.stop();
        }
    }
}

fn is_bridge(netlink: &mut rtnl::Requests, ifindex: u32) -> bool {
    netlink
        .link_by_index(ifindex)
        .is_ok_and(|link| link.kind.as_deref() == Some("bridge"))
}

/// What a port's event is to those who watch.
fn told(event: &PortEvent) -> Happening {
    match event {
        PortEvent::Active => Happening::PortActive,
        PortEvent::Down(reason) => Happening::PortDown {
            reason: reason.clone(),
        },
        PortEvent::Removed => Happening::PortGone,
        PortEvent::GidChange(gid) => Happening::GidChanged { gid: *gid },
        PortEvent::MtuChange(link_mtu) => Happening::LinkMtuChanged {
            link_mtu: *link_mtu,
        },
        PortEvent::PKeyChange(_) => Happening::PkeysChanged,
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        self.stop();
    }
}
