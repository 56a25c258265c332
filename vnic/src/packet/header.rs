//! Header of a packet: the 20 bytes before the frame.

use proto::PKey;

use crate::Lid;

/// Bytes of the header: two and a half quad words (kernel include/rdma/opa_vnic.h, `OPA_VNIC_HDR_LEN`).
pub const HEADER_LEN: usize = 20;
/// L2 type of 16B packets.
pub const L2_16B: u8 = 2;
/// L4 type of Ethernet (kernel include/rdma/opa_vnic.h, `OPA_VNIC_L4_ETHR`).
pub const ETHERNET_L4: u8 = 0x78;

/// Position of a field in a quad word: lowest bit and width.
#[derive(Clone, Copy)]
struct Bits(u32, u32);

impl Bits {
    const fn mask(self) -> u64 {
        (1 << self.1) - 1
    }

    /// Returns a quad word with this value in the field, cut to its width.
    const fn put(self, value: u64) -> u64 {
        (value & self.mask()) << self.0
    }

    const fn get(self, word: u64) -> u64 {
        word >> self.0 & self.mask()
    }
}

// First quad word.
const SLID_LOW: Bits = Bits(0, 20);
const LENGTH: Bits = Bits(20, 11);
const BECN: Bits = Bits(31, 1);
const DLID_LOW: Bits = Bits(32, 20);
const SC: Bits = Bits(52, 5);
const RC: Bits = Bits(57, 3);
const FECN: Bits = Bits(60, 1);
const L2: Bits = Bits(61, 2);
const LT: Bits = Bits(63, 1);
// Second quad word. Its upper 16 bits are reserved; switches may change the lower 8 of them.
const L4: Bits = Bits(0, 8);
const SLID_HIGH: Bits = Bits(8, 4);
const DLID_HIGH: Bits = Bits(12, 4);
const PKEY: Bits = Bits(16, 16);
const ENTROPY: Bits = Bits(32, 16);
const AGE: Bits = Bits(48, 8);
// Lower half of the third quad word. Its lower 16 bits are reserved.
const VESW_ID: Bits = Bits(16, 16);

/// Fields of a header. Values are cut to the width of the field on the wire.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Header16B {
    /// Source LID.
    pub slid: Lid,
    /// Destination LID: a port or a group of ports.
    pub dlid: Lid,
    /// Length of the whole packet, from header to tail, in quad words of 8 bytes. 11 bits.
    pub length_qw: u16,
    /// Backward explicit congestion notification.
    pub becn: bool,
    /// Forward explicit congestion notification.
    pub fecn: bool,
    /// Service class. 5 bits.
    pub sc: u8,
    /// Routing control. 3 bits.
    pub rc: u8,
    /// L2 type: [`L2_16B`]. 2 bits.
    pub l2: u8,
    /// Link transfer: the first flit of a packet.
    pub lt: bool,
    /// L4 type: [`ETHERNET_L4`].
    pub l4: u8,
    /// P_Key.
    pub pkey: PKey,
    /// Entropy: equal for all packets of a flow.
    pub entropy: u16,
    /// Number of the virtual Ethernet switch; 12 bits are used.
    pub vesw_id: u16,
}

impl Default for Header16B {
    /// Header of an Ethernet packet without source and destination.
    fn default() -> Header16B {
        Header16B {
            slid: Lid::NONE,
            dlid: Lid::NONE,
            length_qw: 0,
            becn: false,
            fecn: false,
            sc: 0,
            rc: 0,
            l2: L2_16B,
            lt: true,
            l4: ETHERNET_L4,
            pkey: PKey::new(0),
            entropy: 0,
            vesw_id: 0,
        }
    }
}

impl Header16B {
    /// Encodes the header; reserved bits are zero.
    #[must_use]
    pub fn to_bytes(&self) -> [u8; HEADER_LEN] {
        self.words().to_bytes()
    }

