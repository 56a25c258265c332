//! Segmentation for links that carry Ethernet.

use super::{Job, LinkHeader, SegmentError, Segmenter};
use crate::ip::{self, ETHERNET_HEADER_LEN};
use crate::vlan::{self, TAG_LEN};
use crate::vnet::{Offload, PartialChecksum, VnetHeader};

impl<'a> Segmenter<'a> {
    /// Checks a frame that is sent as Ethernet: every packet has the frame's own header, with its tag if
    /// any (802.1Q or 802.1ad), and lengths include it. A frame that needs no cut is sent unchanged, to its
    /// last byte, whatever its contents; only its checksum is completed. `most` is the maximum length of a
    /// frame without frame check sequence, in bytes.
    ///
    /// # Errors
    /// See [`SegmentError`]; the length in [`SegmentError::TooBig`] is that of the frame if it needs no
    /// cut. `vnet` and `frame` are untrusted input.
    #[inline]
    pub fn ethernet(
        vnet: &VnetHeader,
        frame: &'a [u8],
        most: usize,
    ) -> Result<Segmenter<'a>, SegmentError> {
        if frame.len() < ETHERNET_HEADER_LEN {
            return Err(SegmentError::Malformed);
        }
        match vnet.offload()? {
            Offload::Whole(checksum) => Ok(Segmenter {
                link: LinkHeader::new(&[]),
                job: whole(frame, checksum, most)?,
            }),
            Offload::Cut { .. } if vlan::is_tag(ip::be16(frame, 12)) => {
                let vnet = vlan::without_tag(*vnet).ok_or(SegmentError::ChecksumPlace)?;
                // Only the type before the packet matters here, not the addresses.
                cut(&vnet, frame, &frame[TAG_LEN..], most)
            }
            Offload::Cut { .. } => cut(vnet, frame, frame, most),
        }
    }
}

fn whole(
    frame: &[u8],
    checksum: Option<PartialChecksum>,
    most: usize,
) -> Result<Job<'_>, SegmentError> {
    if frame.len() > most {
        return Err(SegmentError::TooBig { len: frame.len() });
    }
    let fits = |c: &PartialChecksum| c.start >= ETHERNET_HEADER_LEN && c.field + 2 <= frame.len();
    if checksum.is_some_and(|c| !fits(&c)) {
        return Err(SegmentError::ChecksumPlace);
    }
    Ok(Job::Whole(frame, checksum))
}

