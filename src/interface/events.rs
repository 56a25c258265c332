//! What happens to interfaces and ports, for those who watch: a queue that the monitor empties.

use control::api::Happening;

/// What an event is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Subject {
    /// The daemon.
    Daemon,
    /// A fabric port, by its name.
    Port(String),
    /// An interface, by its name and its network namespace, if that is not the daemon's own.
    Interface(String, Option<String>),
}

/// Events that nobody has seen yet, in the order in which they happened.
#[derive(Debug, Default)]
pub struct Events(Vec<(Subject, Happening)>);

impl Events {
    /// Adds an event.
    pub fn push(&mut self, subject: Subject, what: Happening) {
        self.0.push((subject, what));
    }

    /// Takes all events.
    pub fn drain(&mut self) -> impl Iterator<Item = (Subject, Happening)> {
        self.0.drain(..)
    }
}
