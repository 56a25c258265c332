//! Records of management datagrams.

use fabric::IbMtu;
use fabric::mad::sa::{
    self, InformInfo, McMemberRecord, Notice, PathRecord, Selected, ServiceRecord,
};
use fabric::mad::{Mad, class};
use fabric::rmpp::{flag, kind};

use super::cm;
use super::record::{Fields, MadRecord, Value};
use super::values::{count, number, text};

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

/// Subnet administration (IBA vol. 1, 15.2.5): the component mask and the key fields of the first
/// record.
fn administration(attribute: u16, mad: &Mad<'_>) -> Fields {
    let Some((header, record)) = mad.subnet_administration() else {
        return Fields::new();
    };
    let mut fields = vec![("component_mask", number(header.component_mask.get()))];
    // Acknowledgements and other datagrams of a transfer have no record.
    if header.rmpp_flags & flag::ACTIVE != 0 && header.rmpp_type > kind::DATA {
        return fields;
    }
    let more = match attribute {
        sa::PATH_RECORD => PathRecord::parse(record).map(|r| path(&r)),
        sa::MC_MEMBER_RECORD => McMemberRecord::parse(record).map(|r| membership(&r)),
        sa::SERVICE_RECORD => ServiceRecord::parse(record).map(|r| service(&r)),
        sa::INFORM_INFO => InformInfo::parse(record).map(|r| subscription(&r)),
        sa::NOTICE => Notice::parse(record).map(|r| notice(&r)),
        _ => None,
    };
    fields.extend(more.unwrap_or_default());
    fields
}

fn path(record: &PathRecord) -> Fields {
    vec![
        ("dgid", text(record.dgid)),
        ("sgid", text(record.sgid)),
        ("dlid", number(record.dlid.0)),
        ("slid", number(record.slid.0)),
        ("pkey", number(record.pkey.get())),
        ("sl", count(record.sl)),
        ("mtu", mtu(record.mtu)),
        ("rate", rate(record.rate)),
        ("tclass", number(record.tclass)),
        ("hop_limit", count(record.hop_limit)),
    ]
}

fn membership(record: &McMemberRecord) -> Fields {
    vec![
        ("mgid", text(record.mgid)),
        ("port_gid", text(record.port_gid)),
        ("qkey", number(record.qkey.get())),
        ("mlid", number(record.mlid.0)),
        ("pkey", number(record.pkey.get())),
        ("join_state", number(record.join_state.0)),
        ("sl", count(record.sl)),
        ("mtu", mtu(record.mtu)),
        ("rate", rate(record.rate)),
        ("tclass", number(record.tclass)),
        ("hop_limit", count(record.hop_limit)),
    ]
}

fn service(record: &ServiceRecord) -> Fields {
    vec![
        ("service_id", number(record.id.0)),
        ("service_gid", text(record.gid)),
        ("pkey", number(record.pkey.get())),
        ("lease", count(record.lease)),
    ]
}

fn subscription(info: &InformInfo) -> Fields {
    vec![
        ("subscribe", count(info.subscribe)),
        ("trap", count(info.trap)),
    ]
}

fn notice(notice: &Notice) -> Fields {
    let mut fields = vec![("trap", count(notice.trap))];
    fields.extend(notice.gid().map(|gid| ("gid", text(gid))));
    fields
}

/// Bytes of an MTU; 0 for a code without one, such as that of a field that is not valid.
fn mtu(mtu: Selected) -> Value {
    count(mtu.mtu().map_or(0, IbMtu::bytes))
}

fn rate(rate: Selected) -> Value {
    text(rate.rate())
}
