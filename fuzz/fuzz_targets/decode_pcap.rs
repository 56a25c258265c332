//! `ibtap decode` of any file; an odd length is printed as JSON.

#![no_main]

use decode::decode;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let mut out = Vec::new();
    if let Ok(summary) = decode(data, data.len() % 2 == 1, &mut out) {
        assert_eq!(
            summary.good + summary.bad + summary.unknown,
            summary.roce + summary.raw
        );
    }
    assert!(std::str::from_utf8(&out).is_ok());
});
