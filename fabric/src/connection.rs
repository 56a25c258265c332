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

/// How long a full window stops the reading of TAPs while several peers are in use: one peer must not block the others.
pub(crate) const STALLED_AFTER: Duration = Duration::from_millis(100);

/// How long a full window stops the reading of TAPs while one peer is in use. Most packets are for this peer, and would be
/// lost otherwise. With a second, and without a free processor, the kernel's ring held packets for seconds.
pub(crate) const STALLED_ALONE: Duration = Duration::from_millis(300);

/// A peer is in use for this time after a message.
const IN_USE: Duration = Duration::from_secs(1);

/// Interval of the messages that a stalled connection takes, and their number. TCP sends the first lost segment again and
/// again, each time after twice the time. If all of these were dropped, the stream would stand for seconds.
const TRICKLE: Duration = Duration::from_millis(5);
const TRICKLE_MESSAGES: u8 = 32;

/// Interval of the check of full windows.
pub(crate) const LOOK_AT_FULL: Duration = Duration::from_millis(20);

/// Whether a connection takes messages.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum Window {
    /// The window has room.
    #[default]
    Open,
    /// The window has been full since this time. The TAPs wait.
    Full(Instant),
    /// The window was full for too long: the peer is slow or gone. The TAPs do not wait, and most messages are dropped.
    Stalled { last: Instant, left: u8 },
}

impl Window {
    /// Maximum number of messages that the connection takes at once.
    pub fn takes(self, now: Instant) -> usize {
        match self {
            Window::Open | Window::Full(_) => usize::MAX,
            Window::Stalled { last, left } => (left > 0 && now.since(last) >= TRICKLE).into(),
        }
    }

    /// Messages were posted. True if the window has become full.
    pub fn posted(&mut self, now: Instant, has_room: bool) -> bool {
        match self {
            Window::Open if !has_room => {
                *self = Window::Full(now);
                return true;
            }
            Window::Stalled { last, left } => (*last, *left) = (now, left.saturating_sub(1)),
            _ => {}
        }
        false
    }

    /// Whether the window has been full for longer than [`STALLED_AFTER`].
    pub fn is_late(self, now: Instant) -> bool {
        matches!(self, Window::Full(since) if now.since(since) > STALLED_AFTER)
    }

    /// Whether the TAPs still wait for the window. If not, and the window is full, it is stalled from now on. `patience` is
    /// from [`patience`].
    pub fn waits(&mut self, now: Instant, patience: Duration) -> bool {
        match *self {
            Window::Full(since) if now.since(since) <= patience => true,
            Window::Full(_) => {
                *self = Window::Stalled {
                    last: now,
                    left: TRICKLE_MESSAGES,
                };
                false
            }
            _ => false,
        }
    }
}

/// How long TAPs wait for a full window. `used` is the peer of each connection and the time of its last message, or of its
/// request. Peers that have no connection do not count.
pub(crate) fn patience(now: Instant, used: impl Iterator<Item = (Gid, Instant)>) -> Duration {
    let mut in_use = used.filter(|&(_, at)| now.since(at) < IN_USE);
    let first = in_use.next().map(|(peer, _)| peer);
    match in_use.any(|(peer, _)| Some(peer) != first) {
        true => STALLED_AFTER,
        false => STALLED_ALONE,
    }
}

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

#[cfg(test)]
mod tests {
    use super::*;

    const MILLISECOND: Duration = Duration::from_millis(1);

    #[test]
    fn a_window_that_is_full_for_too_long_is_stalled() {
        let (mut window, mut now) = (Window::default(), Instant(7));
        assert!(!window.posted(now, true) && !window.waits(now, MILLISECOND));
        assert!(window.posted(now, false), "it has become full");
        now = now.after(MILLISECOND);
        assert!(!window.posted(now, false), "it was full before");
        assert!(window.waits(now, MILLISECOND));
        now = now.after(MILLISECOND);
        assert!(!window.waits(now, MILLISECOND));
        assert_eq!(window.takes(now), 0);
        for _ in 0..TRICKLE_MESSAGES {
            now = now.after(TRICKLE);
            assert_eq!(window.takes(now), 1);
            assert!(!window.posted(now, false));
            assert_eq!(window.takes(now), 0);
        }
        assert_eq!(window.takes(now.after(TRICKLE * 2)), 0);
    }

    #[test]
    fn the_time_depends_on_the_peers_in_use() {
        let [a, b] = [1, 2].map(|last| {
            let mut gid = Gid::UNSPECIFIED;
            gid.0[15] = last;
            gid
        });
        let now = Instant(0).after(IN_USE * 2);
        let long_ago = Instant(5);
        let patience = |used: &[(Gid, Instant)]| patience(now, used.iter().copied());
        assert_eq!(patience(&[]), STALLED_ALONE);
        assert_eq!(patience(&[(a, now), (a, now)]), STALLED_ALONE);
        assert_eq!(patience(&[(b, long_ago), (a, now)]), STALLED_ALONE);
        assert_eq!(patience(&[(a, now), (b, now)]), STALLED_AFTER);
    }
}
