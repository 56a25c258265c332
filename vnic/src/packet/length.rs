//! Lengths of frames and packets.

use super::HEADER_LEN;
use super::trailer::{ICRC_LEN, TAIL_LEN};

/// The shortest frame in bytes, without a frame check sequence; shorter ones are filled up with zeros.
pub const FRAME_MIN: usize = 60;
/// The longest frame in bytes that the Length of a header has room for.
pub const FRAME_MAX: usize = frame_max(PACKET_MAX);
/// The longest packet in bytes: 2047 quad words.
pub const PACKET_MAX: usize = 2047 * 8;

/// Bytes around the frame, without the padding.
const AROUND: usize = HEADER_LEN + ICRC_LEN + TAIL_LEN;

/// Bytes of padding behind a frame of so many bytes, 0 to 7, which make the packet whole quad words. A
/// frame of less than [`FRAME_MIN`] bytes counts as that.
#[must_use]
#[inline]
pub const fn pad(frame_len: usize) -> usize {
    7 - filled(frame_len) % 8
}

/// The length in bytes of the packet of a frame of so many bytes.
#[must_use]
#[inline]
pub const fn packet_len(frame_len: usize) -> usize {
    filled(frame_len) / 8 * 8 + 32
}

/// The longest frame in bytes whose packet has no more than `packet_max` bytes; 0 if even an empty one's
/// has.
#[must_use]
pub const fn frame_max(packet_max: usize) -> usize {
    (packet_max / 8 * 8).saturating_sub(AROUND)
}

/// The MTU in bytes of an Ethernet interface whose packets have no more than `packet_max` bytes: the
/// longest frame less its header and one VLAN tag, 18 bytes.
#[must_use]
pub const fn eth_mtu(packet_max: usize) -> usize {
    let longest = match packet_max < PACKET_MAX {
        true => packet_max,
        false => PACKET_MAX,
    };
    frame_max(longest).saturating_sub(18)
}

/// The length of a frame once it is filled up.
#[inline]
const fn filled(frame_len: usize) -> usize {
    match frame_len < FRAME_MIN {
        true => FRAME_MIN,
        false => frame_len,
    }
}
