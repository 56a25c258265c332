//! Answers to Get and Set, and refusals.

use super::*;
use crate::mad::{ErrorCounters, MacEntries, MacList, MacListQuery, SummaryCounters};

#[test]
fn m04_class_port_info_is_given_back_as_it_was_set_but_for_the_agents_own() {
    let mut w = World::new();
    let sent: Vec<u8> = (1..=80).collect();
    let set = ClassPortInfo::decode(&sent).unwrap();
    let (code, answer) = w.ask(method::SET, attribute::CLASS_PORT_INFO, 0, &set);
    assert_eq!((code, &answer[8..]), (status::OK, &sent[8..]));
    let (_, answer) = w.ask_empty(method::GET, attribute::CLASS_PORT_INFO, 0);
    assert_eq!(answer[..8], [0x80, 0x80, 0xff, 0x01, 0, 0, 0, 18]);
    assert_eq!(answer[8..], sent[8..]);
}

#[test]
fn m05_a_missing_port_has_defaults_and_an_unset_port_has_its_link_down() {
    let mut w = World::new();
    assert_eq!(w.info(9), VeswPortInfo::default());
    let created = VeswPortInfo {
        eth_link_status: 2,
        // The interface's own address is listed, because no manager assigned it.
        uc_macs_gen_count: 1,
        ..VeswPortInfo::default()
    };
    assert_eq!(w.info(0), created);
}

#[test]
fn m06_the_first_set_creates_a_port_if_permitted_and_the_second_does_not() {
    let mut w = World::with(Config {
        may_create: true,
        ..config()
    });
    w.set(3, &forwarding());
    let made = [
        Call::Create(3),
        Call::Mac(3, forwarding().base_mac_addr),
        Call::Configure(3, ConfigState::Forwarding),
    ];
    assert_eq!(w.calls(), made);
    w.set(
        3,
        &VeswPortInfo {
            port_num: 8,
            ..forwarding()
        },
    );
    assert_eq!(w.calls(), [Call::Configure(3, ConfigState::Forwarding)]);
    let names: Vec<String> = w
        .agent
        .node_info(0)
        .ports
        .iter()
        .map(|p| p.name.clone())
        .collect();
    assert_eq!(names, ["vnic0", "vnic3"]);
}

#[test]
fn m26_a_port_that_cannot_be_created_is_an_invalid_value_and_reported_once() {
    let mut w = World::new();
    for _ in 0..2 {
        let (code, _) = w.ask(method::SET, attribute::VESW_PORT_INFO, 3, &forwarding());
        assert_eq!(code, status::INVALID);
    }
    let line = "cannot create virtual port 3 for fe80::ee: vnic_create is false for this port";
    assert_eq!(w.events(), [line]);
    let mut w = World::with(Config {
        may_create: true,
        ..config()
    });
    w.host.cannot_create = true;
    let (code, _) = w.ask(method::SET, attribute::VESW_PORT_INFO, 3, &forwarding());
    assert_eq!((code, w.calls()), (status::INVALID, vec![Call::Create(3)]));
    assert_eq!(
        w.events(),
        ["cannot create virtual port 3 for fe80::ee: no more interfaces"]
    );
    assert!(w.agent.port(3).is_none());
}

#[test]
fn m07_only_the_lower_8_bits_of_the_modifier_name_the_port() {
    let mut w = World::new();
    w.set(0, &forwarding());
    let header = Header::new(method::GET, attribute::VESW_PORT_INFO, 0xabcd_ef00, 5);
    let (_, data) = w.send(MANAGER, &mad::write_empty(&header));
    assert_eq!(VeswPortInfo::decode(&data).unwrap().vesw_id, 2);
}

#[test]
fn m08_reserved_bytes_are_echoed() {
    let mut w = World::new();
    let mut info = forwarding();
    info.reserved.0 = std::array::from_fn(|n| n as u8 + 1);
    assert_eq!(w.set(0, &info).reserved, info.reserved);
    assert_eq!(w.info(0).reserved, info.reserved);
}

#[test]
fn m09_read_only_fields_cannot_be_set() {
    let mut w = World::new();
    let before = w.set(0, &forwarding());
    let tried = VeswPortInfo {
        eth_link_status: 7,
        oper_state: ConfigState::Init,
        max_mac_tbl_ent: 1,
        max_smac_ent: 2,
        mac_tbl_digest: 3,
        uc_macs_gen_count: 0x444,
        mc_macs_gen_count: 0x555,
        ..forwarding()
    };
    assert_eq!(w.set(0, &tried), before);
    assert_eq!(before.eth_link_status, 1);
}

