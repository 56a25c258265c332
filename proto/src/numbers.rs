//! The fabric's numbers as types that cannot be swapped.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A queue pair number, 24 bits (IBA vol. 1, 10.2.3).
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Qpn(u32);

impl Qpn {
    /// The destination of all multicast datagrams (IBA vol. 1, 10.5.2).
    pub const MULTICAST: Qpn = Qpn(0xff_ffff);
    /// The general services interface, which carries management datagrams.
    pub const GSI: Qpn = Qpn(1);

    /// Whether an ordinary queue pair must not have this number: 0 and 1 belong to the management
    /// interfaces, 0xffffff addresses all queue pairs of a group.
    pub const fn is_reserved(self) -> bool {
        self.0 <= Qpn::GSI.0 || self.0 == Qpn::MULTICAST.0
    }

    /// Keeps the low 24 bits of `n`.
    pub const fn new(n: u32) -> Qpn {
        Qpn(n & 0xff_ffff)
    }

    /// The number.
    pub const fn get(self) -> u32 {
        self.0
    }

    /// The three big-endian bytes of the wire format.
    pub const fn to_bytes(self) -> [u8; 3] {
        let [_, a, b, c] = self.0.to_be_bytes();
        [a, b, c]
    }

    /// Decodes the three big-endian bytes of the wire format.
    pub const fn from_bytes(b: [u8; 3]) -> Qpn {
        Qpn(u32::from_be_bytes([0, b[0], b[1], b[2]]))
    }
}

impl fmt::Debug for Qpn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Qpn({:#08x})", self.0)
    }
}

impl fmt::Display for Qpn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#08x}", self.0)
    }
}

/// A packet sequence number, modulo 2^24 (IBA vol. 1, 9.7.1).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Psn(u32);

impl Psn {
    /// Keeps the low 24 bits of `n`.
    pub const fn new(n: u32) -> Psn {
        Psn(n & 0xff_ffff)
    }

    /// The number.
    pub const fn get(self) -> u32 {
        self.0
    }

    /// The number `n` packets later, modulo 2^24.
    #[must_use]
    pub const fn advance(self, n: u32) -> Psn {
        Psn(self.0.wrapping_add(n) & 0xff_ffff)
    }

    /// Packets from `other` to this number, negative if this number is earlier: the difference modulo 2^24
    /// as a signed number (kernel drivers/infiniband/sw/rxe/rxe_verbs.h, `psn_compare`).
    pub const fn since(self, other: Psn) -> i32 {
        (self.0.wrapping_sub(other.0) << 8).cast_signed() >> 8
    }
}

/// A partition key (IBA vol. 1, 10.9). The low 15 bits identify the partition. Bit 15 marks full
/// membership.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct PKey(u16);

impl PKey {
    /// Full membership in the default partition.
    pub const DEFAULT: PKey = PKey(0xffff);

    /// A key of any 16 bits; see [`PKey::is_valid`].
    pub const fn new(key: u16) -> PKey {
        PKey(key)
    }

    /// The 16 bits, membership included.
    pub const fn get(self) -> u16 {
        self.0
    }

    /// Whether the partition number is not 0 (IBA vol. 1, 10.9.2).
    pub const fn is_valid(self) -> bool {
        self.0 & 0x7fff != 0
    }

    /// Whether the key has full membership.
    pub const fn is_full(self) -> bool {
        self.0 & 0x8000 != 0
    }

    /// The key with full membership, for broadcast groups and MGIDs (RFC 4391, 4).
    #[must_use]
    pub const fn full(self) -> PKey {
        PKey(self.0 | 0x8000)
    }

    /// Whether two ports may communicate: same valid partition, and at least one full member (IBA vol. 1,
    /// 10.9.3).
    pub const fn matches(self, other: PKey) -> bool {
        self.is_valid() && (self.0 ^ other.0) & 0x7fff == 0 && (self.is_full() || other.is_full())
    }
}

impl fmt::Debug for PKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PKey({:#06x})", self.0)
    }
}

impl fmt::Display for PKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#06x}", self.0)
    }
}

/// A queue key. Bit 31 marks a *controlled* key: a send with such a key carries the queue pair's own key
/// instead (IBA vol. 1, 10.2.5).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct QKey(u32);

