//! `ibtap decode` of any file; the length selects the format.

#![no_main]

use decode::{Format, decode};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let mut out = Vec::new();
    let formats = [Format::Text, Format::Json, Format::PrettyJson];
    if let Ok(summary) = decode(data, formats[data.len() % 3], &mut out) {
        assert_eq!(
            summary.good + summary.bad + summary.unknown,
            summary.roce + summary.raw
        );
    }
    assert!(std::str::from_utf8(&out).is_ok());
});
