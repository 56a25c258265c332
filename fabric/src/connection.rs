//! Reliable connections: [`Connections`], a part of a [`crate::Worker`].
//!
//! A connection is an RC queue pair and the parameters that communication management agreed on (IBA
//! vol. 1, 9.7 and chapter 12). A service id finds the listener; both sides exchange private data
//! during setup. A connection carries whole messages, in order and exactly once, until one side closes
//! it or it fails with a work completion status. Each worker has its own connections.

use std::time::Duration;

use proto::{
    ConnectError, ConnectionEvent, ConnectionId, EndpointId, Gid, Instant, PKey, Qpn, RejectReason,
    ServiceId,
};

use crate::worker::{Train, TrainTicket};

/// A full window is stalled if nothing is acknowledged for this time (the peer is gone), or if it stays full for this time:
/// the peer must not block others. While a window is stalled, packets are dropped. A machine without a free processor
/// often delays acknowledgements by more than 50 ms: with that limit, a TCP connection whose repeated segments were
/// dropped one after the other stood for minutes. TCP retransmits after 200 ms.
pub(crate) const STALLED_AFTER: Duration = Duration::from_millis(100);

/// Interval of the check of full windows.
pub(crate) const LOOK_AT_FULL: Duration = Duration::from_millis(20);

/// Parameters of a connection request.
#[derive(Clone, Copy, Debug)]
pub struct ConnectRequest<'a> {
    /// Service id of the listener.
    pub service: ServiceId,
    /// The peer's GID.
    pub peer: Gid,
    /// The UD queue pair that selects one of several endpoints that listen on a service of
    /// [`ServiceId::rdma_cm`] or [`ServiceId::rdma_ib`]; sent in the last four of the 56 or 92 bytes of
    /// private data. 0: the only endpoint. Ignored for other services, which have one listener each.
    pub to: Qpn,
    /// Private data for the listener: at most 92 bytes, 52 for a service of [`ServiceId::rdma_cm`], 88 for
    /// one of [`ServiceId::rdma_ib`].
    pub private_data: &'a [u8],
}

/// Whether a port with the GID `local` can connect to a peer: GIDs of IPv4 reach only those of IPv4.
pub(crate) fn reaches(local: Gid, peer: Gid) -> bool {
    local != Gid::UNSPECIFIED
        && peer != Gid::UNSPECIFIED
        && !peer.is_multicast()
        && peer.ipv4().is_some() == local.ipv4().is_some()
}

/// Result of [`Connections::post`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Posted {
    /// Posted.
    Done,
    /// Posted; the window is full now: see [`crate::Room`].
    Full,
    /// Not posted: the message is lost because the connection accepts no more.
    Refused,
}

/// State of a connection, for display.
#[derive(Clone, Debug)]
pub struct ConnectionInfo {
    /// The connection.
    pub connection: ConnectionId,
    /// The endpoint that owns the connection.
    pub endpoint: EndpointId,
    /// Local RC queue pair.
    pub local_qpn: Qpn,
    /// The peer's RC queue pair; 0 while unknown.
    pub remote_qpn: Qpn,
    /// Local GID.
    pub local_gid: Gid,
    /// The peer's GID.
    pub remote_gid: Gid,
    /// The partition.
    pub pkey: PKey,
    /// True on the side that sent the request.
    pub active: bool,
    /// State of communication management: `REQ_SENT`, `REP_SENT`, `ESTABLISHED`, `DREQ_SENT`,
    /// `TIMEWAIT`, ….
    pub state: &'static str,
    /// The queue pair's state: `INIT`, `RTR`, `RTS`, `ERR`.
    pub qp_state: &'static str,
    /// Path MTU in bytes.
    pub path_mtu: u32,
    /// Time of creation.
    pub created: Instant,
    /// Time of the last message in either direction.
    pub used: Instant,
    /// Messages sent and acknowledged.
    pub tx_messages: u64,
    /// Bytes of the messages sent and acknowledged.
    pub tx_bytes: u64,
    /// Messages received.
    pub rx_messages: u64,
    /// Bytes of the messages received.
    pub rx_bytes: u64,
    /// Packets retransmitted.
    pub retransmits: u64,
    /// Packets sent and not acknowledged.
    pub in_flight: u32,
    /// Maximum number of packets in flight.
    pub window: u32,
    /// The smoothed round trip in nanoseconds; 0 before the first measurement.
    pub srtt: u64,
}

/// One worker's connections.
///
/// Order of calls, active side: [`Connections::connect`], [`ConnectionEvent::Replied`],
/// [`Connections::establish`], then messages. Passive side: [`ConnectionEvent::Requested`],
/// [`Connections::accept`], then incoming messages. [`ConnectionEvent::Closed`] and
/// [`Connections::close`] end a connection at any time. Calls for an ended connection do nothing.
pub trait Connections {
    /// Accepts requests for `service` on behalf of an endpoint. While the endpoint waits for its P_Key,
    /// requests are rejected as if there were no listener.
    fn listen(&mut self, endpoint: EndpointId, service: ServiceId);

    /// Stops accepting requests on behalf of an endpoint, and closes its connections.
    fn close_all(&mut self, endpoint: EndpointId);

    /// Requests a connection to a peer; [`ConnectionEvent::Replied`] or [`ConnectionEvent::Closed`]
    /// follows.
    ///
    /// # Errors
    /// [`ConnectError`]
    fn connect(
        &mut self,
        endpoint: EndpointId,
        request: &ConnectRequest<'_>,
    ) -> Result<ConnectionId, ConnectError>;

    /// Accepts a request with at most 196 bytes of private data. Messages may arrive from now on.
    fn accept(&mut self, connection: ConnectionId, private_data: &[u8]);

    /// Confirms a reply. Messages may be sent from now on.
    fn establish(&mut self, connection: ConnectionId);

    /// Rejects a request or a reply, with at most 148 bytes of private data.
    fn reject(&mut self, connection: ConnectionId, reason: RejectReason, private_data: &[u8]);

    /// Closes a connection. Posted messages that are not sent are lost; the peer is notified; no event
    /// follows.
    fn close(&mut self, connection: ConnectionId);

    /// The next event, in order of occurrence.
    fn poll_event(&mut self) -> Option<ConnectionEvent>;

    /// Lends memory for one message of `len` bytes, as places of the path MTU; the last place may be
    /// shorter. `None` if the connection accepts no message now: it is not established, or its window
    /// has been full for so long that the peer may be gone.
    fn message(&mut self, connection: ConnectionId, len: usize) -> Option<Train<'_>>;

    /// Lends memory for up to `count` messages of `len` bytes (at most the path MTU), one place each;
    /// the last message may be shorter. `None` as for [`Connections::message`].
    fn messages(&mut self, connection: ConnectionId, len: usize, count: usize)
    -> Option<Train<'_>>;

    /// Continues to fill the memory lent last.
    fn resume(&mut self, ticket: TrainTicket) -> Train<'_>;

    /// Posts the memory lent last, as the ticket describes it. The provider keeps it until the
    /// acknowledgement.
    fn post(&mut self, connection: ConnectionId, ticket: TrainTicket) -> Posted;

    /// Path MTU of a connection in bytes; 0 if the connection is not established.
    fn path_mtu(&self, connection: ConnectionId) -> usize;

    /// All connections.
    fn list(&self) -> Vec<ConnectionInfo>;
}
