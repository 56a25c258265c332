//! The receiving side's memory: a shared receive queue of equal buffers, and what was received.

use std::ops::Range;

use proto::Qpn;

use crate::worker::{Message, Part};

/// A shared receive queue (IBA vol. 1, 10.2.9): buffers that any queue pair of a worker takes one of
/// at the first packet of a message.
///
/// A buffer stands for a posted receive request. Its memory is written only where a message's parts
/// come in more than one batch, or out of order.
#[derive(Debug)]
pub struct Srq {
    memory: Vec<u8>,
    buffer_len: usize,
    free: Vec<u32>,
    /// The event is raised when fewer buffers than this are left; 0 while it is not armed.
    limit: usize,
    /// Bytes of packets that all queue pairs keep behind gaps.
    held: usize,
}

/// Bytes of packets that all queue pairs of a worker keep behind gaps, at most. Where more come they
/// are dropped, and sent again as by any peer that keeps none.
const HELD_MAX: usize = 16 << 20;

impl Srq {
    /// `count` buffers of `buffer_len` bytes: the largest message.
    pub fn new(count: usize, buffer_len: usize) -> Srq {
        Srq {
            // Zeroed memory that nobody has touched takes no room.
            memory: vec![0; count * buffer_len],
            buffer_len,
            free: (0..count as u32).rev().collect(),
            limit: 0,
            held: 0,
        }
    }

    /// Whether another `bytes` may be kept behind a gap; counts them.
    pub(super) const fn hold(&mut self, bytes: usize) -> bool {
        let fits = self.held + bytes <= HELD_MAX;
        if fits {
            self.held += bytes;
        }
        fits
    }

    /// They are kept no longer.
    pub(super) const fn release(&mut self, bytes: usize) {
        self.held -= bytes;
    }

    /// Bytes that are kept behind gaps.
    pub const fn held(&self) -> usize {
        self.held
    }

    /// The largest message in bytes.
    pub const fn buffer_len(&self) -> usize {
        self.buffer_len
    }

    /// All buffers' memory.
    pub fn memory(&self) -> &[u8] {
        &self.memory
    }

    /// Where a buffer lies in [`Srq::memory`].
    pub const fn range(&self, buffer: u32) -> Range<usize> {
        let start = buffer as usize * self.buffer_len;
        start..start + self.buffer_len
    }

    /// A buffer's memory.
    pub fn buffer_mut(&mut self, buffer: u32) -> &mut [u8] {
        let range = self.range(buffer);
        &mut self.memory[range]
    }

    /// Takes a buffer. True beside it if that took the queue below its limit, which is told once for
    /// each [`Srq::arm`].
    pub fn take(&mut self) -> Option<(u32, bool)> {
        let buffer = self.free.pop()?;
        let reached = self.free.len() < self.limit;
        if reached {
            self.limit = 0;
        }
        Some((buffer, reached))
    }

    /// Gives a buffer back: posts it again.
    pub fn post(&mut self, buffer: u32) {
        self.free.push(buffer);
    }

    /// Buffers that are left.
    pub fn available(&self) -> usize {
        self.free.len()
    }

    /// Asks for the limit event when fewer than `limit` buffers are left.
    pub fn arm(&mut self, limit: usize) {
        self.limit = limit;
    }
}

/// One message that is there whole.
#[derive(Clone, Debug)]
pub struct ReceivedMessage {
    /// Our queue pair.
    pub qpn: Qpn,
    /// Immediate data.
    pub immediate: Option<[u8; 4]>,
    /// The solicited event bit of its last packet.
    pub solicited: bool,
    /// Payload bytes.
    pub len: usize,
    /// The receive buffer that it took, to be posted again when it has been handled.
    pub buffer: u32,
    /// Where its parts are in the list of all of them.
    pub parts: Range<usize>,
}

/// What one batch brought.
#[derive(Debug, Default)]
pub struct Inbox {
    /// Messages in order of arrival.
    pub messages: Vec<ReceivedMessage>,
    /// The parts of all of them.
    pub(crate) parts: Vec<Part>,
}

impl Inbox {
    /// The payload of a message: `arrived` is the batch's memory, `kept` that of [`Srq::memory`].
    pub fn message<'a>(
        &'a self,
        message: &ReceivedMessage,
        arrived: &'a [u8],
        kept: &'a [u8],
    ) -> Message<'a> {
        Message::new(arrived, kept, &self.parts[message.parts.clone()])
    }

    /// Forgets all messages, when they have been handled.
    pub fn clear(&mut self) {
        self.messages.clear();
        self.parts.clear();
    }
}
