//! Refusals that the log already has. A manager may be refused repeatedly, with a different value each
//! time.

use std::collections::BTreeSet;

use proto::Gid;

/// Refusals reported until something changes; further ones are only counted.
const REPORTED_MAX: usize = 256;

/// Reported refusals: index of the virtual port, sender, reason.
#[derive(Default)]
pub struct Refusals(BTreeSet<(u8, Gid, &'static str)>);

impl Refusals {
    /// Whether to report this refusal.
    pub fn should_report(&mut self, index: u8, gid: Gid, reason: &'static str) -> bool {
        self.0.len() < REPORTED_MAX && self.0.insert((index, gid, reason))
    }

    /// The settings of a virtual port changed: its refusals are reported again.
    pub fn changed(&mut self, index: u8) {
        self.0.retain(|(of, ..)| *of != index);
    }
}
