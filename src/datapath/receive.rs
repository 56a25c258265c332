//! From the fabric to the TAP.

use std::io::IoSlice;

use fabric::{Batch, EndpointId, Message, RcReceived, UdReceived};
use ipoib::{Incoming, Meta, Time};
use netdev::coalesce::{CoalesceConfig, Coalescer, Coalescing, FrameSink};
use netdev::gather;
use netdev::tap::TapQueue;
use netdev::vnet::{VNET_HEADER_LEN, VnetHeader};
use zerocopy::IntoBytes;

use super::ethernet::{self, EthernetLane, Management};
use super::handle::Mailbox;
use super::lane::Lane;
use super::lanes::Lanes;
use super::stats::LaneStats;

/// Writes frames to one TAP queue.
pub struct TapSink<'l> {
    tap: &'l TapQueue,
    stats: &'l mut LaneStats,
}

impl TapSink<'_> {
    /// To a lane's queue.
    pub fn of(lane: &mut Lane) -> TapSink<'_> {
        let Lane { tap, stats, .. } = lane;
        TapSink { tap, stats }
    }
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

/// A message of several parts is put into one piece up to this size, in bytes: what the core reads
/// as a whole, as neighbour discovery, is not larger.
const LINEAR_MAX: usize = 4096;

/// The beginning of a message that the core wants to see, in bytes. The smallest path MTU has more;
/// a provider that cuts smaller parts costs a copy.
const HEAD_MIN: usize = 128;

/// Takes what one poll of the fabric brought to the TAPs.
pub struct Receiver<'t> {
    /// The thread's lanes.
    pub lanes: &'t mut Lanes,
    /// Those of VNICs.
    pub ethernet: &'t mut Lanes<EthernetLane>,
    /// Endpoints of management.
    pub management: &'t mut Management,
    /// The thread's coalescer.
    pub coalescer: &'t mut Coalescer,
    /// Memory for a frame of the core's making.
    pub translated: &'t mut Vec<u8>,
    /// Memory for a message in one piece.
    pub linear: &'t mut Vec<u8>,
    /// Whom to tell what a core learned.
    pub siblings: &'t [Mailbox],
    /// The time.
    pub now: Time,
    /// Counts arrivals for endpoints that have no lane.
    pub unserved: &'t mut u64,
}

impl Receiver<'_> {
    /// Takes a batch, device by device; true if a core has news: something learned or something to
    /// send. What goes over a connection comes behind what came in datagrams, as in a peer that has
    /// just changed from these to that.
    pub fn batch(&mut self, batch: &Batch<'_>) -> bool {
        let mut news = false;
        let mut datagrams = batch.datagrams().peekable();
        while let Some((first, _)) = datagrams.peek() {
            let endpoint = first.endpoint;
            let arrivals =
                std::iter::from_fn(|| datagrams.next_if(|(r, _)| r.endpoint == endpoint));
            if let Some((lane, run)) = self.run(endpoint) {
                news |= run.datagrams(lane, arrivals);
            } else {
                news |= self.of_no_device(endpoint, arrivals);
            }
        }
        let mut messages = batch.messages().peekable();
        while let Some((first, _)) = messages.peek() {
            let endpoint = first.endpoint;
            let arrivals = std::iter::from_fn(|| messages.next_if(|(r, _)| r.endpoint == endpoint));
            if let Some((lane, run)) = self.run(endpoint) {
                news |= run.messages(lane, arrivals);
            } else {
                *self.unserved += arrivals.count() as u64;
            }
        }
        news
    }

    /// A run of datagrams for an endpoint that is no IPoIB device's.
    fn of_no_device<'b>(
        &mut self,
        endpoint: EndpointId,
        datagrams: impl Iterator<Item = (&'b UdReceived, &'b [u8])>,
    ) -> bool {
        if let Some(at) = self.ethernet.of_endpoint(endpoint)
            && let Some(lane) = self.ethernet.get_mut(at)
        {
            let (coalescer, siblings) = (&mut *self.coalescer, self.siblings);
            return ethernet::datagrams(lane, coalescer, siblings, self.now, datagrams);
        }
        if let Some(name) = self.management.of_endpoint(endpoint) {
            self.management.keep(name, datagrams);
            return true;
        }
        *self.unserved += datagrams.count() as u64;
        false
    }

    /// A run of arrivals for an endpoint; `None` if its lane is not here yet, or no more.
    fn run<'b>(&mut self, endpoint: EndpointId) -> Option<(&mut Lane, Run<'_, 'b>)> {
        let at = self.lanes.of_endpoint(endpoint)?;
        let lane = self.lanes.get_mut(at)?;
        self.coalescer.configure(CoalesceConfig {
            tcp: lane.coalesce,
            udp: lane.coalesce && lane.uso,
            ..CoalesceConfig::default()
        });
        let run = Run {
            coalescing: self.coalescer.batch(),
            translated: self.translated,
            linear: self.linear,
            siblings: self.siblings,
            now: self.now,
        };
        Some((lane, run))
    }
}

