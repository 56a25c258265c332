//! A packet received in parts, as a frame for the TAP without a copy.

use std::io::IoSlice;

use zerocopy::IntoBytes;
use zerocopy::little_endian::U16;

use crate::checksum::pseudo_header;
use crate::coalesce::FrameSink;
use crate::ip::{
    self, ETHERNET_HEADER_LEN, IPV4_HEADER_LEN, IPV6_HEADER_LEN, PROTOCOL_TCP, PROTOCOL_UDP,
    TCP_HEADER_LEN, UDP_HEADER_LEN, be16, put16, tcp, udp, v4, v6,
};
use crate::vnet::{FLAG_NEEDS_CSUM, VNET_HEADER_LEN, VnetHeader};

/// Maximum number of parts: 64 KiB in packets of the smallest path MTU, 256 bytes.
pub const MAX_PARTS: usize = 257;

/// Bytes of the longest headers with a checksum to replace.
const HEADERS_MAX: usize = IPV6_HEADER_LEN + TCP_HEADER_LEN;

/// Passes an IP packet to `sink`, behind the header `ethernet`. `start` is the beginning of the packet,
/// `rest` the other parts in order. Bytes behind the packet's length are left out. Checksums are not
/// verified; the host finds and counts their errors. With `trust`, the host does not verify those of TCP
/// and UDP either: the frame has an incomplete checksum (virtio 1.2, 5.1.6.2), because a TAP ignores
/// `VIRTIO_NET_HDR_F_DATA_VALID` (kernel include/linux/virtio_net.h, `virtio_net_hdr_to_skb`).
///
/// Returns the packet's length in bytes. `None` if `start` has no IP header, if there are more than
/// [`MAX_PARTS`] parts, or if the parts are shorter than the packet.
pub fn frame<'r>(
    ethernet: &[u8; ETHERNET_HEADER_LEN],
    start: &[u8],
    rest: impl Iterator<Item = &'r [u8]>,
    trust: bool,
    sink: &mut (impl FrameSink + ?Sized),
) -> Option<usize> {
    let len = own_len(start)?;
    let mut head = [0; VNET_HEADER_LEN + ETHERNET_HEADER_LEN];
    let (vnet, link) = head.split_at_mut(VNET_HEADER_LEN);
    link.copy_from_slice(ethernet);
    let first = &start[..start.len().min(len)];
    let mut header = VnetHeader::whole(first);
    let trusted = match trust {
        true => incomplete(first, len, &mut header),
        false => None,
    };
    // The changed headers, and what follows.
    let (changed, first) = match &trusted {
        Some((headers, n)) => (&headers[..*n], &first[*n..]),
        None => (first, &first[first.len()..]),
    };
    vnet.copy_from_slice(header.as_bytes());
    let mut parts = [IoSlice::new(&[]); 2 + MAX_PARTS];
    parts[0] = IoSlice::new(&head);
    let mut left = len;
    let mut count = 1;
    let starts = [changed, first].into_iter();
    for part in starts.chain(rest.map(|part| -> &[u8] { part })) {
        if left == 0 {
            break;
        }
        if part.is_empty() {
            continue;
        }
        let part = &part[..part.len().min(left)];
        *parts.get_mut(count)? = IoSlice::new(part);
        left -= part.len();
        count += 1;
    }
    if left > 0 {
        return None;
    }
    sink.frame(1, &parts[..count]);
    Some(len)
}

/// The IP and TCP or UDP headers of a packet of `len` bytes that begins with `start`, with an incomplete
/// checksum, and their length; sets the fields of `vnet` for it. `None` for other packets, fragments,
/// packets with IP options and UDP without a checksum.
fn incomplete(
    start: &[u8],
    len: usize,
    vnet: &mut VnetHeader,
) -> Option<([u8; HEADERS_MAX], usize)> {
    // A packet may claim to be shorter than its header.
    let is_whole = |header| start.len() >= header;
    let (l4, protocol, addresses) = match start.first()? {
        0x45 if is_whole(IPV4_HEADER_LEN) && be16(start, v4::FRAGMENT) & v4::FRAGMENTED == 0 => (
            IPV4_HEADER_LEN,
            start[v4::PROTOCOL],
            &start[v4::SOURCE..IPV4_HEADER_LEN],
        ),
        first if first >> 4 == 6 && is_whole(IPV6_HEADER_LEN) => (
            IPV6_HEADER_LEN,
            start[v6::NEXT_HEADER],
            &start[v6::SOURCE..IPV6_HEADER_LEN],
        ),
        _ => return None,
    };
    let (field, length) = match protocol {
        PROTOCOL_TCP => (tcp::CHECKSUM, TCP_HEADER_LEN),
        PROTOCOL_UDP => (udp::CHECKSUM, UDP_HEADER_LEN),
        _ => return None,
    };
    let n = l4 + length;
    let mut headers = [0; HEADERS_MAX];
    headers[..n].copy_from_slice(start.get(..n)?);
    let transport = &mut headers[l4..];
    let segment = len - l4;
    if protocol == PROTOCOL_UDP
        && (be16(transport, field) == 0 || usize::from(be16(transport, udp::LEN)) != segment)
    {
        return None;
    }
    let (source, destination) = addresses.split_at(addresses.len() / 2);
    let sum = pseudo_header(source, destination, protocol, segment as u32);
    put16(transport, field, sum.fold());
    vnet.flags = FLAG_NEEDS_CSUM;
    vnet.csum_start = U16::new((ETHERNET_HEADER_LEN + l4) as u16);
    vnet.csum_offset = U16::new(field as u16);
    Some((headers, n))
}

