//! Transmit path of a port.

use std::sync::Arc;

use proto::{Mac, Qpn, Time};

use crate::Lid;
use crate::attribute::{ServiceClasses, VeswPortInfo};
use crate::carriage::group_mgid;
use crate::counters::Counters;
use crate::directory::Directory;
use crate::mac_table::MacEntry;
use crate::port::testing::*;
use crate::port::{Forward, Sizes, Target, Unsent, VeswPort};

const GLOBAL: Mac = [0xa0, 0x36, 0x9f, 0x11, 0x22, 0x33];
const GROUP: Mac = [0x01, 0x00, 0x5e, 0, 0, 1];

/// Port 5 with the rules of the driver.
fn driver(info: VeswPortInfo) -> VeswPort {
    port_without_learning(5, &info)
}

fn dlid(port: &mut VeswPort, destination: Mac) -> Option<u32> {
    send(port, &frame(destination, mac(5))).dlid().map(Lid::get)
}

fn parse_mac(text: &str) -> Mac {
    let bytes = text.split(':').map(|b| u8::from_str_radix(b, 16).unwrap());
    bytes.collect::<Vec<u8>>().try_into().unwrap()
}

#[test]
fn t01_t03_the_table_takes_precedence_over_all_other_rules() {
    for mut port in [driver(info(5)), port(5)] {
        let local = [0x06, 0x2c, 0, 9, 0, 0];
        let group_lid = 0xf0_0009;
        let entries = [
            (GLOBAL, 0x07_1234 << 8),
            (local, 0x08_1234 << 8 | 0x40),
            (GROUP, group_lid << 8),
            (BROADCAST, 0x09_1234 << 8),
        ];
        port.set_table(Arc::new(table(&entries)));
        let of = |mac| dlid(&mut port, mac);
        let expected = [0x07_1234, 0x08_1234, group_lid, 0x09_1234];
        assert_eq!(
            [GLOBAL, local, GROUP, BROADCAST].map(of),
            expected.map(Some)
        );
        // Another group has another multicast GID, and the port joins it.
        assert_eq!(port.joined(), [ALL, Lid::new(group_lid)]);
        let Sent::Packet(header, (gid, qpn), _) = send(&mut port, &frame(GROUP, mac(5))) else {
            panic!("group frames are always sent")
        };
        assert_eq!(qpn, Qpn::MULTICAST);
        assert_eq!(gid, group_mgid(header.pkey, 3, 2, Lid::new(group_lid)));
    }
}

#[test]
fn t02_source_entries_are_not_destinations() {
    let mut port = driver(info(5));
    let entry = (GROUP, 7 << 8 | MacEntry::SOURCE);
    port.set_table(Arc::new(table(&[entry])));
    assert_eq!(dlid(&mut port, GROUP), Some(ALL.get()));
}

#[test]
fn t05_t06_t07_addresses_without_an_entry_lead_to_the_lids_of_the_vectors() {
    let gateway = 0x0a_bcde;
    let mut info = info(5);
    info.encap_slid = Lid::new(0x77);
    info.def_port_mask = 1 << 3;
    info.u_ucast_dlid[3] = Lid::new(gateway);
    let mut port = driver(info);
    let vectors = vectors();
    let vectors = vectors["dlid_on_table_miss"].as_array().unwrap();
    assert!(!vectors.is_empty());
    for v in vectors {
        let expected = match v["table_miss_result"].as_str() {
            Some("u_mcast_dlid") => ALL.get(),
            Some(_) => gateway,
            None => v["table_miss_result"].as_u64().unwrap() as u32,
        };
        let destination = parse_mac(v["dst"].as_str().unwrap());
        assert_eq!(dlid(&mut port, destination), Some(expected), "{v}");
    }
    assert_eq!(dlid(&mut port, BROADCAST), Some(ALL.get()));
}

