//! Decoding of packets into frames.

use crate::Lid;

use super::Profile;
use super::header::{ETHERNET_L4, HEADER_LEN, Header16B, L2_16B};
use super::icrc::icrc;
use super::length::PACKET_MAX;
use super::refusal::Refusal;
use super::trailer::{ICRC_LEN, TAIL_LEN, Tail, stored_icrc};

/// Shortest packet that is decoded: its frame is empty and counts as a runt.
const PACKET_MIN: usize = 32;
/// Service class of management.
const MANAGEMENT_SC: u8 = 15;

/// Treatment of packets that the kernel's driver accepts and the format forbids.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Strictness {
    /// Refuse them.
    #[default]
    Strict,
    /// Accept them as the driver does: ignore LT, use 3 bits of the tail's padding and 12 of the switch
    /// number.
    Lenient,
}

/// A well-formed packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Decoded<'a> {
    /// Header.
    pub header: Header16B,
    /// Ethernet frame; may be too short or too long.
    pub frame: &'a [u8],
}

/// Decodes a packet and makes all checks that do not depend on the receiver. The kernel's driver leaves
/// almost all of them to its hardware.
///
/// # Errors
/// Reason why the packet is not a valid Ethernet packet.
#[inline]
pub fn decode(
    packet: &[u8],
    profile: Profile,
    strictness: Strictness,
) -> Result<Decoded<'_>, Refusal> {
    let strict = strictness == Strictness::Strict;
    if packet.len() > PACKET_MAX || packet.len() < PACKET_MIN || !packet.len().is_multiple_of(8) {
        return Err(Refusal::Truncated);
    }
    let (bytes, rest) = packet
        .split_first_chunk::<HEADER_LEN>()
        .ok_or(Refusal::Truncated)?;
    let header = Header16B::from_bytes(bytes);
    if header.l2 != L2_16B || (strict && !header.lt) {
        return Err(Refusal::BadL2);
    }
    if header.l4 != ETHERNET_L4 {
        return Err(Refusal::BadL4);
    }
    if header.packet_len() != packet.len() {
        return Err(Refusal::LengthMismatch);
    }
    if !has_valid_lids(&header) {
        return Err(Refusal::BadLid);
    }
    let tail = Tail(rest.last().copied().ok_or(Refusal::Truncated)?);
    if strict && tail.pad() > 7 {
        return Err(Refusal::BadTail);
    }
    if profile == Profile::WireSw32 && stored_icrc(packet) != icrc(packet) {
        return Err(Refusal::Icrc);
    }
    if strict && header.vesw_id > 0xfff {
        return Err(Refusal::BadVeswId);
    }
    let behind = tail.pad_masked() + ICRC_LEN + TAIL_LEN;
    let frame = rest
        .get(..rest.len().saturating_sub(behind))
        .ok_or(Refusal::Truncated)?;
    Ok(Decoded { header, frame })
}

/// Whether the LIDs are valid for this service class (kernel drivers/infiniband/hw/hfi1/driver.c,
/// `hfi1_bypass_ingress_pkt_check`).
fn has_valid_lids(header: &Header16B) -> bool {
    let management = header.sc == MANAGEMENT_SC;
    header.slid.is_unicast()
        && match header.dlid {
            Lid::PERMISSIVE => management,
            dlid if dlid.is_multicast() => !management,
            dlid => dlid.is_unicast(),
        }
}
