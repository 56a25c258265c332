//! Which refusals were told of. Who may set may be refused again and again, with another value each time.

use std::collections::BTreeSet;

use proto::Gid;

/// Refusals that are told of until something changes; more are only counted.
const TOLD_MAX: usize = 256;

/// Those of all virtual ports: by index, who was refused, and what for.
#[derive(Default)]
pub struct Refusals(BTreeSet<(u8, Gid, &'static str)>);

impl Refusals {
    /// Whether this one is to be told of.
    pub fn is_news(&mut self, index: u8, gid: Gid, reason: &'static str) -> bool {
        self.0.len() < TOLD_MAX && self.0.insert((index, gid, reason))
    }

    /// A virtual port is another one than before: what is refused from now on is news.
    pub fn changed(&mut self, index: u8) {
        self.0.retain(|(of, ..)| *of != index);
    }
}