    /// Decodes a header; reserved bits are ignored.
    #[must_use]
    pub const fn from_bytes(bytes: &[u8; HEADER_LEN]) -> Header16B {
        let Words {
            first,
            second,
            third,
        } = Words::from_bytes(bytes);
        let (slid, dlid) = (SLID_HIGH.get(second), DLID_HIGH.get(second));
        Header16B {
            slid: Lid::new(((slid << 20 | SLID_LOW.get(first)) & 0xff_ffff) as u32),
            dlid: Lid::new(((dlid << 20 | DLID_LOW.get(first)) & 0xff_ffff) as u32),
            length_qw: (LENGTH.get(first) & 0xffff) as u16,
            becn: BECN.get(first) != 0,
            fecn: FECN.get(first) != 0,
            sc: (SC.get(first) & 0xff) as u8,
            rc: (RC.get(first) & 0xff) as u8,
            l2: (L2.get(first) & 0xff) as u8,
            lt: LT.get(first) != 0,
            l4: (L4.get(second) & 0xff) as u8,
            pkey: PKey::new((PKEY.get(second) & 0xffff) as u16),
            entropy: (ENTROPY.get(second) & 0xffff) as u16,
            vesw_id: (VESW_ID.get(third as u64) & 0xffff) as u16,
        }
    }

    /// Length of the whole packet in bytes, from the header's Length.
    #[must_use]
    pub const fn packet_len(&self) -> usize {
        self.length_qw as usize * 8
    }

    pub(super) const fn words(&self) -> Words {
        let (slid, dlid) = (self.slid.get() as u64, self.dlid.get() as u64);
        Words {
            first: SLID_LOW.put(slid)
                | LENGTH.put(self.length_qw as u64)
                | BECN.put(self.becn as u64)
                | DLID_LOW.put(dlid)
                | SC.put(self.sc as u64)
                | RC.put(self.rc as u64)
                | FECN.put(self.fecn as u64)
                | L2.put(self.l2 as u64)
                | LT.put(self.lt as u64),
            second: L4.put(self.l4 as u64)
                | SLID_HIGH.put(slid >> 20)
                | DLID_HIGH.put(dlid >> 20)
                | PKEY.put(self.pkey.get() as u64)
                | ENTROPY.put(self.entropy as u64),
            third: (VESW_ID.put(self.vesw_id as u64) & 0xffff_ffff) as u32,
        }
    }
}

/// A header as integers: two quad words and the lower half of the third.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Words {
    first: u64,
    second: u64,
    third: u32,
}

impl Words {
    /// Replaces the length, in quad words; 11 bits are used.
    #[inline]
    pub(super) const fn with_length(self, length_qw: u64) -> Words {
        let first = self.first & !LENGTH.put(u64::MAX) | LENGTH.put(length_qw);
        Words { first, ..self }
    }

    #[inline]
    pub(super) const fn sc(self) -> u8 {
        (SC.get(self.first) & 0xff) as u8
    }

    /// Sets all bits of the fields that a switch may change: BECN, FECN, SC, and the age in the reserved
    /// bits.
    pub(super) const fn with_mutable_ones(self) -> Words {
        let ones = BECN.put(u64::MAX) | FECN.put(u64::MAX) | SC.put(u64::MAX);
        Words {
            first: self.first | ones,
            second: self.second | AGE.put(u64::MAX),
            third: self.third,
        }
    }

    #[inline]
    pub(super) fn to_bytes(self) -> [u8; HEADER_LEN] {
        let mut bytes = [0; HEADER_LEN];
        bytes[..8].copy_from_slice(&self.first.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.second.to_le_bytes());
        bytes[16..].copy_from_slice(&self.third.to_le_bytes());
        bytes
    }

    #[inline]
    pub(super) const fn from_bytes(bytes: &[u8; HEADER_LEN]) -> Words {
        let [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t] = *bytes;
        Words {
            first: u64::from_le_bytes([a, b, c, d, e, f, g, h]),
            second: u64::from_le_bytes([i, j, k, l, m, n, o, p]),
            third: u32::from_le_bytes([q, r, s, t]),
        }
    }
}
