//! Types for reliable connections: service ids, events, reasons.

use std::fmt;
use std::io;

use serde::{Deserialize, Serialize};

use crate::gid::Gid;
use crate::port::EndpointId;

/// The id by which requests find a listener, 64 bits (IBA vol. 1, annex A3).
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct ServiceId(pub u64);

impl ServiceId {
    /// The service of an rdma_cm port number in the port space RDMA_PS_TCP (include/rdma/rdma_cm.h,
    /// `enum rdma_ucm_port_space`; kernel drivers/infiniband/core/cma.c, `rdma_get_service_id`).
    ///
    /// Its requests carry rdma_cm's header of 36 bytes before at most 56 bytes of private data; providers
    /// write and strip the header. Several endpoints of a port may listen on the same service:
    /// `ConnectRequest::to` of the crate `fabric` selects the endpoint.
    pub const fn rdma_cm(port: u16) -> ServiceId {
        ServiceId(0x0106 << 16 | port as u64)
    }

    /// The datagram service of an rdma_cm port number in the port space RDMA_PS_UDP. Its requests carry the
    /// same header before at most 180 bytes of private data.
    pub const fn rdma_cm_datagrams(port: u16) -> ServiceId {
        ServiceId(0x0111 << 16 | port as u64)
    }

    /// The service of an rdma_cm port number in the port space RDMA_PS_IB, which has no IP addresses
    /// (include/rdma/ib.h, `RDMA_IB_IP_PS_IB`; kernel drivers/infiniband/core/cma.c, `cma_select_ib_ps`).
    ///
    /// Its requests carry 92 bytes of private data without a header. Several endpoints of a port may listen
    /// on the same service: `ConnectRequest::to` of the crate `fabric` selects the endpoint.
    pub const fn rdma_ib(port: u16) -> ServiceId {
        ServiceId(0x013f << 16 | port as u64)
    }

    /// The port number of a service made by [`ServiceId::rdma_ib`].
    pub const fn rdma_ib_port(self) -> Option<u16> {
        if self.0 >> 16 == 0x013f {
            Some((self.0 & 0xffff) as u16)
        } else {
            None
        }
    }

    /// Whether requests for the service carry rdma_cm's header.
    pub const fn is_rdma_cm(self) -> bool {
        matches!(self.0 >> 16, 0x0106 | 0x0111)
    }

    /// The port number of a service made by [`ServiceId::rdma_cm`].
    pub const fn rdma_cm_port(self) -> Option<u16> {
        if self.0 >> 16 == 0x0106 {
            Some((self.0 & 0xffff) as u16)
        } else {
            None
        }
    }
}

impl fmt::Display for ServiceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#018x}", self.0)
    }
}

/// Identifies a connection of a worker. Never reused while the worker lives.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct ConnectionId(pub u32);

/// Why a request or a reply was rejected (IBA vol. 1, 12.6.7.2; include/rdma/ib_cm.h,
/// `enum ib_cm_rej_reason`).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(transparent)]
pub struct RejectReason(pub u16);

impl RejectReason {
    /// No queue pair available.
    pub const NO_QP: RejectReason = RejectReason(1);
    /// No resources available.
    pub const NO_RESOURCES: RejectReason = RejectReason(3);
    /// The peer did not answer in time.
    pub const TIMEOUT: RejectReason = RejectReason(4);
    /// The communication ids match no connection.
    pub const INVALID_COMM_ID: RejectReason = RejectReason(6);
    /// No listener on the service id.
    pub const INVALID_SERVICE_ID: RejectReason = RejectReason(8);
    /// The transport service type is not supported.
    pub const INVALID_TRANSPORT_TYPE: RejectReason = RejectReason(9);
    /// The queue pair belongs to an earlier connection.
    pub const STALE_CONNECTION: RejectReason = RejectReason(10);
    /// The GID or the P_Key is not in the port's tables.
    pub const INVALID_GID: RejectReason = RejectReason(12);
    /// The path MTU is not supported.
    pub const INVALID_MTU: RejectReason = RejectReason(26);
    /// The consumer refused the connection.
    pub const CONSUMER: RejectReason = RejectReason(28);
    /// The communication id is in use.
    pub const DUPLICATE_COMM_ID: RejectReason = RejectReason(30);

    /// The reason in words (IBA vol. 1, 12.6.7.2, table 108).
    pub const fn name(self) -> Option<&'static str> {
        Some(match self.0 {
            1 => "no QP available",
            2 => "no EEC available",
            3 => "no resources available",
            4 => "timeout",
            5 => "unsupported request",
            6 => "invalid communication ID",
            7 => "invalid communication instance",
            8 => "invalid service ID",
            9 => "invalid transport service type",
            10 => "stale connection",
            11 => "RDC does not exist",
            12 => "primary remote port GID rejected",
            13 => "primary remote port LID rejected",
            14 => "invalid primary SL",
            15 => "invalid primary traffic class",
            16 => "invalid primary hop limit",
            17 => "invalid primary packet rate",
            18 => "alternate remote port GID rejected",
            19 => "alternate remote port LID rejected",
            20 => "invalid alternate SL",
            21 => "invalid alternate traffic class",
            22 => "invalid alternate hop limit",
            23 => "invalid alternate packet rate",
            24 => "port and CM redirection",
            25 => "port redirection",
            26 => "invalid path MTU",
            27 => "insufficient responder resources",
            28 => "consumer reject",
            29 => "RNR retry count reject",
            30 => "duplicate local communication ID",
            31 => "unsupported class version",
            32 => "invalid primary flow label",
            33 => "invalid alternate flow label",
            _ => return None,
        })
    }
}

