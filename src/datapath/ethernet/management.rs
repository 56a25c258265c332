//! Management datagrams. They arrive at endpoints without a lane; the control thread reads and answers them.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use fabric::{EndpointId, Gid, PKey, QKey, Qpn, Room, UdDestination, UdReceived, Worker};
use foldhash::fast::RandomState;

use super::super::command::Report;
use super::super::lane::LinkId;
use super::super::priority::Priorities;
use super::super::thread::Control;
use super::super::train::{OpenTrain, Pushed, Single, To};

/// Maximum number of datagrams of one batch; more are lost and counted.
const BATCH_MAX: usize = 64;

/// Maximum number of datagrams that wait for the control thread; more are lost and counted. Any host that
/// knows the Q_Key can send a flood.
const WAITING_MAX: usize = 512;

/// The place of a datagram in the queue for the control thread. Dropping it frees the place.
#[derive(Debug)]
pub struct Place(Arc<AtomicUsize>);

impl Drop for Place {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A management datagram.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Datagram {
    /// The endpoint, by its name of [`super::super::Command::AddManagement`].
    pub at: LinkId,
    /// The GID of the sender.
    pub gid: Gid,
    /// The queue pair of the sender.
    pub qpn: Qpn,
    /// Whether the datagram was sent to a group.
    pub multicast: bool,
    /// The UD payload.
    pub payload: Box<[u8]>,
}

/// The management endpoints of one data thread.
#[derive(Default)]
pub struct Management {
    by_endpoint: HashMap<EndpointId, LinkId, RandomState>,
    endpoints: HashMap<LinkId, Endpoint, RandomState>,
    arrived: Vec<Datagram>,
    /// Number of datagrams that wait for the control thread.
    waiting: Arc<AtomicUsize>,
    /// Lost datagrams, received or to be sent.
    lost: u64,
}

struct Endpoint {
    id: EndpointId,
    pkey: PKey,
    /// Address handles, all of priority 0.
    handles: Priorities,
}

impl Management {
    /// Adds an endpoint in a partition.
    pub fn add(&mut self, name: LinkId, id: EndpointId, pkey: PKey) {
        let endpoint = Endpoint {
            id,
            pkey,
            handles: Priorities::default(),
        };
        self.by_endpoint.insert(id, name);
        self.endpoints.insert(name, endpoint);
    }

    /// Removes an endpoint; false if no endpoint has the name.
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

    /// The name of a management endpoint.
    pub fn of_endpoint(&self, endpoint: EndpointId) -> Option<LinkId> {
        self.by_endpoint.get(&endpoint).copied()
    }

    /// Stores arrivals of an endpoint until [`Management::report`].
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

    /// Reports the stored datagrams.
    pub fn report(&mut self, control: &Control) {
        for datagram in std::mem::take(&mut self.arrived) {
            match self.wait() {
                Some(place) => control.report(Report::Management(Box::new(datagram), place)),
                None => self.lost += 1,
            }
        }
    }

    /// Takes a free place in the queue for the control thread, if there is one.
    fn wait(&self) -> Option<Place> {
        // Only this thread increments the number.
        if self.waiting.load(Ordering::Relaxed) >= WAITING_MAX {
            return None;
        }
        self.waiting.fetch_add(1, Ordering::Relaxed);
        Some(Place(Arc::clone(&self.waiting)))
    }

    /// Sends one datagram. The datagram is lost if the fabric has no room.
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
        let sent =
            fabric.room() != Room::Nothing && endpoint.send(fabric, train, gid, qpn, payload);
        self.lost += u64::from(!sent);
    }

    /// Number of lost datagrams.
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
        let Some(ah) = self.handles.handle(fabric, (gid, self.pkey)) else {
            return false;
        };
        let to = UdDestination {
            ah,
            qpn,
            qkey: QKey::OWN,
        };
        let to = To::Datagrams(self.id, to);
        let pushed = train.push(fabric, &to, &mut Single(Some(payload)));
        self.release(fabric, train);
        pushed == Pushed::All
    }

    /// Destroys released handles, after the last send that uses them.
    fn release(&mut self, fabric: &mut dyn Worker, train: &mut OpenTrain) {
        for ah in self.handles.released() {
            train.flush(fabric);
            fabric.destroy_ah(ah);
        }
    }
}
