//! Commands to a data thread: a channel, and an eventfd that wakes the thread's epoll loop.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::thread::JoinHandle;

use crossbeam_channel::{Receiver, Sender, unbounded};
use rustix::event::{EventfdFlags, eventfd};

use super::command::Command;
use super::lane::LinkId;

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
    /// A command that [`Inbox::next_update`] has taken from the channel.
    first: Option<Command>,
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
        first: None,
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
    /// Number of waiting commands.
    pub(super) fn len(&self) -> usize {
        self.receiver.len() + usize::from(self.first.is_some())
    }

    /// Takes the next command.
    pub(super) fn next(&mut self) -> Option<Command> {
        let first = self.first.take();
        first.or_else(|| self.receiver.try_recv().ok())
    }

    /// Takes the next command if it is an update from another thread's core of an IP link.
    pub(super) fn next_update(&mut self) -> Option<(LinkId, ipoib::Update)> {
        match self.next()? {
            Command::Update(id, update) => Some((id, update)),
            other => {
                self.first = Some(other);
                None
            }
        }
    }

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
    join: Option<JoinHandle<()>>,
}

impl ThreadHandle {
    /// A running thread that gets its commands by this mailbox.
    pub fn new(mailbox: Mailbox, join: JoinHandle<()>) -> ThreadHandle {
        let join = Some(join);
        ThreadHandle { mailbox, join }
    }
}

/// Stops the thread and waits for its end.
impl Drop for ThreadHandle {
    fn drop(&mut self) {
        self.mailbox.send(Command::Stop);
        if self.join.take().is_some_and(|join| join.join().is_err()) {
            log::error!("a data thread panicked; report this as a fault (ibtap bugreport)");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn updates_are_taken_up_to_the_next_other_command() {
        let (mailbox, mut inbox) = mailbox().unwrap();
        let update = || Command::Update(LinkId(1), ipoib::Update::SignedNd);
        mailbox.send(update());
        mailbox.send(Command::Stop);
        mailbox.send(update());
        assert!(inbox.next_update().is_some());
        assert!(inbox.next_update().is_none());
        assert!(inbox.next_update().is_none());
        assert_eq!(inbox.len(), 2);
        assert!(matches!(inbox.next(), Some(Command::Stop)));
        assert!(inbox.next_update().is_some());
        assert_eq!(inbox.len(), 0);
        assert!(inbox.next().is_none());
    }
}
