//! Writes a packet to memory in pieces, such as a message in network packets.

use crate::checksum::Sum;

/// Memory in pieces of any lengths.
pub trait Pieces {
    /// Piece `index`, counted from 0; empty after the last piece, and never before.
    fn piece(&mut self, index: usize) -> &mut [u8];
}

/// Fills pieces in order.
pub(super) struct Scatter<'p, P: ?Sized> {
    pieces: &'p mut P,
    /// The current piece.
    index: usize,
    /// Bytes filled in the current piece.
    filled: usize,
}

impl<'p, P: Pieces + ?Sized> Scatter<'p, P> {
    pub(super) fn new(pieces: &'p mut P) -> Scatter<'p, P> {
        Scatter {
            pieces,
            index: 0,
            filled: 0,
        }
    }

    /// Skips `len` bytes; false if there is not enough room.
    pub(super) fn skip(&mut self, mut len: usize) -> bool {
        while len > 0 {
            let Some(room) = self.room(len) else {
                return false;
            };
            len -= room.len();
        }
        true
    }

    /// Copies `from`; false if there is not enough room.
    pub(super) fn copy(&mut self, mut from: &[u8]) -> bool {
        while !from.is_empty() {
            let Some(room) = self.room(from.len()) else {
                return false;
            };
            let (now, later) = from.split_at(room.len());
            room.copy_from_slice(now);
            from = later;
        }
        true
    }

    /// Copies `from` and returns its sum, in one pass; `None` if there is not enough room.
    #[inline]
    pub(super) fn copy_and_sum(&mut self, from: &[u8]) -> Option<Sum> {
        let mut sum = Sum::ZERO;
        let mut done = 0;
        while done < from.len() {
            let room = self.room(from.len() - done)?;
            let part = Sum::of_copy(room, &from[done..done + room.len()]);
            let len = room.len();
            sum = sum.plus_at(done, part);
            done += len;
        }
        Some(sum)
    }

    /// Whether all pieces are filled.
    pub(super) fn is_at_end(&mut self) -> bool {
        let left = self.pieces.piece(self.index).len() - self.filled;
        left == 0 && (self.filled == 0 || self.pieces.piece(self.index + 1).is_empty())
    }

    /// The next bytes to fill, at least one and at most `len`, in one piece.
    #[inline]
    fn room(&mut self, len: usize) -> Option<&mut [u8]> {
        let piece_len = self.pieces.piece(self.index).len();
        if self.filled == piece_len && piece_len > 0 {
            self.index += 1;
            self.filled = 0;
        }
        let start = self.filled;
        let rest = self.pieces.piece(self.index).get_mut(start..)?;
        let take = rest.len().min(len);
        self.filled += take;
        Some(&mut rest[..take]).filter(|room| !room.is_empty())
    }
}
