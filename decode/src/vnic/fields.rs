//! Fields of the attributes of VNIC management.

use fabric::{Gid, Qpn};
use vnic::Lid;
use vnic::attribute::{
    ConfigState, LidDirectory, ManagerInfo, NodeInfo, ServiceClasses, VeswPortInfo,
};
use vnic::mac_table::MacEntry;
use vnic::mad::{
    self, ClassPortInfo, ErrorCounters, Header, LidDirectoryQuery, MacEntries, MacEntriesQuery,
    MacList, MacListQuery, Mad, Malformed, Notice, SummaryCounters, TrapKind, attribute, method,
};

use crate::record::{Fields, Value};
use crate::values::{count, list, mac, number, text};

/// Fields of the header other than class, method, attribute and transaction.
pub fn header(h: &Header) -> Fields {
    let mut fields = Fields::new();
    let status = h.status.get();
    if status != mad::status::OK {
        let named = match mad::status_name(status) {
            Some(name) => format!("{status:#06x} ({name})"),
            None => format!("{status:#06x}"),
        };
        fields.push(("status", Value::Text(named)));
    }
    match h.attribute_id.get() {
        attribute::CLASS_PORT_INFO
        | attribute::NOTICE
        | attribute::NODE_INFO
        | attribute::MANAGER_INFO => {}
        _ => fields.push(("vport", count(h.vport()))),
    }
    if h.modifier.get() > 0xff {
        fields.push(("modifier", number(h.modifier.get())));
    }
    fields
}

/// Fields of the attribute. A refusal has none; a request has the fields of its query.
pub fn attribute(mad: &Mad<'_>) -> Result<Fields, Malformed> {
    if mad.header.status.get() != mad::status::OK {
        return Ok(Fields::new());
    }
    match (mad.header.method, mad.header.attribute_id.get()) {
        (method::GET, attribute) => question(attribute, mad),
        // The data of this attribute is ignored.
        (method::SET, attribute::DELETE_VESW) => Ok(Fields::new()),
        (_, attribute) => statement(attribute, mad),
    }
}

fn question(attribute: u16, mad: &Mad<'_>) -> Result<Fields, Malformed> {
    let range =
        |first, start: u16, asked: u16| vec![(first, count(start)), ("count", count(asked))];
    Ok(match attribute {
        attribute::VESW_MAC_ENTRIES => {
            let q: MacEntriesQuery = mad.attribute()?;
            range("offset", q.offset, q.count)
        }
        attribute::IFACE_UCAST_MACS | attribute::IFACE_MCAST_MACS => {
            let q: MacListQuery = mad.attribute()?;
            range("start", q.start, q.count)
        }
        attribute::LID_DIRECTORY => {
            let q: LidDirectoryQuery = mad.attribute()?;
            range("start", q.start, q.count)
        }
        _ => Fields::new(),
    })
}

fn statement(attribute: u16, mad: &Mad<'_>) -> Result<Fields, Malformed> {
    Ok(match attribute {
        attribute::CLASS_PORT_INFO => class_port_info(&mad.attribute()?),
        attribute::NOTICE => notice(&mad.attribute()?),
        attribute::VESW_PORT_INFO | attribute::DELETE_VESW => vesw_port_info(&mad.attribute()?),
        attribute::VESW_MAC_ENTRIES => mac_entries(&mad.attribute()?),
        attribute::IFACE_UCAST_MACS | attribute::IFACE_MCAST_MACS => mac_list(&mad.attribute()?),
        attribute::SUMMARY_COUNTERS => summary_counters(&mad.attribute()?),
        attribute::ERROR_COUNTERS => error_counters(&mad.attribute()?),
        attribute::LID_DIRECTORY => lid_directory(&mad.attribute()?),
        attribute::NODE_INFO => node_info(&mad.attribute()?),
        attribute::MANAGER_INFO => manager_info(&mad.attribute()?),
        _ => Fields::new(),
    })
}

