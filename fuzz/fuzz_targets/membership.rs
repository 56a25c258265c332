//! The text of `/proc/net/igmp` and `/proc/net/igmp6`.
//!
//! Input: the interface's index, one byte, and the text, read as either file.

#![no_main]

use libfuzzer_sys::fuzz_target;
use netdev::membership::{parse_igmp, parse_igmp6};

fuzz_target!(|data: &[u8]| {
    let Some((ifindex, text)) = data.split_first() else {
        return;
    };
    let text = String::from_utf8_lossy(text);
    for groups in [
        parse_igmp(&text, u32::from(*ifindex)),
        parse_igmp6(&text, u32::from(*ifindex)),
    ] {
        assert!(groups.iter().all(std::net::IpAddr::is_multicast));
        // Each group has its own line.
        assert!(groups.len() <= text.lines().count());
    }
});
