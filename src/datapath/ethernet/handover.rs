//! Frames between VNICs of the same daemon, port and switch. A frame read from one TAP is written to the
//! other unchanged: large sends uncut, checksums unfinished. Every data thread has a lane of every VNIC, so a
//! frame crosses no channel.

use ipoib::Time;
use netdev::vlan;
use netdev::vnet::{FLAG_NEEDS_CSUM, VNET_HEADER_LEN, VnetHeader};
use vnic::Lid;
use vnic::port::{Class, Sizes, Unsent};
use zerocopy::little_endian::U16;

use super::super::ETHERNET_LEN;
use super::super::lanes::Lanes;
use super::lane::EthernetLane;
use super::{receive, transmit};

/// A frame's way to a sibling.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Handover {
    /// The LID of the sibling.
    pub lid: Lid,
    /// The class by which the frame is counted.
    pub class: Class,
}

impl Handover {
    /// Writes a frame read from the TAP of the lane at `from`, virtio-net header first, to the TAP of the
    /// lane at `to`. Counts the frame as not sent without the latter.
    pub fn carry_out(
        &self,
        lanes: &mut Lanes<EthernetLane>,
        from: usize,
        to: Option<usize>,
        now: Time,
        raw: &[u8],
    ) {
        let Some((prefix, ethernet)) = raw.split_first_chunk::<VNET_HEADER_LEN>() else {
            return;
        };
        let vnet: VnetHeader = zerocopy::transmute!(*prefix);
        let Some(sender) = lanes.get_mut(from) else {
            return;
        };
        // As on the fabric: frames over the MTU are dropped.
        let Some(frames) = transmit::cut(sender, &vnet, ethernet) else {
            return;
        };
        let sizes = transmit::sizes(&frames);
        let slid = sender.core.slid();
        let Some((sender, receiver)) = to.and_then(|to| lanes.two(from, to)) else {
            if let Some(sender) = lanes.get_mut(from) {
                sender.core.count_unsent(Unsent::Refused, sizes);
            }
            return;
        };
        sender.core.count_sent(self.class, sizes);
        if !receiver.core.from_sibling(now, slid, ethernet, sizes) {
            return;
        }
        let vnet = for_host(&vnet, ethernet, sizes);
        if !receive::write_frame(receiver, &vnet, ethernet) {
            receiver.core.count_not_taken(sizes.count as u64);
        }
    }
}

/// The virtio-net header for the receiving host, with only the checked fields of `vnet`. If the fabric would
/// cut a TCP stream for a smaller MTU, the header makes the host cut it to the same size.
fn for_host(vnet: &VnetHeader, ethernet: &[u8], sizes: Sizes) -> VnetHeader {
    let tag = match ethernet.get(ETHERNET_LEN - 2..ETHERNET_LEN) {
        Some([high, low]) if vlan::is_tag(u16::from_be_bytes([*high, *low])) => vlan::TAG_LEN,
        _ => 0,
    };
    let packet = ethernet.get(ETHERNET_LEN + tag..).unwrap_or_default();
    let headers = usize::from(VnetHeader::whole(packet).hdr_len.get()) + tag;
    let mut header = VnetHeader {
        flags: vnet.flags & FLAG_NEEDS_CSUM,
        hdr_len: U16::new(headers as u16),
        ..*vnet
    };
    if sizes.count > 1 {
        // At most the sender's size, which has 16 bits.
        header.gso_size = U16::new(sizes.full.saturating_sub(headers) as u16);
    }
    header
}