#[test]
fn t07_t12_flows_are_spread_over_the_default_ports() {
    let mut info = info(5);
    info.def_port_mask = 0x8001;
    info.u_ucast_dlid[0] = Lid::new(100);
    info.u_ucast_dlid[15] = Lid::new(115);
    let mut port = driver(info);
    let mut of = |port_number: u8| {
        let mut f = frame(GLOBAL, mac(5));
        f[12..15].copy_from_slice(&[8, 0, 0x45]);
        f[20..24].copy_from_slice(&[0, 0, 64, 6]);
        f[37] = port_number;
        match send(&mut port, &f) {
            Sent::Packet(header, ..) => (header.dlid.get(), header.entropy),
            other => panic!("{other:?}"),
        }
    };
    let all: Vec<(u32, u16)> = (0..64).map(&mut of).collect();
    assert_eq!(all, (0..64).map(of).collect::<Vec<_>>());
    for (dlid, entropy) in &all {
        let place = (entropy & 15) + (entropy >> 4);
        assert_eq!(*dlid, if place % 2 == 0 { 100 } else { 115 });
    }
    assert!(all.iter().any(|(dlid, _)| *dlid == 100) && all.iter().any(|(dlid, _)| *dlid == 115));
}

/// Asserts that `frames` frames had no destination, and no other error.
fn assert_no_destination(port: &VeswPort, frames: u64) {
    let c = port.counters();
    assert_eq!(
        (c.tx_dlid_zero, c.tx_errors, c.tx_dropped),
        (frames, frames, frames)
    );
    assert_eq!((c.tx_packets, c.tx_unicast + c.tx_mcastbcast), (frames, 0));
}

#[test]
fn t08_t09_t10_without_a_destination_a_frame_is_dropped_and_counted() {
    let mut port = driver(info(5));
    assert_eq!(dlid(&mut port, GLOBAL), None);
    assert_no_destination(&port, 1);
    let mut with_default = info(5);
    with_default.def_port_mask = 1;
    with_default.u_ucast_dlid[0] = Lid::new(9);
    let mut port = driver(with_default);
    // A locally administered address never uses the default port.
    assert_eq!(dlid(&mut port, [2, 9, 9, 0, 0, 0]), None);
    assert_no_destination(&port, 1);
    let mut without_group = info(5);
    without_group.u_mcast_dlid = Lid::NONE;
    let mut port = driver(without_group);
    assert_eq!(
        [BROADCAST, GROUP].map(|mac| dlid(&mut port, mac)),
        [None; 2]
    );
    assert_no_destination(&port, 2);
}

#[test]
fn no_frame_goes_to_an_invalid_lid_or_to_the_port_itself() {
    let mut port = driver(info(5));
    port.set_table(Arc::new(table(&[(GLOBAL, 5 << 8)])));
    assert_eq!(dlid(&mut port, GLOBAL), None);
    assert_eq!(dlid(&mut port, [2, 0, 0, 5, 0, 0]), None);
    // Collective and permissive LIDs are not destinations.
    assert_eq!(dlid(&mut port, [2, 0, 0, 0, 0, 0xf8]), None);
    assert_eq!(dlid(&mut port, [2, 0, 0, 0xff, 0xff, 0xff]), None);
    assert_no_destination(&port, 4);
}

#[test]
fn a_host_that_moved_away_is_reached_before_the_manager_knows_it() {
    let mut port = port(5);
    port.set_table(Arc::new(table(&[(GLOBAL, 5 << 8)])));
    send(&mut port, &frame(BROADCAST, GLOBAL));
    assert_eq!(dlid(&mut port, GLOBAL), None);
    // The host moves to the member 6.
    let packet = packet(&header(6, ALL), &frame(BROADCAST, GLOBAL));
    assert!(port.from_fabric(Time(0), &from(6, true), &packet).is_ok());
    assert_eq!(dlid(&mut port, GLOBAL), Some(6));
    assert_eq!(port.counters().tx_dlid_zero, 1);
    // The host returns.
    send(&mut port, &frame(BROADCAST, GLOBAL));
    assert_eq!(dlid(&mut port, GLOBAL), None);
}

