//! The port on the control thread: endpoints, groups, and changes of the underlay.

mod resources;

use std::collections::BTreeMap;
use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use proto::{EndpointId, Gid, Guid, PKey, PortState, Psn, QKey, Qpn, Services};
use rtnl::{Group, Monitor, Requests};
use rustix::event::{EventfdFlags, eventfd};

use super::administrator::{Inbox, Qp1Carrier};
use super::config::SoftConfig;
use super::endpoint::UdQueuePair;
use super::engine::EngineConfig;
use super::holder::{self, Lock, Locked};
use super::mailbox::Mailbox;
use super::qp::{QueuePair, Service};
use super::snapshot::{Endpoints, Groups, Shared, Sockets, SubnetMail, Table};
use super::socket::{self, Binding};
use super::underlay::{Unusable, Usable};
use super::underlay_query::{evaluate_for, netlink, see, wait_usable};
use super::worker::{SoftWorker, WorkerInit};
use crate::group::{GroupParameters, Joined};
use crate::kernel::{random, wake};
use crate::membership::Memberships;
use crate::pkeys::PKeyTable;
use crate::port::{
    Capabilities, DeviceAttributes, FabricError, Port, PortAttributes, PortEvent, Resources,
    UdEndpoint, UdInit,
};
use crate::worker::Worker;

/// Maximum number of groups.
const GROUPS_MAX: usize = 8192;

/// A port of the software RoCEv2 fabric.
///
/// A port opens sockets when it joins a group or the underlay returns, so all calls must come from
/// threads in the network namespace in which it was opened. Its workers may run anywhere.
pub struct SoftPort {
    config: SoftConfig,
    _lock: Lock,
    monitor: Monitor,
    requests: Requests,
    shared: Arc<Shared>,
    wakes: Vec<Arc<OwnedFd>>,
    mailboxes: Arc<[Mailbox]>,
    ca_guid: Guid,
    workers: Vec<SoftWorker>,
    /// The underlay when it was last usable.
    usable: Usable,
    /// Why the underlay is not usable now.
    trouble: Option<Unusable>,
    sockets: Arc<[Sockets]>,
    receives: bool,
    /// Takes the datagrams of the subnet administrator.
    administrator: Option<Arc<Inbox>>,
    subnet: Option<Arc<SubnetMail>>,
    /// See [`Table::flushes`].
    flushes: u64,
    memberships: Memberships,
    pkeys: Arc<PKeyTable>,
    endpoints: BTreeMap<u32, UdQueuePair>,
    /// `endpoints` for the workers.
    seen_endpoints: Arc<Endpoints>,
    groups: Arc<Groups>,
    /// Number of groups with two endpoints or more.
    shared_groups: usize,
    gsi: QueuePair,
    next_endpoint: u32,
    /// The last attempt failed for a reason that may end without an event.
    look_again: bool,
}

