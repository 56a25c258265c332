//! Receive memory: a shared receive queue of equal buffers, and received messages.

use std::ops::Range;

use proto::Qpn;

use crate::worker::{Message, Part};

/// A shared receive queue (IBA vol. 1, 10.2.9). The queue pairs of a worker take a buffer at the first
/// packet of a message.
///
/// A buffer is a posted receive request. Its memory is written only if a message comes in more than one
/// batch, or out of order.
#[derive(Debug)]
pub struct Srq {
    memory: Vec<u8>,
    buffer_len: usize,
    free: Vec<u32>,
    /// The event is raised when fewer buffers than this are left; 0 while it is not armed.
    limit: usize,
    /// Bytes of packets that all queue pairs keep after gaps.
    held: usize,
}

/// Maximum bytes of packets that all queue pairs of a worker keep after gaps. Further packets are
/// dropped, and the peer sends them again.
const HELD_MAX: usize = 16 << 20;

impl Srq {
    /// Creates `count` buffers of `buffer_len` bytes, the largest message.
    pub fn new(count: usize, buffer_len: usize) -> Srq {
        Srq {
            // Untouched zeroed memory takes no room.
            memory: vec![0; count * buffer_len],
            buffer_len,
            free: (0..count as u32).rev().collect(),
            limit: 0,
            held: 0,
        }
    }

    /// Reserves `bytes` for a packet after a gap; false if there is no room.
    pub(super) const fn hold(&mut self, bytes: usize) -> bool {
        let fits = self.held + bytes <= HELD_MAX;
        if fits {
            self.held += bytes;
        }
        fits
    }

    /// Releases reserved bytes.
    pub(super) const fn release(&mut self, bytes: usize) {
        self.held -= bytes;
    }

    /// Bytes reserved for packets after gaps.
    pub const fn held(&self) -> usize {
        self.held
    }

    /// The largest message in bytes.
    pub const fn buffer_len(&self) -> usize {
        self.buffer_len
    }

    /// The memory of all buffers.
    pub fn memory(&self) -> &[u8] {
        &self.memory
    }

    /// The range of a buffer in [`Srq::memory`].
    pub const fn range(&self, buffer: u32) -> Range<usize> {
        let start = buffer as usize * self.buffer_len;
        start..start + self.buffer_len
    }

    /// A buffer's memory.
    pub fn buffer_mut(&mut self, buffer: u32) -> &mut [u8] {
        let range = self.range(buffer);
        &mut self.memory[range]
    }

    /// Takes a buffer. The second value is true if the queue is now below its limit, once for each
    /// [`Srq::arm`].
    pub fn take(&mut self) -> Option<(u32, bool)> {
        let buffer = self.free.pop()?;
        let reached = self.free.len() < self.limit;
        if reached {
            self.limit = 0;
        }
        Some((buffer, reached))
    }

    /// Posts a buffer again.
    pub fn post(&mut self, buffer: u32) {
        self.free.push(buffer);
    }

    /// Number of buffers.
    pub const fn count(&self) -> usize {
        self.memory.len() / self.buffer_len
    }

    /// Number of free buffers.
    pub fn available(&self) -> usize {
        self.free.len()
    }

    /// Requests the limit event when fewer than `limit` buffers are left.
    pub fn arm(&mut self, limit: usize) {
        self.limit = limit;
    }
}

/// A complete message.
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
    /// The receive buffer, to be posted again after the message was handled.
    pub buffer: u32,
    /// The range of its parts in the list of parts.
    pub parts: Range<usize>,
}

/// The messages of one batch.
#[derive(Debug, Default)]
pub struct Inbox {
    /// Messages in order of arrival.
    pub messages: Vec<ReceivedMessage>,
    /// The parts of all messages.
    pub(crate) parts: Vec<Part>,
}

impl Inbox {
    /// The payload of a message: `arrived` is the batch's memory, `kept` is [`Srq::memory`].
    pub fn message<'a>(
        &'a self,
        message: &ReceivedMessage,
        arrived: &'a [u8],
        kept: &'a [u8],
    ) -> Message<'a> {
        Message::new(arrived, kept, &self.parts[message.parts.clone()])
    }

    /// Removes all messages, after they were handled.
    pub fn clear(&mut self) {
        self.messages.clear();
        self.parts.clear();
    }
}
