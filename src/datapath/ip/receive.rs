//! IP packets from the fabric to the TAP.

use std::io::IoSlice;

use fabric::{Message, RcReceived, UdReceived};
use ipoib::{Incoming, Meta, Time};
use netdev::coalesce::{Coalescing, FrameSink};
use netdev::gather;
use netdev::mss::Excess;
use netdev::vnet::{VNET_HEADER_LEN, VnetHeader};
use zerocopy::IntoBytes;

use super::super::ETHERNET_LEN;
use super::super::handle::Mailbox;
use super::super::lane::LaneBase;
use super::super::stats::IpStats;
use super::super::thread::Scratch;
use super::lane::IpLane;

/// Writes frames to one TAP queue.
pub struct TapSink<'l> {
    base: &'l mut LaneBase,
    stats: &'l mut IpStats,
}

impl TapSink<'_> {
    /// Creates a sink for a lane's queue.
    pub fn of(lane: &mut IpLane) -> TapSink<'_> {
        let IpLane { base, stats, .. } = lane;
        TapSink { base, stats }
    }
}

impl FrameSink for TapSink<'_> {
    fn frame(&mut self, packets: usize, parts: &[IoSlice<'_>]) {
        if self.base.write(parts) {
            self.stats.rx_packets += packets as u64;
        } else {
            self.stats.rx_dropped += packets as u64;
        }
    }
}

/// Messages of several parts up to this size, in bytes, are copied into one piece. Messages that the core
/// reads completely, for example neighbour discovery, are not larger.
const LINEAR_MAX: usize = 4096;

/// Bytes at the beginning of a message that the core reads. The smallest path MTU is larger; smaller parts of
/// a provider need a copy.
const HEAD_MIN: usize = 128;

/// A run of arrivals for one link.
pub struct Run<'r, 'b> {
    coalescing: Coalescing<'r, 'b>,
    translated: &'r mut Vec<u8>,
    linear: &'r mut Vec<u8>,
    replicas: &'r [Mailbox],
    now: Time,
}

/// An arrival that is not a packet for the host.
pub enum Aside {
    /// A frame that the core wrote, copied.
    Frame,
    /// The core learned from the arrival, or holds it.
    News,
    /// Dropped and counted by the core.
    Dropped,
}

impl<'r, 'b> Run<'r, 'b> {
    /// Begins a run for a lane. `replicas` receive the core's updates.
    pub fn new(
        lane: &IpLane,
        scratch: &'r mut Scratch,
        replicas: &'r [Mailbox],
        now: Time,
    ) -> Run<'r, 'b> {
        scratch.coalescer.configure(lane.base.coalescing);
        Run {
            coalescing: scratch.coalescer.batch(),
            translated: &mut scratch.translated,
            linear: &mut scratch.linear,
            replicas,
            now,
        }
    }

    /// Writes datagrams to the TAP; true if the core has news.
    pub fn datagrams(
        mut self,
        lane: &mut IpLane,
        datagrams: impl Iterator<Item = (&'b UdReceived, &'b [u8])>,
    ) -> bool {
        let mut news = false;
        for (received, payload) in datagrams {
            let meta = Meta {
                src_qpn: received.src_qpn,
                src_gid: received.src_gid,
                has_src_gid: received.has_src_gid,
                dst_gid: received.dst_gid,
                multicast: received.multicast,
            };
            let IpLane {
                base,
                core,
                settings,
                stats,
                ..
            } = lane;
            stats.multicast += u64::from(received.multicast);
            match core.from_fabric(self.now, &meta, payload) {
                Incoming::Packet { ethernet, l3 } => {
                    stats.rx_bytes += l3.len() as u64;
                    let mut sink = TapSink { base, stats };
                    match settings.mss.and_then(|limit| limit.excess(l3)) {
                        Some(excess) => self.with_mss(&ethernet, l3, excess, &mut sink),
                        None => self.coalescing.push_checked(
                            &ethernet,
                            l3,
                            received.checksum_ok,
                            &mut sink,
                        ),
                    }
                }
                other => {
                    let aside = keep(self.translated, &other);
                    news |= self.aside(lane, &aside, payload.len());
                }
            }
            news |= lane.has_news();
        }
        self.finish(lane);
        news
    }

    /// Writes messages to the TAP; true if the core has news.
    pub fn messages(
        mut self,
        lane: &mut IpLane,
        messages: impl Iterator<Item = (&'b RcReceived, Message<'b>)>,
    ) -> bool {
        let mut news = false;
        for (received, message) in messages {
            let mut parts = message.parts();
            let Some(first) = parts.next() else {
                lane.stats.rx_dropped += 1;
                continue;
            };
            news |= if parts.len() == 0 {
                self.single(lane, received, first)
            } else {
                self.several(lane, received, first, parts)
            };
            news |= lane.has_news();
        }
        self.finish(lane);
        news
    }

    /// Handles a message of one part: coalesced like a datagram.
    fn single(&mut self, lane: &mut IpLane, received: &RcReceived, payload: &'b [u8]) -> bool {
        let IpLane {
            base,
            core,
            settings,
            stats,
            ..
        } = lane;
        match core.from_connection(self.now, received.connection, payload, payload.len()) {
            Incoming::Packet { ethernet, l3 } => {
                stats.rx_bytes += l3.len() as u64;
                let mut sink = TapSink { base, stats };
                match settings.mss.and_then(|limit| limit.excess(l3)) {
                    Some(excess) => self.with_mss(&ethernet, l3, excess, &mut sink),
                    None => self.coalescing.push_checked(
                        &ethernet,
                        l3,
                        settings.trust_checksums,
                        &mut sink,
                    ),
                }
                false
            }
            other => {
                let aside = keep(self.translated, &other);
                self.aside(lane, &aside, payload.len())
            }
        }
    }

