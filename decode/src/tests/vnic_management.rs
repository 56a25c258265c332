use ::vnic::Lid;
use ::vnic::Time;
use ::vnic::attribute::{
    ConfigState, LidDirectory, ManagerInfo, NodeInfo, VeswPortInfo, WantedPort,
};
use ::vnic::carriage::MANAGEMENT_QKEY;
use ::vnic::carriage::fragment::Splitter;
use ::vnic::carriage::seal::{Route, Seal};
use ::vnic::counters::Counters;
use ::vnic::directory::NodeAddress;
use ::vnic::mac_table::MacEntry;
use ::vnic::mad::{
    self, ClassPortInfo, ErrorCounters, Header, MacEntries, MacEntriesQuery, MacList, Notice,
    SummaryCounters, TrapKind, attribute, method, status,
};
use fabric::{Gid, Guid, PKey, Qpn};

use super::*;

fn header(method: u8, attribute: u16) -> Header {
    Header::new(method, attribute, 1, 0xabc0_0000_0000_0007)
}

/// The datagrams of `message`, with up to `payload_max` bytes each, as packets.
fn packets(message: &[u8], payload_max: usize) -> Vec<Vec<u8>> {
    let pieces = Splitter::new(0x5a, payload_max).split(message);
    pieces
        .map(|piece| send(MANAGEMENT_QKEY.get(), 0, 0, &[&piece]))
        .collect()
}

/// The text of `message` after the transport headers.
fn printed(message: &[u8]) -> String {
    let (summary, text) = lines(&pcap(&packets(message, 4096), usize::MAX));
    assert_eq!(
        (summary.roce, summary.good, summary.malformed),
        (1, 1, 0),
        "{}",
        text[0]
    );
    let (_, behind) = text[0].split_once(" | ").unwrap();
    let behind = behind.strip_suffix(" | icrc good").unwrap();
    behind.replacen(" tid 0xabc0000000000007 vport 1", " ...", 1)
}

fn gid(last: u16) -> Gid {
    format!("fe80::{last:x}").parse().unwrap()
}

#[test]
fn questions_say_what_is_asked() {
    let get = |attribute| mad::write_empty(&header(method::GET, attribute));
    assert_eq!(
        printed(&get(attribute::VESW_PORT_INFO)),
        "VNIC Get VeswPortInfo ..."
    );
    let query = MacEntriesQuery {
        offset: 250,
        count: 125,
    };
    let asked = mad::write(&header(method::GET, attribute::VESW_MAC_ENTRIES), &query);
    assert_eq!(
        printed(&asked),
        "VNIC Get VeswPortMacEntries ... offset 250 count 125"
    );
    let query = mad::MacListQuery {
        start: 333,
        count: 0,
    };
    let asked = mad::write(&header(method::GET, attribute::IFACE_UCAST_MACS), &query);
    assert_eq!(
        printed(&asked),
        "VNIC Get IfaceUcastMacs ... start 333 count 0"
    );
    assert_eq!(
        printed(&mad::write_empty(&header(0x77, 0x1234))),
        "VNIC method 0x77 attribute 0x1234 ..."
    );
}

#[test]
fn refusals_say_why_and_nothing_else() {
    let asked = header(method::GET, attribute::VESW_MAC_ENTRIES);
    assert_eq!(
        printed(&mad::write_empty(&asked.response(status::INVALID))),
        "VNIC GetResp VeswPortMacEntries tid 0xabc0000000000007 \
         status 0x001c (invalid attribute value) vport 1"
    );
}

#[test]
fn a_switch_and_a_port_on_it_field_by_field() {
    let info = VeswPortInfo {
        fabric_id: 0x301,
        vesw_id: 2,
        def_port_mask: 1,
        pkey: PKey::new(0x8001),
        u_mcast_dlid: Lid::new(0xf0_0002),
        u_ucast_dlid: [Lid::new(0x100); 16],
        rc: 0x0765_4321,
        eth_mtu: 9000,
        port_num: 7,
        base_mac_addr: [6, 0x2c, 0, 5, 0, 0],
        config_state: ConfigState::Forwarding,
        mac_tbl_digest: 0xdead,
        encap_slid: Lid::new(5),
        ..VeswPortInfo::default()
    };
    let of_port = " max_mac_tbl_ent 2048 max_smac_ent 256 mac_tbl_digest 0xdead encap_slid 0x000005 \
        pcp_to_sc_uc 0,0,0,0,0,0,0,0 pcp_to_vl_uc 0,0,0,0,0,0,0,0 pcp_to_sc_mc 0,0,0,0,0,0,0,0 \
        pcp_to_vl_mc 0,0,0,0,0,0,0,0 non_vlan_sc_uc 0 non_vlan_vl_uc 0 non_vlan_sc_mc 0 \
        non_vlan_vl_mc 0 uc_macs_gen_count 0 mc_macs_gen_count 0";
    let lids = ["0x000100"; 16].join(",");
    let expected = format!(
        "VNIC Set VeswPortInfo ... fabric_id 0x301 vesw_id 2 def_port_mask 0x1 pkey 0x8001 \
         u_mcast_dlid 0xf00002 u_ucast_dlid {lids} rc 0x7654321 eth_mtu 9000 port_num 7 \
         eth_link_status unknown base_mac_addr 06:2c:00:05:00:00 config_state forwarding \
         oper_state drop-all{of_port}"
    );
    let set = mad::write(&header(method::SET, attribute::VESW_PORT_INFO), &info);
    assert_eq!(printed(&set), expected);
    let delete = mad::write(&header(method::SET, attribute::DELETE_VESW), &info);
    assert_eq!(printed(&delete), "VNIC Set DeleteVesw ...");
}

