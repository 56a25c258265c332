//! Ethernet frames from the fabric to the TAP.

use std::io::IoSlice;

use fabric::UdReceived;
use ipoib::Time;
use netdev::coalesce::{Coalescer, Coalescing, FrameSink};
use netdev::vlan::{self, TAG_LEN};
use netdev::vnet::VnetHeader;
use vnic::port::Meta;
use zerocopy::IntoBytes;

use super::super::ETHERNET_LEN;
use super::super::handle::Mailbox;
use super::super::lane::LaneBase;
use super::lane::{EthernetLane, publish};

/// Bytes of the two addresses before a tag.
const ADDRESSES_LEN: usize = 12;

/// Writes frames to one TAP queue.
struct Sink<'l> {
    base: &'l mut LaneBase,
    /// The tag to insert behind the addresses of frames.
    tag: Option<[u8; TAG_LEN]>,
    /// Frames that the TAP refused, counted as on the fabric.
    refused: u64,
}

impl<'l> Sink<'l> {
    fn new(base: &'l mut LaneBase) -> Sink<'l> {
        Sink {
            base,
            tag: None,
            refused: 0,
        }
    }

    fn write(&mut self, parts: &[IoSlice<'_>]) -> bool {
        let Some(tag) = self.tag else {
            return self.base.write(parts);
        };
        let mut head = vlan::Head::default();
        match vlan::insert(tag, parts, &mut head) {
            Some(tagged) => self.base.write(&tagged),
            None => {
                self.base.stats.tap_write_errors += 1;
                false
            }
        }
    }
}

impl FrameSink for Sink<'_> {
    fn frame(&mut self, packets: usize, parts: &[IoSlice<'_>]) {
        if !self.write(parts) {
            self.refused += packets as u64;
        }
    }
}

/// Writes a run of datagrams for one VNIC to its TAP, and sends the core's updates to the other threads; true
/// if the core has news.
pub fn datagrams<'b>(
    lane: &mut EthernetLane,
    coalescer: &mut Coalescer,
    replicas: &[Mailbox],
    now: Time,
    datagrams: impl Iterator<Item = (&'b UdReceived, &'b [u8])>,
) -> bool {
    coalescer.configure(lane.base.coalescing);
    let mut coalescing = coalescer.batch();
    let id = lane.base.id;
    let mut sink = Sink::new(&mut lane.base);
    for (received, payload) in datagrams {
        let meta = Meta {
            src_gid: received.src_gid,
            src_qpn: received.src_qpn,
            multicast: received.multicast,
        };
        // The core counts refused packets.
        if let Ok(frame) = lane.core.from_fabric(now, &meta, payload) {
            if lane.core.has_updates() {
                // Before the host sees the frame: another thread may read the host's answer, and would
                // flood it.
                publish(id, &mut lane.core, replicas);
            }
            push(&mut coalescing, frame, &mut sink);
        }
    }
    coalescing.flush(&mut sink);
    let refused = sink.refused;
    if refused > 0 {
        lane.core.count_not_taken(refused);
    }
    lane.has_news()
}

/// Coalesces a frame with earlier frames of the same tag, or without tags.
fn push<'b>(coalescing: &mut Coalescing<'_, 'b>, frame: &'b [u8], sink: &mut Sink<'_>) {
    let Some((tag, ethernet, packet)) = split(frame) else {
        return;
    };
    if tag != sink.tag {
        coalescing.finish_open(sink);
        sink.tag = tag;
    }
    coalescing.push(&ethernet, packet, sink);
}

type Split<'f> = (Option<[u8; TAG_LEN]>, [u8; ETHERNET_LEN], &'f [u8]);

/// Splits a frame into its outer tag, if any, its header without the tag, and the packet. `None` if the frame
/// is shorter than its headers.
fn split(frame: &[u8]) -> Option<Split<'_>> {
    let (header, packet) = frame.split_first_chunk::<ETHERNET_LEN>()?;
    let [.., high, low] = *header;
    if !vlan::is_tag(u16::from_be_bytes([high, low])) {
        return Some((None, *header, packet));
    }
    let (control, rest) = packet.split_first_chunk::<2>()?;
    let (ethertype, packet) = rest.split_first_chunk::<2>()?;
    let mut untagged = *header;
    untagged[ADDRESSES_LEN..].copy_from_slice(ethertype);
    Some((Some([high, low, control[0], control[1]]), untagged, packet))
}

/// Writes one contiguous frame; false if the TAP refused it.
pub fn write_frame(lane: &mut EthernetLane, vnet: &VnetHeader, frame: &[u8]) -> bool {
    let parts = [IoSlice::new(vnet.as_bytes()), IoSlice::new(frame)];
    lane.base.write(&parts)
}
