//! Segmentation offload in software: cuts a frame of up to 64 KiB from the TAP into packets that fit the
//! link, with all checksums.
//!
//! The results equal those of the kernel's own segmentation (net/ipv4/tcp_offload.c `tcp_gso_segment`,
//! net/ipv4/udp_offload.c `__udp_gso_segment`, net/ipv4/af_inet.c `inet_gso_segment`):
//!
//! * The IPv4 identification increases by one with each packet.
//! * TCP: only the last packet has FIN and PSH, only the first has CWR.
//! * UDP: each packet is a complete datagram, cut only where the sender requested.
//!
//! Headers are copied from the frame and changed in place. Payload is copied and summed in one pass. The
//! constant part of the headers is summed once for each frame.

mod cut;
mod ethernet;
mod pieces;

pub use pieces::Pieces;

use crate::checksum::Sum;
use crate::ip::{self, ETHERNET_HEADER_LEN, Malformed};
use crate::vnet::{GsoKind, Offload, PartialChecksum, VnetError, VnetHeader};
use cut::Cut;
use pieces::Scatter;

/// The link header in front of every packet: 4 bytes for IPoIB (RFC 4391, 6), 14 for Ethernet.
#[derive(Clone, Copy, Debug)]
pub struct LinkHeader {
    bytes: [u8; LinkHeader::MAX_LEN],
    len: u8,
}

impl LinkHeader {
    /// The maximum length, in bytes.
    pub const MAX_LEN: usize = 32;

    /// Creates a header from `bytes`.
    ///
    /// # Panics
    /// If `bytes` is longer than [`LinkHeader::MAX_LEN`].
    #[inline]
    pub const fn new(bytes: &[u8]) -> LinkHeader {
        assert!(
            bytes.len() <= LinkHeader::MAX_LEN,
            "a link header has up to 32 bytes"
        );
        let mut header = LinkHeader {
            bytes: [0; LinkHeader::MAX_LEN],
            len: bytes.len() as u8,
        };
        header
            .bytes
            .split_at_mut(bytes.len())
            .0
            .copy_from_slice(bytes);
        header
    }

    /// The header.
    #[inline]
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.len()]
    }

    /// The length in bytes.
    #[inline]
    #[allow(clippy::len_without_is_empty)]
    pub fn len(&self) -> usize {
        usize::from(self.len)
    }
}

/// The reason why a frame cannot be cut. Count it and drop the frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum SegmentError {
    /// Lengths in the headers contradict each other or the frame's length.
    #[error("the frame's headers contradict its length")]
    Malformed,
    /// The virtio-net header is invalid.
    #[error(transparent)]
    Vnet(#[from] VnetError),
    /// The checksum field is outside the frame, or not at the place of its protocol.
    #[error("the checksum to be completed is not inside the packet")]
    ChecksumPlace,
    /// The frame cannot be cut: a fragment, a tunnel, a tag, unknown extension headers, or another protocol
    /// than in the virtio-net header.
    #[error("frames of this kind cannot be segmented")]
    NotSegmentable,
    /// The requested size gives more packets than a host's protocols send; a virtual machine chooses the
    /// size freely.
    #[error("a frame cannot be cut into {packets} packets")]
    TooMany {
        /// The number of packets.
        packets: usize,
    },
    /// A packet would exceed the MTU. Answer with "fragmentation needed" or "packet too big" (RFC 1191, RFC
    /// 8201).
    #[error("a packet of {len} bytes does not fit the link")]
    TooBig {
        /// The length of the packet with its IP header, in bytes.
        len: usize,
    },
}

impl From<Malformed> for SegmentError {
    fn from(Malformed: Malformed) -> SegmentError {
        SegmentError::Malformed
    }
}

/// Cuts a frame into packets.
#[derive(Clone, Debug)]
pub struct Segmenter<'a> {
    link: LinkHeader,
    job: Job<'a>,
}

