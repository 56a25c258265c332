//! The control side of a fabric port.
//!
//! A [`Port`] belongs to one control thread, each of its [`Worker`]s to a data thread. Changes of
//! endpoints, groups and keys reach the workers without a lock on their packet path.

use std::net::IpAddr;
use std::os::fd::BorrowedFd;

use proto::{EndpointId, Gid, Guid, Lid, LinkLayer, PKey, PortState, QKey, Qpn, Services};
use serde::Serialize;

use crate::group::Joined;
use crate::subnet::SubnetInfo;
use crate::worker::Worker;

/// Current attributes of a port.
#[derive(Clone, Debug)]
pub struct PortAttributes {
    /// `soft/eth0`, `mlx5_0/1`.
    pub name: String,
    /// Whether the port is active.
    pub state: PortState,
    /// Why the port is not active, as text.
    pub state_reason: Option<String>,
    /// The GID in the link-layer addresses of interfaces.
    pub gid: Gid,
    /// The port GUID.
    pub guid: Guid,
    /// The LID, on InfiniBand.
    pub lid: Option<Lid>,
    /// The P_Key table by index: full and limited entries, and empty places ([`crate::pkeys::EMPTY`]).
    pub pkeys: Vec<PKey>,
    /// The largest UD payload in bytes now: an IB MTU, or the exact fit of the underlay.
    pub ud_payload_max: u32,
    /// The MTU of the Ethernet underlay in bytes, if there is one.
    pub underlay_mtu: Option<u32>,
}

/// Hardware of a port, for display only.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeviceAttributes {
    /// The link layer.
    pub link_layer: LinkLayer,
    /// The network interface below, if there is one.
    pub netdev: Option<String>,
    /// The index of the port's GID in the device's GID table, if there is one.
    pub gid_index: Option<u32>,
    /// The device's firmware version, if it has one.
    pub firmware: Option<String>,
}

/// Capabilities of a provider.
#[derive(Clone, Copy, Debug)]
pub struct Capabilities {
    /// Number of workers (and lanes) that share one advertised QPN.
    pub lanes: usize,
    /// All datagrams arrive at the first worker; false: at any worker.
    pub first_receives: bool,
    /// Whether the provider delivers multicast natively; false: it sends copies to a list of peers.
    pub multicast: bool,
    /// Maximum number of attached multicast groups.
    pub groups_max: usize,
    /// Maximum number of unanswered joins of one endpoint. A port that answers at once has the number
    /// of its groups here.
    pub group_requests: usize,
    /// The largest message of a reliable connection in bytes; 0 without connections.
    pub message_max: usize,
    /// Payload bytes of a message that one system call sends; 0 if one call sends a message of any size.
    pub message_train: usize,
    /// The services that peers' connection requests may name.
    pub services: Services,
    /// Whether [`Port::set_pkeys`] may replace the P_Key table; false if a subnet manager owns it.
    pub pkeys_settable: bool,
}

/// An asynchronous event of the port (IBA vol. 1, 11.6.3).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PortEvent {
    /// The port came up.
    Active,
    /// The port went down; the text gives the reason.
    Down(String),
    /// The port's GID changed.
    GidChange(Gid),
    /// [`PortAttributes::ud_payload_max`] changed.
    MtuChange(u32),
    /// The P_Key table changed, and with it the entry of these endpoints. Their queue pairs were
    /// restarted, or wait for the key ([`Port::endpoint_pkey`]). Other endpoints are not affected.
    PKeyChange(Vec<EndpointId>),
    /// The device came back or was reset. All queue pairs were created again; those of these endpoints
    /// have new numbers ([`Port::endpoint_qpn`]). Their groups are attached again, their connections
    /// have ended.
    QpnChange(Vec<EndpointId>),
    /// The device disappeared; it may come back.
    Removed,
    /// News of a group that an endpoint has requested: the answer to a [`Joined::Pending`] join, new
    /// parameters of a joined group, or [`Joined::Refused`] when the fabric took the group back and the
    /// endpoint is detached. Never [`Joined::Pending`].
    Group {
        /// The endpoint.
        endpoint: EndpointId,
        /// The group.
        mgid: Gid,
        /// The answer.
        joined: Joined,
    },
    /// The fabric lost its registrations and asks for them again (IBA vol. 1, 14.2.5.6,
    /// PortInfo:ClientReregister). Endpoints stay attached to their groups; their users join the groups
    /// again, spread over time.
    ClientReregister,
}

/// Parameters of a UD endpoint.
#[derive(Clone, Copy, Debug)]
pub struct UdInit {
    /// The partition; the provider looks up its table and prefers a full entry.
    pub pkey: PKey,
    /// The endpoint's Q_Key.
    pub qkey: QKey,
    /// The wanted queue pair number; if it is in use or reserved ([`Qpn::is_reserved`]), the next free
    /// one. `None`: a random one. Ignored if the hardware assigns the numbers.
    pub qpn: Option<Qpn>,
}

