//! Memory of outgoing messages.

use super::reply::ACK_LEN;
use crate::soft::wire::{Bth, ICRC_LEN};
use crate::worker::{Train, TrainTicket};

/// Bytes before a payload: the BTH. A packet with immediate data is built elsewhere, as it is longer
/// than its place.
pub const HEAD: usize = size_of::<Bth>();

/// The contents of a [`SendBuffer`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Layout {
    /// One message, cut into packets of the path MTU; the last one may be shorter.
    Message,
    /// One message in each place, all of one length except the last, which may be shorter.
    Messages,
}

/// Contiguous packets of one or more messages. Each has BTH, payload, pad and room for the ICRC.
#[derive(Debug)]
pub struct SendBuffer {
    /// The packets: [`SendBuffer::stride`] bytes each except the last. Bytes after them are undefined;
    /// there is room for an acknowledgement.
    pub memory: Vec<u8>,
    /// One message or several.
    pub layout: Layout,
    /// Number of packets, payload bytes of each, payload bytes of the last.
    pub ticket: TrainTicket,
    /// Number of places.
    capacity: usize,
}

impl SendBuffer {
    /// Creates an empty buffer in `memory`, which grows if necessary: `capacity` places of up to
    /// `payload` bytes.
    pub fn new(mut memory: Vec<u8>, layout: Layout, payload: usize, capacity: usize) -> SendBuffer {
        // Old contents are overwritten. The memory does not shrink, or the next longer message would
        // zero it again.
        let len = Self::memory_len(payload, capacity);
        if memory.len() < len {
            memory.reserve_exact(len - memory.len());
            memory.resize(len, 0);
        }
        SendBuffer {
            memory,
            layout,
            ticket: TrainTicket {
                count: 0,
                payload,
                last: 0,
            },
            capacity,
        }
    }

    /// Bytes of memory for `capacity` places of `payload` bytes.
    pub const fn memory_len(payload: usize, capacity: usize) -> usize {
        capacity * Self::packet_len(payload) + ACK_LEN
    }

    /// UDP payload bytes of a packet with `len` payload bytes.
    pub const fn packet_len(len: usize) -> usize {
        HEAD + len + (len.wrapping_neg() & 3) + ICRC_LEN
    }

    /// Bytes from one packet to the next.
    pub const fn stride(&self) -> usize {
        Self::packet_len(self.ticket.payload)
    }

    /// The places to fill; filled places keep their contents.
    pub fn places(&mut self) -> Train<'_> {
        let stride = self.stride();
        Train::new(&mut self.memory, HEAD, stride, self.capacity, self.ticket)
    }

    /// Payload bytes of packet `k`.
    pub const fn payload_len(&self, k: usize) -> usize {
        if k + 1 == self.ticket.count {
            self.ticket.last
        } else {
            self.ticket.payload
        }
    }
}
