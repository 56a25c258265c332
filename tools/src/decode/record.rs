//! What is said about a packet; the names are those of the JSON objects.

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
    /// Which packet of a large send this is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub segment: Option<Segment>,
    /// The Ethernet header, if there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ethernet: Option<Ethernet>,
    /// The rest.
    #[serde(flatten)]
    pub content: Content,
}

impl Record {
    /// What is said about a RoCEv2 packet, if it is one.
    pub fn roce(&self) -> Option<&Roce> {
        match &self.content {
            Content::Roce(roce) => Some(roce),
            Content::Raw(_) | Content::Other { .. } => None,
        }
    }

    /// What its ICRC says, if it is of a kind that has one.
    pub fn icrc(&self) -> Option<&Icrc> {
        match &self.content {
            Content::Roce(roce) => Some(&roce.icrc),
            Content::Raw(raw) => Some(&raw.icrc),
            Content::Other { .. } => None,
        }
    }

    /// What is wrong with it.
    pub fn malformed(&self) -> Option<&str> {
        match &self.content {
            Content::Roce(roce) => roce.malformed.as_deref(),
            Content::Raw(raw) => raw.malformed.as_deref(),
            Content::Other { .. } => None,
        }
    }
}

/// A place in a large send that the capture holds as one IP packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub struct Segment {
    /// From 0.
    pub index: usize,
    /// Packets in the send.
    pub count: usize,
}

/// RoCEv2, a packet of Omni-Path, or anything else.
#[derive(Clone, Debug, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Content {
    /// A packet to UDP port 4791.
    Roce(Box<Roce>),
    /// A 16B packet by itself.
    #[serde(rename = "16b")]
    Raw(Box<Raw>),
    /// Another one.
    Other {
        /// In a few words.
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
    /// The IPv4 identification; of a segment of a large send, the one it will get.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ipv4_identification: Option<u16>,
    /// Bytes from BTH to ICRC.
    pub length: usize,
    /// The headers, unless the packet is malformed.
    #[serde(flatten)]
    pub headers: Option<Headers>,
    /// The piece of a management datagram of VNIC inside.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fragment: Option<Fragment>,
    /// The management datagram inside; if it is in pieces, with the one that completes it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mad: Option<MadRecord>,
    /// The IPoIB packet inside.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ipoib: Option<Ipoib>,
    /// The 16B packet inside, or what there is of one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vnic: Option<Vnic>,
    /// The ICRC.
    pub icrc: Icrc,
    /// What is wrong with the packet.
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
    /// Immediate data, taken as big-endian.
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
    /// The number.
    pub opcode: u8,
    /// Its name.
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
    /// The whole byte.
    pub syndrome: u8,
    /// What it says.
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
    /// The class's number.
    pub class: u8,
    /// The method's number.
    pub method: u8,
    /// The attribute's number.
    pub attribute_id: u16,
    /// Status.
    pub status: u16,
    /// Transaction.
    pub transaction_id: u64,
    /// What is worth telling of the attribute.
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
    /// The code of a time, of which text shows the time as well: 4.096 µs times two to the power
    /// of it.
    Time(u8),
    /// A text or an address.
    Text(String),
    /// Several of them, shown with commas between.
    List(Vec<String>),
}

fn as_map<S: Serializer>(fields: &[(&'static str, Value)], s: S) -> Result<S::Ok, S::Error> {
    let mut map = s.serialize_map(Some(fields.len()))?;
    for (name, value) in fields {
        map.serialize_entry(name, value)?;
    }
    map.end()
}

/// The ICRC and what it says.
#[derive(Clone, Debug, Serialize)]
pub struct Icrc {
    /// The bytes of the wire in hexadecimal; `None` where the capture lacks them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub value: Option<String>,
    /// The verdict.
    pub verdict: Verdict,
    /// Why it is not good.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// What an ICRC says.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// The packet is as it was sent.
    Good,
    /// It is not.
    Bad,
    /// The capture lacks bytes that it covers.
    Unknown,
}
