//! Receive offload: merges neighbouring packets of a flow into a frame for the TAP, with a virtio-net
//! header for cutting it again.
//!
//! The rules are those of the kernel's GRO (net/ipv4/af_inet.c `inet_gro_receive`, net/ipv4/tcp_offload.c
//! `tcp_gro_receive`, net/ipv4/udp_offload.c `udp_gro_receive_segment`): cutting a merged frame gives the
//! original packets. Hence:
//!
//! * A packet is merged only if its IP and TCP or UDP checksums are right. Other packets pass alone and
//!   unchanged; the kernel finds and counts their errors. Checksums that an adapter has verified are not
//!   verified again ([`Coalescing::push_checked`]).
//! * Every length in a merged frame was compared with the actual bytes, because a TAP accepts anything.
//! * Packets of a flow stay in order. A packet that cannot be merged first ends its flow's frame.
//!
//! Payload is not copied: a frame is the headers and a slice for each packet, for one `writev`. There are
//! no timers: [`Coalescing::flush`] at the end of each receive batch ends all flows.

mod candidate;
mod flow;

use std::io::IoSlice;

use zerocopy::IntoBytes;

use crate::ip::ETHERNET_HEADER_LEN;
use crate::vnet::{VNET_HEADER_LEN, VnetHeader};
use candidate::{Candidate, FlowKey, Verdict};
use flow::{Flow, Merge};

/// Maximum number of open flows. The kernel's GRO has eight for each hash bucket.
pub const MAX_FLOWS: usize = 8;

/// Maximum number of packets in a frame, as `UDP_GRO_CNT_MAX` of the kernel.
pub const MAX_PACKETS: usize = 64;

/// The maximum length of an IP packet, in bytes.
const MAX_IP_LEN: usize = 65535;

/// The packets to merge.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CoalesceConfig {
    /// TCP; follows `ethtool -K … gro`.
    pub tcp: bool,
    /// UDP. Only if the kernel accepts [`GSO_UDP_L4`](crate::vnet::GSO_UDP_L4) (Linux 6.2).
    pub udp: bool,
    /// The maximum length of a merged IP packet, in bytes; at most 65535 is used.
    pub max_frame: usize,
}

impl Default for CoalesceConfig {
    fn default() -> CoalesceConfig {
        CoalesceConfig {
            tcp: true,
            udp: true,
            max_frame: MAX_IP_LEN,
        }
    }
}

/// Receives finished frames.
pub trait FrameSink {
    /// Receives a frame for one `writev`. `parts` is never empty; its first part starts with the virtio-net
    /// header ([`VnetHeader`], 12 bytes) and the Ethernet header (14 bytes). `packets` is the number of
    /// packets in the frame.
    fn frame(&mut self, packets: usize, parts: &[IoSlice<'_>]);
}

/// Counters of a [`Coalescer`] since its creation.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct CoalesceCounters {
    /// Packets pushed.
    pub packets: u64,
    /// Frames given to the sink.
    pub frames: u64,
    /// Packets merged with others.
    pub merged: u64,
    /// Packets that were not merged because of a wrong checksum; passed alone.
    pub bad_checksum: u64,
}

/// Merges packets, one receive batch at a time. Allocates at creation and during the first batches only.
#[derive(Debug)]
pub struct Coalescer {
    config: CoalesceConfig,
    flows: Box<[Flow; MAX_FLOWS]>,
    /// The open flows, a bit each.
    open: u8,
    /// Number of flows opened, for their order.
    opened: u64,
    counters: CoalesceCounters,
    /// Memory for the packets of the next batch; always empty between batches.
    spare: Vec<&'static [u8]>,
}

/// A receive batch in a [`Coalescer`]; `'b` is the lifetime of its packets.
///
/// End it with [`Coalescing::flush`]; otherwise open frames are lost.
#[derive(Debug)]
#[must_use = "open frames are lost without a flush"]
pub struct Coalescing<'c, 'b> {
    state: &'c mut Coalescer,
    /// [`flow::PLACES`] places for each flow: its first packet and the payloads of the others.
    places: Vec<&'b [u8]>,
}

impl Coalescer {
    /// Creates a coalescer without open flows.
    pub fn new(config: CoalesceConfig) -> Coalescer {
        Coalescer {
            config: CoalesceConfig {
                max_frame: config.max_frame.min(MAX_IP_LEN),
                ..config
            },
            flows: Box::new([const { Flow::empty() }; MAX_FLOWS]),
            open: 0,
            opened: 0,
            counters: CoalesceCounters::default(),
            spare: Vec::with_capacity(MAX_FLOWS * flow::PLACES),
        }
    }

