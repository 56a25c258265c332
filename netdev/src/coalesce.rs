//! Receive offload: neighbouring packets of a flow become one frame for the TAP, with a virtio-net
//! header that says how it was cut.
//!
//! The rules are those of the kernel's GRO (net/ipv4/af_inet.c `inet_gro_receive`,
//! net/ipv4/tcp_offload.c `tcp_gro_receive`, net/ipv4/udp_offload.c `udp_gro_receive_segment`): what is
//! merged can be cut again into the packets that came. Hence
//!
//! * a packet is merged only if its IP header checksum and its TCP or UDP checksum are right. Any other
//!   goes up alone and untouched, so that the kernel finds and counts what is wrong with it. Who has
//!   looked already, as an adapter, is believed ([`Coalescing::push_checked`]);
//! * every length in a merged frame was held against the bytes that are there: a TAP takes anything;
//! * packets of one flow stay in order. What cannot be merged sends up what was there before it.
//!
//! Payload is not copied: a frame is the headers and a slice for each packet, for one `writev`.
//! There are no timers: [`Coalescing::flush`] at the end of each receive batch ends all flows.

mod candidate;
mod flow;

use std::io::IoSlice;

use zerocopy::IntoBytes;

use crate::ip::ETHERNET_HEADER_LEN;
use crate::vnet::{VNET_HEADER_LEN, VnetHeader};
use candidate::{Candidate, FlowKey, Verdict};
use flow::{Flow, Merge};

/// Flows open at once. The kernel's GRO has eight for each of its hash buckets.
pub const MAX_FLOWS: usize = 8;

/// Packets in one frame, as in the kernel's `UDP_GRO_CNT_MAX`.
pub const MAX_PACKETS: usize = 64;

/// The longest IP packet, in bytes.
const MAX_IP_LEN: usize = 65535;

/// Which packets to merge.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CoalesceConfig {
    /// TCP; follows `ethtool -K … gro`.
    pub tcp: bool,
    /// UDP. Only where the kernel takes [`GSO_UDP_L4`](crate::vnet::GSO_UDP_L4) (Linux 6.2).
    pub udp: bool,
    /// The longest merged IP packet, in bytes; more than 65535 means 65535.
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

/// Takes finished frames.
pub trait FrameSink {
    /// One frame for one `writev`. `parts` never is empty; its first part starts with the virtio-net
    /// header ([`VnetHeader`], 12 bytes) and the Ethernet header (14 bytes). `packets` is the number of
    /// packets that went into it.
    fn frame(&mut self, packets: usize, parts: &[IoSlice<'_>]);
}

/// What a [`Coalescer`] did, since it was made.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct CoalesceCounters {
    /// Packets pushed.
    pub packets: u64,
    /// Frames given to the sink.
    pub frames: u64,
    /// Packets that went up inside a frame with others.
    pub merged: u64,
    /// Packets that could have been merged but for a wrong checksum; sent up alone.
    pub bad_checksum: u64,
}

/// Merges packets, one receive batch at a time. Allocates when it is made and when the first batches
/// fill it, then no more.
#[derive(Debug)]
pub struct Coalescer {
    config: CoalesceConfig,
    flows: Box<[Flow; MAX_FLOWS]>,
    /// Which flows are open, a bit each.
    open: u8,
    /// Numbers flows in the order of their opening.
    opened: u64,
    counters: CoalesceCounters,
    /// Memory for the packets of the next batch; always empty between batches.
    spare: Vec<&'static [u8]>,
}

/// A receive batch on its way through a [`Coalescer`]; `'b` is the life of its packets.
///
/// To be ended with [`Coalescing::flush`]: frames still open are lost otherwise.
#[derive(Debug)]
#[must_use = "frames still open are lost without a flush"]
pub struct Coalescing<'c, 'b> {
    state: &'c mut Coalescer,
    /// [`flow::PLACES`] places for each flow: its first packet and the payloads of the others.
    places: Vec<&'b [u8]>,
}

impl Coalescer {
    /// A coalescer with no open flows.
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

    /// Changes what is merged, from the next batch on.
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
        // A batch that was dropped instead of flushed has left its flows behind.
        self.open = 0;
        Coalescing {
            places: std::mem::take(&mut self.spare),
            state: self,
        }
    }
}

impl<'b> Coalescing<'_, 'b> {
    /// The next packet, in order of arrival: `packet` starts with its IP header, `ethernet` is the
    /// header that it has on the TAP and whose type says what it is. Gives the sink what is finished.
    #[inline]
    pub fn push(
        &mut self,
        ethernet: &[u8; ETHERNET_HEADER_LEN],
        packet: &'b [u8],
        sink: &mut (impl FrameSink + ?Sized),
    ) {
        self.push_checked(ethernet, packet, false, sink);
    }

    /// As [`Coalescing::push`]; with `verified` somebody, as the adapter, has found the packet's checksums
    /// right, and they are not looked at again.
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

    /// Ends the batch: gives the sink all open frames, in the order in which they were begun.
    #[inline]
    pub fn flush(mut self, sink: &mut (impl FrameSink + ?Sized)) {
        self.finish_open(sink);
    }

    /// Gives the sink all open frames and goes on: before a frame that goes to the TAP by another
    /// way and must not overtake them.
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

    /// Starts a frame with this packet, unless it is one that ends a frame.
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

    /// Ends a flow and gives the sink its frame.
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

    /// Gives the sink a packet as it came.
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

    /// The first open flow that is as asked.
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

    /// The open flow that was begun first; 0 if none is open.
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

/// The same memory for slices of another life: an empty vector, collected in place.
fn recycle<'to>(mut places: Vec<&[u8]>) -> Vec<&'to [u8]> {
    places.clear();
    places.into_iter().map(|_| -> &'to [u8] { &[] }).collect()
}

#[cfg(test)]
mod tests;
