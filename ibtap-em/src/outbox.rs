//! What is sent, and that it is on the disk before.

use proto::Time;

use crate::runtime::Runtime;
use crate::seam::{Manager, Outgoing};
use crate::state::{State, StateError, Store};
use crate::transport::Link;

/// Where state is kept.
pub trait Disk: std::fmt::Debug {
    /// Keeps a state; when this returns it survives whatever happens.
    ///
    /// # Errors
    /// One sentence; the former state is still there.
    fn keep(&self, state: &State) -> Result<(), StateError>;
}

impl Disk for Store {
    fn keep(&self, state: &State) -> Result<(), StateError> {
        self.save(state)
    }
}

/// Where messages go.
pub trait Way {
    /// Whether there is somebody to send to, and room for it.
    fn has_room(&self) -> bool;

    /// Sends a message.
    fn send(&mut self, message: Outgoing);
}

impl Way for Link {
    fn has_room(&self) -> bool {
        Link::has_room(self)
    }

    fn send(&mut self, message: Outgoing) {
        Link::send(self, message);
    }
}

/// Keeps what has changed. Returns whether there was something to keep.
pub fn save<M: Manager>(runtime: &mut Runtime<M>, now: Time, disk: &dyn Disk) -> bool {
    let Some(state) = runtime.engine.take_unsaved(now) else {
        return false;
    };
    if let Err(error) = disk.keep(&state) {
        runtime.engine.not_saved(now, &error.to_string());
    }
    true
}

/// Sends all that is to be sent now, up to `most` messages. What others may hear of is on the disk before
/// they do, and what waited for that is sent then. Returns whether there may be more.
pub fn send<M: Manager>(
    runtime: &mut Runtime<M>,
    now: Time,
    disk: &dyn Disk,
    way: &mut dyn Way,
    most: usize,
) -> bool {
    let mut sent = 0;
    if !way.has_room() {
        runtime.skip_announcement();
    }
    loop {
        let saved = save(runtime, now, disk);
        while way.has_room() {
            if sent == most {
                return true;
            }
            let Some(message) = runtime.poll_transmit(now) else {
                break;
            };
            save(runtime, now, disk);
            way.send(message);
            sent += 1;
        }
        // What was begun last may have been given something, which waits for the disk now.
        if !saved && !save(runtime, now, disk) {
            return false;
        }
    }
}

#[cfg(test)]
pub(crate) mod tests;
