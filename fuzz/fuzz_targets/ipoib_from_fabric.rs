//! A sequence of datagrams from the fabric: what the TAP is given is never longer than what came,
//! but for the translation of addresses, and the tables stay within their limits.
//!
//! Input: records of a flag byte, a length of two bytes, and a payload.

#![no_main]

mod interface;

use fabric::{Gid, Qpn};
use ipoib::{Incoming, Meta, Time};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let mut ipoib = interface::new();
    let mut now = 0;
    for (flags, payload) in interface::records(data) {
        now += 10;
        let multicast = flags & 0x80 != 0;
        let meta = Meta {
            src_qpn: Qpn::new(0x10 + u32::from(flags & 0x0f)),
            src_gid: interface::peer_gid(flags & 0x0f),
            dst_gid: if multicast {
                ipoib.broadcast_mgid()
            } else {
                Gid(interface::LOCAL_GID)
            },
            multicast,
        };
        match ipoib.from_fabric(Time(now), &meta, payload) {
            Incoming::Packet { l3, .. } => assert!(l3.len() + 4 <= payload.len()),
            Incoming::Frame(frame) => {
                assert!(frame.len() >= 14 && frame.len() <= payload.len() + 14)
            }
            Incoming::Dropped(_) | Incoming::Held | Incoming::Consumed => {}
        }
        interface::drain(&mut ipoib, Time(now));
    }
    assert!(ipoib.neighbours().count() <= interface::LIMITS.neighbours);
});
