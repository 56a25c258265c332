use proptest::prelude::*;
use proto::{Gid, Guid, Mac, PKey, Qpn};

use super::*;
use crate::Lid;
use crate::attribute::{
    ConfigState, LidDirectory, ManagerInfo, NodeInfo, Reserved, ServiceClasses, VeswPortInfo,
    WantedPort,
};
use crate::counters::Counters;
use crate::directory::NodeAddress;
use crate::mac_table::MacEntry;

/// Builds a datagram of the vectors from its first bytes and zeros.
fn vector(name: &str) -> Vec<u8> {
    let vectors: serde_json::Value =
        serde_json::from_str(include_str!("../../../tests/data/opa_vnic_vectors.json")).unwrap();
    let all = vectors["mad_vectors"].as_array().unwrap();
    let one = all.iter().find(|v| v["name"] == name).unwrap();
    let fields = one.as_object().unwrap();
    let (_, digits) = fields
        .iter()
        .find(|(key, _)| key.ends_with("_hex"))
        .unwrap();
    let digits = digits.as_str().unwrap().as_bytes();
    let digit = |d: u8| (d as char).to_digit(16).unwrap() as u8;
    let mut bytes: Vec<u8> = digits
        .chunks(2)
        .map(|c| digit(c[0]) << 4 | digit(c[1]))
        .collect();
    bytes.resize(one["len"].as_u64().unwrap() as usize, 0);
    bytes
}

/// Asserts that a datagram equals the vector, except for zeros at its end.
#[track_caller]
fn assert_is(mut bytes: Vec<u8>, vector: &[u8]) {
    assert!(bytes.len() <= MAD_MAX);
    bytes.resize(MAD_MAX, 0);
    assert_eq!(bytes, vector);
}

fn the_vectors_info() -> VeswPortInfo {
    let count = |from: u8| std::array::from_fn(|n| from + n as u8);
    VeswPortInfo {
        fabric_id: 0x301,
        vesw_id: 2,
        def_port_mask: 0x8001,
        pkey: PKey::new(0x8001),
        u_mcast_dlid: Lid::new(0xf0_0002),
        u_ucast_dlid: std::array::from_fn(|n| Lid::new(0x100 + n as u32)),
        rc: 0x0765_4321,
        eth_mtu: 9000,
        port_num: 7,
        eth_link_status: 0,
        base_mac_addr: [6, 0x2c, 0, 5, 0, 0],
        config_state: ConfigState::Forwarding,
        oper_state: ConfigState::Nop,
        max_mac_tbl_ent: 2048,
        max_smac_ent: 256,
        mac_tbl_digest: 0,
        encap_slid: Lid::new(5),
        classes: ServiceClasses {
            pcp_unicast: count(0),
            pcp_unicast_vl: count(0),
            pcp_multicast: count(8),
            pcp_multicast_vl: count(0),
            unicast: 1,
            unicast_vl: 0,
            multicast: 9,
            multicast_vl: 0,
        },
        uc_macs_gen_count: 0,
        mc_macs_gen_count: 0,
        reserved: Reserved::default(),
    }
}

#[test]
fn m10_vesw_port_info_has_the_kernels_layout() {
    let bytes = vector("set_veswport_info_req");
    let mad = Mad::parse(&bytes).unwrap();
    let header = Header::new(
        method::SET,
        attribute::VESW_PORT_INFO,
        1,
        0x0102_0304_0506_0708,
    );
    assert_eq!(mad.header, header);
    assert_eq!(mad.attribute(), Ok(the_vectors_info()));
    let ours = write(&header, &the_vectors_info());
    assert_eq!(ours.len(), HEADER_LEN + 280);
    assert_is(ours, &bytes);
}

#[test]
fn m05_the_answer_for_a_port_that_does_not_exist_is_the_kernels() {
    let header = Header::new(method::GET, attribute::VESW_PORT_INFO, 9, 0x15);
    let bytes = vector("get_veswport_info_resp_unknown_vport");
    assert_is(
        write(&header.response(status::OK), &VeswPortInfo::default()),
        &bytes,
    );
    let mad = Mad::parse(&bytes).unwrap();
    assert_eq!(mad.attribute(), Ok(VeswPortInfo::default()));
}

