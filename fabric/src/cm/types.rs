//! Inputs and outputs of a [`super::Cm`].

use proto::{Gid, Guid, IbMtu, PKey, Psn, Qpn, RejectReason, ServiceId};

use crate::mad::MAD_LEN;
use crate::mad::cm::Path;
use crate::random::Random;

/// Identifies a connection of a [`super::Cm`]: its local communication id, never 0.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct CmId(pub u32);

impl CmId {
    /// An unpredictable communication id whose low byte is `worker` modulo `workers`.
    pub(super) fn of_worker(random: &mut Random, worker: usize, workers: usize) -> CmId {
        // One byte distinguishes 256 workers; further workers share numbers.
        let workers = workers.clamp(1, 256) as u64;
        let worker = worker as u64 % workers;
        loop {
            let number = random.next();
            // Number of bytes that are `worker` modulo `workers`.
            let choices = (255 - worker) / workers + 1;
            let low = worker + workers * ((number >> 32) % choices);
            let id = ((number & 0xffff_ff00 | low) & 0xffff_ffff) as u32;
            if id != 0 {
                return CmId(id);
            }
        }
    }
}

/// Configuration of a [`super::Cm`].
#[derive(Clone, Copy, Debug)]
pub struct CmConfig {
    /// GUID of this node. Must be unique, otherwise peers confuse its connections with another node's.
    pub ca_guid: Guid,
    /// The worker's number.
    pub worker: usize,
    /// Number of workers.
    pub workers: usize,
    /// Seed of communication and transaction ids: secret, and different at each start of a node.
    pub seed: [u64; 2],
    /// Maximum number of half-open incoming connections; a new one evicts the oldest.
    pub half_open_max: usize,
    /// Maximum number of connections; further requests are rejected.
    pub connections_max: usize,
}

/// A management datagram to be sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Outgoing {
    /// The destination GID; the datagram goes to its QP1.
    pub to: Gid,
    /// The P_Key of the answered datagram; `None` if this is not an answer.
    pub answers: Option<PKey>,
    /// The datagram.
    pub datagram: [u8; MAD_LEN],
}

/// Parameters of a ConnectRequest.
#[derive(Clone, Copy, Debug)]
pub struct Ask<'a> {
    /// The service.
    pub service: ServiceId,
    /// Local GID.
    pub local_gid: Gid,
    /// The peer's GID.
    pub remote_gid: Gid,
    /// The path; `None`: as on RoCE, without LIDs.
    pub primary: Option<&'a Path>,
    /// Local RC queue pair.
    pub qpn: Qpn,
    /// The first PSN that the peer sends.
    pub starting_psn: Psn,
    /// The partition.
    pub pkey: PKey,
    /// Path MTU.
    pub path_mtu: IbMtu,
    /// The local queue pair has a shared receive queue.
    pub srq: bool,
    /// Private data, at most 92 bytes.
    pub private_data: &'a [u8],
}

/// Parameters of a ConnectReply.
#[derive(Clone, Copy, Debug)]
pub struct Consent<'a> {
    /// Local RC queue pair.
    pub qpn: Qpn,
    /// The first PSN that the peer sends.
    pub starting_psn: Psn,
    /// The local queue pair has a shared receive queue.
    pub srq: bool,
    /// Private data, at most 196 bytes.
    pub private_data: &'a [u8],
}

/// The peer's queue pair and path, from its request or reply.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Remote {
    /// The peer's RC queue pair.
    pub qpn: Qpn,
    /// The first PSN that we send.
    pub starting_psn: Psn,
    /// The partition; in a reply the partition of our request.
    pub pkey: PKey,
    /// Path MTU; in a reply the path MTU of our request.
    pub path_mtu: IbMtu,
    /// Number of retransmissions, 0 to 7; in a reply the number in our request.
    pub retry_count: u8,
    /// Number of retransmissions after RNR NAKs; 7: unlimited.
    pub rnr_retry: u8,
    /// Acknowledgement timeout as a time code: 4.096 µs times two to its power. In a reply the timeout
    /// of our request, or more if the peer acknowledges more slowly.
    pub ack_timeout: u8,
}

/// Events of communication management.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum CmEvent {
    /// A peer requests a connection: answer with [`super::Cm::accept`] or [`super::Cm::reject`].
    Requested {
        /// Identifier of the new connection.
        id: CmId,
        /// The requested service.
        service: ServiceId,
        /// The requester's GID: the source of the datagram, equal to the GID in the request.
        peer: Gid,
        /// The peer's side.
        remote: Remote,
        /// Private data, all 92 bytes.
        private_data: Box<[u8]>,
    },
    /// The peer accepts: answer with [`super::Cm::establish`] or [`super::Cm::reject`].
    Replied {
        /// The connection.
        id: CmId,
        /// The peer's side.
        remote: Remote,
        /// Private data, all 196 bytes.
        private_data: Box<[u8]>,
    },
    /// The peer is ready (RTU received).
    Established {
        /// The connection.
        id: CmId,
    },
    /// The peer rejected our last message; the connection has ended.
    Rejected {
        /// The connection.
        id: CmId,
        /// The reason.
        reason: RejectReason,
    },
    /// The peer disconnects and was answered. The connection is in TIMEWAIT.
    Disconnected {
        /// The connection.
        id: CmId,
    },
    /// The peer did not answer; the connection has ended.
    TimedOut {
        /// The connection.
        id: CmId,
    },
    /// TIMEWAIT or a rejection is over: the ids and the queue pair number may be used again.
    Released {
        /// The connection that ended.
        id: CmId,
    },
}

impl CmEvent {
    /// The connection of the event.
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
#[error("the limit of connections is reached")]
pub struct Full;
