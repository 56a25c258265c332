//! Polling with a time limit.

use std::time::{Duration, Instant};

/// Polls until there is an answer, and panics with `what` after `limit`.
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

/// Time limit for events that take a moment: a reaction, a retry.
pub const SOON: Duration = Duration::from_secs(15);
