//! Coalescing of arbitrary packets from the network: every packet goes up exactly once, in frames that are
//! neither empty nor longer than IP allows.
//!
//! Input: records of a big-endian length of two bytes and a packet.

use std::io::IoSlice;

use netdev::coalesce::{CoalesceConfig, Coalescer, FrameSink};

/// virtio-net header and Ethernet header.
const HEADERS: usize = 12 + 14;

#[derive(Default)]
struct Counting {
    packets: usize,
}

impl FrameSink for Counting {
    fn frame(&mut self, packets: usize, parts: &[IoSlice<'_>]) {
        let len: usize = parts.iter().map(|p| p.len()).sum();
        assert!(packets > 0 && parts[0].len() >= HEADERS);
        assert!(packets == 1 || len <= HEADERS + 65_535);
        self.packets += packets;
    }
}

pub fn run(data: &[u8]) {
    let mut coalescer = Coalescer::new(CoalesceConfig::default());
    let mut sink = Counting::default();
    let mut batch = coalescer.batch();
    let (mut rest, mut pushed) = (data, 0);
    while let Some((len, after)) = rest.split_first_chunk::<2>() {
        let len = usize::from(u16::from_be_bytes(*len)).min(after.len());
        let (packet, after) = after.split_at(len);
        rest = after;
        let ethertype = match packet.first().map(|b| b >> 4) {
            Some(6) => [0x86, 0xdd],
            _ => [0x08, 0x00],
        };
        let mut ethernet = [2; 14];
        ethernet[12..].copy_from_slice(&ethertype);
        batch.push(&ethernet, packet, &mut sink);
        pushed += 1;
    }
    batch.flush(&mut sink);
    assert_eq!(sink.packets, pushed);
}
