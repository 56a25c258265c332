//! Frames between IP links of the same daemon, port and partition. A frame read from one TAP is written to
//! the other unchanged: large sends uncut, checksums unfinished. Every data thread has a lane of every link,
//! so a frame crosses no channel: one read, one write, no copy.
//!
//! Packets that the receiving core has to read (neighbour discovery, DHCP) or to hold until it finds a guest
//! are first cut and completed, and then handled like packets from the fabric.

use std::io::IoSlice;

use ipoib::{Incoming, Ipoib, Meta, Target, Time};
use netdev::coalesce::FrameSink;
use netdev::segment::{LinkHeader, SegmentError, Segmenter};
use netdev::vnet::{FLAG_NEEDS_CSUM, VNET_HEADER_LEN, VnetHeader};
use zerocopy::IntoBytes;
use zerocopy::little_endian::U16;

use super::super::ETHERNET_LEN;
use super::super::handle::Mailbox;
use super::super::thread::Io;
use super::Ip;
use super::lane::IpLane;
use super::receive::{self, TapSink};
use super::transmit::{self, Fate};

/// A frame's way to a sibling.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Handover {
    /// The sibling, by its queue pair number.
    pub qpn: fabric::Qpn,
    /// The sibling as a target of the sender's core.
    pub to: Target,
    /// The encapsulation header of the packets.
    pub encapsulation: [u8; 4],
    /// The largest IP packet, in bytes.
    pub mtu: usize,
    /// The core wrote a complete IB payload, which is in [`Crossing::translated`].
    pub rewritten: bool,
}

/// The parts of a data thread for handing over frames.
pub struct Crossing<'t> {
    /// The lanes.
    pub ip: &'t mut Ip,
    /// For frames that must use the fabric.
    pub io: &'t mut Io,
    /// Memory for a frame that the core writes.
    pub translated: &'t mut Vec<u8>,
    /// Memory for a contiguous packet.
    pub linear: &'t mut Vec<u8>,
    /// The other threads, which receive the cores' updates.
    pub replicas: &'t [Mailbox],
    /// The time.
    pub now: Time,
}

