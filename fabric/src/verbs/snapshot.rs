//! What the control side tells the worker: an immutable table behind a generation number.
//!
//! The worker compares the generation once a batch; only when it has changed does it take the lock, for
//! as long as it takes to clone one reference.

use std::collections::{BTreeMap, HashMap};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use proto::{EndpointId, Gid, IbMtu, Lid, PKey, QKey, Qpn};

use super::device::Device;
use super::endpoint::UdPair;
use crate::pkeys::PKeyTable;

/// An endpoint as the worker sees it.
#[derive(Clone, Debug)]
pub struct Endpoint {
    /// Its name.
    pub id: EndpointId,
    /// Its queue pair.
    pub pair: Arc<UdPair>,
    /// The P_Key table entry in use, and its place; none while it waits for one, with its queue pair in
    /// RESET.
    pub pkey: Option<(PKey, u16)>,
    /// Its Q_Key.
    pub qkey: QKey,
    /// How often the queue pair was started: what was posted before is gone.
    pub starts: u32,
}

impl Endpoint {
    /// The Q_Key that goes out where this one is asked for: a controlled one stands for the queue pair's
    /// own (IBA vol. 1, 10.2.5). `rdma_rxe` would send it as it is (drivers/infiniband/sw/rxe/rxe_req.c,
    /// init_req_packet).
    pub fn sent_qkey(&self, requested: QKey) -> QKey {
        if requested.is_controlled() {
            self.qkey
        } else {
            requested
        }
    }
}

/// The endpoints of a port.
#[derive(Debug, Default)]
pub struct Endpoints {
    /// By ascending id.
    all: Vec<Endpoint>,
    /// Places in `all`.
    by_qpn: HashMap<Qpn, usize, foldhash::fast::RandomState>,
}

impl Endpoints {
    /// These, by ascending id.
    pub fn of(all: Vec<Endpoint>) -> Endpoints {
        let by_qpn = all.iter().enumerate().map(|(at, e)| (e.pair.qp.qpn(), at));
        Endpoints {
            by_qpn: by_qpn.collect(),
            all,
        }
    }

    /// By its id.
    pub fn get(&self, id: EndpointId) -> Option<&Endpoint> {
        let at = self.all.binary_search_by_key(&id.0, |e| e.id.0).ok()?;
        self.all.get(at)
    }

    /// By its queue pair.
    pub fn by_qpn(&self, qpn: Qpn) -> Option<&Endpoint> {
        self.all.get(*self.by_qpn.get(&qpn)?)
    }

    /// All, by ascending id.
    pub fn all(&self) -> &[Endpoint] {
        &self.all
    }
}

/// Everything that the packet path reads.
#[derive(Clone, Debug, Default)]
pub struct Table {
    /// The device; none while it is away.
    pub device: Option<Arc<Device>>,
    /// The port of the device.
    pub port: u8,
    /// The port's GID; [`Gid::UNSPECIFIED`] while there is none.
    pub gid: Gid,
    /// Its place.
    pub gid_index: u8,
    /// The interface that it belongs to; 0 where there is none.
    pub scope: u32,
    /// Whether packets go over Ethernet.
    pub ethernet: bool,
    /// The largest UD payload in bytes.
    pub payload_max: usize,
    /// The largest payload of a packet of a connection: the port's active MTU.
    pub path_mtu: Option<IbMtu>,
    /// The P_Key table.
    pub pkeys: Arc<PKeyTable>,
    /// On InfiniBand, where ports and groups are.
    pub lids: Arc<BTreeMap<Gid, Lid>>,
    /// The endpoints.
    pub endpoints: Arc<Endpoints>,
}

impl Table {
    /// Whether what the device says of the checksums of IP packets in datagrams counts.
    pub fn checks_checksums(&self) -> bool {
        let device = self.device.as_ref();
        device.is_some_and(|d| d.attributes.checks_datagrams(self.ethernet))
    }
}

/// What the two sides share.
#[derive(Debug)]
pub struct Shared {
    generation: AtomicU64,
    table: Mutex<Arc<Table>>,
    /// Why the worker wants the device opened anew.
    complaint: Mutex<Option<String>>,
    /// Readable when the worker has news.
    pub worker: Arc<OwnedFd>,
    /// Readable when there is a complaint.
    pub port: OwnedFd,
}

impl Shared {
    /// An empty table, with eventfds to wake the two sides by.
    pub fn new(worker: Arc<OwnedFd>, port: OwnedFd) -> Shared {
        Shared {
            generation: AtomicU64::new(0),
            table: Mutex::default(),
            complaint: Mutex::default(),
            worker,
            port,
        }
    }

    /// The number of the newest table.
    pub fn generation(&self) -> u64 {
        // Pairs with the release in `publish`: who sees the number finds the table.
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
        // It may be the last that holds a device: that is given up without the lock.
        drop(old);
    }

    /// Has the worker look at the table now, and not with the next packet.
    pub fn wake_worker(&self) {
        wake(&self.worker);
    }

    /// The device does not work: the port is to open it anew.
    pub fn complain(&self, why: impl Into<String>) {
        lock(&self.complaint).get_or_insert_with(|| why.into());
        wake(&self.port);
    }

    /// The complaint that has come in.
    pub fn take_complaint(&self) -> Option<String> {
        let mut count = [0; 8];
        let _ = rustix::io::read(&self.port, &mut count);
        lock(&self.complaint).take()
    }
}

fn wake(eventfd: &OwnedFd) {
    if let Err(e) = rustix::io::write(eventfd, &1u64.to_ne_bytes()) {
        log::debug!("an eventfd cannot be written to: {e}");
    }
}

/// What is behind a poisoned lock is replaced whole, and so still whole.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
