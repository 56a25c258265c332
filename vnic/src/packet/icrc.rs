//! The ICRC of the profile [`WireSw32`](super::Profile::WireSw32).

use crc32fast::Hasher;

use super::header::{HEADER_LEN, Words};
use super::trailer::{ICRC_LEN, TAIL_LEN, Tail};

/// The ICRC of a whole packet, whatever its own bytes of one are; `None` if the packet has no room for one.
///
/// It is the CRC-32 of Ethernet over everything before it, with ones in what a switch may change on the
/// way (BECN, FECN, SC, age), and then over the number of bytes of padding, which is behind it and says
/// how long the frame is. Omni-Path's own is not public; this one is ours.
#[must_use]
pub fn icrc(packet: &[u8]) -> Option<u32> {
    let (tail, before) = packet.split_last()?;
    let covered = before.get(..packet.len().checked_sub(ICRC_LEN + TAIL_LEN)?)?;
    let (header, rest) = covered.split_first_chunk::<HEADER_LEN>()?;
    let mut crc = Hasher::new();
    crc.update(&Words::from_bytes(header).with_mutable_ones().to_bytes());
    crc.update(rest);
    crc.update(&[Tail(*tail).pad()]);
    Some(crc.finalize())
}
