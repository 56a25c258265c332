//! What a data thread tells the control thread.

use ipoib::Event;

use super::super::command::Report;
use super::{DataThread, nanoseconds};

/// Reports that may wait for the control thread; more are lost and counted. A forged membership
/// report of one frame names hundreds of groups, which the data threads read faster than the control
/// thread can act on.
pub(super) const REPORTS_MAX: usize = 16_384;

impl DataThread {
    /// Reports what a core has to tell.
    pub(super) fn tell_events(&mut self, i: usize) {
        let Some(lane) = self.lanes.get_mut(i) else {
            return;
        };
        let mut told = false;
        while let Some(event) = lane.core.pop_event() {
            if !may_wait(&event, self.reports.len()) {
                self.reports_lost += 1;
                continue;
            }
            let round_trip = match event {
                Event::Echo { stamp, .. } => nanoseconds().saturating_sub(stamp),
                _ => 0,
            };
            let report = Report::Event(lane.id, event, round_trip);
            told |= self.reports.send(report).is_ok();
        }
        if told {
            self.wake_control();
        }
    }

    pub(super) fn report(&self, report: Report) {
        // Nobody listens only while the daemon ends.
        if self.reports.send(report).is_ok() {
            self.wake_control();
        }
    }

    pub(super) fn wake_control(&self) {
        // Full only when the control thread has been woken 2^64 times without looking.
        let _ = rustix::io::write(&*self.reports_wake, &1u64.to_ne_bytes());
    }
}

/// Whether an event is told while so many reports wait. Guests always are: each frame makes two
/// events of them at most, and what was learned and not forgotten would count for ever. All else is
/// said again, or is for people.
fn may_wait(event: &Event, waiting: usize) -> bool {
    let of_guest = matches!(
        event,
        Event::GuestLearned { .. } | Event::GuestForgotten { .. }
    );
    of_guest || waiting < REPORTS_MAX
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_of_memberships_does_not_pile_up_and_hides_no_guest() {
        let (mac, ip) = ([2; 6], std::net::IpAddr::from([239, 1, 2, 3]));
        let joined = Event::GroupJoined { mac, group: ip };
        assert!(may_wait(&joined, 0) && may_wait(&joined, REPORTS_MAX - 1));
        assert!(!may_wait(&joined, REPORTS_MAX));
        assert!(may_wait(
            &Event::GuestLearned {
                ip,
                mac,
                weak: false
            },
            REPORTS_MAX
        ));
        assert!(may_wait(&Event::GuestForgotten { ip }, REPORTS_MAX));
    }
}
