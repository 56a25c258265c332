//! Messages from other threads to a thread that waits on an eventfd.

use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::kernel::wake;

/// Messages for one reader.
#[derive(Debug)]
pub struct Mail<T> {
    all: Mutex<Vec<T>>,
    /// Whether `all` has messages; read without the lock.
    any: AtomicBool,
    /// Written after each message.
    wake: Arc<OwnedFd>,
}

impl<T> Mail<T> {
    /// An empty box; the eventfd wakes the reader.
    pub fn new(wake: Arc<OwnedFd>) -> Mail<T> {
        Mail {
            all: Mutex::new(Vec::new()),
            any: AtomicBool::new(false),
            wake,
        }
    }

    fn all(&self) -> MutexGuard<'_, Vec<T>> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds messages and wakes the reader.
    pub fn send(&self, messages: impl IntoIterator<Item = T>) {
        self.all().extend(messages);
        // After storing the messages: a reader of the flag finds them.
        self.any.store(true, Ordering::Release);
        wake(&self.wake);
    }

    /// Takes all messages, in the order of their arrival.
    pub fn take(&self) -> Vec<T> {
        if !self.any.swap(false, Ordering::Acquire) {
            return Vec::new();
        }
        std::mem::take(&mut *self.all())
    }
}
