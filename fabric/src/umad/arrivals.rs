//! Received MADs, between the thread of a port and the port's owner.

use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::event::{EventfdFlags, eventfd};
use rustix::io::Errno;

use super::error::UmadError;
use super::message::Received;

/// Maximum number of MADs that wait.
const MAX_MADS: usize = 1024;
/// Maximum bytes of MADs that wait, and of one MAD: a table of 300,000 records of groups.
pub const MAX_BYTES: usize = 16 << 20;

#[derive(Debug, Default)]
struct Queue {
    mads: VecDeque<Received>,
    bytes: usize,
    dropped: u64,
    failed: Option<UmadError>,
}

/// A bounded queue with an eventfd that is readable while the queue holds something.
#[derive(Debug)]
pub struct Arrivals {
    queue: Mutex<Queue>,
    ready: OwnedFd,
}

impl Arrivals {
    /// An empty queue.
    pub fn new() -> Result<Arrivals, Errno> {
        Ok(Arrivals {
            queue: Mutex::default(),
            ready: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?,
        })
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a MAD; drops and counts it while the queue is full.
    pub fn add(&self, mad: Received) {
        let mut queue = self.queue();
        let bytes = queue.bytes.saturating_add(mad.mad.len());
        if queue.mads.len() >= MAX_MADS || bytes > MAX_BYTES {
            queue.dropped = queue.dropped.saturating_add(1);
            return;
        }
        queue.bytes = bytes;
        queue.mads.push_back(mad);
        self.set_ready();
    }

    /// Ends the queue: after the waiting MADs, its reader gets the error once.
    pub fn fail(&self, error: UmadError) {
        let mut queue = self.queue();
        queue.failed = Some(error);
        self.set_ready();
    }

    /// The next MAD; `None` if nothing waits.
    ///
    /// # Errors
    /// That of [`Arrivals::fail`], once.
    pub fn next(&self) -> Result<Option<Received>, UmadError> {
        let mut queue = self.queue();
        let next = match queue.mads.pop_front() {
            Some(mad) => {
                queue.bytes = queue.bytes.saturating_sub(mad.mad.len());
                Ok(Some(mad))
            }
            None => queue.failed.take().map_or(Ok(None), Err),
        };
        if queue.mads.is_empty() && queue.failed.is_none() {
            // Under the lock, so that no addition comes between.
            let _ = rustix::io::read(&self.ready, &mut [0; 8]);
        }
        next
    }

    /// MADs dropped because the queue was full.
    pub fn dropped(&self) -> u64 {
        self.queue().dropped
    }

    fn set_ready(&self) {
        if let Err(e) = rustix::io::write(&self.ready, &1u64.to_ne_bytes()) {
            log::debug!("cannot write to an eventfd: {e}");
        }
    }
}

impl AsFd for Arrivals {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.ready.as_fd()
    }
}