impl SoftPort {
    /// Opens a port in the network namespace of the calling thread. Waits up to
    /// [`SoftConfig::gid_wait`] for the underlay.
    ///
    /// # Errors
    /// [`FabricError::Unusable`] with a sentence about the cause and the remedy; [`FabricError::Os`].
    pub fn open(mut config: SoftConfig) -> Result<SoftPort, FabricError> {
        config.workers = config.workers.max(1);
        let pkeys = Arc::new(PKeyTable::new(std::mem::take(&mut config.pkeys)));
        let lock = lock(&config.underlay)?;
        let groups = [Group::Link, Group::Ipv4Address, Group::Ipv6Address];
        let mut monitor = Monitor::new(&groups).map_err(netlink)?;
        let mut requests = Requests::new().map_err(netlink)?;
        let usable = wait_usable(&config, &mut monitor, &mut requests)?;
        check_peers(&config.peers, &usable)?;
        let binding = binding(&usable);
        let former = std::mem::take(&mut config.former);
        let receives = former.is_empty();
        let receive = open_receive(&config, &binding, former)?;
        let sockets = open_transmit(receive, &binding, false)?;
        let index = pkeys.management().index;
        let gsi = QueuePair::ready(Service::Gsi, Qpn::GSI, index, QKey::GSI, random_psn())?;
        let wakes = (0..config.workers)
            .map(|_| eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).map(Arc::new))
            .collect::<Result<Vec<_>, _>>()
            .map_err(|e| os("cannot create an eventfd", e.into()))?;
        let mailboxes = wakes.iter().map(|w| Mailbox::new(Arc::clone(w))).collect();
        let mut port = SoftPort {
            ca_guid: ca_guid(),
            mailboxes,
            config,
            _lock: lock,
            monitor,
            requests,
            shared: Arc::default(),
            wakes,
            workers: Vec::new(),
            memberships: Memberships::new(usable.ifindex),
            usable,
            look_again: false,
            trouble: None,
            sockets,
            receives,
            administrator: None,
            subnet: None,
            flushes: 0,
            pkeys,
            endpoints: BTreeMap::new(),
            seen_endpoints: Arc::default(),
            groups: Arc::default(),
            shared_groups: 0,
            gsi,
            next_endpoint: 1,
        };
        port.publish();
        let make = |i| SoftWorker::new(port.for_worker(i));
        port.workers = (0..port.config.workers).map(make).collect();
        Ok(port)
    }

    /// As [`Port::take_workers`], with the additional functions of this provider's workers.
    pub fn take_soft_workers(&mut self) -> Vec<SoftWorker> {
        std::mem::take(&mut self.workers)
    }

    /// A carrier of datagrams between this port's QP1 and a subnet administrator at the port `gid`.
    ///
    /// # Errors
    /// [`FabricError::Unusable`] if both GIDs are not of one address family; [`FabricError::Os`].
    pub(crate) fn carrier_to(&mut self, gid: Gid) -> Result<Qp1Carrier, FabricError> {
        check_peers(&[gid.to_ip()], &self.usable)?;
        let made = Qp1Carrier::new(&self.shared, gid);
        let (carrier, inbox) = made.map_err(|e| os("cannot create an eventfd", e))?;
        self.administrator = Some(inbox);
        self.publish();
        Ok(carrier)
    }

    /// From now on, workers ask which groups they may send to; a question wakes the reader of the eventfd.
    pub(crate) fn enter_subnet(&mut self, wake: Arc<OwnedFd>) -> Arc<SubnetMail> {
        let mail = Arc::new(SubnetMail::new(wake, &self.wakes));
        self.subnet = Some(Arc::clone(&mail));
        self.publish();
        mail
    }

    /// Has the workers ask for each path again.
    pub(crate) fn age_paths(&mut self) {
        self.flushes += 1;
        self.publish();
    }

    /// The parameters of a new worker.
    pub(super) fn for_worker(&self, index: usize) -> WorkerInit {
        WorkerInit {
            engine: EngineConfig {
                ca_guid: self.ca_guid,
                worker: index,
                workers: self.config.workers,
                seed: [random(), random()],
                message_max: self.config.message_max,
                connections_max: self.config.connections_max,
            },
            shared: Arc::clone(&self.shared),
            wake: Arc::clone(&self.wakes[index]),
            mailboxes: Arc::clone(&self.mailboxes),
        }
    }

    /// Publishes changed endpoints to the workers.
    fn publish_endpoints(&mut self) {
        self.seen_endpoints = Arc::new(Endpoints::of(self.endpoints.values()));
        self.publish();
    }

    /// Publishes a new table to the workers.
    fn publish(&self) {
        let mut table = Table {
            gid: self.usable.gid(),
            ifindex: self.usable.ifindex,
            payload_max: self.usable.ud_payload_max as usize,
            send_max: self.usable.send_max,
            pkeys: Arc::clone(&self.pkeys),
            endpoints: Arc::clone(&self.seen_endpoints),
            groups: Arc::clone(&self.groups),
            peers: self.config.peers.clone(),
            copies: !self.config.peers.is_empty(),
            sockets: Arc::clone(&self.sockets),
            receives: self.receives,
            administrator: self.administrator.clone(),
            subnet: self.subnet.clone(),
            flushes: self.flushes,
        };
        // No copies to ourselves, unless endpoints here share a group.
        table.peers.retain(|&p| p != self.usable.address);
        if self.needs_loopback() {
            table.peers.push(self.usable.address);
        }
        self.shared.publish(table);
    }

    /// Wakes the workers. They then poll the new sockets and end connections that the network no longer
    /// carries.
    fn wake_workers(&self) {
        self.wakes.iter().for_each(|worker| wake(worker));
    }

    /// The requested queue pair number, or the next free one. Without a request, a random number: it
    /// was unlikely in use before a restart, so a peer with an old number does not reach another queue
    /// pair.
    fn free_qpn(&self, wish: Option<Qpn>) -> Qpn {
        let first = wish.unwrap_or_else(|| Qpn::new(random() as u32));
        let taken =
            |qpn: &Qpn| qpn.is_reserved() || self.endpoints.values().any(|e| e.qp().qpn() == *qpn);
        // A free number exists: a port has fewer endpoints than there are numbers.
        std::iter::successors(Some(first), |qpn| Some(Qpn::new(qpn.get().wrapping_add(1))))
            .find(|qpn| !taken(qpn))
            .unwrap_or(first)
    }

    /// The IP group to join; `None` if multicast packets go to a list of peers.
    fn group_address(&self, mgid: Gid) -> Result<Option<IpAddr>, FabricError> {
        if !mgid.is_multicast() {
            return Err(FabricError::BadGroup(mgid));
        }
        if !self.config.peers.is_empty() {
            return Ok(None);
        }
        let group = mgid.to_ip();
        if group.is_ipv4() != self.usable.address.is_ipv4() {
            return Err(FabricError::BadGroup(mgid));
        }
        Ok(Some(group))
    }

    fn endpoint(&self, id: EndpointId) -> Result<&UdQueuePair, FabricError> {
        self.endpoints
            .get(&id.0)
            .ok_or(FabricError::NoSuchEndpoint(id))
    }

    /// The partition and the Q_Key of an endpoint.
    ///
    /// # Errors
    /// [`FabricError::NoSuchEndpoint`].
    pub(crate) fn keys(&self, id: EndpointId) -> Result<(PKey, QKey), FabricError> {
        let endpoint = self.endpoint(id)?;
        Ok((endpoint.partition(), endpoint.qkey()))
    }

    /// The endpoints in a group.
    pub(crate) fn members(&self, mgid: Gid) -> &[EndpointId] {
        self.groups.get(&mgid).map_or(&[], |ids| ids)
    }

    /// The groups of an endpoint.
    pub(crate) fn groups_of(&self, id: EndpointId) -> Vec<Gid> {
        let its = self.groups.iter().filter(|(_, ids)| ids.contains(&id));
        its.map(|(mgid, _)| *mgid).collect()
    }

    /// Adds an endpoint to a group. The first endpoint joins the group.
    fn join(&mut self, id: EndpointId, mgid: Gid) -> Result<(), FabricError> {
        let group = self.group_address(mgid)?;
        if !self.groups.contains_key(&mgid) {
            if self.groups.len() == GROUPS_MAX {
                return Err(FabricError::Limit(format!(
                    "a port can join at most {GROUPS_MAX} multicast groups"
                )));
            }
            // While the underlay or its address is missing, joining is postponed to `join_all`.
            if let (Some(group), 1..) = (group, self.memberships.ifindex()) {
                let what = || format!("{} cannot join {mgid}", self.config.underlay);
                self.memberships.join(group).map_err(|e| os(&what(), e))?;
            }
        }
        let ids = Arc::make_mut(&mut self.groups).entry(mgid).or_default();
        if !ids.contains(&id) {
            *ids = ids.iter().copied().chain([id]).collect();
            self.shared_groups += usize::from(ids.len() == 2);
        }
        Ok(())
    }

    /// Removes an endpoint from a group. The last endpoint leaves the group.
    fn leave(&mut self, id: EndpointId, mgid: Gid) {
        if !self.groups.get(&mgid).is_some_and(|ids| ids.contains(&id)) {
            return;
        }
        let groups = Arc::make_mut(&mut self.groups);
        let Some(ids) = groups.get_mut(&mgid) else {
            return;
        };
        *ids = ids.iter().copied().filter(|e| *e != id).collect();
        self.shared_groups -= usize::from(ids.len() == 1);
        if ids.is_empty() {
            groups.remove(&mgid);
            self.memberships.leave(mgid.to_ip());
        }
    }

    /// Whether a group has two endpoints here. Only then the host must receive its own multicast
    /// packets: a packet reaches every attached queue pair except its sender (IBA vol. 1, 10.5.2).
    fn needs_loopback(&self) -> bool {
        self.shared_groups > 0
    }

    fn receive_sockets(&self) -> impl Iterator<Item = &Arc<OwnedFd>> {
        self.sockets.iter().map(|s| &s.receive)
    }

    fn update_loopback(&self, before: bool) {
        let now = self.needs_loopback();
        if now == before {
            return;
        }
        for s in self.sockets.iter() {
            if let Err(e) = socket::multicast_loopback(&s.transmit.fd, self.usable.address, now) {
                log::warn!("cannot set multicast loopback: {e}");
            }
        }
    }

    /// Updates sockets and memberships after the underlay became usable or changed.
    fn follow(&mut self, now: Usable) -> Result<Vec<PortEvent>, FabricError> {
        let before = self.usable.clone();
        let moved = self.sockets.is_empty() || binding(&before) != binding(&now);
        if moved {
            let loopback = self.needs_loopback();
            let binding = binding(&now);
            // Closing one of the receiving sockets would renumber the others.
            let receive = match before.ifindex == now.ifindex && !self.sockets.is_empty() {
                true => self.receive_sockets().cloned().collect(),
                false => open_receive(&self.config, &binding, Vec::new())?,
            };
            self.sockets = open_transmit(receive, &binding, loopback)?;
        }
        let was_down = self.trouble.take().is_some();
        // The notifications about the end of the former underlay may be read together with those about the next one.
        let is_another = before.ifindex != now.ifindex;
        self.usable = now;
        let mut events = Vec::new();
        if self.memberships.ifindex() != self.usable.ifindex {
            self.memberships = Memberships::new(self.usable.ifindex);
            self.join_all();
        }
        if moved || self.usable != before {
            self.publish();
            self.wake_workers();
        }
        if self.usable.address != before.address {
            events.push(PortEvent::GidChange(self.usable.gid()));
        }
        if self.usable.ud_payload_max != before.ud_payload_max {
            events.push(PortEvent::MtuChange(self.usable.ud_payload_max));
        }
        if was_down || is_another {
            events.push(PortEvent::Active);
        }
        Ok(events)
    }

    fn join_all(&mut self) {
        if !self.config.peers.is_empty() {
            return;
        }
        for mgid in self.groups.keys() {
            if let Err(e) = self.memberships.join(mgid.to_ip()) {
                log::error!("{} cannot join {mgid} again: {e}", self.config.underlay);
            }
        }
    }

    /// Handles the loss of the underlay.
    fn lose(&mut self, why: Unusable) -> Vec<PortEvent> {
        if self.trouble.as_ref() == Some(&why) {
            return Vec::new();
        }
        let was_missing = matches!(self.trouble, Some(Unusable::Missing(_)));
        let event = match &why {
            Unusable::Missing(_) => PortEvent::Removed,
            Unusable::Waiting(s) | Unusable::Wrong(s) => PortEvent::Down(s.clone()),
        };
        if matches!(why, Unusable::Missing(_)) && !was_missing {
            // The sockets are bound to an interface index that will not return.
            self.sockets = Arc::default();
            self.memberships = Memberships::new(0);
            self.publish();
            self.wake_workers();
        }
        self.trouble = Some(why);
        vec![event]
    }
}

