//! One connection: a queue pair, and what was agreed on about it.

use proto::{ConnectionId, EndpointId, Gid, IbMtu, Instant, Psn, ServiceId};

use super::super::qp::{Attributes, State};
use super::super::rc::{RcQp, Shared};
use super::Partition;
use crate::cm::{CmId, Remote};
use crate::connection::ConnectionInfo;
use crate::port::FabricError;
use crate::worker::AhAttributes;

/// The least time that a peer is to wait after an RNR NAK of ours: code 12 is 0.64 ms (IBA vol. 1,
/// table 45). A buffer is free again as soon as the data thread has handled its batch.
const MIN_RNR_TIMER: u8 = 12;

/// How far the consumer has come with it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stage {
    /// We asked; the peer has not answered.
    Asking,
    /// The peer consented; we have not confirmed.
    Replied,
    /// The peer asked; we have not answered.
    Asked,
    /// Messages go.
    Open,
    /// Both sides tell each other what they are in another way; the peer's side is not known yet.
    Unmanaged,
}

/// What a connection was asked for with.
#[derive(Debug)]
pub struct Wish {
    /// The service.
    pub service: ServiceId,
    /// For the listener.
    pub private_data: Box<[u8]>,
}

/// A connection.
#[derive(Debug)]
pub struct Connection {
    /// Its name towards the consumer.
    pub id: ConnectionId,
    /// Its name in communication management.
    pub cm: CmId,
    /// Whose it is.
    pub endpoint: EndpointId,
    /// The queue pair.
    pub qp: RcQp,
    /// The P_Key table entry of the endpoint.
    pub partition: Partition,
    /// Our GID when it was begun.
    pub local: Gid,
    /// The peer's GID: every packet's source.
    pub peer: Gid,
    /// The smaller of both sides' path MTUs.
    pub path_mtu: IbMtu,
    /// The first PSN that we expect.
    pub rq_psn: Psn,
    /// The peer's side, when it is known.
    pub remote: Option<Remote>,
    /// We asked for it.
    pub active: bool,
    /// To ask again for less, until the peer has answered.
    pub wish: Option<Wish>,
    /// How far it is.
    pub stage: Stage,
    /// The peer has not said ReadyToUse, and nothing came over the connection yet.
    pub awaits_rtu: bool,
    /// When it was begun.
    pub created: Instant,
    /// When a message last came or went.
    pub used: Instant,
    /// Requests posted and not completed.
    pub posted: usize,
    /// Its entry in the timers.
    pub scheduled: Option<Instant>,
    /// It is in the list of those that may have something to send.
    pub ready: bool,
    /// It is in the list of those to be asked again at the end of the round.
    pub unflushed: bool,
    /// It is in the list of those that this batch had packets for.
    pub touched: bool,
    /// It is in the list of those whose window is full.
    pub full: bool,
    /// Its queue pair failed; it ends when its last NAK has left.
    pub failing: bool,
}

impl Connection {
    /// RESET to INIT.
    pub fn init(&mut self, now: Instant, shared: &mut Shared) -> Result<(), FabricError> {
        let attributes = Attributes {
            pkey_index: Some(self.partition.index),
            port: Some(1),
            access_flags: Some(0),
            ..Attributes::default()
        };
        self.qp.modify(now, shared, State::Init, &attributes)
    }

    /// INIT to RTR and RTS, with what the peer said.
    pub fn ready_to_send(
        &mut self,
        now: Instant,
        shared: &mut Shared,
        remote: &Remote,
    ) -> Result<(), FabricError> {
        let to_receive = Attributes {
            address: Some(AhAttributes::to(self.peer)),
            path_mtu: Some(self.path_mtu),
            dest_qpn: Some(remote.qpn),
            rq_psn: Some(self.rq_psn),
            max_dest_rd_atomic: Some(0),
            min_rnr_timer: Some(MIN_RNR_TIMER),
            ..Attributes::default()
        };
        self.qp.modify(now, shared, State::Rtr, &to_receive)?;
        let to_send = Attributes {
            timeout: Some(remote.ack_timeout.min(31)),
            retry_cnt: Some(remote.retry_count.min(7)),
            rnr_retry: Some(remote.rnr_retry.min(7)),
            sq_psn: Some(remote.starting_psn),
            max_rd_atomic: Some(0),
            ..Attributes::default()
        };
        self.qp.modify(now, shared, State::Rts, &to_send)
    }

    /// For people; `state` is that of communication management.
    pub fn info(&self, state: &'static str) -> ConnectionInfo {
        let s = self.qp.statistics();
        ConnectionInfo {
            connection: self.id,
            endpoint: self.endpoint,
            local_qpn: self.qp.qpn(),
            remote_qpn: self.remote.map(|r| r.qpn).unwrap_or(crate::Qpn::new(0)),
            local_gid: self.local,
            remote_gid: self.peer,
            pkey: self.partition.pkey,
            active: self.active,
            state,
            qp_state: self.qp.state().name(),
            path_mtu: self.path_mtu.bytes(),
            created: self.created,
            used: self.used,
            tx_messages: s.tx_messages,
            tx_bytes: s.tx_bytes,
            rx_messages: s.rx_messages,
            rx_bytes: s.rx_bytes,
            retransmits: s.retransmits,
            in_flight: s.in_flight,
            window: s.window,
            srtt: s.srtt.as_nanos() as u64,
        }
    }
}
