//! One connection: its queue pair and the negotiated parameters.

use proto::{ConnectionId, EndpointId, Gid, IbMtu, Instant, Psn, ServiceId};

use super::super::qp::{Attributes, State};
use super::super::rc::{RcQp, Shared};
use super::Partition;
use crate::cm::{CmId, Remote};
use crate::connection::{ConnectionInfo, Window};
use crate::port::FabricError;

/// The RNR timer of our RNR NAKs: code 12 is 0.64 ms (IBA vol. 1, table 45). The data thread usually
/// frees a buffer sooner, when it has handled its batch.
const MIN_RNR_TIMER: u8 = 12;

/// The stage of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stage {
    /// We sent a request; the peer has not answered.
    Asking,
    /// The peer accepted our request; we have not confirmed.
    Replied,
    /// The peer sent a request; we have not answered.
    Asked,
    /// Established.
    Open,
    /// Both sides exchange their parameters without communication management; the peer's are not known
    /// yet.
    Unmanaged,
}

/// The contents of a connection request.
#[derive(Debug)]
pub struct Wish {
    /// The service.
    pub service: ServiceId,
    /// The private data, for the listener.
    pub private_data: Box<[u8]>,
}

/// A connection.
#[derive(Debug)]
pub struct Connection {
    /// The id for the consumer.
    pub id: ConnectionId,
    /// The id in communication management.
    pub cm: CmId,
    /// The endpoint that the connection belongs to.
    pub endpoint: EndpointId,
    /// The queue pair.
    pub qp: RcQp,
    /// The P_Key table entry of the endpoint.
    pub partition: Partition,
    /// Our GID when the connection was created.
    pub local: Gid,
    /// The peer's GID: the source of every received packet.
    pub peer: Gid,
    /// The smaller of both sides' path MTUs.
    pub path_mtu: IbMtu,
    /// The first PSN to receive.
    pub rq_psn: Psn,
    /// The peer's parameters, once known.
    pub remote: Option<Remote>,
    /// We requested the connection.
    pub active: bool,
    /// The request, kept until the peer has answered; to repeat it with a smaller path MTU.
    pub wish: Option<Wish>,
    /// The stage.
    pub stage: Stage,
    /// Neither a ReadyToUse nor a packet of the connection has been received.
    pub awaits_rtu: bool,
    /// When the connection was created.
    pub created: Instant,
    /// When a message was last sent or received.
    pub used: Instant,
    /// Requests posted and not completed.
    pub posted: usize,
    /// The connection's entry in the timers.
    pub scheduled: Option<Instant>,
    /// In the list of connections that may have something to send.
    pub ready: bool,
    /// In the list of connections to poll again at the end of the round.
    pub unflushed: bool,
    /// In the list of connections that received packets in this batch.
    pub touched: bool,
    /// Whether messages are taken.
    pub window: Window,
    /// The queue pair failed; the connection ends after its last NAK was sent.
    pub failing: bool,
}

impl Connection {
    /// Moves the queue pair from RESET to INIT.
    pub fn init(&mut self, shared: &mut Shared) -> Result<(), FabricError> {
        let attributes = Attributes::rc_init(self.partition.index);
        self.qp.modify(shared, State::Init, &attributes)
    }

    /// Moves the queue pair from INIT to RTR and RTS, with the peer's parameters.
    pub fn ready_to_send(
        &mut self,
        shared: &mut Shared,
        remote: &Remote,
    ) -> Result<(), FabricError> {
        let (qpn, mtu, psn) = (remote.qpn, self.path_mtu, self.rq_psn);
        let to_receive = Attributes::rc_rtr(self.peer, qpn, mtu, psn, MIN_RNR_TIMER);
        self.qp.modify(shared, State::Rtr, &to_receive)?;
        let to_send = Attributes::rc_rts(
            remote.starting_psn,
            remote.ack_timeout.min(31),
            remote.retry_count.min(7),
            remote.rnr_retry.min(7),
        );
        self.qp.modify(shared, State::Rts, &to_send)
    }

    /// A description for users; `state` is the state in communication management.
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