impl Port for SoftPort {
    fn attributes(&self) -> PortAttributes {
        PortAttributes {
            name: format!("soft/{}", self.config.underlay),
            state: match self.trouble {
                None => PortState::Active,
                Some(_) => PortState::Down,
            },
            state_reason: self.trouble.as_ref().map(|t| t.reason().to_owned()),
            gid: self.usable.gid(),
            guid: self.usable.guid,
            lid: None,
            pkeys: self.pkeys.places().to_vec(),
            ud_payload_max: self.usable.ud_payload_max,
            underlay_mtu: Some(self.usable.mtu),
        }
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            lanes: self.config.workers,
            first_receives: false,
            multicast: self.config.peers.is_empty(),
            groups_max: GROUPS_MAX,
            group_requests: GROUPS_MAX,
            message_max: self.config.message_max,
            message_train: self.usable.message_train(),
            services: Services::Any,
            pkeys_settable: true,
        }
    }

    fn device(&self) -> DeviceAttributes {
        DeviceAttributes {
            netdev: Some(self.config.underlay.clone()),
            ..DeviceAttributes::default()
        }
    }

    fn event_fd(&self) -> BorrowedFd<'_> {
        self.monitor.as_fd()
    }

    fn process(&mut self) -> Vec<PortEvent> {
        let news = self.monitor.drain();
        self.memberships.follow_address(self.usable.address, &news);
        if news.is_empty() && !std::mem::take(&mut self.look_again) {
            return Vec::new();
        }
        let seen = match see(&self.config.underlay, &mut self.requests) {
            Ok(seen) => seen,
            Err(e) => {
                self.look_again = true;
                return self.lose(Unusable::Waiting(format!(
                    "cannot query {}: {e}",
                    self.config.underlay
                )));
            }
        };
        let current = Some(self.usable.address);
        match evaluate_for(&self.config, &seen, current) {
            Err(why) => self.lose(why),
            Ok(now) => self.follow(now).unwrap_or_else(|e| {
                self.look_again = true;
                self.lose(Unusable::Waiting(e.to_string()))
            }),
        }
    }

    fn take_workers(&mut self) -> Vec<Box<dyn Worker>> {
        let workers = self.take_soft_workers().into_iter();
        workers
            .map(|w| -> Box<dyn Worker> { Box::new(w) })
            .collect()
    }

    fn create_ud(&mut self, init: UdInit) -> Result<UdEndpoint, FabricError> {
        let qpn = self.free_qpn(init.qpn);
        let id = EndpointId(self.next_endpoint);
        self.next_endpoint += 1;
        let mut ud = UdQueuePair::new(id, qpn, init.pkey, init.qkey);
        ud.follow(self.pkeys.find(init.pkey), random_psn());
        let pkey = ud.pkey();
        self.endpoints.insert(id.0, ud);
        self.publish_endpoints();
        Ok(UdEndpoint { id, qpn, pkey })
    }

    fn destroy_ud(&mut self, id: EndpointId) -> Result<(), FabricError> {
        self.endpoint(id)?;
        let loopback = self.needs_loopback();
        for mgid in self.groups_of(id) {
            self.leave(id, mgid);
        }
        self.endpoints.remove(&id.0);
        self.update_loopback(loopback);
        self.publish_endpoints();
        Ok(())
    }

    fn change_groups(
        &mut self,
        id: EndpointId,
        joins: &[Gid],
        leaves: &[Gid],
    ) -> Result<Vec<Joined>, FabricError> {
        let qkey = self.endpoint(id)?.qkey();
        let loopback = self.needs_loopback();
        for &mgid in leaves {
            self.leave(id, mgid);
        }
        // This fabric has no subnet administrator.
        let parameters = GroupParameters::unadministered(qkey);
        let join = |mgid: &Gid| self.join(id, *mgid).map(|()| parameters).into();
        let answers = joins.iter().map(join).collect();
        self.update_loopback(loopback);
        self.publish();
        Ok(answers)
    }

    fn set_peers(&mut self, peers: Vec<IpAddr>) -> Result<(), FabricError> {
        if peers.is_empty() != self.config.peers.is_empty() {
            return Err(FabricError::Unusable(
                "an open port cannot change between multicast and a list of peers; restart ibtapd"
                    .into(),
            ));
        }
        check_peers(&peers, &self.usable)?;
        self.config.peers = peers;
        self.publish();
        Ok(())
    }

    fn set_pkeys(&mut self, pkeys: Vec<PKey>) -> Result<Vec<EndpointId>, FabricError> {
        let table = PKeyTable::new(pkeys);
        if table == *self.pkeys {
            return Ok(Vec::new());
        }
        let index = table.management().index;
        if index != self.gsi.pkey_index() {
            self.gsi.stop()?;
            self.gsi.start(index, QKey::GSI, random_psn())?;
        }
        let mut changed = Vec::new();
        for ud in self.endpoints.values_mut() {
            if ud.follow(table.find(ud.partition()), random_psn()) {
                changed.push(ud.id());
            }
        }
        self.pkeys = Arc::new(table);
        if changed.is_empty() {
            self.publish();
        } else {
            self.publish_endpoints();
            // Connections of these endpoints end now, not with their next packet.
            self.wake_workers();
        }
        Ok(changed)
    }

    fn set_qkey(&mut self, id: EndpointId, qkey: QKey) -> Result<(), FabricError> {
        let endpoint = self.endpoints.get_mut(&id.0);
        let endpoint = endpoint.ok_or(FabricError::NoSuchEndpoint(id))?;
        if endpoint.set_qkey(qkey, random_psn())? {
            self.publish_endpoints();
            self.wake_workers();
        }
        Ok(())
    }

    fn endpoint_pkey(&self, id: EndpointId) -> Option<PKey> {
        self.endpoints.get(&id.0)?.pkey()
    }

    fn endpoint_qpn(&self, id: EndpointId) -> Option<Qpn> {
        Some(self.endpoints.get(&id.0)?.qp().qpn())
    }

    fn receiving_sockets(&self) -> Vec<BorrowedFd<'_>> {
        self.receive_sockets().map(|fd| fd.as_fd()).collect()
    }

    fn set_receiving(&mut self, on: bool) {
        if self.receives != on {
            self.receives = on;
            self.publish();
            self.wake_workers();
        }
    }

    fn resources(&self) -> Resources {
        self.list_resources()
    }
}

