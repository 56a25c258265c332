//! The control side: the port, its endpoints and groups, and the state of its device.

mod joining;
mod qkey;
mod removal;
mod resources;
mod subnet;
mod waiting;

use std::collections::BTreeMap;
use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Weak};
use std::time::Duration;

use proto::backoff::Backoff;
use proto::{EndpointId, Gid, PKey, PortState, QKey, Qpn, Services};
use rtnl::{Group, Monitor, Requests};
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::event::{EventfdFlags, eventfd};

use super::config::VerbsConfig;
use super::connections::{CmAgent, services};
use super::device::{Device, Limits, Opened};
use super::endpoint::UdEndpointState;
use super::groups::Groups;
use super::held::Held;
use super::ibv::{AsyncEvent, ElementId, LinkLayer};
use super::kernel_groups::{KernelGroups, KernelInterface};
use super::open;
use super::port_state::{Seen, Usable, evaluate, see};
use super::presence::Presence;
use super::snapshot::{Endpoints, Shared, Table};
use super::sys::Library;
use super::sysfs;
use super::unusable::Unusable;
use super::worker::VerbsWorker;
use crate::administration::{Administration, UmadCarrier};
use crate::group::Joined;
use crate::kernel::{Timer, wake};
use crate::membership::Memberships;
use crate::pkeys::PKeyTable;
use crate::port::{
    Capabilities, DeviceAttributes, FabricError, Port, PortAttributes, PortEvent, Resources,
    UdEndpoint, UdInit,
};
use crate::subnet::{GROUP_REQUESTS, GroupRequests, SubnetInfo};
use crate::worker::Worker;
use subnet::SubnetChange;
use waiting::{wait_usable, waiting};

/// Interval of the check whether the device exists.
const TICK: Duration = Duration::from_secs(1);

/// Number of ticks after an event at which the port is read again. The kernel notifies rtnetlink before
/// the RDMA device (`rtnetlink_event` is a notifier like the driver's, registered earlier), and a work
/// queue updates the GIDs: an immediate read may see the old state.
const LOOKS_AFTER: u8 = 2;

/// Waiting time between attempts to open a device again.
const FIRST_WAIT: Duration = Duration::from_secs(1);
const LONGEST_WAIT: Duration = Duration::from_secs(30);

/// Maximum number of asynchronous events taken at once, so that a device cannot keep the thread busy
/// forever.
const EVENTS_MAX: usize = 1024;

/// A port of an RDMA device.
///
/// The port joins groups on the device's network interface, so all calls must come from threads in the
/// network namespace where it was opened. Its workers may run anywhere.
pub struct VerbsPort {
    config: VerbsConfig,
    name: String,
    library: Arc<dyn Library>,
    monitor: Monitor,
    requests: Requests,
    /// Epoll instance with everything that [`Port::process`] reads.
    events: OwnedFd,
    timer: Timer,
    /// What each worker reads.
    shared: Vec<Arc<Shared>>,
    /// Readable when a worker has news.
    woken: Arc<OwnedFd>,
    /// The workers, until they are taken.
    workers: Vec<Box<dyn Worker>>,
    /// The services of connections.
    services: Services,
    /// The kernel's `ib_cm` is loaded but does not serve the port.
    kernel_cm_shut_out: bool,
    /// Limits of the current or last device.
    limits: Limits,
    /// The device and its presence in sysfs; `None` while it is away.
    device: Option<(Opened, Presence)>,
    held: Held,
    /// The agent of connection management on the device before.
    former_agent: Weak<CmAgent>,
    backoff: Backoff,
    /// Events of attempts to open the device again that have failed later.
    unreported: Vec<PortEvent>,
    /// The last usable state of the port.
    usable: Usable,
    /// How often to read the port again, see [`LOOKS_AFTER`].
    looks: u8,
    /// The endpoint whose queue pair was checked last.
    mended: u32,
    /// Why the port is not usable now.
    trouble: Option<Unusable>,
    memberships: Memberships,
    pkeys: Arc<PKeyTable>,
    /// The subnet administrator, on InfiniBand.
    administration: Option<Administration<UmadCarrier>>,
    subnet_change: SubnetChange,
    /// Number of changes of the subnet after which paths are resolved again.
    flushes: u64,
    /// Interfaces of the kernel's IPoIB on the port, and memberships beside them by P_Key.
    kernel_interfaces: Vec<KernelInterface>,
    kernel_groups: BTreeMap<u16, KernelGroups>,
    /// Unanswered requests for groups.
    requested: GroupRequests,
    endpoints: BTreeMap<u32, UdEndpointState>,
    /// The endpoints, for each worker.
    seen_endpoints: Vec<Arc<Endpoints>>,
    groups: Groups,
    next_endpoint: u32,
}