#[test]
fn tables_and_lists_show_their_entries() {
    let entry = |last, mask, dlid_sd| MacEntry {
        mac: [0x52, 0x54, 0, 0, 0, last],
        mask,
        dlid_sd,
    };
    let entries = MacEntries {
        offset: 10,
        digest: 0x77,
        entries: vec![entry(1, [0; 6], 0x500), entry(2, [0xff; 6], 0x620)],
    };
    let set = header(method::SET, attribute::VESW_MAC_ENTRIES);
    assert_eq!(
        printed(&mad::write(&set, &entries)),
        "VNIC Set VeswPortMacEntries ... offset 10 count 2 mac_tbl_digest 0x77 \
         entries 52:54:00:00:00:01=0x000005/0x00,52:54:00:00:00:02&ff:ff:ff:ff:ff:ff=0x000006/0x20"
    );
    let macs = MacList {
        start: 0,
        total: 2,
        gen_count: 9,
        macs: vec![[1, 0, 0x5e, 0, 0, 1], [0x33, 0x33, 0, 0, 0, 1]],
    };
    let answer = header(method::GET_RESP, attribute::IFACE_MCAST_MACS);
    assert_eq!(
        printed(&mad::write(&answer, &macs)),
        "VNIC GetResp IfaceMcastMacs ... start 0 count 2 total 2 gen_count 9 \
         macs 01:00:5e:00:00:01,33:33:00:00:00:01"
    );
    let at = |qpn| NodeAddress {
        gid: gid(7),
        qpn: Qpn::new(qpn),
    };
    let directory = LidDirectory {
        start: 0,
        total: 1,
        digest: 0x99,
        entries: vec![(Lid::new(7), at(0x123))],
    };
    let set = header(method::SET, attribute::LID_DIRECTORY);
    assert_eq!(
        printed(&mad::write(&set, &directory)),
        "VNIC Set LidDirectory ... start 0 count 1 total 1 digest 0x99 \
         entries 0x000007=fe80::7/0x000123"
    );
}

#[test]
fn counters_have_the_names_of_the_driver() {
    let counters = Counters {
        tx_packets: 5,
        rx_1519_max: 3,
        rx_runt: 2,
        ..Counters::default()
    };
    let summary = SummaryCounters {
        index: 1,
        vesw_id: 2,
        port_num: 3,
        counters,
    };
    let answer = header(method::GET_RESP, attribute::SUMMARY_COUNTERS);
    let said_summary = printed(&mad::write(&answer, &summary));
    assert!(said_summary.starts_with(
        "VNIC GetResp VeswPortSummaryCounters ... vp_instance 1 vesw_id 2 port_num 3 rx_packets 0 tx_packets 5 "
    ));
    assert!(said_summary.ends_with(" rx_1519_max 3"), "{said_summary}");
    // 28 counters after three fields.
    assert_eq!(said_summary.split("x_").count() - 1, 28);
    let errors = ErrorCounters::of(1, 2, 3, &counters);
    let answer = header(method::GET_RESP, attribute::ERROR_COUNTERS);
    let said_errors = printed(&mad::write(&answer, &errors));
    assert!(
        said_errors.contains(" rx_runt 2 rx_oversize 0 "),
        "{said_errors}"
    );
}

#[test]
fn what_is_of_a_whole_node_has_no_virtual_port() {
    let of_node = |method, attribute| Header {
        modifier: 0.into(),
        ..header(method, attribute)
    };
    let info = ClassPortInfo::default().with_trap(gid(1), Qpn::new(0x42), 1);
    let class = mad::write(
        &of_node(method::GET_RESP, attribute::CLASS_PORT_INFO),
        &info,
    );
    let said_class = printed(&class);
    assert!(said_class.starts_with(
        "VNIC GetResp ClassPortInfo tid 0xabc0000000000007 base_version 0x80 class_version 0x80 \
         cap_mask 0xff01 cap_mask2 0x0 response_time 18 (1.1 s) redirect_gid :: "
    ));
    assert!(said_class.contains(
        " trap_gid fe80::1 trap_tc_fl 0x0 trap_lid 0x1 trap_hop_limit 0 trap_qp 0x000042 "
    ));
    let notice = Notice {
        issuer_lid: Lid::new(5),
        fabric_id: 0x301,
        vesw_id: 2,
        port_num: 7,
        opa_port: 1,
        index: 4,
        kind: TrapKind::LinkStatus,
    };
    let trap = mad::write(&of_node(method::TRAP, attribute::NOTICE), &notice);
    assert!(printed(&trap).ends_with(
        "opcode 3 (link status changed) issuer_lid 0x000005 fabric_id 0x301 vesw_id 2 port_num 7 \
         opa_port 1 vport 4"
    ));
    let node = NodeInfo {
        guid: Guid([2; 8]),
        incarnation: 0xf00d,
        port: 1,
        payload_max: 4096,
        description: "host a".to_owned(),
        first: 0,
        next: 0,
        ports: vec![WantedPort {
            index: 0,
            name: "vnic0".to_owned(),
            qpn: Qpn::new(0x11),
        }],
    };
    let send = mad::write(&of_node(method::SEND, attribute::NODE_INFO), &node);
    assert!(printed(&send).ends_with(
        "guid 0202:0202:0202:0202 incarnation 0x000000000000f00d port 1 payload_max 4096 \
         description \"host a\" first 0 next 0 ports 0:vnic0/0x000011"
    ));
    let manager = ManagerInfo {
        id: 1,
        priority: 5,
        active: true,
        lease_ms: 15000,
        gid: gid(9),
    };
    let send = mad::write(&of_node(method::SEND, attribute::MANAGER_INFO), &manager);
    assert!(printed(&send).ends_with("priority 5 active 1 lease_ms 15000 gid fe80::9"));
}

