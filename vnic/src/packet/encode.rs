//! Encoding of frames into packets.

use thiserror::Error;

use super::Profile;
use super::header::{HEADER_LEN, Header16B, Words};
use super::icrc::icrc;
use super::length::{FRAME_MAX, packet_len, pad};
use super::trailer::{ICRC_LEN, TAIL_LEN, Tail};

/// Reason why a frame cannot be encoded.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum EncodeError {
    /// The frame is too long for the header's Length field of 11 bits.
    #[error("frame has {0} bytes, a 16B packet carries at most {FRAME_MAX}")]
    TooLong(usize),
    /// The buffer is too small.
    #[error("packet of {needed} bytes does not fit in a buffer of {available}")]
    NoRoom {
        /// Length of the packet, in bytes.
        needed: usize,
        /// Length of the buffer, in bytes.
        available: usize,
    },
}

/// Header of all packets of a flow; only the length is open.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Prefix(Words);

impl Prefix {
    /// Creates the prefix of packets with this header; ignores its length.
    #[must_use]
    pub const fn new(header: &Header16B) -> Prefix {
        Prefix(header.words())
    }

    /// Service class of the packets, 5 bits.
    #[inline]
    #[must_use]
    pub const fn sc(&self) -> u8 {
        self.0.sc()
    }

    /// Writes header and trailer around a frame of `frame_len` bytes, which is already at offset
    /// [`HEADER_LEN`] of `packet`. Returns the length of the packet: [`packet_len`]. Bytes of `packet`
    /// after it stay unchanged. Short frames are padded.
    ///
    /// # Errors
    /// [`EncodeError`]; nothing is written.
    #[inline]
    pub fn wrap(
        &self,
        profile: Profile,
        frame_len: usize,
        packet: &mut [u8],
    ) -> Result<usize, EncodeError> {
        if frame_len > FRAME_MAX {
            return Err(EncodeError::TooLong(frame_len));
        }
        let (needed, available) = (packet_len(frame_len), packet.len());
        let no_room = EncodeError::NoRoom { needed, available };
        let packet = packet.get_mut(..needed).ok_or(no_room)?;
        let Some((header, rest)) = packet.split_first_chunk_mut::<HEADER_LEN>() else {
            return Err(no_room);
        };
        *header = self.0.with_length(needed as u64 / 8).to_bytes();
        if let Some(trailer) = rest.get_mut(frame_len..) {
            trailer.fill(0);
        }
        let tail = match profile {
            Profile::Mem => Tail::without_lt(pad(frame_len)),
            Profile::Wire0 | Profile::WireSw32 => Tail::new(pad(frame_len)),
        };
        if let Some(last) = rest.last_mut() {
            *last = tail.0;
        }
        if profile == Profile::WireSw32 {
            write_icrc(packet);
        }
        Ok(needed)
    }
}

fn write_icrc(packet: &mut [u8]) {
    let Some(value) = icrc(packet) else { return };
    let at = packet.len() - TAIL_LEN - ICRC_LEN;
    packet[at..at + ICRC_LEN].copy_from_slice(&value.to_le_bytes());
}

/// Writes the packet of `frame` to the beginning of `out`. Returns its length. The length in `header` is
/// ignored.
///
/// # Errors
/// [`EncodeError`]; nothing is written.
#[inline]
pub fn encode(
    header: &Header16B,
    frame: &[u8],
    profile: Profile,
    out: &mut [u8],
) -> Result<usize, EncodeError> {
    if frame.len() > FRAME_MAX {
        return Err(EncodeError::TooLong(frame.len()));
    }
    let (needed, available) = (packet_len(frame.len()), out.len());
    let no_room = EncodeError::NoRoom { needed, available };
    let out = out.get_mut(..needed).ok_or(no_room)?;
    out[HEADER_LEN..HEADER_LEN + frame.len()].copy_from_slice(frame);
    Prefix::new(header).wrap(profile, frame.len(), out)
}
