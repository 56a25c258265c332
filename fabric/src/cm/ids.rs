//! Unpredictable numbers from a seed.

use std::hash::{DefaultHasher, Hasher};

use super::CmId;

/// SipHash of a counter, keyed with the seed: without the seed, known numbers do not reveal the next.
#[derive(Debug)]
pub struct Random {
    seed: u64,
    count: u64,
}

impl Random {
    pub const fn new(seed: u64) -> Random {
        Random { seed, count: 0 }
    }

    pub fn next(&mut self) -> u64 {
        self.count = self.count.wrapping_add(1);
        let mut hasher = DefaultHasher::new();
        hasher.write_u64(self.seed);
        hasher.write_u64(self.count);
        hasher.finish()
    }

    /// A communication id whose low byte is `worker` modulo `workers`; never 0.
    pub fn comm_id(&mut self, worker: usize, workers: usize) -> CmId {
        // One byte distinguishes 256 workers; further workers share numbers.
        let workers = workers.clamp(1, 256) as u64;
        let worker = worker as u64 % workers;
        loop {
            let random = self.next();
            // Number of bytes that are `worker` modulo `workers`.
            let choices = (255 - worker) / workers + 1;
            let low = worker + workers * ((random >> 32) % choices);
            let id = (random as u32 & 0xffff_ff00) | low as u32;
            if id != 0 {
                return CmId(id);
            }
        }
    }
}
