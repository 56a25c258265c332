//! What is behind the frame: padding, ICRC, tail.

/// Bytes of the ICRC.
pub const ICRC_LEN: usize = 4;
/// Bytes of the tail.
pub const TAIL_LEN: usize = 1;

/// LT of a tail, 01 in its upper two bits.
const LT: u8 = 0x40;

/// The last byte of a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Tail(pub u8);

impl Tail {
    /// That of a packet with so many bytes of padding, up to 7.
    #[must_use]
    pub const fn new(pad: usize) -> Tail {
        Tail(LT | pad as u8 & 7)
    }

    /// Likewise, as the driver leaves it in memory: without LT.
    #[must_use]
    pub const fn without_lt(pad: usize) -> Tail {
        Tail(pad as u8 & 7)
    }

    /// Bytes of padding as the tail says it: 6 bits, of which more than 7 is nonsense.
    #[must_use]
    pub const fn pad(self) -> u8 {
        self.0 & 0x3f
    }

    /// Bytes of padding as the kernel's driver takes it: three bits.
    #[must_use]
    pub const fn pad_masked(self) -> usize {
        (self.0 & 7) as usize
    }

    /// Whether the upper two bits are 01, as they are on the wire.
    #[must_use]
    pub const fn has_lt(self) -> bool {
        self.0 & 0xc0 == LT
    }
}

/// The ICRC that a packet has, which is little-endian before the tail; `None` if it is too short for one.
#[must_use]
pub fn stored_icrc(packet: &[u8]) -> Option<u32> {
    let (_tail, before) = packet.split_last()?;
    before.last_chunk().map(|bytes| u32::from_le_bytes(*bytes))
}
