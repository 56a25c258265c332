//! The control side of a fabric port.
//!
//! A [`Port`] belongs to one control thread; its [`Worker`]s each belong to a data thread. What
//! changes here (endpoints, groups, keys) reaches the workers without a lock on their packet path.

use std::net::IpAddr;
use std::os::fd::BorrowedFd;

use proto::{EndpointId, Gid, Guid, Lid, LinkLayer, PKey, PortState, QKey, Qpn, Services};
use serde::Serialize;

use crate::group::Joined;
use crate::worker::Worker;

/// What a port is like now.
#[derive(Clone, Debug)]
pub struct PortAttributes {
    /// `soft/eth0`, `mlx5_0/1`.
    pub name: String,
    /// Whether packets flow.
    pub state: PortState,
    /// Why the state is not active, in words for a person.
    pub state_reason: Option<String>,
    /// The GID that devices put into their addresses.
    pub gid: Gid,
    /// The port GUID.
    pub guid: Guid,
    /// The LID, on an InfiniBand link layer.
    pub lid: Option<Lid>,
    /// The P_Key table by index; entries may be full or limited, and places may be empty
    /// ([`crate::pkeys::EMPTY`]).
    pub pkeys: Vec<PKey>,
    /// The largest UD payload in bytes that fits now: an IB MTU, or the exact fit of the underlay.
    pub ud_payload_max: u32,
    /// The MTU of the Ethernet underlay in bytes, where there is one.
    pub underlay_mtu: Option<u32>,
}

/// What a port runs on, for people. Nothing depends on it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeviceAttributes {
    /// What carries its packets.
    pub link_layer: LinkLayer,
    /// The Ethernet interface below, where there is one.
    pub netdev: Option<String>,
    /// Where its GID is in the device's GID table, where there is one.
    pub gid_index: Option<u32>,
    /// The device's firmware, where it has some.
    pub firmware: Option<String>,
}

/// What a provider can do; asked, never guessed.
#[derive(Clone, Copy, Debug)]
pub struct Capabilities {
    /// How many workers (and so lanes) share one advertised QPN.
    pub lanes: usize,
    /// Bytes of UD payload that one train may hold in all, packet overhead not counted.
    pub train_bytes: usize,
    /// Packets that one train may hold.
    pub train_packets: usize,
    /// Whether the provider delivers multicast natively (false: copies to a list of peers).
    pub multicast: bool,
    /// Multicast groups that may be attached.
    pub groups_max: usize,
    /// Joins of one endpoint that may wait for their answers at once. A port that answers at once takes
    /// as many as it has groups.
    pub group_requests: usize,
    /// The largest message of a reliable connection in bytes; 0 where there are none.
    pub message_max: usize,
    /// Which services peers' requests for connections may name.
    pub services: Services,
    /// Whether [`Port::set_pkeys`] may replace the P_Key table: it is not a subnet manager's.
    pub pkeys_settable: bool,
}

/// An asynchronous event of the port (IBA vol. 1, 11.6.3).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PortEvent {
    /// The port came up.
    Active,
    /// The port went down; the text says why.
    Down(String),
    /// The port's GID changed.
    GidChange(Gid),
    /// [`PortAttributes::ud_payload_max`] changed.
    MtuChange(u32),
    /// The P_Key table changed, and with it the entry of these endpoints: their queue pairs were
    /// restarted, or wait for the key ([`Port::endpoint_pkey`]). All others go on undisturbed.
    PKeyChange(Vec<EndpointId>),
    /// The device came back, or was reset: its queue pairs were made anew, and those of these
    /// endpoints have other numbers now ([`Port::endpoint_qpn`]). Their groups are attached again,
    /// their connections have ended.
    QpnChange(Vec<EndpointId>),
    /// The device vanished; it may come back.
    Removed,
    /// What became of a group that an endpoint has asked for: the answer to a join that was
    /// [`Joined::Pending`], new parameters of a group that is joined, or [`Joined::Refused`] for one that
    /// the fabric has taken back, from which the endpoint is detached then. Never [`Joined::Pending`].
    Group {
        /// The endpoint.
        endpoint: EndpointId,
        /// The group.
        mgid: Gid,
        /// The answer.
        joined: Joined,
    },
    /// The fabric has forgotten what it was asked for, and wants to be asked again (IBA vol. 1, 14.2.5.6,
    /// PortInfo:ClientReregister). Endpoints stay attached to their groups, which their users join once
    /// more, not all at the same moment.
    ClientReregister,
}

