//! What a port says about itself.

use std::fmt;

use crate::{Gid, Guid, Lid, PKey};

/// The logical state of a link (IBA vol. 1, 14.2.5.6, PortState).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkState {
    /// No link.
    Down,
    /// A link, which the subnet manager has not configured.
    Init,
    /// Configured; carries no data yet.
    Armed,
    /// Carries data.
    Active,
    /// Another number.
    Other(u8),
}

impl LinkState {
    /// From PortInfo's number, which sysfs has, too.
    pub fn from_number(number: u32) -> LinkState {
        match number {
            1 => LinkState::Down,
            2 => LinkState::Init,
            3 => LinkState::Armed,
            4 => LinkState::Active,
            n => LinkState::Other(n.min(u8::MAX.into()) as u8),
        }
    }
}

impl fmt::Display for LinkState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LinkState::Down => f.write_str("DOWN"),
            LinkState::Init => f.write_str("INIT"),
            LinkState::Armed => f.write_str("ARMED"),
            LinkState::Active => f.write_str("ACTIVE"),
            LinkState::Other(n) => write!(f, "state {n}"),
        }
    }
}

/// Attributes of a port at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortAttributes {
    /// The base LID; 0 before the subnet manager assigned one.
    pub lid: Lid,
    /// The port has 2^`lmc` LIDs from `lid` on; 0 to 7.
    pub lmc: u8,
    /// LID of the master subnet manager, which is the LID of subnet administration; 0 without one.
    pub sm_lid: Lid,
    /// Service level for datagrams to `sm_lid`; 0 to 15.
    pub sm_sl: u8,
    /// The logical state.
    pub state: LinkState,
    /// Upper half of the port's GIDs.
    pub gid_prefix: [u8; 8],
    /// The port GUID, the lower half of its first GID.
    pub guid: Guid,
    /// Gigabits per second, rounded down; 0 if unknown.
    pub rate: u32,
    /// CapabilityMask of PortInfo (IBA vol. 1, 14.2.5.6); bit 1 is IsSM.
    pub capability_mask: u32,
    /// The link layer is InfiniBand, not Ethernet.
    pub infiniband: bool,
    /// The P_Key table; empty places are keys with a base of 0.
    pub pkeys: Vec<PKey>,
}

impl PortAttributes {
    /// The port's first GID.
    pub fn gid(&self) -> Gid {
        let mut gid = [0; 16];
        gid[..8].copy_from_slice(&self.gid_prefix);
        gid[8..].copy_from_slice(&self.guid.0);
        Gid(gid)
    }
}
