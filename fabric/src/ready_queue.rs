//! A bounded queue between threads, with an eventfd for the reader's event loop.

use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::event::{EventfdFlags, eventfd};
use rustix::io::Errno;

use crate::kernel::wake;

/// The eventfd is readable while the queue holds something. The writers bound the queue.
#[derive(Debug)]
pub struct ReadyQueue<T> {
    waiting: Mutex<VecDeque<T>>,
    ready: OwnedFd,
}

impl<T> ReadyQueue<T> {
    /// An empty queue.
    ///
    /// # Errors
    /// Errors of `eventfd(2)`.
    pub fn new() -> Result<ReadyQueue<T>, Errno> {
        Ok(ReadyQueue {
            waiting: Mutex::default(),
            ready: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?,
        })
    }

    fn waiting(&self) -> MutexGuard<'_, VecDeque<T>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds an item if `fits` allows it with what waits; false if the item was dropped.
    pub fn put_if(&self, item: T, fits: impl FnOnce(&VecDeque<T>) -> bool) -> bool {
        let mut waiting = self.waiting();
        if !fits(&waiting) {
            return false;
        }
        waiting.push_back(item);
        wake(&self.ready);
        true
    }

    /// The oldest item; `None` if nothing waits.
    pub fn take(&self) -> Option<T> {
        let mut waiting = self.waiting();
        let next = waiting.pop_front();
        if waiting.is_empty() {
            // Under the lock, so that no addition comes between.
            let _ = rustix::io::read(&self.ready, &mut [0; 8]);
        }
        next
    }
}

impl<T> AsFd for ReadyQueue<T> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.ready.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};

    use super::*;

    fn is_ready(queue: &ReadyQueue<u8>) -> bool {
        let mut fds = [PollFd::new(queue, PollFlags::IN)];
        poll(&mut fds, Some(&Timespec::default())).unwrap() == 1
    }

    #[test]
    fn the_descriptor_is_readable_while_something_waits() {
        let queue = ReadyQueue::new().unwrap();
        assert!(!is_ready(&queue));
        let below_two = |waiting: &VecDeque<u8>| waiting.len() < 2;
        let put: Vec<bool> = (0..3).map(|n| queue.put_if(n, below_two)).collect();
        assert_eq!(put, [true, true, false]);
        assert_eq!((is_ready(&queue), queue.take()), (true, Some(0)));
        assert_eq!((is_ready(&queue), queue.take()), (true, Some(1)));
        assert_eq!((is_ready(&queue), queue.take()), (false, None));
    }
}
