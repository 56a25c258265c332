//! The control side: the port, its endpoints and groups, and what happens to its device.

mod joining;
mod removal;
mod waiting;

use std::collections::BTreeMap;
use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use proto::backoff::Backoff;
use proto::{EndpointId, Gid, Lid, PKey, PortState, Qpn, Services};
use rtnl::{Group, Monitor, Requests};
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::event::{EventfdFlags, eventfd};

use super::config::VerbsConfig;
use super::connections::{Address, socket_address};
use super::device::{Device, Limits, TRANSMIT_LEN};
use super::endpoint::UdEndpointState;
use super::groups::Groups;
use super::held::Held;
use super::ibv::{AsyncEvent, ElementId, LinkLayer};
use super::open;
use super::presence::Presence;
use super::snapshot::{Endpoints, Shared, Table};
use super::sys::Library;
use super::sysfs;
use super::watch::{Seen, Unusable, Usable, evaluate, see};
use super::worker::VerbsWorker;
use crate::group::Joined;
use crate::kernel::clock;
use crate::membership::Memberships;
use crate::pkeys::PKeyTable;
use crate::port::{
    Capabilities, CompletionQueueInfo, DeviceAttributes, FabricError, GroupInfo, Port,
    PortAttributes, PortEvent, QueuePairInfo, Resources, UdEndpoint, UdInit,
};
use crate::worker::Worker;
use waiting::{wait_usable, waiting};

/// How often it is looked whether the device is still there, or there again.
const TICK: Duration = Duration::from_secs(1);

/// At how many ticks after news a port is looked at again. The kernel tells of an interface's change
/// before it tells the RDMA device (`rtnetlink_event` is a notifier like the driver's, and registered
/// earlier), and of GIDs a work queue sees to: what is seen at once may be what was.
const LOOKS_AFTER: u8 = 2;

/// Between two attempts to open a device anew.
const FIRST_WAIT: Duration = Duration::from_secs(1);
const LONGEST_WAIT: Duration = Duration::from_secs(30);

/// Asynchronous events that are taken at once: a device that never runs out of them is not heeded for
/// ever.
const EVENTS_MAX: usize = 1024;

/// A port of an RDMA device.
///
/// It joins groups on the device's network interface, so all calls must come from threads in the
/// network namespace in which it was opened. Its worker may run anywhere.
pub struct VerbsPort {
    config: VerbsConfig,
    name: String,
    library: Arc<dyn Library>,
    monitor: Monitor,
    requests: Requests,
    /// Has everything that [`Port::process`] looks at.
    events: OwnedFd,
    timer: OwnedFd,
    shared: Arc<Shared>,
    worker: Option<Box<dyn Worker>>,
    /// What the device can do, or could when it was last there.
    limits: Limits,
    /// The device, and where it is to be seen; none while it is away.
    device: Option<(Arc<Device>, Presence)>,
    held: Held,
    backoff: Backoff,
    /// What the port was when it was last usable.
    usable: Usable,
    /// How often to look at it again, see [`LOOKS_AFTER`].
    looks: u8,
    /// Whose queue pair was looked at last.
    mended: u32,
    /// Why it is not usable now.
    trouble: Option<Unusable>,
    memberships: Memberships,
    pkeys: Arc<PKeyTable>,
    lids: Arc<BTreeMap<Gid, Lid>>,
    endpoints: BTreeMap<u32, UdEndpointState>,
    seen_endpoints: Arc<Endpoints>,
    groups: Groups,
    next_endpoint: u32,
}

impl VerbsPort {
    /// Opens the port. Waits up to [`VerbsConfig::gid_wait`] for it to be active.
    ///
    /// # Errors
    /// [`FabricError::Unusable`] with a sentence that says what is missing and how to get on;
    /// [`FabricError::Os`].
    pub fn open(config: VerbsConfig) -> Result<VerbsPort, FabricError> {
        VerbsPort::open_with(open::library()?, config)
    }

