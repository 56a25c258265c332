//! Schedule of an agent's announcements to the group: at start, after a change, on request.

use proto::Time;

use super::Random;

/// Longest delay of an announcement at start or on request, in milliseconds. A random delay spreads the
/// announcements of all nodes.
const SPREAD_MS: u64 = 500;
/// Longest delay of an announcement after a change, in milliseconds.
const CHANGE_MS: u64 = 100;
/// Minimum interval between two announcements, in milliseconds.
const PAUSE_MS: u64 = 200;
/// Delays before the second and third announcement of a change, in milliseconds. The earlier ones may be
/// lost.
const REPEAT_MS: [u64; 2] = [1000, 3000];

/// Schedule of announcements.
#[derive(Default)]
pub struct Announcements {
    next: Option<Time>,
    last: Option<Time>,
    /// Announcements sent since the last change.
    sent: usize,
}

impl Announcements {
    /// Schedules the announcements at start.
    pub fn begin(&mut self, now: Time, random: &mut Random) {
        self.restart(now.after(random.below(SPREAD_MS)));
    }

    /// Schedules the announcements of a change.
    pub fn changed(&mut self, now: Time, random: &mut Random) {
        self.restart(now.after(random.below(CHANGE_MS)));
    }

    /// Schedules the answer to a request to the group.
    pub fn asked(&mut self, now: Time, random: &mut Random) {
        self.at(now.after(random.below(SPREAD_MS)));
    }

    /// Time of the next announcement.
    pub const fn next(&self) -> Option<Time> {
        self.next
    }

    /// Whether an announcement is due. The caller sends it.
    pub fn due(&mut self, now: Time) -> bool {
        if self.next.is_none_or(|next| now < next) {
            return false;
        }
        self.last = Some(now);
        self.next = REPEAT_MS.get(self.sent).map(|wait| now.after(*wait));
        self.sent += 1;
        true
    }

    fn restart(&mut self, when: Time) {
        self.sent = 0;
        self.at(when);
    }

    /// Schedules one announcement, unless an earlier one is scheduled.
    fn at(&mut self, when: Time) {
        let pause = self.last.map_or(Time(0), |last| last.after(PAUSE_MS));
        let when = when.max(pause);
        self.next = Some(self.next.map_or(when, |next| next.min(when)));
    }
}