fn class_port_info(info: &ClassPortInfo) -> Fields {
    let response = info.cap_mask2_resp_time.get();
    vec![
        ("base_version", number(info.base_version)),
        ("class_version", number(info.class_version)),
        ("cap_mask", number(info.cap_mask.get())),
        ("cap_mask2", number(response >> 5)),
        ("response_time", Value::Time((response & 0x1f) as u8)),
        ("redirect_gid", text(Gid(info.redirect_gid))),
        ("redirect_tc_fl", number(info.redirect_tc_fl.get())),
        ("redirect_lid", number(info.redirect_lid.get())),
        ("redirect_sl_qp", number(info.redirect_sl_qp.get())),
        ("redirect_qkey", number(info.redirect_qkey.get())),
        ("redirect_pkey", number(info.redirect_pkey.get())),
        ("trap_gid", text(Gid(info.trap_gid))),
        ("trap_tc_fl", number(info.trap_tc_fl.get())),
        ("trap_lid", number(info.trap_lid.get())),
        ("trap_hop_limit", count(info.trap_hl_qp.get() >> 24)),
        ("trap_qp", text(Qpn::new(info.trap_hl_qp.get()))),
        ("trap_qkey", number(info.trap_qkey.get())),
        ("trap_pkey", number(info.trap_pkey.get())),
        ("trap_sl", count(info.trap_sl())),
    ]
}

fn notice(n: &Notice) -> Fields {
    let kind = match n.kind {
        TrapKind::UcastMacs => "unicast MACs changed",
        TrapKind::McastMacs => "multicast MACs changed",
        TrapKind::LinkStatus => "link status changed",
    };
    vec![
        ("opcode", text(format!("{} ({kind})", n.kind.opcode()))),
        ("issuer_lid", text(n.issuer_lid)),
        ("fabric_id", number(n.fabric_id)),
        ("vesw_id", count(n.vesw_id)),
        ("port_num", count(n.port_num)),
        ("opa_port", count(n.opa_port)),
        ("vport", count(n.index)),
    ]
}

fn vesw_port_info(info: &VeswPortInfo) -> Fields {
    let mut fields = vec![
        ("fabric_id", number(info.fabric_id)),
        ("vesw_id", count(info.vesw_id)),
        ("def_port_mask", number(info.def_port_mask)),
        ("pkey", text(info.pkey)),
        ("u_mcast_dlid", text(info.u_mcast_dlid)),
        ("u_ucast_dlid", list(info.u_ucast_dlid)),
        ("rc", number(info.rc)),
        ("eth_mtu", count(info.eth_mtu)),
        ("port_num", count(info.port_num)),
        ("eth_link_status", text(link_status(info.eth_link_status))),
        ("base_mac_addr", text(mac(&info.base_mac_addr))),
        ("config_state", text(state(info.config_state))),
        ("oper_state", text(state(info.oper_state))),
        ("max_mac_tbl_ent", count(info.max_mac_tbl_ent)),
        ("max_smac_ent", count(info.max_smac_ent)),
        ("mac_tbl_digest", number(info.mac_tbl_digest)),
        ("encap_slid", text(info.encap_slid)),
    ];
    fields.extend(service_classes(&info.classes));
    fields.push(("uc_macs_gen_count", count(info.uc_macs_gen_count)));
    fields.push(("mc_macs_gen_count", count(info.mc_macs_gen_count)));
    fields
}

fn service_classes(c: &ServiceClasses) -> Fields {
    vec![
        ("pcp_to_sc_uc", list(c.pcp_unicast)),
        ("pcp_to_vl_uc", list(c.pcp_unicast_vl)),
        ("pcp_to_sc_mc", list(c.pcp_multicast)),
        ("pcp_to_vl_mc", list(c.pcp_multicast_vl)),
        ("non_vlan_sc_uc", count(c.unicast)),
        ("non_vlan_vl_uc", count(c.unicast_vl)),
        ("non_vlan_sc_mc", count(c.multicast)),
        ("non_vlan_vl_mc", count(c.multicast_vl)),
    ]
}

fn mac_entries(page: &MacEntries) -> Fields {
    let entry = |e: &MacEntry| {
        let (place, mask) = (mac(&e.mac), mac(&e.mask));
        let (lid, side) = (e.lid(), e.dlid_sd & 0xff);
        match e.mask {
            [0, 0, 0, 0, 0, 0] => format!("{place}={lid}/{side:#04x}"),
            _ => format!("{place}&{mask}={lid}/{side:#04x}"),
        }
    };
    vec![
        ("offset", count(page.offset)),
        ("count", count(page.entries.len() as u64)),
        ("mac_tbl_digest", number(page.digest)),
        ("entries", list(page.entries.iter().map(entry))),
    ]
}