#[derive(Clone, Debug)]
enum Job<'a> {
    /// The uncut packet, without the Ethernet header.
    Whole(&'a [u8], Option<PartialChecksum>),
    Cut(Cut<'a>),
    Done,
}

impl<'a> Segmenter<'a> {
    /// Checks a frame: the virtio-net header `vnet`, and an Ethernet header of 14 bytes with a packet.
    /// `mtu` is the maximum length of a packet behind `link`, in bytes.
    ///
    /// A trailer behind the packet is removed: the header gives the length of an IP packet, the address
    /// lengths that of an ARP packet. Other protocols are carried unchanged.
    ///
    /// # Errors
    /// See [`SegmentError`]. `vnet` and `frame` are untrusted input.
    #[inline]
    pub fn new(
        vnet: &VnetHeader,
        frame: &'a [u8],
        link: LinkHeader,
        mtu: usize,
    ) -> Result<Segmenter<'a>, SegmentError> {
        let Some((ethernet, packet)) = frame.split_at_checked(ETHERNET_HEADER_LEN) else {
            return Err(SegmentError::Malformed);
        };
        let ethertype = ip::be16(ethernet, 12);
        let packet = &packet[..length(ethertype, packet)?];
        let job = match vnet.offload()? {
            Offload::Whole(checksum) => whole(packet, checksum, mtu)?,
            Offload::Cut {
                kind,
                size,
                checksum,
            } => {
                check_kind(kind, ethertype)?;
                Job::Cut(Cut::new(kind, packet, size, checksum, mtu)?)
            }
        };
        Ok(Segmenter { link, job })
    }

    /// Bytes of every packet except the last, link header included: the packet size of the train.
    #[inline]
    pub fn full_len(&self) -> usize {
        match &self.job {
            Job::Whole(packet, _) => self.link.len() + packet.len(),
            Job::Cut(cut) => self.link.len() + cut.full_len(),
            Job::Done => 0,
        }
    }

    /// Bytes of the uncut packet, without link header and trailer.
    #[inline]
    pub fn packet_len(&self) -> usize {
        match &self.job {
            Job::Whole(packet, _) => packet.len(),
            Job::Cut(cut) => cut.headers_len() + cut.payload_len(),
            Job::Done => 0,
        }
    }

    /// Number of packets still to be written.
    #[inline]
    pub fn remaining(&self) -> usize {
        match &self.job {
            Job::Whole(..) => 1,
            Job::Cut(cut) => cut.remaining(),
            Job::Done => 0,
        }
    }

    /// Bytes of the next packet, link header included; `None` after the last one.
    #[inline]
    pub fn next_len(&self) -> Option<usize> {
        match &self.job {
            Job::Whole(packet, _) => Some(self.link.len() + packet.len()),
            Job::Cut(cut) => Some(self.link.len() + cut.next_len()),
            Job::Done => None,
        }
    }

    /// Bytes of the last packet, link header included; 0 after it was written.
    #[inline]
    pub fn last_len(&self) -> usize {
        match &self.job {
            Job::Whole(packet, _) => self.link.len() + packet.len(),
            Job::Cut(cut) => self.link.len() + cut.last_len(),
            Job::Done => 0,
        }
    }

    /// Bytes of all packets still to be written, link headers included.
    #[inline]
    pub fn remaining_len(&self) -> usize {
        self.remaining().saturating_sub(1) * self.full_len() + self.last_len()
    }

    /// Writes the next packet: link header and IP packet, with checksums.
    ///
    /// # Panics
    /// If the length of `out` is not [`Segmenter::next_len`], or after the last packet.
    #[inline]
    pub fn write_next(&mut self, out: &mut [u8]) {
        assert_eq!(
            Some(out.len()),
            self.next_len(),
            "memory with the length of the packet"
        );
        let (link, packet) = out.split_at_mut(self.link.len());
        link.copy_from_slice(self.link.as_bytes());
        let more = match &mut self.job {
            Job::Whole(whole, checksum) => {
                write_whole(packet, whole, *checksum);
                false
            }
            Job::Cut(cut) => cut.write_next(packet),
            Job::Done => false,
        };
        if !more {
            self.job = Job::Done;
        }
    }

    /// As [`Segmenter::write_next`], to memory in pieces. False if the pieces are shorter or longer than
    /// the packet; their contents are then undefined.
    #[inline]
    pub fn write_next_scattered(&mut self, pieces: &mut (impl Pieces + ?Sized)) -> bool {
        let link = self.link;
        let (written, more) = match &mut self.job {
            Job::Whole(whole, checksum) => {
                let written = scatter_whole(pieces, link.as_bytes(), whole, *checksum);
                (written, false)
            }
            Job::Cut(cut) => {
                let written = scatter_cut(pieces, link.as_bytes(), cut);
                (written.is_some(), written.unwrap_or(false))
            }
            Job::Done => (false, false),
        };
        if !more {
            self.job = Job::Done;
        }
        written
    }
}