impl fmt::Display for RejectReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => f.write_str(name),
            None => write!(f, "reason {}", self.0),
        }
    }
}

/// The status of a work completion, with the numbers of the kernel (IBA vol. 1, 11.6.2;
/// include/rdma/ib_verbs.h, `enum ib_wc_status`).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
#[allow(missing_docs, reason = "the names are the field's")]
pub enum WcStatus {
    Success = 0,
    LocLenErr = 1,
    LocQpOpErr = 2,
    LocProtErr = 4,
    WrFlushErr = 5,
    BadRespErr = 7,
    LocAccessErr = 8,
    RemInvReqErr = 9,
    RemAccessErr = 10,
    RemOpErr = 11,
    RetryExcErr = 12,
    RnrRetryExcErr = 13,
    FatalErr = 19,
    GeneralErr = 21,
}

impl WcStatus {
    /// The name in the header, without the prefix `IB_WC_`.
    pub const fn name(self) -> &'static str {
        match self {
            WcStatus::Success => "SUCCESS",
            WcStatus::LocLenErr => "LOC_LEN_ERR",
            WcStatus::LocQpOpErr => "LOC_QP_OP_ERR",
            WcStatus::LocProtErr => "LOC_PROT_ERR",
            WcStatus::WrFlushErr => "WR_FLUSH_ERR",
            WcStatus::BadRespErr => "BAD_RESP_ERR",
            WcStatus::LocAccessErr => "LOC_ACCESS_ERR",
            WcStatus::RemInvReqErr => "REM_INV_REQ_ERR",
            WcStatus::RemAccessErr => "REM_ACCESS_ERR",
            WcStatus::RemOpErr => "REM_OP_ERR",
            WcStatus::RetryExcErr => "RETRY_EXC_ERR",
            WcStatus::RnrRetryExcErr => "RNR_RETRY_EXC_ERR",
            WcStatus::FatalErr => "FATAL_ERR",
            WcStatus::GeneralErr => "GENERAL_ERR",
        }
    }
}

impl fmt::Display for WcStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The reason for the end of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CloseReason {
    /// The peer disconnected (DREQ).
    Disconnected,
    /// The peer rejected the request, or rejected the connection after its reply.
    Rejected(RejectReason),
    /// The peer did not answer during setup.
    TimedOut,
    /// The queue pair failed. Messages without acknowledgement may or may not have arrived.
    Failed(WcStatus),
    /// The port lost the connection's address, or its RDMA device.
    PortGone,
    /// The network no longer carries packets of the connection's path MTU, or carries larger ones.
    PathMtu,
    /// The P_Key at the endpoint's index of the P_Key table changed or was removed (`set_pkeys` of the
    /// port).
    PKeyChange,
}

/// An event of a connection.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ConnectionEvent {
    /// A peer requests a connection. Answer with `accept` or `reject`.
    Requested {
        /// The id of the new connection.
        connection: ConnectionId,
        /// The listener.
        endpoint: EndpointId,
        /// The requested service.
        service: ServiceId,
        /// The requester: the source GID of the packet. The GID in the request must be the same.
        peer: Gid,
        /// The private data, all 92 bytes; for a service of [`ServiceId::rdma_cm`] the 56 bytes after the
        /// header.
        private_data: Box<[u8]>,
    },
    /// The listener accepted. Answer with `establish` or `reject`.
    Replied {
        /// The connection.
        connection: ConnectionId,
        /// The private data, all 196 bytes.
        private_data: Box<[u8]>,
    },
    /// The connection ended; its id is no longer valid.
    Closed {
        /// The connection.
        connection: ConnectionId,
        /// The reason.
        reason: CloseReason,
    },
}

/// The reason why a connection could not be started.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// The provider's connection table is full.
    #[error("the connection table is full")]
    Full,
    /// The port has no GID at present: the underlay or the RDMA device is absent.
    #[error("the port has no GID")]
    NoGid,
    /// The port has no GID of the peer's address family, or no path to the peer.
    #[error("the port has no address to reach {0} from")]
    Unreachable(Gid),
    /// The endpoint does not exist.
    #[error("endpoint {0:?} does not exist")]
    NoSuchEndpoint(EndpointId),
    /// The endpoint's P_Key is not in the port's table yet.
    #[error("the P_Key of endpoint {0:?} is not in the port's table")]
    NoPKey(EndpointId),
    /// Errors of the operating system.
    #[error(transparent)]
    Os(#[from] io::Error),
}