fn mac_list(page: &MacList) -> Fields {
    vec![
        ("start", count(page.start)),
        ("count", count(page.macs.len() as u64)),
        ("total", count(page.total)),
        ("gen_count", count(page.gen_count)),
        ("macs", list(page.macs.iter().map(mac))),
    ]
}

/// The driver's counters that the attribute has: all up to the packet sizes, except the sums of drops.
fn summary_counters(summary: &SummaryCounters) -> Fields {
    let mut fields = of_port(summary.index, summary.vesw_id, summary.port_num);
    let left_out = ["rx_dropped", "tx_dropped"];
    let named = summary.counters.named().into_iter();
    let of_attribute = named
        .take_while(|(name, _)| *name != "rx_fifo_errors")
        .filter(|(name, _)| !left_out.contains(name));
    fields.extend(of_attribute.map(|(name, value)| (name, count(value))));
    fields
}

fn error_counters(c: &ErrorCounters) -> Fields {
    let mut fields = of_port(c.index, c.vesw_id, c.port_num);
    let named = [
        ("tx_errors", c.tx_errors),
        ("rx_errors", c.rx_errors),
        ("tx_smac_filt", c.tx_smac_filt),
        ("tx_dlid_zero", c.tx_dlid_zero),
        ("tx_logic", c.tx_logic),
        ("tx_drop_state", c.tx_drop_state),
        ("rx_bad_veswid", c.rx_bad_veswid),
        ("rx_runt", c.rx_runt),
        ("rx_oversize", c.rx_oversize),
        ("rx_eth_down", c.rx_eth_down),
        ("rx_drop_state", c.rx_drop_state),
        ("rx_logic", c.rx_logic),
    ];
    fields.extend(named.map(|(name, value)| (name, count(value))));
    fields
}

fn of_port(index: u16, vesw_id: u16, port_num: u32) -> Fields {
    vec![
        ("vp_instance", count(index)),
        ("vesw_id", count(vesw_id)),
        ("port_num", count(port_num)),
    ]
}

fn lid_directory(page: &LidDirectory) -> Fields {
    let entry =
        |(lid, at): &(Lid, vnic::directory::NodeAddress)| format!("{lid}={}/{}", at.gid, at.qpn);
    vec![
        ("start", count(page.start)),
        ("count", count(page.entries.len() as u64)),
        ("total", count(page.total)),
        ("digest", number(page.digest)),
        ("entries", list(page.entries.iter().map(entry))),
    ]
}

fn node_info(info: &NodeInfo) -> Fields {
    let wanted = |p: &vnic::attribute::WantedPort| format!("{}:{}/{}", p.index, p.name, p.qpn);
    vec![
        ("guid", text(info.guid)),
        ("incarnation", text(format!("{:#018x}", info.incarnation))),
        ("port", count(info.port)),
        ("payload_max", count(info.payload_max)),
        ("description", text(format!("{:?}", info.description))),
        ("first", count(info.first)),
        ("next", count(info.next)),
        ("ports", list(info.ports.iter().map(wanted))),
    ]
}

fn manager_info(info: &ManagerInfo) -> Fields {
    vec![
        ("id", text(format!("{:#018x}", info.id))),
        ("priority", count(info.priority)),
        ("active", count(info.active)),
        ("lease_ms", count(info.lease_ms)),
        ("gid", text(info.gid)),
    ]
}

fn state(state: ConfigState) -> &'static str {
    match state {
        ConfigState::Nop => "nop",
        ConfigState::DropAll => "drop-all",
        ConfigState::Init => "init",
        ConfigState::Forwarding => "forwarding",
    }
}

fn link_status(status: u8) -> String {
    match status {
        0 => "unknown".to_owned(),
        1 => "up".to_owned(),
        2 => "down".to_owned(),
        other => format!("{other:#04x}"),
    }
}
