//! Reliable connections as devices see them: [`Connections`], a part of a [`crate::Worker`].
//!
//! A connection is one RC queue pair and what communication management has agreed on about it (IBA
//! vol. 1, 9.7 and chapter 12). It is found by a service id, set up with some private data of each
//! side, and carries whole messages, in order and exactly once, until one side closes it or it
//! fails with a work completion status. Each worker has connections of its own.

use std::fmt;
use std::io;

use serde::{Deserialize, Serialize};

use crate::port::EndpointId;
use crate::time::Instant;
use crate::types::{Gid, PKey, Qpn};
use crate::worker::{Train, TrainTicket};

/// What a listener is found by, 64 bits (IBA vol. 1, annex A3).
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct ServiceId(pub u64);

impl ServiceId {
    /// The service of a port number in rdma_cm's port space RDMA_PS_TCP (include/rdma/rdma_cm.h,
    /// `enum rdma_ucm_port_space`; kernel drivers/infiniband/core/cma.c, `rdma_get_service_id`).
    ///
    /// Requests for it carry rdma_cm's header of 36 bytes in front of at most 56 bytes of private
    /// data; providers write and strip it. Several endpoints of a port may listen on one such service:
    /// [`ConnectRequest::to`] says which of them is meant.
    pub const fn rdma_cm(port: u16) -> ServiceId {
        ServiceId(0x0106 << 16 | port as u64)
    }

    /// The datagram service of a port number in rdma_cm's port space RDMA_PS_UDP. Requests for it carry
    /// the same header, in front of at most 180 bytes of private data.
    pub const fn rdma_cm_datagrams(port: u16) -> ServiceId {
        ServiceId(0x0111 << 16 | port as u64)
    }

    /// Whether requests for the service carry rdma_cm's header.
    pub const fn is_rdma_cm(self) -> bool {
        matches!(self.0 >> 16, 0x0106 | 0x0111)
    }

    /// The port number, if the service is one of [`ServiceId::rdma_cm`].
    pub const fn rdma_cm_port(self) -> Option<u16> {
        if self.0 >> 16 == 0x0106 {
            Some(self.0 as u16)
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

/// Names a connection of one worker. Never reused while the worker lives.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct ConnectionId(pub u32);

/// Why a request or a reply was rejected (IBA vol. 1, 12.6.7.2; include/rdma/ib_cm.h,
/// `enum ib_cm_rej_reason`). [`crate::mad::reject_reason`] has the names.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(transparent)]
pub struct RejectReason(pub u16);

impl RejectReason {
    /// No queue pair available.
    pub const NO_QP: RejectReason = RejectReason(1);
    /// No resources available.
    pub const NO_RESOURCES: RejectReason = RejectReason(3);
    /// The other side did not go on in time.
    pub const TIMEOUT: RejectReason = RejectReason(4);
    /// No connection has the communication ids.
    pub const INVALID_COMM_ID: RejectReason = RejectReason(6);
    /// Nobody listens on the service id.
    pub const INVALID_SERVICE_ID: RejectReason = RejectReason(8);
    /// The transport service type is not served.
    pub const INVALID_TRANSPORT_TYPE: RejectReason = RejectReason(9);
    /// The queue pair is known from an earlier connection.
    pub const STALE_CONNECTION: RejectReason = RejectReason(10);
    /// The GID, or the P_Key, is not this port's.
    pub const INVALID_GID: RejectReason = RejectReason(12);
    /// The path MTU cannot be had.
    pub const INVALID_MTU: RejectReason = RejectReason(26);
    /// The consumer does not want the connection.
    pub const CONSUMER: RejectReason = RejectReason(28);
    /// The communication id is in use.
    pub const DUPLICATE_COMM_ID: RejectReason = RejectReason(30);
}

impl fmt::Display for RejectReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match crate::mad::reject_reason(self.0) {
            Some(name) => f.write_str(name),
            None => write!(f, "reason {}", self.0),
        }
    }
}

/// The status of a work completion (IBA vol. 1, 11.6.2; include/rdma/ib_verbs.h,
/// `enum ib_wc_status`, whose numbers these are).
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
    /// As in the header, without the prefix `IB_WC_`.
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

/// What a connection is asked for with.
#[derive(Clone, Copy, Debug)]
pub struct ConnectRequest<'a> {
    /// Who is to listen.
    pub service: ServiceId,
    /// Where: the peer's GID.
    pub peer: Gid,
    /// Which of the endpoints that listen on a service of [`ServiceId::rdma_cm`] is meant: its UD queue
    /// pair, which goes into the last four of the 56 bytes of private data. 0: the only one. Other
    /// services have one listener each, and it is not looked at.
    pub to: Qpn,
    /// For the listener; at most 92 bytes, 52 for a service of [`ServiceId::rdma_cm`].
    pub private_data: &'a [u8],
}

