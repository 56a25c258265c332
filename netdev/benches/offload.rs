//! Micro-benchmarks of the code that touches every byte: `cargo bench -p netdev --bench offload`.

use std::io::IoSlice;

use divan::counter::{BytesCount, ItemsCount};
use divan::{Bencher, black_box};
use netdev::checksum::Sum;
use netdev::coalesce::{CoalesceConfig, Coalescer, FrameSink};
use netdev::segment::{LinkHeader, Pieces, Segmenter};
use netdev::vnet::{FLAG_NEEDS_CSUM, GSO_TCPV4, VnetHeader};
use zerocopy::little_endian::U16;

const ETHERNET: [u8; 14] = [2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0];
const IPOIB: LinkHeader = LinkHeader::new(&[8, 0, 0, 0]);
const TCP_HEADERS: usize = 52;

fn main() {
    divan::main();
}

/// A frame from the TAP: IPv4, TCP with time stamps, `payload` bytes.
fn tcp_frame(payload: usize) -> Vec<u8> {
    let total = (TCP_HEADERS + payload) as u16;
    let mut frame = ETHERNET.to_vec();
    frame.extend([0x45, 0]);
    frame.extend(total.to_be_bytes());
    frame.extend([0, 1, 0x40, 0, 64, 6, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
    frame.extend([
        0x9c, 0x40, 0x14, 0x51, 0, 0, 0, 1, 0, 0, 0, 2, 0x80, 0x10, 1, 0xf6, 0, 0, 0, 0,
    ]);
    frame.extend([1, 1, 8, 10, 0, 0, 0, 1, 0, 0, 0, 2]);
    frame.extend((0..payload).map(|i| (i * 31 + i / 253) as u8));
    frame
}

fn tcp_vnet(size: usize) -> VnetHeader {
    VnetHeader {
        flags: FLAG_NEEDS_CSUM,
        gso_type: GSO_TCPV4,
        hdr_len: U16::new(66),
        gso_size: U16::new(size as u16),
        csum_start: U16::new(34),
        csum_offset: U16::new(16),
        num_buffers: U16::ZERO,
    }
}

fn segment_all(vnet: &VnetHeader, frame: &[u8], mtu: usize, out: &mut [u8]) -> usize {
    let mut segmenter = Segmenter::new(vnet, frame, IPOIB, mtu).expect("a frame that can be cut");
    let mut at = 0;
    while let Some(len) = segmenter.next_len() {
        segmenter.write_next(&mut out[at..at + len]);
        at += len;
    }
    at
}

/// Cuts a frame of 60 KB into packets of at most the MTU.
#[divan::bench(args = [4092, 1500])]
fn segment_60k_tcp(bencher: Bencher<'_, '_>, mtu: usize) {
    let frame = tcp_frame(60_000);
    let vnet = tcp_vnet(mtu - TCP_HEADERS);
    let mut out = vec![0; 70_000];
    bencher
        .counter(BytesCount::new(60_000usize))
        .bench_local(|| {
            segment_all(
                black_box(&vnet),
                black_box(&frame),
                mtu,
                black_box(&mut out),
            )
        });
}

/// The places of a message: path MTU bytes each, with 12 bytes before and 4 behind.
struct Places {
    memory: Vec<u8>,
    payload: usize,
    len: usize,
}

impl Pieces for Places {
    fn piece(&mut self, index: usize) -> &mut [u8] {
        let left = self.len.saturating_sub(index * self.payload);
        let at = index * (12 + self.payload + 4) + 12;
        let end = at + left.min(self.payload);
        self.memory.get_mut(at..end).unwrap_or_default()
    }
}

/// Cuts a packet of 60 KB into a message with packets of the path MTU.
#[divan::bench(args = [4096, 1024])]
fn scatter_60k_tcp(bencher: Bencher<'_, '_>, path_mtu: usize) {
    let frame = tcp_frame(60_000);
    let vnet = VnetHeader {
        gso_type: 0,
        ..tcp_vnet(0)
    };
    let mut out = Places {
        memory: vec![0; 70_000],
        payload: path_mtu,
        len: 4 + TCP_HEADERS + 60_000,
    };
    bencher
        .counter(BytesCount::new(60_000usize))
        .bench_local(|| {
            let mut segmenter = Segmenter::new(black_box(&vnet), black_box(&frame), IPOIB, 65_520)
                .expect("a packet that fits");
            segmenter.write_next_scattered(black_box(&mut out))
        });
}

/// The lower bound of any segmenter.
#[divan::bench]
fn memcpy_60k(bencher: Bencher<'_, '_>) {
    let frame = tcp_frame(60_000);
    let mut out = vec![0; frame.len()];
    bencher
        .counter(BytesCount::new(60_000usize))
        .bench_local(|| black_box(&mut out).copy_from_slice(black_box(&frame)));
}

/// Small packets that need a checksum only.
#[divan::bench]
fn segment_64_packets_of_64_bytes(bencher: Bencher<'_, '_>) {
    let frame = tcp_frame(64 - TCP_HEADERS);
    let vnet = VnetHeader {
        gso_type: 0,
        ..tcp_vnet(0)
    };
    let mut out = [0; 128];
    bencher.counter(ItemsCount::new(64usize)).bench_local(|| {
        for _ in 0..64 {
            segment_all(
                black_box(&vnet),
                black_box(&frame),
                4092,
                black_box(&mut out),
            );
        }
    });
}

/// Counts frames instead of writing them.
#[derive(Default)]
struct Count(usize);

impl FrameSink for Count {
    fn frame(&mut self, _packets: usize, parts: &[IoSlice<'_>]) {
        self.0 += black_box(parts).iter().map(|p| p.len()).sum::<usize>();
    }
}

fn coalesce_all(coalescer: &mut Coalescer, packets: &[Vec<u8>]) -> usize {
    let mut count = Count::default();
    let mut batch = coalescer.batch();
    for packet in packets {
        batch.push(&ETHERNET, black_box(packet), &mut count);
    }
    batch.flush(&mut count);
    count.0
}

fn packets_of_a_frame(payload: usize, mtu: usize) -> Vec<Vec<u8>> {
    let frame = tcp_frame(payload);
    let none = LinkHeader::new(&[]);
    let vnet = tcp_vnet(mtu - TCP_HEADERS);
    let mut segmenter = Segmenter::new(&vnet, &frame, none, mtu).expect("a frame that can be cut");
    let mut packets = vec![];
    while let Some(len) = segmenter.next_len() {
        let mut out = vec![0; len];
        segmenter.write_next(&mut out);
        packets.push(out);
    }
    packets
}

/// Merges the same 60 KB: 15 packets of 4 KB, 42 of 1.4 KB. Verifies all checksums.
#[divan::bench(args = [4092, 1500])]
fn coalesce_60k_tcp(bencher: Bencher<'_, '_>, mtu: usize) {
    let packets = packets_of_a_frame(60_000, mtu);
    let mut coalescer = Coalescer::new(CoalesceConfig::default());
    bencher
        .counter(BytesCount::new(60_000usize))
        .bench_local(|| coalesce_all(&mut coalescer, &packets));
}

/// 64 datagrams of 64 bytes: each in its own flow, then all in the same flow.
#[divan::bench(args = [64, 1])]
fn coalesce_64_datagrams_of_64_bytes(bencher: Bencher<'_, '_>, flows: u16) {
    let packets: Vec<Vec<u8>> = (0..64u16).map(|i| datagram(i, 1000 + i % flows)).collect();
    let mut coalescer = Coalescer::new(CoalesceConfig::default());
    bencher
        .counter(ItemsCount::new(64usize))
        .bench_local(|| coalesce_all(&mut coalescer, &packets));
}

/// IPv4, UDP and 36 bytes: 64 in all.
fn datagram(id: u16, port: u16) -> Vec<u8> {
    let mut packet = vec![0x45, 0, 0, 64];
    packet.extend(id.to_be_bytes());
    packet.extend([0x40, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
    let header_sum = Sum::of(&packet).finish();
    packet[10..12].copy_from_slice(&header_sum.to_be_bytes());
    packet.extend(port.to_be_bytes());
    packet.extend([0, 53, 0, 44, 0, 0]);
    packet.extend([7; 36]);
    let pseudo = netdev::checksum::pseudo_header(&packet[12..16], &packet[16..20], 17, 44);
    let sum = pseudo.plus(Sum::of(&packet[20..])).finish_nonzero();
    packet[26..28].copy_from_slice(&sum.to_be_bytes());
    packet
}

#[divan::bench(args = [20, 64, 1460, 4052, 65000])]
fn checksum(bencher: Bencher<'_, '_>, len: usize) {
    let data: Vec<u8> = (0..len).map(|i| (i * 31) as u8).collect();
    bencher
        .counter(BytesCount::new(len))
        .bench_local(|| Sum::of(black_box(&data)).finish());
}

#[divan::bench(args = [64, 1460, 4052, 65000])]
fn copy_and_checksum(bencher: Bencher<'_, '_>, len: usize) {
    let data: Vec<u8> = (0..len).map(|i| (i * 31) as u8).collect();
    let mut out = vec![0; len];
    bencher
        .counter(BytesCount::new(len))
        .bench_local(|| Sum::of_copy(black_box(&mut out), black_box(&data)).finish());
}
