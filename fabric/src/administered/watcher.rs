//! Reads the attributes of a umad port once a second, on a thread of its own: a simulated port has no events,
//! and may answer late.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use rustix::event::{EventfdFlags, eventfd};

use crate::kernel::wake;
use crate::umad::{PortAttributes, Umad};

/// Time between two readings.
const INTERVAL: Duration = Duration::from_secs(1);

/// The port does not answer after this number of failed readings.
const FAILURES: u32 = 3;

/// The attributes of the port, or why they are not known as a sentence.
pub(super) type Seen = Result<PortAttributes, String>;

/// See the module. The thread ends with this value.
#[derive(Debug)]
pub(super) struct Watcher {
    shared: Arc<Shared>,
    end: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    /// The last change that was not taken.
    changed: Mutex<Option<Seen>>,
    /// Readable after each reading.
    event: OwnedFd,
}

impl Watcher {
    /// Watches a port whose attributes are known.
    ///
    /// # Errors
    /// Errors of the operating system.
    pub fn start(umad: &Arc<Umad>, known: &PortAttributes) -> io::Result<Watcher> {
        let shared = Arc::new(Shared {
            changed: Mutex::default(),
            event: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?,
        });
        let (end, ended) = channel();
        let known = Ok(known.clone());
        let (umad, of_thread) = (Arc::clone(umad), Arc::clone(&shared));
        let thread = thread::Builder::new().name("ibtap-port".to_owned());
        let thread = thread.spawn(move || of_thread.run(&umad, known, &ended))?;
        Ok(Watcher {
            shared,
            end: Some(end),
            thread: Some(thread),
        })
    }

    /// Readable after each reading of the port.
    pub fn event_fd(&self) -> BorrowedFd<'_> {
        self.shared.event.as_fd()
    }

    /// Whether the port was read since the last call, and what changed.
    pub fn take(&self) -> (bool, Option<Seen>) {
        let mut count = [0; 8];
        let was_read = rustix::io::read(&self.shared.event, &mut count).is_ok();
        (was_read, self.shared.changed().take())
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        self.end = None;
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            log::error!(
                "the thread that reads a port's attributes panicked; report this as a fault (ibtap bugreport)"
            );
        }
    }
}

impl Shared {
    fn changed(&self) -> std::sync::MutexGuard<'_, Option<Seen>> {
        self.changed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn run(&self, umad: &Umad, mut known: Seen, end: &Receiver<()>) {
        let mut failures = 0;
        while end.recv_timeout(INTERVAL) == Err(RecvTimeoutError::Timeout) {
            let seen = umad.attributes().map_err(|e| e.to_string());
            failures = if seen.is_ok() { 0 } else { failures + 1 };
            if known != seen && (seen.is_ok() || failures >= FAILURES) {
                known.clone_from(&seen);
                *self.changed() = Some(seen);
            }
            wake(&self.event);
        }
    }
}