#[test]
fn m03_class_port_info_has_255_ports_and_traps() {
    let header = Header::new(method::GET, attribute::CLASS_PORT_INFO, 0, 0x13);
    let bytes = vector("get_class_port_info_resp_defaults");
    assert_is(
        write(&header.response(status::OK), &ClassPortInfo::default()),
        &bytes,
    );
    let info: ClassPortInfo = Mad::parse(&bytes).unwrap().attribute().unwrap();
    assert_eq!(info.cap_mask.get(), 0xff01);
    assert_eq!(info.cap_mask2_resp_time.get() & 0x1f, 18);
    assert_eq!(info.trap_to(), None);
}

#[test]
fn m02_requests_and_refusals_without_an_attribute_are_the_kernels() {
    let get = Header::new(method::GET, attribute::VESW_PORT_INFO, 1, 0x11);
    assert_is(write_empty(&get), &vector("get_veswport_info_req"));
    let delete = Header::new(method::SET, attribute::DELETE_VESW, 1, 0x14);
    assert_is(write_empty(&delete), &vector("set_delete_vesw_req"));
    let get = Header::new(method::GET, attribute::VESW_MAC_ENTRIES, 9, 0x16);
    assert_is(
        write_empty(&get.response(status::INVALID)),
        &vector("get_mac_entries_resp_unknown_vport"),
    );
}

#[test]
fn m07_the_lower_8_bits_of_the_modifier_are_the_port() {
    assert_eq!(Header::new(method::GET, 0x11, 0xffff_ff07, 0).vport(), 7);
}

#[test]
fn m01_another_class_version_or_vendor_is_refused_by_name() {
    let good = vector("get_veswport_info_req");
    let fields = [
        (0, "base version"),
        (1, "management class"),
        (2, "class version"),
        (39, "vendor"),
    ];
    for (at, name) in fields {
        let mut bad = good.clone();
        bad[at] ^= 1;
        match Mad::parse(&bad) {
            Err(Malformed::Foreign { field, .. }) => assert_eq!(field, name),
            other => panic!("{other:?}"),
        }
    }
    for len in (0..HEADER_LEN).chain([MAD_MAX + 1]) {
        let bytes = [good.as_slice(), &[0]].concat();
        assert_eq!(Mad::parse(&bytes[..len]), Err(Malformed::Length(len)));
    }
    assert!(Mad::parse(&good[..HEADER_LEN]).is_ok());
}

#[test]
fn c25_multicast_lids_in_a_hosts_own_form_become_those_of_the_wire() {
    let mut bytes = Vec::new();
    the_vectors_info().encode(&mut bytes);
    bytes[20..24].copy_from_slice(&0xf000_0002_u32.to_be_bytes());
    assert_eq!(VeswPortInfo::decode(&bytes), Ok(the_vectors_info()));
    bytes[20..24].copy_from_slice(&0x0100_0002_u32.to_be_bytes());
    let refused = VeswPortInfo::decode(&bytes).unwrap_err();
    assert_eq!(
        refused.to_string(),
        "u_mcast_dlid is 0x1000002, not a 24-bit LID"
    );
}

#[test]
fn s04_the_service_level_of_traps_is_in_the_upper_5_bits() {
    let mut info = ClassPortInfo::default().with_trap(Gid([1; 16]), Qpn::new(0x4711), 1);
    info.trap_sl_rsvd = 0x5f;
    let mut bytes = Vec::new();
    info.encode(&mut bytes);
    assert_eq!((bytes.len(), bytes[76] >> 3), (80, 11));
    assert_eq!(bytes[60..68], [0, 0, 0, 1, 0, 0, 0x47, 0x11]);
    assert_eq!(info.trap_sl(), 11);
    assert_eq!(info.trap_to(), Some((Gid([1; 16]), Qpn::new(0x4711))));
}