/// A created UD endpoint.
#[derive(Clone, Copy, Debug)]
pub struct UdEndpoint {
    /// Identifier of the endpoint.
    pub id: EndpointId,
    /// The advertised queue pair number, the same in all lanes.
    pub qpn: Qpn,
    /// The table entry in use: full or limited. `None` while the table lacks the partition; the queue
    /// pair is in RESET then, and neither sends nor receives.
    pub pkey: Option<PKey>,
}

/// The resources listed by `ibtap res`, as `rdma resource show` lists them.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Resources {
    /// Queue pairs.
    pub queue_pairs: Vec<QueuePairInfo>,
    /// Completion queues; in the software fabric, one receive ring for each worker.
    pub completion_queues: Vec<CompletionQueueInfo>,
    /// Attached multicast groups.
    pub groups: Vec<GroupInfo>,
    /// Shared receive queues.
    pub shared_receive_queues: Vec<SharedReceiveQueueInfo>,
    /// Memory regions of an RDMA device.
    pub memory_regions: Vec<MemoryRegionInfo>,
    /// Protection domains of an RDMA device: the worker of each.
    pub protection_domains: Vec<u32>,
}

/// One queue pair.
#[derive(Clone, Debug, Serialize)]
pub struct QueuePairInfo {
    /// Queue pair number.
    pub qpn: Qpn,
    /// `UD`, `RC` or `GSI`.
    #[serde(rename = "type")]
    pub kind: &'static str,
    /// `RESET`, `INIT`, `RTR`, `RTS`, `SQD`, `SQE` or `ERR`.
    pub state: &'static str,
    /// The P_Key in use; in RESET, the P_Key it waits for.
    pub pkey: PKey,
    /// Its Q_Key.
    pub qkey: QKey,
    /// Lanes, each with its own source port.
    pub lanes: usize,
    /// The endpoint that owns the queue pair.
    pub endpoint: EndpointId,
}

/// One completion queue.
#[derive(Clone, Debug, Serialize)]
pub struct CompletionQueueInfo {
    /// Completion queue number.
    pub cqn: u32,
    /// Capacity in entries.
    pub cqe: u32,
    /// The worker that polls it.
    pub worker: u32,
}

/// One shared receive queue.
#[derive(Clone, Debug, Serialize)]
pub struct SharedReceiveQueueInfo {
    /// What arrives there: `datagrams`, or `messages` of connections.
    pub contents: &'static str,
    /// Capacity in entries.
    pub srqe: u32,
    /// The worker that fills it.
    pub worker: u32,
}

/// One region of registered memory.
#[derive(Clone, Debug, Serialize)]
pub struct MemoryRegionInfo {
    /// The key of local accesses.
    pub lkey: u32,
    /// Length in bytes.
    pub mrlen: u64,
    /// The worker that uses it.
    pub worker: u32,
}

/// One attachment of a queue pair to a group.
#[derive(Clone, Debug, Serialize)]
pub struct GroupInfo {
    /// The group.
    pub mgid: Gid,
    /// The attached queue pair.
    pub qpn: Qpn,
}

/// Errors of a provider's control side.
#[derive(Debug, thiserror::Error)]
pub enum FabricError {
    /// No such endpoint.
    #[error("there is no endpoint {0:?}")]
    NoSuchEndpoint(EndpointId),
    /// A queue pair transition that the IBA does not allow.
    #[error("a queue pair cannot go from {from} to {to}")]
    IllegalTransition {
        /// The current state.
        from: &'static str,
        /// The requested state.
        to: &'static str,
    },
    /// A required attribute is missing, or a forbidden one is present.
    #[error("the queue pair transition from {from} to {to} {what}")]
    BadAttributes {
        /// The current state.
        from: &'static str,
        /// The requested state.
        to: &'static str,
        /// The fault in the attributes.
        what: String,
    },
    /// Not a multicast GID, or a GID of the other address family.
    #[error("{0} is not a multicast GID that this port can join")]
    BadGroup(Gid),
    /// A limit was reached.
    #[error("{0}")]
    Limit(String),
    /// An error of the operating system; the text is a complete sentence.
    #[error("{what}: {source}")]
    Os {
        /// The operation that failed.
        what: String,
        /// The error.
        source: std::io::Error,
    },
    /// The configuration or the underlay does not allow it; the text is a complete sentence.
    #[error("{0}")]
    Unusable(String),
}

/// A port of a fabric, for its control thread.
pub trait Port: Send {
    /// Current attributes of the port.
    fn attributes(&self) -> PortAttributes;

    /// Capabilities of the provider.
    fn capabilities(&self) -> Capabilities;

    /// Hardware of the port.
    fn device(&self) -> DeviceAttributes;

    /// Readable when [`Port::process`] has work.
    fn event_fd(&self) -> BorrowedFd<'_>;

    /// Handles external changes and returns the resulting events. Never blocks. Also call it once a
    /// second while the port is down: the cause may disappear without an event.
    fn process(&mut self) -> Vec<PortEvent>;

