//! The MAC table that the Ethernet Manager gives a virtual port.

use crate::{Lid, Mac};

/// Places of a MAC table (kernel opa_vnic_internal.h, OPA_VNIC_MAC_TBL_MAX_ENTRIES).
pub const MAC_TABLE_ENTRIES: usize = 2048;

/// One entry of the table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MacEntry {
    /// The address.
    pub mac: Mac,
    /// Kept and given back; nobody reads it (kernel opa_vnic_encap.c, `opa_vnic_chk_mac_tbl`).
    pub mask: Mac,
    /// The LID in the upper 24 bits, side data in the lower 8.
    pub dlid_sd: u32,
}

impl MacEntry {
    /// Side data: the entry is about a source address, and no destination.
    pub const SOURCE: u32 = 0x20;

    /// The LID.
    #[must_use]
    pub const fn lid(&self) -> Lid {
        Lid::new(self.dlid_sd >> 8)
    }

    /// Whether it is about a source address.
    #[must_use]
    pub const fn is_source(&self) -> bool {
        self.dlid_sd & MacEntry::SOURCE != 0
    }
}
