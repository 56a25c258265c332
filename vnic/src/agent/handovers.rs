//! Which changes of the manager are told of. A manager may let go and take hold again as often as it likes,
//! and two may do so by turns.

use proto::Time;

/// Changes that are told of in a time of this length, in milliseconds.
const WINDOW_MS: u64 = 60_000;
/// So many; more are only followed.
const TOLD_MAX: u32 = 10;

/// How many there were.
#[derive(Default)]
pub struct Handovers {
    /// When the time began.
    since: Time,
    told: u32,
}

impl Handovers {
    /// Whether this one is to be told of.
    pub fn is_news(&mut self, now: Time) -> bool {
        if now.since(self.since) >= WINDOW_MS {
            self.since = now;
            self.told = 0;
        }
        let news = self.told < TOLD_MAX;
        self.told += u32::from(news);
        news
    }
}
