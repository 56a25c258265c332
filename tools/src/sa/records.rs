//! Records as text with the field names of saquery, and as JSON objects.

use control::output::printable;
use fabric::mad::sa::service::LEASE_INFINITE;
use fabric::mad::sa::{McMemberRecord, NodeRecord, NodeType, PathRecord, Selected, ServiceRecord};
use fabric::{Gid, Guid};
use serde::ser::{Serialize, SerializeMap, Serializer};
use serde_json::Value;

/// Columns of a field's name, filled up with dots.
const NAME: usize = 24;

/// A record.
#[derive(Debug)]
pub struct Dump {
    title: &'static str,
    fields: Vec<Field>,
}

#[derive(Debug)]
struct Field {
    /// As in saquery.
    name: &'static str,
    text: String,
    /// The member of the JSON object.
    key: &'static str,
    value: Value,
}

impl Dump {
    fn new(title: &'static str) -> Dump {
        Dump {
            title,
            fields: Vec::new(),
        }
    }

    fn add(
        mut self,
        name: &'static str,
        key: &'static str,
        value: impl Into<Value>,
        text: impl Into<String>,
    ) -> Dump {
        self.fields.push(Field {
            name,
            text: text.into(),
            key,
            value: value.into(),
        });
        self
    }

    /// A number in base 16.
    fn hex(self, name: &'static str, key: &'static str, value: impl Into<u64>) -> Dump {
        let value = value.into();
        self.add(name, key, value, format!("{value:#x}"))
    }

    /// A number in base 10.
    fn number(self, name: &'static str, key: &'static str, value: impl Into<u64>) -> Dump {
        let value = value.into();
        self.add(name, key, value, value.to_string())
    }

    fn gid(self, name: &'static str, key: &'static str, gid: Gid) -> Dump {
        self.add(name, key, gid.to_string(), gid.to_string())
    }

    fn guid(self, name: &'static str, key: &'static str, guid: Guid) -> Dump {
        let text = format!("{:#018x}", u64::from_be_bytes(guid.0));
        self.add(name, key, text.clone(), text)
    }

    fn mtu(self, name: &'static str, mtu: Selected) -> Dump {
        let bytes = mtu.mtu().map(|mtu| mtu.bytes());
        let means = bytes.map_or_else(|| "reserved".to_owned(), |bytes| bytes.to_string());
        self.add(name, "mtu", bytes, selected(mtu, &means))
    }

    fn rate(self, name: &'static str, rate: Selected) -> Dump {
        let mbps = rate.rate().mbps();
        let text = selected(rate, &rate.rate().to_string());
        self.add(name, "rate_mbps", mbps, text)
    }

    fn lifetime(self, name: &'static str, lifetime: Selected) -> Dump {
        let time = lifetime.lifetime();
        let us = u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        self.add(
            name,
            "packet_lifetime_us",
            us,
            selected(lifetime, &format!("{time:.1?}")),
        )
    }

    /// The record's lines. Any host of the subnet chooses names in it.
    pub fn text(&self) -> String {
        let mut text = format!("{} dump:\n", self.title);
        for field in &self.fields {
            text += &format!("\t\t{:.<NAME$}{}\n", field.name, printable(&field.text));
        }
        text
    }
}

impl Serialize for Dump {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.fields.len()))?;
        for field in &self.fields {
            map.serialize_entry(field.key, &field.value)?;
        }
        map.end()
    }
}

/// The byte of the wire, which saquery prints, and its meaning.
fn selected(value: Selected, means: &str) -> String {
    let byte = (value.selector as u8) << 6 | value.code & 0x3f;
    format!("{byte:#x} ({means})")
}

/// Text in a field that is filled up with zeros.
fn name_of(bytes: &[u8]) -> String {
    let text = bytes.split(|byte| *byte == 0).next().unwrap_or_default();
    String::from_utf8_lossy(text).into_owned()
}

/// A group, or one port's membership.
pub fn group(r: &McMemberRecord) -> Dump {
    let state = r.join_state;
    let dump = Dump::new("MCMemberRecord")
        .gid("MGID", "mgid", r.mgid)
        .hex("Mlid", "mlid", r.mlid.0)
        .gid("PortGid", "port_gid", r.port_gid)
        .hex("Qkey", "qkey", r.qkey.get())
        .mtu("Mtu", r.mtu)
        .hex("TClass", "tclass", r.tclass)
        .add(
            "pkey",
            "pkey",
            r.pkey.get(),
            format!("{:#06x}", r.pkey.get()),
        )
        .rate("Rate", r.rate)
        .lifetime("pkt_life", r.lifetime)
        .hex("SL", "sl", r.sl)
        .hex("FlowLabel", "flow_label", r.flow_label)
        .hex("HopLimit", "hop_limit", r.hop_limit);
    let byte = r.scope << 4 | state.0 & 0xf;
    dump.add(
        "ScopeState",
        "join_state",
        state.0,
        format!("{byte:#x} ({state})"),
    )
    .add(
        "ProxyJoin",
        "proxy_join",
        r.proxy_join,
        format!("{:#x}", u8::from(r.proxy_join)),
    )
}

/// A path.
pub fn path(r: &PathRecord) -> Dump {
    let reversible = u8::from(r.reversible) << 7 | r.numb_path & 0x7f;
    Dump::new("PathRecord")
        .add(
            "service_id",
            "service_id",
            r.service_id.0,
            format!("{:#018x}", r.service_id.0),
        )
        .gid("dgid", "dgid", r.dgid)
        .gid("sgid", "sgid", r.sgid)
        .number("dlid", "dlid", r.dlid.0)
        .number("slid", "slid", r.slid.0)
        .hex("flow_label", "flow_label", r.flow_label)
        .hex("hop_limit", "hop_limit", r.hop_limit)
        .hex("tclass", "tclass", r.tclass)
        .add(
            "num_path_revers",
            "reversible",
            r.reversible,
            format!("{reversible:#x}"),
        )
        .hex("pkey", "pkey", r.pkey.get())
        .hex("qos_class", "qos_class", r.qos_class)
        .hex("sl", "sl", r.sl)
        .mtu("mtu", r.mtu)
        .rate("rate", r.rate)
        .lifetime("pkt_life", r.lifetime)
        .hex("preference", "preference", r.preference)
}

