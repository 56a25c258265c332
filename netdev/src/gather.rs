//! A packet received in parts, as a frame for the TAP without a copy.

use std::io::IoSlice;

use zerocopy::IntoBytes;

use crate::coalesce::FrameSink;
use crate::ip::{self, ETHERNET_HEADER_LEN, IPV6_HEADER_LEN, be16, v4, v6};
use crate::vnet::{VNET_HEADER_LEN, VnetHeader};

/// Maximum number of parts: 64 KiB in packets of the smallest path MTU, 256 bytes.
pub const MAX_PARTS: usize = 257;

/// Passes an IP packet to `sink`, behind the header `ethernet`. `start` is the beginning of the packet,
/// `rest` the other parts in order. Bytes behind the packet's length are left out. Checksums are not
/// verified; the host finds and counts their errors.
///
/// Returns the packet's length in bytes. `None` if `start` has no IP header, if there are more than
/// [`MAX_PARTS`] parts, or if the parts are shorter than the packet.
pub fn frame<'r>(
    ethernet: &[u8; ETHERNET_HEADER_LEN],
    start: &[u8],
    rest: impl Iterator<Item = &'r [u8]>,
    sink: &mut (impl FrameSink + ?Sized),
) -> Option<usize> {
    let len = own_len(start)?;
    let mut head = [0; VNET_HEADER_LEN + ETHERNET_HEADER_LEN];
    let (vnet, link) = head.split_at_mut(VNET_HEADER_LEN);
    link.copy_from_slice(ethernet);
    let first = &start[..start.len().min(len)];
    vnet.copy_from_slice(VnetHeader::whole(first).as_bytes());
    let mut parts = [IoSlice::new(&[]); 1 + MAX_PARTS];
    parts[0] = IoSlice::new(&head);
    let mut left = len;
    let mut count = 1;
    for part in std::iter::once(first).chain(rest.map(|part| -> &[u8] { part })) {
        if left == 0 {
            break;
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
        let (start, rest) = bytes.split_at(first.min(bytes.len()));
        let mut frames = Frames::default();
        let len = frame(&ETHERNET, start, rest.chunks(size), &mut frames);
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