/// Arrivals of one device.
struct Run<'r, 'b> {
    coalescing: Coalescing<'r, 'b>,
    translated: &'r mut Vec<u8>,
    linear: &'r mut Vec<u8>,
    siblings: &'r [Mailbox],
    now: Time,
}

/// What an arrival was, besides a packet for the host.
pub enum Aside {
    /// A frame of the core's making, copied.
    Frame,
    /// Something that the core has news about.
    News,
    /// Dropped and counted by the core.
    Dropped,
}

impl<'b> Run<'_, 'b> {
    fn datagrams(
        mut self,
        lane: &mut Lane,
        datagrams: impl Iterator<Item = (&'b UdReceived, &'b [u8])>,
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
            match core.from_fabric(self.now, &meta, payload) {
                Incoming::Packet { ethernet, l3 } => {
                    stats.rx_bytes += l3.len() as u64;
                    let mut sink = TapSink { tap, stats };
                    let verified = received.checksum_ok;
                    self.coalescing
                        .push_checked(&ethernet, l3, verified, &mut sink);
                }
                other => {
                    let aside = keep(self.translated, &other);
                    news |= self.aside(lane, &aside, payload.len());
                }
            }
            news |= lane.core.has_updates() || lane.core.has_events();
        }
        self.finish(lane);
        news
    }

    fn messages(
        mut self,
        lane: &mut Lane,
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
            news |= lane.core.has_updates() || lane.core.has_events();
        }
        self.finish(lane);
        news
    }

    /// A message that came in one packet: merged with its neighbours as a datagram is.
    fn single(&mut self, lane: &mut Lane, received: &RcReceived, payload: &'b [u8]) -> bool {
        let Lane {
            core, tap, stats, ..
        } = lane;
        match core.from_connection(self.now, received.connection, payload, payload.len()) {
            Incoming::Packet { ethernet, l3 } => {
                stats.rx_bytes += l3.len() as u64;
                self.coalescing
                    .push(&ethernet, l3, &mut TapSink { tap, stats });
                false
            }
            other => {
                let aside = keep(self.translated, &other);
                self.aside(lane, &aside, payload.len())
            }
        }
    }

    /// A message of several parts: written as it lies, by one call.
    fn several(
        &mut self,
        lane: &mut Lane,
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
        let Lane {
            core, tap, stats, ..
        } = lane;
        match core.from_connection(self.now, received.connection, head, len) {
            Incoming::Packet { ethernet, l3 } => {
                let mut sink = TapSink { tap, stats };
                // What came before it must not come after it.
                self.coalescing.finish_open(&mut sink);
                // The rest of one piece is in that piece.
                let rest = rest.take(if linear { 0 } else { usize::MAX });
                match gather::frame(&ethernet, l3, rest, &mut sink) {
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

    fn aside(&mut self, lane: &mut Lane, what: &Aside, payload_len: usize) -> bool {
        aside(lane, what, self.translated, self.siblings, payload_len)
    }

    fn finish(self, lane: &mut Lane) {
        let Lane { tap, stats, .. } = lane;
        self.coalescing.flush(&mut TapSink { tap, stats });
    }
}

/// Copies what of a decision lies in the core's memory.
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

/// Does what an arrival wants besides a packet for the host, of which `frame` is the one that was kept;
/// true if the core has news.
pub fn aside(
    lane: &mut Lane,
    what: &Aside,
    frame: &[u8],
    siblings: &[Mailbox],
    payload_len: usize,
) -> bool {
    match what {
        Aside::Frame => {
            lane.stats.rx_bytes += payload_len.saturating_sub(4) as u64;
            // Before the host sees the frame, because its next one may go to a sibling thread.
            lane.publish(siblings);
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

/// Writes one Ethernet frame of the core's making.
pub fn write_frame(lane: &mut Lane, frame: &[u8]) {
    write(&lane.tap, &mut lane.stats, frame);
}

/// As [`write_frame`], for a frame that lies in the lane's core.
pub fn write(tap: &TapQueue, stats: &mut LaneStats, frame: &[u8]) {
    let header = VnetHeader::default();
    let parts = [IoSlice::new(header.as_bytes()), IoSlice::new(frame)];
    TapSink { tap, stats }.frame(1, &parts);
}

/// Gives a frame as it was read, virtio-net header first, back to the TAP, if it is for a guest or a
/// group, and such frames are to go back.
pub fn reflect(lane: &mut Lane, raw: &[u8]) {
    if lane.reflect
        && lane
            .core
            .is_reflected(raw.get(VNET_HEADER_LEN..).unwrap_or_default())
    {
        write_raw(lane, raw);
    }
}

/// Writes one frame as it was read: virtio-net header, then Ethernet.
fn write_raw(lane: &mut Lane, raw: &[u8]) {
    TapSink {
        tap: &lane.tap,
        stats: &mut lane.stats,
    }
    .frame(1, &[IoSlice::new(raw)]);
}

#[cfg(test)]
#[path = "receive_tests.rs"]
mod tests;