/// A node.
pub fn node(r: &NodeRecord) -> Dump {
    let kind = match r.node_type {
        NodeType::CA => "Channel Adapter",
        NodeType::SWITCH => "Switch",
        NodeType::ROUTER => "Router",
        _ => "unknown",
    };
    Dump::new("NodeRecord")
        .number("lid", "lid", r.lid.0)
        .hex("base_version", "base_version", r.base_version)
        .hex("class_version", "class_version", r.class_version)
        .add("node_type", "node_type", r.node_type.name(), kind)
        .number("num_ports", "ports", r.ports)
        .guid("sys_guid", "system_image_guid", r.system_image_guid)
        .guid("node_guid", "node_guid", r.node_guid)
        .guid("port_guid", "port_guid", r.port_guid)
        .hex("partition_cap", "partition_cap", r.partition_cap)
        .hex("device_id", "device_id", r.device_id)
        .hex("revision", "revision", r.revision)
        .number("port_num", "local_port", r.local_port)
        .hex("vendor_id", "vendor_id", r.vendor_id)
        .add(
            "NodeDescription",
            "description",
            r.description(),
            r.description(),
        )
}

/// A registered service.
pub fn service(r: &ServiceRecord) -> Dump {
    let lease = match r.lease {
        LEASE_INFINITE => "0xffffffff (without end)".to_owned(),
        seconds => format!("{seconds:#x} ({seconds} s)"),
    };
    let hex = |bytes: &[u8]| -> String { bytes.iter().map(|b| format!("{b:02x}")).collect() };
    let (key, data) = (hex(&r.key), hex(&r.data));
    Dump::new("ServiceRecord")
        .add("ServiceID", "id", r.id.0, format!("{:#018x}", r.id.0))
        .gid("ServiceGID", "gid", r.gid)
        .hex("ServiceP_Key", "pkey", r.pkey.get())
        .add("ServiceLease", "lease_s", r.lease, lease)
        .add("ServiceKey", "key", key.clone(), key)
        .add("ServiceName", "name", name_of(&r.name), name_of(&r.name))
        .add("ServiceData", "data", data.clone(), data)
}

#[cfg(test)]
mod tests {
    use fabric::mad::sa::JoinState;
    use fabric::{Lid, PKey, QKey, ServiceId};

    use super::*;

    #[test]
    fn groups_have_the_lines_of_saquery() {
        let record = McMemberRecord {
            mgid: "ff12:401b:ffff::ffff:ffff".parse().unwrap(),
            qkey: QKey::new(0xb1b),
            mlid: Lid(0xc000),
            mtu: Selected::exactly(4),
            pkey: PKey::DEFAULT,
            rate: Selected::exactly(3),
            lifetime: Selected::exactly(18),
            scope: 2,
            join_state: JoinState::FULL,
            ..McMemberRecord::default()
        };
        let dump = group(&record);
        let text = dump.text();
        for line in [
            "MCMemberRecord dump:\n",
            "\n\t\tMGID....................ff12:401b:ffff::ffff:ffff\n",
            "\n\t\tMlid....................0xc000\n",
            "\n\t\tMtu.....................0x84 (2048)\n",
            "\n\t\tpkey....................0xffff\n",
            "\n\t\tRate....................0x83 (10 Gbit/s)\n",
            "\n\t\tpkt_life................0x92 (1.1s)\n",
            "\n\t\tScopeState..............0x21 (FullMember)\n",
        ] {
            assert!(text.contains(line), "{line:?} in {text}");
        }
        let json = serde_json::to_value(&dump).unwrap();
        assert_eq!(json["mlid"], 0xc000);
        assert_eq!(
            (&json["mtu"], &json["rate_mbps"]),
            (&2048.into(), &10_000.into())
        );
        assert_eq!(json["packet_lifetime_us"], 1_073_741);
        assert_eq!(json["mgid"], "ff12:401b:ffff::ffff:ffff");
    }

    #[test]
    fn reserved_codes_have_no_value() {
        let record = PathRecord {
            mtu: Selected::exactly(63),
            ..PathRecord::default()
        };
        let dump = path(&record);
        assert!(
            dump.text()
                .contains("mtu.....................0xbf (reserved)")
        );
        assert_eq!(serde_json::to_value(&dump).unwrap()["mtu"], Value::Null);
    }

    #[test]
    fn a_name_cannot_control_the_terminal() {
        let record = NodeRecord {
            description: ServiceRecord::name_bytes("\x1b[2J\nn1"),
            ..NodeRecord::parse(&[0; NodeRecord::LEN]).unwrap()
        };
        let text = node(&record).text();
        assert!(text.contains("?[2J?n1\n"), "{text:?}");
        assert!(!text.contains('\x1b'), "{text:?}");
    }

    #[test]
    fn names_end_at_their_first_zero() {
        let record = ServiceRecord {
            id: ServiceId(0x10),
            name: ServiceRecord::name_bytes("store"),
            lease: u32::MAX,
            ..ServiceRecord::default()
        };
        let text = service(&record).text();
        assert!(text.contains("ServiceName.............store\n"), "{text}");
        assert!(text.contains("0xffffffff (without end)"), "{text}");
    }
}
