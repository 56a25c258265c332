//! An incoming message: its receive buffer and the places of its payload.

use std::ops::Range;

use proto::Instant;

use super::Srq;
use crate::worker::Part;

/// The message in reception, if any.
#[derive(Debug, Default)]
pub struct Assembly {
    /// The receive buffer.
    buffer: Option<u32>,
    /// Payload bytes so far.
    len: usize,
    /// The places of the payload, in order; no part is empty.
    parts: Vec<Part>,
    /// The last parts are in the memory of a batch.
    has_arrived: bool,
    /// When the message began.
    since: Instant,
}

impl Assembly {
    /// Starts a message in `buffer`.
    pub fn open(&mut self, now: Instant, buffer: u32) {
        self.buffer = Some(buffer);
        self.since = now;
        self.len = 0;
        self.parts.clear();
        self.has_arrived = false;
    }

    /// Whether a message has begun.
    pub const fn is_open(&self) -> bool {
        self.buffer.is_some()
    }

    /// When the incomplete message began, if there is one.
    pub fn since(&self) -> Option<Instant> {
        self.buffer.map(|_| self.since)
    }

    /// Payload bytes so far.
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Adds a payload in the batch's memory.
    pub fn arrived(&mut self, range: Range<usize>) {
        if range.is_empty() {
            return;
        }
        self.len += range.len();
        self.has_arrived = true;
        self.parts.push(Part::Arrived(range));
    }

    /// Copies a payload to the receive buffer, which has room for it.
    pub fn keep(&mut self, srq: &mut Srq, payload: &[u8]) {
        let Some(buffer) = self.buffer else { return };
        if payload.is_empty() {
            return;
        }
        srq.buffer_mut(buffer)[self.len..][..payload.len()].copy_from_slice(payload);
        let start = srq.range(buffer).start + self.len;
        let end = start + payload.len();
        self.len += payload.len();
        match self.parts.last_mut() {
            Some(Part::Kept(before)) if before.end == start => before.end = end,
            _ => self.parts.push(Part::Kept(start..end)),
        }
    }

    /// Copies parts in `memory`, the batch's, to the receive buffer. True if there were any.
    pub fn keep_arrived(&mut self, srq: &mut Srq, memory: &[u8]) -> bool {
        let Some(buffer) = self.buffer.filter(|_| self.has_arrived) else {
            return false;
        };
        let mut offset = 0;
        for part in &self.parts {
            let (Part::Arrived(range) | Part::Kept(range)) = part;
            if let Part::Arrived(range) = part {
                srq.buffer_mut(buffer)[offset..][..range.len()]
                    .copy_from_slice(&memory[range.clone()]);
            }
            offset += range.len();
        }
        let start = srq.range(buffer).start;
        self.parts.clear();
        self.parts.push(Part::Kept(start..start + self.len));
        self.has_arrived = false;
        true
    }

    /// Completes the message: appends its parts to `parts`, returns its buffer and length.
    pub fn close(&mut self, parts: &mut Vec<Part>) -> Option<(u32, usize)> {
        let buffer = self.buffer.take()?;
        parts.append(&mut self.parts);
        self.has_arrived = false;
        Some((buffer, self.len))
    }

    /// Drops the message and returns its buffer, to be posted again.
    pub fn abandon(&mut self) -> Option<u32> {
        let buffer = self.buffer.take();
        *self = Assembly::default();
        buffer
    }

    /// Whether [`Assembly::trim`] would release memory.
    pub fn is_roomy(&self) -> bool {
        self.parts.capacity() > 4
    }

    /// Allocated bytes.
    #[cfg(test)]
    pub fn heap_bytes(&self) -> usize {
        self.parts.capacity() * size_of::<Part>()
    }

    /// Releases unused memory.
    pub fn trim(&mut self) {
        self.parts.shrink_to_fit();
    }
}
