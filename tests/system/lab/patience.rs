//! Polling with a time limit.

use std::time::{Duration, Instant};

/// A time limit for this machine. In a virtual machine, which has `IBTAP_PROGRAMS`, everything takes longer.
pub fn patient(limit: Duration) -> Duration {
    let emulated = std::env::var_os("IBTAP_PROGRAMS").is_some();
    limit * if emulated { 5 } else { 1 }
}

/// Polls until there is an answer; `None` after `limit`.
pub fn within<T>(limit: Duration, mut ask: impl FnMut() -> Option<T>) -> Option<T> {
    let end = Instant::now() + patient(limit);
    loop {
        if let Some(answer) = ask() {
            return Some(answer);
        }
        if Instant::now() >= end {
            return None;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// The same; panics with `what` after `limit`.
pub fn eventually<T>(limit: Duration, what: &str, ask: impl FnMut() -> Option<T>) -> T {
    let answer = within(limit, ask);
    answer.unwrap_or_else(|| panic!("waited {:?} in vain for {what}", patient(limit)))
}

/// The first result of three calls that is whole, or else the last one. Another load on the machine may fill a queue of the
/// kernel, which loses a packet. A fault of ibtap loses a packet of each call.
pub fn one_of_three<T>(mut call: impl FnMut() -> T, is_whole: impl Fn(&T) -> bool) -> T {
    for _ in 0..2 {
        let result = call();
        if is_whole(&result) {
            return result;
        }
    }
    call()
}

/// Time limit for events that take a moment: a reaction, a retry.
pub const SOON: Duration = Duration::from_secs(15);

/// Maximum time after a daemon's return until its host and its peers reach each other. The daemon takes much less; the
/// kernel may take a second to activate the interface, and a busy machine takes longer.
pub const HEALED: Duration = Duration::from_secs(8);
