//! Packets received by another worker than their own. They are rare: the kernel selects the worker by
//! the rule in [`super::steering`], but merges packets of several queue pairs from one UDP port, and
//! old kernels lack the rule.

use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use super::ud::Path;
use crate::kernel::wake;

/// Maximum number of packets queued for one worker; further packets are dropped.
const LETTERS_MAX: usize = 1024;

/// A packet from another worker.
#[derive(Debug)]
pub struct Letter {
    /// The packet's addresses.
    pub path: Path,
    /// From BTH to ICRC.
    pub bytes: Box<[u8]>,
}

/// The packets queued for one worker.
#[derive(Debug)]
pub struct Mailbox {
    letters: Mutex<VecDeque<Letter>>,
    /// Whether the queue has packets; read without the lock.
    any: AtomicBool,
    /// Becomes readable when the worker has something to do.
    wake: Arc<OwnedFd>,
}

impl Mailbox {
    /// Creates an empty mailbox; writing to `wake` wakes its worker.
    pub fn new(wake: Arc<OwnedFd>) -> Mailbox {
        Mailbox {
            letters: Mutex::default(),
            any: AtomicBool::new(false),
            wake,
        }
    }

    /// Queues a packet and wakes the worker; false if the queue is full.
    pub fn put(&self, path: Path, bytes: &[u8]) -> bool {
        let mut letters = self.letters.lock().unwrap_or_else(PoisonError::into_inner);
        if letters.len() == LETTERS_MAX {
            return false;
        }
        letters.push_back(Letter {
            path,
            bytes: bytes.into(),
        });
        if !self.any.swap(true, Ordering::Release) {
            wake(&self.wake);
        }
        true
    }

    /// Takes packets of at most `room` bytes together, and wakes the worker again if some are left. A
    /// packet longer than `room` is dropped.
    pub fn take(&self, mut room: usize) -> Vec<Letter> {
        if !self.any.load(Ordering::Acquire) {
            return Vec::new();
        }
        let mut letters = self.letters.lock().unwrap_or_else(PoisonError::into_inner);
        let mut taken = Vec::new();
        while let Some(letter) = letters.pop_front() {
            match room.checked_sub(letter.bytes.len()) {
                Some(rest) => {
                    room = rest;
                    taken.push(letter);
                }
                None if taken.is_empty() => {}
                None => {
                    letters.push_front(letter);
                    break;
                }
            }
        }
        self.any.store(!letters.is_empty(), Ordering::Release);
        if !letters.is_empty() {
            wake(&self.wake);
        }
        taken
    }
}

#[cfg(test)]
mod tests {
    use rustix::event::{EventfdFlags, eventfd};

    use super::*;
    use proto::Gid;

    const PATH: Path = Path {
        src: Gid::UNSPECIFIED,
        dst: Gid::UNSPECIFIED,
        src_port: 1,
    };

    /// How often the worker was woken since the last call.
    fn woken(wake: &OwnedFd) -> u64 {
        let mut count = [0; 8];
        rustix::io::read(wake, &mut count).map_or(0, |_| u64::from_ne_bytes(count))
    }

    #[test]
    fn packets_wake_the_worker_until_they_are_taken() {
        let wake = Arc::new(eventfd(0, EventfdFlags::NONBLOCK).unwrap());
        let mailbox = Mailbox::new(Arc::clone(&wake));
        assert!(mailbox.take(1000).is_empty());
        for k in 0..10 {
            assert!(mailbox.put(PATH, &[k; 100]));
        }
        assert_eq!(woken(&wake), 1);
        let first: Vec<u8> = mailbox.take(450).iter().map(|l| l.bytes[0]).collect();
        assert_eq!(first, [0, 1, 2, 3]);
        assert_eq!(woken(&wake), 1, "some are left");
        assert_eq!(mailbox.take(1000).len(), 6);
        assert_eq!(woken(&wake), 0);
        assert!(mailbox.put(PATH, &[0; 100]) && mailbox.put(PATH, &[1]));
        assert_eq!(woken(&wake), 1);
        assert_eq!(mailbox.take(50).len(), 1, "oversized packets are dropped");
    }

    #[test]
    fn it_is_bounded() {
        let wake = Arc::new(eventfd(0, EventfdFlags::NONBLOCK).unwrap());
        let mailbox = Mailbox::new(wake);
        let taken = (0..2 * LETTERS_MAX).filter(|_| mailbox.put(PATH, &[0]));
        assert_eq!(taken.count(), LETTERS_MAX);
    }
}
