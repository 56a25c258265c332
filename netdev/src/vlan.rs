//! 802.1Q tags in frames with a virtio-net header (IEEE 802.1Q-2018, 9.3 to 9.6).
//!
//! A TAP always has the tag in the frame, behind the two addresses, even if the kernel stores it separately
//! (drivers/net/tun.c, `tun_put_user`). The offsets of the virtio-net header include it.

use std::io::IoSlice;

use smallvec::SmallVec;
use zerocopy::little_endian::U16;
use zerocopy::{FromBytes, IntoBytes};

use crate::vnet::{FLAG_NEEDS_CSUM, VNET_HEADER_LEN, VnetHeader};

/// The EtherType of a customer tag (802.1Q).
pub const TYPE: u16 = 0x8100;

/// The EtherType of a service provider's outer tag (802.1ad).
const PROVIDERS_TYPE: u16 = 0x88a8;

/// Whether the EtherType is that of a tag of either kind.
pub const fn is_tag(ethertype: u16) -> bool {
    matches!(ethertype, TYPE | PROVIDERS_TYPE)
}

/// Bytes of a tag: [`TYPE`] and the control information.
pub const TAG_LEN: usize = 4;

/// The largest valid VLAN id; 4095 is reserved, and 0 means no VLAN.
pub const VID_MAX: u16 = 4094;

/// Bytes before a tag: the virtio-net header and two Ethernet addresses.
const BEFORE: usize = VNET_HEADER_LEN + 12;

/// Offset of the packet in a tagged Ethernet frame, in bytes.
const TAGGED_HEADER_LEN: u16 = 18;

/// The contents of a tag.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Tag {
    /// The VLAN id, 12 bits; 0 for a tag with a priority only.
    pub vid: u16,
    /// The priority code point, 0 to 7.
    pub priority: u8,
}

impl Tag {
    fn of(control: u16) -> Tag {
        Tag {
            vid: control & 0x0fff,
            priority: (control >> 13) as u8,
        }
    }

    /// The bytes of the tag in a frame.
    pub fn bytes(self) -> [u8; TAG_LEN] {
        let control = u16::from(self.priority & 7) << 13 | self.vid & 0x0fff;
        let ([a, b], [c, d]) = (TYPE.to_be_bytes(), control.to_be_bytes());
        [a, b, c, d]
    }
}

/// Removes the tag from a frame in place; the frame starts with the virtio-net header. Returns the tag and
/// the frame without it. `None`, without changes, if there is no tag, if the frame ends before the inner
/// type, or if the partial checksum does not start behind the tag.
pub fn take(frame: &mut [u8]) -> Option<(Tag, &mut [u8])> {
    let (vnet, _) = VnetHeader::read_from_prefix(frame).ok()?;
    let [a, b, c, d, _, _, ..] = *frame.get(BEFORE..)? else {
        return None;
    };
    if u16::from_be_bytes([a, b]) != TYPE {
        return None;
    }
    let vnet = without_tag(vnet)?;
    frame.copy_within(VNET_HEADER_LEN..BEFORE, VNET_HEADER_LEN + TAG_LEN);
    let untagged = &mut frame[TAG_LEN..];
    untagged[..VNET_HEADER_LEN].copy_from_slice(vnet.as_bytes());
    Some((Tag::of(u16::from_be_bytes([c, d])), untagged))
}

/// The virtio-net header of a tagged frame after removal of the tag. `None` if the partial checksum does
/// not start behind the tag.
pub fn without_tag(vnet: VnetHeader) -> Option<VnetHeader> {
    moved(vnet, |at| at.checked_sub(TAG_LEN as u16))
}

/// Changes the offsets of the header with `by`.
fn moved(mut vnet: VnetHeader, by: impl Fn(u16) -> Option<u16>) -> Option<VnetHeader> {
    if vnet.flags & FLAG_NEEDS_CSUM != 0 {
        let start = by(vnet.csum_start.get())?;
        // A checksum must not start between the addresses and the packet.
        if start < TAGGED_HEADER_LEN - TAG_LEN as u16 {
            return None;
        }
        vnet.csum_start = U16::new(start);
    }
    let headers = vnet.hdr_len.get();
    // Only a hint; 0 means none.
    if headers != 0 {
        vnet.hdr_len = U16::new(by(headers).unwrap_or_default());
    }
    Some(vnet)
}

/// The parts of a frame with its tag. A merged frame has two parts for each packet; large sends of the
/// usual size need no allocation.
pub type Parts<'p> = SmallVec<[IoSlice<'p>; 64]>;

/// The first bytes of a frame, with room for a tag.
pub type Head = [u8; BEFORE + TAG_LEN];

