//! Polling with a time limit.

use std::time::{Duration, Instant};

/// A time limit for this machine. In a virtual machine, which has `IBTAP_PROGRAMS`, everything takes longer.
pub fn patient(limit: Duration) -> Duration {
    let emulated = std::env::var_os("IBTAP_PROGRAMS").is_some();
    limit * if emulated { 5 } else { 1 }
}

/// Polls until there is an answer, and panics with `what` after `limit`.
pub fn eventually<T>(limit: Duration, what: &str, mut ask: impl FnMut() -> Option<T>) -> T {
    let limit = patient(limit);
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

/// Maximum time after a daemon's return until its host and its peers reach each other. The daemon takes much less; the
/// kernel may take a second to activate the interface, and a busy machine takes longer.
pub const HEALED: Duration = Duration::from_secs(8);
