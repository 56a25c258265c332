//! Fragmentation of management datagrams: they have up to 2048 bytes, and a UD datagram may carry less.
//!
//! Each piece has a header of 12 bytes, big-endian:
//!
//! ```text
//!  0  version   u8   1
//!  1  reserved  u8   sent as 0
//!  2  length    u16  bytes of the whole message
//!  4  offset    u16  offset of the piece in the message, a multiple of 8
//!  6  reserved  u16  sent as 0
//!  8  message   u32  number of the message, by sender
//! ```
//!
//! The length of every piece but the last is a multiple of 8. There are no acknowledgements: a requester
//! without an answer repeats the request.

use std::collections::VecDeque;

use proto::{Gid, Qpn, Time};

use crate::mad::{MAD_MAX, two_bytes};

/// Bytes of the header of a piece.
pub const HEADER_LEN: usize = 12;
/// Maximum number of message bytes in a piece.
pub const PIECE_MAX: usize = 1024;
/// Maximum number of bytes in a datagram with a piece.
pub const DATAGRAM_MAX: usize = HEADER_LEN + PIECE_MAX;

const VERSION: u8 = 1;
/// Offsets of pieces are multiples of this.
const UNIT: usize = 8;
const UNITS: usize = MAD_MAX / UNIT;

/// Cuts the messages of a sender into pieces.
#[derive(Clone, Debug)]
pub struct Splitter {
    next: u32,
    piece: usize,
}

impl Splitter {
    /// Creates a splitter. `first` is the number of the first message; it must be random, so that messages
    /// after a restart do not complete messages before it. `payload_max` is the largest UD payload, in
    /// bytes.
    #[must_use]
    pub fn new(first: u32, payload_max: usize) -> Splitter {
        let mut splitter = Splitter {
            next: first,
            piece: 0,
        };
        splitter.set_payload_max(payload_max);
        splitter
    }

    /// Sets the largest UD payload, in bytes.
    pub fn set_payload_max(&mut self, payload_max: usize) {
        let room = payload_max.saturating_sub(HEADER_LEN).min(PIECE_MAX);
        self.piece = (room / UNIT * UNIT).max(UNIT);
    }

    /// Cuts a message of 1 to [`MAD_MAX`] bytes into datagrams. Other messages give none.
    pub fn split<'m>(&mut self, message: &'m [u8]) -> impl Iterator<Item = Vec<u8>> + use<'m> {
        let number = self.next;
        self.next = number.wrapping_add(1);
        let piece = self.piece;
        let message = if message.len() > MAD_MAX {
            &[]
        } else {
            message
        };
        let pieces = message.chunks(piece).enumerate();
        pieces.map(move |(n, bytes)| datagram(number, message.len(), n * piece, bytes))
    }
}

fn datagram(number: u32, length: usize, offset: usize, bytes: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(HEADER_LEN + bytes.len());
    out.extend([VERSION, 0]);
    out.extend(two_bytes(length));
    out.extend(two_bytes(offset));
    out.extend([0; 2]);
    out.extend(number.to_be_bytes());
    out.extend(bytes);
    out
}

/// A received piece.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Piece<'d> {
    /// Number of the message.
    pub message: u32,
    /// Length of the whole message, in bytes.
    pub length: usize,
    /// Offset of the piece in the message, in bytes.
    pub offset: usize,
    /// Contents of the piece.
    pub bytes: &'d [u8],
}

impl<'d> Piece<'d> {
    /// Parses a datagram; `None` if it is not a valid piece.
    #[must_use]
    pub fn parse(datagram: &'d [u8]) -> Option<Piece<'d>> {
        let (header, bytes) = datagram.split_first_chunk::<HEADER_LEN>()?;
        let [version, _, l0, l1, o0, o1, _, _, message @ ..] = *header;
        let length = usize::from(u16::from_be_bytes([l0, l1]));
        let offset = usize::from(u16::from_be_bytes([o0, o1]));
        let piece = Piece {
            message: u32::from_be_bytes(message),
            length,
            offset,
            bytes,
        };
        let end = offset + bytes.len();
        let right = version == VERSION
            && length <= MAD_MAX
            && !bytes.is_empty()
            && end <= length
            && offset % UNIT == 0
            && (end == length || bytes.len() % UNIT == 0);
        right.then_some(piece)
    }

    /// Units of the message that the piece covers.
    fn units(&self) -> std::ops::Range<usize> {
        let first = self.offset / UNIT;
        first..first + self.bytes.len().div_ceil(UNIT)
    }
}

/// Maximum number of incomplete messages of all senders: 512 KiB of memory.
const PARTIAL_MAX: usize = 256;
/// Maximum number of incomplete messages of one fabric port, so that a port cannot evict the messages of
/// others. The limit is for each GID, because a node can have any number of queue pairs.
const PARTIAL_OF_PORT: usize = 16;
/// Time to wait for missing pieces, in milliseconds.
const PATIENCE_MS: u64 = 2000;

proto::counters! {
    /// Counters of a [`Reassembler`].
    pub struct FragmentCounts {
        /// Complete messages.
        messages,
        /// Datagrams that are not valid pieces.
        malformed => "bad_pieces",
        /// Messages dropped because two of their pieces contradict each other.
        contradicted,
        /// Messages dropped because pieces were missing for too long.
        timed_out,
        /// Messages dropped to make room for newer ones.
        evicted,
    }
}

struct Partial {
    sender: (Gid, Qpn),
    message: u32,
    since: Time,
    bytes: Vec<u8>,
    have: [u64; UNITS / 64],
}

impl Partial {
    fn has(&self, unit: usize) -> bool {
        self.have[unit / 64] & 1 << (unit % 64) != 0
    }