    /// Changes the configuration, from the next batch on.
    pub fn configure(&mut self, config: CoalesceConfig) {
        self.config = CoalesceConfig {
            max_frame: config.max_frame.min(MAX_IP_LEN),
            ..config
        };
    }

    /// The counters.
    pub fn counters(&self) -> CoalesceCounters {
        self.counters
    }

    /// Starts a receive batch.
    #[inline]
    pub fn batch<'b>(&mut self) -> Coalescing<'_, 'b> {
        // A batch that was dropped without flush leaves its flows open.
        self.open = 0;
        Coalescing {
            places: std::mem::take(&mut self.spare),
            state: self,
        }
    }
}

impl<'b> Coalescing<'_, 'b> {
    /// Adds the next packet, in order of arrival. `packet` starts with its IP header; `ethernet` is its
    /// header on the TAP, whose type determines the protocol. Passes finished frames to the sink.
    #[inline]
    pub fn push(
        &mut self,
        ethernet: &[u8; ETHERNET_HEADER_LEN],
        packet: &'b [u8],
        sink: &mut (impl FrameSink + ?Sized),
    ) {
        self.push_checked(ethernet, packet, false, sink);
    }

    /// As [`Coalescing::push`]. With `verified` the packet's checksums are known to be right, for example
    /// by the adapter, and not verified again.
    #[inline]
    pub fn push_checked(
        &mut self,
        ethernet: &[u8; ETHERNET_HEADER_LEN],
        packet: &'b [u8],
        verified: bool,
        sink: &mut (impl FrameSink + ?Sized),
    ) {
        self.state.counters.packets += 1;
        match candidate::look(&self.state.config, ethernet, packet) {
            Verdict::Candidate(mut candidate) => {
                candidate.verified = verified;
                self.merge(ethernet, &candidate, sink);
            }
            Verdict::Flow(key) => {
                if let Some(i) = self.find(&key) {
                    self.emit(i, sink);
                }
                self.pass(ethernet, packet, sink);
            }
            Verdict::Host(addresses) => {
                while let Some(i) = self.position(|f| *f.addresses() == addresses) {
                    self.emit(i, sink);
                }
                self.pass(ethernet, packet, sink);
            }
            Verdict::Other => self.pass(ethernet, packet, sink),
        }
    }

    /// Ends the batch: passes all open frames to the sink, in the order of their start.
    #[inline]
    pub fn flush(mut self, sink: &mut (impl FrameSink + ?Sized)) {
        self.finish_open(sink);
    }

    /// Passes all open frames to the sink and continues the batch. Call it before another frame is written
    /// to the TAP directly, to keep the order.
    #[inline]
    pub fn finish_open(&mut self, sink: &mut (impl FrameSink + ?Sized)) {
        while self.state.open != 0 {
            let oldest = self.oldest();
            self.emit(oldest, sink);
        }
    }

    fn merge(
        &mut self,
        ethernet: &[u8; ETHERNET_HEADER_LEN],
        candidate: &Candidate<'b>,
        sink: &mut (impl FrameSink + ?Sized),
    ) {
        let Some(i) = self.find(&candidate.key) else {
            return self.open(ethernet, candidate, sink);
        };
        let max_frame = self.state.config.max_frame;
        let flow = &mut self.state.flows[i];
        let places = &mut self.places[i * flow::PLACES..][..flow::PLACES];
        match flow.merge(ethernet, candidate, max_frame, places) {
            Merge::More => {}
            Merge::Full => self.emit(i, sink),
            Merge::Unlike => {
                self.emit(i, sink);
                self.open(ethernet, candidate, sink);
            }
            Merge::FirstIsBad => {
                self.state.counters.bad_checksum += 1;
                self.emit(i, sink);
                self.open(ethernet, candidate, sink);
            }
            Merge::Bad => {
                self.state.counters.bad_checksum += 1;
                self.emit(i, sink);
                self.pass(ethernet, candidate.packet, sink);
            }
        }
    }

    /// Starts a frame with this packet, unless the packet would end it at once.
    fn open(
        &mut self,
        ethernet: &[u8; ETHERNET_HEADER_LEN],
        candidate: &Candidate<'b>,
        sink: &mut (impl FrameSink + ?Sized),
    ) {
        if candidate.is_last() {
            return self.pass(ethernet, candidate.packet, sink);
        }
        if self.state.open == u8::MAX {
            let oldest = self.oldest();
            self.emit(oldest, sink);
        }
        let i = self.state.open.trailing_ones() as usize;
        let end = (i + 1) * flow::PLACES;
        if self.places.len() < end {
            // Within the capacity: MAX_FLOWS times PLACES.
            self.places.resize(end, &[]);
        }
        self.places[i * flow::PLACES] = candidate.packet;
        self.state.opened += 1;
        self.state.open |= 1 << i;
        self.state.flows[i].begin(ethernet, candidate, self.state.opened);
    }

    /// Ends a flow and passes its frame to the sink.
    fn emit(&mut self, i: usize, sink: &mut (impl FrameSink + ?Sized)) {
        self.state.open &= !(1 << i);
        let flow = &mut self.state.flows[i];
        let packets = flow.packets();
        self.state.counters.frames += 1;
        if packets > 1 {
            self.state.counters.merged += packets as u64;
        }
        flow.frame(&self.places[i * flow::PLACES..][..flow::PLACES], |parts| {
            sink.frame(packets, parts);
        });
    }

    /// Passes a packet to the sink unchanged.
    fn pass(
        &mut self,
        ethernet: &[u8; ETHERNET_HEADER_LEN],
        packet: &[u8],
        sink: &mut (impl FrameSink + ?Sized),
    ) {
        self.state.counters.frames += 1;
        let mut head = [0; VNET_HEADER_LEN + ETHERNET_HEADER_LEN];
        head[..VNET_HEADER_LEN].copy_from_slice(VnetHeader::default().as_bytes());
        head[VNET_HEADER_LEN..].copy_from_slice(ethernet);
        sink.frame(1, &[IoSlice::new(&head), IoSlice::new(packet)]);
    }

    fn find(&self, key: &FlowKey) -> Option<usize> {
        self.position(|f| f.key() == key)
    }

    /// The first open flow for which `is` is true.
    #[inline]
    fn position(&self, is: impl Fn(&Flow) -> bool) -> Option<usize> {
        let mut left = self.state.open;
        while left != 0 {
            let i = left.trailing_zeros() as usize;
            if is(&self.state.flows[i]) {
                return Some(i);
            }
            left &= left - 1;
        }
        None
    }

    /// The oldest open flow; 0 if none is open.
    fn oldest(&self) -> usize {
        (0..MAX_FLOWS)
            .filter(|i| self.state.open & (1 << i) != 0)
            .min_by_key(|i| self.state.flows[*i].opened())
            .unwrap_or(0)
    }
}

impl Drop for Coalescing<'_, '_> {
    fn drop(&mut self) {
        self.state.spare = recycle(std::mem::take(&mut self.places));
    }
}

/// Reuses the memory for slices of another lifetime: an empty vector, collected in place.
fn recycle<'to>(mut places: Vec<&[u8]>) -> Vec<&'to [u8]> {
    places.clear();
    places.into_iter().map(|_| -> &'to [u8] { &[] }).collect()
}

#[cfg(test)]
mod tests;