/// Inserts a tag into a frame in `parts`, virtio-net header first. Returns the new parts; `head` is the
/// first. `None` if the frame ends within its addresses, or if its offsets leave no room for a tag.
pub fn insert<'p>(
    tag: [u8; TAG_LEN],
    parts: &'p [IoSlice<'p>],
    head: &'p mut Head,
) -> Option<Parts<'p>> {
    let mut tagged = Parts::new();
    let mut filled = 0;
    let mut rest = SmallVec::<[IoSlice<'p>; 2]>::new();
    let mut parts = parts.iter();
    while filled < BEFORE {
        let part: &'p [u8] = parts.next()?;
        let (mine, left) = part.split_at(part.len().min(BEFORE - filled));
        head[filled..][..mine.len()].copy_from_slice(mine);
        filled += mine.len();
        if !left.is_empty() {
            rest.push(IoSlice::new(left));
        }
    }
    let (vnet, _) = VnetHeader::read_from_prefix(&head[..]).ok()?;
    let vnet = moved(vnet, |at| at.checked_add(TAG_LEN as u16))?;
    head[..VNET_HEADER_LEN].copy_from_slice(vnet.as_bytes());
    head[BEFORE..].copy_from_slice(&tag);
    tagged.push(IoSlice::new(head));
    tagged.extend(rest);
    tagged.extend(parts.map(|part| IoSlice::new(part)));
    Some(tagged)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn frame(vnet: VnetHeader, control: u16, behind: &[u8]) -> Vec<u8> {
        let mut frame = vnet.as_bytes().to_vec();
        frame.extend([1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 0x81, 0]);
        frame.extend(control.to_be_bytes());
        frame.extend(behind);
        frame
    }

    fn summed(start: u16) -> VnetHeader {
        VnetHeader {
            flags: FLAG_NEEDS_CSUM,
            csum_start: U16::new(start),
            csum_offset: U16::new(6),
            hdr_len: U16::new(start),
            ..VnetHeader::default()
        }
    }

    #[test]
    fn a_tag_is_taken_out_and_the_offsets_follow() {
        let mut tagged = frame(summed(38), 0xa005, &[8, 0, 0x45]);
        let (tag, untagged) = take(&mut tagged).unwrap();
        let expected = Tag {
            vid: 5,
            priority: 5,
        };
        assert_eq!(tag, expected);
        assert_eq!(untagged[..12], *summed(34).as_bytes());
        assert_eq!(
            untagged[12..],
            [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 8, 0, 0x45]
        );
    }

    #[test]
    fn what_has_no_whole_tag_is_left_alone() {
        let whole = frame(VnetHeader::default(), 5, &[8, 0]);
        for len in 0..whole.len() {
            let mut cut = whole[..len].to_vec();
            assert!(take(&mut cut).is_none(), "{len}");
            assert_eq!(cut, whole[..len]);
        }
        let mut provider = whole.clone();
        provider[24..26].copy_from_slice(&[0x88, 0xa8]);
        assert!(take(&mut provider).is_none());
    }

    #[test]
    fn a_checksum_before_the_packet_is_refused() {
        for start in 0..18 {
            let mut tagged = frame(summed(start), 5, &[8, 0, 0x45]);
            let before = tagged.clone();
            assert!(take(&mut tagged).is_none(), "{start}");
            assert_eq!(tagged, before);
        }
        assert!(take(&mut frame(summed(18), 5, &[8, 0, 0x45])).is_some());
    }

    #[test]
    fn only_the_first_of_two_tags_is_taken() {
        let mut doubled = frame(VnetHeader::default(), 5, &[0x81, 0, 0, 6, 8, 0]);
        let (tag, untagged) = take(&mut doubled).unwrap();
        assert_eq!(tag.vid, 5);
        assert_eq!(take(untagged).unwrap().0.vid, 6);
    }

    #[test]
    fn a_frame_without_addresses_gets_no_tag() {
        let tag = Tag {
            vid: 5,
            priority: 0,
        };
        let mut head = [0; BEFORE + TAG_LEN];
        let short = [0; BEFORE - 1];
        assert!(insert(tag.bytes(), &[IoSlice::new(&short)], &mut head).is_none());
        assert!(insert(tag.bytes(), &[], &mut head).is_none());
        let start_behind_all = frame(summed(u16::MAX - 3), 5, &[8, 0]);
        assert!(insert(tag.bytes(), &[IoSlice::new(&start_behind_all)], &mut head).is_none());
    }

    proptest! {
        /// Insertion and removal are inverse, wherever the parts begin.
        #[test]
        fn what_is_inserted_is_taken_out_again(
            vid in 0u16..4096,
            priority in 0u8..8,
            start in 14u16..1000,
            behind in proptest::collection::vec(any::<u8>(), 2..200),
            cuts in proptest::collection::vec(0usize..230, 0..6),
        ) {
            let mut plain = summed(start).as_bytes().to_vec();
            plain.extend([1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12]);
            plain.extend(&behind);
            let mut cuts: Vec<usize> = cuts.into_iter().map(|c| c.min(plain.len())).collect();
            cuts.extend([0, plain.len()]);
            cuts.sort_unstable();
            let parts: Vec<IoSlice<'_>> =
                cuts.windows(2).map(|w| IoSlice::new(&plain[w[0]..w[1]])).collect();
            let mut head = [0; BEFORE + TAG_LEN];
            let tag = Tag { vid, priority };
            let mut tagged: Vec<u8> = insert(tag.bytes(), &parts, &mut head)
                .unwrap()
                .iter()
                .flat_map(|p| p.to_vec())
                .collect();
            prop_assert_eq!(tagged.len(), plain.len() + TAG_LEN);
            let (found, untagged) = take(&mut tagged).unwrap();
            prop_assert_eq!(found, tag);
            prop_assert_eq!(&*untagged, &plain[..]);
        }

        #[test]
        fn nothing_panics(mut frame in proptest::collection::vec(any::<u8>(), 0..64), at in 0usize..64) {
            if let Some(tag) = frame.get_mut(24..26) {
                tag.copy_from_slice(&[0x81, 0]);
            }
            let (a, b) = frame.split_at(at.min(frame.len()));
            let parts = [IoSlice::new(a), IoSlice::new(b)];
            let mut head = [0; BEFORE + TAG_LEN];
            insert(Tag { vid: 1, priority: 0 }.bytes(), &parts, &mut head);
            take(&mut frame);
        }
    }
}
