//! What goes in and out of a [`super::Cm`].

use proto::{Gid, Guid, IbMtu, PKey, Psn, Qpn, RejectReason, ServiceId};

use crate::mad::MAD_LEN;

/// Names a connection of a [`super::Cm`]: its local communication id. Never 0.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct CmId(pub u32);

/// What a [`super::Cm`] is.
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

/// A management datagram to be sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Outgoing {
    /// The GID whose QP1 it goes to.
    pub to: Gid,
    /// The P_Key of the datagram that it answers, if it answers one.
    pub answers: Option<PKey>,
    /// The datagram.
    pub datagram: [u8; MAD_LEN],
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
    /// In a reply what we asked for, or more if the peer says that it takes its time.
    pub ack_timeout: u8,
}

/// What happens.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum CmEvent {
    /// A peer asks: to be answered by [`super::Cm::accept`] or [`super::Cm::reject`].
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
    /// The peer consents: to be answered by [`super::Cm::establish`] or [`super::Cm::reject`].
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

impl CmEvent {
    /// The connection that it is of.
    pub const fn id(&self) -> CmId {
        match self {
            CmEvent::Requested { id, .. }
            | CmEvent::Replied { id, .. }
            | CmEvent::Established { id }
            | CmEvent::Rejected { id, .. }
            | CmEvent::Disconnected { id }
            | CmEvent::TimedOut { id }
            | CmEvent::Released { id } => *id,
        }
    }
}

/// The table of connections is full.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("there are as many connections as there may be")]
pub struct Full;
