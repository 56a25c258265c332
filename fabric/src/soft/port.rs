//! The control side: the port, its endpoints and groups, and what happens to its underlay.

use std::collections::BTreeMap;
use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use proto::{EndpointId, Gid, Guid, PKey, PortState, Psn, QKey, Qpn, Services};
use rtnl::{Group, Monitor, Requests};
use rustix::event::{EventfdFlags, eventfd};

use super::config::SoftConfig;
use super::endpoint::UdQueuePair;
use super::engine::EngineConfig;
use super::holder::{self, Lock, Locked};
use super::mailbox::Mailbox;
use super::qp::{QueuePair, Service};
use super::reception::DELIVERIES;
use super::snapshot::{Endpoints, Groups, Shared, Sockets, Table};
use super::socket::{self, Binding};
use super::underlay::{self, Unusable, Usable};
use super::watch::{evaluate_for, netlink, see, wait_usable};
use super::worker::{SoftWorker, WorkerInit};
use crate::group::{GroupParameters, Joined};
use crate::kernel::random;
use crate::membership::Memberships;
use crate::pkeys::PKeyTable;
use crate::port::{
    Capabilities, CompletionQueueInfo, DeviceAttributes, FabricError, GroupInfo, Port,
    PortAttributes, PortEvent, QueuePairInfo, Resources, UdEndpoint, UdInit,
};
use crate::worker::Worker;

/// Groups that may be attached.
const GROUPS_MAX: usize = 8192;

/// A port of the software RoCEv2 fabric.
///
/// It makes sockets whenever a group is joined or the underlay returns, so all calls must come from
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
    /// What the underlay was when it was last usable.
    usable: Usable,
    /// Why it is not usable now.
    trouble: Option<Unusable>,
    sockets: Arc<[Sockets]>,
    memberships: Memberships,
    pkeys: Arc<PKeyTable>,
    endpoints: BTreeMap<u32, UdQueuePair>,
    /// `endpoints` as the workers see them.
    seen_endpoints: Arc<Endpoints>,
    groups: Arc<Groups>,
    /// How many groups have two endpoints or more.
    shared_groups: usize,
    gsi: QueuePair,
    next_endpoint: u32,
    /// What was tried last did not work for a reason that may pass without an event.
    look_again: bool,
}

