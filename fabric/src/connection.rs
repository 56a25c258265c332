//! Reliable connections as devices see them: [`Connections`], a part of a [`crate::Worker`].
//!
//! A connection is one RC queue pair and what communication management has agreed on about it (IBA
//! vol. 1, 9.7 and chapter 12). It is found by a service id, set up with some private data of each
//! side, and carries whole messages, in order and exactly once, until one side closes it or it
//! fails with a work completion status. Each worker has connections of its own.

use proto::{
    ConnectError, ConnectionEvent, ConnectionId, EndpointId, Gid, Instant, PKey, Qpn, RejectReason,
    ServiceId,
};

use crate::worker::{Train, TrainTicket};

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
