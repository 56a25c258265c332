//! Echo requests at the level of the fabric.

use std::net::IpAddr;

use proto::{Gid, Qpn};
use serde::{Deserialize, Serialize};

/// Default IB payload of a request in bytes.
pub const PING_SIZE: u32 = 64;

/// Default interval between requests, and default timeout, in milliseconds.
pub const PING_INTERVAL_MS: u32 = 1000;

/// The shortest time between two requests of one client, in milliseconds: peers limit their rate of answers.
pub const PING_INTERVAL_MIN_MS: u32 = 10;

/// The longest time to wait for an answer, in milliseconds. It bounds the number of waiting requests.
pub const PING_TIMEOUT_MAX_MS: u32 = 60_000;

/// Parameters of [`super::Request::Ping`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PingRequest {
    /// The interface that sends the requests.
    pub interface: String,
    /// An IP address of a neighbour, a GID, or `all`.
    pub target: String,
    /// Number of requests; absent: until the client disconnects.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub count: Option<u32>,
    /// Bytes of IB payload.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size: Option<u32>,
    /// Interval between requests in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interval_ms: Option<u32>,
    /// Timeout of a request in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<u32>,
}

/// A reply to [`super::Request::Ping`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PingReply {
    /// A peer answered.
    Answer(EchoAnswer),
    /// A request had no answer in time.
    Timeout(EchoTimeout),
    /// The last reply.
    Summary(PingSummary),
}

/// An answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EchoAnswer {
    /// The number of the request, from 1.
    pub sequence: u32,
    /// The peer's GID.
    pub gid: Gid,
    /// The peer's queue pair.
    pub qpn: Qpn,
    /// Known IP addresses of the peer.
    pub ips: Vec<IpAddr>,
    /// Bytes of IB payload.
    pub bytes: u32,
    /// Time from the request to the answer.
    pub round_trip_ns: u64,
}

/// A request without an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EchoTimeout {
    /// The number of the request, from 1.
    pub sequence: u32,
}

/// Totals of requests and answers. Round trips are in nanoseconds; 0 without answers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PingSummary {
    /// Requests sent.
    pub sent: u32,
    /// Requests with at least one answer.
    pub answered: u32,
    /// Answers of all peers.
    pub answers: u32,
    /// The shortest round trip.
    pub min_ns: u64,
    /// The mean round trip.
    pub mean_ns: u64,
    /// The longest round trip.
    pub max_ns: u64,
}
