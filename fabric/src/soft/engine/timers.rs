//! Which connection wants to be called when.
//!
//! A deadline that moves away, as that of a retransmission does with each acknowledgement, leaves
//! the entry where it is: it fires too early once, and is put where it belongs then. So a busy
//! connection costs no work here for each packet.

use std::collections::BTreeSet;

use proto::Instant;

use super::lookup::Place;

/// Deadlines, at most one for each connection.
#[derive(Debug, Default)]
pub struct Timers {
    set: BTreeSet<(Instant, Place)>,
}

impl Timers {
    /// Makes sure that `place` is called at `wanted` or before. `scheduled` is the connection's own
    /// note of its entry here.
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

    /// Forgets the entry of `place`.
    pub fn cancel(&mut self, place: Place, scheduled: &mut Option<Instant>) {
        if let Some(at) = scheduled.take() {
            self.set.remove(&(at, place));
        }
    }

    /// The first one.
    pub fn first(&self) -> Option<Instant> {
        self.set.first().map(|&(at, _)| at)
    }

    /// Takes one out that is due.
    pub fn pop_due(&mut self, now: Instant) -> Option<Place> {
        if self.first()? > now {
            return None;
        }
        self.set.pop_first().map(|(_, place)| place)
    }

    /// How many there are.
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