/// Length of an IP packet according to its header, which must be complete.
fn own_len(start: &[u8]) -> Option<usize> {
    match start.first()? >> 4 {
        4 if start.len() >= ip::IPV4_HEADER_LEN => Some(be16(start, v4::TOTAL_LEN).into()),
        6 if start.len() >= IPV6_HEADER_LEN => {
            Some(IPV6_HEADER_LEN + usize::from(be16(start, v6::PAYLOAD_LEN)))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use zerocopy::FromBytes;

    use super::*;
    use crate::checksum::Sum;
    use crate::testing::{Model, model};

    const ETHERNET: [u8; 14] = [2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0];

    #[derive(Default)]
    struct Frames(Vec<Vec<u8>>);

    impl FrameSink for Frames {
        fn frame(&mut self, packets: usize, parts: &[IoSlice<'_>]) {
            assert_eq!(packets, 1);
            self.0
                .push(parts.iter().flat_map(|p| p.iter().copied()).collect());
        }
    }

    /// A frame of `bytes` in parts: `first` bytes, then `size` bytes each.
    fn gathered(bytes: &[u8], first: usize, size: usize) -> Option<Vec<u8>> {
        gathered_as(false, bytes, first, size)
    }

    fn gathered_as(trust: bool, bytes: &[u8], first: usize, size: usize) -> Option<Vec<u8>> {
        let (start, rest) = bytes.split_at(first.min(bytes.len()));
        let mut frames = Frames::default();
        let len = frame(&ETHERNET, start, rest.chunks(size), trust, &mut frames);
        assert_eq!(len.is_some(), frames.0.len() == 1);
        let frame = frames.0.pop()?;
        assert_eq!(len, Some(frame.len() - 26));
        Some(frame)
    }

    #[test]
    fn the_largest_packet_in_the_smallest_parts_is_one_frame() {
        let packet = Model::tcp_v4(65_535 - 52).packet();
        let frame = gathered(&packet, 252, 256).unwrap();
        assert_eq!(frame[26..], packet);
        assert_eq!(frame[12..26], ETHERNET);
    }

    #[test]
    fn a_trusted_packet_has_the_checksum_that_the_host_completes() {
        for model in [
            Model::tcp_v4(5000),
            Model::tcp_v6(5000),
            Model::udp_v4(5000),
            Model::udp_v6(5000),
        ] {
            let packet = model.packet();
            let plain = gathered(&packet, 252, 256).unwrap();
            let mut frame = gathered_as(true, &packet, 252, 256).unwrap();
            let vnet = VnetHeader::read_from_bytes(&frame[..12]).unwrap();
            assert_eq!(vnet.flags, FLAG_NEEDS_CSUM);
            let start = 12 + usize::from(vnet.csum_start.get());
            let field = start + usize::from(vnet.csum_offset.get());
            assert_ne!(frame[field..field + 2], plain[field..field + 2]);
            let sum = Sum::of(&frame[start..]).finish();
            frame[field..field + 2].copy_from_slice(&sum.to_be_bytes());
            assert_eq!(frame[12..], plain[12..]);
        }
    }

    #[test]
    fn what_has_no_such_checksum_is_not_changed() {
        let mut fragment = Model::tcp_v4(5000).packet();
        fragment[6] = 0x20;
        let mut options = Model::tcp_v4(5000).packet();
        options[0] = 0x46;
        let mut unsummed = Model::udp_v4(5000).packet();
        unsummed[26..28].fill(0);
        let mut other = Model::udp_v6(5000).packet();
        other[6] = 58;
        let mut packets = vec![fragment, options, unsummed, other];
        for len in 0..40 {
            let mut short = Model::tcp_v4(5000).packet();
            short[2..4].copy_from_slice(&[0, len]);
            packets.push(short);
        }
        for packet in packets {
            let plain = gathered(&packet, 252, 256);
            assert_eq!(gathered_as(true, &packet, 252, 256), plain);
        }
    }

    #[test]
    fn what_is_not_there_is_not_written() {
        let packet = Model::tcp_v4(5000).packet();
        assert_eq!(gathered(&packet[..packet.len() - 1], 252, 256), None);
        assert_eq!(gathered(&packet, 252, 10), None, "too many parts");
        assert_eq!(gathered(&packet, 19, 1000), None, "no header");
        assert_eq!(gathered(&[], 0, 10), None);
    }

    proptest! {
        #[test]
        fn the_parts_are_the_packet_without_what_follows_it(
            model in model(6000), first in 40usize..300, size in 64usize..5000,
            trailer in prop::collection::vec(any::<u8>(), 0..300),
        ) {
            let packet = model.packet();
            let frame = gathered(&[&packet[..], &trailer].concat(), first, size).unwrap();
            prop_assert_eq!(&frame[26..], &packet[..]);
            let vnet = VnetHeader::read_from_bytes(&frame[..12]).unwrap();
            prop_assert!(usize::from(vnet.hdr_len.get()) <= 14 + model.headers_len());
            prop_assert_eq!(VnetHeader { hdr_len: 0.into(), ..vnet }, VnetHeader::default());
        }

        #[test]
        fn any_bytes_are_survived(
            bytes in prop::collection::vec(any::<u8>(), 0..500), first in 0usize..500,
            size in 1usize..500,
        ) {
            gathered(&bytes, first, size);
        }
    }
}