/// How to make a UD endpoint.
#[derive(Clone, Copy, Debug)]
pub struct UdInit {
    /// The partition; the provider looks up its table, preferring a full-member entry.
    pub pkey: PKey,
    /// The endpoint's Q_Key.
    pub qkey: QKey,
    /// The queue pair number wished for: the next free one is taken if this is in use or reserved
    /// ([`Qpn::is_reserved`]). `None`: a random one. A provider whose hardware draws the numbers does
    /// not heed it.
    pub qpn: Option<Qpn>,
}

/// A made UD endpoint.
#[derive(Clone, Copy, Debug)]
pub struct UdEndpoint {
    /// Its name here.
    pub id: EndpointId,
    /// The advertised queue pair number, the same in all lanes.
    pub qpn: Qpn,
    /// The table entry in use: full or limited. `None` while the table lacks the partition: the queue
    /// pair is in RESET then, and sends and receives nothing.
    pub pkey: Option<PKey>,
}

/// What `ibtap res` lists, like `rdma resource show`.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Resources {
    /// Queue pairs.
    pub queue_pairs: Vec<QueuePairInfo>,
    /// Completion queues (or what stands for them: one receive ring for each worker).
    pub completion_queues: Vec<CompletionQueueInfo>,
    /// Attached multicast groups.
    pub groups: Vec<GroupInfo>,
}

/// One queue pair.
#[derive(Clone, Debug, Serialize)]
pub struct QueuePairInfo {
    /// Its number.
    pub qpn: Qpn,
    /// `UD`, `RC` or `GSI`.
    #[serde(rename = "type")]
    pub kind: &'static str,
    /// `RESET`, `INIT`, `RTR`, `RTS`, `SQD`, `SQE` or `ERR`.
    pub state: &'static str,
    /// The P_Key it uses, or waits for in RESET.
    pub pkey: PKey,
    /// Its Q_Key.
    pub qkey: QKey,
    /// Lanes, each with a source port of its own.
    pub lanes: usize,
    /// The endpoint it belongs to.
    pub endpoint: EndpointId,
}

/// One completion queue.
#[derive(Clone, Debug, Serialize)]
pub struct CompletionQueueInfo {
    /// Its number.
    pub cqn: u32,
    /// Capacity in entries.
    pub cqe: u32,
    /// The worker that polls it.
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

/// Why the control side of a provider refused.
#[derive(Debug, thiserror::Error)]
pub enum FabricError {
    /// No such endpoint.
    #[error("there is no endpoint {0:?}")]
    NoSuchEndpoint(EndpointId),
    /// A queue pair transition that the IBA does not allow.
    #[error("a queue pair cannot go from {from} to {to}")]
    IllegalTransition {
        /// The state it is in.
        from: &'static str,
        /// The state asked for.
        to: &'static str,
    },
    /// A required attribute is missing, or one that is not allowed is there.
    #[error("the queue pair transition from {from} to {to} {what}")]
    BadAttributes {
        /// The state it is in.
        from: &'static str,
        /// The state asked for.
        to: &'static str,
        /// What is wrong with the attributes.
        what: String,
    },
    /// Not a multicast GID, or one of the other address family.
    #[error("{0} is not a multicast GID that this port can join")]
    BadGroup(Gid),
    /// A limit was reached.
    #[error("{0}")]
    Limit(String),
    /// The operating system refused; the text is a whole sentence.
    #[error("{what}: {source}")]
    Os {
        /// What was tried.
        what: String,
        /// Its answer.
        source: std::io::Error,
    },
    /// The configuration or the underlay does not allow it; the text is a whole sentence.
    #[error("{0}")]
    Unusable(String),
}

/// A port of a fabric, as its control thread sees it.
pub trait Port: Send {
    /// What the port is like now.
    fn attributes(&self) -> PortAttributes;

    /// What the provider can do.
    fn capabilities(&self) -> Capabilities;

    /// What the port runs on.
    fn device(&self) -> DeviceAttributes;

    /// Readable when [`Port::process`] has something to do.
    fn event_fd(&self) -> BorrowedFd<'_>;