impl SoftPort {
    /// Opens the port in the network namespace of the calling thread. Waits up to
    /// [`SoftConfig::gid_wait`] for the underlay.
    ///
    /// # Errors
    /// [`FabricError::Unusable`] with a sentence that says what is missing or who is in the way,
    /// and how to get on; [`FabricError::Os`].
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
        socket::probe(binding.ifindex).map_err(|e| match e.kind() {
            io::ErrorKind::AddrInUse => FabricError::Unusable(holder::sentence(&config.underlay)),
            _ => os("the RoCEv2 port cannot be bound", e),
        })?;
        let sockets = open_sockets(&binding, config.workers, false, None)?;
        let index = pkeys.management().index;
        let gsi = QueuePair::ready(Service::Gsi, Qpn::GSI, index, QKey::GSI, random_psn())?;
        let wakes = (0..config.workers)
            .map(|_| eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).map(Arc::new))
            .collect::<Result<Vec<_>, _>>()
            .map_err(|e| os("no eventfd can be made", e.into()))?;
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

    /// [`Port::take_workers`] with all that the workers of this provider can do besides.
    pub fn take_soft_workers(&mut self) -> Vec<SoftWorker> {
        std::mem::take(&mut self.workers)
    }

    /// What a worker is made from.
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

    /// Tells the workers who the endpoints are now.
    fn publish_endpoints(&mut self) {
        self.seen_endpoints = Arc::new(Endpoints::of(self.endpoints.values()));
        self.publish();
    }

    /// Tells the workers how things are now.
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
        };
        // No copy comes home, unless an endpoint there waits for one of a sibling.
        table.peers.retain(|&p| p != self.usable.address);
        if self.needs_loopback() {
            table.peers.push(self.usable.address);
        }
        self.shared.publish(table);
    }

    /// Wakes the workers, so that they wait on the new sockets and end what the network no longer
    /// carries.
    fn wake_workers(&self) {
        for wake in &self.wakes {
            if let Err(e) = rustix::io::write(wake, &1u64.to_ne_bytes()) {
                log::error!("a worker cannot be woken: {e}");
            }
        }
    }

    /// The queue pair number wished for, or the next that is not in use. Without a wish it is one
    /// that hardly was in use before a restart: a peer that still knows the old one must not reach
    /// another queue pair.
    fn free_qpn(&self, wish: Option<Qpn>) -> Qpn {
        let first = wish.unwrap_or_else(|| Qpn::new(random() as u32));
        let taken =
            |qpn: &Qpn| qpn.is_reserved() || self.endpoints.values().any(|e| e.qp().qpn() == *qpn);
        // There are fewer endpoints than numbers: a port holds them all in memory.
        std::iter::successors(Some(first), |qpn| Some(Qpn::new(qpn.get().wrapping_add(1))))
            .find(|qpn| !taken(qpn))
            .unwrap_or(first)
    }

    /// The address to join for a group; none if multicast goes to a list of peers.
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

    /// Puts an endpoint into a group; the group is joined when it is the first one.
    fn join(&mut self, id: EndpointId, mgid: Gid) -> Result<(), FabricError> {
        let group = self.group_address(mgid)?;
        if !self.groups.contains_key(&mgid) {
            if self.groups.len() == GROUPS_MAX {
                return Err(FabricError::Limit(format!(
                    "a port attaches to {GROUPS_MAX} multicast groups at most"
                )));
            }
            // While the underlay is gone there is nothing to join; it is made up for.
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

    /// Takes an endpoint out of a group; the group is left when it was the last one.
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

    /// Whether some group has two endpoints here. Only then does the host need to hear its own
    /// multicast: a packet reaches every attached queue pair but its sender (IBA vol. 1, 10.5.2).
    fn needs_loopback(&self) -> bool {
        self.shared_groups > 0
    }

    fn update_loopback(&self, before: bool) {
        let now = self.needs_loopback();
        if now == before {
            return;
        }
        for s in self.sockets.iter() {
            if let Err(e) = socket::multicast_loopback(&s.transmit, self.usable.address, now) {
                log::warn!("multicast between own endpoints cannot be switched: {e}");
            }
        }
    }

    /// The underlay is usable: sockets and memberships follow it.
    fn follow(&mut self, now: Usable) -> Result<Vec<PortEvent>, FabricError> {
        let before = self.usable.clone();
        let moved = self.sockets.is_empty() || binding(&before) != binding(&now);
        if moved {
            let loopback = self.needs_loopback();
            let same = before.ifindex == now.ifindex && !self.sockets.is_empty();
            let old = same.then_some(&self.sockets[..]);
            self.sockets = open_sockets(&binding(&now), self.config.workers, loopback, old)?;
        }
        let was_down = self.trouble.take().is_some();
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
        if was_down {
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

    /// The underlay is not usable.
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
            // They are bound to an interface index that will not come back.
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
        let payload = self.usable.ud_payload_max;
        let packets = underlay::train_packets(payload, self.usable.send_max);
        Capabilities {
            lanes: self.config.workers,
            train_bytes: packets * payload as usize,
            train_packets: super::train::PACKETS_MAX,
            multicast: self.config.peers.is_empty(),
            groups_max: GROUPS_MAX,
            group_requests: GROUPS_MAX,
            message_max: self.config.message_max,
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
        let news = !self.monitor.drain().is_empty();
        if !news && !std::mem::take(&mut self.look_again) {
            return Vec::new();
        }
        let seen = match see(&self.config.underlay, &mut self.requests) {
            Ok(seen) => seen,
            Err(e) => {
                self.look_again = true;
                return self.lose(Unusable::Waiting(format!(
                    "{} cannot be looked at: {e}",
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
        let its = self.groups.iter().filter(|(_, ids)| ids.contains(&id));
        let its: Vec<Gid> = its.map(|(mgid, _)| *mgid).collect();
        for mgid in its {
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
        // Nobody administers the groups of this fabric.
        let parameters = GroupParameters::unadministered(qkey, self.usable.ud_payload_max);
        let join = |mgid: &Gid| self.join(id, *mgid).map(|()| parameters).into();
        let answers = joins.iter().map(join).collect();
        self.update_loopback(loopback);
        self.publish();
        Ok(answers)
    }

    fn set_peers(&mut self, peers: Vec<IpAddr>) -> Result<(), FabricError> {
        if peers.is_empty() != self.config.peers.is_empty() {
            return Err(FabricError::Unusable(
                "peers cannot begin or end while the port is open; restart ibtapd".into(),
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
            // Their connections end now, and not with the next packet.
            self.wake_workers();
        }
        Ok(changed)
    }

    fn endpoint_pkey(&self, id: EndpointId) -> Option<PKey> {
        self.endpoints.get(&id.0)?.pkey()
    }

    fn endpoint_qpn(&self, id: EndpointId) -> Option<Qpn> {
        Some(self.endpoints.get(&id.0)?.qp().qpn())
    }

    /// The queue pairs of connections are the workers' own: [`crate::Connections::list`] has them.
    fn resources(&self) -> Resources {
        let lanes = self.config.workers;
        let gsi = QueuePairInfo {
            qpn: Qpn::GSI,
            kind: "GSI",
            state: self.gsi.state().name(),
            pkey: self.pkeys.management().pkey,
            qkey: self.gsi.qkey(),
            lanes,
            endpoint: EndpointId(0),
        };
        let endpoints = self.endpoints.values().map(|e| QueuePairInfo {
            qpn: e.qp().qpn(),
            kind: "UD",
            state: e.qp().state().name(),
            pkey: e.pkey().unwrap_or(e.partition()),
            qkey: e.qkey(),
            lanes,
            endpoint: e.id(),
        });
        let qpn = |id: &EndpointId| self.endpoints.get(&id.0).map(|e| e.qp().qpn());
        let groups = self.groups.iter().flat_map(|(&mgid, ids)| {
            ids.iter()
                .filter_map(qpn)
                .map(move |qpn| GroupInfo { mgid, qpn })
        });
        let mut groups: Vec<GroupInfo> = groups.collect();
        groups.sort_unstable_by_key(|g| (g.mgid, g.qpn));
        Resources {
            queue_pairs: std::iter::once(gsi).chain(endpoints).collect(),
            completion_queues: (0..lanes as u32)
                .map(|worker| CompletionQueueInfo {
                    cqn: worker,
                    cqe: DELIVERIES as u32,
                    worker,
                })
                .collect(),
            groups,
        }
    }
}

fn os(what: &str, source: io::Error) -> FabricError {
    FabricError::Os {
        what: what.to_owned(),
        source,
    }
}

/// The GUID by which peers tell nodes apart in communication management (IBA vol. 1, 12.9.8.3.1):
/// together with a queue pair number or a communication id it names a connection.
///
/// It is drawn anew at each start, and marked as not of the universal kind. A GUID of the hardware's
/// would be the same in a copy of a virtual machine, and two such nodes would end each other's
/// connections as stale. That peers notice a restart does not hang on it: queue pair numbers and
/// communication ids start at random, too, so nothing of before matches, and the old connections
/// end when nobody acknowledges.
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
        Locked::Os(e) => os(&format!("the lock of {underlay} cannot be made"), e),
    })
}

/// The receiving sockets among `old` stay if they are the interface's: no socket may leave their
/// group alone, for that would change the numbers of the others.
fn open_sockets(
    binding: &Binding,
    workers: usize,
    loopback: bool,
    old: Option<&[Sockets]>,
) -> Result<Arc<[Sockets]>, FabricError> {
    let kept = old.map(|old| old.iter().map(|s| Arc::clone(&s.receive)).collect());
    let receive = kept.map_or_else(|| socket::open_receive(binding.ifindex, workers), Ok);
    receive
        .and_then(|receive| socket::with_transmit(receive, binding, loopback))
        .map(Arc::from)
        .map_err(|e| {
            os(
                &format!("the sockets of {} cannot be made", binding.address),
                e,
            )
        })
}

/// Copies go to addresses of the GID's family.
fn check_peers(peers: &[IpAddr], usable: &Usable) -> Result<(), FabricError> {
    let family = usable.address.is_ipv4();
    if let Some(other) = peers.iter().find(|p| p.is_ipv4() != family) {
        return Err(FabricError::Unusable(format!(
            "the peer {other} cannot be reached from the GID {}: both must be IPv4 or both IPv6",
            usable.gid()
        )));
    }
    Ok(())
}
