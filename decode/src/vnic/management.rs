//! VNIC management: datagrams of class 0x34, sent in pieces.

use std::time::Duration;

use fabric::{Gid, QKey, Qpn};
use serde::Serialize;
use vnic::carriage::fragment::{Piece, Reassembler};
use vnic::carriage::seal;
use vnic::mad::{self, Mad};
use vnic::{Time, carriage};

use super::fields;
use crate::record::{Content, MadRecord, Record};

/// A piece of a management datagram.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Fragment {
    /// The sender's number of the message.
    pub message: u32,
    /// Offset in the message, in bytes.
    pub offset: usize,
    /// Length of the piece, in bytes.
    pub length: usize,
    /// Length of the message, in bytes.
    pub message_length: usize,
    /// Counter of a datagram with a MAC. The MAC cannot be checked without the key.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub counter: Option<u64>,
    /// The piece with its header.
    #[serde(skip)]
    datagram: Vec<u8>,
}

impl Fragment {
    /// Whether the piece is the whole message.
    pub fn is_whole(&self) -> bool {
        self.length == self.message_length
    }
}

/// Whether datagrams with this Q_Key are pieces of management datagrams.
pub fn is_management(qkey: QKey) -> bool {
    qkey == carriage::MANAGEMENT_QKEY
}

/// Reads a piece; `None` for other data.
pub fn fragment(datagram: &[u8]) -> Option<Fragment> {
    let (counter, datagram) = match seal::parse(datagram) {
        Some((counter, piece)) => (Some(counter), piece),
        None => (None, datagram),
    };
    let piece = Piece::parse(datagram)?;
    Some(Fragment {
        message: piece.message,
        offset: piece.offset,
        length: piece.bytes.len(),
        message_length: piece.length,
        counter,
        datagram: datagram.to_vec(),
    })
}

/// Joins the pieces in a capture, within the memory limits of an agent.
#[derive(Default)]
pub struct Joiner(Reassembler);

impl Joiner {
    /// Adds the management datagram to the record of its last piece.
    pub fn join(&mut self, record: &mut Record) {
        let now = Duration::try_from_secs_f64(record.time).unwrap_or_default();
        let Content::Roce(roce) = &mut record.content else {
            return;
        };
        let Some(fragment) = &roce.fragment else {
            return;
        };
        let deth = roce.headers.as_ref().and_then(|h| h.deth.as_ref());
        let sender = deth.map_or(Qpn::new(0), |deth| deth.src_qp);
        let now = Time(now.as_millis() as u64);
        let source = Gid::from(roce.source);
        let whole = self.0.receive(now, source, sender, &fragment.datagram);
        let Some(message) = whole else { return };
        match Mad::parse(&message) {
            Ok(mad) => match record_of(&mad) {
                Ok(mad) => roce.mad = Some(mad),
                Err((mad, why)) => {
                    roce.mad = Some(mad);
                    roce.malformed = Some(why.to_string());
                }
            },
            Err(why) => roce.malformed = Some(why.to_string()),
        }
    }
}

/// The record of `mad`. If its attribute cannot be read, the record has only the header's fields, and the error
/// has the reason.
fn record_of(mad: &Mad<'_>) -> Result<MadRecord, (MadRecord, mad::Malformed)> {
    let h = &mad.header;
    let (method, attribute) = (h.method, h.attribute_id.get());
    let named = |name: Option<&str>, number: String| name.map_or(number, str::to_owned);
    let record = |fields| MadRecord {
        summary: format!(
            "VNIC {} {}",
            named(mad::method_name(method), format!("method {method:#04x}")),
            named(
                mad::attribute_name(attribute),
                format!("attribute {attribute:#06x}")
            ),
        ),
        class: h.class,
        method,
        attribute_id: attribute,
        status: h.status.get(),
        transaction_id: h.transaction_id.get(),
        fields,
    };
    let mut of_header = fields::header(h);
    match fields::attribute(mad) {
        Ok(fields) => {
            of_header.extend(fields);
            Ok(record(of_header))
        }
        Err(why) => Err((record(of_header), why)),
    }
}
