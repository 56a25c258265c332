//! Datagrams of management: they arrive at endpoints that are no lane's, and the control thread reads and
//! answers them.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use fabric::{EndpointId, Gid, QKey, Qpn, UdDestination, UdReceived, Worker};
use foldhash::fast::RandomState;

use super::super::command::Report;
use super::super::lane::LinkId;
use super::super::priority::Priorities;
use super::super::thread::Control;
use super::super::train::{OpenTrain, Pushed, Single, To};

/// Datagrams of one batch that are kept; more are lost and counted.
const BATCH_MAX: usize = 64;

/// Datagrams that wait for the control thread; more are lost and counted. Whoever knows the Q_Key may send
/// as many as he likes.
const WAITING_MAX: usize = 512;

/// The place of a datagram among those that wait for the control thread, free when this is dropped.
#[derive(Debug)]
pub struct Place(Arc<AtomicUsize>);

impl Drop for Place {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A datagram of management.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Datagram {
    /// The endpoint, by the name that [`super::super::Command::AddManagement`] gave it.
    pub at: LinkId,
    /// The sender's port.
    pub gid: Gid,
    /// The sender's queue pair.
    pub qpn: Qpn,
    /// It came by a group.
    pub multicast: bool,
    /// What was sent.
    pub payload: Box<[u8]>,
}

/// The management endpoints of one data thread.
#[derive(Default)]
pub struct Management {
    by_endpoint: HashMap<EndpointId, LinkId, RandomState>,
    endpoints: HashMap<LinkId, Endpoint, RandomState>,
    arrived: Vec<Datagram>,
    /// How many wait for the control thread.
    waiting: Arc<AtomicUsize>,
    /// Datagrams that were not kept, or not sent.
    lost: u64,
}

struct Endpoint {
    id: EndpointId,
    qkey: QKey,
    /// Address handles; all in the priority 0.
    handles: Priorities,
}

impl Management {
    /// Serves an endpoint from now on.
    pub fn add(&mut self, name: LinkId, id: EndpointId, qkey: QKey) {
        let endpoint = Endpoint {
            id,
            qkey,
            handles: Priorities::default(),
        };
        self.by_endpoint.insert(id, name);
        self.endpoints.insert(name, endpoint);
    }

    /// Serves an endpoint no more; false if there is none of this name.
    pub fn remove(&mut self, name: LinkId, fabric: &mut dyn Worker, train: &mut OpenTrain) -> bool {
        let Some(mut endpoint) = self.endpoints.remove(&name) else {
            return false;
        };
        self.by_endpoint.remove(&endpoint.id);
        self.arrived.retain(|datagram| datagram.at != name);
        endpoint.handles.release_all();
        endpoint.release(fabric, train);
        true
    }

    /// The name of an endpoint of management.
    pub fn of_endpoint(&self, endpoint: EndpointId) -> Option<LinkId> {
        self.by_endpoint.get(&endpoint).copied()
    }

    /// Keeps what arrived at an endpoint until the batch is through.
    #[cold]
    pub fn keep<'b>(
        &mut self,
        at: LinkId,
        datagrams: impl Iterator<Item = (&'b UdReceived, &'b [u8])>,
    ) {
        for (received, payload) in datagrams {
            if self.arrived.len() >= BATCH_MAX {
                self.lost += 1;
                continue;
            }
            self.arrived.push(Datagram {
                at,
                gid: received.src_gid,
                qpn: received.src_qpn,
                multicast: received.multicast,
                payload: payload.into(),
            });
        }
    }

    /// Reports what was kept.
    pub fn report(&mut self, control: &Control) {
        for datagram in std::mem::take(&mut self.arrived) {
            match self.wait() {
                Some(place) => control.report(Report::Management(Box::new(datagram), place)),
                None => self.lost += 1,
            }
        }
    }

    /// A place for a datagram to wait for the control thread, if there is one.
    fn wait(&self) -> Option<Place> {
        // Nobody else adds to it.
        if self.waiting.load(Ordering::Relaxed) >= WAITING_MAX {
            return None;
        }
        self.waiting.fetch_add(1, Ordering::Relaxed);
        Some(Place(Arc::clone(&self.waiting)))
    }

    /// Sends one datagram; it is lost if the fabric has no room.
    pub fn send(
        &mut self,
        fabric: &mut dyn Worker,
        train: &mut OpenTrain,
        from: LinkId,
        (gid, qpn): (Gid, Qpn),
        payload: &[u8],
    ) {
        let Some(endpoint) = self.endpoints.get_mut(&from) else {
            return;
        };
        let sent = fabric.has_room() && endpoint.send(fabric, train, gid, qpn, payload);
        self.lost += u64::from(!sent);
    }

    /// Datagrams that were lost here.
    pub fn lost(&self) -> u64 {
        self.lost
    }
}

impl Endpoint {
    fn send(
        &mut self,
        fabric: &mut dyn Worker,
        train: &mut OpenTrain,
        gid: Gid,
        qpn: Qpn,
        payload: &[u8],
    ) -> bool {
        let Some(ah) = self.handles.handle(fabric, gid) else {
            return false;
        };
        let to = UdDestination {
            ah,
            qpn,
            qkey: self.qkey,
        };
        let to = To::Datagrams(self.id, to);
        let pushed = train.push(fabric, &to, &mut Single(Some(payload)));
        self.release(fabric, train);
        pushed == Pushed::All
    }

    /// Gives back handles that were given up, after the last send that names them.
    fn release(&mut self, fabric: &mut dyn Worker, train: &mut OpenTrain) {
        for ah in self.handles.released() {
            train.flush(fabric);
            fabric.destroy_ah(ah);
        }
    }
}
