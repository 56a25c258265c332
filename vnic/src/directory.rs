//! Addresses of a switch's members on the fabric.

use std::collections::BTreeMap;

use proto::{Gid, Qpn};

use crate::Lid;

/// Address of a member on the fabric.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NodeAddress {
    /// GID of the fabric port.
    pub gid: Gid,
    /// UD queue pair number of the virtual port; 0: unknown.
    pub qpn: Qpn,
}

/// Members of a switch, from the Ethernet Manager or the configuration.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Directory {
    /// Addresses by LID.
    pub nodes: BTreeMap<Lid, NodeAddress>,
    /// Only these are members: the port drops packets of others. Otherwise the port also learns members
    /// from received packets.
    pub closed: bool,
}
