//! Events of communication management (rdma_get_cm_event(3)).

use proto::Qpn;

use super::id::CmId;
use crate::verbs::sys::*;

/// The key of an identifier, unique within its channel.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct CmKey(pub(super) usize);

/// Kind of an event.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs, reason = "the names are the field's")]
pub enum CmEventKind {
    AddressResolved,
    AddressError,
    RouteResolved,
    RouteError,
    /// A peer requests a connection; [`CmEvent::request`] is its identifier.
    ConnectRequest,
    /// A peer accepts; confirm with [`CmId::establish`].
    ConnectResponse,
    ConnectError,
    Unreachable,
    Rejected,
    Established,
    Disconnected,
    DeviceRemoval,
    AddressChange,
    TimewaitExit,
    /// A group was joined; [`CmEvent::context`] is the join's.
    MulticastJoin,
    /// A join failed, or a joined group was lost.
    MulticastError,
    Other(u32),
}

impl CmEventKind {
    pub(super) fn new(code: rdma_cm_event_type) -> CmEventKind {
        match code {
            RDMA_CM_EVENT_ADDR_RESOLVED => CmEventKind::AddressResolved,
            RDMA_CM_EVENT_ADDR_ERROR => CmEventKind::AddressError,
            RDMA_CM_EVENT_ROUTE_RESOLVED => CmEventKind::RouteResolved,
            RDMA_CM_EVENT_ROUTE_ERROR => CmEventKind::RouteError,
            RDMA_CM_EVENT_CONNECT_REQUEST => CmEventKind::ConnectRequest,
            RDMA_CM_EVENT_CONNECT_RESPONSE => CmEventKind::ConnectResponse,
            RDMA_CM_EVENT_CONNECT_ERROR => CmEventKind::ConnectError,
            RDMA_CM_EVENT_UNREACHABLE => CmEventKind::Unreachable,
            RDMA_CM_EVENT_REJECTED => CmEventKind::Rejected,
            RDMA_CM_EVENT_ESTABLISHED => CmEventKind::Established,
            RDMA_CM_EVENT_DISCONNECTED => CmEventKind::Disconnected,
            RDMA_CM_EVENT_DEVICE_REMOVAL => CmEventKind::DeviceRemoval,
            RDMA_CM_EVENT_ADDR_CHANGE => CmEventKind::AddressChange,
            RDMA_CM_EVENT_TIMEWAIT_EXIT => CmEventKind::TimewaitExit,
            RDMA_CM_EVENT_MULTICAST_JOIN => CmEventKind::MulticastJoin,
            RDMA_CM_EVENT_MULTICAST_ERROR => CmEventKind::MulticastError,
            other => CmEventKind::Other(other),
        }
    }

    /// Whether the event has the peer's parameters (rdma_get_cm_event(3), "rdma_conn_param").
    pub(super) fn has_parameters(self) -> bool {
        matches!(
            self,
            CmEventKind::ConnectRequest
                | CmEventKind::ConnectResponse
                | CmEventKind::Rejected
                | CmEventKind::Established
        )
    }
}

/// An event, already acknowledged.
#[derive(Debug)]
pub struct CmEvent {
    /// The identifier of the event; of a request, the one in `request`.
    pub id: CmKey,
    /// Kind.
    pub kind: CmEventKind,
    /// 0, a negative errno, or for [`CmEventKind::Rejected`] the reason (IBA vol. 1, 12.6.7.2).
    pub status: i32,
    /// Of a request: the listener.
    pub listener: Option<CmKey>,
    /// Of a request: the identifier of the connection, bound to a device.
    pub request: Option<CmId>,
    /// The peer's private data, padded with zeros to the length of the message's field.
    pub private_data: Vec<u8>,
    /// The peer's queue pair, in requests and responses.
    pub qpn: Qpn,
    /// Of a group: the context of [`CmId::join_multicast`].
    pub context: usize,
}
