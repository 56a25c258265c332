//! The frames of one send as 16B packets for a train.

use netdev::segment::Segmenter;
use vnic::packet::{HEADER_LEN, Prefix, Profile, packet_len};

use super::super::train::Packets;

/// The frames of a send, each in a 16B packet: header, frame, padding, ICRC and tail. The ICRC field is not
/// computed, because the UD datagram has its own ICRC.
pub struct Encapsulated<'f> {
    frames: Segmenter<'f>,
    prefix: Prefix,
}

impl<'f> Encapsulated<'f> {
    /// Puts this header before each frame, with the frame's length. No frame may be longer than
    /// [`vnic::packet::FRAME_MAX`].
    pub fn new(frames: Segmenter<'f>, prefix: Prefix) -> Encapsulated<'f> {
        Encapsulated { frames, prefix }
    }
}

impl Packets for Encapsulated<'_> {
    fn full_len(&self) -> usize {
        packet_len(self.frames.full_len())
    }

    fn remaining(&self) -> usize {
        self.frames.remaining()
    }

    fn next_len(&self) -> Option<usize> {
        self.frames.next_len().map(packet_len)
    }

    fn write_next(&mut self, out: &mut [u8]) {
        let Some(len) = self.frames.next_len() else {
            return;
        };
        self.frames
            .write_next(&mut out[HEADER_LEN..HEADER_LEN + len]);
        // The place is as long as the packet.
        let written = self.prefix.wrap(Profile::Wire0, len, out);
        debug_assert_eq!(written, Ok(out.len()));
    }
}
