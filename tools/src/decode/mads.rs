//! What is worth telling of a management datagram.

use std::net::Ipv6Addr;

use fabric::mad::{Mad, class, cm, reject_reason, sa};

use super::record::{MadRecord, Value};

type Fields = Vec<(&'static str, Value)>;

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
    let attribute = mad.header.attribute_id.get();
    match mad.header.mgmt_class {
        class::COM_MGT => communication(attribute, mad.data),
        class::SUBN_ADM => administration(attribute, mad),
        _ => Fields::new(),
    }
}

/// Communication management (IBA vol. 1, 12.6): offsets from the end of the common header.
fn communication(attribute: u16, data: &[u8]) -> Fields {
    let number = |name, at, len| (name, Value::Number(be(data, at, len)));
    let ids = [
        number("local_comm_id", 0, 4),
        number("remote_comm_id", 4, 4),
    ];
    match attribute {
        cm::REQ => vec![
            number("local_comm_id", 0, 4),
            number("service_id", 8, 8),
            number("local_qpn", 32, 3),
            number("starting_psn", 44, 3),
            number("pkey", 48, 2),
        ],
        cm::REP => {
            let rest = [number("local_qpn", 12, 3), number("starting_psn", 20, 3)];
            ids.into_iter().chain(rest).collect()
        }
        cm::REJ => {
            let reason = be(data, 10, 2);
            let name = u16::try_from(reason).ok().and_then(reject_reason);
            let text = match name {
                Some(name) => format!("{reason} ({name})"),
                None => reason.to_string(),
            };
            ids.into_iter()
                .chain([("reason", Value::Text(text))])
                .collect()
        }
        cm::DREQ => ids
            .into_iter()
            .chain([number("remote_qpn", 8, 3)])
            .collect(),
        cm::MRA | cm::RTU | cm::DREP | cm::LAP | cm::APR => ids.into(),
        cm::SIDR_REQ => vec![
            number("request_id", 0, 4),
            number("pkey", 4, 2),
            number("service_id", 8, 8),
        ],
        cm::SIDR_REP => vec![
            number("request_id", 0, 4),
            number("status", 4, 1),
            number("qpn", 8, 3),
            number("service_id", 12, 8),
            number("qkey", 20, 4),
        ],
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
