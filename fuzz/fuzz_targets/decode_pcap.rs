//! `ibtap decode` of any file, in both forms.

#![no_main]

use libfuzzer_sys::fuzz_target;
use tools::decode::decode;

fuzz_target!(|data: &[u8]| {
    let (mut text, mut json) = (Vec::new(), Vec::new());
    let as_text = decode(data, false, &mut text);
    let as_json = decode(data, true, &mut json);
    match (as_text, as_json) {
        (Ok(a), Ok(b)) => {
            assert_eq!(a, b);
            assert_eq!(a.good + a.bad + a.unknown, a.roce);
        }
        (Err(a), Err(b)) => assert_eq!(a.to_string(), b.to_string()),
        (a, b) => panic!("{a:?} as text, {b:?} as JSON"),
    }
    assert!(std::str::from_utf8(&text).is_ok());
});
