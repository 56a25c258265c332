//! RoCEv2 UD packets over IPv6, made and checked independently of the daemon's code, so that both cannot have
//! the same error; and packets of the captures in `tests/data`.

use std::net::Ipv6Addr;
use std::path::Path;

/// The UDP port of RoCEv2 (IBA vol. 1, annex A17).
pub const ROCE_PORT: u16 = 4791;
/// The queue pair of management datagrams (IBA vol. 1, 3.9.2).
pub const GSI_QPN: u32 = 1;
/// Its Q_Key.
pub const GSI_QKEY: u32 = 0x8001_0000;

const UD_SEND_ONLY: u8 = 0x64;
const BTH: usize = 12;
const DETH: usize = 8;
const ICRC: usize = 4;

/// A UD SEND_ONLY packet: the fields of the UDP datagram, and the addresses around it.
#[derive(Clone, Debug, PartialEq)]
pub struct Ud {
    /// IPv6 source.
    pub source: Ipv6Addr,
    /// IPv6 destination.
    pub destination: Ipv6Addr,
    /// UDP source port.
    pub source_port: u16,
    /// BTH: partition key.
    pub pkey: u16,
    /// BTH: destination queue pair.
    pub destination_qpn: u32,
    /// BTH: sequence number.
    pub psn: u32,
    /// DETH: queue key.
    pub qkey: u32,
    /// DETH: source queue pair.
    pub source_qpn: u32,
    /// IPoIB: encapsulation header and packet.
    pub payload: Vec<u8>,
}

impl Ud {
    /// The UDP payload: BTH, DETH, payload, padding to four bytes, ICRC.
    pub fn datagram(&self) -> Vec<u8> {
        let padding = self.payload.len().wrapping_neg() % 4;
        let mut out = vec![UD_SEND_ONLY, (padding as u8) << 4];
        out.extend(self.pkey.to_be_bytes());
        out.extend(self.destination_qpn.to_be_bytes());
        out.extend(self.psn.to_be_bytes());
        out.extend(self.qkey.to_be_bytes());
        out.extend(self.source_qpn.to_be_bytes());
        out.extend(&self.payload);
        out.resize(out.len() + padding, 0);
        let icrc = icrc(self.source, self.destination, self.source_port, &out);
        out.extend(icrc);
        out
    }

    /// Parses a UDP payload. `None` if it is not a UD SEND_ONLY packet or its ICRC is wrong.
    pub fn parse(
        source: Ipv6Addr,
        destination: Ipv6Addr,
        source_port: u16,
        datagram: &[u8],
    ) -> Option<Ud> {
        let (covered, found) = datagram.split_at_checked(datagram.len().checked_sub(ICRC)?)?;
        let word = |at: usize| {
            let bytes = covered.get(at..at + 4)?;
            Some(u32::from_be_bytes(bytes.try_into().ok()?))
        };
        let padding = usize::from(covered.get(1)? >> 4 & 3);
        let ud = Ud {
            source,
            destination,
            source_port,
            pkey: (word(0)? & 0xffff) as u16,
            destination_qpn: word(4)? & 0xff_ffff,
            psn: word(8)? & 0xff_ffff,
            qkey: word(12)?,
            source_qpn: word(16)? & 0xff_ffff,
            payload: covered
                .get(BTH + DETH..covered.len().checked_sub(padding)?)?
                .to_vec(),
        };
        let expected = icrc(source, destination, source_port, covered);
        (covered[0] == UD_SEND_ONLY && found == expected).then_some(ud)
    }
}

/// The ICRC of a packet without it, over IPv6: CRC-32 over eight bytes ff, the IPv6 and UDP headers and the
/// packet, with fields that routers may change as ones (IBA vol. 1, annex A17.3.3), least significant byte
/// first.
pub fn icrc(source: Ipv6Addr, destination: Ipv6Addr, source_port: u16, covered: &[u8]) -> [u8; 4] {
    let udp_length = (8 + covered.len() + ICRC) as u16;
    let mut bytes = vec![0xff; 8];
    bytes.extend([0x6f, 0xff, 0xff, 0xff]);
    bytes.extend(udp_length.to_be_bytes());
    bytes.extend([17, 0xff]);
    bytes.extend(source.octets());
    bytes.extend(destination.octets());
    bytes.extend(source_port.to_be_bytes());
    bytes.extend(ROCE_PORT.to_be_bytes());
    bytes.extend(udp_length.to_be_bytes());
    bytes.extend([0xff, 0xff]);
    bytes.extend(&covered[..4]);
    bytes.push(0xff);
    bytes.extend(&covered[5..]);
    crc32(&bytes).to_le_bytes()
}

