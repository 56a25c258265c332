//! Waiting for what takes a moment.

use std::time::{Duration, Instant};

/// Asks until there is an answer, and panics with `what` after `limit`.
pub fn eventually<T>(limit: Duration, what: &str, mut ask: impl FnMut() -> Option<T>) -> T {
    let end = Instant::now() + limit;
    loop {
        if let Some(answer) = ask() {
            return answer;
        }
        assert!(Instant::now() < end, "waited {limit:?} in vain for {what}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Patience for what takes a moment: a reaction to an event, a retry.
pub const SOON: Duration = Duration::from_secs(15);