#[test]
fn m18_a_missing_port_cannot_be_deleted_or_read() {
    let mut w = World::new();
    let (code, _) = w.ask_empty(method::SET, attribute::DELETE_VESW, 9);
    assert_eq!(code, status::INVALID);
    let of_port = [
        attribute::VESW_MAC_ENTRIES,
        attribute::IFACE_UCAST_MACS,
        attribute::IFACE_MCAST_MACS,
        attribute::SUMMARY_COUNTERS,
        attribute::ERROR_COUNTERS,
        attribute::LID_DIRECTORY,
    ];
    for id in of_port {
        let (code, _) = w.ask(method::GET, id, 9, &MacListQuery::default());
        assert_eq!(code, status::INVALID, "{id:#x}");
    }
    let (code, _) = w.ask(
        method::SET,
        attribute::VESW_MAC_ENTRIES,
        9,
        &MacEntries::default(),
    );
    assert_eq!(code, status::INVALID);
    // Requests for missing ports are not reported.
    assert_eq!(w.events(), Vec::<String>::new());
}

#[test]
fn m19_unknown_attributes_and_methods_are_unsupported() {
    let mut w = World::new();
    let asked = [
        (method::GET, attribute::DELETE_VESW),
        (method::SET, attribute::SUMMARY_COUNTERS),
        (method::SET, attribute::ERROR_COUNTERS),
        (method::SET, attribute::IFACE_UCAST_MACS),
        (method::SET, attribute::IFACE_MCAST_MACS),
        (method::SET, attribute::NODE_INFO),
        (method::GET, attribute::MANAGER_INFO),
        (method::GET, attribute::NOTICE),
        (method::GET, 0x0021),
        (method::SET, 0xffff),
    ];
    for (method, id) in asked {
        let (code, _) = w.ask_empty(method, id, 0);
        assert_eq!(code, status::UNSUPPORTED, "{method} {id:#x}");
    }
    assert_eq!(w.agent.counts().unsupported, asked.len() as u64);
}

#[test]
fn m20_m21_m23_lists_come_in_pages_of_up_to_333() {
    let mut w = World::new();
    let all: Vec<Mac> = (0..400_u16)
        .map(|n| {
            let [a, b] = n.to_be_bytes();
            [0x33, 0x33, 0, 0, a, b]
        })
        .collect();
    w.agent.set_multicast_macs(Time(0), 0, all.clone());
    let mut page = |start, count| -> MacList {
        w.get(
            attribute::IFACE_MCAST_MACS,
            0,
            &MacListQuery { start, count },
        )
    };
    let first = page(0, 0);
    assert_eq!((first.start, first.total, first.gen_count), (0, 400, 1));
    assert_eq!(first.macs, all[..333]);
    assert_eq!(page(0, 400).macs, all[..333]);
    assert_eq!(page(333, 0).macs, all[333..]);
    assert_eq!(page(10, 2).macs, all[10..12]);
    let beyond = page(401, 0);
    assert_eq!((beyond.start, beyond.total), (401, 400));
    assert_eq!(beyond.macs, Vec::<Mac>::new());
}

#[test]
fn m22_the_address_that_the_manager_assigned_is_not_listed() {
    let mut w = World::new();
    let guest = [0x52, 0x54, 0, 0, 0, 9];
    w.agent.set_unicast_macs(Time(0), 0, vec![guest]);
    let list = |w: &mut World| -> MacList {
        w.get(attribute::IFACE_UCAST_MACS, 0, &MacListQuery::default())
    };
    assert_eq!(list(&mut w).macs, [OWN_MAC, guest]);
    w.set(0, &forwarding());
    let after = list(&mut w);
    assert_eq!((after.macs, after.total), (vec![guest], 1));
    // The change count shows that the list changed.
    assert_eq!(after.gen_count, w.info(0).uc_macs_gen_count);
}

#[test]
fn m24_counters_have_the_managers_number_of_the_port() {
    let mut w = World::new();
    w.set(0, &forwarding());
    w.host.counters = Counters {
        rx_packets: 11,
        tx_fifo_errors: 3,
        tx_carrier_errors: 4,
        ..Counters::default()
    };
    let none = MacListQuery::default();
    let all: SummaryCounters = w.get(attribute::SUMMARY_COUNTERS, 0, &none);
    assert_eq!(
        (all.vesw_id, all.port_num, all.counters.rx_packets),
        (2, 7, 11)
    );
    let errors: ErrorCounters = w.get(attribute::ERROR_COUNTERS, 0, &none);
    assert_eq!(
        (errors.vesw_id, errors.port_num, errors.tx_logic),
        (2, 7, 7)
    );
}

