//! Commands to a data thread: a channel, and an eventfd that wakes the thread's epoll loop.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::thread::JoinHandle;

use crossbeam_channel::{Receiver, Sender, unbounded};
use rustix::event::{EventfdFlags, eventfd};

use super::command::Command;

/// The sending end of one thread's command queue.
#[derive(Clone)]
pub struct Mailbox {
    sender: Sender<Command>,
    wake: Arc<OwnedFd>,
}

/// The receiving end of a [`Mailbox`].
pub struct Inbox {
    pub(super) receiver: Receiver<Command>,
    pub(super) wake: Arc<OwnedFd>,
}

/// Creates a mailbox and its inbox.
///
/// # Errors
/// Errors of `eventfd(2)`.
pub fn mailbox() -> io::Result<(Mailbox, Inbox)> {
    let (sender, receiver) = unbounded();
    let wake = Arc::new(eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)?);
    let inbox = Inbox {
        receiver,
        wake: wake.clone(),
    };
    Ok((Mailbox { sender, wake }, inbox))
}

impl Mailbox {
    /// Sends a command and wakes the thread. Drops the command if the thread has ended.
    pub fn send(&self, command: Command) {
        if self.sender.send(command).is_ok() {
            // The counter saturates only after 2^64 unread wake-ups.
            let _ = rustix::io::write(&*self.wake, &1u64.to_ne_bytes());
        }
    }
}

impl Inbox {
    /// Clears the wake-ups so far; later commands wake the thread again.
    pub(super) fn drain_wake(&self) {
        let mut count = [0; 8];
        let _ = rustix::io::read(&*self.wake, &mut count);
    }
}

/// A running data thread.
pub struct ThreadHandle {
    /// Its commands.
    pub mailbox: Mailbox,
    /// Joined after [`Command::Stop`].
    pub join: JoinHandle<()>,
}

impl ThreadHandle {
    /// Stops the thread and waits for its end.
    pub fn stop(self) {
        self.mailbox.send(Command::Stop);
        if self.join.join().is_err() {
            log::error!("a data thread panicked");
        }
    }
}