fn os(what: &str, source: io::Error) -> FabricError {
    FabricError::Os {
        what: what.to_owned(),
        source,
    }
}

/// The CA GUID, by which peers distinguish nodes in communication management (IBA vol. 1, 12.9.8.3.1).
/// CA GUID and queue pair number, or CA GUID and communication id, identify a connection.
///
/// The GUID is random at each start, and marked as not universal. A copy of a virtual machine would
/// have the same hardware GUID, and both nodes would end each other's connections as stale. Peers still
/// detect a restart: queue pair numbers and communication ids also start at random, so old connections
/// match nothing and end unacknowledged.
fn ca_guid() -> Guid {
    let mut guid = random().to_be_bytes();
    guid[0] &= !2;
    Guid(guid)
}

fn random_psn() -> Psn {
    Psn::new(random() as u32)
}

fn binding(usable: &Usable) -> Binding {
    Binding {
        ifindex: usable.ifindex,
        address: usable.address,
    }
}

fn lock(underlay: &str) -> Result<Lock, FabricError> {
    Lock::take(underlay).map_err(|e| match e {
        Locked::By(pid) => FabricError::Unusable(holder::locked_sentence(underlay, pid)),
        Locked::Os(e) => os(&format!("cannot create the lock of {underlay}"), e),
    })
}