#[test]
fn invalid_values_are_refused_by_field_and_change_nothing() {
    let mut w = World::new();
    let before = w.set(0, &forwarding());
    w.calls();
    w.events();
    type Change = fn(&mut VeswPortInfo);
    let wrong: [(&str, Change); 16] = [
        ("fabric_id is 1024", |i| i.fabric_id = 1024),
        ("vesw_id is 4096", |i| i.vesw_id = 4096),
        ("vesw_id is 0", |i| i.vesw_id = 0),
        ("eth_mtu is 67, must be 68 to 4053", |i| i.eth_mtu = 67),
        ("eth_mtu is 4054, must be 68 to 4053", |i| i.eth_mtu = 4054),
        ("pkey is 0x8000", |i| i.pkey = PKey::new(0x8000)),
        ("u_mcast_dlid is 0x000005", |i| i.u_mcast_dlid = Lid::new(5)),
        ("u_ucast_dlid is 0xf00001", |i| {
            i.u_ucast_dlid[9] = Lid::new(0xf0_0001)
        }),
        ("encap_slid is 0", |i| i.encap_slid = Lid::NONE),
        ("encap_slid is 0xf00001", |i| {
            i.encap_slid = Lid::new(0xf0_0001)
        }),
        ("base_mac_addr is 00:00:00:00:00:00", |i| {
            i.base_mac_addr = [0; 6]
        }),
        ("base_mac_addr is 03:00:00:00:00:00", |i| {
            i.base_mac_addr = [3, 0, 0, 0, 0, 0]
        }),
        ("service class is 32", |i| i.classes.pcp_unicast[7] = 32),
        ("service class is 15", |i| i.classes.multicast = 15),
        ("virtual lane is 32", |i| i.classes.pcp_multicast_vl[0] = 32),
        ("virtual lane is 99", |i| i.classes.unicast_vl = 99),
    ];
    for (text, change) in wrong {
        let mut info = forwarding();
        change(&mut info);
        let (code, _) = w.ask(method::SET, attribute::VESW_PORT_INFO, 0, &info);
        assert_eq!(code, status::INVALID, "{text}");
        // A second refusal of the same field would not be reported.
        w.agent.refusals.changed(0);
        let lines = w.events();
        assert!(lines[0].contains(text), "{lines:?}");
        assert_eq!(w.info(0), before);
    }
    // A port that does not forward needs few settings.
    let unset = VeswPortInfo::default();
    assert_eq!(w.set(0, &unset).oper_state, ConfigState::DropAll);
}

#[test]
fn e04_switches_1_and_4095_are_valid_and_0_and_4096_are_not() {
    let mut w = World::new();
    for (vesw_id, right) in [(0, false), (1, true), (4095, true), (4096, false)] {
        let info = VeswPortInfo {
            vesw_id,
            ..forwarding()
        };
        let (code, _) = w.ask(method::SET, attribute::VESW_PORT_INFO, 0, &info);
        assert_eq!(code == status::OK, right, "{vesw_id}");
    }
}

#[test]
fn a_refusal_is_reported_once_until_something_changes() {
    let mut w = World::new();
    let bad = VeswPortInfo {
        vesw_id: 0,
        ..forwarding()
    };
    for _ in 0..3 {
        w.ask(method::SET, attribute::VESW_PORT_INFO, 0, &bad);
    }
    assert_eq!(w.events().len(), 1);
    w.set(0, &forwarding());
    w.ask(method::SET, attribute::VESW_PORT_INFO, 0, &bad);
    let lines = w.events();
    assert_eq!(lines[0], "managed by fe80::ee");
    assert!(
        lines[1].ends_with("vesw_id is 0, must be 1 to 4095 to forward"),
        "{lines:?}"
    );
    assert_eq!(w.agent.counts().invalid, 4);
}

#[test]
fn the_host_can_refuse_settings() {
    let mut w = World::new();
    w.host.refuses = Some("LID 0x000005 is that of vnic9".to_owned());
    let (code, _) = w.ask(method::SET, attribute::VESW_PORT_INFO, 0, &forwarding());
    assert_eq!((code, w.calls()), (status::INVALID, vec![]));
    assert!(w.events()[0].ends_with("LID 0x000005 is that of vnic9"));
}

/// S13, adapted: in the kernel, all ports of a node share one LID.
#[test]
fn s13_two_ports_of_a_node_on_one_switch_need_different_lids() {
    let mut w = World::new();
    assert!(w.agent.add_port(Time(0), 1, new_port(1)));
    w.set(0, &forwarding());
    let (code, _) = w.ask(method::SET, attribute::VESW_PORT_INFO, 1, &forwarding());
    assert_eq!(code, status::INVALID);
    let line = w.events().pop().unwrap();
    let why = "encap_slid is 0x000005, already used by virtual port 0 on the same switch";
    assert!(line.ends_with(why), "{line}");
    w.set(
        1,
        &VeswPortInfo {
            vesw_id: 3,
            ..forwarding()
        },
    );
    w.set(
        1,
        &VeswPortInfo {
            encap_slid: Lid::new(6),
            ..forwarding()
        },
    );
}

#[test]
fn short_attributes_are_refused() {
    let mut w = World::new();
    let mut bytes = Vec::new();
    forwarding().encode(&mut bytes);
    let header = w.header(method::SET, attribute::VESW_PORT_INFO, 0);
    let request = [mad::write_empty(&header), bytes[..279].to_vec()].concat();
    assert_eq!(w.send(MANAGER, &request).0, status::INVALID);
    assert_eq!(w.calls(), []);
}

#[test]
fn node_info_describes_the_node() {
    let mut w = World::new();
    let info: crate::attribute::NodeInfo = w.get(attribute::NODE_INFO, 0, &MacListQuery::default());
    assert_eq!(info, w.agent.node_info(0));
    assert_eq!(
        (info.description.as_str(), info.payload_max),
        ("host one", 4096)
    );
    assert_eq!(info.ports[0].qpn, Qpn::new(0x100));
}
