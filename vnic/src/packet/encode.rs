//! Frames into packets.

use thiserror::Error;

use super::Profile;
use super::header::{HEADER_LEN, Header16B, Words};
use super::icrc::icrc;
use super::length::{FRAME_MAX, packet_len, pad};
use super::trailer::{ICRC_LEN, TAIL_LEN, Tail};

/// Why a frame cannot be put into a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum EncodeError {
    /// The Length of a header has 11 bits.
    #[error("a frame of {0} bytes is longer than a 16B packet takes, {FRAME_MAX}")]
    TooLong(usize),
    /// The place for the packet is too small.
    #[error("a packet of {needed} bytes does not fit {available}")]
    NoRoom {
        /// Bytes that it has.
        needed: usize,
        /// Bytes that there are.
        available: usize,
    },
}

/// The header of all packets of one flow, in which the length alone is open.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Prefix(Words);

impl Prefix {
    /// That of packets like this one, whatever its length is.
    #[must_use]
    pub const fn new(header: &Header16B) -> Prefix {
        Prefix(header.words())
    }

    /// The service class of the packets, 5 bits.
    #[inline]
    #[must_use]
    pub const fn sc(&self) -> u8 {
        self.0.sc()
    }

    /// Writes header and trailer around a frame of `frame_len` bytes, which is at [`HEADER_LEN`] of
    /// `packet` already, and gives the length of the packet: [`packet_len`]. What is behind it in `packet`
    /// is left alone. A frame that is too short is filled up.
    ///
    /// # Errors
    /// [`EncodeError`]; then nothing is written.
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

/// Writes the whole packet of `frame` to the front of `out` and gives its length. The length in `header`
/// is not looked at.
///
/// # Errors
/// [`EncodeError`]; then nothing is written.
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
