//! Echo between daemons: tests a peer's queue pair and measures the round trip.
//!
//! IPoIB has no echo, and an ICMP echo tests the peer's host, not its queue pair. An echo is an IPoIB
//! payload with the first EtherType for local experiments (IEEE Std 802, section 9.2.4). The kernel's IPoIB
//! passes it to its stack, which ignores it. All fields are big-endian:
//!
//! | offset | size | field |
//! |---|---|---|
//! | 0 | 4 | encapsulation: 0x88b5, two zero bytes |
//! | 4 | 4 | `ibt1` |
//! | 8 | 1 | 1 request, 2 reply |
//! | 9 | 1 | zero; ignored |
//! | 10 | 2 | identifier |
//! | 12 | 4 | sequence number |
//! | 16 | 8 | the requester's time stamp |
//! | 24 | 16 | GID of the requested peer; zero: any peer |
//! | 40 | | padding |
//!
//! A reply is the request with another operation code and the same length. A payload of the link's maximum
//! length therefore tests both directions.

#![cfg_attr(
    not(test),
    deny(clippy::cast_possible_truncation, clippy::cast_sign_loss)
)]

use std::collections::VecDeque;

use proto::{Gid, Time};

use crate::address::HardwareAddress;
use crate::wire::{ENCAP_LEN, array, be16, encap};

/// The EtherType.
pub const TYPE_ECHO: u16 = 0x88b5;

const MAGIC: [u8; 4] = *b"ibt1";
/// Encapsulation and fixed header.
pub const HEADER_LEN: usize = 40;
/// The longest multicast request; many peers answer it.
pub const GROUP_LEN_MAX: usize = 128;

/// The operation of an echo.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Operation {
    Request,
    Reply,
}

/// An echo without its padding.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Echo {
    pub operation: Operation,
    pub id: u16,
    pub sequence: u32,
    pub stamp: u64,
    pub target: Gid,
}

impl Echo {
    /// Parses a payload, which starts at the encapsulation header.
    pub fn parse(payload: &[u8]) -> Option<Echo> {
        let h: &[u8; HEADER_LEN] = payload.first_chunk()?;
        let operation = match h[8] {
            1 => Operation::Request,
            2 => Operation::Reply,
            _ => return None,
        };
        (h[ENCAP_LEN..8] == MAGIC).then(|| Echo {
            operation,
            id: be16(h, 10),
            sequence: u32::from_be_bytes(array(h, 12)),
            stamp: u64::from_be_bytes(array(h, 16)),
            target: Gid(array(h, 24)),
        })
    }

    /// The payload of `len` bytes, at least [`HEADER_LEN`]. The padding counts up, so that lost or moved
    /// bytes are visible in a capture.
    pub fn write(&self, len: usize) -> Vec<u8> {
        let mut p = Vec::with_capacity(len.max(HEADER_LEN));
        p.extend_from_slice(&encap(TYPE_ECHO));
        p.extend_from_slice(&MAGIC);
        p.extend_from_slice(&[self.operation.number(), 0]);
        p.extend_from_slice(&self.id.to_be_bytes());
        p.extend_from_slice(&self.sequence.to_be_bytes());
        p.extend_from_slice(&self.stamp.to_be_bytes());
        p.extend_from_slice(&self.target.0);
        p.extend((HEADER_LEN..len).map(|i| i.to_le_bytes()[0]));
        p
    }
}

impl Operation {
    const fn number(self) -> u8 {
        match self {
            Operation::Request => 1,
            Operation::Reply => 2,
        }
    }
}

/// The reply to a request.
pub fn answer(request: &[u8]) -> Vec<u8> {
    let mut reply = request.to_vec();
    if let Some(operation) = reply.get_mut(8) {
        *operation = Operation::Reply.number();
    }
    reply
}

/// The destination of a payload. The neighbour's slot is looked up at sending.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum To {
    Peer(HardwareAddress),
    Everybody,
}

/// Payloads to be sent.
#[derive(Default)]
pub struct EchoQueue {
    waiting: VecDeque<(To, Vec<u8>)>,
    /// The payload being sent.
    current: Vec<u8>,
    answers: Budget,
    heard: Budget,
}

impl EchoQueue {
    /// Maximum number of queued requests of this host.
    const REQUESTS_MAX: usize = 64;
    /// Maximum number of queued payloads, answers to a batch of requests included.
    const WAITING_MAX: usize = 256;

    /// Queues a request; false if too many wait.
    pub fn ask(&mut self, to: To, payload: Vec<u8>) -> bool {
        self.push(to, payload, EchoQueue::REQUESTS_MAX)
    }

    /// Queues an answer; false if too many wait.
    pub fn answer(&mut self, to: To, payload: Vec<u8>) -> bool {
        self.push(to, payload, EchoQueue::WAITING_MAX)
    }

    fn push(&mut self, to: To, payload: Vec<u8>, max: usize) -> bool {
        let room = self.waiting.len() < max;
        if room {
            self.waiting.push_back((to, payload));
        }
        room
    }

    /// Whether another answer may be sent in this second.
    pub fn may_answer(&mut self, now: Time) -> bool {
        self.answers.take(now)
    }

    /// Whether another received answer may be reported in this second. A storm of answers must not displace
    /// other events.
    pub fn may_report_answer(&mut self, now: Time) -> bool {
        self.heard.take(now)
    }

    /// Drops all queued payloads.
    pub fn clear(&mut self) {
        self.waiting.clear();
    }

    /// Returns the next destination; its payload is in [`EchoQueue::current`].
    pub fn next(&mut self) -> Option<To> {
        let (to, payload) = self.waiting.pop_front()?;
        self.current = payload;
        Some(to)
    }

    /// The payload of the last destination.
    pub fn current(&self) -> &[u8] {
        &self.current
    }
}

/// A maximum number in each second.
#[derive(Default)]
struct Budget {
    second: u64,
    used: u32,
}

impl Budget {
    const PER_SECOND: u32 = 1000;

    fn take(&mut self, now: Time) -> bool {
        let second = now.0 / 1000;
        if second != self.second {
            *self = Budget { second, used: 0 };
        }
        let left = self.used < Budget::PER_SECOND;
        self.used += u32::from(left);
        left
    }
}

#[cfg(test)]
mod tests;
