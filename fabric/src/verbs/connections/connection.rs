//! One connection.

use proto::{ConnectionId, EndpointId, Gid, Instant, PKey, Qpn};

use super::device::Device;
use super::sends::Sends;
use super::state::State;
use crate::connection::ConnectionInfo;
use crate::pkeys::Entry;

/// A connection.
#[derive(Debug)]
pub struct Connection<D: Device> {
    /// Its name towards the consumer.
    pub id: ConnectionId,
    /// Whose it is.
    pub endpoint: EndpointId,
    /// Its partition.
    pub entry: Entry,
    /// We asked for it.
    pub active: bool,
    /// What it is in.
    pub state: State,
    /// Since when.
    pub since: Instant,
    /// Its queue pair, once there is one. Ends before the id.
    pub pair: Option<D::Pair>,
    /// Its number; 0 while there is none.
    pub qpn: Qpn,
    /// Its name in rdma_cm.
    pub line: D::Id,
    /// Our GID when it was begun.
    pub local: Gid,
    /// The peer's.
    pub peer: Gid,
    /// The peer's queue pair; 0 while it is not known.
    pub remote_qpn: Qpn,
    /// Payload bytes of a packet; 0 while it is not known.
    pub path_mtu: u32,
    /// What is to be said with the next of REQ, REP and REJ; what the peer said with REP.
    pub private_data: Box<[u8]>,
    /// What was posted.
    pub sends: Sends,
    /// When something of that was completed last, or it was the first to be posted.
    pub progress: Instant,
    /// It is in the list of those whose window is full.
    pub full: bool,
    /// Since it began to drain, the receive queue was seen empty.
    pub quiet: bool,
    /// When it was begun.
    pub created: Instant,
    /// When a message last came or went.
    pub used: Instant,
    /// Messages sent and acknowledged.
    pub tx_messages: u64,
    /// Their bytes.
    pub tx_bytes: u64,
    /// Messages received.
    pub rx_messages: u64,
    /// Their bytes.
    pub rx_bytes: u64,
}

impl<D: Device> Connection<D> {
    /// For people; `window` is how many messages may be outstanding.
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
            // The device does not tell.
            retransmits: 0,
            in_flight: self.sends.messages(),
            window,
            srtt: 0,
        }
    }

    const fn pkey(&self) -> PKey {
        self.entry.pkey
    }

    const fn qp_state(&self) -> &'static str {
        match (self.state, &self.pair) {
            (_, None) => "RESET",
            (State::Accepted | State::Open, _) => "RTS",
            (State::Draining, _) => "ERR",
            _ => "INIT",
        }
    }
}
