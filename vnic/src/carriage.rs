//! Transport of packets and management on fabrics other than Omni-Path: UD datagrams of InfiniBand or RoCE.
//! This format is specific to ibtap.
//!
//! * A virtual port has a TAP, a UD queue pair and a LID, and is on one switch. (On Omni-Path, a port has
//!   one LID. With one LID for each virtual port, several virtual ports of a host can be on one switch.)
//! * The payload of a datagram is one packet: a header of 20 bytes in little-endian quad words, the frame,
//!   padding to quad words, four bytes of ICRC, and a tail with the length of the padding. The ICRC is
//!   zero, because the fabric's ICRC covers the packet. In captures and files it is a CRC-32 defined here,
//!   because Omni-Path's ICRC is not public.
//! * The Q_Key contains the number of the switch, so that packets of another switch do not reach a port.
//!   The receiver also compares all 12 bits of the number in the header.

#![cfg_attr(
    not(test),
    deny(clippy::cast_possible_truncation, clippy::cast_sign_loss)
)]

pub mod fragment;
pub mod seal;

use proto::{Gid, PKey, QKey, Qpn};

use crate::Lid;

/// Source of a management datagram.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Address {
    /// GID of the sender.
    pub gid: Gid,
    /// Queue pair number of the sender.
    pub qpn: Qpn,
    /// The datagram was sent to the group.
    pub by_group: bool,
}

/// Q_Key of packets on a switch.
#[must_use]
pub const fn data_qkey(vesw_id: u16) -> QKey {
    QKey::new(0x0b1b_0000 | (vesw_id & 0xfff) as u32)
}

/// Q_Key of management. It differs from the Q_Keys of all switches, whose numbers have 12 bits.
pub const MANAGEMENT_QKEY: QKey = QKey::new(0x0b1b_f034);

/// Multicast group of the agents and managers of a partition.
#[must_use]
pub fn management_mgid(pkey: PKey) -> Gid {
    mgid(pkey, 0, 0, 0x34)
}

/// Multicast group of a multicast LID of a switch: link-local and transient, with 0x5645 in place of
/// IPoIB's signature (RFC 4391, section 4).
#[must_use]
pub fn group_mgid(pkey: PKey, fabric_id: u16, vesw_id: u16, lid: Lid) -> Gid {
    mgid(
        pkey,
        fabric_id & 0x3ff,
        vesw_id & 0xfff,
        lid.get() & 0x7_ffff,
    )
}

fn mgid(pkey: PKey, fabric_id: u16, vesw_id: u16, low: u32) -> Gid {
    let mut raw = [0; 16];
    raw[..2].copy_from_slice(&[0xff, 0x12]);
    raw[2..4].copy_from_slice(&0x5645_u16.to_be_bytes());
    raw[4..6].copy_from_slice(&pkey.full().get().to_be_bytes());
    raw[6..8].copy_from_slice(&fabric_id.to_be_bytes());
    raw[8..10].copy_from_slice(&vesw_id.to_be_bytes());
    raw[12..].copy_from_slice(&low.to_be_bytes());
    Gid(raw)
}