#[test]
fn s02_a_trap_has_272_bytes_and_its_opcode_at_83() {
    let notice = Notice {
        issuer_lid: Lid::new(0x01_0203),
        fabric_id: 0x301,
        vesw_id: 0xabc,
        port_num: 0x0506_0708,
        opa_port: 1,
        index: 9,
        kind: TrapKind::LinkStatus,
    };
    let bytes = write(&Header::new(method::TRAP, attribute::NOTICE, 0, 1), &notice);
    assert_eq!(bytes.len(), 272);
    assert_eq!(bytes[40..52], [8, 0, 6, 0x6a, 0, 0, 0, 0, 0, 1, 2, 3]);
    let raw = [3, 1, 0xa, 0xbc, 5, 6, 7, 8, 0, 1, 9, 3];
    assert_eq!(bytes[72..84], raw);
    assert_eq!(Mad::parse(&bytes).unwrap().attribute(), Ok(notice));
}

/// Counters with distinct values.
fn numbered() -> Counters {
    let mut c = Counters::default();
    macro_rules! number {
        ($($name:ident $value:literal),* $(,)?) => { $(c.$name = $value;)* };
    }
    number!(
        tx_errors 8, rx_errors 16, tx_packets 24, rx_packets 32, tx_bytes 40, rx_bytes 48,
        tx_unicast 56, tx_mcastbcast 64, tx_untagged 72, tx_vlan 80, tx_64_size 88, tx_65_127 96,
        tx_128_255 104, tx_256_511 112, tx_512_1023 120, tx_1024_1518 128, tx_1519_max 136,
        rx_unicast 144, rx_mcastbcast 152, rx_untagged 160, rx_vlan 168, rx_64_size 176,
        rx_65_127 184, rx_128_255 192, rx_256_511 200, rx_512_1023 208, rx_1024_1518 216,
        rx_1519_max 224,
    );
    c
}

fn be64(bytes: &[u8], at: usize) -> u64 {
    u64::from_be_bytes(bytes[at..at + 8].try_into().unwrap())
}

#[test]
fn m24_summary_counters_are_at_their_places() {
    let all = SummaryCounters {
        index: 1,
        vesw_id: 2,
        port_num: 3,
        counters: numbered(),
    };
    let mut bytes = Vec::new();
    all.encode(&mut bytes);
    assert_eq!(bytes.len(), 360);
    assert_eq!(bytes[..8], [0, 1, 0, 2, 0, 0, 0, 3]);
    for at in (8..232).step_by(8) {
        assert_eq!(be64(&bytes, at), at as u64);
    }
    assert!(bytes[232..].iter().all(|b| *b == 0));
    assert_eq!(SummaryCounters::decode(&bytes), Ok(all));
}

#[test]
fn m25_error_counters_are_at_their_places_and_mapped() {
    let counters = Counters {
        tx_errors: 8,
        rx_errors: 16,
        tx_dlid_zero: 64,
        tx_fifo_errors: 50,
        tx_carrier_errors: 30,
        tx_drop_state: 96,
        rx_bad_veswid: 104,
        rx_runt: 120,
        rx_oversize: 128,
        rx_drop_state: 152,
        rx_fifo_errors: 160,
        ..Counters::default()
    };
    let all = ErrorCounters::of(1, 2, 3, &counters);
    let mut bytes = Vec::new();
    all.encode(&mut bytes);
    assert_eq!(bytes.len(), 304);
    for at in (8..304).step_by(8) {
        let value = be64(&bytes, at);
        assert!(value == at as u64 || value == 0, "{at}: {value}");
    }
    let there = [8, 16, 64, 80, 96, 104, 120, 128, 152, 160];
    assert!(there.iter().all(|at| be64(&bytes, *at) == *at as u64));
    assert_eq!(ErrorCounters::decode(&bytes), Ok(all));
}

