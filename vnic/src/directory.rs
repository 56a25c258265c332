//! Where the members of a virtual Ethernet switch are on the fabric.

use std::collections::BTreeMap;

use proto::{Gid, Qpn};

use crate::Lid;

/// Where a LID is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NodeAddress {
    /// The port's GID.
    pub gid: Gid,
    /// The UD queue pair of the virtual port; 0 while it is not known.
    pub qpn: Qpn,
}

/// The members of one switch by LID, as the Ethernet Manager or the configuration gives them.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Directory {
    /// Where each is.
    pub nodes: BTreeMap<Lid, NodeAddress>,
    /// Nobody else is a member: packets of others are refused. Else who sends is learned.
    pub closed: bool,
}
