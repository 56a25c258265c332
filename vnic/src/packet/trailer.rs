//! Trailer of a packet: padding, ICRC, tail.

/// Bytes of the ICRC.
pub const ICRC_LEN: usize = 4;
/// Bytes of the tail.
pub const TAIL_LEN: usize = 1;

/// LT in the tail: 01 in its upper two bits.
const LT: u8 = 0x40;

/// The last byte of a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Tail(pub u8);

impl Tail {
    /// Creates the tail of a packet with `pad` bytes of padding, up to 7.
    #[must_use]
    pub const fn new(pad: usize) -> Tail {
        Tail(LT | Tail::without_lt(pad).0)
    }

    /// Creates the tail without LT, as the kernel's driver has it in memory.
    #[must_use]
    pub const fn without_lt(pad: usize) -> Tail {
        let [low, ..] = pad.to_le_bytes();
        Tail(low & 7)
    }

    /// Bytes of padding in the tail: 6 bits, of which only 0 to 7 are valid.
    #[must_use]
    pub const fn pad(self) -> u8 {
        self.0 & 0x3f
    }

    /// Bytes of padding as the kernel's driver reads them: the lower three bits.
    #[must_use]
    pub const fn pad_masked(self) -> usize {
        (self.0 & 7) as usize
    }
}

/// ICRC in a packet, little-endian before the tail; `None` if the packet is too short.
#[must_use]
pub fn stored_icrc(packet: &[u8]) -> Option<u32> {
    let (_tail, before) = packet.split_last()?;
    before.last_chunk().map(|bytes| u32::from_le_bytes(*bytes))
}