    /// Handles a message of several parts: one write, without copying the payload.
    fn several(
        &mut self,
        lane: &mut IpLane,
        received: &RcReceived,
        first: &'b [u8],
        rest: impl ExactSizeIterator<Item = &'b [u8]> + Clone,
    ) -> bool {
        let len = received.len;
        let linear = len <= LINEAR_MAX || first.len() < HEAD_MIN;
        if linear {
            self.linear.clear();
            self.linear.extend_from_slice(first);
            rest.clone()
                .for_each(|part| self.linear.extend_from_slice(part));
        }
        let head = if linear { &self.linear[..] } else { first };
        let IpLane {
            base,
            core,
            settings,
            stats,
            ..
        } = lane;
        let trust = settings.trust_checksums;
        match core.from_connection(self.now, received.connection, head, len) {
            Incoming::Packet { ethernet, l3 } => {
                let l3 = match settings.mss.and_then(|limit| limit.excess(l3)) {
                    Some(excess) => lowered(self.translated, l3, excess),
                    None => l3,
                };
                let mut sink = TapSink { base, stats };
                // Keep the order: first the earlier packets.
                self.coalescing.finish_open(&mut sink);
                // `l3` contains a linear message completely.
                let rest = rest.take(if linear { 0 } else { usize::MAX });
                match gather::frame(&ethernet, l3, rest, trust, &mut sink) {
                    Some(len) => sink.stats.rx_bytes += len as u64,
                    None => sink.stats.rx_dropped += 1,
                }
                false
            }
            other => {
                let aside = keep(self.translated, &other);
                self.aside(lane, &aside, len)
            }
        }
    }

    /// Writes a SYN with a smaller segment size, after the earlier packets.
    #[cold]
    fn with_mss(
        &mut self,
        ethernet: &[u8; ETHERNET_LEN],
        l3: &[u8],
        excess: Excess,
        sink: &mut TapSink<'_>,
    ) {
        let l3 = lowered(self.linear, l3, excess);
        self.coalescing.finish_open(sink);
        if gather::frame(ethernet, l3, std::iter::empty(), false, sink).is_none() {
            sink.stats.rx_dropped += 1;
        }
    }

    fn aside(&mut self, lane: &mut IpLane, what: &Aside, payload_len: usize) -> bool {
        aside(lane, what, self.translated, self.replicas, payload_len)
    }

    fn finish(self, lane: &mut IpLane) {
        let IpLane { base, stats, .. } = lane;
        self.coalescing.flush(&mut TapSink { base, stats });
    }
}

/// Copies a SYN, or its beginning, to `copy`, with a smaller segment size.
#[cold]
fn lowered<'c>(copy: &'c mut Vec<u8>, l3: &[u8], excess: Excess) -> &'c [u8] {
    copy.clear();
    copy.extend_from_slice(l3);
    excess.lower(copy, false);
    copy
}

/// Copies a frame in the core's memory to `translated`.
pub fn keep(translated: &mut Vec<u8>, incoming: &Incoming<'_, '_>) -> Aside {
    match incoming {
        Incoming::Frame(frame) => {
            translated.clear();
            translated.extend_from_slice(frame);
            Aside::Frame
        }
        Incoming::Held | Incoming::Consumed | Incoming::Packet { .. } => Aside::News,
        Incoming::Dropped(_) => Aside::Dropped,
    }
}

/// Handles an arrival that is not a packet for the host; true if the core has news. `frame` is the copy of
/// [`keep`].
pub fn aside(
    lane: &mut IpLane,
    what: &Aside,
    frame: &[u8],
    replicas: &[Mailbox],
    payload_len: usize,
) -> bool {
    match what {
        Aside::Frame => {
            lane.stats.rx_bytes += payload_len.saturating_sub(4) as u64;
            // Before the host sees the frame: another thread may read the host's answer.
            lane.publish(replicas);
            write_frame(lane, frame);
            true
        }
        Aside::News => true,
        Aside::Dropped => {
            lane.stats.rx_dropped += 1;
            false
        }
    }
}

/// Writes one Ethernet frame that the core wrote.
pub fn write_frame(lane: &mut IpLane, frame: &[u8]) {
    write(&mut lane.base, &mut lane.stats, frame);
}

/// Like [`write_frame`], for a frame in the core's memory.
pub fn write(base: &mut LaneBase, stats: &mut IpStats, frame: &[u8]) {
    let header = VnetHeader::default();
    let parts = [IoSlice::new(header.as_bytes()), IoSlice::new(frame)];
    TapSink { base, stats }.frame(1, &parts);
}

/// Writes a frame, as read with its virtio-net header, back to the TAP, if the lane reflects frames and the
/// frame is for a guest or a group.
pub fn reflect(lane: &mut IpLane, raw: &[u8]) {
    if lane.settings.reflect
        && lane
            .core
            .is_reflected(raw.get(VNET_HEADER_LEN..).unwrap_or_default())
    {
        TapSink::of(lane).frame(1, &[IoSlice::new(raw)]);
    }
}

#[cfg(test)]
mod tests;
