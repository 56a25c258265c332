//! Memory of messages on their way out.

use crate::soft::wire::{Bth, ICRC_LEN};
use crate::worker::{Train, TrainTicket};

/// Bytes in front of a payload: the BTH. Immediate data stand in front of the last payload's bytes,
/// in a place that [`SendBuffer`] keeps for them only where a message has some.
pub const HEAD: usize = size_of::<Bth>();

/// What lies in a [`SendBuffer`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Layout {
    /// One message, cut into packets of the path MTU, the last one possibly shorter.
    Message,
    /// One message in each place, all of one length but the last, which may be shorter.
    Messages,
}

/// Packets of one or more messages side by side: BTH, payload, pad, room for the ICRC, each.
#[derive(Debug)]
pub struct SendBuffer {
    /// The packets; [`SendBuffer::stride`] bytes each but the last. What is behind them has no
    /// meaning.
    pub memory: Vec<u8>,
    /// What lies in it.
    pub layout: Layout,
    /// How far it is filled: packets, payload bytes of each, of the last.
    pub ticket: TrainTicket,
    /// Places there are.
    capacity: usize,
}

impl SendBuffer {
    /// An empty buffer in `memory`, which is made as long as it takes, if it is not: `capacity` places
    /// of up to `payload` bytes.
    pub fn new(mut memory: Vec<u8>, layout: Layout, payload: usize, capacity: usize) -> SendBuffer {
        // What was there before is written over. It stays as long as it is, or the next longer
        // message would have to zero it.
        let len = capacity * Self::packet_len(payload);
        if memory.len() < len {
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

    /// Bytes on the UDP level of a packet with `len` payload bytes.
    pub const fn packet_len(len: usize) -> usize {
        HEAD + len + (len.wrapping_neg() & 3) + ICRC_LEN
    }

    /// Bytes from one packet to the next.
    pub const fn stride(&self) -> usize {
        Self::packet_len(self.ticket.payload)
    }

    /// Places to fill; what is filled already stays.
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
