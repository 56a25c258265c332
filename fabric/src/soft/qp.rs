//! Queue pair states and the modify verb (IBA vol. 1, 10.3.1 and 11.2.4.2; the attribute masks are
//! those of kernel drivers/infiniband/core/verbs.c, `qp_state_table`).
//!
//! [`QueuePair`] is a UD queue pair, small enough for the table of every worker; [`Connected`] has the
//! attributes of an RC queue pair.

mod connected;
mod transition;

use crate::port::FabricError;
use crate::worker::AhAttributes;

pub use connected::Connected;
use proto::{Gid, IbMtu, PKey, Psn, QKey, Qpn};
pub use transition::permit;

/// The state of a queue pair.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum State {
    /// New, or reset.
    Reset,
    /// Receive requests may be posted; nothing is processed.
    Init,
    /// Ready to receive.
    Rtr,
    /// Ready to send.
    Rts,
    /// The send queue is drained: requests are queued and not started.
    Sqd,
    /// A send failed: sends are flushed, receiving continues.
    Sqe,
    /// All requests are flushed.
    Err,
}

impl State {
    /// The name in `rdma resource show qp`.
    pub const fn name(self) -> &'static str {
        match self {
            State::Reset => "RESET",
            State::Init => "INIT",
            State::Rtr => "RTR",
            State::Rts => "RTS",
            State::Sqd => "SQD",
            State::Sqe => "SQE",
            State::Err => "ERR",
        }
    }

    /// The effect on a posted send request.
    pub const fn post_send(self) -> Posted {
        match self {
            State::Reset | State::Init | State::Rtr => Posted::Refused,
            State::Rts => Posted::Processed,
            State::Sqd => Posted::Queued,
            State::Sqe | State::Err => Posted::Flushed,
        }
    }

    /// The effect on a posted receive request.
    pub const fn post_recv(self) -> Posted {
        match self {
            State::Reset => Posted::Refused,
            State::Init => Posted::Queued,
            State::Rtr | State::Rts | State::Sqd | State::Sqe => Posted::Processed,
            State::Err => Posted::Flushed,
        }
    }

    /// Whether packets with requests are processed.
    pub const fn receives(self) -> bool {
        matches!(self.post_recv(), Posted::Processed)
    }

    /// Whether packets with responses are processed. A queue pair that has not sent expects none.
    pub const fn takes_responses(self) -> bool {
        matches!(self, State::Rts | State::Sqd)
    }
}

/// The service of a queue pair.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Service {
    /// Unreliable datagram.
    Ud,
    /// The general services interface, QP1: unreliable datagrams with a fixed number and Q_Key.
    Gsi,
    /// Reliable connection.
    Rc,
}

/// The attributes of a modify verb; absent attributes do not change.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Attributes {
    /// Index into the port's P_Key table.
    pub pkey_index: Option<u16>,
    /// The physical port, from 1.
    pub port: Option<u8>,
    /// The Q_Key.
    pub qkey: Option<QKey>,
    /// The first PSN to send.
    pub sq_psn: Option<Psn>,
    /// The expected current state.
    pub current_state: Option<State>,
    /// Whether an event reports that the send queue is drained.
    pub sqd_notify: Option<bool>,
    /// RC: the peer's address.
    pub address: Option<AhAttributes>,
    /// RC: payload bytes of one packet.
    pub path_mtu: Option<IbMtu>,
    /// RC: the peer's queue pair.
    pub dest_qpn: Option<Qpn>,
    /// RC: the first PSN to receive.
    pub rq_psn: Option<Psn>,
    /// RC: maximum number of incoming READs and ATOMICs at a time.
    pub max_dest_rd_atomic: Option<u8>,
    /// RC: maximum number of outstanding READs and ATOMICs.
    pub max_rd_atomic: Option<u8>,
    /// RC: the timer code in RNR NAKs, 0 to 31; 0 is the longest.
    pub min_rnr_timer: Option<u8>,
    /// RC: the code of the acknowledgement timeout, 0 to 31; 0 is unlimited.
    pub timeout: Option<u8>,
    /// RC: number of retries before giving up, 0 to 7.
    pub retry_cnt: Option<u8>,
    /// RC: number of retries after RNR NAKs, 0 to 7; 7 is unlimited.
    pub rnr_retry: Option<u8>,
    /// RC: permitted remote operations, a bit each; must be 0.
    pub access_flags: Option<u32>,
}

impl Attributes {
    /// Those that move an RC queue pair from RESET to INIT.
    pub fn rc_init(pkey_index: u16) -> Attributes {
        Attributes {
            pkey_index: Some(pkey_index),
            port: Some(1),
            access_flags: Some(0),
            ..Attributes::default()
        }
    }

    /// Those that move an RC queue pair from INIT to RTR: it receives from `dest_qpn` at `peer`.
    pub fn rc_rtr(
        peer: Gid,
        dest_qpn: Qpn,
        path_mtu: IbMtu,
        rq_psn: Psn,
        min_rnr_timer: u8,
    ) -> Attributes {
        Attributes {
            address: Some(AhAttributes::to(peer, PKey::DEFAULT)),
            path_mtu: Some(path_mtu),
            dest_qpn: Some(dest_qpn),
            rq_psn: Some(rq_psn),
            max_dest_rd_atomic: Some(0),
            min_rnr_timer: Some(min_rnr_timer),
            ..Attributes::default()
        }
    }

