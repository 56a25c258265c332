//! Communication management: how two sides agree on a connection, sans-IO (IBA vol. 1, chapter 12;
//! kernel drivers/infiniband/core/cm.c for what the standard leaves open).
//!
//! [`Cm`] takes received management datagrams, the consumer's decisions and the time, and gives
//! datagrams to send, events and the next deadline. It knows nothing of queue pairs but their
//! numbers. One worker has one; a communication id carries the worker's number in its low byte
//! (modulo the number of workers), so that the packets of a connection find their worker.

use crate::connection::{RejectReason, ServiceId};
use crate::mad::MAD_LEN;
use crate::time::Instant;
use crate::types::{Gid, Guid, IbMtu, PKey, Psn, Qpn};

/// Names a connection of a [`Cm`]: its local communication id. Never 0.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct CmId(pub u32);

/// What a [`Cm`] is.
#[derive(Clone, Copy, Debug)]
pub struct CmConfig {
    /// Unique to this node, or its peers take its connections for those of another.
    pub ca_guid: Guid,
    /// The worker's number.
    pub worker: usize,
    /// How many workers there are.
    pub workers: usize,
    /// Where communication and transaction ids start: different at each start of a node.
    pub seed: u64,
    /// Connections that may be half-open because others asked; of more, the oldest makes room.
    pub half_open_max: usize,
    /// Connections in all; requests for more are rejected.
    pub connections_max: usize,
}

/// What we ask for in a ConnectRequest.
#[derive(Clone, Copy, Debug)]
pub struct Ask<'a> {
    /// The service.
    pub service: ServiceId,
    /// Our GID.
    pub local_gid: Gid,
    /// The peer's GID.
    pub remote_gid: Gid,
    /// Our RC queue pair.
    pub qpn: Qpn,
    /// The PSN at which the peer is to start sending to us.
    pub starting_psn: Psn,
    /// The partition.
    pub pkey: PKey,
    /// Payload bytes of one packet.
    pub path_mtu: IbMtu,
    /// Our queue pair has a shared receive queue.
    pub srq: bool,
    /// At most 92 bytes.
    pub private_data: &'a [u8],
}

/// What we say in a ConnectReply.
#[derive(Clone, Copy, Debug)]
pub struct Consent<'a> {
    /// Our RC queue pair.
    pub qpn: Qpn,
    /// The PSN at which the peer is to start sending to us.
    pub starting_psn: Psn,
    /// Our queue pair has a shared receive queue.
    pub srq: bool,
    /// At most 196 bytes.
    pub private_data: &'a [u8],
}

/// What the peer said about its queue pair and the path, in its request or reply.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Remote {
    /// Its RC queue pair.
    pub qpn: Qpn,
    /// The PSN at which we are to start sending to it.
    pub starting_psn: Psn,
    /// The partition; in a reply that of our request.
    pub pkey: PKey,
    /// Payload bytes of one packet; in a reply that of our request.
    pub path_mtu: IbMtu,
    /// How often to send again before giving up, 0 to 7; in a reply what we asked for.
    pub retry_count: u8,
    /// How often to send again after RNR NAKs; 7 is without end.
    pub rnr_retry: u8,
    /// The code of the time to wait for an acknowledgement: 4.096 µs times two to the power of it.
    pub ack_timeout: u8,
}

/// What happens.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum CmEvent {
    /// A peer asks: to be answered by [`Cm::accept`] or [`Cm::reject`].
    Requested {
        /// Its name from now on.
        id: CmId,
        /// The service asked for.
        service: ServiceId,
        /// Who asks: the source of the datagram, which its own GID must equal.
        peer: Gid,
        /// Its side.
        remote: Remote,
        /// All 92 bytes.
        private_data: Box<[u8]>,
    },
    /// The peer consents: to be answered by [`Cm::establish`] or [`Cm::reject`].
    Replied {
        /// The connection.
        id: CmId,
        /// Its side.
        remote: Remote,
        /// All 196 bytes.
        private_data: Box<[u8]>,
    },
    /// The peer is ready (RTU).
    Established {
        /// The connection.
        id: CmId,
    },
    /// The peer rejected what we sent last; the connection is over.
    Rejected {
        /// The connection.
        id: CmId,
        /// Why.
        reason: RejectReason,
    },
    /// The peer disconnects; it has been answered. The connection waits in TIMEWAIT.
    Disconnected {
        /// The connection.
        id: CmId,
    },
    /// The peer did not answer; the connection is over.
    TimedOut {
        /// The connection.
        id: CmId,
    },
    /// TIMEWAIT is over, or a rejection: the ids and the queue pair's number may be used again.
    Released {
        /// The connection that was.
        id: CmId,
    },
}

/// The table of connections is full.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("there are as many connections as there may be")]
pub struct Full;

/// The communication manager of one worker.
#[derive(Debug)]
pub struct Cm {
    config: CmConfig,
}

impl Cm {
    /// No connections yet.
    pub fn new(config: CmConfig) -> Cm {
        Cm { config }
    }

    /// How it was made.
    pub const fn config(&self) -> &CmConfig {
        &self.config
    }

    /// Sends a ConnectRequest, again and again until it is answered or there were enough.
    ///
    /// # Errors
    /// [`Full`]
    pub fn connect(&mut self, _now: Instant, _ask: &Ask<'_>) -> Result<CmId, Full> {
        Err(Full)
    }

    /// Answers [`CmEvent::Requested`] with a ConnectReply.
    pub fn accept(&mut self, _now: Instant, _id: CmId, _consent: &Consent<'_>) {}

    /// Answers [`CmEvent::Replied`] with a ReadyToUse.
    pub fn establish(&mut self, _now: Instant, _id: CmId) {}

    /// Answers [`CmEvent::Requested`] or [`CmEvent::Replied`] with a ConnectReject.
    pub fn reject(
        &mut self,
        _now: Instant,
        _id: CmId,
        _reason: RejectReason,
        _private_data: &[u8],
    ) {
    }

    /// Ends a connection in any state; [`CmEvent::Released`] follows, at once or after TIMEWAIT, and
    /// nothing else of it.
    pub fn disconnect(&mut self, _now: Instant, _id: CmId) {}

    /// A packet came over the connection before the ReadyToUse, which may be lost: it is established.
    pub fn heard(&mut self, _now: Instant, _id: CmId) {}

    /// Takes a management datagram of this class that came from `from`'s QP1.
    pub fn receive(
        &mut self,
        _now: Instant,
        _from: Gid,
        _mad: &[u8; MAD_LEN],
        _listens: impl Fn(ServiceId) -> bool,
    ) {
    }

    /// The next datagram to send, and the GID whose QP1 it goes to.
    pub fn poll_transmit(&mut self, _now: Instant) -> Option<(Gid, [u8; MAD_LEN])> {
        None
    }

    /// What happened, in order.
    pub fn poll_event(&mut self) -> Option<CmEvent> {
        None
    }

    /// When [`Cm::handle_timeout`] wants to be called next.
    pub fn next_deadline(&self) -> Option<Instant> {
        None
    }

    /// Lets time pass.
    pub fn handle_timeout(&mut self, _now: Instant) {}

    /// A connection's state: `REQ_SENT`, `REQ_RCVD`, `REP_SENT`, `REP_RCVD`, `ESTABLISHED`,
    /// `DREQ_SENT`, `TIMEWAIT`.
    pub fn state(&self, _id: CmId) -> Option<&'static str> {
        None
    }

    /// Counters by name.
    pub fn counters(&self) -> Vec<(&'static str, u64)> {
        Vec::new()
    }
}