/// Cuts a super-frame; `untagged` has the last 14 bytes of its header and its packet.
fn cut<'a>(
    vnet: &VnetHeader,
    frame: &'a [u8],
    untagged: &'a [u8],
    most: usize,
) -> Result<Segmenter<'a>, SegmentError> {
    let header_len = frame.len() - untagged.len() + ETHERNET_HEADER_LEN;
    let header = frame.get(..header_len).ok_or(SegmentError::Malformed)?;
    let mtu = most.saturating_sub(header_len);
    Segmenter::new(vnet, untagged, LinkHeader::new(header), mtu)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use zerocopy::FromBytes;
    use zerocopy::little_endian::U16;

    use super::*;
    use crate::testing::{assert_well_formed, model};
    use crate::vnet::{FLAG_NEEDS_CSUM, VNET_HEADER_LEN};

    const PLAIN: VnetHeader = VnetHeader {
        flags: 0,
        gso_type: 0,
        hdr_len: U16::ZERO,
        gso_size: U16::ZERO,
        csum_start: U16::ZERO,
        csum_offset: U16::ZERO,
        num_buffers: U16::ZERO,
    };

    fn frames(vnet: &VnetHeader, frame: &[u8], most: usize) -> Result<Vec<Vec<u8>>, SegmentError> {
        let mut segmenter = Segmenter::ethernet(vnet, frame, most)?;
        let full = segmenter.full_len();
        let mut all = Vec::new();
        while let Some(len) = segmenter.next_len() {
            assert!(len <= full && len <= most);
            let mut out = vec![0xee; len];
            segmenter.write_next(&mut out);
            all.push(out);
        }
        Ok(all)
    }

    /// Adds a tag to the frame; returns it with the changed virtio-net header.
    fn tagged(vnet: VnetHeader, frame: &[u8], tag: [u8; 4]) -> (VnetHeader, Vec<u8>) {
        let mut vnet = vnet;
        if vnet.flags & FLAG_NEEDS_CSUM != 0 {
            vnet.csum_start = U16::new(vnet.csum_start.get() + 4);
        }
        (vnet, [&frame[..12], &tag, &frame[12..]].concat())
    }

    /// Padding, protocols other than IP and wrong lengths are kept: a bridge carries them.
    #[test]
    fn what_is_not_to_be_cut_leaves_to_its_last_byte() {
        let short_ip = [&[1; 12][..], &[8, 0, 0x45, 0, 0, 20], &[7; 60]].concat();
        let lying_ip = [&[1; 12][..], &[8, 0, 0x45, 0, 0xff, 0xff], &[7; 30]].concat();
        let llc = [&[1; 12][..], &[0, 3, 0x42, 0x42, 3], &[0; 43]].concat();
        for frame in [short_ip, lying_ip, llc, vec![9; 14]] {
            assert_eq!(frames(&PLAIN, &frame, 1518), Ok(vec![frame.clone()]));
        }
        assert_eq!(frames(&PLAIN, &[9; 13], 1518), Err(SegmentError::Malformed));
    }

    #[test]
    fn a_frame_longer_than_the_link_takes_is_too_big() {
        assert!(frames(&PLAIN, &[0; 1518], 1518).is_ok());
        let refused = frames(&PLAIN, &[0; 1519], 1518);
        assert_eq!(refused, Err(SegmentError::TooBig { len: 1519 }));
    }

    #[test]
    fn a_checksum_outside_of_the_frame_or_in_its_header_is_refused() {
        let summed = |start, offset| VnetHeader {
            flags: FLAG_NEEDS_CSUM,
            csum_start: U16::new(start),
            csum_offset: U16::new(offset),
            ..PLAIN
        };
        let frame = [0; 60];
        assert!(frames(&summed(34, 24), &frame, 1518).is_ok());
        for (start, offset) in [(34, 25), (13, 6), (u16::MAX, u16::MAX)] {
            let refused = frames(&summed(start, offset), &frame, 1518);
            assert_eq!(refused, Err(SegmentError::ChecksumPlace));
        }
    }

    proptest! {
        /// Cut for its own header, each frame equals the packet cut for another link header.
        #[test]
        fn frames_are_those_of_the_other_way_behind_their_own_header(
            model in model(6000), size in 1usize..3000, most in 300usize..4000, tag in any::<[u8; 2]>(),
            of_provider in any::<bool>(), has_tag in any::<bool>(),
        ) {
            let size = size.max(model.payload.len() / 40).max(1);
            let (vnet, plain) = (model.vnet(size), model.frame());
            let kind = if of_provider { [0x88, 0xa8] } else { [0x81, 0] };
            let (asked, frame, header) = if has_tag {
                let (vnet, frame) = tagged(vnet, &plain, [kind[0], kind[1], tag[0], tag[1]]);
                (vnet, frame, 18)
            } else {
                (vnet, plain.clone(), 14)
            };
            let mut expected = Vec::new();
            let other = Segmenter::new(&vnet, &plain, LinkHeader::new(&frame[..header]), most - header);
            if let Ok(mut packets) = other.clone() {
                while let Some(len) = packets.next_len() {
                    let mut out = vec![0; len];
                    packets.write_next(&mut out);
                    assert_well_formed(&out[header..]);
                    expected.push(out);
                }
            }
            match (frames(&asked, &frame, most), other) {
                (Ok(found), Ok(_)) => prop_assert_eq!(found, expected),
                (found, other) => prop_assert_eq!(found.err(), other.err()),
            }
        }

        #[test]
        fn any_bytes_are_survived(
            vnet in any::<[u8; VNET_HEADER_LEN]>(), mut frame in prop::collection::vec(any::<u8>(), 0..200),
            most in 0usize..300, tag in any::<bool>(),
        ) {
            if tag && let Some(kind) = frame.get_mut(12..14) {
                kind.copy_from_slice(&[0x88, 0xa8]);
            }
            let vnet = VnetHeader::read_from_bytes(&vnet).unwrap();
            let _ = frames(&vnet, &frame, most);
        }
    }
}
