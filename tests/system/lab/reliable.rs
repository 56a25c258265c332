//! Packets of reliable connections and the messages that set them up, made and read independently of the
//! daemon's code.

use std::net::Ipv6Addr;

use super::packet::{icrc, kernel_capture, kernel_packets, roce_of_frame};

/// BTH opcodes of the RC transport (IBA vol. 1, table 38).
pub mod opcode {
    /// The first packet of a message.
    pub const SEND_FIRST: u8 = 0x00;
    /// A middle packet of a message.
    pub const SEND_MIDDLE: u8 = 0x01;
    /// The last packet of a message.
    pub const SEND_LAST: u8 = 0x02;
    /// A message of one packet.
    pub const SEND_ONLY: u8 = 0x04;
    /// An RDMA write.
    pub const RDMA_WRITE_ONLY: u8 = 0x0a;
    /// An RDMA read request.
    pub const RDMA_READ_REQUEST: u8 = 0x0c;
    /// An acknowledgement, positive or negative.
    pub const ACKNOWLEDGE: u8 = 0x11;
}

/// AETH syndromes (IBA vol. 1, table 45).
pub mod syndrome {
    /// PSN sequence error: a packet before this one is missing.
    pub const NAK_SEQUENCE: u8 = 0x60;
    /// Invalid request.
    pub const NAK_INVALID_REQUEST: u8 = 0x61;
    /// Remote access error.
    pub const NAK_REMOTE_ACCESS: u8 = 0x62;

    /// Whether it is a positive acknowledgement, with any credits.
    pub fn is_ack(syndrome: u8) -> bool {
        syndrome & 0xe0 == 0
    }
}

const BTH: usize = 12;
const ICRC: usize = 4;

/// Source and destination of a packet.
#[derive(Clone, Copy, Debug)]
pub struct Ends {
    /// IPv6 source.
    pub source: Ipv6Addr,
    /// IPv6 destination.
    pub destination: Ipv6Addr,
    /// UDP source port.
    pub source_port: u16,
}

/// A packet of a reliable connection.
#[derive(Clone, Debug)]
pub struct Rc {
    /// BTH: opcode.
    pub opcode: u8,
    /// BTH: destination queue pair.
    pub destination_qpn: u32,
    /// BTH: sequence number.
    pub psn: u32,
    /// BTH: whether an acknowledgement is requested.
    pub asks_ack: bool,
    /// The bytes after the BTH.
    pub rest: Vec<u8>,
}

impl Rc {
    /// The UDP payload: BTH, the rest, padding to four bytes, ICRC.
    pub fn datagram(&self, ends: Ends) -> Vec<u8> {
        let padding = self.rest.len().wrapping_neg() % 4;
        let mut out = vec![self.opcode, (padding as u8) << 4, 0xff, 0xff];
        out.extend(self.destination_qpn.to_be_bytes());
        out.extend((self.psn & 0xff_ffff | u32::from(self.asks_ack) << 31).to_be_bytes());
        out.extend(&self.rest);
        out.resize(out.len() + padding, 0);
        let icrc = icrc(ends.source, ends.destination, ends.source_port, &out);
        out.extend(icrc);
        out
    }

    /// Parses a UDP payload of the RC transport. `None` for other transports and a wrong ICRC.
    pub fn parse(ends: Ends, datagram: &[u8]) -> Option<Rc> {
        let (covered, found) = datagram.split_at_checked(datagram.len().checked_sub(ICRC)?)?;
        let word = |at: usize| {
            let bytes = covered.get(at..at + 4)?;
            Some(u32::from_be_bytes(bytes.try_into().ok()?))
        };
        let padding = usize::from(covered.get(1)? >> 4 & 3);
        let rc = Rc {
            opcode: covered[0],
            destination_qpn: word(4)? & 0xff_ffff,
            psn: word(8)? & 0xff_ffff,
            asks_ack: word(8)? >> 31 == 1,
            rest: covered
                .get(BTH..covered.len().checked_sub(padding)?)?
                .to_vec(),
        };
        let expected = icrc(ends.source, ends.destination, ends.source_port, covered);
        (rc.opcode >> 5 == 0 && found == expected).then_some(rc)
    }

    /// Syndrome and message sequence number of the AETH of an acknowledgement.
    pub fn aeth(&self) -> Option<(u8, u32)> {
        let &[syndrome, a, b, c] = self.rest.get(..4)? else {
            return None;
        };
        (self.opcode == opcode::ACKNOWLEDGE).then_some((syndrome, u32::from_be_bytes([0, a, b, c])))
    }
}

/// Attribute ids of communication management (IBA vol. 1, 16.7.3).
pub mod attribute {
    /// ConnectRequest.
    pub const REQ: u16 = 0x10;
    /// ConnectReject.
    pub const REJ: u16 = 0x12;
    /// ConnectReply.
    pub const REP: u16 = 0x13;
    /// ReadyToUse.
    pub const RTU: u16 = 0x14;
    /// DisconnectRequest.
    pub const DREQ: u16 = 0x15;
    /// DisconnectReply.
    pub const DREP: u16 = 0x16;
}

/// A message of communication management: the data after the MAD header.
#[derive(Clone, Debug)]
pub struct CmMessage {
    /// See [`attribute`].
    pub attribute: u16,
    /// Transaction id of the MAD header.
    pub transaction: u64,
    /// 232 bytes.
    pub data: Vec<u8>,
}

const MAD_HEADER: usize = 24;
const CM_DATA: usize = 232;

impl CmMessage {
    /// A message with these first bytes; the others are zero.
    pub fn new(attribute: u16, transaction: u64, begin: &[u8]) -> CmMessage {
        let mut data = begin.to_vec();
        data.resize(CM_DATA, 0);
        CmMessage {
            attribute,
            transaction,
            data,
        }
    }

