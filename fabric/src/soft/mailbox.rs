//! Packets that came to another worker than their own. It is rare: the kernel chooses by the rule in
//! [`super::steering`], but merges packets of several queue pairs if they come from one port, and
//! older ones know no such rule.

use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use super::ud::Path;

/// Packets that wait for one worker at most; what is more is lost, as in a network.
const LETTERS_MAX: usize = 1024;

/// A packet that was handed on.
#[derive(Debug)]
pub struct Letter {
    /// Where it came from.
    pub path: Path,
    /// From BTH to ICRC.
    pub bytes: Box<[u8]>,
}

/// What waits for one worker.
#[derive(Debug)]
pub struct Mailbox {
    letters: Mutex<VecDeque<Letter>>,
    /// Whether there is something in it, to be asked without the lock.
    any: AtomicBool,
    /// Becomes readable when there is news for the worker.
    wake: Arc<OwnedFd>,
}

impl Mailbox {
    /// An empty one of the worker that listens to `wake`.
    pub fn new(wake: Arc<OwnedFd>) -> Mailbox {
        Mailbox {
            letters: Mutex::default(),
            any: AtomicBool::new(false),
            wake,
        }
    }

    /// Puts a packet in and wakes the worker; false if it is full.
    pub fn put(&self, path: Path, bytes: &[u8]) -> bool {
        let mut letters = self.letters.lock().unwrap_or_else(PoisonError::into_inner);
        if letters.len() == LETTERS_MAX {
            return false;
        }
        letters.push_back(Letter {
            path,
            bytes: bytes.into(),
        });
        if !self.any.swap(true, Ordering::Release)
            && let Err(e) = rustix::io::write(&self.wake, &1u64.to_ne_bytes())
        {
            log::debug!("a worker cannot be woken: {e}");
        }
        true
    }

    /// Takes out the packets that come to at most `room` bytes. A packet longer than that is lost.
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
        taken
    }
}
