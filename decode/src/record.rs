//! Records of packets. The names of the fields are those of the JSON objects.

use std::net::IpAddr;

use fabric::{PKey, QKey, Qpn};
use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};

use super::inner::Ipoib;
use super::link::Ethernet;
use super::vnic::{Fragment, Raw, Vnic};

/// One packet.
#[derive(Clone, Debug, Serialize)]
pub struct Record {
    /// The frame's number in the file, from 1.
    pub number: u64,
    /// Seconds since 1970, UTC.
    pub time: f64,
    /// The packet's place in a large send.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub segment: Option<Segment>,
    /// The Ethernet header, if any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ethernet: Option<Ethernet>,
    /// The packet after the link header.
    #[serde(flatten)]
    pub content: Content,
}

impl Record {
    /// The RoCEv2 packet, if it is one.
    pub fn roce(&self) -> Option<&Roce> {
        match &self.content {
            Content::Roce(roce) => Some(roce),
            Content::Raw(_) | Content::Other { .. } => None,
        }
    }

    /// The ICRC, if the packet has one.
    pub fn icrc(&self) -> Option<&Icrc> {
        match &self.content {
            Content::Roce(roce) => Some(&roce.icrc),
            Content::Raw(raw) => Some(&raw.icrc),
            Content::Other { .. } => None,
        }
    }

    /// The fault of a malformed packet.
    pub fn malformed(&self) -> Option<&str> {
        match &self.content {
            Content::Roce(roce) => roce.malformed.as_deref(),
            Content::Raw(raw) => raw.malformed.as_deref(),
            Content::Other { .. } => None,
        }
    }
}

/// A place in a large send, which the capture contains as one IP packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub struct Segment {
    /// Index, from 0.
    pub index: usize,
    /// Packets in the large send.
    pub count: usize,
}

/// A RoCEv2 packet, a packet of Omni-Path, or another packet.
#[derive(Clone, Debug, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Content {
    /// A packet to UDP port 4791.
    Roce(Box<Roce>),
    /// A 16B packet outside of RoCEv2.
    #[serde(rename = "16b")]
    Raw(Box<Raw>),
    /// Another packet.
    Other {
        /// Summary.
        summary: String,
    },
}

/// A RoCEv2 packet.
#[derive(Clone, Debug, Serialize)]
pub struct Roce {
    /// IP source address.
    pub source: IpAddr,
    /// IP destination address.
    pub destination: IpAddr,
    /// UDP source port.
    pub source_port: u16,
    /// The IPv4 identification; for a segment of a large send, that on the wire.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ipv4_identification: Option<u16>,
    /// Bytes from BTH to ICRC.
    pub length: usize,
    /// The headers, unless the packet is malformed. If the capture ends in an extended header, only the BTH.
    #[serde(flatten)]
    pub headers: Option<Headers>,
    /// The piece of a VNIC management datagram in the payload.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fragment: Option<Fragment>,
    /// The management datagram in the payload; a datagram in pieces is in the record of its last piece.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mad: Option<MadRecord>,
    /// The IPoIB packet in the payload.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ipoib: Option<Ipoib>,
    /// The 16B packet in the payload, perhaps incomplete.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vnic: Option<Vnic>,
    /// The ICRC.
    pub icrc: Icrc,
    /// The fault of a malformed packet.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub malformed: Option<String>,
}

/// Transport headers and payload length.
#[derive(Clone, Debug, Serialize)]
pub struct Headers {
    /// Base transport header.
    pub bth: BthRecord,
    /// Datagram extended transport header.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deth: Option<DethRecord>,
    /// ACK extended transport header.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub aeth: Option<AethRecord>,
    /// RDMA extended transport header.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reth: Option<RethRecord>,
    /// Atomic extended transport header.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub atomic_eth: Option<AtomicEthRecord>,
    /// The original value of an atomic operation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub atomic_ack_eth: Option<u64>,
    /// Immediate data, as a big-endian number.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub imm_dt: Option<u32>,
    /// The R_Key to invalidate.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ieth: Option<u32>,
    /// Payload bytes without padding.
    pub payload_length: usize,
}

/// Base transport header.
#[derive(Clone, Debug, Serialize)]
pub struct BthRecord {
    /// Opcode.
    pub opcode: u8,
    /// Name of the opcode.
    pub name: &'static str,
    /// SE.
    pub solicited: bool,
    /// M.
    pub mig_req: bool,
    /// PadCnt.
    pub pad_count: u8,
    /// P_Key.
    pub pkey: PKey,
    /// FECN.
    pub fecn: bool,
    /// BECN.
    pub becn: bool,
    /// Destination queue pair.
    pub dest_qp: Qpn,
    /// A.
    pub ack_req: bool,
    /// Packet sequence number.
    pub psn: u32,
}

/// Datagram extended transport header.
#[derive(Clone, Debug, Serialize)]
pub struct DethRecord {
    /// Q_Key.
    pub qkey: QKey,
    /// Source queue pair.
    pub src_qp: Qpn,
}

/// ACK extended transport header.
#[derive(Clone, Debug, Serialize)]
pub struct AethRecord {
    /// Syndrome.
    pub syndrome: u8,
    /// The syndrome in words.
    pub meaning: String,
    /// Message sequence number.
    pub msn: u32,
}

/// RDMA extended transport header.
#[derive(Clone, Debug, Serialize)]
pub struct RethRecord {
    /// Virtual address.
    pub va: u64,
    /// R_Key.
    pub rkey: u32,
    /// DMA length.
    pub dma_length: u32,
}

/// Atomic extended transport header.
#[derive(Clone, Debug, Serialize)]
pub struct AtomicEthRecord {
    /// Virtual address.
    pub va: u64,
    /// R_Key.
    pub rkey: u32,
    /// Swap or add data.
    pub swap_add: u64,
    /// Compare data.
    pub compare: u64,
}

/// A management datagram.
#[derive(Clone, Debug, Serialize)]
pub struct MadRecord {
    /// Class, method and attribute by name.
    pub summary: String,
    /// Number of the class.
    pub class: u8,
    /// Number of the method.
    pub method: u8,
    /// Number of the attribute.
    pub attribute_id: u16,
    /// Status.
    pub status: u16,
    /// Transaction.
    pub transaction_id: u64,
    /// The important fields of the attribute.
    #[serde(serialize_with = "as_map")]
    pub fields: Fields,
}

/// Fields by name, in order.
pub type Fields = Vec<(&'static str, Value)>;

/// The value of a field.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum Value {
    /// A number, shown in hexadecimal in text.
    Number(u64),
    /// A number, shown in decimal.
    Count(u64),
    /// The code of a time, 4.096 µs × 2^code. Text also shows the time.
    Time(u8),
    /// A text or an address.
    Text(String),
    /// A list, shown with commas.
    List(Vec<String>),
}

fn as_map<S: Serializer>(fields: &[(&'static str, Value)], s: S) -> Result<S::Ok, S::Error> {
    let mut map = s.serialize_map(Some(fields.len()))?;
    for (name, value) in fields {
        map.serialize_entry(name, value)?;
    }
    map.end()
}

/// The ICRC and its verdict.
#[derive(Clone, Debug, Serialize)]
pub struct Icrc {
    /// The bytes of the wire in hexadecimal; `None` if the capture lacks them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub value: Option<String>,
    /// The verdict.
    pub verdict: Verdict,
    /// The reason for another verdict than good.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// The verdict of an ICRC.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// The ICRC is correct.
    Good,
    /// The ICRC is wrong.
    Bad,
    /// The ICRC cannot be checked: the capture lacks covered bytes.
    Unknown,
}
