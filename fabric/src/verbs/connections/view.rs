//! What connections know of their port.

use std::collections::HashMap;
use std::sync::Arc;

use proto::{EndpointId, Gid, IbMtu, Qpn};

use crate::pkeys::{Entry, PKeyTable};

/// The port as it is now.
#[derive(Clone, Debug, Default)]
pub struct View {
    /// Its name, for messages.
    pub name: String,
    /// Its GID; [`Gid::UNSPECIFIED`] while it has none.
    pub gid: Gid,
    /// The index of its network interface.
    pub scope: u32,
    /// Its link layer is Ethernet: rdma_cm finds peers there without subnet administration.
    pub ethernet: bool,
    /// The largest payload of a packet now.
    pub path_mtu: Option<IbMtu>,
    /// The P_Key table.
    pub pkeys: Arc<PKeyTable>,
    /// Its endpoints.
    pub members: HashMap<EndpointId, Member>,
}

/// One endpoint.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Member {
    /// The UD queue pair, by which peers name it.
    pub qpn: Qpn,
    /// The P_Key table entry that it uses; `None` while it waits for one.
    pub entry: Option<Entry>,
}
