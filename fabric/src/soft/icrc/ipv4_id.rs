//! Recovers the IPv4 identification, which a UDP socket does not report.
//!
//! A CRC is linear over GF(2). An ICRC computed with a wrong identification differs from the right one
//! by the CRC of the difference of both identifications followed by zeros. Dividing the difference of
//! the two ICRCs by x^(8n), where n is the number of bytes from the identification to the end, yields
//! the difference of the identifications. If the other 16 bits of the quotient are not zero, the packet
//! is corrupt.

use super::{IPV4_HEADER_LEN, UDP_HEADER_LEN};
use crate::soft::wire::ICRC_LEN;

/// The polynomial of Ethernet's CRC, bit-reversed: bit 31 is x^0.
const POLYNOMIAL: u32 = 0xedb8_8320;
const ONE: u32 = 1 << 31;

/// Offset of the identification in the IPv4 header.
const ID_OFFSET: usize = 4;

/// Bytes from the identification to the BTH.
const ID_TO_BTH: usize = (IPV4_HEADER_LEN + UDP_HEADER_LEN) as usize - ID_OFFSET;

/// Product modulo the polynomial, in 32 steps for all values.
const fn multiply(a: u32, mut b: u32) -> u32 {
    let mut product = 0;
    let mut bit = 32;
    while bit > 0 {
        bit -= 1;
        product ^= b & (a >> bit & 1).wrapping_neg();
        b = (b >> 1) ^ (POLYNOMIAL & (b & 1).wrapping_neg());
    }
    product
}

/// Quotient of a division by x.
const fn divide_by_x(a: u32) -> u32 {
    if a & ONE == 0 {
        a << 1
    } else {
        (a ^ POLYNOMIAL) << 1 | 1
    }
}

/// Entry i is x^(-8 * 2^i): a division by 2^i bytes.
const DIVISORS: [u32; 17] = {
    let mut byte = ONE;
    let mut bit = 0;
    while bit < 8 {
        byte = divide_by_x(byte);
        bit += 1;
    }
    let mut table = [byte; 17];
    let mut i = 1;
    while i < table.len() {
        table[i] = multiply(table[i - 1], table[i - 1]);
        i += 1;
    }
    table
};

/// x^(-8 * bytes).
fn divisor(bytes: usize) -> u32 {
    let set = |i: &usize| bytes >> i & 1 == 1;
    (0..DIVISORS.len())
        .filter(set)
        .fold(ONE, |d, i| multiply(d, DIVISORS[i]))
}

/// Recovers the IPv4 identification of received packets. Caches the divisors of the lengths seen last.
/// No allocation, a fixed number of steps.
#[derive(Clone, Debug)]
pub struct Ipv4IdSolver {
    /// Indexed by the low bits of a quarter of the length: the length and its divisor.
    cache: [(usize, u32); Self::LENGTHS],
}

impl Ipv4IdSolver {
    const LENGTHS: usize = 16;

    /// Creates a solver with an empty cache.
    pub const fn new() -> Ipv4IdSolver {
        Ipv4IdSolver {
            // No transport has length 0: a BTH is 12 bytes.
            cache: [(0, ONE); Self::LENGTHS],
        }
    }

    /// The identification of a packet with the ICRC `received`; `computed` is the ICRC for the
    /// identification `hint`. `transport_len` counts the bytes from BTH to pad, without the ICRC.
    /// `None`: no identification explains the difference, the packet is corrupt.
    ///
    /// A correct hint costs one comparison. For any other identification, 16 of the ICRC's 32 bits
    /// remain as the check: one corruption in 65536 passes, and only the UDP checksum, if any, detects
    /// it.
    pub fn recover(
        &mut self,
        computed: [u8; ICRC_LEN],
        received: [u8; ICRC_LEN],
        transport_len: usize,
        hint: u16,
    ) -> Option<u16> {
        if computed == received {
            return Some(hint);
        }
        let difference = u32::from_le_bytes(computed) ^ u32::from_le_bytes(received);
        let quotient = multiply(difference, self.divisor(transport_len));
        // The first byte of the identification is in the low bits of the register.
        let [first, second, 0, 0] = quotient.to_le_bytes() else {
            return None;
        };
        Some(hint ^ u16::from_be_bytes([first, second]))
    }

    fn divisor(&mut self, transport_len: usize) -> u32 {
        let entry = &mut self.cache[transport_len / 4 % Self::LENGTHS];
        if entry.0 != transport_len {
            *entry = (transport_len, divisor(ID_TO_BTH + transport_len));
        }
        entry.1
    }
}

impl Default for Ipv4IdSolver {
    fn default() -> Ipv4IdSolver {
        Ipv4IdSolver::new()
    }
}