#[test]
fn m11_a_page_has_125_entries_and_no_more() {
    let page = |count: u16| {
        let mut bytes = vec![0, 0];
        bytes.extend(count.to_be_bytes());
        bytes.extend([0; DATA_MAX - 4]);
        bytes
    };
    assert_eq!(MacEntries::decode(&page(125)).unwrap().entries.len(), 125);
    assert!(MacEntries::decode(&page(126)).is_err());
    assert_eq!(MacEntriesQuery::decode(&page(125)).unwrap().count, 125);
    assert!(MacEntriesQuery::decode(&page(126)).is_err());
    // Fewer bytes than the count requires.
    assert!(MacEntries::decode(&page(125)[..2007]).is_err());
}

#[test]
fn long_texts_are_cut_at_a_character_boundary() {
    let info = NodeInfo {
        description: format!("{}é", "a".repeat(63)),
        ports: vec![WantedPort {
            index: 255,
            name: "interface-of-18-by".to_owned(),
            qpn: Qpn::new(0xff_fffe),
        }],
        ..node(String::new())
    };
    let mut bytes = Vec::new();
    info.encode(&mut bytes);
    let back = NodeInfo::decode(&bytes).unwrap();
    assert_eq!(back.description, "a".repeat(63));
    assert_eq!(back.ports[0].name, "interface-of-18");
    assert_eq!(back.ports[0].qpn, Qpn::new(0xff_fffe));
    // Neither invalid UTF-8 nor control characters.
    for bad in [0xff, 0x1b] {
        bytes[24] = bad;
        assert_eq!(
            NodeInfo::decode(&bytes),
            Err(Malformed::Text("description"))
        );
    }
}

/// A name of 16 bytes has no zero at the end, and is too long for an interface.
#[test]
fn the_last_byte_of_a_name_is_not_read() {
    let mut bytes = Vec::new();
    node(String::new()).encode(&mut bytes);
    bytes[19] = 1;
    bytes.extend([0; 4]);
    bytes.extend(*b"sixteen-of-them!");
    let info = NodeInfo::decode(&bytes).unwrap();
    assert_eq!(info.ports[0].name, "sixteen-of-them");
}

fn node(description: String) -> NodeInfo {
    NodeInfo {
        guid: Guid([2; 8]),
        incarnation: 0x1234,
        port: 1,
        payload_max: 4096,
        description,
        first: 0,
        next: 0,
        ports: Vec::new(),
    }
}

fn lids() -> impl Strategy<Value = Lid> {
    (0..1_u32 << 24).prop_map(Lid::new)
}

fn macs() -> impl Strategy<Value = Mac> {
    any::<Mac>()
}

/// An encoded attribute decodes to the same value; shorter data is refused without panic.
fn reads_back<A: Attribute + PartialEq + std::fmt::Debug>(value: &A) -> Result<(), TestCaseError> {
    let mut bytes = Vec::new();
    value.encode(&mut bytes);
    prop_assert!(bytes.len() <= DATA_MAX);
    prop_assert_eq!(&A::decode(&bytes).unwrap(), value);
    // As on Omni-Path, where every datagram has the full length.
    let mut padded = bytes.clone();
    padded.resize(DATA_MAX, 0);
    prop_assert_eq!(&A::decode(&padded).unwrap(), value);
    Ok(())
}

/// Whatever decodes is encoded to bytes that decode to the same value. A datagram has no more data than [`DATA_MAX`].
fn settles<A: Attribute + PartialEq + std::fmt::Debug>(bytes: &[u8]) -> Result<(), TestCaseError> {
    if let Ok(value) = A::decode(&bytes[..bytes.len().min(DATA_MAX)]) {
        let mut again = Vec::new();
        value.encode(&mut again);
        prop_assert!(again.len() <= DATA_MAX);
        prop_assert_eq!(A::decode(&again), Ok(value));
    }
    Ok(())
}

