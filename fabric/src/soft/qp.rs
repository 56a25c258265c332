//! Queue pair states and the modify verb (IBA vol. 1, 10.3.1 and 11.2.4.2; the attribute masks are
//! those of kernel drivers/infiniband/core/verbs.c, `qp_state_table`).
//!
//! [`QueuePair`] is one of unreliable datagrams, small enough for the table of every worker;
//! [`Connected`] is what a reliable connection's keeps.

mod connected;
mod transition;

use crate::port::FabricError;
use crate::worker::AhAttributes;

pub use connected::Connected;
use proto::{IbMtu, Psn, QKey, Qpn};
pub use transition::permit;

/// The state of a queue pair.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum State {
    /// Just made, or reset.
    Reset,
    /// Receive requests may be posted; nothing is processed.
    Init,
    /// Ready to receive.
    Rtr,
    /// Ready to send.
    Rts,
    /// The send queue is drained: requests queue up and are not started.
    Sqd,
    /// A send failed: sends are flushed, receiving goes on.
    Sqe,
    /// Everything is flushed.
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

    /// What a send request meets.
    pub const fn post_send(self) -> Posted {
        match self {
            State::Reset | State::Init | State::Rtr => Posted::Refused,
            State::Rts => Posted::Processed,
            State::Sqd => Posted::Queued,
            State::Sqe | State::Err => Posted::Flushed,
        }
    }

    /// What a receive request meets.
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

    /// Whether packets with responses are processed: only what has sent has something to be
    /// answered.
    pub const fn takes_responses(self) -> bool {
        matches!(self, State::Rts | State::Sqd)
    }
}

/// The service of a queue pair, as far as this module serves it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Service {
    /// Unreliable datagram.
    Ud,
    /// The general services interface, QP1: unreliable datagrams with a fixed number and Q_Key.
    Gsi,
    /// Reliable connection.
    Rc,
}

/// What a modify verb brings; absent attributes are not touched.
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
    /// The state that the consumer believes the queue pair is in.
    pub current_state: Option<State>,
    /// Whether an event tells that the send queue is drained.
    pub sqd_notify: Option<bool>,
    /// RC: where the peer is.
    pub address: Option<AhAttributes>,
    /// RC: payload bytes of one packet.
    pub path_mtu: Option<IbMtu>,
    /// RC: the peer's queue pair.
    pub dest_qpn: Option<Qpn>,
    /// RC: the first PSN to expect.
    pub rq_psn: Option<Psn>,
    /// RC: READs and ATOMICs that it serves at a time.
    pub max_dest_rd_atomic: Option<u8>,
    /// RC: READs and ATOMICs that it has outstanding at most.
    pub max_rd_atomic: Option<u8>,
    /// RC: the timer code in RNR NAKs, 0 to 31; 0 is the longest.
    pub min_rnr_timer: Option<u8>,
    /// RC: the code of the time to wait for an acknowledgement, 0 to 31; 0 waits for ever.
    pub timeout: Option<u8>,
    /// RC: how often to send again before giving up, 0 to 7.
    pub retry_cnt: Option<u8>,
    /// RC: how often to send again after RNR NAKs, 0 to 7; 7 is without end.
    pub rnr_retry: Option<u8>,
    /// RC: remote operations that are allowed, a bit each; 0 as there are none.
    pub access_flags: Option<u32>,
}

/// What happens to a posted send or receive request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Posted {
    /// Refused at once.
    Refused,
    /// Taken; it waits for another state.
    Queued,
    /// Taken and processed.
    Processed,
    /// Completes with WR_FLUSH_ERR.
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
    sqd_notify: bool,
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
            sqd_notify: false,
        }
    }

    /// Takes a new queue pair through INIT and RTR to RTS.
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

    /// From RESET through INIT and RTR to RTS.
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

    /// To RESET, by way of ERR, in which whatever is posted is flushed.
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
    /// Those of [`permit`]; the queue pair is then as it was.
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
        self.sqd_notify = attributes.sqd_notify.unwrap_or(self.sqd_notify);
    }

    /// A send failed in the provider: RTS becomes SQE (IBA vol. 1, 10.3.1.6).
    pub fn send_failed(&mut self) {
        if self.state == State::Rts {
            self.state = State::Sqe;
        }
    }

    /// What a send request meets.
    pub const fn post_send(&self) -> Posted {
        self.state.post_send()
    }

    /// What a receive request meets.
    pub const fn post_recv(&self) -> Posted {
        self.state.post_recv()
    }

    /// Whether packets for it are processed.
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

    /// The service.
    pub const fn service(&self) -> Service {
        self.service
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

    /// The Q_Key that a send carries: the one of the request, or the queue pair's own if the
    /// request's is controlled (IBA vol. 1, 10.2.5). QP1 always sends its own.
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
