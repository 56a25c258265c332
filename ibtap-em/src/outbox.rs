//! Sending of messages, after the state is on disk.

use proto::Time;

use crate::runtime::Runtime;
use crate::seam::{Manager, Outgoing};
use crate::state::{State, StateError, Store};
use crate::transport::Link;

/// Storage of the state.
pub trait Disk: std::fmt::Debug {
    /// Saves a state. After the return the state survives a crash.
    ///
    /// # Errors
    /// One sentence. The former state is still stored.
    fn keep(&self, state: &State) -> Result<(), StateError>;
}

impl Disk for Store {
    fn keep(&self, state: &State) -> Result<(), StateError> {
        self.save(state)
    }
}

/// Destination of messages.
pub trait Way {
    /// Whether a fabric port is attached and has room for a message.
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

/// Saves the state if it has changed. Returns whether there was a change.
pub fn save<M: Manager>(runtime: &mut Runtime<M>, now: Time, disk: &dyn Disk) -> bool {
    let Some(state) = runtime.engine.take_unsaved(now) else {
        return false;
    };
    if let Err(error) = disk.keep(&state) {
        runtime.engine.not_saved(now, &error.to_string());
    }
    true
}

/// Saves the state before the manager ends, if the state has changed or the last attempt to save it failed.
pub fn save_last<M: Manager>(runtime: &mut Runtime<M>, disk: &dyn Disk) {
    // This attempt does not wait for the retry time: the manager ends before that time.
    let state = runtime.engine.take_unsaved(Time(u64::MAX));
    if let Some(Err(error)) = state.map(|state| disk.keep(&state)) {
        log::error!("{error}; the changes since the last save are lost");
    }
}

/// Sends the messages that are due, at most `most`. The state is saved before messages that depend on it
/// leave; messages that waited for that follow. Returns whether more messages may be due.
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
        // The last request may have assigned something; its messages now wait for the disk.
        if !saved && !save(runtime, now, disk) {
            return false;
        }
    }
}

#[cfg(test)]
pub(crate) mod tests;