#[test]
fn t19_headers_have_the_managers_settings() {
    let mut info = info(5);
    info.rc = 0x0765_4321;
    info.classes = ServiceClasses {
        unicast: 1,
        multicast: 2,
        pcp_unicast: [0, 0, 0, 0, 0, 17, 0, 0],
        ..ServiceClasses::default()
    };
    let mut port = driver(info);
    port.set_table(Arc::new(table(&[(GLOBAL, 7 << 8)])));
    let mut headers = |types: &[u8], protocol: u8, to: Mac| {
        let mut f = [&to[..], &mac(5), types, &[0; 50]].concat();
        f[12 + types.len() + 9] = protocol;
        match send(&mut port, &f) {
            Sent::Packet(header, ..) => header,
            other => panic!("{other:?}"),
        }
    };
    let plain = headers(&[8, 0], 6, GLOBAL);
    assert_eq!((plain.sc, plain.rc), (1, 4));
    let tagged = headers(&[0x81, 0, 0xa0, 1, 8, 0], 17, GLOBAL);
    assert_eq!((tagged.sc, tagged.rc), (17, 3));
    let group = headers(&[8, 6], 0, BROADCAST);
    assert_eq!((group.sc, group.rc), (2, 1));
    for header in [plain, tagged, group] {
        assert_eq!(header.slid, Lid::new(5));
        assert_eq!((header.vesw_id, header.pkey.get()), (2, 0x8001));
        assert!(header.entropy < 0x100 && !header.becn && !header.fecn);
    }
}

#[test]
fn t20_s11_nothing_is_sent_while_the_port_does_not_forward() {
    let mut port = port(5);
    port.set_up(false);
    assert_eq!(
        send(&mut port, &frame_of(100, BROADCAST, mac(5))),
        Sent::Dropped
    );
    let expected = Counters {
        tx_packets: 1,
        tx_bytes: 104,
        tx_65_127: 1,
        tx_drop_state: 1,
        tx_errors: 1,
        tx_dropped: 1,
        ..Counters::default()
    };
    assert_eq!(*port.counters(), expected);
    port.set_up(true);
    assert_eq!(dlid(&mut port, BROADCAST), Some(ALL.get()));
}

#[test]
fn runts_of_the_tap_are_counted_and_short_frames_filled_up() {
    let mut port = port(5);
    assert_eq!(send(&mut port, &[0xff; 13]), Sent::Dropped);
    assert_eq!(port.counters().tx_bad_frame, 1);
    let Sent::Packet(_, _, packet) = send(&mut port, &frame_of(14, BROADCAST, mac(5))) else {
        panic!("a frame of only a header is sent")
    };
    assert_eq!(packet.len(), 88);
    assert_eq!(
        (port.counters().tx_64_size, port.counters().tx_bytes),
        (2, 128)
    );
}

#[test]
fn with_learning_unknown_addresses_are_flooded() {
    let mut port = port(5);
    for destination in [GLOBAL, [0x52, 0x54, 0, 0x12, 0x34, 0x56]] {
        let sent = send(&mut port, &frame(destination, mac(5)));
        assert!(sent.by_group());
        assert_eq!(sent.dlid(), Some(ALL));
    }
    let c = port.counters();
    assert_eq!((c.tx_flooded, c.tx_unicast, c.tx_mcastbcast), (2, 2, 0));
    // A default port takes precedence over flooding.
    let mut info = info(5);
    info.def_port_mask = 2;
    info.u_ucast_dlid[1] = Lid::new(0x31);
    port.configure(&info);
    assert_eq!(dlid(&mut port, GLOBAL), Some(0x31));
}

#[test]
fn with_learning_a_lid_in_an_address_applies_if_a_member_has_it() {
    let mut port = port(5);
    let made_from_seven = [0x06, 0x2c, 0, 7, 0, 0];
    assert_eq!(dlid(&mut port, made_from_seven), Some(ALL.get()));
    let nodes = [(Lid::new(7), address(7))];
    port.set_directory(&Directory {
        nodes: nodes.into(),
        closed: true,
    });
    assert_eq!(dlid(&mut port, made_from_seven), Some(7));
    let sent = send(&mut port, &frame(made_from_seven, mac(5)));
    let place = (address(7).gid, address(7).qpn);
    assert!(matches!(sent, Sent::Packet(_, to, _) if to == place));
}

