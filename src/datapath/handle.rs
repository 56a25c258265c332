//! Talking to a data thread: a channel, and an eventfd that wakes its epoll loop.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::thread::JoinHandle;

use crossbeam_channel::{Receiver, Sender, unbounded};
use rustix::event::{EventfdFlags, eventfd};

use super::command::Command;

/// Where commands for one thread are put.
#[derive(Clone)]
pub struct Mailbox {
    sender: Sender<Command>,
    wake: Arc<OwnedFd>,
}

/// The thread's end of a [`Mailbox`].
pub struct Inbox {
    pub(super) receiver: Receiver<Command>,
    pub(super) wake: Arc<OwnedFd>,
}

/// Makes a mailbox and its inbox.
///
/// # Errors
/// What `eventfd(2)` says.
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
    /// Puts a command and wakes the thread. A thread that has ended takes nothing.
    pub fn send(&self, command: Command) {
        if self.sender.send(command).is_ok() {
            // The counter saturates only after 2^64 wake-ups that nobody read.
            let _ = rustix::io::write(&*self.wake, &1u64.to_ne_bytes());
        }
    }
}

impl Inbox {
    /// Forgets the wake-ups so far; commands put later wake again.
    pub(super) fn drain_wake(&self) {
        let mut count = [0; 8];
        let _ = rustix::io::read(&*self.wake, &mut count);
    }
}

/// A running data thread.
pub struct ThreadHandle {
    /// Where its commands go.
    pub mailbox: Mailbox,
    /// Joined after [`Command::Stop`].
    pub join: JoinHandle<()>,
}

impl ThreadHandle {
    /// Ends the thread and waits for it.
    pub fn stop(self) {
        self.mailbox.send(Command::Stop);
        if self.join.join().is_err() {
            log::error!("a data thread ended in a panic");
        }
    }
}
