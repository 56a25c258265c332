//! The library of `ibtap-peer`; `ibtap generate` uses its command line, and `ibtap-perf` a parser.

#![forbid(unsafe_code)]

pub mod peer;

use std::time::Duration;

/// Parses a time in seconds.
///
/// # Errors
/// A sentence with the limits: a millisecond and a day.
pub fn parse_seconds(text: &str) -> Result<Duration, String> {
    text.parse()
        .ok()
        .filter(|seconds| (0.001..=86_400.0).contains(seconds))
        .map(Duration::from_secs_f64)
        .ok_or_else(|| format!("{text:?} is not a number of seconds; use 0.001 to 86400"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_are_a_millisecond_to_a_day() {
        assert_eq!(parse_seconds("0.25"), Ok(Duration::from_millis(250)));
        for text in ["-1", "0", "nan", "inf", "1e20", "86401", "", "1s"] {
            assert!(parse_seconds(text).is_err(), "{text}");
        }
    }
}
