//! How packets and management travel on a fabric that is not Omni-Path: as UD datagrams of InfiniBand or
//! RoCE. All of this is ours; nothing in Omni-Path has it.
//!
//! * A virtual port has a TAP, a UD queue pair and a LID, and is on one switch. (An Omni-Path port
//!   has one LID; one LID for each virtual port allows several of a host on one switch.)
//! * A packet is the payload of one datagram: 20 bytes of little-endian quad words, the frame,
//!   padding to quad words, four bytes of ICRC and a tail with the padding's length. The ICRC is
//!   zero, because the fabric's ICRC covers the packet; in captures and files it is a CRC-32
//!   defined here, since Omni-Path's is not public.
//! * The Q_Key contains the switch's number, so packets of another switch do not reach a port. All
//!   12 bits of the number in the header are compared, too.

pub mod fragment;

use proto::{Gid, PKey, QKey, Qpn};

use crate::Lid;

/// Where a management datagram came from.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Address {
    /// The sender's port.
    pub gid: Gid,
    /// Its queue pair.
    pub qpn: Qpn,
    /// It came by the group, to all.
    pub by_group: bool,
}

/// The Q_Key of a switch's data.
#[must_use]
pub const fn data_qkey(vesw_id: u16) -> QKey {
    QKey::new(0x0b1b_0000 | (vesw_id & 0xfff) as u32)
}

/// The Q_Key of management: no switch has it, since their ids have 12 bits.
pub const MANAGEMENT_QKEY: QKey = QKey::new(0x0b1b_f034);

/// The group that agents and managers find each other in, of a partition.
#[must_use]
pub fn management_mgid(pkey: PKey) -> Gid {
    mgid(pkey, 0, 0, 0x34)
}

/// The group of a multicast LID of a switch: link-local and transient, with 0x5645 where IPoIB has its
/// signature (RFC 4391, section 4).
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
