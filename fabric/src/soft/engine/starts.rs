//! The starts of peers, as seen by all workers of a port.
//!
//! A peer that has ended without a DisconnectRequest acknowledges nothing any more, and each of its connections would
//! need all retries to end, one after the other if only one carries packets. But the peer's next request has another
//! CA GUID, because ours is random at each start. Anybody can forge such a request. So it ends nothing by itself: a
//! connection of the former start ends when the peer does not acknowledge its packets for one timeout.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use foldhash::fast::RandomState;
use proto::{Gid, Guid};

/// Maximum number of peers. Forgotten peers need all retries.
const PEERS_MAX: usize = 4096;

/// The last known start of each peer.
#[derive(Debug, Default)]
pub struct Starts(Mutex<HashMap<Gid, Guid, RandomState>>);

impl Starts {
    /// Notes the CA GUID of a request or reply.
    pub fn note(&self, peer: Gid, guid: Guid) {
        let mut last = self.lock();
        if last.len() >= PEERS_MAX && !last.contains_key(&peer) {
            last.clear();
        }
        last.insert(peer, guid);
    }

    /// Whether the peer has started again since it had this CA GUID.
    pub fn is_former(&self, peer: Gid, guid: Guid) -> bool {
        self.lock().get(&peer).is_some_and(|last| *last != guid)
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Gid, Guid, RandomState>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
