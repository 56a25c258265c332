//! A sequence of frames from the TAP, with time passing between them.
//!
//! Input: records of a flag byte, a length of two bytes, and a frame.

use ipoib::{Outgoing, Time};

use crate::{interface, records};

pub fn run(data: &[u8]) {
    let mut ipoib = interface::new();
    let mut now = 0;
    for (flags, frame) in records(data) {
        now += u64::from(flags) * 50;
        ipoib.set_stacked(flags & 1 != 0);
        match ipoib.from_tap(Time(now), &[0; 12], frame) {
            Outgoing::Rewritten { packet, .. } => assert!(packet.len() >= 4),
            Outgoing::Forward { encap, .. }
            | Outgoing::Message { encap, .. }
            | Outgoing::Sibling { encap, .. } => {
                assert_eq!(encap[2..], [0, 0])
            }
            Outgoing::Held | Outgoing::Tagged | Outgoing::Dropped(_) => {}
        }
        interface::drain(&mut ipoib, Time(now));
    }
    interface::check(&ipoib);
}
