//! Management datagrams in pieces, since a UD datagram may hold less than the 2048 bytes that one has.
//!
//! Each piece has 12 bytes before it, big-endian:
//!
//! ```text
//!  0  version   u8   1
//!  1  reserved  u8   sent as 0
//!  2  length    u16  bytes of the whole message
//!  4  offset    u16  where the piece lies in it, a multiple of 8
//!  6  reserved  u16  sent as 0
//!  8  message   u32  which of the sender's messages it is of
//! ```
//!
//! Every piece but the last has a multiple of 8 bytes. There are no acknowledgements: who asks, asks
//! again.

use std::collections::VecDeque;

use proto::{Gid, Qpn, Time};

use crate::mad::MAD_MAX;

/// Bytes before each piece.
pub const HEADER_LEN: usize = 12;
/// The most bytes of a message in one piece.
pub const PIECE_MAX: usize = 1024;
/// The most bytes of a datagram with a piece.
pub const DATAGRAM_MAX: usize = HEADER_LEN + PIECE_MAX;

const VERSION: u8 = 1;
/// Pieces begin at multiples of this.
const UNIT: usize = 8;
const UNITS: usize = MAD_MAX / UNIT;

/// Cuts one sender's messages into pieces.
#[derive(Clone, Debug)]
pub struct Splitter {
    next: u32,
    piece: usize,
}

impl Splitter {
    /// `first` is the number of the first message: drawn, so that the messages before a restart are not
    /// completed by those after it. `payload_max` are the bytes that a UD datagram may have.
    #[must_use]
    pub fn new(first: u32, payload_max: usize) -> Splitter {
        let mut splitter = Splitter {
            next: first,
            piece: 0,
        };
        splitter.set_payload_max(payload_max);
        splitter
    }

    /// A UD datagram may now have so many bytes.
    pub fn set_payload_max(&mut self, payload_max: usize) {
        let room = payload_max.saturating_sub(HEADER_LEN).min(PIECE_MAX);
        self.piece = (room / UNIT * UNIT).max(UNIT);
    }

    /// The datagrams of a message of 1 to [`MAD_MAX`] bytes; none of any other.
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
    out.extend((length as u16).to_be_bytes());
    out.extend((offset as u16).to_be_bytes());
    out.extend([0; 2]);
    out.extend(number.to_be_bytes());
    out.extend(bytes);
    out
}

/// One piece as it came.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Piece<'d> {
    /// Which of the sender's messages it is of.
    pub message: u32,
    /// Bytes of the whole message.
    pub length: usize,
    /// Where it lies in that.
    pub offset: usize,
    /// Its bytes.
    pub bytes: &'d [u8],
}

impl<'d> Piece<'d> {
    /// Reads a datagram; `None` if it is no piece of a message that there may be.
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

    /// The units that it covers.
    fn units(&self) -> std::ops::Range<usize> {
        let first = self.offset / UNIT;
        first..first + self.bytes.len().div_ceil(UNIT)
    }
}

/// Messages of which pieces are missing, of all senders together: 512 KiB at most.
const PARTIAL_MAX: usize = 256;
/// Of one fabric port, so that it does not push out the others'. A node has as many queue pairs as it likes.
const PARTIAL_OF_PORT: usize = 16;
/// How long a message waits for its pieces, in milliseconds.
const PATIENCE_MS: u64 = 2000;

/// What became of what a [`Reassembler`] was given.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct FragmentCounts {
    /// Messages that were complete.
    pub messages: u64,
    /// Datagrams that are no pieces.
    pub malformed: u64,
    /// Messages given up since two of their pieces contradict each other.
    pub contradicted: u64,
    /// Messages given up since pieces were missing for too long.
    pub timed_out: u64,
    /// Messages given up for younger ones.
    pub evicted: u64,
}

impl FragmentCounts {
    /// Names and values.
    #[must_use]
    pub const fn named(&self) -> [(&'static str, u64); 5] {
        [
            ("messages", self.messages),
            ("bad_pieces", self.malformed),
            ("contradicted", self.contradicted),
            ("timed_out", self.timed_out),
            ("evicted", self.evicted),
        ]
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

    /// Adds a piece; false if it contradicts what is there.
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

/// Puts the messages of all senders together again. Pieces may be lost, come twice and in any order.
#[derive(Default)]
pub struct Reassembler {
    /// In the order of their first pieces.
    partial: VecDeque<Partial>,
    counts: FragmentCounts,
}

impl Reassembler {
    /// Takes a datagram; gives the message that it completes.
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

    /// What became of everything.
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

    /// Where the piece's message is, which may be a new one.
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
