//! When an agent announces itself to the group: at its start, when something changes, when it is asked.

use proto::Time;

use super::Random;

/// The longest wait before an answer to all, and at the start, so that not all nodes speak at once; in
/// milliseconds.
const SPREAD_MS: u64 = 500;
/// The same after a change, which others have at another time.
const CHANGE_MS: u64 = 100;
/// The shortest time between two announcements, whoever asks how often.
const PAUSE_MS: u64 = 200;
/// How long after news the second and the third announcement of it come: the first ones may be lost.
const AGAIN_MS: [u64; 2] = [1000, 3000];

/// The schedule.
#[derive(Default)]
pub struct Announcements {
    next: Option<Time>,
    last: Option<Time>,
    /// How often news has been told.
    told: usize,
}

impl Announcements {
    /// The agent starts.
    pub fn begin(&mut self, now: Time, random: &mut Random) {
        self.news(now.after(random.below(SPREAD_MS)));
    }

    /// What it says has changed.
    pub fn changed(&mut self, now: Time, random: &mut Random) {
        self.news(now.after(random.below(CHANGE_MS)));
    }

    /// Somebody asked all.
    pub fn asked(&mut self, now: Time, random: &mut Random) {
        self.at(now.after(random.below(SPREAD_MS)));
    }

    /// When the next one is due.
    pub const fn next(&self) -> Option<Time> {
        self.next
    }

    /// Whether one is due, which is sent then.
    pub fn due(&mut self, now: Time) -> bool {
        if self.next.is_none_or(|next| now < next) {
            return false;
        }
        self.last = Some(now);
        self.next = AGAIN_MS.get(self.told).map(|wait| now.after(*wait));
        self.told += 1;
        true
    }

    fn news(&mut self, when: Time) {
        self.told = 0;
        self.at(when);
    }

    /// One is due then, if none is before.
    fn at(&mut self, when: Time) {
        let pause = self.last.map_or(Time(0), |last| last.after(PAUSE_MS));
        let when = when.max(pause);
        self.next = Some(self.next.map_or(when, |next| next.min(when)));
    }
}