fn open_receive(
    config: &SoftConfig,
    binding: &Binding,
    former: Vec<Arc<OwnedFd>>,
) -> Result<Vec<Arc<OwnedFd>>, FabricError> {
    let opened = socket::open_receive(binding.ifindex, config.workers, former);
    opened.map_err(|e| match e.kind() {
        io::ErrorKind::AddrInUse => FabricError::Unusable(holder::sentence(&config.underlay)),
        _ => cannot_open(binding, e),
    })
}

fn open_transmit(
    receive: Vec<Arc<OwnedFd>>,
    binding: &Binding,
    loopback: bool,
) -> Result<Arc<[Sockets]>, FabricError> {
    let opened = socket::with_transmit(receive, binding, loopback);
    opened.map(Arc::from).map_err(|e| cannot_open(binding, e))
}

fn cannot_open(binding: &Binding, e: io::Error) -> FabricError {
    os(
        &format!("cannot open the sockets of {}", binding.address),
        e,
    )
}

/// Checks that peers have the GID's address family.
fn check_peers(peers: &[IpAddr], usable: &Usable) -> Result<(), FabricError> {
    let family = usable.address.is_ipv4();
    if let Some(other) = peers.iter().find(|p| p.is_ipv4() != family) {
        return Err(FabricError::Unusable(format!(
            "peer {other} and GID {} have different address families; use IPv4 for both or IPv6 for both",
            usable.gid()
        )));
    }
    Ok(())
}

#[cfg(test)]
mod tests;
