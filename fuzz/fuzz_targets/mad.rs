//! Management datagrams, header and names.

#![no_main]

use fabric::mad::Mad;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    if let Ok(mad) = Mad::parse(data) {
        assert_eq!(mad.to_bytes(), data);
        assert!(!mad.header.to_string().is_empty());
        let _ = mad.subnet_administration();
        let _ = mad.communication_management();
    }
});