    /// Those that move an RC queue pair from RTR to RTS.
    pub fn rc_rts(sq_psn: Psn, timeout: u8, retry_cnt: u8, rnr_retry: u8) -> Attributes {
        Attributes {
            timeout: Some(timeout),
            retry_cnt: Some(retry_cnt),
            rnr_retry: Some(rnr_retry),
            sq_psn: Some(sq_psn),
            max_rd_atomic: Some(0),
            ..Attributes::default()
        }
    }
}

/// The effect on a posted request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Posted {
    /// Refused.
    Refused,
    /// Accepted; waits for another state.
    Queued,
    /// Accepted and processed.
    Processed,
    /// Accepted; completes with WR_FLUSH_ERR.
    Flushed,
}

/// A UD or GSI queue pair: its number, state and attributes.
#[derive(Clone, Copy, Debug)]
pub struct QueuePair {
    service: Service,
    qpn: Qpn,
    state: State,
    pkey_index: u16,
    qkey: QKey,
    sq_psn: Psn,
}

impl QueuePair {
    /// A queue pair in RESET.
    pub const fn new(service: Service, qpn: Qpn) -> QueuePair {
        QueuePair {
            service,
            qpn,
            state: State::Reset,
            pkey_index: 0,
            qkey: QKey::new(0),
            sq_psn: Psn::new(0),
        }
    }

    /// Creates a queue pair and moves it through INIT and RTR to RTS.
    ///
    /// # Errors
    /// Those of [`QueuePair::modify`].
    pub fn ready(
        service: Service,
        qpn: Qpn,
        pkey_index: u16,
        qkey: QKey,
        sq_psn: Psn,
    ) -> Result<QueuePair, FabricError> {
        let mut qp = QueuePair::new(service, qpn);
        qp.start(pkey_index, qkey, sq_psn)?;
        Ok(qp)
    }

    /// Moves the queue pair from RESET through INIT and RTR to RTS.
    ///
    /// # Errors
    /// Those of [`QueuePair::modify`].
    pub fn start(&mut self, pkey_index: u16, qkey: QKey, sq_psn: Psn) -> Result<(), FabricError> {
        let init = Attributes {
            pkey_index: Some(pkey_index),
            port: (self.service == Service::Ud).then_some(1),
            qkey: Some(qkey),
            ..Attributes::default()
        };
        self.modify(State::Init, &init)?;
        self.modify(State::Rtr, &Attributes::default())?;
        let rts = Attributes {
            sq_psn: Some(sq_psn),
            ..Attributes::default()
        };
        self.modify(State::Rts, &rts)
    }

    /// Moves the queue pair to RESET by way of ERR, which flushes posted requests.
    ///
    /// # Errors
    /// Those of [`QueuePair::modify`].
    pub fn stop(&mut self) -> Result<(), FabricError> {
        if self.state != State::Reset {
            self.modify(State::Err, &Attributes::default())?;
        }
        self.modify(State::Reset, &Attributes::default())
    }

    /// The modify verb.
    ///
    /// # Errors
    /// Those of [`permit`]; the queue pair is then unchanged.
    pub fn modify(&mut self, to: State, attributes: &Attributes) -> Result<(), FabricError> {
        permit(self.service, self.state, to, attributes, IbMtu::B4096)?;
        self.apply(to, attributes);
        Ok(())
    }

    fn apply(&mut self, to: State, attributes: &Attributes) {
        if to == State::Reset {
            *self = QueuePair::new(self.service, self.qpn);
            return;
        }
        self.state = to;
        self.pkey_index = attributes.pkey_index.unwrap_or(self.pkey_index);
        self.qkey = attributes.qkey.unwrap_or(self.qkey);
        self.sq_psn = attributes.sq_psn.unwrap_or(self.sq_psn);
    }

    /// The effect on a posted send request.
    pub const fn post_send(&self) -> Posted {
        self.state.post_send()
    }

    /// Whether received packets are processed.
    pub const fn receives(&self) -> bool {
        self.state.receives()
    }

    /// The queue pair number.
    pub const fn qpn(&self) -> Qpn {
        self.qpn
    }

    /// The state.
    pub const fn state(&self) -> State {
        self.state
    }

    /// The index into the port's P_Key table.
    pub const fn pkey_index(&self) -> u16 {
        self.pkey_index
    }

    /// The Q_Key.
    pub const fn qkey(&self) -> QKey {
        self.qkey
    }

    /// The first PSN to send.
    pub const fn sq_psn(&self) -> Psn {
        self.sq_psn
    }

    /// The Q_Key of a send: the request's, or the queue pair's if the request's is controlled
    /// (IBA vol. 1, 10.2.5). QP1 always sends its own.
    pub const fn qkey_to_send(&self, requested: QKey) -> QKey {
        if requested.is_controlled() || matches!(self.service, Service::Gsi) {
            self.qkey
        } else {
            requested
        }
    }
}

#[cfg(test)]
#[path = "qp_tests.rs"]
mod tests;
