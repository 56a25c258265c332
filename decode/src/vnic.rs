//! Omni-Path's VNIC: management, and 16B packets. A 16B packet is in a UD datagram, which its Q_Key identifies,
//! or outside of RoCEv2.

mod fields;
mod management;

use fabric::{PKey, QKey};
use pcap_file::DataLink;
use serde::Serialize;
use vnic::packet::{self, HEADER_LEN, Header16B, Profile, Refusal, Strictness};
use vnic::{Lid, carriage};

use super::capture::Frame;
use super::inner;
use super::link::{self, Ethernet};
use super::record::{Icrc, Verdict};

pub use management::{Fragment, Joiner, fragment, is_management};

/// The link type of captures of 16B packets; none is registered.
pub const LINK_TYPE: DataLink = DataLink::USER0;

/// A 16B packet, perhaps incomplete.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Vnic {
    /// The header.
    #[serde(flatten)]
    pub header: HeaderRecord,
    /// The last byte.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tail: Option<TailRecord>,
    /// The Ethernet frame.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub frame: Option<FrameRecord>,
}

/// The header of a 16B packet.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct HeaderRecord {
    /// Source LID.
    pub slid: Lid,
    /// Destination LID.
    pub dlid: Lid,
    /// Length of the whole packet in quad words of 8 bytes.
    pub length: u16,
    /// Backward explicit congestion notification.
    pub becn: bool,
    /// Forward explicit congestion notification.
    pub fecn: bool,
    /// Service class.
    pub sc: u8,
    /// Routing control.
    pub rc: u8,
    /// Type of the link header: 2.
    pub l2: u8,
    /// Link transfer.
    pub lt: bool,
    /// Type of the transport header: 0x78.
    pub l4: u8,
    /// P_Key.
    pub pkey: PKey,
    /// Entropy.
    pub entropy: u16,
    /// The virtual Ethernet switch.
    pub vesw: u16,
}

/// The last byte of a 16B packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub struct TailRecord {
    /// The byte.
    pub byte: u8,
    /// Bytes of padding before the ICRC.
    pub pad: u8,
}

/// An Ethernet frame.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct FrameRecord {
    /// Length in bytes.
    pub length: usize,
    /// Its header.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ethernet: Option<Ethernet>,
    /// The type of its payload.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ethertype: Option<u16>,
    /// A summary of its payload.
    pub summary: String,
}

/// A 16B packet outside of RoCEv2, with its ICRC.
#[derive(Clone, Debug, Serialize)]
pub struct Raw {
    /// Length in bytes.
    pub length: usize,
    /// Its content, if it has a whole header.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vnic: Option<Vnic>,
    /// The ICRC.
    pub icrc: Icrc,
    /// The fault of a malformed packet.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub malformed: Option<String>,
}

/// Whether datagrams with this Q_Key contain 16B packets.
pub fn is_data(qkey: QKey) -> bool {
    let vesw_id = (qkey.get() & 0xfff) as u16;
    vesw_id != 0 && carriage::data_qkey(vesw_id) == qkey
}

/// Reads a whole packet; returns its content and its fault.
pub fn read(packet: &[u8]) -> (Option<Vnic>, Option<String>) {
    let decoded = packet::decode(packet, Profile::Wire0, Strictness::Strict);
    let malformed = match &decoded {
        Ok(decoded) if decoded.frame.len() < packet::FRAME_MIN => Some(Refusal::Runt),
        Ok(_) => None,
        Err(why) => Some(*why),
    };
    let vnic = header(packet).map(|header| Vnic {
        header,
        tail: packet.get(HEADER_LEN..).and_then(tail),
        frame: decoded.ok().map(|decoded| frame(decoded.frame)),
    });
    (vnic, malformed.map(|why| why.to_string()))
}

/// Reads a captured packet outside of RoCEv2.
pub fn raw(captured: &Frame) -> Raw {
    let packet = &captured.data[..];
    if captured.original_len > packet.len() {
        return Raw {
            length: captured.original_len,
            vnic: header(packet).map(|header| Vnic {
                header,
                tail: None,
                frame: None,
            }),
            icrc: Icrc {
                value: None,
                verdict: Verdict::Unknown,
                reason: Some("the capture has only the start of the packet".to_owned()),
            },
            malformed: None,
        };
    }
    let (vnic, malformed) = read(packet);
    Raw {
        length: packet.len(),
        vnic,
        icrc: judge(packet),
        malformed,
    }
}

fn header(packet: &[u8]) -> Option<HeaderRecord> {
    let h = Header16B::from_bytes(packet.first_chunk()?);
    Some(HeaderRecord {
        slid: h.slid,
        dlid: h.dlid,
        length: h.length_qw,
        becn: h.becn,
        fecn: h.fecn,
        sc: h.sc,
        rc: h.rc,
        l2: h.l2,
        lt: h.lt,
        l4: h.l4,
        pkey: h.pkey,
        entropy: h.entropy,
        vesw: h.vesw_id,
    })
}

fn tail(behind_header: &[u8]) -> Option<TailRecord> {
    let byte = *behind_header.last()?;
    let pad = packet::Tail(byte).pad();
    Some(TailRecord { byte, pad })
}

fn frame(frame: &[u8]) -> FrameRecord {
    let length = frame.len();
    match link::strip(DataLink::ETHERNET, frame) {
        Ok(stripped) => FrameRecord {
            length,
            summary: inner::summary(stripped.ethertype, stripped.payload),
            ethertype: Some(stripped.ethertype),
            ethernet: stripped.ethernet,
        },
        Err(summary) => FrameRecord {
            length,
            ethernet: None,
            ethertype: None,
            summary,
        },
    }
}

/// Checks the ICRC of a packet outside of RoCEv2 against [`packet::icrc()`]. The ICRC of Omni-Path hardware
/// is not published; it counts as bad.
fn judge(packet: &[u8]) -> Icrc {
    let (stored, computed) = (packet::stored_icrc(packet), packet::icrc(packet));
    let (verdict, reason) = match computed {
        None => (Verdict::Unknown, None),
        Some(_) if stored == computed => (Verdict::Good, None),
        Some(right) => (
            Verdict::Bad,
            Some(format!("expected {:08x}", right.swap_bytes())),
        ),
    };
    Icrc {
        value: stored.map(|v| format!("{:08x}", v.swap_bytes())),
        verdict,
        reason,
    }
}
