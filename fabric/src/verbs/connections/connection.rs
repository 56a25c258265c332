//! One connection.

use proto::{ConnectionId, EndpointId, Gid, Instant, PKey, Qpn, RejectReason, ServiceId};

use super::device::Device;
use super::sends::Sends;
use super::state::State;
use crate::connection::{ConnectionInfo, Window};
use crate::pkeys::Entry;

/// A connection.
#[derive(Debug)]
pub struct Connection<D: Device> {
    /// Identifier for the consumer.
    pub id: ConnectionId,
    /// The endpoint that owns the connection.
    pub endpoint: EndpointId,
    /// P_Key table entry.
    pub entry: Entry,
    /// True on the side that sent the request.
    pub active: bool,
    /// The requested service.
    pub service: ServiceId,
    /// The reason for a rejection by the consumer.
    pub reason: RejectReason,
    /// Current state.
    pub state: State,
    /// Time of the last change of state.
    pub since: Instant,
    /// Queue pair, if created. Destroyed before the id.
    pub pair: Option<D::Pair>,
    /// Queue pair number; 0 without one.
    pub qpn: Qpn,
    /// The rdma_cm id.
    pub line: D::Id,
    /// Local GID at creation.
    pub local: Gid,
    /// The peer's GID.
    pub peer: Gid,
    /// The peer's queue pair; 0 while unknown.
    pub remote_qpn: Qpn,
    /// Path MTU in bytes; 0 while unknown.
    pub path_mtu: u32,
    /// Private data for the next REQ, REP or REJ, or from the peer's REP.
    pub private_data: Box<[u8]>,
    /// Posted work.
    pub sends: Sends,
    /// Time of the last completion, or of the first post after idleness.
    pub progress: Instant,
    /// Whether messages are taken.
    pub window: Window,
    /// The receive queue was seen empty since the connection began to drain.
    pub quiet: bool,
    /// Time of creation.
    pub created: Instant,
    /// Time of the last message in either direction.
    pub used: Instant,
    /// Messages sent and acknowledged.
    pub tx_messages: u64,
    /// Bytes of the messages sent.
    pub tx_bytes: u64,
    /// Messages received.
    pub rx_messages: u64,
    /// Bytes of the messages received.
    pub rx_bytes: u64,
}

impl<D: Device> Connection<D> {
    /// State for display; `window` is the maximum number of outstanding messages.
    pub fn info(&self, window: u32) -> ConnectionInfo {
        ConnectionInfo {
            connection: self.id,
            endpoint: self.endpoint,
            local_qpn: self.qpn,
            remote_qpn: self.remote_qpn,
            local_gid: self.local,
            remote_gid: self.peer,
            pkey: self.pkey(),
            active: self.active,
            state: self.state.name(),
            qp_state: self.qp_state(),
            path_mtu: self.path_mtu,
            created: self.created,
            used: self.used,
            tx_messages: self.tx_messages,
            tx_bytes: self.tx_bytes,
            rx_messages: self.rx_messages,
            rx_bytes: self.rx_bytes,
            // The device does not report them.
            retransmits: 0,
            in_flight: self.sends.messages(),
            window,
            srtt: 0,
        }
    }

    /// Whether messages may be sent. On connections that Linux's IPoIB may have requested, never: its
    /// receive handler takes the sending queue pair's state for that of a receiving one, and the peer's
    /// kernel panics (kernel drivers/infiniband/ulp/ipoib/ipoib_cm.c, `ipoib_cm_handle_rx_wc`). Linux uses
    /// no service of rdma_cm for IPoIB.
    pub const fn sends(&self) -> bool {
        let of_rdma_cm = self.service.is_rdma_cm() || self.service.rdma_ib_port().is_some();
        self.active || of_rdma_cm
    }

    const fn pkey(&self) -> PKey {
        self.entry.pkey
    }

    const fn qp_state(&self) -> &'static str {
        match (self.state, &self.pair) {
            (_, None) => "RESET",
            (State::Accepted | State::Open, _) if self.sends() => "RTS",
            (State::Accepted | State::Open, _) => "RTR",
            (State::Draining, _) => "ERR",
            _ => "INIT",
        }
    }
}
