//! Echo between daemons: is a peer's queue pair there, and how long is the way?
//!
//! IPoIB has no such thing, and an ICMP echo asks the peer's host, not its queue pair. An echo is an
//! IPoIB payload of the first EtherType for local experiments (IEEE Std 802, section 9.2.4), which
//! the kernel's IPoIB hands to its stack, where nobody wants it. All fields big-endian:
//!
//! | offset | size | field |
//! |---|---|---|
//! | 0 | 4 | encapsulation: 0x88b5, two zero bytes |
//! | 4 | 4 | `ibt1` |
//! | 8 | 1 | 1 request, 2 reply |
//! | 9 | 1 | zero; ignored |
//! | 10 | 2 | identifier |
//! | 12 | 4 | sequence number |
//! | 16 | 8 | the asker's stamp |
//! | 24 | 16 | GID of who shall answer; zero: anybody |
//! | 40 | | padding |
//!
//! A reply is the request with another operation: of the same length, so that a payload that is as
//! long as the link carries tries both ways.

use std::collections::VecDeque;

use proto::{Gid, Time};

use crate::address::HardwareAddress;
use crate::wire::{ENCAP_LEN, array, be16, encap};

/// The EtherType.
pub const TYPE_ECHO: u16 = 0x88b5;

const MAGIC: [u8; 4] = *b"ibt1";
/// Encapsulation and fixed header.
pub const HEADER_LEN: usize = 40;
/// The longest request that everybody may answer: many peers answer one of these.
pub const GROUP_LEN_MAX: usize = 128;

/// What an echo is.
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
    /// Reads a payload, from the encapsulation on.
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

    /// The payload of `len` bytes, at least [`HEADER_LEN`]. The padding counts, so that bytes lost
    /// or moved on the way show in a capture.
    pub fn write(&self, len: usize) -> Vec<u8> {
        let mut p = Vec::with_capacity(len.max(HEADER_LEN));
        p.extend_from_slice(&encap(TYPE_ECHO));
        p.extend_from_slice(&MAGIC);
        p.extend_from_slice(&[self.operation.number(), 0]);
        p.extend_from_slice(&self.id.to_be_bytes());
        p.extend_from_slice(&self.sequence.to_be_bytes());
        p.extend_from_slice(&self.stamp.to_be_bytes());
        p.extend_from_slice(&self.target.0);
        p.extend((HEADER_LEN..len).map(|i| i as u8));
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

/// Whom a payload is for. The neighbour's slot is looked up when it is sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum To {
    Peer(HardwareAddress),
    Everybody,
}

/// Payloads that wait to be sent.
#[derive(Default)]
pub struct EchoQueue {
    waiting: VecDeque<(To, Vec<u8>)>,
    /// The one under way.
    current: Vec<u8>,
    answers: Budget,
    heard: Budget,
}

impl EchoQueue {
    /// Requests of ours that may wait.
    const REQUESTS_MAX: usize = 64;
    /// Payloads that may wait in all, with the answers to one batch of others' requests.
    const WAITING_MAX: usize = 256;

    /// Queues a request of ours; false if too many wait.
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

    /// Whether this second has another answer of ours left.
    pub fn may_answer(&mut self, now: Time) -> bool {
        self.answers.take(now)
    }

    /// Whether this second has another answer to us left, so that a storm of them does not crowd
    /// out other events.
    pub fn may_hear(&mut self, now: Time) -> bool {
        self.heard.take(now)
    }

    /// Drops what waits.
    pub fn clear(&mut self) {
        self.waiting.clear();
    }

    /// Takes the next payload, for [`EchoQueue::current`].
    pub fn next(&mut self) -> Option<To> {
        let (to, payload) = self.waiting.pop_front()?;
        self.current = payload;
        Some(to)
    }

    /// The payload last taken.
    pub fn current(&self) -> &[u8] {
        &self.current
    }
}

/// So many a second.
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