    /// Looks at what happened outside and tells what it means for the port. Never blocks. To be
    /// called once a second, too, while the port is down: what kept it down may pass without notice.
    fn process(&mut self) -> Vec<PortEvent>;

    /// Hands out the workers, once; later calls give none.
    fn take_workers(&mut self) -> Vec<Box<dyn Worker>>;

    /// Makes a UD endpoint and brings it to RTS. When the table lacks the key, the endpoint waits
    /// for it: [`UdEndpoint::pkey`] is `None`, and [`PortEvent::PKeyChange`] tells when it has come.
    ///
    /// # Errors
    /// [`FabricError::Os`] when the operating system refuses.
    fn create_ud(&mut self, init: UdInit) -> Result<UdEndpoint, FabricError>;

    /// Ends an endpoint: its groups are left, packets for it are dropped from now on.
    ///
    /// # Errors
    /// [`FabricError::NoSuchEndpoint`].
    fn destroy_ud(&mut self, id: EndpointId) -> Result<(), FabricError>;

    /// Changes the list of peers that copies of multicast packets go to.
    ///
    /// # Errors
    /// [`FabricError::Unusable`] when the port has no such list, or would have none any more: what
    /// multicast becomes is decided when the port is opened.
    fn set_peers(&mut self, peers: Vec<IpAddr>) -> Result<(), FabricError>;

    /// Replaces the P_Key table by these entries, in this order. The same follows as from
    /// [`PortEvent::PKeyChange`], which is not raised: gives the endpoints whose entry, by value or by
    /// index, is another one now. Their queue pairs were restarted and their connections have ended;
    /// who listens on a service goes on when there is an entry again. (IBA vol. 1, 10.9.2; kernel
    /// drivers/infiniband/ulp/ipoib/ipoib_ib.c, `update_child_pkey`.)
    ///
    /// Invalid keys and repeated ones are empty places, and a table without any entry is the default
    /// partition ([`crate::PKeyTable::new`]). [`crate::pkeys::keep_places`] makes a list that leaves
    /// alone whom the change does not concern.
    ///
    /// # Errors
    /// [`FabricError::Unusable`] when the table is not ours to change: a subnet manager's.
    fn set_pkeys(&mut self, pkeys: Vec<PKey>) -> Result<Vec<EndpointId>, FabricError>;

    /// The table entry that an endpoint uses now; `None` while it waits for one.
    fn endpoint_pkey(&self, id: EndpointId) -> Option<PKey>;

    /// The queue pair number that an endpoint has now; `None` if there is no such endpoint. While the
    /// device is away it is the last one.
    fn endpoint_qpn(&self, id: EndpointId) -> Option<Qpn>;

    /// Joins an endpoint to the groups `joins` and takes it out of the groups `leaves`, the leaves first, so
    /// that they make room. However many groups these are, the port's tables change once. Gives the answer
    /// to each join, in the order of `joins`.
    ///
    /// * [`Joined::Now`]: packets for the group reach the endpoint from now on. To join a group once more is
    ///   no error: the answer is what the fabric says of the group now, and the endpoint stays attached
    ///   meanwhile.
    /// * [`Joined::Pending`]: the port asks the fabric, repeats the request as long as that is of use, and
    ///   answers once with [`PortEvent::Group`]. A client lets no more than
    ///   [`Capabilities::group_requests`] joins of one endpoint be unanswered.
    /// * [`Joined::Refused`]: the port does nothing more; to try again is the client's.
    ///
    /// A group that is left before the answer came is left: the port ends the request, and an answer that
    /// comes nevertheless attaches nothing. To leave a group that was not joined is no error.
    ///
    /// Several endpoints of a port may be in one group. The fabric knows one member for each port GID and
    /// MGID (IBA vol. 1, 15.2.5.17, the record's RID), which the port counts: the first of its endpoints
    /// joins, the last one leaves.
    ///
    /// # Errors
    /// [`FabricError::NoSuchEndpoint`].
    fn change_groups(
        &mut self,
        id: EndpointId,
        joins: &[Gid],
        leaves: &[Gid],
    ) -> Result<Vec<Joined>, FabricError>;

    /// What is in use, for people.
    fn resources(&self) -> Resources;
}
