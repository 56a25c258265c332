//! The Internet checksum (RFC 1071).
//!
//! A [`Sum`] is kept in the byte order of the machine: the ones' complement sum does not care which
//! byte of a word comes first as long as it is always the same one (RFC 1071, 2 (B)), so words are
//! added as they are loaded and swapped once, at the end. Loading big-endian words costs a factor
//! of three.

mod wide;

/// Below this the loop is not worth a look at what the processor can do.
const SHORT: usize = 64;

/// A ones' complement sum under way.
///
/// Sums of parts can be added in any order. What is added with [`Sum::plus`] starts at an even
/// offset of the summed data; for other parts there is [`Sum::plus_at`].
#[derive(Clone, Copy, Debug, Default)]
pub struct Sum(u64);

impl Sum {
    /// The sum of nothing.
    pub const ZERO: Sum = Sum(0);

    /// The sum of `data` as big-endian 16-bit words; an odd last byte counts as if a zero followed.
    #[inline]
    pub fn of(data: &[u8]) -> Sum {
        Sum(if data.len() < SHORT {
            wide::sum_short(data)
        } else {
            wide::sum(data)
        })
    }

    /// Copies `from` to `to` and gives the sum of it, in one pass.
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

    /// Both sums; `other` is of data at an even offset.
    #[must_use]
    #[inline]
    pub const fn plus(self, other: Sum) -> Sum {
        let (sum, carry) = self.0.overflowing_add(other.0);
        // Never overflows: after a carry the sum is at most u64::MAX - 1.
        Sum(sum + carry as u64)
    }

    /// Both sums; `other` is of data that starts `offset` bytes into the summed data (RFC 1071,
    /// 2 (B): at an odd offset every byte changes its place in the word).
    #[must_use]
    pub const fn plus_at(self, offset: usize, other: Sum) -> Sum {
        if offset.is_multiple_of(2) {
            self.plus(other)
        } else {
            self.plus(Sum(other.fold_native().swap_bytes() as u64))
        }
    }

    /// With one more word, given as a number.
    #[must_use]
    #[inline]
    pub const fn word(self, word: u16) -> Sum {
        self.plus(Sum(word.to_be() as u64))
    }

    /// With a 32-bit field at an even offset, given as a number.
    #[must_use]
    #[inline]
    pub const fn word32(self, word: u32) -> Sum {
        self.plus(Sum(word.to_be() as u64))
    }

    /// The 16-bit sum, not complemented: what stands in a checksum field that is to be completed
    /// by another (virtio 1.2, 5.1.6.2: `VIRTIO_NET_HDR_F_NEEDS_CSUM`). Write it big-endian.
    #[inline]
    pub const fn fold(self) -> u16 {
        u16::from_be(self.fold_native())
    }

    /// The checksum: the complement of the sum. Write it big-endian.
    #[inline]
    pub const fn finish(self) -> u16 {
        !self.fold()
    }

    /// The checksum as UDP writes it, where 0 means that there is none (RFC 768; RFC 8200, 8.1).
    #[inline]
    pub const fn finish_nonzero(self) -> u16 {
        match self.finish() {
            0 => 0xffff,
            checksum => checksum,
        }
    }

    /// Whether this, a sum over data and its checksum, says that the data is intact.
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

/// The sum of the pseudo header that goes before TCP, UDP and ICMPv6 (RFC 9293, 3.1; RFC 768;
/// RFC 8200, 8.1). The two addresses have 4 or 16 bytes each, in network order; `length` is that of
/// the transport header and its payload, in bytes.
#[inline]
pub fn pseudo_header(source: &[u8], destination: &[u8], protocol: u8, length: u32) -> Sum {
    Sum::of(source)
        .plus(Sum::of(destination))
        .word(protocol.into())
        .word32(length)
}

#[cfg(test)]
mod tests;
