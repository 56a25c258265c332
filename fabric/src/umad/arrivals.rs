//! Received MADs, between the thread of a port and the port's owner.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::io::Errno;

use super::error::UmadError;
use super::message::Received;
use crate::ready_queue::ReadyQueue;

/// Maximum number of MADs that wait.
const MAX_MADS: usize = 1024;
/// Maximum bytes of MADs that wait, and of one MAD: a table of 300,000 records of groups.
pub const MAX_BYTES: usize = 16 << 20;

/// Received MADs, and at the end the error that ended the port.
#[derive(Debug)]
pub struct Arrivals {
    queue: ReadyQueue<Result<Received, UmadError>>,
    dropped: AtomicU64,
}

impl Arrivals {
    /// An empty queue.
    pub fn new() -> Result<Arrivals, Errno> {
        Ok(Arrivals {
            queue: ReadyQueue::new()?,
            dropped: AtomicU64::new(0),
        })
    }

    /// Adds a MAD; drops and counts it while the queue is full.
    pub fn add(&self, mad: Received) {
        let bytes = mad.mad.len();
        let added = self.queue.put_if(Ok(mad), |waiting| {
            let waiting_bytes: usize = waiting.iter().flatten().map(|mad| mad.mad.len()).sum();
            waiting.len() < MAX_MADS && waiting_bytes.saturating_add(bytes) <= MAX_BYTES
        });
        if !added {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Ends the queue: after the waiting MADs, its reader gets the error once.
    pub fn fail(&self, error: UmadError) {
        self.queue.put_if(Err(error), |_| true);
    }

    /// The next MAD; `None` if nothing waits.
    ///
    /// # Errors
    /// That of [`Arrivals::fail`], once.
    pub fn next(&self) -> Result<Option<Received>, UmadError> {
        self.queue.take().transpose()
    }

    /// MADs dropped because the queue was full.
    pub fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }
}

impl AsFd for Arrivals {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.queue.as_fd()
    }
}
