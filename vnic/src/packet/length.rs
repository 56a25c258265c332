//! Lengths of frames and packets.

use super::HEADER_LEN;
use super::trailer::{ICRC_LEN, TAIL_LEN};

/// Shortest frame in bytes, without frame check sequence; shorter frames are padded with zeros.
pub const FRAME_MIN: usize = 60;
/// Longest frame in bytes, limited by the Length field of the header.
pub const FRAME_MAX: usize = frame_max(PACKET_MAX);
/// Longest packet in bytes: 2047 quad words.
pub const PACKET_MAX: usize = 2047 * 8;

/// Bytes of a packet besides frame and padding.
const AROUND: usize = HEADER_LEN + ICRC_LEN + TAIL_LEN;

/// Bytes of padding after a frame, 0 to 7, to make the packet a multiple of quad words. Shorter frames
/// count as [`FRAME_MIN`] bytes.
#[must_use]
#[inline]
pub const fn pad(frame_len: usize) -> usize {
    7 - filled(frame_len) % 8
}

/// Length in bytes of the packet of a frame of `frame_len` bytes.
#[must_use]
#[inline]
pub const fn packet_len(frame_len: usize) -> usize {
    filled(frame_len) / 8 * 8 + 32
}

/// Longest frame in bytes whose packet has at most `packet_max` bytes; 0 if none fits.
#[must_use]
pub const fn frame_max(packet_max: usize) -> usize {
    (packet_max / 8 * 8).saturating_sub(AROUND)
}

/// MTU in bytes of an Ethernet interface whose packets have at most `packet_max` bytes: the longest frame
/// less 18 bytes of Ethernet header and one VLAN tag.
#[must_use]
pub const fn eth_mtu(packet_max: usize) -> usize {
    let longest = match packet_max < PACKET_MAX {
        true => packet_max,
        false => PACKET_MAX,
    };
    frame_max(longest).saturating_sub(18)
}

/// Length of a frame after padding to [`FRAME_MIN`].
#[inline]
const fn filled(frame_len: usize) -> usize {
    match frame_len < FRAME_MIN {
        true => FRAME_MIN,
        false => frame_len,
    }
}
