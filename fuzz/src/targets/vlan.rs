//! 802.1Q tags removed from arbitrary frames of a TAP, and inserted again: nothing else changes.
//!
//! Input: the position where the frame is split into pieces (2 bytes), the virtio-net header (12), the frame.

use std::io::IoSlice;

use netdev::vlan::{Head, TAG_LEN, Tag, VID_MAX, insert, take};
use netdev::vnet::VNET_HEADER_LEN;

/// Offset of the tag, present or not.
const BEFORE: usize = VNET_HEADER_LEN + 12;

/// Offset of `hdr_len` in the virtio-net header, a hint of the length of the headers, which may change.
const HINT: std::ops::Range<usize> = 2..4;

/// The bit of a tag that is lost: drop eligible (IEEE 802.1Q-2018, 9.6).
const DROP_ELIGIBLE: u8 = 0x10;

/// The result of `insert` for a frame in pieces.
fn with_tag(tag: Tag, frame: &[u8], cuts: [u8; 2]) -> Option<Vec<u8>> {
    let [first, second] = cuts.map(|cut| usize::from(cut).min(frame.len()));
    let (first, second) = (first.min(second), first.max(second));
    let pieces = [&frame[..first], &frame[first..second], &frame[second..]].map(IoSlice::new);
    let mut head: Head = [0; BEFORE + TAG_LEN];
    let parts = insert(tag.bytes(), &pieces, &mut head)?;
    Some(parts.iter().flat_map(|part| part.iter().copied()).collect())
}

pub fn run(data: &[u8]) {
    let Some((cuts, frame)) = data.split_first_chunk::<2>() else {
        return;
    };
    let mut taken = frame.to_vec();
    if let Some((tag, untagged)) = take(&mut taken) {
        assert!(tag.vid <= VID_MAX + 1 && tag.priority < 8);
        assert_eq!(untagged.len() + TAG_LEN, frame.len());
        let mut again = with_tag(tag, untagged, *cuts).expect("there is room for what was there");
        let mut before = frame.to_vec();
        before[BEFORE + 2] &= !DROP_ELIGIBLE;
        for frame in [&mut again, &mut before] {
            frame[HINT].fill(0);
        }
        assert_eq!(again, before);
    } else {
        assert_eq!(taken, frame, "what has no tag is not touched");
    }
    let tag = Tag {
        vid: u16::from(cuts[0]),
        priority: cuts[1] & 7,
    };
    if let Some(mut tagged) = with_tag(tag, frame, *cuts) {
        assert_eq!(tagged.len(), frame.len() + TAG_LEN);
        if let Some((found, untagged)) = take(&mut tagged) {
            assert_eq!(found, tag);
            assert_eq!(untagged[VNET_HEADER_LEN..], frame[VNET_HEADER_LEN..]);
        }
    }
}