proptest! {
    #[test]
    fn m08_vesw_port_info_reads_back_with_its_reserved_bytes(
        seed in prop::collection::vec(any::<u8>(), 280),
        lids in prop::collection::vec(lids(), 18),
    ) {
        let mut bytes = seed;
        let places = [20].into_iter().chain((24..88).step_by(4)).chain([180]);
        for (at, lid) in places.zip(&lids) {
            bytes[at..at + 4].copy_from_slice(&lid.get().to_be_bytes());
        }
        // Only four states are distinguished.
        bytes[166] &= 3;
        bytes[167] &= 3;
        let info = VeswPortInfo::decode(&bytes).unwrap();
        let mut again = Vec::new();
        info.encode(&mut again);
        prop_assert_eq!(&again, &bytes);
        reads_back(&info)?;
        for len in 0..280 {
            prop_assert!(VeswPortInfo::decode(&bytes[..len]).is_err());
        }
    }

    #[test]
    fn mac_entries_read_back(
        offset in any::<u16>(),
        digest in any::<u32>(),
        entries in prop::collection::vec((macs(), macs(), any::<u32>()), 0..=MAC_ENTRIES_PAGE),
    ) {
        let entries = entries
            .into_iter()
            .map(|(mac, mask, dlid_sd)| MacEntry { mac, mask, dlid_sd })
            .collect();
        reads_back(&MacEntries { offset, digest, entries })?;
        reads_back(&MacEntriesQuery { offset, count: offset % 126 })?;
    }

    #[test]
    fn mac_lists_read_back(
        start in any::<u16>(),
        total in any::<u16>(),
        gen_count in any::<u16>(),
        macs in prop::collection::vec(macs(), 0..=MAC_LIST_PAGE),
    ) {
        reads_back(&MacListQuery { start, count: total })?;
        reads_back(&MacList { start, total, gen_count, macs })?;
    }

    #[test]
    fn directories_read_back(
        start in any::<u16>(),
        total in any::<u16>(),
        digest in any::<u32>(),
        entries in prop::collection::vec((lids(), any::<[u8; 16]>(), any::<u32>()), 0..=LID_DIRECTORY_PAGE),
    ) {
        let entries = entries
            .into_iter()
            .map(|(lid, gid, qpn)| (lid, NodeAddress { gid: Gid(gid), qpn: Qpn::new(qpn) }))
            .collect();
        reads_back(&LidDirectoryQuery { start, count: total })?;
        reads_back(&LidDirectory { start, total, digest, entries })?;
    }

    #[test]
    fn nodes_and_managers_read_back(
        id in any::<u64>(),
        priority in 0..16_u8,
        active in any::<bool>(),
        lease_ms in any::<u32>(),
        gid in any::<[u8; 16]>(),
        description in "[a-zäöü.0-9-]{0,20}",
        ports in prop::collection::vec((any::<u8>(), "[a-z0-9]{1,15}", any::<u32>()), 0..=NODE_PORTS_PAGE),
    ) {
        reads_back(&ManagerInfo { id, priority, active, lease_ms, gid: Gid(gid) })?;
        let ports = ports
            .into_iter()
            .map(|(index, name, qpn)| WantedPort { index, name, qpn: Qpn::new(qpn) })
            .collect();
        reads_back(&NodeInfo { ports, ..node(description) })?;
    }

    #[test]
    fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..2100)) {
        let _ = Mad::parse(&bytes);
        settles::<ClassPortInfo>(&bytes)?;
        settles::<VeswPortInfo>(&bytes)?;
        settles::<MacEntries>(&bytes)?;
        settles::<MacEntriesQuery>(&bytes)?;
        settles::<MacList>(&bytes)?;
        settles::<MacListQuery>(&bytes)?;
        settles::<SummaryCounters>(&bytes)?;
        settles::<ErrorCounters>(&bytes)?;
        settles::<Notice>(&bytes)?;
        settles::<LidDirectory>(&bytes)?;
        settles::<LidDirectoryQuery>(&bytes)?;
        settles::<NodeInfo>(&bytes)?;
        settles::<ManagerInfo>(&bytes)?;
    }
}