impl VerbsPort {
    /// Opens the port. Waits up to [`VerbsConfig::gid_wait`] until it is active.
    ///
    /// # Errors
    /// [`FabricError::Unusable`] with a sentence that says what is missing and what to do;
    /// [`FabricError::Os`].
    pub fn open(config: VerbsConfig) -> Result<VerbsPort, FabricError> {
        VerbsPort::open_with(open::library()?, config)
    }

    /// Like [`VerbsPort::open`], with the given libraries.
    ///
    /// # Errors
    /// As [`VerbsPort::open`].
    pub fn open_with(
        library: Arc<dyn Library>,
        config: VerbsConfig,
    ) -> Result<VerbsPort, FabricError> {
        let name = config.name();
        let groups = [Group::Link, Group::Ipv4Address, Group::Ipv6Address];
        let mut monitor = Monitor::new(&groups).map_err(netlink)?;
        let mut requests = Requests::new().map_err(netlink)?;
        let device = Device::open(&library, &config)?;
        let (seen, usable) = wait_usable(&config, &device.first, &mut monitor, &mut requests)?;
        let failed = |source| FabricError::Os {
            what: format!("{name}: cannot set up the port"),
            source,
        };
        let wake = || eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK);
        let woken = Arc::new(wake().map_err(|e| failed(e.into()))?);
        let shared = device
            .workers()
            .map(|_| Ok(Arc::new(Shared::new(Arc::new(wake()?), Arc::clone(&woken)))))
            .collect::<io::Result<Vec<_>>>()
            .map_err(failed)?;
        let (events, timer) = waiting(&monitor, &woken).map_err(failed)?;
        let services = services(&config, usable.link_layer);
        let mut port = VerbsPort {
            services,
            kernel_cm_shut_out: false,
            memberships: Memberships::new(usable.gid.netdev.unwrap_or(0)),
            pkeys: Arc::new(PKeyTable::new(seen.pkeys)),
            administration: None,
            subnet_change: SubnetChange::default(),
            flushes: 0,
            kernel_interfaces: Vec::new(),
            kernel_groups: BTreeMap::new(),
            requested: GroupRequests::default(),
            name: name.clone(),
            config,
            library,
            monitor,
            requests,
            events,
            timer,
            seen_endpoints: vec![Arc::default(); shared.len()],
            shared,
            woken,
            workers: Vec::new(),
            limits: device.first.limits,
            device: None,
            held: Held::default(),
            former_agent: Weak::new(),
            backoff: Backoff::new(FIRST_WAIT, LONGEST_WAIT),
            unreported: Vec::new(),
            usable,
            looks: 0,
            mended: 0,
            trouble: None,
            endpoints: BTreeMap::new(),
            groups: Groups::default(),
            next_endpoint: 1,
        };
        port.warn_mtu();
        if port.limits.messages == 0 && port.config.message_max > 0 {
            log::warn!("{}", open::no_connections(&name));
        }
        port.hold(device).map_err(failed)?;
        port.look_for_kernel_interfaces();
        port.open_administration()?;
        port.hold_rdma_cm();
        port.publish();
        for (index, shared) in port.shared.iter().enumerate() {
            let worker = VerbsWorker::new(&port.config, Arc::clone(shared), index);
            port.workers.push(Box::new(worker.map_err(failed)?));
        }
        Ok(port)
    }

    fn warn_mtu(&self) {
        if let Some(warning) = self.usable.mtu_warning(&self.name) {
            log::warn!("{warning}");
        }
    }

    /// Takes a device into use and waits for its events.
    fn hold(&mut self, device: Opened) -> io::Result<()> {
        let data = EventData::new_u64(0);
        epoll::add(
            &self.events,
            device.first.context.async_fd()?,
            data,
            EventFlags::IN,
        )?;
        let presence = Presence::of(&self.config.device);
        self.limits = device.first.limits;
        self.device = Some((device, presence));
        Ok(())
    }

    /// Publishes the current state to the workers.
    fn publish(&self) {
        let mut devices = self.device.iter().flat_map(|(device, _)| device.workers());
        for (shared, endpoints) in self.shared.iter().zip(&self.seen_endpoints) {
            shared.publish(self.table(devices.next(), endpoints));
            shared.wake_worker();
        }
    }

    /// The state for one worker.
    fn table(&self, device: Option<&Arc<Device>>, endpoints: &Arc<Endpoints>) -> Table {
        Table {
            device: device.map(Arc::clone),
            port: self.config.port,
            gid: self.usable.gid.gid,
            // There are at most 256 GIDs.
            gid_index: self.usable.gid.index as u8,
            scope: self.usable.gid.netdev.unwrap_or(0),
            ethernet: self.is_ethernet(),
            lid: self.usable.lid,
            services: self.services,
            path_mtu: Some(self.usable.active_mtu),
            pkeys: Arc::clone(&self.pkeys),
            payload_max: self.usable.ud_payload_max as usize,
            lmc: self.usable.lmc,
            flushes: self.flushes,
            endpoints: Arc::clone(endpoints),
        }
    }

    fn publish_endpoints(&mut self) {
        self.see_endpoints();
        self.publish();
    }

    /// Updates the endpoints that the workers see with the next [`VerbsPort::publish`].
    fn see_endpoints(&mut self) {
        let mut of_workers = vec![Vec::new(); self.shared.len()];
        for endpoint in self.endpoints.values() {
            for (all, seen) in of_workers.iter_mut().zip(endpoint.seen()) {
                all.push(seen);
            }
        }
        let of_workers = of_workers.into_iter().map(Endpoints::of).map(Arc::new);
        self.seen_endpoints = of_workers.collect();
    }

    fn is_ethernet(&self) -> bool {
        self.usable.link_layer == LinkLayer::Ethernet
    }

    fn endpoint(&self, id: EndpointId) -> Result<&UdEndpointState, FabricError> {
        self.endpoints
            .get(&id.0)
            .ok_or(FabricError::NoSuchEndpoint(id))
    }

    /// Handles the device's events. Returns whether there were any, or as error why to close the
    /// device.
    fn take_events(&mut self) -> Result<bool, String> {
        let Some((device, _)) = &self.device else {
            return Ok(false);
        };
        let context = Arc::clone(&device.first.context);
        let mut any = false;
        for _ in 0..EVENTS_MAX {
            match context.next_event() {
                Ok(None) => break,
                Ok(Some(event)) => {
                    any = true;
                    self.event(event)?;
                }
                Err(e) => return Err(format!("cannot read the device's events: {e}")),
            }
        }
        Ok(any)
    }

    /// Why a worker asks to open the device again, if one does.
    fn take_complaint(&self) -> Option<String> {
        let mut count = [0; 8];
        let _ = rustix::io::read(&self.woken, &mut count);
        let all = self.shared.iter().filter_map(|s| s.take_complaint());
        // All are taken: the others are about the same device.
        all.fold(None, |first, why| first.or(Some(why)))
    }

    fn event(&mut self, event: AsyncEvent) -> Result<(), String> {
        log::debug!("{}: {event:?}", self.name);
        match event {
            AsyncEvent::DeviceFatal => return Err("the device failed".to_owned()),
            AsyncEvent::CqError(_) => return Err("a completion queue overran".to_owned()),
            AsyncEvent::SrqError(_) => return Err("a shared receive queue failed".to_owned()),
            AsyncEvent::QpError(id) => self.restart(id),
            // The kernel has lost the memberships of a port that was down, however short.
            AsyncEvent::PortActive(port) | AsyncEvent::ClientReregister(port)
                if port == self.config.port =>
            {
                self.subnet_change = SubnetChange::ALL;
            }
            // After these events the port is read.
            AsyncEvent::PortActive(_)
            | AsyncEvent::PortError(_)
            | AsyncEvent::LidChange(_)
            | AsyncEvent::PKeyChange(_)
            | AsyncEvent::GidChange(_)
            | AsyncEvent::SmChange(_)
            | AsyncEvent::ClientReregister(_) => {}
            AsyncEvent::Established(_)
            | AsyncEvent::LastWqeReached(_)
            | AsyncEvent::SrqLimit(_)
            | AsyncEvent::Other(_) => {}
        }
        Ok(())
    }

    /// Restarts the queue pairs of an endpoint that has the queue pair of an event.
    fn restart(&mut self, id: ElementId) {
        let is = |e: &&mut UdEndpointState| e.pairs.iter().any(|p| p.qp.id() == id);
        if let Some(endpoint) = self.endpoints.values_mut().find(is) {
            log::warn!("{}: a queue pair of {} failed", self.name, endpoint.qpn);
            endpoint.restart();
            self.publish_endpoints();
        }
    }

    /// Restarts queue pairs that have failed without an event: checks all of them after news of the
    /// port, otherwise the next one.
    ///
    /// # Errors
    /// A sentence, if a queue pair cannot be queried.
    fn mend_queue_pairs(&mut self) -> Result<(), String> {
        let all = self.looks > 0;
        let next = self.endpoints.range(self.mended + 1..).next();
        self.mended = next.map_or(0, |(id, _)| *id);
        let mut any = false;
        for (id, endpoint) in &mut self.endpoints {
            if !all && *id != self.mended {
                continue;
            }
            let failed = endpoint.has_failed();
            if failed.map_err(|e| format!("cannot query a queue pair: {e}"))? {
                log::debug!(
                    "{}: a queue pair of {} failed; restarting",
                    self.name,
                    endpoint.qpn
                );
                endpoint.restart();
                any = true;
            }
        }
        if any {
            self.publish_endpoints();
        }
        Ok(())
    }

    fn is_to_be_looked_at(&mut self, news: bool, tick: bool) -> bool {
        let again = tick && self.looks > 0;
        self.looks -= u8::from(again);
        if news {
            self.looks = LOOKS_AFTER;
        }
        news || again || self.trouble.is_some()
    }

    /// Reads the port and follows its state.
    fn look(&mut self) -> Vec<PortEvent> {
        let Some((device, _)) = &self.device else {
            return Vec::new();
        };
        let seen = match see(&device.first.context, self.config.port, &mut self.requests) {
            Ok(seen) => seen,
            Err(e) => return self.lose_device(&format!("cannot query the port: {e}")),
        };
        let mut events = self.follow_pkeys(&seen);
        match evaluate(&self.config, &seen, Some(self.usable.gid.gid)) {
            Err(why) => events.extend(self.lose(why)),
            Ok(now) => events.extend(self.follow(now)),
        }
        events
    }

    /// Follows the P_Key table of the subnet manager.
    fn follow_pkeys(&mut self, seen: &Seen) -> Vec<PortEvent> {
        let table = PKeyTable::new(seen.pkeys.clone());
        if table == *self.pkeys {
            return Vec::new();
        }
        self.pkeys = Arc::new(table);
        let mut changed = Vec::new();
        for endpoint in self.endpoints.values_mut() {
            if endpoint.follow(&self.pkeys) {
                changed.push(endpoint.id);
            }
        }
        self.publish_endpoints();
        vec![PortEvent::PKeyChange(changed)]
    }

    /// Follows the state of a usable port.
    fn follow(&mut self, now: Usable) -> Vec<PortEvent> {
        let was_down = self.trouble.take().is_some();
        let before = std::mem::replace(&mut self.usable, now);
        self.note_subnet_change(&before, was_down);
        if self.memberships.ifindex() != self.usable.gid.netdev.unwrap_or(0) {
            self.move_memberships();
        }
        if before != self.usable {
            self.publish();
        }
        let mut events = Vec::new();
        if before.gid.gid != self.usable.gid.gid {
            events.push(PortEvent::GidChange(self.usable.gid.gid));
        }
        if before.ud_payload_max != self.usable.ud_payload_max {
            self.warn_mtu();
            events.push(PortEvent::MtuChange(self.usable.ud_payload_max));
        }
        if was_down {
            events.push(PortEvent::Active);
        }
        events
    }

    /// Follows the state of an unusable port.
    fn lose(&mut self, why: Unusable) -> Vec<PortEvent> {
        if self.trouble.as_ref() == Some(&why) {
            return Vec::new();
        }
        let event = PortEvent::Down(why.reason().to_owned());
        self.trouble = Some(why);
        vec![event]
    }
}

