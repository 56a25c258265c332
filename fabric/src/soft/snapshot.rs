//! The table that the control thread publishes to the workers: immutable, with a generation number.
//!
//! A worker compares the generation once a batch. Only if it has changed, the worker takes the lock, to
//! clone one reference.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use proto::{EndpointId, Gid, PKey, QKey, Qpn};

use super::administrator::Inbox;
use super::endpoint::UdQueuePair;
use super::engine::{Partition, Standing, Starts};
use super::qp::QueuePair;
use super::ud::Path;
use crate::mail::Mail;
use crate::pkeys::PKeyTable;
use crate::subnet::{Destination, PathAnswer};

/// A UD queue pair, as the workers see it.
#[derive(Clone, Copy, Debug)]
pub struct Endpoint {
    /// The endpoint's id.
    pub id: EndpointId,
    /// Number, state, Q_Key and index in the P_Key table.
    pub qp: QueuePair,
    /// The P_Key table entry in use.
    pub pkey: PKey,
    /// Counts the starts of the queue pair. State of an earlier start is invalid.
    pub starts: u32,
}

/// The endpoints of a port.
#[derive(Debug, Default)]
pub struct Endpoints {
    /// Endpoints in service, by ascending id.
    working: Vec<Endpoint>,
    /// Indices in `working` by queue pair number.
    by_qpn: HashMap<Qpn, usize, foldhash::fast::RandomState>,
    /// Endpoints that wait for their P_Key, by ascending id.
    waiting: Vec<(EndpointId, Qpn)>,
}

impl Endpoints {
    /// Creates the table from all endpoints of a port, by ascending id.
    pub fn of<'a>(all: impl Iterator<Item = &'a UdQueuePair>) -> Endpoints {
        let mut endpoints = Endpoints::default();
        for ud in all {
            match ud.working() {
                Some(e) => endpoints.working.push(e),
                None => endpoints.waiting.push((ud.id(), ud.qp().qpn())),
            }
        }
        let working = endpoints.working.iter().enumerate();
        endpoints.by_qpn = working.map(|(at, e)| (e.qp.qpn(), at)).collect();
        endpoints
    }

    /// Moves the first queue pair to another state.
    #[cfg(test)]
    pub fn modify_first(&mut self, state: super::qp::State) {
        let nothing = super::qp::Attributes::default();
        self.working[0].qp.modify(state, &nothing).unwrap();
    }

    /// Endpoints in service, by ascending id.
    pub fn working(&self) -> &[Endpoint] {
        &self.working
    }

    /// An endpoint in service by its id.
    pub fn get(&self, id: EndpointId) -> Option<&Endpoint> {
        let at = self.working.binary_search_by_key(&id.0, |e| e.id.0).ok()?;
        self.working.get(at)
    }

    /// The state of an endpoint, as its connections see it.
    pub fn standing(&self, id: EndpointId) -> Standing {
        match self.get(id) {
            Some(e) => Standing::Member(e.partition()),
            None if self.waits(id) => Standing::Waiting,
            None => Standing::Gone,
        }
    }

    fn waits(&self, id: EndpointId) -> bool {
        let found = self.waiting.binary_search_by_key(&id.0, |(id, _)| id.0);
        found.is_ok()
    }

    /// The numbers of all queue pairs, including those that wait.
    pub fn qpns(&self) -> impl Iterator<Item = Qpn> {
        let working = self.working.iter().map(|e| e.qp.qpn());
        working.chain(self.waiting.iter().map(|(_, qpn)| *qpn))
    }
}

impl Endpoint {
    /// The P_Key table entry, for connections.
    pub const fn partition(&self) -> Partition {
        Partition {
            qpn: self.qp.qpn(),
            qkey: self.qp.qkey(),
            pkey: self.pkey,
            index: self.qp.pkey_index(),
            starts: self.starts,
        }
    }
}

/// The sockets of one worker.
#[derive(Debug)]
pub struct Sockets {
    /// Bound to the RoCEv2 port. It stays open while the interface exists: its position in the group of
    /// sockets is the worker's number.
    pub receive: Arc<OwnedFd>,
    /// Sends datagrams and packets of connections.
    pub transmit: Outlet,
    /// Sends management datagrams. Anyone can cause answers to addresses that do not exist. While the kernel
    /// resolves such an address, the answers take room in the socket's buffer; they must not take that of
    /// other packets.
    pub management: Outlet,
}

impl Sockets {
    fn sends_from(&self, port: u16) -> bool {
        [&self.transmit, &self.management]
            .iter()
            .any(|outlet| outlet.source.port() == port)
    }
}

/// A sending socket.
#[derive(Debug)]
pub struct Outlet {
    /// Bound to `source`.
    pub fd: OwnedFd,
    /// The GID and a UDP port of its own: the source of every packet.
    pub source: SocketAddr,
}

/// The members of each group. There are many groups with few endpoints each; the lists are shared, so a
/// copy of the map is cheap.
pub type Groups = HashMap<Gid, Arc<[EndpointId]>, foldhash::fast::RandomState>;

