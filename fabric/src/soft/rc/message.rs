//! A message on its way in: its receive buffer and where its payload lies.

use std::ops::Range;

use proto::Instant;

use super::Srq;
use crate::worker::Part;

/// The message that is being received, if there is one.
#[derive(Debug, Default)]
pub struct Assembly {
    /// The receive buffer.
    buffer: Option<u32>,
    /// Payload bytes so far.
    len: usize,
    /// Where they lie, in order; no part is empty.
    parts: Vec<Part>,
    /// The last parts are in the memory of a batch.
    has_arrived: bool,
    /// When it began.
    since: Instant,
}

impl Assembly {
    /// Begins a message in `buffer`.
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

    /// When the message began that is not whole, if there is one.
    pub fn since(&self) -> Option<Instant> {
        self.buffer.map(|_| self.since)
    }

    /// Payload bytes so far.
    pub const fn len(&self) -> usize {
        self.len
    }

    /// The next payload lies in the batch's memory.
    pub fn arrived(&mut self, range: Range<usize>) {
        if range.is_empty() {
            return;
        }
        self.len += range.len();
        self.has_arrived = true;
        self.parts.push(Part::Arrived(range));
    }

    /// The next payload goes to the receive buffer, which has room for it.
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

    /// Copies to the receive buffer what lies in `memory`, the batch's. True if there was something.
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

    /// The message is whole: its parts are appended to `parts`. Its buffer and its length.
    pub fn close(&mut self, parts: &mut Vec<Part>) -> Option<(u32, usize)> {
        let buffer = self.buffer.take()?;
        parts.append(&mut self.parts);
        self.has_arrived = false;
        Some((buffer, self.len))
    }

    /// Forgets the message; its buffer, to be posted again.
    pub fn abandon(&mut self) -> Option<u32> {
        let buffer = self.buffer.take();
        *self = Assembly::default();
        buffer
    }

    /// Whether [`Assembly::trim`] would give something back.
    pub fn is_roomy(&self) -> bool {
        self.parts.capacity() > 4
    }

    /// Bytes that it has allocated.
    #[cfg(test)]
    pub fn heap_bytes(&self) -> usize {
        self.parts.capacity() * size_of::<Part>()
    }

    /// Gives back memory that is not in use.
    pub fn trim(&mut self) {
        self.parts.shrink_to_fit();
    }
}