/// CRC-32 of IEEE 802.3, bit by bit.
fn crc32(bytes: &[u8]) -> u32 {
    let mut crc = !0u32;
    for &byte in bytes {
        crc ^= u32::from(byte);
        for _ in 0..8 {
            let carry = crc & 1;
            crc = crc >> 1 ^ (carry * 0xedb8_8320);
        }
    }
    !crc
}

/// The UD packets over IPv6 of a capture in `tests/data/captures/kernel-ipoib`, by their numbers there, from
/// 1. All ICRCs are checked.
pub fn kernel_packets(capture: &str) -> impl Iterator<Item = (usize, Ud)> {
    kernel_capture(capture)
        .into_iter()
        .enumerate()
        .filter_map(|(index, frame)| Some((index + 1, ud_of_frame(&frame)?)))
}

/// The packet with that number in a capture.
pub fn kernel_packet(capture: &str, number: usize) -> Ud {
    kernel_packets(capture)
        .find(|&(n, _)| n == number)
        .unwrap_or_else(|| panic!("packet {number} of {capture} is no UD packet"))
        .1
}

/// The complete frames of a classic little-endian pcap file.
pub fn frames(file: &[u8]) -> Vec<Vec<u8>> {
    assert_eq!(&file[..4], [0xd4, 0xc3, 0xb2, 0xa1], "a classic pcap file");
    let mut rest = &file[24..];
    let mut frames = Vec::new();
    while let Some((header, tail)) = rest.split_at_checked(16) {
        let kept = u32::from_le_bytes([header[8], header[9], header[10], header[11]]) as usize;
        let Some((frame, after)) = tail.split_at_checked(kept) else {
            break;
        };
        frames.push(frame.to_vec());
        rest = after;
    }
    frames
}

/// The UD SEND_ONLY packet in an Ethernet frame with IPv6.
pub fn ud_of_frame(frame: &[u8]) -> Option<Ud> {
    let (source, destination, source_port, datagram) = roce_of_frame(frame)?;
    Ud::parse(source, destination, source_port, datagram)
}

/// IPv6 source and destination, UDP source port and UDP payload of a RoCE packet in an Ethernet frame.
pub fn roce_of_frame(frame: &[u8]) -> Option<(Ipv6Addr, Ipv6Addr, u16, &[u8])> {
    let ip = frame
        .strip_prefix(frame.get(..12)?)?
        .strip_prefix(&[0x86, 0xdd])?;
    let address = |at: usize| {
        let octets: [u8; 16] = ip.get(at..at + 16)?.try_into().ok()?;
        Some(Ipv6Addr::from(octets))
    };
    let udp = ip.get(40..40 + usize::from(u16::from_be_bytes([ip[4], ip[5]])))?;
    let port = |at: usize| u16::from_be_bytes([udp[at], udp[at + 1]]);
    if ip[6] != 17 || port(2) != ROCE_PORT {
        return None;
    }
    Some((address(8)?, address(24)?, port(0), &udp[8..]))
}

/// A capture of the kernel's `ib_ipoib` in `tests/data/captures/kernel-ipoib`.
pub fn kernel_capture(name: &str) -> Vec<Vec<u8>> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/data/captures/kernel-ipoib")
        .join(name);
    let bytes = std::fs::read(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    frames(&bytes)
}

#[test]
fn packets_of_the_kernel_are_read_and_written_back_as_they_were() {
    for capture in ["01-datagram.pcap", "05-userspace-peer.pcap"] {
        let mut seen = 0;
        for (number, ud) in kernel_packets(capture) {
            let again = Ud::parse(ud.source, ud.destination, ud.source_port, &ud.datagram());
            assert_eq!(again.as_ref(), Some(&ud), "packet {number}");
            seen += 1;
        }
        assert!(seen > 30, "{capture} has {seen} UD packets");
    }
}
