//! Omni-Path's 16B packets with Ethernet in them, made and read independently of the daemon's code, so that
//! both cannot have the same error (kernel Documentation/infiniband/opa_vnic.rst).

/// The largest UD payload of an IB MTU of 4096 holds frames of 4071 bytes: 18 more than this.
pub const VNIC_MTU: u64 = 4053;

/// The Q_Key of a switch's data.
pub const fn data_qkey(vesw: u16) -> u32 {
    0x0b1b_0000 | vesw as u32
}

const HEADER: usize = 20;
const ICRC: usize = 4;

/// The fields of a packet, and its frame. The ICRC is that of the fabric below: four zero bytes here.
#[derive(Clone, Debug, PartialEq)]
pub struct Packet16 {
    /// Source LID, 24 bits.
    pub slid: u32,
    /// Destination LID, 24 bits.
    pub dlid: u32,
    /// Service class, 5 bits.
    pub sc: u8,
    /// Partition key.
    pub pkey: u16,
    /// The virtual switch.
    pub vesw: u16,
    /// Ethernet frame without its check sequence.
    pub frame: Vec<u8>,
}

impl Packet16 {
    /// Encodes the packet.
    pub fn bytes(&self) -> Vec<u8> {
        let pad = 7 - self.frame.len() % 8;
        let quads = (HEADER + self.frame.len() + pad + ICRC + 1) / 8;
        let low = |lid: u32| u64::from(lid & 0xf_ffff);
        let high = |lid: u32| u64::from(lid >> 20 & 0xf);
        let first = low(self.slid)
            | (quads as u64) << 20
            | low(self.dlid) << 32
            | u64::from(self.sc) << 52
            | 0b10 << 61
            | 1 << 63;
        let second =
            0x78 | high(self.slid) << 8 | high(self.dlid) << 12 | u64::from(self.pkey) << 16;
        let mut bytes = first.to_le_bytes().to_vec();
        bytes.extend(second.to_le_bytes());
        bytes.extend([0, 0]);
        bytes.extend(self.vesw.to_le_bytes());
        bytes.extend(&self.frame);
        bytes.resize(bytes.len() + pad + ICRC, 0);
        bytes.push(0x40 | pad as u8);
        bytes
    }

    /// Parses a packet; `None` if lengths or constants are wrong.
    pub fn parse(bytes: &[u8]) -> Option<Packet16> {
        let word = |at: usize| -> Option<u64> {
            Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?))
        };
        let (first, second) = (word(0)?, word(8)?);
        let lid = |low: u64, high: u64| (low & 0xf_ffff | (high & 0xf) << 20) as u32;
        let tail = *bytes.last()?;
        let end = bytes.len().checked_sub(1 + ICRC + usize::from(tail & 7))?;
        let sound = first >> 61 == 0b110
            && second & 0xff == 0x78
            && (first >> 20 & 0x7ff) as usize * 8 == bytes.len()
            && tail & !7 == 0x40
            && bytes[end..bytes.len() - 1].iter().all(|&byte| byte == 0);
        sound.then_some(())?;
        Some(Packet16 {
            slid: lid(first, second >> 8),
            dlid: lid(first >> 32, second >> 12),
            sc: (first >> 52 & 0x1f) as u8,
            pkey: (second >> 16 & 0xffff) as u16,
            vesw: u16::from_le_bytes([*bytes.get(18)?, *bytes.get(19)?]),
            frame: bytes.get(HEADER..end)?.to_vec(),
        })
    }
}

#[test]
fn a_packet_of_the_reference_is_written_and_read() {
    // The example of 60 bytes in the reference: LIDs 5 and 0x12345, switch 2, P_Key 0x8001.
    let frame: Vec<u8> = (0..60).collect();
    let packet = Packet16 {
        slid: 5,
        dlid: 0x1_2345,
        sc: 0,
        pkey: 0x8001,
        vesw: 2,
        frame,
    };
    let bytes = packet.bytes();
    let head = [
        0x05, 0x00, 0xb0, 0x00, 0x45, 0x23, 0x01, 0xc0, 0x78, 0x00, 0x01, 0x80, 0, 0, 0, 0, 0, 0,
        2, 0,
    ];
    assert_eq!(bytes[..HEADER], head);
    assert_eq!(bytes[80..], [0, 0, 0, 0, 0, 0, 0, 0x43]);
    assert_eq!(Packet16::parse(&bytes), Some(packet.clone()));
    // All bits of both LIDs and of the service class count, in all their fields.
    let odd = Packet16 {
        slid: 0xab_cdef,
        dlid: 0x12_3456,
        sc: 0x1f,
        frame: vec![7; 1514],
        ..packet
    };
    assert_eq!(Packet16::parse(&odd.bytes()), Some(odd));
}
