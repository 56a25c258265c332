//! A pool of buffers for outgoing messages.

/// Small buffers have up to this size: a message of few packets.
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
        let kept = if len <= SMALL {
            self.small.pop()
        } else if len <= LARGE {
            self.large.pop()
        } else {
            None
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