    fn is_complete(&self) -> bool {
        let units = self.bytes.len().div_ceil(UNIT);
        let have: u32 = self.have.iter().map(|word| word.count_ones()).sum();
        have as usize == units
    }

    /// Adds a piece; false if it contradicts the pieces before.
    fn add(&mut self, piece: &Piece<'_>) -> bool {
        if piece.length != self.bytes.len() {
            return false;
        }
        for (unit, bytes) in piece.units().zip(piece.bytes.chunks(UNIT)) {
            let at = unit * UNIT;
            let have = self.has(unit);
            let place = &mut self.bytes[at..at + bytes.len()];
            if have && place != bytes {
                return false;
            }
            place.copy_from_slice(bytes);
            self.have[unit / 64] |= 1 << (unit % 64);
        }
        true
    }
}

/// Reassembles the messages of all senders. Pieces may be lost, repeated or reordered.
#[derive(Default)]
pub struct Reassembler {
    /// Ordered by arrival of the first piece.
    partial: VecDeque<Partial>,
    counts: FragmentCounts,
}

impl Reassembler {
    /// Takes a datagram. Returns the message that it completes.
    pub fn receive(&mut self, now: Time, gid: Gid, qpn: Qpn, datagram: &[u8]) -> Option<Vec<u8>> {
        let Some(piece) = Piece::parse(datagram) else {
            self.counts.malformed += 1;
            return None;
        };
        if piece.bytes.len() == piece.length {
            self.counts.messages += 1;
            return Some(piece.bytes.to_vec());
        }
        self.expire(now);
        let at = self.partial_of(now, (gid, qpn), &piece);
        let partial = self.partial.get_mut(at)?;
        if !partial.add(&piece) {
            self.partial.remove(at);
            self.counts.contradicted += 1;
            return None;
        }
        if !partial.is_complete() {
            return None;
        }
        self.counts.messages += 1;
        self.partial.remove(at).map(|partial| partial.bytes)
    }

    /// Counters.
    #[must_use]
    pub const fn counts(&self) -> FragmentCounts {
        self.counts
    }

    fn expire(&mut self, now: Time) {
        let old = |partial: &Partial| partial.since.after(PATIENCE_MS) <= now;
        while self.partial.front().is_some_and(old) {
            self.partial.pop_front();
            self.counts.timed_out += 1;
        }
    }

    /// Index of the piece's message, which may be new.
    fn partial_of(&mut self, now: Time, sender: (Gid, Qpn), piece: &Piece<'_>) -> usize {
        let same = |p: &Partial| p.sender == sender && p.message == piece.message;
        if let Some(at) = self.partial.iter().position(same) {
            return at;
        }
        let of_port = |p: &Partial| p.sender.0 == sender.0;
        if self.partial.iter().filter(|p| of_port(p)).count() >= PARTIAL_OF_PORT {
            let oldest = self.partial.iter().position(of_port);
            self.evict(oldest.unwrap_or(0));
        } else if self.partial.len() >= PARTIAL_MAX {
            self.evict(0);
        }
        self.partial.push_back(Partial {
            sender,
            message: piece.message,
            since: now,
            bytes: vec![0; piece.length],
            have: [0; UNITS / 64],
        });
        self.partial.len() - 1
    }

    fn evict(&mut self, at: usize) {
        self.partial.remove(at);
        self.counts.evicted += 1;
    }
}

#[cfg(test)]
mod tests;