/// Questions of the workers about groups on a subnet, and the port's answers.
#[derive(Debug)]
pub struct SubnetMail {
    /// Groups that a worker sends to.
    pub destinations: Mail<Destination>,
    /// The answers, for each worker.
    pub paths: Box<[Mail<PathAnswer>]>,
}

impl SubnetMail {
    /// Without messages. The first eventfd wakes the port, the others wake the workers.
    pub fn new(port: Arc<OwnedFd>, workers: &[Arc<OwnedFd>]) -> SubnetMail {
        SubnetMail {
            destinations: Mail::new(port),
            paths: workers.iter().map(|w| Mail::new(Arc::clone(w))).collect(),
        }
    }

    /// Sends answers to all workers: several may send to one group.
    pub fn answer(&self, answers: &[PathAnswer]) {
        if answers.is_empty() {
            return;
        }
        for paths in &self.paths {
            paths.send(answers.iter().cloned());
        }
    }
}

/// Everything that the packet path reads. Tables share large parts that have not changed.
#[derive(Clone, Debug, Default)]
pub struct Table {
    /// The port's GID; [`Gid::UNSPECIFIED`] while the port has none.
    pub gid: Gid,
    /// The underlay's interface index, the scope of link-local destinations.
    pub ifindex: u32,
    /// The largest UD payload in bytes.
    pub payload_max: usize,
    /// The largest UDP payload that may leave in one send.
    pub send_max: usize,
    /// The P_Key table of the port; QP1 accepts all its entries.
    pub pkeys: Arc<PKeyTable>,
    /// The endpoints.
    pub endpoints: Arc<Endpoints>,
    /// The endpoints attached to each group, including those that wait.
    pub groups: Arc<Groups>,
    /// Destinations of copies of multicast packets, instead of the group.
    pub peers: Vec<IpAddr>,
    /// Multicast packets go to `peers`, even if `peers` is empty.
    pub copies: bool,
    /// One entry for each worker; empty while the underlay is missing.
    pub sockets: Arc<[Sockets]>,
    /// Workers read their receiving sockets.
    pub receives: bool,
    /// Takes the datagrams of the subnet administrator.
    pub administrator: Option<Arc<Inbox>>,
    /// The port sends to groups that it is a member of: it is on a subnet.
    pub subnet: Option<Arc<SubnetMail>>,
    /// Counts the changes of the subnet after which the workers ask for each path again.
    pub flushes: u64,
}

impl Table {
    /// Whether the underlay exists, so that the port can send with its GID.
    pub fn is_reachable(&self) -> bool {
        !self.sockets.is_empty()
    }

    /// Whether a packet has the port's GID as its source, but not the UDP port of a worker. The kernel gives
    /// the UDP ports of the workers to no other process.
    pub fn is_forged(&self, path: &Path) -> bool {
        let from_worker = |s: &Sockets| s.sends_from(path.src_port);
        path.src == self.gid && !self.sockets.iter().any(from_worker)
    }

    /// An endpoint in service by its id.
    pub fn endpoint(&self, id: EndpointId) -> Option<&Endpoint> {
        self.endpoints.get(id)
    }

    /// The endpoint in service with this queue pair number.
    pub fn by_qpn(&self, qpn: Qpn) -> Option<&Endpoint> {
        let at = *self.endpoints.by_qpn.get(&qpn)?;
        self.endpoints.working.get(at)
    }

    /// The endpoints in service that are attached to a group.
    pub fn attached(&self, mgid: &Gid) -> impl Iterator<Item = &Endpoint> {
        let ids = self.groups.get(mgid).map_or(&[][..], |ids| &ids[..]);
        ids.iter().filter_map(|&id| self.endpoints.get(id))
    }

    /// The queue for datagrams of subnet administration from this port.
    pub fn administrator_of(&self, from: Gid) -> Option<&Inbox> {
        let inbox = self.administrator.as_deref();
        inbox.filter(|inbox| inbox.from == from)
    }

    /// Whether QP1 accepts a management datagram with these keys (IBA vol. 1, 10.9.8).
    pub fn gsi_takes(&self, pkey: PKey, qkey: QKey) -> bool {
        qkey == QKey::GSI && self.pkeys.admits(pkey)
    }
}

/// What the workers share: the table, and the starts of peers.
#[derive(Debug, Default)]
pub struct Shared {
    pub starts: Arc<Starts>,
    generation: AtomicU64,
    table: Mutex<Arc<Table>>,
}

impl Shared {
    /// The number of the newest table.
    pub fn generation(&self) -> u64 {
        // Pairs with the release in `publish`: a reader of the number finds the table.
        self.generation.load(Ordering::Acquire)
    }

    /// The newest table.
    pub fn table(&self) -> Arc<Table> {
        // A table is replaced as a whole, so a table behind a poisoned lock is valid.
        self.table
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// Replaces the table.
    pub fn publish(&self, table: Table) {
        *self.table.lock().unwrap_or_else(PoisonError::into_inner) = Arc::new(table);
        self.generation.fetch_add(1, Ordering::Release);
    }
}