impl Port for VerbsPort {
    fn attributes(&self) -> PortAttributes {
        PortAttributes {
            name: self.name.clone(),
            state: match self.trouble {
                None => PortState::Active,
                Some(_) => PortState::Down,
            },
            state_reason: self.trouble.as_ref().map(|t| t.reason().to_owned()),
            gid: self.usable.gid.gid,
            guid: self.usable.guid,
            lid: self.usable.lid,
            pkeys: self.pkeys.places().to_vec(),
            ud_payload_max: self.usable.ud_payload_max,
            underlay_mtu: self.usable.underlay_mtu,
        }
    }

    fn capabilities(&self) -> Capabilities {
        let limits = self.limits;
        Capabilities {
            lanes: self.shared.len(),
            first_receives: true,
            multicast: true,
            groups_max: limits.groups,
            group_requests: match self.is_ethernet() {
                true => limits.groups,
                false => GROUP_REQUESTS,
            },
            message_max: match limits.messages {
                0 => 0,
                _ => self.config.message_max,
            },
            message_train: 0,
            services: self.services,
            pkeys_settable: false,
        }
    }

    fn device(&self) -> DeviceAttributes {
        DeviceAttributes {
            link_layer: self.usable.link_layer,
            netdev: self.usable.gid.netdev.and_then(sysfs::interface_name),
            gid_index: Some(self.usable.gid.index),
            firmware: sysfs::firmware(&self.config.device),
        }
    }