impl QKey {
    /// The Q_Key of QP1 (IBA vol. 1, 10.2.5).
    pub const GSI: QKey = QKey(0x8001_0000);
    /// In a send: the sending queue pair's own key.
    pub const OWN: QKey = QKey(0x8000_0000);
    /// OpenSM's default Q_Key of IPoIB broadcast groups.
    pub const IPOIB_DEFAULT: QKey = QKey(0x0b1b);

    /// A key of any 32 bits.
    pub const fn new(key: u32) -> QKey {
        QKey(key)
    }

    /// The 32 bits.
    pub const fn get(self) -> u32 {
        self.0
    }

    /// Whether bit 31 is set.
    pub const fn is_controlled(self) -> bool {
        self.0 & 0x8000_0000 != 0
    }
}

impl fmt::Debug for QKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "QKey({:#010x})", self.0)
    }
}

impl fmt::Display for QKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#010x}", self.0)
    }
}

/// The MTU codes of the IBA (vol. 1, 9.3): payload bytes of a packet.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum IbMtu {
    /// Code 1.
    B256 = 1,
    /// Code 2.
    B512 = 2,
    /// Code 3.
    B1024 = 3,
    /// Code 4.
    B2048 = 4,
    /// Code 5.
    B4096 = 5,
}

impl IbMtu {
    /// All codes, smallest first.
    pub const ALL: [IbMtu; 5] = [
        IbMtu::B256,
        IbMtu::B512,
        IbMtu::B1024,
        IbMtu::B2048,
        IbMtu::B4096,
    ];

    /// The MTU of a code; `None` for a code that the IBA reserves.
    pub fn from_code(code: u8) -> Option<IbMtu> {
        Self::ALL.into_iter().find(|m| *m as u8 == code)
    }

    /// Payload bytes.
    pub const fn bytes(self) -> u32 {
        128 << self as u32
    }

    /// The largest code whose payload fits `bytes`.
    pub fn fitting(bytes: u32) -> Option<IbMtu> {
        Self::ALL.into_iter().rev().find(|m| m.bytes() <= bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn partition_rule_needs_one_full_member() {
        let (full, limited) = (PKey::new(0x8001), PKey::new(0x0001));
        assert!(full.matches(full) && full.matches(limited) && limited.matches(full));
        assert!(!limited.matches(limited));
        assert!(!full.matches(PKey::new(0x8002)));
        assert!(!PKey::new(0x8000).matches(PKey::new(0x8000)));
    }

    #[test]
    fn mtu_codes() {
        assert_eq!(IbMtu::ALL.map(IbMtu::bytes), [256, 512, 1024, 2048, 4096]);
        assert_eq!(IbMtu::fitting(1424), Some(IbMtu::B1024));
        assert_eq!(IbMtu::fitting(255), None);
        assert_eq!(IbMtu::from_code(4), Some(IbMtu::B2048));
        assert_eq!([0, 6].map(IbMtu::from_code), [None, None]);
    }

    #[test]
    fn psn_wraps_at_24_bits() {
        assert_eq!(Psn::new(0xff_ffff).advance(2), Psn::new(1));
        assert_eq!(Psn::new(1).since(Psn::new(0xff_ffff)), 2);
        assert_eq!(Psn::new(0xff_ffff).since(Psn::new(1)), -2);
        assert_eq!(Psn::new(0x80_0000).since(Psn::new(0)), -0x80_0000);
    }

    /// Every distance, from numbers around each wrap.
    #[test]
    fn psn_distances_are_right_without_exception() {
        let starts = [0, 1, 0x7f_ffff, 0x80_0000, 0xff_ffff].map(Psn::new);
        for distance in 0..1 << 24 {
            let signed = if distance < 0x80_0000 {
                distance
            } else {
                distance - (1 << 24)
            };
            // Half of the numbers away, the distance is negative in both directions.
            let back = if distance == 0x80_0000 {
                signed
            } else {
                -signed
            };
            for start in starts {
                let end = start.advance(distance as u32);
                assert_eq!(end.since(start), signed);
                assert_eq!(start.since(end), back);
            }
        }
    }
}
