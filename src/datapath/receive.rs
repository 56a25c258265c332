//! From the fabric to the TAP.

use std::io::IoSlice;

use fabric::UdReceived;
use ipoib::{Incoming, Meta, Time};
use netdev::coalesce::{Coalescing, FrameSink};
use netdev::tap::TapQueue;
use netdev::vnet::VnetHeader;
use zerocopy::IntoBytes;

use super::lane::Lane;
use super::stats::LaneStats;

/// Writes frames to one TAP queue.
struct TapSink<'l> {
    tap: &'l TapQueue,
    stats: &'l mut LaneStats,
}

impl FrameSink for TapSink<'_> {
    fn frame(&mut self, packets: usize, parts: &[IoSlice<'_>]) {
        match self.tap.write_vectored(parts) {
            Ok(()) => {
                self.stats.rx_packets += packets as u64;
                self.stats.tap_writes += 1;
            }
            Err(_) => {
                self.stats.rx_dropped += packets as u64;
                self.stats.tap_write_errors += 1;
            }
        }
    }
}

/// Takes a run of datagrams for one device; true if its core has news: something learned or
/// something to send.
///
/// What a translated frame (ARP, neighbour discovery) taught the core is given to `publish` before
/// the host sees the frame, because the host's next frame may go to a sibling thread.
pub fn run<'b>(
    lane: &mut Lane,
    mut coalescing: Coalescing<'_, 'b>,
    translated: &mut Vec<u8>,
    now: Time,
    datagrams: impl Iterator<Item = (&'b UdReceived, &'b [u8])>,
    publish: impl Fn(&mut Lane),
) -> bool {
    let mut news = false;
    for (received, payload) in datagrams {
        let meta = Meta {
            src_qpn: received.src_qpn,
            src_gid: received.src_gid,
            dst_gid: received.dst_gid,
            multicast: received.multicast,
        };
        let Lane {
            core, tap, stats, ..
        } = lane;
        stats.multicast += u64::from(received.multicast);
        match core.from_fabric(now, &meta, payload) {
            Incoming::Packet { ethernet, l3 } => {
                stats.rx_bytes += l3.len() as u64;
                coalescing.push(&ethernet, l3, &mut TapSink { tap, stats });
            }
            Incoming::Frame(frame) => {
                stats.rx_bytes += payload.len().saturating_sub(4) as u64;
                translated.clear();
                translated.extend_from_slice(frame);
                publish(lane);
                write_frame(lane, translated);
                news = true;
            }
            Incoming::Held | Incoming::Consumed => news = true,
            Incoming::Dropped(_) => stats.rx_dropped += 1,
        }
        news |= lane.core.has_updates() || lane.core.has_events();
    }
    let Lane { tap, stats, .. } = lane;
    coalescing.flush(&mut TapSink { tap, stats });
    news
}

/// Writes one Ethernet frame of the core's making.
pub fn write_frame(lane: &mut Lane, frame: &[u8]) {
    let header = VnetHeader::default();
    let parts = [IoSlice::new(header.as_bytes()), IoSlice::new(frame)];
    TapSink {
        tap: &lane.tap,
        stats: &mut lane.stats,
    }
    .frame(1, &parts);
}

/// Writes one frame as it was read: virtio-net header, then Ethernet.
pub fn write_raw(lane: &mut Lane, raw: &[u8]) {
    TapSink {
        tap: &lane.tap,
        stats: &mut lane.stats,
    }
    .frame(1, &[IoSlice::new(raw)]);
}