#[test]
fn a_datagram_in_pieces_is_in_the_record_of_its_last_piece() {
    let entries = MacEntries {
        offset: 0,
        digest: 1,
        entries: vec![
            MacEntry {
                mac: [2; 6],
                mask: [0; 6],
                dlid_sd: 0x500
            };
            125
        ],
    };
    let set = mad::write(&header(method::SET, attribute::VESW_MAC_ENTRIES), &entries);
    assert_eq!(set.len(), 2048);
    let mut pieces = packets(&set, 1036);
    assert_eq!(pieces.len(), 2);
    // The other order gives the same.
    pieces.reverse();
    let file = pcap(&pieces, usize::MAX);
    let (summary, text) = lines(&file);
    assert_eq!((summary.good, summary.malformed), (2, 0));
    assert!(
        text[0].ends_with("| bytes 1024 to 2048 of 2048 of message 0x0000005a | icrc good"),
        "{}",
        text[0]
    );
    let second =
        "| bytes 0 to 1024 of 2048 of message 0x0000005a | VNIC Set VeswPortMacEntries tid";
    assert!(text[1].contains(second), "{}", text[1]);
    let all = objects(&file);
    assert_eq!(all[0]["fragment"]["offset"], 1024);
    assert_eq!(all[0].get("mad"), None);
    assert_eq!(all[1]["mad"]["class"], 0x34);
    assert_eq!(
        all[1]["mad"]["fields"]["entries"].as_array().unwrap().len(),
        125
    );
}

#[test]
fn datagrams_with_a_mac_are_decoded() {
    let get = mad::write_empty(&header(method::GET, attribute::VESW_PORT_INFO));
    let here = (gid(1), Qpn::new(2));
    let route = Route {
        from: here,
        to: here,
    };
    let mut seal = Seal::new(Time(0), &[[7; 32]]);
    let pieces = Splitter::new(0x5a, 4096).split(&get);
    let packets: Vec<_> = pieces
        .map(|piece| seal.seal(1234, &route, piece))
        .map(|sealed| send(MANAGEMENT_QKEY.get(), 0, 0, &[&sealed]))
        .collect();
    let file = pcap(&packets, usize::MAX);
    let (summary, text) = lines(&file);
    assert_eq!((summary.good, summary.malformed), (1, 0));
    let expected = " | MAC with counter 1234 | VNIC Get VeswPortInfo tid";
    assert!(text[0].contains(expected), "{}", text[0]);
    assert_eq!(objects(&file)[0]["fragment"]["counter"], 1234);
}

#[test]
fn what_is_no_management_is_malformed() {
    let wrong = |payload: &[u8]| {
        let packet = send(MANAGEMENT_QKEY.get(), 0, 0, &[payload]);
        let (summary, text) = lines(&pcap(&[packet], usize::MAX));
        assert_eq!(
            (summary.malformed, summary.exit_status()),
            (1, EXIT_BAD),
            "{}",
            text[0]
        );
        text[0].clone()
    };
    assert!(wrong(b"ping").contains("malformed: not a piece of a VNIC management datagram"));
    let piece = |message: &[u8]| Splitter::new(1, 4096).split(message).next().unwrap();
    assert!(wrong(&piece(&[0; 24])).contains("malformed: management datagram has 24 bytes"));
    let info = header(method::SET, attribute::VESW_PORT_INFO);
    let cut = wrong(&piece(&mad::write_empty(&info)));
    assert!(
        cut.contains("| VNIC Set VeswPortInfo tid ")
            && cut.contains("malformed: attribute has 0 bytes")
    );
    // Foreign text is escaped before it reaches the terminal.
    let mut node = mad::write_empty(&header(method::SEND, attribute::NODE_INFO));
    node.resize(40 + 88, 0);
    node[40 + 24..40 + 28].copy_from_slice(b"\x1b[2J");
    assert!(wrong(&piece(&node)).contains("malformed: description is not valid text"));
}
