//! Fragments of management datagrams from several senders. A message of the input is reassembled from its own
//! fragments among them. No datagram of the input opens with a key.
//!
//! Input: a byte for the payload's size, then records of a flag byte (sender in its lower 2 bits, the rest
//! is time), a length of two bytes, and a datagram.

use fabric::{Gid, Qpn};
use vnic::Time;
use vnic::carriage::fragment::{Reassembler, Splitter};
use vnic::carriage::seal::{Clock, Route, Seal};
use vnic::mad::MAD_MAX;

use crate::records;

pub fn run(data: &[u8]) {
    let Some((payload, data)) = data.split_first() else {
        return;
    };
    let mut reassembler = Reassembler::default();
    let mut splitter = Splitter::new(0, usize::from(*payload) * 8);
    let own = (Gid([9; 16]), Qpn::new(9));
    let mut seal = Seal::new(Time(0), &[[9; 32]]);
    let route = Route { from: own, to: own };
    let mut now = 0;
    for (flags, datagram) in records(data) {
        now += u64::from(flags >> 2) * 20;
        let sender = Qpn::new(u32::from(flags & 3));
        if let Some(m) = reassembler.receive(Time(now), Gid([1; 16]), sender, datagram) {
            assert!(!m.is_empty() && m.len() <= MAD_MAX);
        }
        let clock = Clock {
            wall_us: 0,
            now: Time(now),
        };
        assert!(seal.open(clock, &route, datagram).is_err());
        let mut whole = None;
        for piece in splitter.split(datagram) {
            assert!(whole.is_none());
            whole = reassembler.receive(Time(now), own.0, own.1, &piece);
        }
        let expected = (!datagram.is_empty() && datagram.len() <= MAD_MAX).then_some(datagram);
        assert_eq!(whole.as_deref(), expected);
    }
}