    /// As [`VerbsPort::open`], with these libraries.
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
        let (seen, usable) = wait_usable(&config, &device, &mut monitor, &mut requests)?;
        let failed = |source| FabricError::Os {
            what: format!("{name}: what a port waits on cannot be made"),
            source,
        };
        let wake = || eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK);
        let (to_worker, to_port) = wake()
            .and_then(|w| Ok((w, wake()?)))
            .map_err(|e| failed(e.into()))?;
        let shared = Arc::new(Shared::new(Arc::new(to_worker), to_port));
        let (events, timer) = waiting(&monitor, &shared).map_err(failed)?;
        let mut port = VerbsPort {
            memberships: Memberships::new(usable.gid.netdev.unwrap_or(0)),
            pkeys: Arc::new(PKeyTable::new(seen.pkeys)),
            lids: Arc::new(config.lids.clone()),
            name: name.clone(),
            config,
            library,
            monitor,
            requests,
            events,
            timer,
            shared,
            worker: None,
            limits: device.limits,
            device: None,
            held: Held::default(),
            backoff: Backoff::new(FIRST_WAIT, LONGEST_WAIT),
            usable,
            looks: 0,
            mended: 0,
            trouble: None,
            endpoints: BTreeMap::new(),
            seen_endpoints: Arc::default(),
            groups: Groups::default(),
            next_endpoint: 1,
        };
        port.say_mtu();
        if port.usable.link_layer == LinkLayer::InfiniBand {
            log::warn!("{}", open::no_lids(&name));
        } else if port.limits.messages == 0 && port.config.message_max > 0 {
            log::warn!("{}", open::no_connections(&name));
        }
        port.hold(device).map_err(failed)?;
        port.hold_rdma_cm();
        port.publish();
        let worker = VerbsWorker::new(&port.config, Arc::clone(&port.shared)).map_err(failed)?;
        port.worker = Some(Box::new(worker));
        Ok(port)
    }

    fn say_mtu(&self) {
        if let Some(warning) = self.usable.mtu_warning(&self.name) {
            log::warn!("{warning}");
        }
    }

    /// Takes a device into use, and waits for its events, too.
    fn hold(&mut self, device: Arc<Device>) -> io::Result<()> {
        let data = EventData::new_u64(0);
        epoll::add(
            &self.events,
            device.context.async_fd()?,
            data,
            EventFlags::IN,
        )?;
        let presence = Presence::of(&self.config.device);
        self.limits = device.limits;
        self.device = Some((device, presence));
        Ok(())
    }

    /// Before the worker uses rdma_cm for the device.
    fn hold_rdma_cm(&mut self) {
        let Some((device, presence)) = &self.device else {
            return;
        };
        if device.messages.is_some() && self.trouble.is_none() {
            let address = Address {
                gid: self.usable.gid.gid,
                scope: self.usable.gid.netdev.unwrap_or(0),
                port: 0,
            };
            let address = socket_address(&address);
            self.held.take(clock(), device, presence, address);
        }
    }

    /// Tells the worker how things are now.
    fn publish(&self) {
        self.shared.publish(Table {
            device: self.device.as_ref().map(|(device, _)| Arc::clone(device)),
            port: self.config.port,
            gid: self.usable.gid.gid,
            // There are at most 256.
            gid_index: self.usable.gid.index as u8,
            scope: self.usable.gid.netdev.unwrap_or(0),
            ethernet: self.is_ethernet(),
            path_mtu: Some(self.usable.active_mtu),
            pkeys: Arc::clone(&self.pkeys),
            payload_max: self.usable.ud_payload_max as usize,
            lids: Arc::clone(&self.lids),
            endpoints: Arc::clone(&self.seen_endpoints),
        });
        self.shared.wake_worker();
    }

    fn publish_endpoints(&mut self) {
        let seen = self.endpoints.values().filter_map(UdEndpointState::seen);
        self.seen_endpoints = Arc::new(Endpoints::of(seen.collect()));
        self.publish();
    }

    fn is_ethernet(&self) -> bool {
        self.usable.link_layer == LinkLayer::Ethernet
    }

    fn endpoint(&self, id: EndpointId) -> Result<&UdEndpointState, FabricError> {
        self.endpoints
            .get(&id.0)
            .ok_or(FabricError::NoSuchEndpoint(id))
    }

    /// Takes the device's events; gives why it is to be given up, if it is.
    fn take_events(&mut self) -> Result<bool, String> {
        let Some((device, _)) = &self.device else {
            return Ok(false);
        };
        let device = Arc::clone(device);
        let mut any = false;
        for _ in 0..EVENTS_MAX {
            match device.context.next_event() {
                Ok(None) => break,
                Ok(Some(event)) => {
                    any = true;
                    self.event(event)?;
                }
                Err(e) => return Err(format!("its events cannot be read: {e}")),
            }
        }
        Ok(any)
    }

    fn event(&mut self, event: AsyncEvent) -> Result<(), String> {
        log::debug!("{}: {event:?}", self.name);
        match event {
            AsyncEvent::DeviceFatal => return Err("the device failed".to_owned()),
            AsyncEvent::CqError(_) => return Err("a completion queue overran".to_owned()),
            AsyncEvent::SrqError(_) => return Err("a shared receive queue failed".to_owned()),
            AsyncEvent::QpError(id) => self.restart(id),
            AsyncEvent::SmChange(port) | AsyncEvent::ClientReregister(port)
                if port == self.config.port =>
            {
                // Nobody is registered anywhere as long as there is no subnet administration.
                log::info!("{}: the subnet manager is another one", self.name);
            }
            // Of these the port is looked at, whatever they say.
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

    /// Has the queue pair restarted that an event is about, if it is an endpoint's.
    fn restart(&mut self, id: ElementId) {
        let is = |e: &&mut UdEndpointState| e.pair.as_ref().is_some_and(|p| p.qp.id() == id);
        if let Some(endpoint) = self.endpoints.values_mut().find(is) {
            log::warn!("{}: queue pair {} failed", self.name, endpoint.qpn);
            endpoint.restart();
            self.publish_endpoints();
        }
    }

    /// Has queue pairs restarted that have failed without a word: looks at all of them after news of the
    /// port, and else at the next one.
    ///
    /// # Errors
    /// A sentence: the device does not say.
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
            if failed.map_err(|e| format!("a queue pair cannot be asked for its state: {e}"))? {
                log::debug!(
                    "{}: {} has failed; it is restarted",
                    self.name,
                    endpoint.qpn
                );
                endpoint.restart();
                any = true;
            }
        }
        if any {
            self.publish_endpoints();
            self.shared.wake_worker();
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

    /// Looks at the port and follows it.
    fn look(&mut self) -> Vec<PortEvent> {
        let Some((device, _)) = &self.device else {
            return Vec::new();
        };
        let seen = match see(&device.context, self.config.port, &mut self.requests) {
            Ok(seen) => seen,
            Err(e) => return self.lose_device(&format!("it cannot be asked what it is like: {e}")),
        };
        let mut events = self.follow_pkeys(&seen);
        match evaluate(&self.config, &seen, Some(self.usable.gid.gid)) {
            Err(why) => events.extend(self.lose(why)),
            Ok(now) => events.extend(self.follow(now)),
        }
        events
    }

    /// The P_Key table is the subnet manager's.
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

    /// The port is usable: everything follows it.
    fn follow(&mut self, now: Usable) -> Vec<PortEvent> {
        let was_down = self.trouble.take().is_some();
        let before = std::mem::replace(&mut self.usable, now);
        if before.gid.netdev != self.usable.gid.netdev {
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
            self.say_mtu();
            events.push(PortEvent::MtuChange(self.usable.ud_payload_max));
        }
        if was_down {
            events.push(PortEvent::Active);
        }
        events
    }

    /// The port is not usable.
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
            lanes: 1,
            train_bytes: TRANSMIT_LEN,
            train_packets: limits.train_packets,
            multicast: true,
            groups_max: limits.groups,
            group_requests: limits.groups,
            message_max: match limits.messages {
                0 => 0,
                _ => self.config.message_max,
            },
            services: Services::RdmaCm,
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
        let news = !self.monitor.drain().is_empty();
        let mut count = [0; 8];
        let tick = rustix::io::read(&self.timer, &mut count).is_ok();
        let complaint = self.shared.take_complaint();
        let mut events = Vec::new();
        if let Some((_, presence)) = &self.device {
            let over = presence.is_over();
            let taken = self.take_events();
            let broken = match (over, taken, complaint) {
                (true, ..) => Some("it was removed".to_owned()),
                (_, Err(why), _) | (_, _, Some(why)) => Some(why),
                (_, Ok(any), None) => {
                    let mended = match tick {
                        true => self.mend_queue_pairs(),
                        false => Ok(()),
                    };
                    if self.is_to_be_looked_at(any || news, tick) {
                        events.extend(self.look());
                    }
                    self.hold_rdma_cm();
                    mended.err()
                }
            };
            if let Some(why) = broken {
                events.extend(self.lose_device(&why));
            }
        } else {
            events.extend(self.reopen());
        }
        self.held.let_go(&self.name);
        events
    }

    fn take_workers(&mut self) -> Vec<Box<dyn Worker>> {
        self.worker.take().into_iter().collect()
    }

    fn create_ud(&mut self, init: UdInit) -> Result<UdEndpoint, FabricError> {
        if let Some(most) = self.limits.endpoints()
            && self.endpoints.len() >= most
        {
            return Err(FabricError::Limit(format!(
                "{} has no shared receive queues, and so {most} queue pairs for datagrams at most",
                self.name
            )));
        }
        let id = EndpointId(self.next_endpoint);
        let mut endpoint = UdEndpointState::new(id, init.pkey, init.qkey);
        let Some((device, _)) = &self.device else {
            return Err(FabricError::Unusable(format!(
                "{} is away: no queue pair can be made",
                self.name
            )));
        };
        endpoint
            .make(device, self.config.port, &self.pkeys)
            .map_err(|source| FabricError::Os {
                what: format!("{}: no queue pair can be made", self.name),
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
        let answers = joins.iter().map(|mgid| self.join(id, *mgid).into());
        Ok(answers.collect())
    }

    fn set_peers(&mut self, peers: Vec<IpAddr>) -> Result<(), FabricError> {
        if peers.is_empty() {
            return Ok(());
        }
        Err(FabricError::Unusable(format!(
            "{} has no list of peers: its multicast goes to groups",
            self.name
        )))
    }

    fn set_pkeys(&mut self, _: Vec<PKey>) -> Result<Vec<EndpointId>, FabricError> {
        Err(FabricError::Unusable(format!(
            "the P_Key table of {} is the device's; a subnet manager sets it",
            self.name
        )))
    }

    fn endpoint_pkey(&self, id: EndpointId) -> Option<PKey> {
        self.endpoints.get(&id.0)?.entry.map(|e| e.pkey)
    }

    fn endpoint_qpn(&self, id: EndpointId) -> Option<Qpn> {
        self.endpoints.get(&id.0).map(|e| e.qpn)
    }

    /// The queue pairs of connections are the worker's own: [`crate::Connections::list`] has them.
    fn resources(&self) -> Resources {
        let state = |e: &UdEndpointState| match &e.pair {
            Some(pair) => pair.qp.state().map_or("UNKNOWN", |s| s.name()),
            None => "RESET",
        };
        let queue_pairs = self.endpoints.values().map(|e| QueuePairInfo {
            qpn: e.qpn,
            kind: "UD",
            state: state(e),
            pkey: e.entry.map_or(e.partition, |entry| entry.pkey),
            qkey: e.qkey,
            lanes: 1,
            endpoint: e.id,
        });
        let cqs = self
            .device
            .as_ref()
            .map(|(d, _)| [&d.receive_cq, &d.send_cq]);
        let completion_queues = cqs.into_iter().flatten().map(|cq| CompletionQueueInfo {
            cqn: cq.number(),
            cqe: cq.capacity() as u32,
            worker: 0,
        });
        let groups = self.groups.all().filter_map(|(mgid, id)| {
            let qpn = self.endpoints.get(&id.0)?.qpn;
            Some(GroupInfo { mgid, qpn })
        });
        Resources {
            queue_pairs: queue_pairs.collect(),
            completion_queues: completion_queues.collect(),
            groups: groups.collect(),
        }
    }
}

impl Drop for VerbsPort {
    /// Queue pairs that are attached cannot be destroyed.
    fn drop(&mut self) {
        let all: Vec<(Gid, EndpointId)> = self.groups.all().collect();
        for (mgid, id) in all {
            self.leave(id, mgid);
        }
    }
}

/// A netlink error is a whole sentence already.
fn netlink(e: rtnl::Error) -> FabricError {
    FabricError::Unusable(e.to_string())
}