    /// The management datagram (IBA vol. 1, 13.4.3): class 7, class version 2, method Send.
    pub fn mad(&self) -> Vec<u8> {
        let mut out = vec![1, 7, 2, 3, 0, 0, 0, 0];
        out.extend(self.transaction.to_be_bytes());
        out.extend(self.attribute.to_be_bytes());
        out.resize(MAD_HEADER, 0);
        out.extend(&self.data);
        out
    }

    /// Parses a management datagram of this class.
    pub fn parse(mad: &[u8]) -> Option<CmMessage> {
        let (header, data) = mad.split_at_checked(MAD_HEADER)?;
        (header[..4] == [1, 7, 2, 3] && data.len() == CM_DATA).then(|| CmMessage {
            attribute: u16::from_be_bytes([header[16], header[17]]),
            transaction: u64::from_be_bytes(header[8..16].try_into().expect("eight bytes")),
            data: data.to_vec(),
        })
    }

    /// Four bytes of the data.
    pub fn word(&self, at: usize) -> u32 {
        u32::from_be_bytes(self.data[at..at + 4].try_into().expect("four bytes"))
    }

    /// Two bytes of the data.
    pub fn half(&self, at: usize) -> u16 {
        u16::from_be_bytes([self.data[at], self.data[at + 1]])
    }
}

/// A ConnectRequest like the kernel's IPoIB (drivers/infiniband/ulp/ipoib/ipoib_cm.c, `ipoib_cm_send_req`),
/// with the values that a peer can choose.
#[derive(Clone, Debug)]
pub struct Request {
    /// Local communication id.
    pub id: u32,
    /// Service id.
    pub service: u64,
    /// GUID of the requesting node.
    pub guid: u64,
    /// RC queue pair of the requesting node.
    pub qpn: u32,
    /// First sequence number for packets of the responder.
    pub psn: u32,
    /// Primary local GID.
    pub own: Ipv6Addr,
    /// Primary remote GID.
    pub peer: Ipv6Addr,
    /// Code of the path MTU.
    pub mtu: u8,
    /// At most 92 bytes.
    pub private_data: Vec<u8>,
}

impl Request {
    /// The offsets are those of IBA vol. 1, table 106.
    pub fn message(&self) -> CmMessage {
        let mut data = vec![0; CM_DATA];
        data[0..4].copy_from_slice(&self.id.to_be_bytes());
        data[8..16].copy_from_slice(&self.service.to_be_bytes());
        data[16..24].copy_from_slice(&self.guid.to_be_bytes());
        data[32..35].copy_from_slice(&self.qpn.to_be_bytes()[1..]);
        data[35] = 4; // responder resources
        data[43] = 20 << 3; // remote CM response timeout; RC
        data[44..47].copy_from_slice(&self.psn.to_be_bytes()[1..]);
        data[47] = 20 << 3; // local CM response timeout; retry count 0
        data[48..50].fill(0xff); // P_Key
        data[50] = self.mtu << 4; // RNR retry count 0
        data[51] = 15 << 4 | 1 << 3; // CM retries; shared receive queue
        data[52..54].copy_from_slice(&self.own.octets()[14..]); // LIDs, which RoCE has not
        data[54..56].copy_from_slice(&self.peer.octets()[14..]);
        data[56..72].copy_from_slice(&self.own.octets());
        data[72..88].copy_from_slice(&self.peer.octets());
        data[91] = 3; // packet rate
        data[94] = 1 << 3; // subnet local
        data[95] = 19 << 3; // local ACK timeout
        data[140..140 + self.private_data.len()].copy_from_slice(&self.private_data);
        CmMessage::new(attribute::REQ, u64::from(self.id), &data)
    }
}

/// IPoIB's private data (RFC 4755, section 6).
pub fn private_data(ud_qpn: u32, receive_mtu: u32) -> Vec<u8> {
    [ud_qpn.to_be_bytes(), receive_mtu.to_be_bytes()].concat()
}

const CONNECTED: &str = "03-connected.pcap";

#[test]
fn connected_packets_of_the_kernel_are_read_and_written_back_as_they_were() {
    let mut seen = 0;
    for frame in kernel_capture(CONNECTED) {
        let Some((source, destination, source_port, datagram)) = roce_of_frame(&frame) else {
            continue;
        };
        let ends = Ends {
            source,
            destination,
            source_port,
        };
        let Some(rc) = Rc::parse(ends, datagram) else {
            continue;
        };
        let mut again = rc.datagram(ends);
        // The solicited event and migration bits are the kernel's choice.
        let icrc = again.len() - ICRC;
        assert_eq!(again[1] & 0x3f, datagram[1] & 0x3f);
        again[1] = datagram[1];
        assert_eq!(again[..icrc], datagram[..icrc]);
        seen += 1;
    }
    assert!(seen > 50, "{seen} packets of connections");
}

#[test]
fn requests_are_the_kernels_byte_for_byte() {
    let mut seen = 0;
    for (number, ud) in kernel_packets(CONNECTED) {
        let Some(message) = CmMessage::parse(&ud.payload) else {
            continue;
        };
        if message.attribute != attribute::REQ {
            continue;
        }
        let request = Request {
            id: message.word(0),
            service: 0x10 << 56 | 0x11,
            guid: u64::from(message.word(16)) << 32 | u64::from(message.word(20)),
            qpn: message.word(32) >> 8,
            psn: 0,
            own: ud.source,
            peer: ud.destination,
            mtu: 4,
            private_data: private_data(0x11, 65_524),
        };
        assert_eq!(request.message().data, message.data, "packet {number}");
        seen += 1;
    }
    assert_eq!(seen, 2);
}
