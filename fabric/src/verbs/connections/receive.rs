//! Receives messages.

use std::io;
use std::sync::Arc;

use proto::{Instant, WcStatus};

use super::Engine;
use super::real::RealDevice;
use crate::verbs::ibv::{Completed, Place, Pool, ReceiveList, SharedReceiveQueue, WorkCompletion};
use crate::verbs::receive::Taken;
use crate::worker::{Part, RcReceived};

/// The places, and the contents of a batch.
#[derive(Debug)]
pub struct Messages {
    pool: Pool,
    queue: Arc<SharedReceiveQueue>,
    list: ReceiveList,
    /// Places for the next list.
    idle: Vec<Place>,
    /// Places of the batch.
    pub taken: Taken,
    /// Messages of the batch.
    pub received: Vec<RcReceived>,
    /// The memory of the messages, one part each.
    pub parts: Vec<Part>,
}

impl Messages {
    /// Takes the places of a device; none is posted yet.
    pub fn new(queue: &Arc<SharedReceiveQueue>, (pool, idle): (Pool, Vec<Place>)) -> Messages {
        let count = idle.len();
        Messages {
            queue: Arc::clone(queue),
            list: ReceiveList::new(count),
            taken: Taken {
                places: Vec::with_capacity(count),
                len: pool.place_len(),
            },
            received: Vec::with_capacity(count),
            parts: Vec::with_capacity(count),
            pool,
            idle,
        }
    }

    /// Whether a completion belongs to one of these places.
    pub fn owns(&self, completion: &WorkCompletion) -> bool {
        self.pool.owns(completion)
    }

    /// Posts the places of the last batch, and those left over before, as one list. True if there were
    /// any.
    ///
    /// # Errors
    /// Errors of ibv_post_srq_recv(3).
    pub fn repost(&mut self) -> io::Result<bool> {
        self.received.clear();
        self.parts.clear();
        self.idle.append(&mut self.taken.places);
        if self.idle.is_empty() {
            return Ok(false);
        }
        self.queue
            .receive(&mut self.list, &mut self.pool, &mut self.idle)?;
        Ok(true)
    }

    /// Adds the place of a completion to the batch. False if the completion has no place.
    pub fn completed(
        &mut self,
        now: Instant,
        completion: &WorkCompletion,
        engine: &mut Engine<RealDevice>,
    ) -> bool {
        let Completed::Place(place) = self.pool.completed(completion) else {
            return false;
        };
        let len = completion.byte_len();
        let status = match completion.status() {
            // A message longer than the place cannot have been received.
            WcStatus::Success if len > place.len() => WcStatus::LocLenErr,
            status => status,
        };
        let Some(received) = engine.received(now, completion.qpn(), status, len) else {
            self.idle.push(place);
            return true;
        };
        let base = self.taken.places.len() * self.taken.len;
        let first = self.parts.len();
        if len > 0 {
            self.parts.push(Part::Kept(base..base + len));
        }
        self.received.push(RcReceived {
            endpoint: received.endpoint,
            connection: received.connection,
            immediate: completion.immediate(),
            len,
            parts: first..self.parts.len(),
        });
        self.taken.places.push(place);
        true
    }
}
