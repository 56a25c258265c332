//! The deadlines of connections.
//!
//! A later deadline does not move the entry: a retransmission deadline moves with each acknowledgement.
//! The entry fires early once and is then set to the right time. So a busy connection costs no work
//! here for each packet.

use std::collections::BTreeSet;

use proto::Instant;

use super::lookup::Place;

/// Deadlines, at most one for each connection.
#[derive(Debug, Default)]
pub struct Timers {
    set: BTreeSet<(Instant, Place)>,
}

impl Timers {
    /// Ensures that `place` is due at `wanted` or earlier. `scheduled` is the connection's record of
    /// its entry here.
    pub fn schedule(
        &mut self,
        place: Place,
        scheduled: &mut Option<Instant>,
        wanted: Option<Instant>,
    ) {
        let Some(wanted) = wanted else { return };
        if scheduled.is_some_and(|at| at <= wanted) {
            return;
        }
        self.cancel(place, scheduled);
        self.set.insert((wanted, place));
        *scheduled = Some(wanted);
    }

    /// Removes the entry of `place`.
    pub fn cancel(&mut self, place: Place, scheduled: &mut Option<Instant>) {
        if let Some(at) = scheduled.take() {
            self.set.remove(&(at, place));
        }
    }

    /// The earliest deadline.
    pub fn first(&self) -> Option<Instant> {
        self.set.first().map(|&(at, _)| at)
    }

    /// Removes an entry that is due and returns its place.
    pub fn pop_due(&mut self, now: Instant) -> Option<Place> {
        if self.first()? > now {
            return None;
        }
        self.set.pop_first().map(|(_, place)| place)
    }

    /// Number of entries.
    pub fn len(&self) -> usize {
        self.set.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_deadline_moves_forward_at_once_and_back_when_it_fires() {
        let mut timers = Timers::default();
        let mut noted = None;
        let at = |n| Some(Instant(n));
        timers.schedule(3, &mut noted, at(50));
        timers.schedule(3, &mut noted, at(70));
        assert_eq!((timers.first(), noted), (at(50), at(50)));
        timers.schedule(3, &mut noted, at(20));
        timers.schedule(3, &mut noted, None);
        assert_eq!((timers.first(), noted, timers.len()), (at(20), at(20), 1));
        assert_eq!(timers.pop_due(Instant(19)), None);
        assert_eq!(timers.pop_due(Instant(20)), Some(3));
        assert_eq!(timers.len(), 0);
    }
}
