//! `ibtap decode` of any file; the length selects the format.

use decode::{Format, decode};

pub fn run(data: &[u8]) {
    let mut out = Vec::new();
    let formats = [Format::Text, Format::Json, Format::PrettyJson];
    if let Ok(summary) = decode(data, formats[data.len() % 3], &mut out) {
        assert_eq!(
            summary.good + summary.bad + summary.unknown,
            summary.roce + summary.raw
        );
    }
    assert!(std::str::from_utf8(&out).is_ok());
}
