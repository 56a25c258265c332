//! The text of `/proc/net/igmp` and `/proc/net/igmp6`.
//!
//! Input: the text, read as either file.

use netdev::membership::{igmp, igmp6};

pub fn run(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let mut groups = igmp(&text).chain(igmp6(&text));
    assert!(groups.all(|(_, group)| group.is_multicast()));
}
