//! Segmentation of arbitrary frames of a TAP: no packet exceeds the link's maximum, and memory in pieces
//! gives the same packets as memory in one piece.
//!
//! Input: the virtio-net header (12 bytes), the MTU (2), the frame.

use netdev::segment::{LinkHeader, Pieces, Segmenter};
use netdev::vnet::VnetHeader;
use zerocopy::FromBytes;

/// Memory in pieces of this size in bytes.
struct Places<'m>(&'m mut [u8], usize);

impl Pieces for Places<'_> {
    fn piece(&mut self, index: usize) -> &mut [u8] {
        let end = self.0.len().min((index + 1) * self.1);
        self.0.get_mut(index * self.1..end).unwrap_or_default()
    }
}

pub fn run(data: &[u8]) {
    let Ok((vnet, rest)) = VnetHeader::read_from_prefix(data) else {
        return;
    };
    let Some((mtu, frame)) = rest.split_first_chunk::<2>() else {
        return;
    };
    let mtu = usize::from(u16::from_be_bytes(*mtu));
    let link = LinkHeader::new(&[8, 0, 0, 0]);
    let Ok(mut segmenter) = Segmenter::new(&vnet, frame, link, mtu) else {
        return;
    };
    let mut place = vec![0; 4 + mtu];
    let mut scattered = vec![0; 4 + mtu];
    let mut again = segmenter.clone();
    let piece = 1 + mtu / 7;
    let (full, count) = (segmenter.full_len(), segmenter.remaining());
    for k in 0..count {
        let len = segmenter.next_len().expect("as many packets as remain");
        assert!(
            len <= place.len() && len <= full,
            "packet {k} of {len} bytes"
        );
        assert!(k + 1 == count || len == full, "only the last is shorter");
        segmenter.write_next(&mut place[..len]);
        assert!(again.write_next_scattered(&mut Places(&mut scattered[..len], piece)));
        assert!(place[..len] == scattered[..len], "packet {k} in pieces");
    }
    assert_eq!(segmenter.next_len(), None);
}
