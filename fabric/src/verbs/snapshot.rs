//! Data from the control side for a worker: an immutable table with a generation number.
//!
//! The worker compares the generation once a batch. Only after a change it takes the lock, for the time
//! to clone one reference.

use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use proto::{EndpointId, Gid, IbMtu, Lid, PKey, QKey, Qpn, Services};

use super::device::Device;
use super::endpoint::UdPair;
use super::lock;
use crate::kernel::wake;
use crate::mail::Mail;
use crate::pkeys::PKeyTable;
use crate::subnet::{Destination, PathAnswer};

/// An endpoint, for the worker.
#[derive(Clone, Debug)]
pub struct Endpoint {
    /// Identifier.
    pub id: EndpointId,
    /// The worker's queue pair.
    pub pair: Arc<UdPair>,
    /// The numbers of the queue pairs of all workers; the first one is advertised.
    pub qpns: Arc<[Qpn]>,
    /// P_Key table entry in use, and its index; `None` while the endpoint waits for one with its queue
    /// pair in RESET.
    pub pkey: Option<(PKey, u16)>,
    /// Q_Key.
    pub qkey: QKey,
    /// Number of starts of the queue pair; work from earlier starts is lost.
    pub starts: u32,
}

impl Endpoint {
    /// The advertised queue pair number.
    pub fn qpn(&self) -> Qpn {
        self.qpns.first().copied().unwrap_or(self.pair.qp.qpn())
    }

    /// Whether the endpoint sends from a queue pair.
    pub fn sends_from(&self, qpn: Qpn) -> bool {
        self.qpns.contains(&qpn)
    }

    /// The Q_Key to send for a requested one: a controlled Q_Key selects the queue pair's own (IBA vol.
    /// 1, 10.2.5). `rdma_rxe` would send it unchanged (drivers/infiniband/sw/rxe/rxe_req.c,
    /// init_req_packet).
    pub fn sent_qkey(&self, requested: QKey) -> QKey {
        if requested.is_controlled() {
            self.qkey
        } else {
            requested
        }
    }
}

/// The endpoints of a port, with the queue pairs of one worker.
#[derive(Debug, Default)]
pub struct Endpoints {
    /// Endpoints by ascending id.
    all: Vec<Endpoint>,
    /// Indexes in `all`.
    by_qpn: HashMap<Qpn, usize, foldhash::fast::RandomState>,
}

impl Endpoints {
    /// From endpoints in order of ascending id.
    pub fn of(all: Vec<Endpoint>) -> Endpoints {
        let by_qpn = all.iter().enumerate().map(|(at, e)| (e.pair.qp.qpn(), at));
        Endpoints {
            by_qpn: by_qpn.collect(),
            all,
        }
    }

    /// Finds an endpoint by id.
    pub fn get(&self, id: EndpointId) -> Option<&Endpoint> {
        let at = self.all.binary_search_by_key(&id.0, |e| e.id.0).ok()?;
        self.all.get(at)
    }

    /// Finds an endpoint by queue pair number.
    pub fn by_qpn(&self, qpn: Qpn) -> Option<&Endpoint> {
        self.all.get(*self.by_qpn.get(&qpn)?)
    }

    /// All endpoints, by ascending id.
    pub fn all(&self) -> &[Endpoint] {
        &self.all
    }
}

/// All data that the packet path reads.
#[derive(Clone, Debug, Default)]
pub struct Table {
    /// The worker's part of the device; `None` while the device is away.
    pub device: Option<Arc<Device>>,
    /// Port number on the device.
    pub port: u8,
    /// The port's GID; [`Gid::UNSPECIFIED`] without one.
    pub gid: Gid,
    /// Index of the GID.
    pub gid_index: u8,
    /// Index of the network interface of the GID; 0 without one.
    pub scope: u32,
    /// Whether the link layer is Ethernet.
    pub ethernet: bool,
    /// The port's LID, on InfiniBand.
    pub lid: Option<Lid>,
    /// The services of connections.
    pub services: Services,
    /// The largest UD payload in bytes.
    pub payload_max: usize,
    /// The largest payload of a connection's packet: the port's active MTU.
    pub path_mtu: Option<IbMtu>,
    /// The P_Key table.
    pub pkeys: Arc<PKeyTable>,
    /// Number of low bits of LIDs that select a path (LMC), on InfiniBand.
    pub lmc: u8,
    /// Number of changes of the subnet after which paths are resolved again.
    pub flushes: u64,
    /// The endpoints.
    pub endpoints: Arc<Endpoints>,
}

impl Table {
    /// Whether to trust the device's verification of IP checksums in datagrams.
    pub fn checks_checksums(&self) -> bool {
        let device = self.device.as_ref();
        device.is_some_and(|d| d.attributes.checks_datagrams(self.ethernet))
    }
}

/// Data shared by the port and one worker.
#[derive(Debug)]
pub struct Shared {
    generation: AtomicU64,
    table: Mutex<Arc<Table>>,
    /// Why the worker asks to open the device again.
    complaint: Mutex<Option<String>>,
    /// Destinations on InfiniBand whose paths the worker needs.
    pub destinations: Mail<Destination>,
    /// The answers, and those to other workers.
    pub paths: Mail<PathAnswer>,
    /// Readable when there is news for the worker.
    pub worker: Arc<OwnedFd>,
    /// Readable when there is a complaint, or a destination to resolve.
    pub port: Arc<OwnedFd>,
}

impl Shared {
    /// Creates an empty table, with eventfds that wake the two sides.
    pub fn new(worker: Arc<OwnedFd>, port: Arc<OwnedFd>) -> Shared {
        Shared {
            destinations: Mail::new(Arc::clone(&port)),
            paths: Mail::new(Arc::clone(&worker)),
            generation: AtomicU64::new(0),
            table: Mutex::default(),
            complaint: Mutex::default(),
            worker,
            port,
        }
    }

    /// Generation of the newest table.
    pub fn generation(&self) -> u64 {
        // Pairs with the release in `publish`: a reader of the number finds the table.
        self.generation.load(Ordering::Acquire)
    }

    /// The newest table.
    pub fn table(&self) -> Arc<Table> {
        lock(&self.table).clone()
    }

    /// Replaces the table.
    pub fn publish(&self, table: Table) {
        let old = std::mem::replace(&mut *lock(&self.table), Arc::new(table));
        self.generation.fetch_add(1, Ordering::Release);
        // This may be the last owner of a device: drop it without the lock.
        drop(old);
    }

    /// Wakes the worker to read the table before the next packet.
    pub fn wake_worker(&self) {
        wake(&self.worker);
    }

    /// Asks the port to open the device again, because it does not work.
    pub fn complain(&self, why: impl Into<String>) {
        lock(&self.complaint).get_or_insert_with(|| why.into());
        wake(&self.port);
    }

    /// Takes the complaint, after the eventfd of the port was read.
    pub fn take_complaint(&self) -> Option<String> {
        lock(&self.complaint).take()
    }
}