#[test]
fn a_list_with_the_port_itself_does_not_make_it_a_destination() {
    let mut port = port(5);
    port.set_directory(&Directory {
        nodes: [5, 7].map(|lid| (Lid::new(lid), address(lid))).into(),
        closed: true,
    });
    // An address of another host that happens to contain the port's LID.
    assert_eq!(dlid(&mut port, [0x06, 0x2c, 0, 5, 0, 0]), Some(ALL.get()));
}

#[test]
fn a_member_without_a_known_address_is_reached_by_the_group() {
    let mut port = port(5);
    port.set_table(Arc::new(table(&[(GLOBAL, 9 << 8)])));
    let sent = send(&mut port, &frame(GLOBAL, mac(5)));
    assert_eq!((sent.dlid(), sent.by_group()), (Some(Lid::new(9)), true));
    // With a known queue pair, the member is addressed directly.
    let packet = packet_to(ALL, 9);
    assert!(port.from_fabric(Time(0), &from(9, true), &packet).is_ok());
    let sent = send(&mut port, &frame(GLOBAL, mac(5)));
    assert_eq!((sent.dlid(), sent.by_group()), (Some(Lid::new(9)), false));
    assert_eq!(port.counters().tx_flooded, 0);
}

#[test]
fn without_group_and_address_a_frame_is_refused() {
    let mut info = info(5);
    info.u_mcast_dlid = Lid::NONE;
    let mut port = driver(info);
    port.set_table(Arc::new(table(&[(GLOBAL, 9 << 8)])));
    assert_eq!(dlid(&mut port, GLOBAL), None);
    assert_eq!(port.counters().tx_carrier_errors, 1);
}

#[test]
fn siblings_get_frames_without_the_fabric() {
    let (mut five, mut six) = (port(5), port(6));
    five.set_siblings([6, 5, 8].map(Lid::new));
    let sent = send(&mut five, &frame(mac(6), mac(5)));
    assert!(sent.by_group(), "an unknown address is flooded: {sent:?}");
    assert!(six.from_sibling(Time(0), Lid::new(5), &frame(mac(6), mac(5)), Sizes::one(60)));
    six.set_siblings([Lid::new(5)]);
    let back = send(&mut six, &frame(mac(5), mac(6)));
    assert_eq!(back, Sent::Sibling(Lid::new(5)));
    let c = six.counters();
    assert_eq!((c.tx_to_siblings, c.tx_unicast, c.rx_unicast), (1, 1, 1));
    // The LID in the address needs no learning.
    assert_eq!(
        send(&mut five, &frame([2, 0, 0, 8, 0, 0], mac(5))),
        Sent::Sibling(Lid::new(8))
    );
}

/// The list of siblings and the port's own LID change at different times.
#[test]
fn a_port_is_never_its_own_sibling() {
    let mut port = port(5);
    port.set_siblings([5, 6].map(Lid::new));
    let to = |port: &mut VeswPort, lid: u8| send(port, &frame([2, 0, 0, lid, 0, 0], mac(5)));
    for (own, other) in [(5, 6), (6, 5), (5, 6)] {
        port.configure(&info(own.into()));
        assert_eq!(to(&mut port, other), Sent::Sibling(Lid::new(other.into())));
        assert!(to(&mut port, own).by_group());
    }
}

#[test]
fn a_large_send_is_one_decision() {
    let mut port = port(5);
    let large = frame_of(65_000, BROADCAST, mac(5));
    let Forward::Fabric { to, class, .. } = port.from_tap(Time(0), &large) else {
        panic!("broadcast is not sent")
    };
    assert!(matches!(to, Target::Group(_)));
    let sizes = Sizes {
        full: 1514,
        count: 43,
        last: 1000,
    };
    port.count_sent(class, sizes);
    let c = port.counters();
    assert_eq!(
        (c.tx_packets, c.tx_mcastbcast, c.tx_bytes),
        (43, 43, 42 * 1518 + 1004)
    );
    port.count_unsent(Unsent::NoRoom, sizes);
    let c = port.counters();
    assert_eq!((c.tx_packets, c.tx_fifo_errors, c.tx_errors), (86, 43, 43));
}
