//! The data path allocates nothing after its start: the allocator counts.

use std::io::IoSlice;

use kit::allocator;
use netdev::coalesce::{CoalesceConfig, Coalescer, FrameSink};
use netdev::gather;
use netdev::segment::{LinkHeader, Pieces, Segmenter};
use netdev::vlan::{Head, Tag, insert};
use netdev::vnet::{FLAG_NEEDS_CSUM, GSO_TCPV4, VnetHeader};
use zerocopy::little_endian::U16;

#[derive(Default)]
struct Bytes(usize);

impl FrameSink for Bytes {
    fn frame(&mut self, _packets: usize, parts: &[IoSlice<'_>]) {
        self.0 += parts.iter().map(|p| p.len()).sum::<usize>();
    }
}

const ETHERNET: [u8; 14] = [2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0];

/// Cuts a frame with 40 bytes of headers and `payload` bytes into packets of 1000 bytes, in `out`.
fn cut(frame: &[u8], out: &mut [u8]) -> usize {
    let vnet = VnetHeader {
        flags: FLAG_NEEDS_CSUM,
        gso_type: GSO_TCPV4,
        gso_size: U16::new(1000),
        csum_start: U16::new(34),
        csum_offset: U16::new(16),
        ..VnetHeader::default()
    };
    let mut segmenter =
        Segmenter::new(&vnet, frame, LinkHeader::new(&[]), 1500).expect("a frame that can be cut");
    let mut at = 0;
    while let Some(len) = segmenter.next_len() {
        segmenter.write_next(&mut out[at..at + len]);
        at += len;
    }
    at
}

fn tcp_frame() -> Vec<u8> {
    let mut frame = ETHERNET.to_vec();
    frame.extend([0x45, 0]);
    frame.extend(30_040u16.to_be_bytes());
    frame.extend([0, 1, 0x40, 0, 64, 6, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
    frame.extend([
        1, 2, 3, 4, 0, 0, 0, 1, 0, 0, 0, 2, 0x50, 0x10, 1, 0xf6, 0, 0, 0, 0,
    ]);
    frame.resize(14 + 30_040, 7);
    frame
}

/// Memory in pieces of 1024 bytes.
struct Places(Vec<u8>);

impl Pieces for Places {
    fn piece(&mut self, index: usize) -> &mut [u8] {
        let end = self.0.len().min((index + 1) * 1024);
        self.0.get_mut(index * 1024..end).unwrap_or_default()
    }
}

#[test]
fn a_message_is_filled_and_taken_to_the_tap_without_an_allocation() {
    let frame = tcp_frame();
    let mut places = Places(vec![0; 30_044]);
    let mut bytes = Bytes::default();
    let before = allocator::allocations();
    for _ in 0..10 {
        let vnet = VnetHeader {
            flags: FLAG_NEEDS_CSUM,
            csum_start: U16::new(34),
            csum_offset: U16::new(16),
            ..VnetHeader::default()
        };
        let link = LinkHeader::new(&[8, 0, 0, 0]);
        let mut segmenter = Segmenter::new(&vnet, &frame, link, 65_520).expect("a packet");
        assert!(segmenter.write_next_scattered(&mut places));
        let mut parts = places.0.chunks(1024);
        let start = &parts.next().expect("a first part")[4..];
        let len = gather::frame(&ETHERNET, start, parts, true, &mut bytes);
        assert_eq!(len, Some(30_040));
    }
    assert_eq!(allocator::allocations(), before);
    assert_eq!(bytes.0, 10 * (12 + 14 + 30_040));
}

#[test]
fn a_tag_is_put_into_a_large_frame_without_an_allocation() {
    let mut frame = vec![0; 12];
    frame.extend(tcp_frame());
    let pieces: Vec<IoSlice<'_>> = frame.chunks(1024).map(IoSlice::new).collect();
    let tag = Tag {
        vid: 5,
        priority: 0,
    };
    let before = allocator::allocations();
    let mut head = Head::default();
    let tagged = insert(tag.bytes(), &pieces, &mut head).expect("room for a tag");
    let bytes: usize = tagged.iter().map(|part| part.len()).sum();
    assert_eq!(allocator::allocations(), before);
    assert_eq!(bytes, frame.len() + 4);
}

#[test]
fn nothing_is_allocated_after_the_first_batch() {
    let frame = tcp_frame();
    let mut out = vec![0; 40_000];
    let mut coalescer = Coalescer::new(CoalesceConfig::default());
    let mut bytes = Bytes::default();
    let mut round = || {
        let end = cut(&frame, &mut out);
        let mut batch = coalescer.batch();
        for packet in out[..end].chunks(1040) {
            batch.push(&ETHERNET, packet, &mut bytes);
        }
        batch.flush(&mut bytes);
    };
    round();
    let before = allocator::allocations();
    for _ in 0..10 {
        round();
    }
    assert_eq!(allocator::allocations(), before);
    assert!(before > 0, "the counter counts");
    assert_eq!(coalescer.counters().frames, 11);
    assert_eq!(bytes.0, 11 * (12 + 14 + 30_040));
}
