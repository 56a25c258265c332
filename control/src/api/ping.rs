//! Echo requests at the level of the fabric.

use std::net::IpAddr;

use proto::{Gid, Qpn};
use serde::{Deserialize, Serialize};

/// Bytes of IB payload of a request unless the client says otherwise.
pub const PING_SIZE: u32 = 64;

/// Milliseconds between requests, and to wait for an answer, unless the client says otherwise.
pub const PING_INTERVAL_MS: u32 = 1000;

/// Parameters of [`super::Request::Ping`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PingRequest {
    /// The interface to ask through.
    pub interface: String,
    /// An IP address of a neighbour, a GID, or `all`.
    pub target: String,
    /// Requests to send; none: until the client goes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub count: Option<u32>,
    /// Bytes of IB payload.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size: Option<u32>,
    /// Milliseconds from one request to the next.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interval_ms: Option<u32>,
    /// Milliseconds to wait for an answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<u32>,
}

/// One of the replies to [`super::Request::Ping`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PingReply {
    /// A peer answered.
    Answer(EchoAnswer),
    /// Nobody answered a request in time.
    Timeout(EchoTimeout),
    /// The last reply.
    Summary(PingSummary),
}

/// An answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EchoAnswer {
    /// The number of the request, from 1.
    pub sequence: u32,
    /// Who answered.
    pub gid: Gid,
    /// From which queue pair.
    pub qpn: Qpn,
    /// IP addresses that it is known to have.
    pub ips: Vec<IpAddr>,
    /// Bytes of IB payload.
    pub bytes: u32,
    /// From sending the request to receiving the answer.
    pub round_trip_ns: u64,
}

/// A request that nobody answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EchoTimeout {
    /// The number of the request, from 1.
    pub sequence: u32,
}

/// What came of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PingSummary {
    /// Requests sent.
    pub sent: u32,
    /// Requests that at least one peer answered.
    pub answered: u32,
    /// Answers; more than requests where several peers answer one.
    pub answers: u32,
    /// The shortest round trip, in nanoseconds; 0 without answers, as are the next two.
    pub min_ns: u64,
    /// The mean.
    pub mean_ns: u64,
    /// The longest.
    pub max_ns: u64,
}
