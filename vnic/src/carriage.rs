//! How packets and management travel on a fabric that is not Omni-Path: as UD datagrams of InfiniBand or
//! RoCE. All of this is ours; nothing in Omni-Path has it.

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
