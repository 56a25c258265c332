//! What is worth telling of a management datagram.

use std::net::Ipv6Addr;

use fabric::mad::{Mad, class, sa};

use super::cm;
use super::record::{Fields, MadRecord, Value};

/// The record of `mad`.
pub fn record(mad: &Mad<'_>) -> MadRecord {
    let h = &mad.header;
    MadRecord {
        summary: h.to_string(),
        class: h.mgmt_class,
        method: h.method,
        attribute_id: h.attribute_id.get(),
        status: h.status.get(),
        transaction_id: h.transaction_id.get(),
        fields: fields(mad),
    }
}

fn fields(mad: &Mad<'_>) -> Fields {
    if let Some(message) = mad.communication_management() {
        return cm::fields(&message);
    }
    let attribute = mad.header.attribute_id.get();
    match mad.header.mgmt_class {
        class::SUBN_ADM => administration(attribute, mad),
        _ => Fields::new(),
    }
}

/// Subnet administration (IBA vol. 1, 15.2.5): the component mask and what names the record.
fn administration(attribute: u16, mad: &Mad<'_>) -> Fields {
    let Some((header, record)) = mad.subnet_administration() else {
        return Fields::new();
    };
    let mut fields = vec![("component_mask", Value::Number(header.component_mask.get()))];
    match attribute {
        sa::PATH_RECORD => fields.extend([
            ("dgid", gid(record, 8)),
            ("sgid", gid(record, 24)),
            ("dlid", Value::Number(be(record, 40, 2))),
            ("slid", Value::Number(be(record, 42, 2))),
            ("pkey", Value::Number(be(record, 50, 2))),
        ]),
        sa::MC_MEMBER_RECORD => fields.extend([
            ("mgid", gid(record, 0)),
            ("port_gid", gid(record, 16)),
            ("qkey", Value::Number(be(record, 32, 4))),
            ("mlid", Value::Number(be(record, 36, 2))),
            ("pkey", Value::Number(be(record, 40, 2))),
            ("join_state", Value::Number(be(record, 48, 1) & 0xf)),
        ]),
        _ => {}
    }
    fields
}

/// A big-endian number of `len` bytes; missing bytes are none of it.
fn be(bytes: &[u8], at: usize, len: usize) -> u64 {
    let field = bytes.iter().skip(at).take(len);
    field.fold(0, |n, b| n << 8 | u64::from(*b))
}

fn gid(bytes: &[u8], at: usize) -> Value {
    let text = match bytes.get(at..).and_then(|b| b.first_chunk::<16>()) {
        Some(octets) => Ipv6Addr::from(*octets).to_string(),
        None => String::new(),
    };
    Value::Text(text)
}