/// Why a connection ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CloseReason {
    /// The peer asked for it (DREQ).
    Disconnected,
    /// The peer did not take the request, or took back its consent.
    Rejected(RejectReason),
    /// The peer did not answer in setting it up.
    TimedOut,
    /// The queue pair failed: what was posted and not acknowledged may or may not have arrived.
    Failed(WcStatus),
    /// The port lost the address that the connection stood on, or carries packets of its size no
    /// more.
    PortGone,
    /// The network takes no packets of the connection's path MTU any more.
    PathMtu,
    /// The endpoint's entry of the P_Key table is another one now, or gone
    /// ([`crate::Port::set_pkeys`]).
    PKeyChange,
}

/// What happens to connections; from [`Connections::poll_event`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ConnectionEvent {
    /// A peer asks for one: to be answered by [`Connections::accept`] or [`Connections::reject`].
    Requested {
        /// Its name from now on.
        connection: ConnectionId,
        /// Who listens.
        endpoint: EndpointId,
        /// The service asked for.
        service: ServiceId,
        /// Who asks: the source of the packet, which its own GID must equal.
        peer: Gid,
        /// What it said, all 92 bytes; for a service of [`ServiceId::rdma_cm`] the 56 behind its header.
        private_data: Box<[u8]>,
    },
    /// The listener consents: to be answered by [`Connections::establish`] or
    /// [`Connections::reject`].
    Replied {
        /// The connection.
        connection: ConnectionId,
        /// What it said, all 196 bytes.
        private_data: Box<[u8]>,
    },
    /// The connection is over, and its name with it.
    Closed {
        /// The connection.
        connection: ConnectionId,
        /// Why.
        reason: CloseReason,
    },
}

/// Why no connection was begun.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// The provider's table is full.
    #[error("there are as many connections as there may be")]
    Full,
    /// There is no address to connect from, or it is of another family than the peer's.
    #[error("the port has no address to reach {0} from")]
    Unreachable(Gid),
    /// The endpoint is gone.
    #[error("there is no endpoint {0:?}")]
    NoSuchEndpoint(EndpointId),
    /// The endpoint waits for its P_Key to come into the port's table.
    #[error("the P_Key of endpoint {0:?} is not in the port's table")]
    NoPKey(EndpointId),
    /// The operating system refused.
    #[error(transparent)]
    Os(#[from] io::Error),
}

/// What became of [`Connections::post`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Posted {
    /// On its way.
    Done,
    /// On its way, and nothing more fits the window now: [`crate::Worker::has_room`] is false until
    /// there is room.
    Full,
    /// The connection does not take it any more; it is lost.
    Refused,
}