impl Crossing<'_> {
    /// Hands over a frame as read from the TAP of the lane at `from`, virtio-net header first.
    pub fn read(&mut self, from: usize, handover: &Handover, raw: &[u8]) -> Fate {
        match raw.split_first_chunk() {
            Some((prefix, ethernet)) => self.frame(from, handover, prefix, ethernet),
            // The core has read the headers: the frame is not shorter.
            None => Fate::Dropped,
        }
    }

    /// Like [`Crossing::read`], for a frame in two parts.
    pub fn frame(
        &mut self,
        from: usize,
        handover: &Handover,
        prefix: &[u8; VNET_HEADER_LEN],
        ethernet: &[u8],
    ) -> Fate {
        let Some(to) = self.ip.lanes.of_qpn(handover.qpn) else {
            return self.frame_over_fabric(from, handover, prefix, ethernet);
        };
        let Some((sender, receiver)) = self.ip.lanes.two(from, to) else {
            return Fate::Dropped;
        };
        let vnet: VnetHeader = zerocopy::transmute!(*prefix);
        let header = LinkHeader::new(&handover.encapsulation);
        let packets = match Segmenter::new(&vnet, ethernet, header, handover.mtu) {
            Ok(packets) => packets,
            Err(SegmentError::TooBig { len }) => {
                return transmit::answer(sender, self.now, handover.to, prefix, ethernet, len);
            }
            Err(_) => return transmit::bad_frame(sender),
        };
        let count = packets.remaining();
        let packet = &ethernet[ETHERNET_LEN..][..packets.packet_len()];
        transmit::count_sent(sender, count, packets.remaining_len());
        sender.stats.tx_to_siblings += 1;
        let meta = sender.core.meta_for_siblings();
        let [high, low, ..] = handover.encapsulation;
        let ethertype = u16::from_be_bytes([high, low]);
        match receiver
            .core
            .from_sibling(self.now, &meta, ethertype, packet)
        {
            Some(ethernet) => {
                let offload = Offload {
                    vnet,
                    packets: count,
                    largest: packets.full_len() - header.len(),
                };
                write(receiver, &offload, &ethernet, packet);
            }
            None => self.cut(to, &meta, packets),
        }
        self.note_news(to);
        Fate::Sent
    }

    /// Hands over the payload that a core wrote, in [`Crossing::translated`].
    pub fn rewritten(&mut self, from: usize, handover: &Handover) -> Fate {
        let Some(to) = self.ip.lanes.of_qpn(handover.qpn) else {
            return self.rewritten_over_fabric(from, handover);
        };
        let Some((sender, _)) = self.ip.lanes.two(from, to) else {
            return Fate::Dropped;
        };
        let meta = sender.core.meta_for_siblings();
        transmit::count_sent(sender, 1, self.translated.len());
        sender.stats.tx_to_siblings += 1;
        std::mem::swap(self.translated, self.linear);
        self.take_linear(to, &meta);
        self.note_news(to);
        Fate::Sent
    }

    /// Passes the completed packets to a core one by one.
    fn cut(&mut self, to: usize, meta: &Meta, mut packets: Segmenter<'_>) {
        while let Some(len) = packets.next_len() {
            self.linear.resize(len, 0);
            packets.write_next(self.linear);
            self.take_linear(to, meta);
        }
    }

    fn take_linear(&mut self, to: usize, meta: &Meta) {
        let Some(lane) = self.ip.lanes.get_mut(to) else {
            return;
        };
        match lane.core.from_fabric(self.now, meta, self.linear) {
            Incoming::Packet { ethernet, l3 } => {
                write(lane, &Offload::none(l3), &ethernet, l3);
            }
            other => {
                let aside = receive::keep(self.translated, &other);
                let (len, frame) = (self.linear.len(), &*self.translated);
                receive::aside(lane, &aside, frame, self.replicas, len);
            }
        }
    }

    fn note_news(&mut self, at: usize) {
        let core = self.ip.lanes.get(at).map(|lane| &lane.core);
        let news = |core: &Ipoib| core.has_updates() || core.has_events() || core.has_released();
        if core.is_some_and(news) && self.ip.owed.last() != Some(&at) {
            self.ip.owed.push(at);
        }
    }

    /// Sends over the fabric, because this thread has no lane of the sibling.
    #[cold]
    fn frame_over_fabric(
        &mut self,
        from: usize,
        handover: &Handover,
        prefix: &[u8; VNET_HEADER_LEN],
        ethernet: &[u8],
    ) -> Fate {
        let Some(lane) = self.ip.lanes.get_mut(from) else {
            return Fate::Dropped;
        };
        let way = transmit::Way::datagrams(lane, handover.to, handover.encapsulation);
        let Io { fabric, train, .. } = &mut *self.io;
        transmit::send(lane, &mut **fabric, train, self.now, &way, prefix, ethernet)
    }

    #[cold]
    fn rewritten_over_fabric(&mut self, from: usize, handover: &Handover) -> Fate {
        let Some(lane) = self.ip.lanes.get_mut(from) else {
            return Fate::Dropped;
        };
        let Io { fabric, train, .. } = &mut *self.io;
        transmit::packet(lane, &mut **fabric, train, handover.to, self.translated)
    }
}

/// Offload for the receiving host.
struct Offload {
    /// The header of the sending host.
    vnet: VnetHeader,
    /// Number of packets that the fabric would carry.
    packets: usize,
    /// Bytes of the largest packet.
    largest: usize,
}

impl Offload {
    fn none(l3: &[u8]) -> Offload {
        Offload {
            vnet: VnetHeader::default(),
            packets: 1,
            largest: l3.len(),
        }
    }
}

/// Writes a packet. Keeps only checked fields of the virtio-net header. If the fabric would cut a TCP stream
/// for a smaller MTU, the header makes the host cut it to the same size.
fn write(lane: &mut IpLane, offload: &Offload, ethernet: &[u8; ETHERNET_LEN], l3: &[u8]) {
    let whole = VnetHeader::whole(l3);
    let headers = usize::from(whole.hdr_len.get()).saturating_sub(ETHERNET_LEN);
    let mut header = VnetHeader {
        flags: offload.vnet.flags & FLAG_NEEDS_CSUM,
        hdr_len: whole.hdr_len,
        ..offload.vnet
    };
    if offload.packets > 1 {
        // At most the sender's size, which has 16 bits.
        header.gso_size = U16::new(offload.largest.saturating_sub(headers) as u16);
    }
    let repeated = offload.packets.saturating_sub(1) * headers;
    lane.stats.rx_bytes += (l3.len() + repeated) as u64;
    let parts = [
        IoSlice::new(header.as_bytes()),
        IoSlice::new(ethernet),
        IoSlice::new(l3),
    ];
    TapSink::of(lane).frame(offload.packets, &parts);
}

#[cfg(test)]
mod tests;
