//! Events of communication management (rdma_get_cm_event(3)).

use proto::Qpn;

use super::id::CmId;
use crate::verbs::sys::*;

/// Tells an identifier from the others of its channel.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct CmKey(pub(super) usize);

/// What happened.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs, reason = "the names are the field's")]
pub enum CmEventKind {
    AddressResolved,
    AddressError,
    RouteResolved,
    RouteError,
    /// A peer asks for a connection; [`CmEvent::request`] is its identifier.
    ConnectRequest,
    /// A peer consents; to be confirmed ([`CmId::establish`]).
    ConnectResponse,
    ConnectError,
    Unreachable,
    Rejected,
    Established,
    Disconnected,
    DeviceRemoval,
    AddressChange,
    TimewaitExit,
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
            other => CmEventKind::Other(other),
        }
    }

    /// Whether the event brings what the peer said (rdma_get_cm_event(3), "rdma_conn_param").
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

/// An event, acknowledged already.
#[derive(Debug)]
pub struct CmEvent {
    /// Whose it is; of a request that of `request`.
    pub id: CmKey,
    /// What happened.
    pub kind: CmEventKind,
    /// 0, a negative errno, or of [`CmEventKind::Rejected`] the reason (IBA vol. 1, 12.6.7.2).
    pub status: i32,
    /// Of a request: who listens.
    pub listener: Option<CmKey>,
    /// Of a request: the connection's identifier, bound to a device.
    pub request: Option<CmId>,
    /// What the peer said; with zeros behind it, as the message had room.
    pub private_data: Vec<u8>,
    /// The peer's queue pair, in requests and responses.
    pub qpn: Qpn,
}