/// One connection, for people.
#[derive(Clone, Debug)]
pub struct ConnectionInfo {
    /// The connection.
    pub connection: ConnectionId,
    /// Whose it is.
    pub endpoint: EndpointId,
    /// Our RC queue pair.
    pub local_qpn: Qpn,
    /// The peer's; 0 while it is not known.
    pub remote_qpn: Qpn,
    /// Our GID.
    pub local_gid: Gid,
    /// The peer's GID.
    pub remote_gid: Gid,
    /// The partition.
    pub pkey: PKey,
    /// We asked for it; the peer did otherwise.
    pub active: bool,
    /// As the communication manager names it: `REQ_SENT`, `REP_SENT`, `ESTABLISHED`, `DREQ_SENT`,
    /// `TIMEWAIT`, ….
    pub state: &'static str,
    /// The queue pair's state: `INIT`, `RTR`, `RTS`, `ERR`.
    pub qp_state: &'static str,
    /// Payload bytes of one packet.
    pub path_mtu: u32,
    /// When it was begun.
    pub created: Instant,
    /// When a message last came or went.
    pub used: Instant,
    /// Messages sent and acknowledged, and their bytes.
    pub tx_messages: u64,
    /// Bytes of them.
    pub tx_bytes: u64,
    /// Messages received.
    pub rx_messages: u64,
    /// Bytes of them.
    pub rx_bytes: u64,
    /// Packets sent again.
    pub retransmits: u64,
    /// Packets sent and not acknowledged.
    pub in_flight: u32,
    /// Packets that may be in flight.
    pub window: u32,
    /// The smoothed round trip in nanoseconds; 0 before the first measurement.
    pub srtt: u64,
}

/// One worker's connections.
///
/// The order of calls for a connection: [`Connections::connect`], then [`ConnectionEvent::Replied`],
/// then [`Connections::establish`] and messages; or [`ConnectionEvent::Requested`], then
/// [`Connections::accept`] and messages that come in. [`ConnectionEvent::Closed`] and
/// [`Connections::close`] end it at any time; calls that name a connection that has ended do nothing.
pub trait Connections {
    /// Takes requests for `service` in the name of an endpoint. While that waits for its P_Key,
    /// requests are rejected as if nobody listened.
    fn listen(&mut self, endpoint: EndpointId, service: ServiceId);

    /// Takes no more requests in the name of an endpoint, and closes its connections.
    fn close_all(&mut self, endpoint: EndpointId);

    /// Asks a peer for a connection; [`ConnectionEvent::Replied`] or [`ConnectionEvent::Closed`]
    /// follows.
    ///
    /// # Errors
    /// [`ConnectError`]
    fn connect(
        &mut self,
        endpoint: EndpointId,
        request: &ConnectRequest<'_>,
    ) -> Result<ConnectionId, ConnectError>;

    /// Consents to a request with at most 196 bytes of private data. Messages may come from now on.
    fn accept(&mut self, connection: ConnectionId, private_data: &[u8]);

    /// Confirms a reply. Messages may go from now on.
    fn establish(&mut self, connection: ConnectionId);

    /// Rejects a request or a reply, with at most 148 bytes of private data.
    fn reject(&mut self, connection: ConnectionId, reason: RejectReason, private_data: &[u8]);

    /// Ends a connection: what was posted and not sent is lost, the peer is told, no event follows.
    fn close(&mut self, connection: ConnectionId);

    /// What happened, in order.
    fn poll_event(&mut self) -> Option<ConnectionEvent>;

    /// Lends memory for one message of `len` bytes, as places of the path MTU of which the last may
    /// be shorter. `None` if the connection takes nothing now: it is not established, or its window
    /// has been full for so long that its peer may be gone.
    fn message(&mut self, connection: ConnectionId, len: usize) -> Option<Train<'_>>;

    /// Lends memory for up to `count` messages of one length `len`, at most the path MTU, of which
    /// the last may be shorter: one place each. `None` as for [`Connections::message`].
    fn messages(&mut self, connection: ConnectionId, len: usize, count: usize)
    -> Option<Train<'_>>;

    /// Goes on filling what was lent last.
    fn resume(&mut self, ticket: TrainTicket) -> Train<'_>;

    /// Posts what was lent last, filled as the ticket says. It is kept until it is acknowledged.
    fn post(&mut self, connection: ConnectionId, ticket: TrainTicket) -> Posted;

    /// Payload bytes of one packet of a connection; 0 if it is not established.
    fn path_mtu(&self, connection: ConnectionId) -> usize;

    /// All connections.
    fn list(&self) -> Vec<ConnectionInfo>;
}