/// Bytes of the packet without an Ethernet trailer.
fn length(ethertype: u16, packet: &[u8]) -> Result<usize, SegmentError> {
    match ethertype {
        ip::ETHERTYPE_IPV4 => Ok(ip::ipv4_lengths(packet)?.1),
        ip::ETHERTYPE_IPV6 => Ok(ip::ipv6_length(packet)?),
        ip::ETHERTYPE_ARP => {
            // RFC 826: two addresses of each kind follow the eight fixed bytes.
            let [_, _, _, _, hardware, protocol, _, _, ..] = *packet else {
                return Err(SegmentError::Malformed);
            };
            let len = 8 + 2 * (usize::from(hardware) + usize::from(protocol));
            if len > packet.len() {
                return Err(SegmentError::Malformed);
            }
            Ok(len)
        }
        _ => Ok(packet.len()),
    }
}

fn check_kind(kind: GsoKind, ethertype: u16) -> Result<(), SegmentError> {
    let fits = match kind {
        GsoKind::TcpV4 => ethertype == ip::ETHERTYPE_IPV4,
        GsoKind::TcpV6 => ethertype == ip::ETHERTYPE_IPV6,
        GsoKind::UdpL4 => matches!(ethertype, ip::ETHERTYPE_IPV4 | ip::ETHERTYPE_IPV6),
    };
    if fits {
        Ok(())
    } else {
        Err(SegmentError::NotSegmentable)
    }
}

fn whole(
    packet: &[u8],
    checksum: Option<PartialChecksum>,
    mtu: usize,
) -> Result<Job<'_>, SegmentError> {
    if packet.len() > mtu {
        return Err(SegmentError::TooBig { len: packet.len() });
    }
    let checksum = checksum.map(|c| inside(c, packet.len())).transpose()?;
    Ok(Job::Whole(packet, checksum))
}

/// The offsets counted from the start of the packet instead of the frame, if they are inside.
fn inside(c: PartialChecksum, len: usize) -> Result<PartialChecksum, SegmentError> {
    let from_packet = |at: usize| at.checked_sub(ETHERNET_HEADER_LEN);
    match (from_packet(c.start), from_packet(c.field)) {
        (Some(start), Some(field)) if field + 2 <= len => Ok(PartialChecksum { start, field }),
        _ => Err(SegmentError::ChecksumPlace),
    }
}

/// Copies a packet and completes its checksum. The checksum is never written as 0, as in the kernel's
/// `skb_checksum_help` (net/core/dev.c), for all protocols.
#[inline]
fn write_whole(out: &mut [u8], packet: &[u8], checksum: Option<PartialChecksum>) {
    let Some(PartialChecksum { start, field }) = checksum else {
        out.copy_from_slice(packet);
        return;
    };
    out[..start].copy_from_slice(&packet[..start]);
    let sum = Sum::of_copy(&mut out[start..], &packet[start..]);
    ip::put16(out, field, sum.finish_nonzero());
}

/// As [`write_whole`], behind a link header and to pieces.
fn scatter_whole(
    pieces: &mut (impl Pieces + ?Sized),
    link: &[u8],
    packet: &[u8],
    checksum: Option<PartialChecksum>,
) -> bool {
    let mut out = Scatter::new(pieces);
    let Some(PartialChecksum { start, field }) = checksum else {
        return out.copy(link) && out.copy(packet) && out.is_at_end();
    };
    if !out.copy(link) || !out.copy(&packet[..start]) {
        return false;
    }
    let Some(sum) = out.copy_and_sum(&packet[start..]) else {
        return false;
    };
    let at_end = out.is_at_end();
    let mut again = Scatter::new(pieces);
    at_end && again.skip(link.len() + field) && again.copy(&sum.finish_nonzero().to_be_bytes())
}

/// Writes the next packet of a super-packet, payload first, because the headers need its sum. Returns
/// whether another packet follows; `None` if the pieces are shorter or longer than the packet.
fn scatter_cut(
    pieces: &mut (impl Pieces + ?Sized),
    link: &[u8],
    cut: &mut Cut<'_>,
) -> Option<bool> {
    let (start, end) = (link.len(), link.len() + cut.headers_len());
    let mut out = Scatter::new(pieces);
    if !out.skip(end) {
        return None;
    }
    let sum = out.copy_and_sum(cut.next_payload())?;
    if !out.is_at_end() {
        return None;
    }
    if let Some(first) = pieces.piece(0).get_mut(..end) {
        first[..start].copy_from_slice(link);
        return Some(cut.write_headers(&mut first[start..], sum));
    }
    // The extension headers are longer than a piece.
    let mut head = link.to_vec();
    head.resize(end, 0);
    let more = cut.write_headers(&mut head[start..], sum);
    Scatter::new(pieces).copy(&head).then_some(more)
}

#[cfg(test)]
mod tests;
