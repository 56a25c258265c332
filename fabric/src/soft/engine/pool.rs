//! A pool of buffers for outgoing messages.

/// The size of small buffers: a message of few packets.
const SMALL: usize = 8 << 10;

/// Larger buffers are not kept. A message of 64 KiB with the headers of its packets fits.
const LARGE: usize = 160 << 10;

/// Buffers kept of each kind.
const SMALL_KEPT: usize = 128;
const LARGE_KEPT: usize = 64;

/// Unused buffers.
#[derive(Debug, Default)]
pub struct Pool {
    small: Vec<Vec<u8>>,
    large: Vec<Vec<u8>>,
}

impl Pool {
    /// Returns a buffer for `len` bytes, a used one if possible. Its contents are undefined.
    pub fn take(&mut self, len: usize) -> Vec<u8> {
        let (kept, len) = if len <= SMALL {
            // None of them grows into a large one, which would not come back.
            (self.small.pop(), SMALL)
        } else if len <= LARGE {
            (self.large.pop(), len)
        } else {
            (None, len)
        };
        kept.unwrap_or_else(|| Vec::with_capacity(len))
    }

    /// Returns a buffer to the pool.
    pub fn give(&mut self, buffer: Vec<u8>) {
        match buffer.capacity() {
            1..=SMALL if self.small.len() < SMALL_KEPT => self.small.push(buffer),
            capacity if capacity > SMALL && capacity <= LARGE && self.large.len() < LARGE_KEPT => {
                self.large.push(buffer);
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::soft::rc::{Layout, SendBuffer};

    #[test]
    fn each_length_finds_its_buffer_again() {
        let mut pool = Pool::default();
        for payload in [1, 100, 3000, 5000, 8000] {
            for _ in 0..3 {
                let memory = pool.take(SendBuffer::memory_len(payload, 1));
                let buffer = SendBuffer::new(memory, Layout::Message, payload, 1);
                pool.give(buffer.memory);
            }
            assert_eq!((pool.small.len(), pool.large.len()), (1, 0), "{payload}");
        }
        let len = SendBuffer::memory_len(4096, 16);
        let buffer = SendBuffer::new(pool.take(len), Layout::Message, 4096, 16);
        assert_eq!(buffer.memory.capacity(), len);
    }

    #[test]
    fn buffers_come_back_and_are_bounded() {
        let mut pool = Pool::default();
        for len in [100, SMALL + 1, LARGE + 1] {
            for _ in 0..200 {
                pool.give(Vec::with_capacity(len));
            }
        }
        assert_eq!(
            (pool.small.len(), pool.large.len()),
            (SMALL_KEPT, LARGE_KEPT)
        );
        assert!(pool.take(SMALL).capacity() <= SMALL);
        assert!(pool.take(LARGE).capacity() > SMALL);
        assert_eq!(
            (pool.small.len(), pool.large.len()),
            (SMALL_KEPT - 1, LARGE_KEPT - 1)
        );
        pool.give(Vec::new());
        assert_eq!(pool.small.len(), SMALL_KEPT - 1, "nothing to keep");
    }
}
