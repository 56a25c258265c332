//! State of the port, for connections.

use std::collections::HashMap;
use std::sync::Arc;

use proto::{EndpointId, Gid, IbMtu, Qpn, Services};

use crate::pkeys::{Entry, PKeyTable};

/// Current state of the port.
#[derive(Clone, Debug, Default)]
pub struct View {
    /// Name of the port, for messages.
    pub name: String,
    /// GID; [`Gid::UNSPECIFIED`] without one.
    pub gid: Gid,
    /// Index of the network interface.
    pub scope: u32,
    /// The services of connections.
    pub services: Services,
    /// Whether the worker receives requests.
    pub listens: bool,
    /// The largest payload of a packet.
    pub path_mtu: Option<IbMtu>,
    /// The P_Key table.
    pub pkeys: Arc<PKeyTable>,
    /// Endpoints of the port.
    pub members: HashMap<EndpointId, Member>,
}

/// One endpoint.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Member {
    /// The UD queue pair, which peers use as the identifier.
    pub qpn: Qpn,
    /// P_Key table entry in use; `None` while the endpoint waits for one.
    pub entry: Option<Entry>,
}
