//! Limit of reports about changes of the owner. A manager may give up and regain ownership repeatedly, and
//! two managers may alternate.

use proto::Time;

/// Length of a window, in milliseconds.
const WINDOW_MS: u64 = 60_000;
/// Changes reported in a window; further ones are not reported.
const REPORTED_MAX: u32 = 10;

/// Changes reported in the current window.
#[derive(Default)]
pub struct Handovers {
    /// Start of the window.
    since: Time,
    reported: u32,
}

impl Handovers {
    /// Whether to report this change.
    pub fn should_report(&mut self, now: Time) -> bool {
        if now.since(self.since) >= WINDOW_MS {
            self.since = now;
            self.reported = 0;
        }
        let report = self.reported < REPORTED_MAX;
        self.reported += u32::from(report);
        report
    }
}
