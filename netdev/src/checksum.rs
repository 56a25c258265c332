//! The Internet checksum (RFC 1071).
//!
//! A [`Sum`] has the byte order of the machine: the ones' complement sum is independent of the byte order
//! if all words have the same one (RFC 1071, 2 (B)). Words are therefore added as loaded, and the result is
//! swapped once at the end. Loading big-endian words is three times slower.

mod wide;

/// Below this number of bytes, processor detection costs more than the wide loop gains.
const SHORT: usize = 128;

/// An unfinished ones' complement sum.
///
/// Sums of parts can be added in any order: with [`Sum::plus`] if the part starts at an even offset of the
/// summed data, else with [`Sum::plus_at`].
#[derive(Clone, Copy, Debug, Default)]
pub struct Sum(u64);

impl Sum {
    /// The sum of no data.
    pub const ZERO: Sum = Sum(0);

    /// The sum of `data` as big-endian 16-bit words; an odd last byte is padded with zero.
    #[inline]
    pub fn of(data: &[u8]) -> Sum {
        Sum(if data.len() < SHORT {
            wide::sum_short(data)
        } else {
            wide::sum(data)
        })
    }

    /// Copies `from` to `to` and returns its sum, in one pass.
    ///
    /// # Panics
    /// If the lengths differ.
    #[inline]
    pub fn of_copy(to: &mut [u8], from: &[u8]) -> Sum {
        assert_eq!(to.len(), from.len(), "a copy has the length of its source");
        if from.len() < SHORT {
            to.copy_from_slice(from);
            Sum(wide::sum_short(from))
        } else {
            Sum(wide::copy(to, from))
        }
    }

    /// Adds the sum of data at an even offset.
    #[must_use]
    #[inline]
    pub const fn plus(self, other: Sum) -> Sum {
        let (sum, carry) = self.0.overflowing_add(other.0);
        // Never overflows: after a carry the sum is at most u64::MAX - 1.
        Sum(sum + carry as u64)
    }

    /// Adds the sum of data at `offset` bytes into the summed data (RFC 1071, 2 (B): at an odd offset the
    /// bytes of each word are swapped).
    #[must_use]
    pub const fn plus_at(self, offset: usize, other: Sum) -> Sum {
        if offset.is_multiple_of(2) {
            self.plus(other)
        } else {
            self.plus(Sum(other.fold_native().swap_bytes() as u64))
        }
    }

    /// Adds a word, given as a number.
    #[must_use]
    #[inline]
    pub const fn word(self, word: u16) -> Sum {
        self.plus(Sum(word.to_be() as u64))
    }

    /// Adds a 32-bit field at an even offset, given as a number.
    #[must_use]
    #[inline]
    pub const fn word32(self, word: u32) -> Sum {
        self.plus(Sum(word.to_be() as u64))
    }

    /// The 16-bit sum without complement, for a checksum field that another party completes (virtio 1.2,
    /// 5.1.6.2: `VIRTIO_NET_HDR_F_NEEDS_CSUM`). Write it big-endian.
    #[inline]
    pub const fn fold(self) -> u16 {
        u16::from_be(self.fold_native())
    }

    /// The checksum: the complement of the sum. Write it big-endian.
    #[inline]
    pub const fn finish(self) -> u16 {
        !self.fold()
    }

    /// The checksum in UDP's form, where 0 means no checksum (RFC 768; RFC 8200, 8.1).
    #[inline]
    pub const fn finish_nonzero(self) -> u16 {
        match self.finish() {
            0 => 0xffff,
            checksum => checksum,
        }
    }

    /// Whether a sum over data and its checksum shows intact data.
    #[inline]
    pub const fn is_valid(self) -> bool {
        self.fold_native() == 0xffff
    }

    #[inline]
    const fn fold_native(self) -> u16 {
        let x = (self.0 >> 32) + (self.0 & 0xffff_ffff);
        let x = (x >> 16) + (x & 0xffff);
        let x = (x >> 16) + (x & 0xffff);
        let x = (x >> 16) + (x & 0xffff);
        x as u16
    }
}

/// The sum of the pseudo header of TCP, UDP and ICMPv6 (RFC 9293, 3.1; RFC 768; RFC 8200, 8.1). The
/// addresses have 4 or 16 bytes each, in network order; `length` is the number of bytes of transport header
/// and payload.
#[inline]
pub fn pseudo_header(source: &[u8], destination: &[u8], protocol: u8, length: u32) -> Sum {
    Sum::of(source)
        .plus(Sum::of(destination))
        .word(protocol.into())
        .word32(length)
}

#[cfg(test)]
mod tests;
