//! The posted places, and their queues.

use std::io;
use std::sync::Arc;

use super::completion::WorkCompletion;
use super::context::ProtectionDomain;
use super::memory::{MemoryRegion, Place};
use super::queue_pair::Emptied;

/// Meaning of a completion.
#[derive(Debug)]
pub enum Completed {
    /// All work requests of this place are done.
    Place(Place),
    /// One of several work requests of the place with this index failed; the last one returns the place.
    Part(u32),
    /// A repeated, late or foreign completion: nothing posted matches it.
    Unknown,
}

/// A posted place.
#[derive(Debug)]
struct Posted {
    place: Place,
    queue: u64,
}

/// The places of a memory region that are posted. Belongs to one thread.
#[derive(Debug)]
pub struct Pool {
    number: u32,
    place_len: usize,
    posted: Vec<Option<Posted>>,
    count: usize,
}

impl Pool {
    /// Registers memory for `count` places of `place_len` bytes, and returns the places.
    ///
    /// # Errors
    /// Errors of [`MemoryRegion::new`]; InvalidInput for more than 2^24 places.
    pub fn new(
        domain: &Arc<ProtectionDomain>,
        count: usize,
        place_len: usize,
    ) -> io::Result<(Pool, Vec<Place>)> {
        let total = count
            .checked_mul(place_len)
            .filter(|_| count <= Place::INDEX_MAX as usize)
            .ok_or(io::ErrorKind::InvalidInput)?;
        let (number, mut places) = MemoryRegion::new(domain, total)?.cut(place_len);
        places.truncate(count);
        let pool = Pool {
            number,
            place_len,
            posted: (0..places.len()).map(|_| None).collect(),
            count: 0,
        };
        Ok((pool, places))
    }

    /// Bytes of a place.
    pub const fn place_len(&self) -> usize {
        self.place_len
    }

    /// Number of posted places.
    pub const fn posted(&self) -> usize {
        self.count
    }

    /// Whether a completion can belong to a place of this pool.
    pub fn owns(&self, completion: &WorkCompletion) -> bool {
        Place::names_pool(completion.wr_id(), self.number)
    }

    /// Takes back the place of a completion.
    pub fn completed(&mut self, completion: &WorkCompletion) -> Completed {
        self.take(completion.wr_id())
    }

    fn take(&mut self, wr_id: u64) -> Completed {
        let (index, _, more) = Place::parse(wr_id);
        let known = |posted: &Posted| posted.place.wr_id() == Place::without_more(wr_id);
        match self.posted.get_mut(index as usize) {
            Some(slot) if slot.as_ref().is_some_and(known) => {
                if more {
                    return Completed::Part(index);
                }
                match slot.take() {
                    Some(posted) => {
                        self.count -= 1;
                        Completed::Place(posted.place)
                    }
                    None => Completed::Unknown,
                }
            }
            _ => Completed::Unknown,
        }
    }

    /// Takes back the places of an emptied queue.
    pub fn reclaim(&mut self, emptied: &Emptied) -> Vec<Place> {
        let of_queue = |slot: &mut Option<Posted>| {
            slot.take_if(|posted| posted.queue == emptied.queue())
                .map(|posted| posted.place)
        };
        let places: Vec<Place> = self.posted.iter_mut().filter_map(of_queue).collect();
        self.count -= places.len();
        places
    }

    /// Whether a place belongs to this pool.
    pub(super) const fn has(&self, place: &Place) -> bool {
        place.pool() == self.number
    }

    /// Stores a place of this pool that was posted to a queue.
    pub(super) fn note(&mut self, place: Place, queue: u64) {
        if let Some(slot) = self.posted.get_mut(place.index() as usize) {
            let before = slot.replace(Posted { place, queue });
            self.count += usize::from(before.is_none());
        }
    }
}

#[cfg(test)]
#[path = "pool_tests.rs"]
mod tests;
