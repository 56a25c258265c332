//! What the control side tells the workers: an immutable table behind a generation number.
//!
//! A worker compares the generation once a batch; only when it has changed does it take the lock,
//! for as long as it takes to clone one reference.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use super::qp::QueuePair;
use crate::port::EndpointId;
use crate::types::{Gid, PKey, QKey, Qpn};

/// A queue pair as the workers see it.
#[derive(Clone, Copy, Debug)]
pub struct Endpoint {
    /// Its name.
    pub id: EndpointId,
    /// Number, state, Q_Key.
    pub qp: QueuePair,
    /// The P_Key table entry in use.
    pub pkey: PKey,
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

/// Everything that the packet path reads.
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
    pub pkeys: Vec<PKey>,
    /// The endpoints, by ascending id.
    pub endpoints: Vec<Endpoint>,
    /// Places in `endpoints` by queue pair number.
    pub by_qpn: HashMap<Qpn, usize, foldhash::fast::RandomState>,
    /// Places in `endpoints` of those attached to a group.
    pub groups: HashMap<Gid, Vec<usize>, foldhash::fast::RandomState>,
    /// Where copies of multicast packets go, instead of to the group.
    pub peers: Vec<IpAddr>,
    /// Multicast goes to `peers`, even if that list is empty now.
    pub copies: bool,
    /// One entry for each worker; empty while the underlay is gone.
    pub sockets: Arc<[Sockets]>,
}

impl Table {
    /// An endpoint by its id.
    pub fn endpoint(&self, id: EndpointId) -> Option<&Endpoint> {
        let at = self
            .endpoints
            .binary_search_by_key(&id.0, |e| e.id.0)
            .ok()?;
        self.endpoints.get(at)
    }

    /// The endpoint with this queue pair number.
    pub fn by_qpn(&self, qpn: Qpn) -> Option<&Endpoint> {
        self.by_qpn.get(&qpn).and_then(|&at| self.endpoints.get(at))
    }

    /// The endpoints attached to a group.
    pub fn attached(&self, mgid: &Gid) -> impl Iterator<Item = &Endpoint> {
        let places = self.groups.get(mgid).map_or(&[][..], Vec::as_slice);
        places.iter().filter_map(|&at| self.endpoints.get(at))
    }

    /// Whether a management datagram with these keys may reach QP1 (IBA vol. 1, 10.9.8).
    pub fn gsi_takes(&self, pkey: PKey, qkey: QKey) -> bool {
        qkey == QKey::GSI && self.pkeys.iter().any(|k| k.matches(pkey))
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
