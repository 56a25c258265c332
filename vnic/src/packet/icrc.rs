//! ICRC of the profile [`WireSw32`](super::Profile::WireSw32).

use crc32fast::Hasher;

use super::header::{HEADER_LEN, Words};
use super::trailer::{ICRC_LEN, TAIL_LEN, Tail};

/// Computes the ICRC of a packet; ignores the packet's present ICRC. `None` if the packet is too short.
///
/// The ICRC is the CRC-32 of Ethernet over all bytes before it, with ones in the fields that a switch may
/// change (BECN, FECN, SC, age), then over the number of bytes of padding, which is in the tail and
/// determines the length of the frame. This ICRC is specific to ibtap; Omni-Path's is not public.
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