    /// The sockets that receive, in their order. While another process keeps them, the kernel collects the packets that
    /// arrive. Devices of the kernel have none.
    fn receiving_sockets(&self) -> Vec<BorrowedFd<'_>> {
        Vec::new()
    }

    /// Whether the workers read the [`Port::receiving_sockets`].
    fn set_receiving(&mut self, _on: bool) {}

    /// Returns the workers at the first call, none later.
    fn take_workers(&mut self) -> Vec<Box<dyn Worker>>;

    /// Creates a UD endpoint and brings it to RTS. Without its key in the table, the endpoint waits:
    /// [`UdEndpoint::pkey`] is `None`, and [`PortEvent::PKeyChange`] reports the key later.
    ///
    /// # Errors
    /// [`FabricError::Os`] for errors of the operating system.
    fn create_ud(&mut self, init: UdInit) -> Result<UdEndpoint, FabricError>;

    /// Destroys an endpoint: leaves its groups; packets for it are dropped from now on.
    ///
    /// # Errors
    /// [`FabricError::NoSuchEndpoint`].
    fn destroy_ud(&mut self, id: EndpointId) -> Result<(), FabricError>;

    /// Replaces the list of peers that get copies of multicast packets.
    ///
    /// # Errors
    /// [`FabricError::Unusable`] if the port has no such list, or if the new list is empty: the choice
    /// between groups and copies is made when the port is opened.
    fn set_peers(&mut self, peers: Vec<IpAddr>) -> Result<(), FabricError>;

    /// Replaces the P_Key table by these entries, in this order. Returns the endpoints whose entry
    /// changed by value or index; there is no [`PortEvent::PKeyChange`]. Their queue pairs were
    /// restarted and their connections have ended; their listeners work again as soon as there is an
    /// entry. (IBA vol. 1, 10.9.2; kernel drivers/infiniband/ulp/ipoib/ipoib_ib.c,
    /// `update_child_pkey`.)
    ///
    /// Invalid and repeated keys are empty places; a table without any entry is the default partition
    /// ([`crate::PKeyTable::new`]). [`crate::pkeys::keep_places`] makes a list that does not disturb
    /// other endpoints.
    ///
    /// # Errors
    /// [`FabricError::Unusable`] if a subnet manager owns the table.
    fn set_pkeys(&mut self, pkeys: Vec<PKey>) -> Result<Vec<EndpointId>, FabricError>;

    /// The table entry in use by an endpoint; `None` while it waits for one.
    fn endpoint_pkey(&self, id: EndpointId) -> Option<PKey>;

    /// The queue pair number of an endpoint; the last one while the device is away. `None` for an
    /// unknown endpoint.
    fn endpoint_qpn(&self, id: EndpointId) -> Option<Qpn>;

    /// Changes the Q_Key of an endpoint, because its group has another one. The queue pair restarts if
    /// the key differs; its number stays.
    ///
    /// # Errors
    /// [`FabricError::NoSuchEndpoint`].
    fn set_qkey(&mut self, id: EndpointId, qkey: QKey) -> Result<(), FabricError>;

    /// Removes an endpoint from the groups `leaves`, which makes room, and then joins it to the groups
    /// `joins`. The port's tables change once for all groups. Returns the answer to each join, in the
    /// order of `joins`.
    ///
    /// * [`Joined::Now`]: packets for the group reach the endpoint from now on. Joining a group again
    ///   is no error: the answer has the group's current parameters, and the endpoint stays attached.
    /// * [`Joined::Pending`]: the port asks the fabric, repeats the request while useful, and answers
    ///   once with [`PortEvent::Group`]. A caller has at most [`Capabilities::group_requests`]
    ///   unanswered joins of one endpoint. After [`PortEvent::ClientReregister`] and
    ///   [`PortEvent::Active`], the answers to earlier requests may never come: the caller asks for
    ///   these groups again. A request that is still open does not change then.
    /// * [`Joined::Refused`]: the port does nothing more; the caller may try again.
    ///
    /// Leaving a group before the answer ends the request; a late answer attaches nothing. Leaving a
    /// group that was not joined is no error.
    ///
    /// Several endpoints of a port may be in one group. The fabric knows one member for each port GID
    /// and MGID (IBA vol. 1, 15.2.5.17, the record's RID). The port counts its members: the first
    /// endpoint joins, the last one leaves.
    ///
    /// # Errors
    /// [`FabricError::NoSuchEndpoint`].
    fn change_groups(
        &mut self,
        id: EndpointId,
        joins: &[Gid],
        leaves: &[Gid],
    ) -> Result<Vec<Joined>, FabricError>;

    /// Resources in use, for display.
    fn resources(&self) -> Resources;

    /// The subnet of the port, for display; `None` without a subnet administrator.
    fn subnet(&self) -> Option<SubnetInfo<'_>> {
        None
    }
}