    fn event_fd(&self) -> BorrowedFd<'_> {
        self.events.as_fd()
    }

    fn process(&mut self) -> Vec<PortEvent> {
        let news = self.monitor.drain();
        let address = self.usable.gid.gid.to_ip();
        self.memberships.follow_address(address, &news);
        let news = !news.is_empty();
        let tick = self.timer.has_expired();
        let complaint = self.take_complaint();
        let mut events = Vec::new();
        if let Some((_, presence)) = &self.device {
            let over = presence.is_over();
            let taken = self.take_events();
            let broken = match (over, taken, complaint) {
                (true, ..) => Some("the device was removed".to_owned()),
                (_, Err(why), _) | (_, _, Some(why)) => Some(why),
                (_, Ok(any), None) => {
                    let mut mended = Ok(());
                    if tick {
                        self.watch_kernel_cm();
                        mended = self.mend_queue_pairs();
                    }
                    if any || news || tick {
                        self.look_for_kernel_interfaces();
                    }
                    if self.is_to_be_looked_at(any || news, tick) {
                        events.extend(self.look());
                    }
                    self.hold_rdma_cm();
                    events.extend(self.process_subnet());
                    mended.err()
                }
            };
            // The port may have lost the device already.
            if let Some(why) = broken
                && self.device.is_some()
            {
                events.extend(self.lose_device(&why));
            }
        } else {
            events.extend(self.reopen());
        }
        self.held.let_go(&self.name);
        events
    }

    fn take_workers(&mut self) -> Vec<Box<dyn Worker>> {
        std::mem::take(&mut self.workers)
    }

    fn create_ud(&mut self, init: UdInit) -> Result<UdEndpoint, FabricError> {
        if let Some(most) = self.limits.endpoints()
            && self.endpoints.len() >= most
        {
            return Err(FabricError::Limit(format!(
                "{} has no shared receive queues, so at most {most} UD queue pairs are possible",
                self.name
            )));
        }
        let id = EndpointId(self.next_endpoint);
        let mut endpoint = UdEndpointState::new(id, init.pkey, init.qkey);
        let Some((device, _)) = &self.device else {
            return Err(FabricError::Unusable(format!(
                "cannot create a queue pair: the device of {} is away",
                self.name
            )));
        };
        endpoint
            .make(device, self.config.port, &self.pkeys)
            .map_err(|source| FabricError::Os {
                what: format!("{}: cannot create a queue pair", self.name),
                source,
            })?;
        self.next_endpoint += 1;
        let made = UdEndpoint {
            id,
            qpn: endpoint.qpn,
            pkey: endpoint.entry.map(|e| e.pkey),
        };
        self.endpoints.insert(id.0, endpoint);
        self.publish_endpoints();
        Ok(made)
    }

    fn destroy_ud(&mut self, id: EndpointId) -> Result<(), FabricError> {
        self.endpoint(id)?;
        for mgid in self.groups.of(id) {
            self.leave(id, mgid);
        }
        for mgid in self.requested.of(id) {
            self.leave(id, mgid);
        }
        self.endpoints.remove(&id.0);
        self.publish_endpoints();
        Ok(())
    }

    fn change_groups(
        &mut self,
        id: EndpointId,
        joins: &[Gid],
        leaves: &[Gid],
    ) -> Result<Vec<Joined>, FabricError> {
        self.endpoint(id)?;
        for &mgid in leaves {
            self.leave(id, mgid);
        }
        let answers = joins.iter().map(|mgid| self.join(id, *mgid)).collect();
        // Sends the requests to the subnet administrator.
        wake(&self.woken);
        Ok(answers)
    }

    fn set_peers(&mut self, peers: Vec<IpAddr>) -> Result<(), FabricError> {
        if peers.is_empty() {
            return Ok(());
        }
        Err(FabricError::Unusable(format!(
            "{} uses multicast groups and has no list of peers",
            self.name
        )))
    }

    fn set_pkeys(&mut self, _: Vec<PKey>) -> Result<Vec<EndpointId>, FabricError> {
        Err(FabricError::Unusable(format!(
            "a subnet manager sets the P_Key table of {}; ibtapd cannot change it",
            self.name
        )))
    }

    fn set_qkey(&mut self, id: EndpointId, qkey: QKey) -> Result<(), FabricError> {
        let endpoint = self.endpoints.get_mut(&id.0);
        let endpoint = endpoint.ok_or(FabricError::NoSuchEndpoint(id))?;
        if std::mem::replace(&mut endpoint.qkey, qkey) != qkey {
            endpoint.restart();
            self.publish_endpoints();
        }
        Ok(())
    }

    fn endpoint_pkey(&self, id: EndpointId) -> Option<PKey> {
        self.endpoints.get(&id.0)?.entry.map(|e| e.pkey)
    }

    fn endpoint_qpn(&self, id: EndpointId) -> Option<Qpn> {
        self.endpoints.get(&id.0).map(|e| e.qpn)
    }

    /// Without queue pairs of connections, which belong to the workers: see [`crate::Connections::list`].
    fn resources(&self) -> Resources {
        self.list_resources()
    }

    fn subnet(&self) -> Option<SubnetInfo<'_>> {
        self.administration.as_ref().map(Administration::info)
    }
}

impl Drop for VerbsPort {
    /// Attached queue pairs cannot be destroyed.
    fn drop(&mut self) {
        let all: Vec<(Gid, EndpointId)> = self.groups.all().collect();
        for (mgid, id) in all {
            self.leave(id, mgid);
        }
        if let Some(administration) = &mut self.administration {
            administration.finish();
        }
    }
}

/// A netlink error is already a complete sentence.
fn netlink(e: rtnl::Error) -> FabricError {
    FabricError::Unusable(e.to_string())
}
