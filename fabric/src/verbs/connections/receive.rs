//! What a worker receives messages with.

use std::io;
use std::sync::Arc;

use proto::{Instant, WcStatus};

use super::Engine;
use super::real::RealDevice;
use crate::verbs::ibv::{Completed, Place, Pool, ReceiveList, SharedReceiveQueue, WorkCompletion};
use crate::verbs::receive::Taken;
use crate::worker::{Part, RcReceived};

/// The places, and what a batch holds of them.
#[derive(Debug)]
pub struct Messages {
    pool: Pool,
    queue: Arc<SharedReceiveQueue>,
    list: ReceiveList,
    /// To be posted with the next list.
    idle: Vec<Place>,
    /// Those of the batch.
    pub taken: Taken,
    /// The messages of the batch.
    pub received: Vec<RcReceived>,
    /// Where they are: one part each.
    pub parts: Vec<Part>,
}

impl Messages {
    /// With the places of a device; none is posted yet.
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

    /// Whether a completion is for one of these places.
    pub fn owns(&self, completion: &WorkCompletion) -> bool {
        self.pool.owns(completion)
    }

    /// Posts the places of the last batch, and those that could not be posted before, as one list. True
    /// if there were any.
    ///
    /// # Errors
    /// Those of ibv_post_srq_recv(3).
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

    /// Takes what a completion gives back into the batch. False if it gives nothing back.
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
            // More than there is room for cannot have been received.
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
