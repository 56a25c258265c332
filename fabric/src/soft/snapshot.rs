//! What the control side tells the workers: an immutable table behind a generation number.
//!
//! A worker compares the generation once a batch; only when it has changed does it take the lock,
//! for as long as it takes to clone one reference.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use proto::{EndpointId, Gid, PKey, QKey, Qpn};

use super::endpoint::UdQueuePair;
use super::engine::{Partition, Standing};
use super::qp::QueuePair;
use crate::pkeys::PKeyTable;

/// A queue pair as the workers see it.
#[derive(Clone, Copy, Debug)]
pub struct Endpoint {
    /// Its name.
    pub id: EndpointId,
    /// Number, state, Q_Key, place in the P_Key table.
    pub qp: QueuePair,
    /// The P_Key table entry in use.
    pub pkey: PKey,
    /// How often the queue pair was started: whoever knows another number knows one that is gone.
    pub starts: u32,
}

/// The endpoints of a port.
#[derive(Debug, Default)]
pub struct Endpoints {
    /// Those in service, by ascending id.
    working: Vec<Endpoint>,
    /// Places in `working` by queue pair number.
    by_qpn: HashMap<Qpn, usize, foldhash::fast::RandomState>,
    /// Those that wait for their P_Key, by ascending id.
    waiting: Vec<(EndpointId, Qpn)>,
}

impl Endpoints {
    /// All endpoints of a port, by ascending id.
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

    /// Brings the first queue pair to another state.
    #[cfg(test)]
    pub fn modify_first(&mut self, state: super::qp::State) {
        let nothing = super::qp::Attributes::default();
        self.working[0].qp.modify(state, &nothing).unwrap();
    }

    /// Those in service, by ascending id.
    pub fn working(&self) -> &[Endpoint] {
        &self.working
    }

    /// An endpoint in service by its id.
    pub fn get(&self, id: EndpointId) -> Option<&Endpoint> {
        let at = self.working.binary_search_by_key(&id.0, |e| e.id.0).ok()?;
        self.working.get(at)
    }

    /// What an endpoint is to its connections.
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

    /// The numbers of all queue pairs, those that wait included.
    pub fn qpns(&self) -> impl Iterator<Item = Qpn> {
        let working = self.working.iter().map(|e| e.qp.qpn());
        working.chain(self.waiting.iter().map(|(_, qpn)| *qpn))
    }
}

impl Endpoint {
    /// Its partition, for connections.
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
    /// Bound to the RoCEv2 port. It stays while the interface does: the place in its group of
    /// sockets is the worker's number.
    pub receive: Arc<OwnedFd>,
    /// Bound to the GID and to `source`'s port.
    pub transmit: OwnedFd,
    /// The source of every packet.
    pub source: SocketAddr,
}

/// Who is attached to which group. There are many groups, and few endpoints in each: a copy of all is
/// cheap as long as it shares them.
pub type Groups = HashMap<Gid, Arc<[EndpointId]>, foldhash::fast::RandomState>;

/// Everything that the packet path reads. What is large is shared from one table to the next, unless
/// it is what has changed.
#[derive(Clone, Debug, Default)]
pub struct Table {
    /// The port's GID; [`Gid::UNSPECIFIED`] while there is none.
    pub gid: Gid,
    /// The underlay's interface index, the scope of link-local destinations.
    pub ifindex: u32,
    /// The largest UD payload in bytes.
    pub payload_max: usize,
    /// The largest UDP payload that may leave in one send.
    pub send_max: usize,
    /// The P_Keys of the port; QP1 takes any of them.
    pub pkeys: Arc<PKeyTable>,
    /// The endpoints.
    pub endpoints: Arc<Endpoints>,
    /// The endpoints that are attached to a group, those that wait included.
    pub groups: Arc<Groups>,
    /// Where copies of multicast packets go, instead of to the group.
    pub peers: Vec<IpAddr>,
    /// Multicast goes to `peers`, even if that list is empty now.
    pub copies: bool,
    /// One entry for each worker; empty while the underlay is gone.
    pub sockets: Arc<[Sockets]>,
}

impl Table {
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

    /// Whether a management datagram with these keys may reach QP1 (IBA vol. 1, 10.9.8).
    pub fn gsi_takes(&self, pkey: PKey, qkey: QKey) -> bool {
        qkey == QKey::GSI && self.pkeys.admits(pkey)
    }
}

/// The table that all workers share.
#[derive(Debug, Default)]
pub struct Shared {
    generation: AtomicU64,
    table: Mutex<Arc<Table>>,
}

impl Shared {
    /// The number of the newest table. A worker that has seen this number has the newest table.
    pub fn generation(&self) -> u64 {
        // Pairs with the release in `publish`: who sees the number finds the table.
        self.generation.load(Ordering::Acquire)
    }

    /// The newest table.
    pub fn table(&self) -> Arc<Table> {
        // A table is replaced whole, so one behind a poisoned lock is still a whole one.
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
